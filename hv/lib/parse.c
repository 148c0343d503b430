/* Text to values. Nothing here allocates, and nothing reads beyond the terminator. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/printf.h"
#include "lib/string.h"

struct unit {
    const char *name;
    u64 factor;
};

/* What every function ends with: all of the text has to be used up. */
static int done(int error, const char *at, const char **bad) {
    if (!error && *at) error = -EINVAL;
    if (error && bad) *bad = at;
    return error;
}

/* Reads digits from *s on and moves it behind them. */
static int take_number(const char **s, u64 *value) {
    u64 v = 0;

    if (**s < '0' || **s > '9') return -EINVAL;
    for (; **s >= '0' && **s <= '9'; (*s)++) {
        if (__builtin_mul_overflow(v, 10ull, &v) || __builtin_add_overflow(v, (u64)(**s - '0'), &v))
            return -ERANGE;
    }
    *value = v;
    return 0;
}

int parse_u64(const char *s, u64 *value, const char **bad) {
    int error = take_number(&s, value);

    return done(error, s, bad);
}

/* "12.5" and a unit: the value in the smallest unit, rounded down. At most nine digits behind the
 * point. */
static int parse_scaled(const char *s, const struct unit *unit, u64 *value, const char **bad) {
    u64 whole, part = 0, scale = 1, v;
    int error = take_number(&s, &whole);

    if (!error && *s == '.') {
        const char *digits = ++s;

        error = take_number(&s, &part);
        for (; digits < s && scale <= NS_PER_S; digits++) scale *= 10;
        if (scale > NS_PER_S) error = -ERANGE;
    }
    if (error) return done(error, s, bad);
    while (unit->name && strcmp(s, unit->name) != 0) unit++;
    if (!unit->name) return done(-EINVAL, s, bad);
    v = (u64)((unsigned __int128)part * unit->factor / scale);
    if (__builtin_mul_overflow(whole, unit->factor, &whole) || __builtin_add_overflow(whole, v, value))
        return done(-ERANGE, s, bad);
    return 0;
}

int parse_size(const char *s, u64 *bytes, const char **bad) {
    static const struct unit units[] = { { "", 1 },        { "k", 1 << 10 }, { "K", 1 << 10 },
                                         { "M", 1 << 20 }, { "G", 1 << 30 }, { "T", 1ull << 40 },
                                         { NULL, 0 } };

    return parse_scaled(s, units, bytes, bad);
}

int parse_time(const char *s, u64 *ns, const char **bad) {
    static const struct unit units[] = {
        { "ns", 1 }, { "us", NS_PER_US }, { "ms", NS_PER_MS }, { "s", NS_PER_S }, { NULL, 0 }
    };

    return parse_scaled(s, units, ns, bad);
}

int parse_permille(const char *s, u64 *permille, const char **bad) {
    static const struct unit units[] = { { "%", 10 }, { NULL, 0 } };
    int error = parse_scaled(s, units, permille, bad);

    return !error && *permille > 1000 ? done(-ERANGE, s, bad) : error;
}

/* One item of a CPU list: "5", "0-3" or "all", or one of these with '^' before it. */
static int take_cpus(const char **s, struct cpumask *m) {
    const char *start = *s;
    bool exclude = *start == '^';
    u64 first = 0, last = TAKT_MAX_CPUS - 1;
    int error = 0;

    *s += exclude;
    if (strncmp(*s, "all", 3) == 0) {
        *s += 3;
    } else {
        error = take_number(s, &first);
        last = first;
        if (!error && **s == '-') {
            (*s)++;
            error = take_number(s, &last);
        }
    }
    if (!error && (first > last || last >= TAKT_MAX_CPUS)) {
        *s = start;
        error = first > last ? -EINVAL : -ERANGE;
    }
    for (unsigned cpu = (unsigned)first; !error && cpu <= last; cpu++)
        (exclude ? cpumask_clear : cpumask_set)(m, cpu);
    return error;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Reads `digits` of them and the character behind (0: none) from *s on and moves it behind them. */
static int take_hex(const char **s, unsigned digits, char behind, u64 *value) {
    for (*value = 0; digits; digits--, ++*s) {
        int digit = hex_digit(**s);

        if (digit < 0) return -EINVAL;
        *value = *value << 4 | (u64)digit;
    }
    if (**s != behind) return -EINVAL;
    *s += behind != 0;
    return 0;
}

int parse_pci(const char *s, u64 *bdf, const char **bad) {
    u64 segment = 0, bus = 0, device = 0, function = 0;
    int error = strlen(s) > 7 ? take_hex(&s, 4, ':', &segment) : 0;

    if (!error) error = take_hex(&s, 2, ':', &bus);
    if (!error) error = take_hex(&s, 2, '.', &device);
    if (!error) error = take_hex(&s, 1, 0, &function);
    if (!error && (device > 31 || function > 7)) error = -ERANGE;
    if (!error) *bdf = segment << 16 | bus << 8 | device << 3 | function;
    return done(error, s, bad);
}

int parse_cpus(const char *s, struct cpumask *m, const char **bad) {
    struct cpumask set;
    int error;

    cpumask_zero(&set);
    if (*s == '^') cpumask_fill(&set); /* nothing to take away from: all but these, as xl reads it */
    do error = take_cpus(&s, &set);
    while (!error && *s == ',' && s++);
    error = done(error, s, bad);
    if (!error) *m = set;
    return error;
}

int parse_choice(const char *s, struct cpu_choice *c) {
    bool random = strncmp(s, "random:", 7) == 0;
    u64 nr;

    *c = (struct cpu_choice){ CHOOSE_NONE, 0 };
    if (!random && strncmp(s, "cache:", 6) != 0) return -EINVAL;
    if (parse_u64(s + 6 + random, &nr, NULL) || nr < 1 || nr > TAKT_MAX_CPUS) return -ERANGE;
    *c = (struct cpu_choice){ random ? CHOOSE_RANDOM : CHOOSE_CACHE, (u32)nr };
    return 0;
}

/* Reads "0x2f8" from *s on and moves it behind that. */
static int take_address(const char **s, u64 *value) {
    int digit, digits = 0;

    *value = 0;
    if (strncmp(*s, "0x", 2) != 0) return -EINVAL;
    for (*s += 2; (digit = hex_digit(**s)) >= 0; ++*s, digits++) {
        if (*value >> 60) return -ERANGE;
        *value = *value << 4 | (u64)digit;
    }
    return digits ? 0 : -EINVAL;
}

/* Does *s begin with `word`? Then moves it behind that. */
static bool take_word(const char **s, const char *word) {
    bool yes = strncmp(*s, word, strlen(word)) == 0;

    if (yes) *s += strlen(word);
    return yes;
}

/* A PCI device up to the end or a comma. */
static int take_pci(const char **s, u64 *bdf) {
    char text[16] = "";
    size_t n = 0;

    while ((*s)[n] && (*s)[n] != ',') n++;
    if (n >= sizeof(text)) return -EINVAL;
    memcpy(text, *s, n);
    if (parse_pci(text, bdf, NULL)) return -EINVAL;
    *s += n;
    return 0;
}

/* The place, up to the rate. */
static int take_place(const char **s, struct console_spec *c) {
    int error;

    if (take_word(s, "com")) {
        if (**s < '1' || **s > '4') return -EINVAL;
        c->where = AT_COM;
        c->com = (u32)(*(*s)++ - '0');
        return 0;
    }
    if (take_word(s, "pci:")) {
        c->where = AT_PCI;
        return take_pci(s, &c->addr);
    }
    c->where = AT_MEMORY;
    if (take_word(s, "mmio32:")) {
        c->stride = 4;
        return take_address(s, &c->addr);
    }
    if (take_word(s, "mmio:")) {
        c->stride = 1;
        return take_address(s, &c->addr);
    }
    c->where = AT_PORT;
    error = take_address(s, &c->addr);
    return !error && (c->addr < 0x100 || c->addr > 0xfff8) ? -ERANGE : error; /* below are the board's own */
}

int parse_console(const char *s, struct console_spec *c, const char **bad) {
    u64 baud;
    int error;

    *c = (struct console_spec){ .where = AT_NOTHING };
    if (strcmp(s, "none") == 0) return 0;
    c->where = AT_FIRMWARES;
    if (strcmp(s, "auto") == 0) return 0;
    error = take_place(&s, c);
    baud = c->where == AT_COM || c->where == AT_PORT ? 115200 : 0;
    if (!error && *s == ',' && s++) {
        error = take_number(&s, &baud);
        if (!error && (baud == 0 || 115200 % baud))
            error = -ERANGE; /* what the divisor of a 16550 can make */
    }
    take_word(&s, ",8n1");
    c->baud = (u32)baud;
    return done(error, s, bad);
}

void format_cpus(const struct cpumask *m, char buf[CPUS_TEXT]) {
    size_t at = 0;

    hv_snprintf(buf, CPUS_TEXT, cpumask_empty(m) ? "none" : "all");
    if (cpumask_weight(m) == TAKT_MAX_CPUS) return;
    for (unsigned cpu = cpumask_next(m, 0), last; cpu < TAKT_MAX_CPUS; cpu = cpumask_next(m, last + 1)) {
        for (last = cpu; cpumask_test(m, last + 1);) last++;
        at += (size_t)hv_snprintf(buf + at, CPUS_TEXT - at, cpu == last ? "%s%u" : "%s%u-%u", at ? "," : "",
                                  cpu, last);
    }
}

bool valid_name(const char *s) {
    bool number = true;
    size_t n = 0;

    for (; s[n]; n++) {
        bool digit = s[n] >= '0' && s[n] <= '9', letter = (s[n] | ' ') >= 'a' && (s[n] | ' ') <= 'z';

        if (!digit && !letter && s[n] != '_' && s[n] != '.' && (s[n] != '-' || n == 0)) return false;
        number &= digit;
    }
    return n >= 1 && n <= 31 && !number;
}
