/* Fixed-width names and the few macros that every room uses. */
#ifndef TAKT_TYPES_H
#define TAKT_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t i32;
typedef int64_t i64;

#define ARRAY_SIZE(a)                   (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)                       ((a) < (b) ? (a) : (b))
#define MAX(a, b)                       ((a) > (b) ? (a) : (b))
#define BIT(n)                          (1ull << (n))

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define ALIGN_UP(x, a)                  (((x) + (a)-1) & ~((__typeof__(x))(a)-1))
#define ALIGN_DOWN(x, a)                ((x) & ~((__typeof__(x))(a)-1))

#define NS_PER_US                       1000ull
#define NS_PER_MS                       1000000ull
#define NS_PER_S                        1000000000ull

#define PAGE_SHIFT                      12
#define PAGE_SIZE                       4096ull

#endif
