/* Ports and MMIO, and a VM's devices there. Ports that nobody claims read as all ones: so do, among others,
 * the ports of PCI configuration, of the PIT and of the 8259s. */
#include "trace/trace.h"
#include "vdev/decode.h"
#include "virt/bits.h"
#include "vm/vm.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

DEFINE_COUNTER(mmio_emulated);

/* Units that one exit of a REP INS or OUTS moves; then the instruction starts again. */
#define STRING_BURST 64

static void lapic_access(void *dev, const struct bus_access *a, u64 *value) {
    struct vcpu *v = ((struct vm *)dev)->vcpu[a->vcpu];
    struct vlapic *l = vcpu_lapic(v);
    u32 offset = (u32)(a->addr - TAKT_LAPIC_GPA);

    if (a->size != 4) return;
    if (!a->write) {
        *value = vlapic_read(l, offset, now_ns());
        return;
    }
    vlapic_write(l, offset, (u32)*value, now_ns());
    vcpu_lapic_written(v);
}

static void debugcon_access(void *dev, const struct bus_access *a, u64 *value) {
    char c = (char)*value;

    if (a->write)
        vconsole_put(dev, &c, 1);
    else
        *value = TAKT_DEBUGCON_PORT; /* how guests find out that it is there */
}

static void debug_exit_access(void *dev, const struct bus_access *a, u64 *value) {
    if (a->write) vm_shutdown(dev, TAKT_SHUTDOWN_POWEROFF, (int)*value);
}

void vm_add_devices(struct vm *vm) {
    vm->uart.console = &vm->console;
    bus_add(&vm->ports, TAKT_UART_PORT, 8, vuart_access, &vm->uart);
    if (vm->config.debugcon) bus_add(&vm->ports, TAKT_DEBUGCON_PORT, 1, debugcon_access, &vm->console);
    if (vm->config.debug_exit) bus_add(&vm->ports, TAKT_DEBUG_EXIT_PORT, 4, debug_exit_access, vm);
    bus_add(&vm->mmio, TAKT_LAPIC_GPA, PAGE_SIZE, lapic_access, vm); /* first: what is used most */
    bus_add(&vm->mmio, TAKT_VIRTIO_GPA, TAKT_MAX_DEVICES * PAGE_SIZE, device_access, vm);
}

static const u64 size_mask[] = { 0, 0xff, 0xffff, 0, 0xffffffff };

/* One access; `value` is what OUT writes. Returns what IN reads. */
static inline u64 port_access(struct vcpu *v, u16 port, u8 size, bool in, u64 value) {
    struct bus_access a = { .addr = port, .size = size, .write = !in, .vcpu = v->id };

    value &= size_mask[size];
    if (!bus_do(&v->vm->ports, &a, &value)) value = ~0ull;
    return value & size_mask[size];
}

/* ---- INS and OUTS ---- */

struct string_io {
    enum seg_name seg;
    unsigned address_bits, mode;
    u8 len;
};

static u64 low_bits(u64 v, unsigned bits) { return bits == 64 ? v : v & (BIT(bits) - 1); }

/* Registers of a string instruction change in the width of its addresses: 32 clears the upper half. */
static void reg_add(u64 *reg, i64 by, unsigned bits) {
    u64 v = low_bits(*reg + (u64)by, bits);

    *reg = bits == 16 ? (*reg & ~0xffffull) | v : v;
}

/* Prefixes of 6C..6F. The vendors tell port, size and direction, but not where the data is. */
static bool string_decode(struct vcpu *v, const struct vm_exit *e, struct string_io *s) {
    u8 b[15];
    unsigned n = guest_fetch(&v->virt, b, sizeof(b));
    bool other_size = false;

    s->mode = guest_mode(&v->virt);
    s->seg = SEG_DS;
    for (unsigned i = 0; i < n; i++) {
        if ((b[i] & 0xe7) == 0x26) s->seg = (enum seg_name)(b[i] >> 3 & 3); /* 26 ES, 2E CS, 36 SS, 3E DS */
        if ((b[i] & 0xfe) == 0x64) s->seg = (enum seg_name)(SEG_FS + (b[i] & 1));
        other_size |= b[i] == 0x67;
        if ((b[i] & 0xfc) != 0x6c) continue;
        if (e->io.in) s->seg = SEG_ES;
        s->address_bits = other_size ? (s->mode == 32 ? 16 : 32) : s->mode;
        s->len = (u8)(i + 1);
        return e->io.in == !(b[i] & 2);
    }
    return false;
}

/* May a string instruction do that in this segment? SDM 3A 5.3 to 5.5. */
static bool seg_allows(const struct guest_seg *seg, bool write, u64 at, unsigned size) {
    bool code = seg->attr & ATTR_CODE, rw = seg->attr & ATTR_RW;
    u64 last = at + size - 1;

    if (!(seg->attr & ATTR_P) || (write && code) || ((write || code) && !rw)) return false;
    if (!code && seg->attr & ATTR_DOWN)
        return at > seg->limit && last <= (seg->attr & ATTR_BIG ? 0xffffffffu : 0xffffu);
    return last <= seg->limit;
}

static bool seg_fault(struct vcpu *v, enum seg_name seg) {
    vcpu_fault(v, seg == SEG_SS ? EXC_SS : EXC_GP, true, 0);
    return false;
}

/* False: the access faults, and the fault was raised. */
static bool translate(struct vcpu *v, enum seg_name seg, u64 gva, unsigned access, gpa_t *gpa) {
    u32 fault;

    if (virt->cpl(&v->virt) == 3) access |= GA_USER;
    if (!guest_translate(&v->virt, gva, access, gpa, &fault)) return true;
    if (fault == GUEST_NOT_CANONICAL) return seg_fault(v, seg);
    vcpu_page_fault(v, gva, fault);
    return false;
}

/* Moves one unit between the port and memory. False: a fault was raised, and the port was not touched. */
static bool string_unit(struct vcpu *v, const struct vm_exit *e, const struct string_io *s, u64 *index) {
    const struct guestmem *mem = &v->vm->mem;
    unsigned size = e->io.size, access = e->io.in ? GA_WRITE : GA_READ, first;
    u64 gva = low_bits(*index, s->address_bits);
    struct guest_seg seg;
    gpa_t gpa[2] = { 0 };
    u32 value = 0;

    virt->get_seg(&v->virt, s->seg, &seg);
    if (s->mode != 64 && !seg_allows(&seg, e->io.in, gva, size)) return seg_fault(v, s->seg);
    if (s->mode != 64 || s->seg == SEG_FS || s->seg == SEG_GS) gva += seg.base;
    if (s->mode != 64) gva = (u32)gva;
    first = MIN(size, (unsigned)(PAGE_SIZE - (gva & (PAGE_SIZE - 1)))); /* the rest is in the next page */
    if (!translate(v, s->seg, gva, access, &gpa[0]) ||
        (first < size && !translate(v, s->seg, gva + first, access, &gpa[1])))
        return false;
    if (guestmem_read(mem, gpa[0], &value, first) ||
        guestmem_read(mem, gpa[1], (u8 *)&value + first, size - first)) {
        vm_crash(v->vm, v, "string I/O with memory at %lx, where there is no RAM", gpa[0]);
        return false;
    }
    value = (u32)port_access(v, e->io.port, e->io.size, e->io.in, value);
    if (e->io.in) {
        guestmem_write(mem, gpa[0], &value, first);
        guestmem_write(mem, gpa[1], (u8 *)&value + first, size - first);
    }
    reg_add(index, v->virt.regs.rflags & RFLAGS_DF ? -(i64)size : size, s->address_bits);
    return true;
}

static void exit_string_io(struct vcpu *v, const struct vm_exit *e) {
    u64 *gpr = v->virt.regs.gpr, *index = &gpr[e->io.in ? REG_RDI : REG_RSI];
    struct string_io s;

    if (!string_decode(v, e, &s))
        return vm_crash(v->vm, v, "string I/O by an instruction that changed meanwhile");
    for (unsigned n = 0; !e->io.rep || low_bits(gpr[REG_RCX], s.address_bits); n++) {
        /* the rest as after an interrupt: when the instruction is executed again */
        if (n == STRING_BURST || v->vm->state != VM_RUNNING || !string_unit(v, e, &s, index)) return;
        if (!e->io.rep) break;
        reg_add(&gpr[REG_RCX], -1, s.address_bits);
    }
    guest_skip(&v->virt, &(struct vm_exit){ .reason = EXIT_IO, .insn_len = s.len });
}

void exit_io(struct vcpu *v, const struct vm_exit *e) {
    u64 *rax = &v->virt.regs.gpr[REG_RAX], value;

    if (__builtin_expect(e->io.string, 0)) return exit_string_io(v, e);
    value = port_access(v, e->io.port, e->io.size, e->io.in, *rax);
    if (e->io.in) *rax = e->io.size == 4 ? value : (*rax & ~size_mask[e->io.size]) | value;
    guest_skip(&v->virt, e);
}

/* ---- MMIO ---- */

static void bad_access(struct vcpu *v, const struct vm_exit *e, const char *what) {
    const char *kind = e->npf.exec ? "execution" : e->npf.write ? "write" : "read";

    vm_crash(v->vm, v, "%s of guest-physical %lx: %s", kind, e->npf.gpa, what);
}

/* Another vCPU took the second page of an instruction away after the CPU had read it: if byte `n` cannot be
 * fetched any more, the guest gets the fault that a new fetch takes. */
static bool fetch_faults(struct vcpu *v, unsigned n) {
    u64 va = v->virt.regs.rip + n;
    struct guest_seg cs;
    gpa_t gpa;

    virt->get_seg(&v->virt, SEG_CS, &cs);
    if (guest_mode(&v->virt) != 64) va = (u32)(va + cs.base);
    return n < INSN_MAX && !translate(v, SEG_CS, va, GA_EXEC, &gpa);
}

void exit_mmio(struct vcpu *v, const struct vm_exit *e) {
    struct bus_access a = { .addr = e->npf.gpa, .vcpu = v->id };
    struct mmio_insn in;
    u8 fetched[INSN_MAX];
    const u8 *bytes = e->npf.bytes;
    unsigned n = e->npf.nr_bytes, mode = e->npf.mode;
    u64 *gpr, value;

    if (e->npf.present) return bad_access(v, e, "it has no right to that");
    if (e->npf.exec) return bad_access(v, e, "no RAM there");
    if (e->npf.in_walk) return bad_access(v, e, "a page table has to be in RAM");
    if (e->npf.in_delivery) return bad_access(v, e, "what an event is delivered by has to be in RAM");
    counter_inc(&mmio_emulated, this_cpu()->id);
    if (!n) {
        n = guest_fetch(&v->virt, fetched, sizeof(fetched));
        bytes = fetched;
        mode = guest_mode(&v->virt);
    }
    if (mmio_decode(&in, bytes, n, mode)) {
        if (!fetch_faults(v, n)) bad_access(v, e, "not by a MOV that is emulated, or no device there");
        return;
    }
    /* another vCPU changed the instruction meanwhile: execute what is there now */
    if (in.write != e->npf.write) return;
    gpr = &v->virt.regs.gpr[in.reg];
    value = in.write ? mmio_stored(&in, *gpr) : 0;
    a.size = in.size;
    a.write = in.write;
    if ((e->npf.gpa & (PAGE_SIZE - 1)) + in.size > PAGE_SIZE || !bus_do(&v->vm->mmio, &a, &value))
        return bad_access(v, e, "no device there");
    if (!in.write) *gpr = mmio_loaded(&in, *gpr, value);
    guest_skip(&v->virt, &(struct vm_exit){ .reason = EXIT_NPF, .insn_len = in.len });
}
