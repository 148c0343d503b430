/* What the machine is, and what things cost on it. The VM file's section [model] describes a
 * testbed (docs/simulation.md); without it the machine is as fast as Bochs. whole.h has the
 * contracts. */
#include <stdlib.h>
#include <string.h>
#include "tests/whole/whole.h"

#define CPUS          2u
#define MEMORY        (256ull << 20)
#define CLOCK         100000000ull /* Hz */
#define CPI           1000ull      /* thousandths */

#define KICK_NS       1000u
#define AHEAD_NS      5000u
#define PS_PER_S      1000000000000ull
#define ELEMENT_BYTES 8u /* whole_elements() */

/* What things cost, in thousandths of an instruction. The calls that the compiler puts into the
 * code for count.awk make it save more registers than the image does: for 100 instructions that are
 * counted here, a guest in the image has 91, and the hypervisor 90. An exit costs what Bochs has
 * more for it than the hypervisor's functions here. `make sim-costs` measures these three. */
static struct cost {
    const char *name; /* of --cost */
    u64 milli;
    bool given; /* by an option */
} costs[] = {
    { "guest", 910, false },    /* an instruction of a guest that was counted */
    { "hv", 900, false },       /* an instruction of the hypervisor that was counted */
    { "element", 1000, false }, /* what a string instruction copies or fills in a step */
    { "exit", 170000, false },  /* from a guest to the hypervisor's first function, and back */
    { "ahead", 0, false },      /* how far a guest may be ahead of other pCPUs */
};
enum { COST_GUEST, COST_HV, COST_ELEMENT, COST_EXIT, COST_AHEAD };

/* Takes a cost from the option --cost: `text` is NAME=INSTRUCTIONS. Returns 0, or 1 if there is no
 * such cost or its value is no number. */
int model_cost(const char *text) {
    const char *value = strchr(text, '=');
    char *end;

    for (struct cost *c = costs; value && c < costs + ARRAY_SIZE(costs); c++) {
        if (strncmp(text, c->name, (size_t)(value - text)) != 0 ||
            strlen(c->name) != (size_t)(value - text))
            continue;
        c->milli = (u64)(strtod(value + 1, &end) * 1000);
        c->given = true;
        return *end || end == value + 1;
    }
    return 1;
}

/* How long a cost takes, in ps: as an option says in instructions, else `otherwise` ps, else (if
 * that is 0) the instructions of the table. */
static u64 cost_ps(u32 cost, u64 otherwise, double mips) {
    if (otherwise && !costs[cost].given) return otherwise;
    return (u64)((double)costs[cost].milli * 1000 / mips);
}

/* Finds out what the machine is like, and sets whole_costs. Options count first, then the keys of
 * [model] in the VM file, and then the defaults, by which the machine is as fast as Bochs's. */
struct whole_machine model_machine(const struct whole_options *o, const struct config_model *m) {
    u64 clock = CLOCK, cpi = CPI, copy = 0, kick = KICK_NS;
    struct whole_machine is = { .cpus = CPUS, .memory = MEMORY };

    if (m->clock) clock = m->clock;
    if (m->cpi) cpi = m->cpi;
    if (m->kick) kick = m->kick;
    is.mips = (double)clock / (double)cpi / 1000;
    if (o->mhz) is.mips = (double)o->mhz;
    if (m->cpus) is.cpus = m->cpus;
    if (o->cpus) is.cpus = (u32)o->cpus;
    if (m->memory) is.memory = m->memory;
    if (o->memory) is.memory = o->memory;
    if (m->copy) copy = ELEMENT_BYTES * PS_PER_S / m->copy;
    whole_costs = (struct whole_costs){
        .guest = cost_ps(COST_GUEST, 0, is.mips),
        .hv = cost_ps(COST_HV, 0, is.mips),
        .element = cost_ps(COST_ELEMENT, copy, is.mips),
        .exit = cost_ps(COST_EXIT, m->exit * PS_PER_NS, is.mips),
        .switch_ = m->switch_cost * PS_PER_NS,
        .inject = m->inject * PS_PER_NS,
        .kick_ns = kick,
        .ahead_ns = cost_ps(COST_AHEAD, AHEAD_NS * PS_PER_NS, is.mips) / PS_PER_NS,
    };
    cache_start(m);
    delivery_start(m);
    nic_start(m);
    sockets_start(m);
    return is;
}
