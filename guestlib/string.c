#include <guest/string.h>

void *memcpy(void *to, const void *from, size_t n) {
    void *r = to;
    size_t words = n / 8, rest = n % 8;

    /* An emulator takes a step for each element. */
    __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(rest) : : "memory");
    return r;
}

void *memmove(void *to, const void *from, size_t n) {
    char *d = to;
    const char *s = from;

    if (d <= s || d >= s + n) return memcpy(to, from, n);
    while (n--) d[n] = s[n];
    return to;
}

void *memset(void *p, int c, size_t n) {
    void *r = p;
    size_t words = n / 8, rest = n % 8;

    __asm__ volatile("rep stosq" : "+D"(p), "+c"(words) : "a"((u8)c * 0x0101010101010101ull) : "memory");
    __asm__ volatile("rep stosb" : "+D"(p), "+c"(rest) : "a"(c) : "memory");
    return r;
}

int memcmp(const void *a, const void *b, size_t n) {
    const u8 *x = a, *y = b;

    for (; n; n--, x++, y++)
        if (*x != *y) return *x - *y;
    return 0;
}

size_t strlen(const char *s) {
    size_t n = 0;

    while (s[n]) n++;
    return n;
}

int strcmp(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return (u8)*a - (u8)*b;
}

int strncmp(const char *a, const char *b, size_t n) {
    for (; n; n--, a++, b++)
        if (*a != *b || !*a) return (u8)*a - (u8)*b;
    return 0;
}
