#ifndef FAKE_LOG_H
#define FAKE_LOG_H

#include "lib/printf.h"

extern char fake_log_last[256];
extern unsigned fake_log_lines;

#endif
