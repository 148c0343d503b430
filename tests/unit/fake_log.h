#ifndef FAKE_LOG_H
#define FAKE_LOG_H

#include "lib/printf.h"

extern char fake_log_last[256];
extern unsigned fake_log_lines;

/* Whether `text` is in one of the last 64 lines. */
bool fake_log_said(const char *text);
void fake_log_forget(void);

#endif
