/* Writes formatted text as C's vsnprintf() does, for the hypervisor and for guests, which have no C
 * library. A "conversion" is one placeholder of the format, such as "%-8u" in "%-8u ms": flags, a
 * width, a precision and a letter. format.h lists the conversions. */
#include "common/format.h"
#include "common/string.h"

#define MAX_DIGITS 20 /* of a u64 in decimal */

/* Where the text goes. What does not fit into `buf` is counted in `len` but not stored, because the
 * caller is told how long the whole text would be. */
struct output {
    char *buf;
    size_t size;
    size_t len; /* of the whole text, with what did not fit */
};

/* What one conversion asks for: what stands between its '%' and its letter. */
struct spec {
    bool left, zero;
    size_t width;
    size_t precision; /* of %s */
    bool wide;        /* the argument has 64 bits */
};

/* Appends a character, if it fits in front of the terminator. */
static void put_char(struct output *o, char c) {
    if (o->len + 1 < o->size) o->buf[o->len] = c;
    o->len++;
}

/* Appends `n` bytes, or as many of them as fit in front of the terminator. */
static void put_text(struct output *o, const char *text, size_t n) {
    if (o->len < o->size) memcpy(o->buf + o->len, text, MIN(n, o->size - o->len - 1));
    o->len += n;
}

/* Appends a character n times. */
static void put_padding(struct output *o, char c, size_t n) {
    while (n--) put_char(o, c);
}

/* Writes a sign, if there is one, and a text, filled up to the width. Zeros go between the sign and
 * the digits; blanks go outside of both. */
static void put_field(struct output *o, const struct spec *f, bool minus, const char *text,
                      size_t n) {
    size_t length = n + minus;
    size_t padding = f->width > length ? f->width - length : 0;

    if (!f->left && !f->zero) put_padding(o, ' ', padding);
    if (minus) put_char(o, '-');
    if (!f->left && f->zero) put_padding(o, '0', padding);
    put_text(o, text, n);
    if (f->left) put_padding(o, ' ', padding);
}

/* Appends a number without sign in the given base, as one field. The digits are made from the last
 * one to the first, because division yields the last one first. */
static void put_number(struct output *o, const struct spec *f, u32 base, u64 v, bool minus) {
    char digits[MAX_DIGITS], *end = digits + sizeof(digits), *first = end;

    do {
        *--first = "0123456789abcdef"[v % base];
        v /= base;
    } while (v);
    put_field(o, f, minus, first, (size_t)(end - first));
}

/* Appends a number with sign in decimal, as one field. The negation is done on the number without
 * sign: -v of the smallest i64 would overflow. */
static void put_signed(struct output *o, const struct spec *f, i64 v) {
    if (v < 0)
        put_number(o, f, 10, -(u64)v, true);
    else
        put_number(o, f, 10, (u64)v, false);
}

/* Appends a text as one field, cut off after `f->precision` bytes. Flag 0 is ignored, because
 * filling up a text with zeros makes no sense. `f->precision` is the most bytes that are read, so a
 * text with a precision need not be terminated. */
static void put_string(struct output *o, struct spec *f, const char *text) {
    if (!text) text = "(null)";
    f->zero = false;
    put_field(o, f, false, text, strnlen(text, f->precision));
}

/* Reads a decimal number, which may be empty, and moves *at behind it. */
static size_t read_number(const char **at) {
    size_t n = 0;

    for (; **at >= '0' && **at <= '9'; (*at)++) n = n * 10 + (size_t)(**at - '0');
    return n;
}

/* Reads flags, width, precision and length, and moves *at behind them, to the letter. */
static struct spec read_spec(const char **at, va_list *ap) {
    struct spec f = { .precision = ~(size_t)0 };

    for (; **at == '-' || **at == '0'; (*at)++) {
        if (**at == '-')
            f.left = true;
        else
            f.zero = true;
    }
    f.width = read_number(at);
    if (**at == '*') {
        int width = va_arg(*ap, int);

        (*at)++;
        f.left |= width < 0;
        f.width = width < 0 ? -(size_t)width : (size_t)width;
    }
    if (**at == '.') {
        (*at)++;
        f.precision = read_number(at);
        if (**at == '*') {
            (*at)++;
            f.precision = (size_t)va_arg(*ap, int); /* a negative one is none, as in C */
        }
    }
    for (; **at == 'l' || **at == 'z'; (*at)++) f.wide = true;
    return f;
}

/* Takes the next argument, of the size that the conversion names. A wrong size would make all later
 * arguments wrong. */
static u64 next_unsigned(const struct spec *f, va_list *ap) {
    if (f->wide) return va_arg(*ap, u64);
    return va_arg(*ap, u32);
}

/* Returns the next argument as a number with a sign. */
static i64 next_signed(const struct spec *f, va_list *ap) {
    if (f->wide) return va_arg(*ap, i64);
    return va_arg(*ap, i32);
}

/* Writes one conversion; `at` is behind its '%'. Returns what follows it. A letter that stands for
 * no conversion, such as a second '%', is written as it is. */
static const char *convert(struct output *o, const char *at, va_list *ap) {
    struct spec f = read_spec(&at, ap);
    char c;

    switch (*at) {
    case 0: return at;
    case 'd':
    case 'i': put_signed(o, &f, next_signed(&f, ap)); break;
    case 'u': put_number(o, &f, 10, next_unsigned(&f, ap), false); break;
    case 'x': put_number(o, &f, 16, next_unsigned(&f, ap), false); break;
    case 'p':
        f = (struct spec){ .zero = true, .width = 16 };
        put_number(o, &f, 16, (u64)va_arg(*ap, void *), false);
        break;
    case 'c':
        c = (char)va_arg(*ap, int);
        f.zero = false;
        put_field(o, &f, false, &c, 1);
        break;
    case 's': put_string(o, &f, va_arg(*ap, const char *)); break;
    default: put_char(o, *at);
    }
    return at + 1;
}

/* Writes formatted text, as vsnprintf() does: copies the format byte by byte up to a '%', and lets
 * convert() write what that stands for. */
int format_text(char *buf, size_t size, const char *fmt, va_list args) {
    struct output o = { buf, size, 0 };
    va_list ap;

    /* `args` itself, an array as a parameter, is a pointer and cannot be passed on by address. */
    va_copy(ap, args);
    while (*fmt) {
        if (*fmt == '%')
            fmt = convert(&o, fmt + 1, &ap);
        else
            put_char(&o, *fmt++);
    }
    va_end(ap);
    if (size) buf[MIN(o.len, size - 1)] = 0;
    return (int)o.len;
}
