/* Turns text into values: numbers with units, lists of CPUs, consoles. The functions take_...()
 * read a part of a text and move *s behind it; parse_...() have to understand all of it, and report
 * where they did not. Nothing here allocates memory, and nothing reads beyond the terminator. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/printf.h"
#include "common/string.h"

struct unit {
    const char *name;
    u64 factor;
};

/* Ends each of the functions parse_...(). `at` is where the reading has come to. Text that is left
 * there is an error, too. If there is one, *bad becomes that place. Returns the error, or 0. */
static int parse_end(int error, const char *at, const char **bad) {
    if (!error && *at) error = -EINVAL;
    if (error && bad) *bad = at;
    return error;
}

/* Reads decimal digits and moves *s behind them. */
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

/* Reads a decimal number. Returns 0 or an error. */
int parse_u64(const char *s, u64 *value, const char **bad) {
    int error = take_number(&s, value);

    return parse_end(error, s, bad);
}

/* Reads a number such as "12.5" and a unit. The value is in the smallest unit, rounded down.
 * There may be nine digits behind the point. */
static int parse_scaled(const char *s, const struct unit *unit, u64 *value, const char **bad) {
    u64 whole, part = 0, scale = 1, v;
    int error = take_number(&s, &whole);

    if (!error && *s == '.') {
        const char *digits = ++s;

        error = take_number(&s, &part);
        for (; digits < s && scale <= NS_PER_S; digits++) scale *= 10;
        if (scale > NS_PER_S) error = -ERANGE;
    }
    if (error) return parse_end(error, s, bad);
    while (unit->name && strcmp(s, unit->name) != 0) unit++;
    if (!unit->name) return parse_end(-EINVAL, s, bad);
    v = (u64)((unsigned __int128)part * unit->factor / scale);
    if (__builtin_mul_overflow(whole, unit->factor, &whole) ||
        __builtin_add_overflow(whole, v, value))
        return parse_end(-ERANGE, s, bad);
    return 0;
}

/* Reads a number of bytes such as "64k". Returns 0 or an error. */
int parse_size(const char *s, u64 *bytes, const char **bad) {
    static const struct unit units[] = { { "", 1 },        { "k", 1 << 10 }, { "K", 1 << 10 },
                                         { "M", 1 << 20 }, { "G", 1 << 30 }, { "T", 1ull << 40 },
                                         { NULL, 0 } };

    return parse_scaled(s, units, bytes, bad);
}

/* Reads a time such as "10ms" into nanoseconds. Returns 0 or an error. */
int parse_time(const char *s, u64 *ns, const char **bad) {
    static const struct unit units[] = {
        { "ns", 1 }, { "us", NS_PER_US }, { "ms", NS_PER_MS }, { "s", NS_PER_S }, { NULL, 0 }
    };

    return parse_scaled(s, units, ns, bad);
}

/* Reads a clock rate such as "2.4GHz" into Hz. Returns 0 or an error. */
int parse_frequency(const char *s, u64 *hz, const char **bad) {
    static const struct unit units[] = {
        { "kHz", 1000 }, { "MHz", 1000000 }, { "GHz", 1000000000 }, { NULL, 0 }
    };

    return parse_scaled(s, units, hz, bad);
}

/* Reads a rate of data such as "5GB/s" into bytes a second. Returns 0 or an error. */
int parse_rate(const char *s, u64 *bytes_per_s, const char **bad) {
    static const struct unit units[] = { { "MB/s", 1000000 }, { "GB/s", 1000000000 }, { NULL, 0 } };

    return parse_scaled(s, units, bytes_per_s, bad);
}

/* Reads a number such as "1.5" into thousandths. Returns 0 or an error. */
int parse_thousandths(const char *s, u64 *value, const char **bad) {
    static const struct unit units[] = { { "", 1000 }, { NULL, 0 } };

    return parse_scaled(s, units, value, bad);
}

/* Reads a percentage such as "12.5%" into thousandths. Returns 0 or an error. */
int parse_permille(const char *s, u64 *permille, const char **bad) {
    static const struct unit units[] = { { "%", 10 }, { NULL, 0 } };
    int error = parse_scaled(s, units, permille, bad);

    if (!error && *permille > 1000) return parse_end(-ERANGE, s, bad);
    return error;
}

/* Reads the CPUs of one item: "5", "0-3" or "all". */
static int take_range(const char **s, u64 *first, u64 *last) {
    int error;

    *first = 0;
    *last = TAKT_MAX_CPUS - 1;
    if (strncmp(*s, "all", 3) == 0) {
        *s += 3;
        return 0;
    }
    error = take_number(s, first);
    *last = *first;
    if (!error && **s == '-') {
        (*s)++;
        error = take_number(s, last);
    }
    return error;
}

/* Reads one item of a CPU list, and adds its CPUs to *m, or with a '^' before it takes them
 * away. */
static int take_cpus(const char **s, struct cpumask *m) {
    const char *start = *s;
    bool exclude = *start == '^';
    u64 first, last;
    int error;

    if (exclude) (*s)++;
    error = take_range(s, &first, &last);
    if (error) return error;
    if (first > last || last >= TAKT_MAX_CPUS) {
        *s = start;
        if (first > last) return -EINVAL;
        return -ERANGE;
    }
    for (unsigned cpu = (unsigned)first; cpu <= last; cpu++) {
        if (exclude)
            cpumask_clear(m, cpu);
        else
            cpumask_set(m, cpu);
    }
    return 0;
}

/* Returns the value of a hexadecimal digit, or -1 if the character is not a digit. */
static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Reads `digits` hexadecimal digits and the character that has to follow them (0 means the end of
 * the text), and moves *s behind both. */
static int take_hex(const char **s, unsigned digits, char behind, u64 *value) {
    for (*value = 0; digits; digits--, ++*s) {
        int digit = hex_digit(**s);

        if (digit < 0) return -EINVAL;
        *value = *value << 4 | (u64)digit;
    }
    if (**s != behind) return -EINVAL;
    if (behind) (*s)++;
    return 0;
}

/* Reads the name of a PCI device, such as "00:03.0" or "0001:00:03.0", into *bdf. Returns 0 or
 * -EINVAL. The segment may be left out. A text that is longer than "00:03.0" is read as one that
 * has it. */
int parse_pci(const char *s, u64 *bdf, const char **bad) {
    u64 segment = 0, bus = 0, device = 0, function = 0;
    int error = 0;

    if (strlen(s) > strlen("00:03.0")) error = take_hex(&s, 4, ':', &segment);
    if (!error) error = take_hex(&s, 2, ':', &bus);
    if (!error) error = take_hex(&s, 2, '.', &device);
    if (!error) error = take_hex(&s, 1, 0, &function);
    if (!error && (device > 31 || function > 7)) error = -ERANGE;
    if (!error) *bdf = segment << 16 | bus << 8 | device << 3 | function;
    return parse_end(error, s, bad);
}

/* Reads a list of CPUs such as "0-3,^2,5" or "all". Returns 0, or an error; *m is written only if
 * the whole text is right. */
int parse_cpus(const char *s, struct cpumask *m, const char **bad) {
    struct cpumask set;
    int error;

    cpumask_zero(&set);
    /* A list that begins with '^' takes CPUs away from all of them, as Xen's xl reads it. */
    if (*s == '^') cpumask_fill(&set);
    error = take_cpus(&s, &set);
    while (!error && *s == ',') {
        s++;
        error = take_cpus(&s, &set);
    }
    error = parse_end(error, s, bad);
    if (!error) *m = set;
    return error;
}

/* If *s begins with `word`, moves *s behind it and returns true. */
static bool take_word(const char **s, const char *word) {
    size_t n = strlen(word);

    if (strncmp(*s, word, n)) return false;
    *s += n;
    return true;
}

/* Reads how CPUs are to be chosen: "random:N" or "cache:N", where N is the number of CPUs, or
 * "node:N", where N is that of the node. Returns 0 or an error. */
int parse_choice(const char *s, struct cpu_choice *c) {
    struct cpu_choice read = { CHOOSE_NONE, 0, 0 };
    u64 nr;

    *c = read;
    if (take_word(&s, "random:"))
        read.how = CHOOSE_RANDOM;
    else if (take_word(&s, "cache:"))
        read.how = CHOOSE_CACHE;
    else if (take_word(&s, "node:"))
        read.how = CHOOSE_NODE;
    else
        return -EINVAL;
    if (parse_u64(s, &nr, NULL) || nr > TAKT_MAX_CPUS) return -ERANGE;
    if (read.how == CHOOSE_NODE)
        read.node = (u32)nr;
    else if (nr)
        read.nr = (u32)nr;
    else
        return -ERANGE;
    *c = read;
    return 0;
}

/* Reads a number such as "0x2f8" and moves *s behind it. */
static int take_address(const char **s, u64 *value) {
    bool empty = true;

    *value = 0;
    if (!take_word(s, "0x")) return -EINVAL;
    for (;;) {
        int digit = hex_digit(**s);

        if (digit < 0) break;
        if (*value >> 60) return -ERANGE;
        *value = *value << 4 | (u64)digit;
        (*s)++;
        empty = false;
    }
    if (empty) return -EINVAL;
    return 0;
}

/* Reads a number such as "0x2f8". Returns 0 or an error. */
int parse_address(const char *s, u64 *value, const char **bad) {
    int error = take_address(&s, value);

    if (error == -EINVAL) error = take_number(&s, value);
    return parse_end(error, s, bad);
}

/* Reads a PCI device, up to the end or a comma, and moves *s behind it. */
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

/* Reads where a console is, up to the comma before the rate. */
static int take_place(const char **s, struct console_spec *c) {
    int error;

    if (take_word(s, "com")) {
        if (**s < '1' || **s > '4') return -EINVAL;
        c->where = AT_COM;
        c->com = (u32)(**s - '0');
        (*s)++;
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
    if (error) return error;
    /* The ports below belong to devices on the board. A UART takes eight ports. */
    if (c->addr < 0x100 || c->addr > 0x10000 - 8) return -ERANGE;
    return 0;
}

#define UART_CLOCK 115200 /* the rates of a 16550 are this number divided by a whole one */

/* Reads where a serial port is, and its rate (parse.h lists the forms). Returns 0 or an error.
 * Without a rate in the text, a COM port and a port at an I/O address get the highest rate. All
 * others get 0, which keeps the rate that the firmware has set. */
int parse_console(const char *s, struct console_spec *c, const char **bad) {
    u64 baud;
    int error;

    *c = (struct console_spec){ .where = AT_NOTHING };
    if (strcmp(s, "none") == 0) return 0;
    c->where = AT_FIRMWARES;
    if (strcmp(s, "auto") == 0) return 0;
    error = take_place(&s, c);
    baud = 0;
    if (c->where == AT_COM || c->where == AT_PORT) baud = UART_CLOCK;
    if (!error && *s == ',') {
        s++;
        error = take_number(&s, &baud);
        if (!error && (baud == 0 || UART_CLOCK % baud)) error = -ERANGE;
    }
    take_word(&s, ",8n1");
    c->baud = (u32)baud;
    return parse_end(error, s, bad);
}

/* Writes a set of CPUs as a list such as "0-3,5". Each run of consecutive CPUs becomes
 * "first-last". */
void format_cpus(const struct cpumask *m, char buf[CPUS_TEXT]) {
    const char *separator = "";
    size_t at = 0;

    hv_snprintf(buf, CPUS_TEXT, "none");
    if (cpumask_weight(m) == TAKT_MAX_CPUS) {
        hv_snprintf(buf, CPUS_TEXT, "all");
        return;
    }
    for (unsigned cpu = cpumask_next(m, 0), last; cpu < TAKT_MAX_CPUS;
         cpu = cpumask_next(m, last + 1)) {
        last = cpu;
        while (cpumask_test(m, last + 1)) last++;
        at += (size_t)hv_snprintf(buf + at, CPUS_TEXT - at, "%s%u", separator, cpu);
        if (last > cpu) at += (size_t)hv_snprintf(buf + at, CPUS_TEXT - at, "-%u", last);
        separator = ",";
    }
}

/* Returns whether a VM or a pool may have this name. `| ' '` turns an upper-case letter into the
 * lower-case one, because the two differ only in that bit of ASCII. */
bool valid_name(const char *s) {
    bool number = true;
    size_t n = 0;

    for (; s[n]; n++) {
        bool digit = s[n] >= '0' && s[n] <= '9',
             letter = (s[n] | ' ') >= 'a' && (s[n] | ' ') <= 'z';

        if (!digit && !letter && s[n] != '_' && s[n] != '.' && (s[n] != '-' || n == 0))
            return false;
        number &= digit;
    }
    return n >= 1 && n <= 31 && !number;
}
