#include "lib/printf.h"
#include "lib/string.h"

struct sink {
    char *buf;
    size_t size, len; /* len counts what did not fit as well */
};

struct spec {
    bool left, zero, negative, prefix;
    unsigned width, base;
    int precision; /* -1: none given */
    bool upper;
};

static void put(struct sink *s, char c) {
    if (s->len + 1 < s->size) s->buf[s->len] = c;
    s->len++;
}

static void fill(struct sink *s, char c, unsigned n) {
    while (n--) put(s, c);
}

static void put_string(struct sink *s, const struct spec *f, const char *str) {
    size_t n = str ? (f->precision >= 0 ? strnlen(str, (size_t)f->precision) : strlen(str)) : 6;
    unsigned pad = f->width > n ? f->width - (unsigned)n : 0;

    if (!str) str = "(null)";
    if (!f->left) fill(s, ' ', pad);
    for (size_t i = 0; i < n; i++) put(s, str[i]);
    if (f->left) fill(s, ' ', pad);
}

static void put_number(struct sink *s, const struct spec *f, u64 v) {
    const char *digits = f->upper ? "0123456789ABCDEF" : "0123456789abcdef";
    char tmp[20];
    unsigned n = 0, len, zeros = 0, pad;

    do tmp[n++] = digits[v % f->base];
    while (v /= f->base);
    len = n + f->negative + (f->prefix ? 2 : 0);
    if (f->precision > (int)n)
        zeros = (unsigned)f->precision - n;
    else if (f->zero && !f->left && f->precision < 0 && f->width > len)
        zeros = f->width - len;
    pad = f->width > len + zeros ? f->width - len - zeros : 0;

    if (!f->left) fill(s, ' ', pad);
    if (f->negative) put(s, '-');
    if (f->prefix) {
        put(s, '0');
        put(s, 'x');
    }
    fill(s, '0', zeros);
    while (n) put(s, tmp[--n]);
    if (f->left) fill(s, ' ', pad);
}

static const char *parse_number(const char *p, unsigned *out) {
    *out = 0;
    while (*p >= '0' && *p <= '9') *out = *out * 10 + (unsigned)(*p++ - '0');
    return p;
}

/* Fetches the next integer of the given length ('h', 'H' = hh, 'l', 'z', 0) as 64 bits. */
static u64 integer(va_list *ap, char length, bool is_signed) {
    if (length == 'l' || length == 'z') return va_arg(*ap, u64);
    if (is_signed) {
        int v = va_arg(*ap, int);

        return (u64)(i64)(length == 'h' ? (i16)v : length == 'H' ? (i8)v : v);
    } else {
        unsigned v = va_arg(*ap, unsigned);

        return length == 'h' ? (u16)v : length == 'H' ? (u8)v : v;
    }
}

static void convert(struct sink *s, struct spec *f, char conv, char length, va_list *ap) {
    char c[2] = { 0, 0 };
    u64 v;

    switch (conv) {
    case 'd':
    case 'i':
        v = integer(ap, length, true);
        f->negative = (i64)v < 0;
        put_number(s, f, f->negative ? -v : v);
        break;
    case 'X':
        f->upper = true;
        /* fall through */
    case 'x':
        f->base = 16;
        /* fall through */
    case 'u': put_number(s, f, integer(ap, length, false)); break;
    case 'p':
        f->base = 16;
        f->prefix = true;
        put_number(s, f, (u64)va_arg(*ap, void *));
        break;
    case 'c':
        c[0] = (char)va_arg(*ap, int);
        if (c[0]) put_string(s, f, c);
        break;
    case 's': put_string(s, f, va_arg(*ap, const char *)); break;
    default:
        put(s, '%');
        if (conv != '%') put(s, conv);
    }
}

int hv_vsnprintf(char *buf, size_t size, const char *fmt, va_list args) {
    struct sink s = { buf, size, 0 };
    va_list ap;

    va_copy(ap, args);
    for (const char *p = fmt; *p; p++) {
        struct spec f = { .base = 10, .precision = -1 };
        char length = 0;

        if (*p != '%') {
            put(&s, *p);
            continue;
        }
        for (p++; *p == '-' || *p == '0'; p++) *(*p == '-' ? &f.left : &f.zero) = true;
        if (*p == '*') {
            int w = va_arg(ap, int);

            f.left |= w < 0;
            f.width = (unsigned)(w < 0 ? -w : w);
            p++;
        } else {
            p = parse_number(p, &f.width);
        }
        if (*p == '.') {
            unsigned n;

            if (p[1] == '*') {
                f.precision = va_arg(ap, int);
                p += 2;
            } else {
                p = parse_number(p + 1, &n);
                f.precision = (int)n;
            }
        }
        for (; *p == 'h' || *p == 'l' || *p == 'z'; p++) length = *p == 'h' && length == 'h' ? 'H' : *p;
        if (!*p) break;
        convert(&s, &f, *p, length, &ap);
    }
    va_end(ap);
    if (size) buf[MIN(s.len, size - 1)] = 0;
    return (int)s.len;
}

int hv_snprintf(char *buf, size_t size, const char *fmt, ...) {
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = hv_vsnprintf(buf, size, fmt, ap);
    va_end(ap);
    return n;
}
