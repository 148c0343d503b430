/* Accesses to guest-physical addresses that are not mapped: a device of the VM that the hypervisor
 * emulates, or a fault of its guest. The CPU tells the address, but not what the instruction does
 * with it. So the instruction is decoded (vdev/decode.c) and emulated. */
#include "trace/trace.h"
#include "vcpu/exits.h"
#include "vdev/decode.h"
#include "x86/percpu.h"

DEFINE_COUNTER(mmio_emulated);

/* Ends the VM because of an access that nothing answers. A guest that reaches this has a bug, and
 * to go on with an invented value would only hide it. */
static void bad_access(struct vcpu *v, const struct vm_exit *e, const char *what) {
    const char *kind = "read";

    if (e->npf.write) kind = "write";
    if (e->npf.exec) kind = "execution";
    vcpu_crash(v, "%s of guest-physical %lx: %s", kind, e->npf.gpa, what);
}

/* For an instruction of which only `n` bytes could be fetched. Another vCPU may have unmapped the
 * page of the next byte after the CPU had read the instruction. If so, raises the fault that a new
 * fetch would cause, and returns true. */
static bool fetch_faults(struct vcpu *v, unsigned n) {
    u64 va = v->virt.regs.rip + n;
    struct guest_seg cs;
    gpa_t gpa;

    virt->get_seg(&v->virt, SEG_CS, &cs);
    if (guest_mode(&v->virt) != 64) va = (u32)(va + cs.base);
    return n < INSN_MAX && !insn_translate(v, SEG_CS, va, GA_EXEC, &gpa);
}

/* Decodes the instruction that caused the exit. Returns false if it is unknown, or if it could not
 * be read to its end; *len becomes how many bytes could be read. The exit may come without the
 * bytes of the instruction, or with too few of them; then they are fetched from the guest's
 * memory. */
static bool decode_insn(struct vcpu *v, const struct vm_exit *e, struct mmio_insn *in,
                        unsigned *len) {
    u8 fetched[INSN_MAX];

    *len = e->npf.nr_bytes;
    if (*len && !mmio_decode(in, e->npf.bytes, *len, e->npf.mode)) return true;
    if (*len == INSN_MAX) return false;
    *len = guest_fetch(&v->virt, fetched, sizeof(fetched));
    return !mmio_decode(in, fetched, *len, guest_mode(&v->virt));
}

/* Handles the exit of an access to guest-physical memory that is not RAM: a register of a device.
 * Only RAM may hold code, page tables, and what the CPU reads to deliver an event. If the
 * instruction in memory is not the one that exited, because another vCPU has changed it, nothing is
 * done: the guest executes what is there now. */
void exit_mmio(struct vcpu *v, const struct vm_exit *e) {
    struct bus_access a = { .addr = e->npf.gpa, .vcpu = v->id };
    struct mmio_insn in;
    u64 *gpr, value = 0;
    unsigned len;

    if (e->npf.present) return bad_access(v, e, "it has no right to that");
    if (e->npf.exec) return bad_access(v, e, "no RAM there");
    if (e->npf.in_walk) return bad_access(v, e, "a page table has to be in RAM");
    if (e->npf.in_delivery)
        return bad_access(v, e, "what an event is delivered by has to be in RAM");
    counter_inc(&mmio_emulated, this_cpu()->id);
    if (!decode_insn(v, e, &in, &len)) {
        if (!fetch_faults(v, len))
            bad_access(v, e, "not by a MOV that is emulated, or no device there");
        return;
    }
    /* Another vCPU has changed the instruction meanwhile. The guest executes what is there now. */
    if (in.write != e->npf.write) return;
    gpr = &v->virt.regs.gpr[in.reg];
    if (in.write) value = mmio_stored(&in, *gpr);
    a.size = in.size;
    a.write = in.write;
    if ((e->npf.gpa & (PAGE_SIZE - 1)) + in.size > PAGE_SIZE)
        return bad_access(v, e, "no device there");
    if (!bus_do(&v->vm->mmio, &a, &value)) return bad_access(v, e, "no device there");
    if (!in.write) *gpr = mmio_loaded(&in, *gpr, value);
    guest_skip(&v->virt, &(struct vm_exit){ .reason = EXIT_NPF, .insn_len = in.len });
}
