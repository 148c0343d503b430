/* The command line of a guest. A Linux that has a turbo vCPU (vTurbo: docs/policies.md) is told by
 * words on its command line to handle interrupts there, and to run its programs elsewhere. */
#include "config.h"
#include "image/image.h"
#include "common/string.h"

/* Words of Linux (Documentation/admin-guide/kernel-parameters.txt). The turbo vCPU is CPU 0. */
static const struct {
    const char *key, *value;
} turbo_words[] = {
    { "isolcpus=", "0" },    /* the scheduler of Linux puts no program there by itself */
    { "irqaffinity=", "0" }, /* interrupts of devices go there */
};

/* Returns whether a word of the text begins with `key`. */
static bool has_word(const char *text, const char *key) {
    for (u32 i = 0; text[i]; i++)
        if ((i == 0 || text[i - 1] == ' ') && strncmp(text + i, key, strlen(key)) == 0) return true;
    return false;
}

/* Appends `more` to the text of *len bytes. Returns false if there is no room for it. */
static bool append(char *text, size_t *len, const char *more) {
    size_t n = strlen(more);

    if (*len + n >= CONFIG_CMDLINE) return false;
    memcpy(text + *len, more, n + 1);
    *len += n;
    return true;
}

/* Writes the command line of the guest to `text`: that of the VM file, and for a Linux with a turbo
 * vCPU the words above, unless the VM file gives them. Returns false if there is no room for
 * all. */
bool load_cmdline(const struct load_order *order, char *text) {
    size_t len = strlen(order->cmdline);

    memcpy(text, order->cmdline, len + 1);
    if (!order->pc || !order->turbo) return true;
    for (u32 i = 0; i < ARRAY_SIZE(turbo_words); i++) {
        if (has_word(order->cmdline, turbo_words[i].key)) continue;
        if (len && !append(text, &len, " ")) return false;
        if (!append(text, &len, turbo_words[i].key)) return false;
        if (!append(text, &len, turbo_words[i].value)) return false;
    }
    return true;
}
