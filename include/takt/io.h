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

static inline u16 mmio_read16(const volatile void *p) { return *(const volatile u16 *)p; }

static inline u32 mmio_read32(const volatile void *p) { return *(const volatile u32 *)p; }

static inline void mmio_write32(volatile void *p, u32 v) { *(volatile u32 *)p = v; }

/* Where a program that has its RAM mapped one to one finds a physical address, and the physical
 * address of something in its RAM. In guests that are compiled for the simulation of the whole
 * machine the two differ (tests/machine/guest/include). */
static inline void *pa_to_ptr(u64 pa) { return (void *)pa; }

static inline u64 ptr_to_pa(const volatile void *p) { return (u64)p; }

#endif
