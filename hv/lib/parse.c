/* Text to values. Nothing here allocates, and nothing reads beyond the terminator. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/printf.h"
#include "lib/string.h"

struct unit {
    const char *name;
    u64 factor;
};

static int fail(int error, const char *at, const char **bad) {
    if (bad) *bad = at;
    return error;
}

static int digit(char c, unsigned base) {
    int d = c >= '0' && c <= '9'   ? c - '0'
            : c >= 'a' && c <= 'f' ? c - 'a' + 10
            : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                   : 99;

    return d < (int)base ? d : -1;
}

/* Reads digits from *s on and moves it behind them. */
static int take_number(const char **s, u64 *value) {
    unsigned base = 10;
    u64 v = 0;

    if ((*s)[0] == '0' && ((*s)[1] == 'x' || (*s)[1] == 'X') && digit((*s)[2], 16) >= 0) {
        base = 16;
        *s += 2;
    }
    if (digit(**s, base) < 0) return -EINVAL;
    for (; digit(**s, base) >= 0; (*s)++) {
        if (__builtin_mul_overflow(v, (u64)base, &v) || __builtin_add_overflow(v, (u64)digit(**s, base), &v))
            return -ERANGE;
    }
    *value = v;
    return 0;
}

int parse_u64(const char *s, u64 *value, const char **bad) {
    int error = take_number(&s, value);

    if (error) return fail(error, s, bad);
    return *s ? fail(-EINVAL, s, bad) : 0;
}

/* "12.5" and a unit: the value in the smallest unit, rounded down. At most nine digits behind the point. */
static int take_scaled(const char *s, const struct unit *units, u64 *value, const char **bad) {
    const char *start = s;
    u64 whole, part = 0, scale = 1, v;
    int error = take_number(&s, &whole);

    if (error) return fail(error, s, bad);
    if (*s == '.') {
        for (s++; digit(*s, 10) >= 0; s++) {
            if (scale == NS_PER_S) return fail(-ERANGE, s, bad);
            part = part * 10 + (u64)digit(*s, 10);
            scale *= 10;
        }
        if (scale == 1) return fail(-EINVAL, s, bad);
    }
    for (; units->name; units++) {
        if (strcmp(s, units->name) == 0) break;
    }
    if (!units->name) return fail(-EINVAL, s, bad);
    v = (u64)((unsigned __int128)part * units->factor / scale);
    if (__builtin_mul_overflow(whole, units->factor, &whole) || __builtin_add_overflow(whole, v, &v))
        return fail(-ERANGE, start, bad);
    *value = v;
    return 0;
}

int parse_size(const char *s, u64 *bytes, const char **bad) {
    static const struct unit units[] = { { "", 1 },        { "k", 1 << 10 }, { "K", 1 << 10 },
                                         { "M", 1 << 20 }, { "G", 1 << 30 }, { "T", 1ull << 40 },
                                         { NULL, 0 } };

    return take_scaled(s, units, bytes, bad);
}

int parse_time(const char *s, u64 *ns, const char **bad) {
    static const struct unit units[] = {
        { "ns", 1 }, { "us", NS_PER_US }, { "ms", NS_PER_MS }, { "s", NS_PER_S }, { NULL, 0 }
    };

    return take_scaled(s, units, ns, bad);
}

int parse_permille(const char *s, u32 *permille, const char **bad) {
    static const struct unit units[] = { { "%", 10 }, { NULL, 0 } };
    u64 v;
    int error = take_scaled(s, units, &v, bad);

    if (error) return error;
    if (v > 1000) return fail(-ERANGE, s, bad);
    *permille = (u32)v;
    return 0;
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
    if (error) return error;
    if (first > last || last >= TAKT_MAX_CPUS) {
        *s = start;
        return first > last ? -EINVAL : -ERANGE;
    }
    for (unsigned cpu = (unsigned)first; cpu <= last; cpu++) {
        if (exclude)
            cpumask_clear(m, cpu);
        else
            cpumask_set(m, cpu);
    }
    return 0;
}

int parse_cpus(const char *s, struct cpumask *m, const char **bad) {
    struct cpumask set;
    int error;

    cpumask_zero(&set);
    if (*s == '^') cpumask_fill(&set); /* nothing to take away from: all but these, as xl reads it */
    do {
        error = take_cpus(&s, &set);
        if (error) return fail(error, s, bad);
    } while (*s == ',' && s++);
    if (*s) return fail(-EINVAL, s, bad);
    *m = set;
    return 0;
}

int parse_console(const char *s, struct console_spec *c, const char **bad) {
    u64 baud = 115200;

    if (strcmp(s, "none") == 0) {
        *c = (struct console_spec){ 0, 0 };
        return 0;
    }
    if (strncmp(s, "com", 3) != 0) return fail(-EINVAL, s, bad);
    if (s[3] < '1' || s[3] > '4') return fail(-EINVAL, s + 3, bad);
    c->com = (u32)(s[3] - '0');
    s += 4;
    if (*s == ',') {
        const char *start = ++s;
        int error = take_number(&s, &baud);

        if (error) return fail(error, s, bad);
        if (baud == 0 || baud > 115200 || 115200 % baud) /* what the divisor of a 16550 can make */
            return fail(-ERANGE, start, bad);
        if (strcmp(s, ",8n1") == 0) s += 4;
    }
    if (*s) return fail(-EINVAL, s, bad);
    c->baud = (u32)baud;
    return 0;
}

/* Adds ",first-last" at `at` if it fits whole. Returns where the next one goes. */
static size_t append_range(char *buf, size_t size, size_t at, unsigned first, unsigned last) {
    char item[32];
    const char *comma = at ? "," : "";
    int n = first == last ? hv_snprintf(item, sizeof(item), "%s%u", comma, first)
                          : hv_snprintf(item, sizeof(item), "%s%u-%u", comma, first, last);

    if (at + (size_t)n < size) memcpy(buf + at, item, (size_t)n + 1);
    return at + (size_t)n;
}

size_t format_cpus(const struct cpumask *m, char *buf, size_t size) {
    size_t at = 0;

    if (size) buf[0] = 0;
    if (cpumask_weight(m) == TAKT_MAX_CPUS) return (size_t)hv_snprintf(buf, size, "all");
    if (cpumask_empty(m)) return (size_t)hv_snprintf(buf, size, "none");
    for (unsigned cpu = cpumask_next(m, 0), last; cpu < TAKT_MAX_CPUS; cpu = cpumask_next(m, last + 1)) {
        for (last = cpu; cpumask_test(m, last + 1); last++)
            ;
        at = append_range(buf, size, at, cpu, last);
    }
    return at;
}

bool valid_name(const char *s) {
    size_t n = strnlen(s, 32);
    bool number = true;

    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');

        if (!letter && !(c >= '0' && c <= '9') && c != '-' && c != '_' && c != '.') return false;
        if (c < '0' || c > '9') number = false;
    }
    return n >= 1 && n <= 31 && !number && s[0] != '-';
}
