/* Reads the options of a back end: the words KEY=VALUE that follow its name in the VM file, such as
 * `rate=20M delay=5ms`. The hypervisor hands them to the driver domain unchanged, so they are read
 * here. options.h has the contracts. */
#include "drivers/options.h"

/* Returns what follows `prefix` in the text at `p`, or NULL if the text does not begin with it. */
static const char *option_after(const char *p, const char *prefix) {
    for (; *prefix; p++, prefix++)
        if (*p != *prefix) return NULL;
    return p;
}

/* Returns what follows `key=` in the options at `p`. Returns NULL if the key is not there. */
static const char *find_option(const char *p, const char *key) {
    while (*p) {
        const char *rest;

        while (*p == ' ') p++;
        rest = option_after(p, key);
        if (rest && *rest == '=') return rest + 1;
        while (*p && *p != ' ') p++;
    }
    return NULL;
}

/* Returns whether the next word at `p` is `word`. */
static bool word_is(const char *p, const char *word) {
    const char *rest = option_after(p, word);

    return rest && (!*rest || *rest == ' ');
}

#define MILLIONTHS 1000000u /* values are kept in such parts of the smallest unit */

struct unit {
    const char *name;
    u64 factor;
};

static const struct unit thousands[] = {
    { "", 1 }, { "k", 1000 }, { "K", 1000 }, { "M", 1000000 }, { "G", 1000000000 }, { NULL, 0 },
};
static const struct unit bytes[] = {
    { "", 1 },   { "K", 1024 }, { "k", 1024 }, { "M", 1024 * 1024 }, { "G", 1024 * 1024 * 1024 },
    { NULL, 0 },
};
static const struct unit times[] = {
    { "ns", 1 }, { "us", NS_PER_US }, { "ms", NS_PER_MS }, { "s", NS_PER_S }, { NULL, 0 },
};
static const struct unit percent[] = { { "%", 1 }, { NULL, 0 } };

/* Reads "digits [. digits] unit". The value is in millionths of the smallest unit. Returns false if
 * the text is not such a value, or if it is too large. */
static bool parse_value(const char *p, const struct unit *units, u64 *millionths) {
    u64 v = 0, scale = MILLIONTHS;
    bool point = false;

    if (*p < '0' || *p > '9') return false;
    for (; (*p >= '0' && *p <= '9') || (*p == '.' && !point); p++) {
        if (*p == '.') {
            point = true;
            continue;
        }
        if (v > 1000000000 || (point && scale == 1)) return false;
        v = v * 10 + (u64)(*p - '0');
        if (point) scale /= 10;
    }
    for (; units->name; units++)
        if (word_is(p, units->name))
            return !__builtin_mul_overflow(v * scale, units->factor, millionths);
    return false;
}

static bool whole_value(const char *p, const struct unit *units, u64 *v) {
    u64 m;

    if (!parse_value(p, units, &m) || m % MILLIONTHS) return false;
    *v = m / MILLIONTHS;
    return true;
}

static bool share_value(const char *p, u32 *v) {
    u64 m;

    if (!parse_value(p, percent, &m) || m > 100ull * MILLIONTHS) return false;
    *v = (u32)MIN((m << 32) / (100ull * MILLIONTHS), 0xffffffffull);
    return true;
}

/* Returns the value of a hexadecimal digit, or -1 if the character is not a digit. */
static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Reads an address of six pairs of hexadecimal digits with colons between them. It has to be a
 * whole word. Returns false if the text is not such an address. */
static bool mac_of(const char *p, u8 mac[6]) {
    for (u32 i = 0; i < 6; i++, p += 2) {
        if (i > 0) {
            if (*p != ':') return false;
            p++;
        }
        if (hex(p[0]) < 0 || hex(p[1]) < 0) return false;
        mac[i] = (u8)(hex(p[0]) * 16 + hex(p[1]));
    }
    return !*p || *p == ' ';
}

/* Returns the value of the option `key`, multiplied by what its unit stands for, or `otherwise` if
 * the option is not there or is no number. */
static u64 option_value_of(const char *options, const char *key, const struct unit *units,
                           u64 otherwise) {
    const char *p = find_option(options, key);
    u64 v;

    if (!p || !whole_value(p, units, &v)) return otherwise;
    return v;
}

u64 option_number(const char *options, const char *key, u64 otherwise) {
    return option_value_of(options, key, thousands, otherwise);
}

u64 option_bytes(const char *options, const char *key, u64 otherwise) {
    return option_value_of(options, key, bytes, otherwise);
}

u64 option_ns(const char *options, const char *key, u64 otherwise) {
    return option_value_of(options, key, times, otherwise);
}

u32 option_share(const char *options, const char *key, u32 otherwise) {
    const char *p = find_option(options, key);
    u32 v;

    if (!p || !share_value(p, &v)) return otherwise;
    return v;
}

bool option_mac(const char *options, const char *key, u8 mac[6]) {
    const char *p = find_option(options, key);

    return p && mac_of(p, mac);
}

bool option_has(const char *options, const char *key) { return find_option(options, key); }

/* Copies the value of the option `key` to `buf`, terminated. Returns false if there is no such
 * option. The value ends at the next blank, as the values of all options do. A value that is too
 * long for the buffer is cut off. */
bool option_word(const char *options, const char *key, char *buf, size_t size) {
    const char *p = find_option(options, key);
    size_t n = 0;

    while (p && *p && *p != ' ' && n + 1 < size) buf[n++] = *p++;
    buf[n] = 0;
    return p;
}

bool option_is(const char *options, const char *key, const char *word) {
    const char *p = find_option(options, key);

    return p && word_is(p, word);
}

/* Returns whether the value at `p` is one of the kind that the option takes. The value itself is
 * not stored. */
static bool makes_sense(const char *p, const struct option_kind *k) {
    u8 mac[6];
    u64 v;
    u32 s;

    switch (k->kind) {
    case OPTION_NUMBER: return whole_value(p, thousands, &v);
    case OPTION_BYTES: return whole_value(p, bytes, &v);
    case OPTION_NS: return whole_value(p, times, &v);
    case OPTION_SHARE: return share_value(p, &s);
    case OPTION_MAC: return mac_of(p, mac);
    case OPTION_WORD: return *p && *p != ' ';
    case OPTION_YES_NO: return word_is(p, "yes") || word_is(p, "no");
    }
    return false;
}

/* Returns the first word of `options` whose key is not in `known` or whose value makes no sense, or
 * NULL if there is none. An option counts as known only if its value makes sense as well. So one
 * call finds a misspelt key and a value such as `rate=fast`, and the driver domain can name it to
 * the operator. */
const char *option_unknown(const char *options, const struct option_kind *known) {
    for (const char *p = options;;) {
        const struct option_kind *k;

        while (*p == ' ') p++;
        if (!*p) return NULL;
        for (k = known; k->key; k++) {
            const char *rest = option_after(p, k->key);

            if (rest && *rest == '=' && makes_sense(rest + 1, k)) break;
        }
        if (!k->key) return p;
        while (*p && *p != ' ') p++;
    }
}
