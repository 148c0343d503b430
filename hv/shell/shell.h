/* The operator's shell: commands registered by table, one file per family. */
#ifndef HV_SHELL_SHELL_H
#define HV_SHELL_SHELL_H

#include "lib/printf.h"

#define SHELL_ARGS 16

/* Where a command writes: text for a person, or one JSON value with -j. Output is buffered; a command whose
 * output may be long is a work item. */
struct shell_out;
void out(struct shell_out *o, const char *fmt, ...) PRINTF(2, 3);

struct shell_call {
    struct shell_out *o;
    int argc;
    char **argv; /* argv[0] is the command; -j is taken out */
    bool json;
};

struct shell_command {
    const char *name;
    const char *usage;               /* "VM VCPU CPUS|all" */
    const char *help;                /* one line */
    int (*fn)(struct shell_call *c); /* 0 or a negative errno; it has said why in one sentence */
};

#define SHELL_COMMAND(id, name, usage, help, fn)                                                             \
    __attribute__((section("shell_commands"), used)) static const struct shell_command id = { name, usage,   \
                                                                                              help, fn }

#endif
