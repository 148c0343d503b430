/* build/sim [-j] [-r RECORD-TO] SCENARIO     run a scenario
 * build/sim replay FILE                      replay a recording of the image or of -r */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sim.h"

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
            max = max ? 2 * max : 65536;
            r = realloc(r, max * sizeof(*r));
        }
        got = fread(r + n, sizeof(*r), max - n, f);
        n += got;
    } while (got);
    fclose(f);
    result = sim_replay(r, n, &d);
    if (result)
        printf("replay: record %zu: %s\n", d.record, d.what);
    else
        printf("replay: %zu records, all decisions identical, trace %016lx\n", n, (unsigned long)sim.hash);
    free(r);
    return result ? 1 : 0;
}

int main(int argc, char **argv) {
    const char *record_to = NULL;
    bool json = false;
    int i = 1;

    if (argc == 3 && strcmp(argv[1], "replay") == 0) return replay(argv[2]);
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "-j") == 0)
            json = true;
        else if (strcmp(argv[i], "-r") == 0 && i + 1 < argc)
            record_to = argv[++i];
        else
            break;
    }
    if (i + 1 != argc) {
        fprintf(stderr, "usage: sim [-j] [-r RECORD-TO] SCENARIO | sim replay FILE\n");
        return 2;
    }
    return scenario_run(argv[i], json, record_to);
}
