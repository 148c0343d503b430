/* The part of C's <string.h> that the hypervisor and the guests use. Both are built without a C
 * library. In the host build (unit tests, simulation, fuzzers) common/string.c is left out, and
 * the functions are those of libc. */
#ifndef COMMON_STRING_H
#define COMMON_STRING_H

#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int c, size_t n);
int memcmp(const void *a, const void *b, size_t n);
size_t strlen(const char *s);
size_t strnlen(const char *s, size_t max);
int strcmp(const char *a, const char *b);
int strncmp(const char *a, const char *b, size_t n);
char *strchr(const char *s, int c);

#endif
