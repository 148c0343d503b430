/* Functions on memory and text with the meaning that C gives them, for the hypervisor and for
 * guests, which have no C library. Copying and searching handle 8 bytes at a time ("words"),
 * because Takt is mostly run on emulators, where each step costs as much as a step for one byte. */
#include "common/string.h"

#include <takt/types.h>

#define ONE_IN_EACH_BYTE 0x0101010101010101ull
#define TOP_BITS         (ONE_IN_EACH_BYTE << 7)

/* Copies n bytes, in words of 8 bytes, and then the rest in single bytes: an emulator takes a step
 * for each element of a string instruction, so this takes an eighth of the steps. */
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

/* Copies n bytes as memcpy() does, but the two ranges may overlap. */
void *memmove(void *to, const void *from, size_t n) {
    char *d = to;
    const char *s = from;

    /* A copy that goes upwards overwrites bytes that it has not yet read only if `to` lies within
     * what is copied. */
    if (d <= s || d >= s + n) return memcpy(to, from, n);
    while (n--) d[n] = s[n];
    return to;
}

/* Fills n bytes with c: whole words, and then the rest in single bytes, as memcpy() does. The
 * product is a word each of whose bytes is c. */
void *memset(void *to, int c, size_t n) {
    void *d = to;
    size_t words = n / 8, rest = n % 8;

    __asm__ volatile("rep stosq\n\t"
                     "mov %3, %%rcx\n\t"
                     "rep stosb"
                     : "+D"(d), "+c"(words)
                     : "a"((u8)c * ONE_IN_EACH_BYTE), "r"(rest)
                     : "memory");
    return to;
}

/* Compares n bytes. Skips equal words first. The bytes that follow decide: comparing two different
 * words as numbers would give the last byte the most weight, not the first. */
int memcmp(const void *a, const void *b, size_t n) {
    const u8 *x = a, *y = b;

    while (n >= 8 && *(const u64 *)x == *(const u64 *)y) {
        x += 8;
        y += 8;
        n -= 8;
    }
    for (; n; n--, x++, y++)
        if (*x != *y) return *x - *y;
    return 0;
}

/* Is one of the eight bytes of `word` zero? Subtracting 1 from each byte sets the top bit of
 * those that were zero. It also sets it in bytes of 0x81 and above; `~word` takes those away. A
 * byte above a zero one may be reported as well because of the borrow, which does not matter
 * here. */
static bool has_zero_byte(u64 word) { return ((word - ONE_IN_EACH_BYTE) & ~word & TOP_BITS) != 0; }

/* Returns the length of a text, but at most `max`. Reads by words where it can: the shell and the
 * store look at many long strings. A word that is aligned never lies in two pages, so reading a
 * whole one cannot fault behind the end of the text. */
size_t strnlen(const char *s, size_t max) {
    size_t n = 0;

    while (n < max && s[n] && (u64)(s + n) % 8) n++;
    if ((u64)(s + n) % 8 == 0) {
        while (n + 8 <= max && !has_zero_byte(*(const u64 *)(s + n))) n += 8;
    }
    while (n < max && s[n]) n++;
    return n;
}

size_t strlen(const char *s) { return strnlen(s, ~0ul); }

/* Compares at most n characters of two texts. */
int strncmp(const char *a, const char *b, size_t n) {
    for (; n; n--, a++, b++)
        if (*a != *b || !*a) return (u8)*a - (u8)*b;
    return 0;
}

int strcmp(const char *a, const char *b) { return strncmp(a, b, ~0ul); }

/* Returns the first place of a character in a text, or NULL. */
char *strchr(const char *s, int c) {
    for (; *s != (char)c; s++)
        if (!*s) return NULL;
    return (char *)s;
}
