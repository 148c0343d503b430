/* What guests print: to whoever is attached, or to the log. */
#ifndef HV_SHELL_GUESTCON_H
#define HV_SHELL_GUESTCON_H

#include "shell/shell.h"

void guestcon_init(bool to_log);
/* Moves a little of what guests printed to the log. True if there is more. */
bool guestcon_step(u64 now);
int cmd_console(struct shell_call *c);

#endif
