/* Port and MMIO accessors, for drivers that run in the hypervisor and in guests alike. */
#ifndef TAKT_IO_H
#define TAKT_IO_H

#include <takt/types.h>

#define DEFINE_PORT(suffix, type)                                                                  \
    static inline void out##suffix(u16 port, type v) {                                             \
        __asm__ volatile("out" #suffix " %0, %1" : : "a"(v), "Nd"(port));                          \
    }                                                                                              \
    static inline type in##suffix(u16 port) {                                                      \
        type v;                                                                                    \
        __asm__ volatile("in" #suffix " %1, %0" : "=a"(v) : "Nd"(port));                           \
        return v;                                                                                  \
    }

DEFINE_PORT(b, u8)
DEFINE_PORT(w, u16)
DEFINE_PORT(l, u32)

static inline u8 mmio_read8(const volatile void *p) { return *(const volatile u8 *)p; }

static inline void mmio_write8(volatile void *p, u8 v) { *(volatile u8 *)p = v; }

static inline u32 mmio_read32(const volatile void *p) { return *(const volatile u32 *)p; }

static inline void mmio_write32(volatile void *p, u32 v) { *(volatile u32 *)p = v; }

#endif
