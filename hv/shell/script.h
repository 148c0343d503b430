/* Timed commands: the lines of a boot module that the shell types when they are due
 * (docs/shell.md). Needs nothing of the machine, so tools check a script before a machine boots
 * with it. */
#ifndef HV_SHELL_SCRIPT_H
#define HV_SHELL_SCRIPT_H

#include <takt/types.h>

#define SCRIPT_EXPECTED "expected @TIME COMMAND or +TIME COMMAND, as in @1500ms pause vm2"

enum script_line_kind {
    SCRIPT_NOTHING, /* an empty line or a comment */
    SCRIPT_COMMAND,
    SCRIPT_WRONG, /* SCRIPT_EXPECTED says what should be there */
};

struct script_line {
    /* '+': the time counts from when the command before was due, not from the start */
    bool since_before;
    u64 ns;              /* the time */
    const char *command; /* within the line, without blanks before it; not terminated */
    size_t length;       /* bytes of `command` */
};

/* Reads the line [s, end), without its newline. Fills *out for SCRIPT_COMMAND alone. */
enum script_line_kind script_line_read(const char *s, const char *end, struct script_line *out);

#endif
