/* The program build/sim-whole [OPTIONS] FILE: runs the VMs of a file in virtual time, with their
 * real guests (docs/simulation.md has the options). */
#include <getopt.h>
#include <stdio.h>
#include "lib/parse.h"
#include "tests/whole/whole.h"

#define MAX_MIB  (1u << 20)
#define MAX_MIPS 100000u

/* What getopt_long() returns for options without a letter: no character has these values. */
enum { JSON_FILE = 256, SCRIPT, COST, TRACE, FAULTS, STOP, STOP_IN };

/* Reads the number of an option, from 1 to `max`. Returns whether it is a bad one. */
static int number(char option, const char *text, u64 max, u64 *value) {
    if (!parse_u64(text, value, NULL) && *value >= 1 && *value <= max) return 0;
    fprintf(stderr, "sim-whole: -%c: expected a number from 1 to %lu, not \"%s\"\n", option, max,
            text);
    return 1;
}

static int usage(void) {
    fprintf(stderr,
            "usage: sim-whole [-j] [--json FILE] [--script FILE] [--trace FILE] [--faults SEED]\n"
            "    [--stop TIME [--stop-in VM|hypervisor]]\n"
            "    [-p CPUS] [-m MIB] [-f MHZ] [-w WARM-UP] [-t TIME] [-g GUESTS] [-c COMMAND-LINE]\n"
            "    [--cost guest|hv|element|exit|ahead=INSTRUCTIONS]... FILE\n");
    return 2;
}

/* Reads the options, which docs/simulation.md lists, and runs the simulation. Returns 2 after a
 * sentence or the usage if an option is wrong. */
int main(int argc, char **argv) {
    struct whole_options o = { .guests = "build/whole",
                               .warm_up_ns = 2 * NS_PER_S,
                               .run_ns = 10 * NS_PER_S };
    static const struct option words[] = { { "json", required_argument, NULL, JSON_FILE },
                                           { "script", required_argument, NULL, SCRIPT },
                                           { "cost", required_argument, NULL, COST },
                                           { "trace", required_argument, NULL, TRACE },
                                           { "faults", required_argument, NULL, FAULTS },
                                           { "stop", required_argument, NULL, STOP },
                                           { "stop-in", required_argument, NULL, STOP_IN },
                                           { 0 } };
    int error = 0, bad = 0; /* bad: a sentence has said what is wrong */

    for (int c; (c = getopt_long(argc, argv, "jp:m:f:w:t:g:c:", words, NULL)) != -1;) {
        switch (c) {
        case COST: error |= model_cost(optarg); break;
        case SCRIPT: o.script = optarg; break;
        case TRACE: o.trace = optarg; break;
        case FAULTS:
            o.faults = true;
            error |= parse_u64(optarg, &o.seed, NULL);
            break;
        case STOP: error |= parse_time(optarg, &whole_stop.at, NULL); break;
        case STOP_IN: snprintf(whole_stop.in, sizeof(whole_stop.in), "%s", optarg); break;
        case JSON_FILE: o.json_file = optarg; break;
        case 'j': o.json = true; break;
        case 'p': bad |= number('p', optarg, TAKT_MAX_CPUS, &o.cpus); break;
        case 'm': bad |= number('m', optarg, MAX_MIB, &o.memory); break;
        case 'f': bad |= number('f', optarg, MAX_MIPS, &o.mhz); break;
        case 'w': error |= parse_time(optarg, &o.warm_up_ns, NULL); break;
        case 't': error |= parse_time(optarg, &o.run_ns, NULL); break;
        case 'g': o.guests = optarg; break;
        case 'c': o.cmdline = optarg; break;
        default: return usage();
        }
    }
    if (bad) return 2;
    if (error || optind + 1 != argc || !o.run_ns) return usage();
    if (o.faults && !whole_inject_begin) {
        fprintf(stderr, "sim-whole: only build/sim-faults injects faults (make sim-faults)\n");
        return 2;
    }
    o.file = argv[optind];
    o.memory <<= 20;
    return whole_run(&o);
}
