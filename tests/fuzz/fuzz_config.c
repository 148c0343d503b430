/* The parser of configurations, with any text as the file and any text as the command line. The
 * first byte says how long the latter is. What the parser accepts must be a configuration that the
 * rest of the hypervisor can use unchecked, and each report must name its place. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "config.h"
#include "sched/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned complaints;

static void hear(void *ctx, bool fatal, const char *text) {
    complaints += fatal;
    if (!strchr(text, ':')) abort(); /* every report names its place */
}

/* What the parser promises of what it accepts. */
static void check(const struct config *c) {
    for (u32 i = 0; i < c->nr_vms; i++) {
        const struct config_vm *v = &c->vm[i];

        if (!*v->head.name || !*v->image || v->vcpus < 1 || v->vcpus > 64 || v->memory < 2 << 20 ||
            v->memory % (2 << 20) || v->demand_permille > 1000 || cpumask_empty(&v->cpus) ||
            v->head.nr_params > CONFIG_MAX_PARAMS)
            abort();
    }
    for (u32 i = 1; i < c->nr_pools; i++) {
        if (cpumask_test(&c->pool[i].cpus, 0) || !*c->pool[i].head.name) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct config c;
    static struct config_vm vms[CONFIG_MAX_VMS];
    static char cmdline[257];
    size_t n;

    if (size == 0) return 0;
    n = data[0];
    if (n > size - 1) return 0;
    memcpy(cmdline, data + 1, n);
    cmdline[n] = 0;
    config_defaults(&c, vms, config_room((const char *)data + 1 + n, size - 1 - n));
    complaints = 0;
    if (config_parse(&c, "fuzz", (const char *)data + 1 + n, size - 1 - n, param_name_at, hear,
                     NULL) == 0) {
        if (complaints) abort();
        check(&c);
    } else if (!complaints) {
        abort();
    }
    config_cmdline(&c, cmdline, param_name_at, hear, NULL);
    return 0;
}
