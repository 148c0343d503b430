#include "lib/printf.h"
#include "lib/string.h"

struct sink {
    char *buf;
    size_t size, len; /* len counts what did not fit as well */
};

struct spec {
    bool left, zero;
    int width; /* below 0: to the left */
    u32 base;
};

static void put(struct sink *s, char c) {
    if (s->len + 1 < s->size) s->buf[s->len] = c;
    s->len++;
}

static void put_text(struct sink *s, const char *text, size_t n, int width) {
    int pad = (width < 0 ? -width : width) - (int)n;

    for (int i = 0; width > 0 && i < pad; i++) put(s, ' ');
    if (s->len < s->size) memcpy(s->buf + s->len, text, MIN(n, s->size - s->len - 1));
    s->len += n;
    for (int i = 0; width < 0 && i < pad; i++) put(s, ' ');
}

static void put_number(struct sink *s, const struct spec *f, u64 v, bool negative) {
    char text[32], *end = text + sizeof(text), *p = end;
    /* where the leading ones begin */
    char *zeros = end - (f->zero ? MIN(MAX(f->width, 0), 20) : 0) + negative;

    do *--p = "0123456789abcdef"[v % f->base];
    while ((v /= f->base) || p > zeros);
    if (negative) *--p = '-';
    put_text(s, p, (size_t)(end - p), f->width);
}

/* One conversion; `p` is behind its '%'. Returns what follows. */
static const char *convert(struct sink *s, const char *p, va_list *ap) {
    struct spec f = { .base = 10 };
    bool is_long = false;
    const char *text;
    char c;
    i64 v;

    for (; *p == '-' || *p == '0'; p++) {
        f.left |= *p == '-';
        f.zero |= *p == '0';
    }
    for (; *p >= '0' && *p <= '9'; p++) f.width = f.width * 10 + *p - '0';
    for (; *p == '*'; p++) f.width = va_arg(*ap, int);
    if (f.left) f.width = -f.width;
    for (; *p == 'l'; p++) is_long = true;
    switch (*p) {
    case 0: return p;
    case 'd':
        v = is_long ? va_arg(*ap, i64) : va_arg(*ap, int);
        put_number(s, &f, v < 0 ? -(u64)v : (u64)v, v < 0);
        break;
    case 'x': f.base = 16; /* fall through */
    case 'u': put_number(s, &f, is_long ? va_arg(*ap, u64) : va_arg(*ap, u32), false); break;
    case 'c':
        c = (char)va_arg(*ap, int);
        put_text(s, &c, 1, f.width);
        break;
    case 's':
        text = va_arg(*ap, const char *);
        if (!text) text = "(null)";
        put_text(s, text, strlen(text), f.width);
        break;
    default: put(s, *p);
    }
    return p + 1;
}

int hv_vsnprintf(char *buf, size_t size, const char *fmt, va_list args) {
    struct sink s = { buf, size, 0 };
    va_list ap;

    va_copy(ap, args);
    while (*fmt) {
        if (*fmt == '%')
            fmt = convert(&s, fmt + 1, &ap);
        else
            put(&s, *fmt++);
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
