/* Guests in the simulation of the whole machine: an access to a port or to a register is a call,
 * and RAM is not mapped one to one. This header takes the place of the one of the same name. */
#ifndef WHOLE_GUEST_IO_H
#define WHOLE_GUEST_IO_H

#include <takt/types.h>

void outb(u16 port, u8 v);
void outw(u16 port, u16 v);
void outl(u16 port, u32 v);
u8 inb(u16 port);
u16 inw(u16 port);
u32 inl(u16 port);

/* `p` is a guest-physical address: registers are where the abi says. */
u8 mmio_read8(const volatile void *p);
void mmio_write8(volatile void *p, u8 v);
u16 mmio_read16(const volatile void *p);
u32 mmio_read32(const volatile void *p);
void mmio_write32(volatile void *p, u32 v);

void *pa_to_ptr(u64 pa);
u64 ptr_to_pa(const volatile void *p);

#endif
