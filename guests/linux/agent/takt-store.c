/* Reads and changes Takt's store from within a Linux VM:
 *
 *   takt-store read PATH | write PATH VALUE | rm PATH | ls [PATH] | watch PATH
 *
 * A path is absolute, or relative to the VM's home, /local/domain/<id>. `watch` prints the path of
 * each change until it is interrupted. */
#include <stdio.h>
#include <string.h>
#include "store.h"

static const char usage[] =
    "usage: takt-store read PATH | write PATH VALUE | rm PATH | ls [PATH] | watch PATH\n";

static int do_read(struct store *s, char **words) {
    char value[STORE_MAX + 1];
    int r = store_read(s, words[0], value, sizeof(value));

    if (r >= 0) puts(value);
    return r;
}

static int do_write(struct store *s, char **words) { return store_write(s, words[0], words[1]); }

static int do_rm(struct store *s, char **words) { return store_rm(s, words[0]); }

/* Prints the names of the children. Without a path it lists the VM's home. */
static int do_ls(struct store *s, char **words) {
    char names[STORE_MAX], home[64], id[16];
    const char *path = words[0];
    int r;

    if (!path) {
        r = store_read(s, "domid", id, sizeof(id));
        if (r < 0) return r;
        snprintf(home, sizeof(home), "/local/domain/%s", id);
        path = home;
    }
    r = store_list(s, path, names);
    for (int at = 0; at < r; at += (int)strlen(names + at) + 1) puts(names + at);
    return r;
}

/* Prints the path of each change until it is stopped. Returns a negative error if the store has
 * gone. */
static int do_watch(struct store *s, char **words) {
    char path[STORE_MAX];
    int r = store_watch(s, words[0]);

    while (r >= 0) {
        r = store_wait(s, -1, path);
        if (r == 1) puts(path);
        fflush(stdout);
    }
    return r;
}

static const struct verb {
    const char *name;
    int least, most; /* words after it */
    int (*fn)(struct store *s, char **words);
} verbs[] = {
    { "read", 1, 1, do_read }, { "write", 2, 2, do_write }, { "rm", 1, 1, do_rm },
    { "ls", 0, 1, do_ls },     { "watch", 1, 1, do_watch },
};

static const struct verb *find(const char *name) {
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (strcmp(verbs[i].name, name) == 0) return &verbs[i];
    return NULL;
}

/* Carries out the one command that the arguments name. Returns the exit status. */
int main(int argc, char **argv) {
    const struct verb *verb = NULL;
    struct store s;
    int r;

    if (argc > 1) verb = find(argv[1]);
    if (!verb || argc - 2 < verb->least || argc - 2 > verb->most) {
        fputs(usage, stderr);
        return 2;
    }
    r = store_open(&s);
    if (r < 0) {
        fprintf(stderr, "takt-store: the store cannot be reached: %s\n", strerror(-r));
        return 1;
    }
    r = verb->fn(&s, argv + 2);
    store_close(&s);
    if (r >= 0) return 0;
    fprintf(stderr, "takt-store: %s %s: %s\n", argv[1], argc > 2 ? argv[2] : "", strerror(-r));
    return 1;
}
