#include <guest/printf.h>
#include <guest/string.h>

struct out {
    char *buf;
    size_t size, len; /* len: what there would be with room enough */
};

static void put(struct out *o, char c) {
    if (o->len + 1 < o->size) o->buf[o->len] = c;
    o->len++;
}

static void put_padded(struct out *o, const char *s, size_t len, unsigned width, char pad, bool left) {
    size_t fill = width > len ? width - len : 0;

    /* A zero goes between the sign and the digits. */
    if (pad == '0' && len && *s == '-') {
        put(o, *s++);
        len--;
    }
    while (!left && fill && fill--) put(o, pad);
    while (len--) put(o, *s++);
    while (left && fill && fill--) put(o, ' ');
}

static size_t digits(char *end, u64 v, unsigned base) {
    char *p = end;

    do {
        *--p = "0123456789abcdef"[v % base];
        v /= base;
    } while (v);
    return end - p;
}

static u64 fetch(va_list *ap, unsigned longs, bool is_signed) {
    if (longs) return va_arg(*ap, u64);
    return is_signed ? (u64)(i64)va_arg(*ap, int) : va_arg(*ap, unsigned);
}

/* One conversion, `f` behind its %. Returns what follows. */
static const char *convert(struct out *o, const char *f, va_list *ap) {
    bool left = false, neg;
    char pad = ' ', buf[24], c;
    unsigned width = 0, longs = 0;
    size_t n, precision = ~(size_t)0;
    const char *s;
    u64 v;

    for (; *f == '-' || *f == '0'; f++) *f == '-' ? (left = true) : (pad = '0');
    if (*f == '*') {
        width = va_arg(*ap, int);
        f++;
    }
    while (*f >= '0' && *f <= '9') width = width * 10 + (*f++ - '0');
    if (*f == '.') {
        f++;
        precision = 0;
        if (*f == '*') {
            precision = va_arg(*ap, int);
            f++;
        }
        while (*f >= '0' && *f <= '9') precision = precision * 10 + (*f++ - '0');
    }
    while (*f == 'l' || *f == 'z') {
        longs++;
        f++;
    }

    switch (c = *f++) {
    case 'd':
    case 'i':
        v = fetch(ap, longs, true);
        neg = (i64)v < 0;
        n = digits(buf + sizeof(buf), neg ? -v : v, 10);
        if (neg) buf[sizeof(buf) - ++n] = '-';
        put_padded(o, buf + sizeof(buf) - n, n, width, pad, left);
        break;
    case 'u':
    case 'x':
        n = digits(buf + sizeof(buf), fetch(ap, longs, false), c == 'u' ? 10 : 16);
        put_padded(o, buf + sizeof(buf) - n, n, width, pad, left);
        break;
    case 'p':
        n = digits(buf + sizeof(buf), (u64)va_arg(*ap, void *), 16);
        put_padded(o, buf + sizeof(buf) - n, n, 16, '0', false);
        break;
    case 's':
        s = va_arg(*ap, const char *);
        s = s ? s : "(null)";
        for (n = 0; n < precision && s[n];) n++;
        put_padded(o, s, n, width, ' ', left);
        break;
    case 'c':
        buf[0] = va_arg(*ap, int);
        put_padded(o, buf, 1, width, ' ', left);
        break;
    case 0: return f - 1;
    default: put(o, c);
    }
    return f;
}

int vsnprintf(char *buf, size_t size, const char *fmt, va_list args) {
    struct out o = { buf, size, 0 };
    va_list ap;

    va_copy(ap, args);
    while (*fmt) {
        if (*fmt != '%')
            put(&o, *fmt++);
        else
            fmt = convert(&o, fmt + 1, &ap);
    }
    va_end(ap);
    if (size) buf[MIN(o.len, size - 1)] = 0;
    return o.len;
}

int snprintf(char *buf, size_t size, const char *fmt, ...) {
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(buf, size, fmt, ap);
    va_end(ap);
    return n;
}

int vprintf(const char *fmt, va_list ap) {
    char buf[512];
    int n = vsnprintf(buf, sizeof(buf), fmt, ap);

    console_write(buf, MIN((size_t)n, sizeof(buf) - 1));
    return n;
}

int printf(const char *fmt, ...) {
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vprintf(fmt, ap);
    va_end(ap);
    return n;
}
