#include "lib/string.h"

#include <takt/types.h>

void *memcpy(void *restrict to, const void *restrict from, size_t n) {
    void *d = to;
    size_t words = n / 8, rest = n % 8;

    __asm__ volatile("rep movsq\n\t"
                     "mov %3, %%rcx\n\t"
                     "rep movsb"
                     : "+D"(d), "+S"(from), "+c"(words)
                     : "r"(rest)
                     : "memory");
    return to;
}

void *memmove(void *to, const void *from, size_t n) {
    char *d = to;
    const char *s = from;

    if (d <= s || d >= s + n) return memcpy(to, from, n);
    while (n--) d[n] = s[n];
    return to;
}

void *memset(void *to, int c, size_t n) {
    void *d = to;
    size_t words = n / 8, rest = n % 8;

    __asm__ volatile("rep stosq\n\t"
                     "mov %3, %%rcx\n\t"
                     "rep stosb"
                     : "+D"(d), "+c"(words)
                     : "a"((u8)c * 0x0101010101010101ull), "r"(rest)
                     : "memory");
    return to;
}

int memcmp(const void *a, const void *b, size_t n) {
    const u8 *x = a, *y = b;

    for (; n >= 8 && *(const u64 *)x == *(const u64 *)y; n -= 8) x += 8, y += 8;
    for (; n--; x++, y++)
        if (*x != *y) return *x - *y;
    return 0;
}

size_t strnlen(const char *s, size_t max) {
    const u64 ones = 0x0101010101010101;
    size_t n = 0;

    while (n < max && s[n] && (u64)(s + n) % 8) n++;
    if ((u64)(s + n) % 8 == 0) /* then by words, none of which lies in two pages */
        for (const u64 *w = (const u64 *)(s + n); n + 8 <= max && !((*w - ones) & ~*w & ones << 7); n += 8)
            w++;
    while (n < max && s[n]) n++;
    return n;
}

size_t strlen(const char *s) { return strnlen(s, ~0ul); }

int strncmp(const char *a, const char *b, size_t n) {
    for (; n && *a && *a == *b; n--) a++, b++;
    return n ? (u8)*a - (u8)*b : 0;
}

int strcmp(const char *a, const char *b) { return strncmp(a, b, ~0ul); }

char *strchr(const char *s, int c) {
    for (; *s != (char)c; s++)
        if (!*s) return NULL;
    return (char *)s;
}
