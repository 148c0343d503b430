/* The program build/sim-whole [OPTIONS] FILE: runs the VMs of a file in virtual time, with their
 * real guests (docs/simulation.md has the options). */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lib/parse.h"
#include "tests/whole/whole.h"

/* What things cost, in thousandths of an instruction (docs/simulation.md). */
static struct cost {
    const char *name; /* of --cost */
    u64 milli;
} costs[] = {
    { "guest", 5000 },   /* an average basic block of a guest */
    { "hv", 5000 },      /* an average basic block of the hypervisor */
    { "element", 1000 }, /* what a string instruction copies or fills in a step */
    { "exit", 100000 },  /* from a guest to the hypervisor's first function, and back */
    { "ahead", 500000 }, /* how far a guest may be ahead of other pCPUs: less costs host time */
};
enum { COST_GUEST, COST_HV, COST_ELEMENT, COST_EXIT, COST_AHEAD };

#define KICK_NS 1000

/* What getopt_long() returns for options without a letter: no character has these values. */
enum { JSON_FILE = 256, SCRIPT, COST, TRACE };

/* Takes NAME=INSTRUCTIONS of --cost. Returns an error if there is no such cost. */
static int set_cost(const char *text) {
    const char *value = strchr(text, '=');
    char *end;

    for (u32 i = 0; value && i < ARRAY_SIZE(costs); i++) {
        if (strncmp(text, costs[i].name, (size_t)(value - text)) != 0 ||
            strlen(costs[i].name) != (size_t)(value - text))
            continue;
        costs[i].milli = (u64)(strtod(value + 1, &end) * 1000);
        return *end || end == value + 1;
    }
    return 1;
}

/* Returns how long that takes on the machine, in ps. */
static u64 cost_ps(u32 cost, u64 mhz) { return costs[cost].milli * 1000 / mhz; }

static int usage(void) {
    fprintf(stderr, "usage: sim-whole [-j] [--json FILE] [--script FILE] [--trace FILE] [-p CPUS]\n"
                    "    [-m MIB] [-f MHZ] [-w WARM-UP] [-t TIME] [-g GUESTS] [-c COMMAND-LINE]\n"
                    "    [--cost guest|hv|element|exit|ahead=INSTRUCTIONS]... FILE\n");
    return 2;
}

int main(int argc, char **argv) {
    struct whole_options o = { .cpus = 2,
                               .guests = "build/whole",
                               .warm_up_ns = 2 * NS_PER_S,
                               .run_ns = 10 * NS_PER_S,
                               .mhz = 100,
                               .memory = 256 };
    static const struct option words[] = { { "json", required_argument, NULL, JSON_FILE },
                                           { "script", required_argument, NULL, SCRIPT },
                                           { "cost", required_argument, NULL, COST },
                                           { "trace", required_argument, NULL, TRACE },
                                           { 0 } };
    int error = 0;

    for (int c; (c = getopt_long(argc, argv, "jp:m:f:w:t:g:c:", words, NULL)) != -1;) {
        switch (c) {
        case COST: error |= set_cost(optarg); break;
        case SCRIPT: o.script = optarg; break;
        case TRACE: o.trace = optarg; break;
        case JSON_FILE: o.json_file = optarg; break;
        case 'j': o.json = true; break;
        case 'p': o.cpus = (u32)atoi(optarg); break;
        case 'm': o.memory = (u64)atoi(optarg); break;
        case 'f': o.mhz = (u64)atoi(optarg); break;
        case 'w': error |= parse_time(optarg, &o.warm_up_ns, NULL); break;
        case 't': error |= parse_time(optarg, &o.run_ns, NULL); break;
        case 'g': o.guests = optarg; break;
        case 'c': o.cmdline = optarg; break;
        default: return usage();
        }
    }
    if (error || optind + 1 != argc || o.cpus < 1 || o.cpus > TAKT_MAX_CPUS || !o.run_ns ||
        !o.mhz || !o.memory)
        return usage();
    o.file = argv[optind];
    o.memory <<= 20;
    whole_costs = (struct whole_costs){ .guest = cost_ps(COST_GUEST, o.mhz),
                                        .block = cost_ps(COST_HV, o.mhz),
                                        .element = cost_ps(COST_ELEMENT, o.mhz),
                                        .exit = cost_ps(COST_EXIT, o.mhz),
                                        .kick_ns = KICK_NS,
                                        .ahead_ns = cost_ps(COST_AHEAD, o.mhz) / PS_PER_NS };
    return whole_run(&o);
}
