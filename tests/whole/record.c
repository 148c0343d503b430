/* The file of --json: what a program needs to judge a run. whole.h has the contracts. The file has
 * no date and no time of this computer, so the same run gives the same bytes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "config_keys.h"
#include "tests/whole/whole.h"

static FILE *file, *answer;
static char *answer_text;
static size_t answer_size;
static const char *separator = "";

static void put_string(const char *s, size_t n) {
    putc('"', file);
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"' || s[i] == '\\')
            fprintf(file, "\\%c", s[i]);
        else if ((unsigned char)s[i] < ' ')
            fprintf(file, "\\u%04x", (unsigned)s[i]);
        else
            putc(s[i], file);
    }
    putc('"', file);
}

/* Writes the keys of [model] that the VM file gives, as numbers in the units of config.h. */
static void put_model(const struct config_model *m) {
    const char *comma = "";

    if (!m->head.line) {
        fprintf(file, " \"model\": null,\n");
        return;
    }
    fprintf(file, " \"model\": {");
    for (u32 i = 0; config_key_at(i); i++) {
        const struct config_key *k = config_key_at(i);

        if (k->section != MODEL) continue;
        if (k->kind == NAME) {
            if (m->nic[0]) fprintf(file, "%s\"%s\": \"%s\"", comma, k->name, m->nic);
            if (m->nic[0]) comma = ", ";
            continue;
        }
        if (!config_load_number(k, m)) continue;
        fprintf(file, "%s\"%s\": %lu", comma, k->name, config_load_number(k, m));
        comma = ", ";
    }
    fprintf(file, "},\n");
}

/* Opens the file of --json, and writes what is known before the run. Ends the program with a
 * sentence if the file cannot be written. */
void record_begin(const struct whole_options *o, const struct config *c,
                  const struct whole_machine *m) {
    file = fopen(o->json_file, "w");
    answer = open_memstream(&answer_text, &answer_size);
    if (!file || !answer) {
        fprintf(stderr, "sim-whole: the results cannot be written to %s: %s\n", o->json_file,
                strerror(errno));
        exit(2);
    }
    fprintf(file, "{\"file\": ");
    put_string(o->file, strlen(o->file));
    fprintf(file, ", \"command_line\": ");
    if (o->cmdline)
        put_string(o->cmdline, strlen(o->cmdline));
    else
        put_string("", 0);
    fprintf(file, ",\n \"cpus\": %u, \"mhz\": %g, \"memory_mib\": %lu, \"seed\": %lu,\n", m->cpus,
            m->mips, m->memory >> 20, c->seed);
    put_model(&c->model);
    fprintf(file, " \"warm_up_s\": %g, \"run_s\": %g,\n \"said\": [", (double)o->warm_up_ns / 1e9,
            (double)o->run_ns / 1e9);
}

/* Adds a line of the log to the file, at the time `us` in microseconds. A guest's line is "NAME:
 * text"; the name becomes a field of its own. Does nothing without --json. */
void record_line(u64 us, bool of_guest, const char *text) {
    const char *colon = of_guest ? strstr(text, ": ") : NULL;

    if (!file) return;
    fprintf(file, "%s\n  {\"s\": %lu.%06lu, \"vm\": ", separator, us / 1000000, us % 1000000);
    separator = ",";
    if (colon) {
        put_string(text, (size_t)(colon - text));
        text = colon + 2;
    } else {
        fprintf(file, "null");
    }
    fprintf(file, ", \"text\": ");
    put_string(text, strlen(text));
    putc('}', file);
}

bool record_answer(char c) {
    if (answer) putc(c, answer);
    return answer;
}

/* Writes for how long each pCPU was busy and idle, from the boot until now. */
static void put_pcpus(void) {
    fprintf(file, " \"pcpus\": [");
    for (u32 cpu = 0; cpu < nr_cpus; cpu++) {
        u64 idle = engine_idle(cpu);

        fprintf(file, "%s\n  {\"busy_s\": %.9f, \"idle_s\": %.9f}", cpu ? "," : "",
                (double)(whole_now - idle) / 1e9, (double)idle / 1e9);
    }
    fprintf(file, "],\n");
}

/* Writes the times of the pCPUs, the shell's answer and the end of the file of --json, and closes
 * it. Ends the program with a sentence if that fails. Does nothing without --json, or when it was
 * called before. */
void record_end(void) {
    bool bad;

    if (!file) return;
    fclose(answer);
    fprintf(file, "],\n");
    put_pcpus();
    fprintf(file, " \"top\": %s}\n", answer_size ? answer_text : "null\n");
    bad = ferror(file);
    if (fclose(file) || bad) {
        fprintf(stderr, "sim-whole: the file of --json could not be written as a whole\n");
        exit(2);
    }
    file = answer = NULL;
}
