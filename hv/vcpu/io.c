/* Accesses to I/O ports. A port without a device reads as all ones. So do the ports of the
 * PIT and of the 8259s, which no VM has, and of PCI configuration space, unless the VM is a PC
 * (hv/passthrough/pcbus.c). */
#include "vcpu/exits.h"

static const u64 size_mask[] = { [1] = 0xff, [2] = 0xffff, [4] = 0xffffffff };

/* Carries out a guest's access to an I/O port. Returns the value that was read. The sizes are 1, 2
 * and 4 bytes. Bits beyond the size are neither passed on nor returned. */
u64 port_access(struct vcpu *v, u16 port, u8 size, bool in, u64 value) {
    struct bus_access a = { .addr = port, .size = size, .write = !in, .vcpu = v->id };

    value &= size_mask[size];
    if (!bus_do(&v->vm->ports, &a, &value)) value = ~0ull;
    return value & size_mask[size];
}

/* The handler of the exit of IN and OUT. INS and OUTS, which move memory, are in string_io.c. */
void exit_io(struct vcpu *v, const struct vm_exit *e) {
    u64 *rax = &v->virt.regs.gpr[REG_RAX], value;

    if (__builtin_expect(e->io.string, 0)) return exit_string_io(v, e);
    value = port_access(v, e->io.port, e->io.size, e->io.in, *rax);
    if (e->io.in && e->io.size == 4)
        *rax = value; /* a write of 32 bits clears the upper half: SDM 1 3.4.1.1 */
    else if (e->io.in)
        *rax = (*rax & ~size_mask[e->io.size]) | value;
    guest_skip(&v->virt, e);
}
