/* The program build/sim.
 *   build/sim [OPTIONS] FILE   runs the VMs of a file (docs/simulation.md has the options)
 *   build/sim -l               lists what a file may ask for, as JSON
 *   build/sim replay FILE      replays a recording that the image or the option -r has made */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lib/parse.h"
#include "sim.h"

/* Replays the recording in `file`, and prints whether the scheduler decided the same again. Returns
 * the exit status: 0 if it did, 1 if not, 2 if the file cannot be read. */
static int replay(const char *file) {
    FILE *f = fopen(file, "rb");
    struct trace_record *r = NULL;
    struct sim_difference d;
    size_t n = 0, max = 0, got;
    int result;

    if (!f) {
        perror(file);
        return 2;
    }
    do {
        if (n == max) {
            max = MAX(2 * max, 65536ul);
            r = realloc(r, max * sizeof(*r));
        }
        got = fread(r + n, sizeof(*r), max - n, f);
        n += got;
    } while (got);
    fclose(f);
    result = sim_replay(r, n, &d);
    free(r);
    if (result) {
        printf("replay: record %zu: %s\n", d.record, d.what);
        return 1;
    }
    printf("replay: %zu records, all decisions identical, trace %016llx\n", n,
           (unsigned long long)sim.hash);
    return 0;
}

/* Prints how the program is called. Returns the exit status for a wrong call. */
static int usage(void) {
    fprintf(stderr,
            "usage: sim [-C] [-j] [-n] [-q] [-p CPUS] [-w WARM-UP] [-t TIME] [-k KICK] [-s SWITCH] "
            "[-c COMMAND-LINE] "
            "[-r RECORD-TO] [-g TIMELINE-TO] FILE | sim -l | sim replay FILE\n");
    return 2;
}

/* Reads the options, whose defaults docs/simulation.md lists, and runs the file. */
int main(int argc, char **argv) {
    struct scenario sc = { .cpus = 2,
                           .warm_up_ns = 2 * NS_PER_S,
                           .run_ns = 10 * NS_PER_S,
                           .kick_ns = 2 * NS_PER_US,
                           .switch_ns = 2 * NS_PER_US };
    int error = 0;

    if (argc == 3 && strcmp(argv[1], "replay") == 0) return replay(argv[2]);
    if (argc == 2 && strcmp(argv[1], "-l") == 0) {
        list_choices();
        return 0;
    }
    for (int o; (o = getopt(argc, argv, "Cjnqp:w:t:k:s:c:r:g:")) != -1;) {
        switch (o) {
        case 'C': sc.rules = true; break;
        case 'j': sc.json = true; break;
        case 'q': sc.quiet = true; break;
        case 'n': sc.check = true; break;
        case 'p': sc.cpus = (u32)atoi(optarg); break;
        case 'w': error |= parse_time(optarg, &sc.warm_up_ns, NULL); break;
        case 't': error |= parse_time(optarg, &sc.run_ns, NULL); break;
        case 'k': error |= parse_time(optarg, &sc.kick_ns, NULL); break;
        case 's': error |= parse_time(optarg, &sc.switch_ns, NULL); break;
        case 'c': sc.cmdline = optarg; break;
        case 'g': sc.timeline_to = optarg; break;
        case 'r': sc.record_to = optarg; break;
        default: return usage();
        }
    }
    if (error || optind + 1 != argc || sc.cpus < 1 || sc.cpus > TAKT_MAX_CPUS || !sc.run_ns)
        return usage();
    sc.file = argv[optind];
    return scenario_run(&sc);
}
