/* The shell on the fake machine, with real VMs, the real scheduler, and a console in memory.
 * Included by the one source of a test or fuzzer. */
#ifndef SHELL_RIG_H
#define SHELL_RIG_H

#include <stdio.h>
#include <string.h>
#include "config.h"
#include "fake_console.h"
#include "fake_machine.h"
#include "fake_timer.h"
#include "sched/policy.h"
#include "shell/shell.h"

/* Lets `ns` pass, in steps of a millisecond at most. In each step both pCPUs and their timers
 * get their turn. */
static inline void rig_run(u64 ns) {
    u64 end = fake_now + ns;

    for (;;) {
        u64 next = MIN(end, fake_now + NS_PER_MS);

        fake_work_due();
        fake_clock(next);
        fake_advance(0);
        for (u32 cpu = 0; cpu < FAKE_CPUS; cpu++) fake_pass(cpu);
        fake_cpu(0);
        fake_work_due();
        if (next == end) return;
    }
}

/* Types a line. Returns what the shell answers up to its next prompt, without the echo. The text
 * is valid until the next call. */
static inline const char *rig_say(const char *line) {
    char *nl;

    fake_console_reset();
    fake_console_type(line);
    fake_console_type("\r");
    rig_run(1000);
    for (int i = 0; i < 200 && (fake_console_len < 6 ||
                                strcmp(fake_console_text + fake_console_len - 6, "takt> "));
         i++)
        rig_run(NS_PER_MS);
    nl = strchr(fake_console_text, '\n');
    return nl ? nl + 1 : "";
}

static struct config_vm rig_vms[4];

static inline void rig_start(struct config *c, const char *text) {
    fake_machine("credit");
    config_defaults(c, rig_vms, ARRAY_SIZE(rig_vms));
    ASSERT(config_parse(c, "rig", text, strlen(text), param_name_at, NULL, NULL) == 0);
    shell_init(c);
    rig_run(1000);
}

#endif
