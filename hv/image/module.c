/* The boot modules: the images that the boot loader has put into memory, by name. */
#include <takt/errno.h>
#include "image/image.h"
#include "common/string.h"

static struct module modules[MAX_MODULES];
static u32 nr_modules;

/* Adds a boot module. Returns 0, -EEXIST if there is one of that name, or -ENOSPC. */
int module_add(const struct module *m) {
    if (module_find(m->name)) return -EEXIST;
    if (nr_modules == MAX_MODULES) return -ENOSPC;
    modules[nr_modules++] = *m;
    return 0;
}

/* Returns the boot module of that name, or NULL. */
const struct module *module_find(const char *name) {
    for (u32 i = 0; i < nr_modules; i++)
        if (strcmp(modules[i].name, name) == 0) return &modules[i];
    return NULL;
}
