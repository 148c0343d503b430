/* Ports, and a VM's devices on its buses. Ports that nobody claims read as all ones: so do, among others, the
 * ports of PCI configuration, of the PIT and of the 8259s. */
#include <takt/errno.h>
#include "vm/vm.h"
#include "x86/tsc.h"

/* struct guest_seg, attr */
#define SEG_RW      BIT(1) /* data: writable; code: readable */
#define SEG_DOWN    BIT(2)
#define SEG_CODE    BIT(3)
#define SEG_PRESENT BIT(7)
#define SEG_BIG     BIT(10)

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
    if (a->write) vm_shutdown(dev, TAKT_SHUTDOWN_POWEROFF, (int)((u32)*value << 1 | 1));
}

void vm_add_devices(struct vm *vm) {
    vuart_init(&vm->uart, &vm->console, NULL, NULL); /* no IOAPIC yet, so its interrupt has nowhere to go */
    bus_add(&vm->ports, TAKT_UART_PORT, TAKT_UART_PORT + 8, vuart_access, &vm->uart);
    if (vm->config.debugcon)
        bus_add(&vm->ports, TAKT_DEBUGCON_PORT, TAKT_DEBUGCON_PORT + 1, debugcon_access, &vm->console);
    if (vm->config.debug_exit)
        bus_add(&vm->ports, TAKT_DEBUG_EXIT_PORT, TAKT_DEBUG_EXIT_PORT + 4, debug_exit_access, vm);
    bus_add(&vm->mmio, TAKT_LAPIC_GPA, TAKT_LAPIC_GPA + PAGE_SIZE, lapic_access, vm);
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
    static const struct {
        u8 prefix, seg;
    } segs[] = { { 0x26, SEG_ES }, { 0x2e, SEG_CS }, { 0x36, SEG_SS },
                 { 0x3e, SEG_DS }, { 0x64, SEG_FS }, { 0x65, SEG_GS } };
    u8 b[15];
    unsigned n = guest_fetch(&v->virt, b, sizeof(b));
    bool other_size = false;

    s->mode = vcpu_mode(v);
    s->seg = SEG_DS;
    for (unsigned i = 0; i < n; i++) {
        for (unsigned k = 0; k < ARRAY_SIZE(segs); k++)
            if (segs[k].prefix == b[i]) s->seg = (enum seg_name)segs[k].seg;
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
    bool code = seg->attr & SEG_CODE, rw = seg->attr & SEG_RW;
    u64 last = at + size - 1;

    if (!(seg->attr & SEG_PRESENT) || (write && code) || ((write || code) && !rw)) return false;
    if (!code && seg->attr & SEG_DOWN)
        return at > seg->limit && last <= (seg->attr & SEG_BIG ? 0xffffffffu : 0xffffu);
    return last <= seg->limit;
}

static void seg_fault(struct vcpu *v, enum seg_name seg) {
    vcpu_fault(v, seg == SEG_SS ? EXC_SS : EXC_GP, true, 0);
}

/* Where the unit at `at` is in guest-physical memory: in two pieces if it crosses a page. False: a fault. */
static bool string_translate(struct vcpu *v, enum seg_name seg, u64 at, unsigned size, bool write,
                             gpa_t gpa[2]) {
    unsigned access = (write ? GA_WRITE : GA_READ) | (virt->cpl(&v->virt) == 3 ? GA_USER : 0);
    u32 fault;

    for (unsigned i = 0; i < 2; i++) {
        if (guest_translate(&v->virt, at, access, &gpa[i], &fault)) {
            if (fault == GUEST_NOT_CANONICAL) {
                seg_fault(v, seg);
                return false;
            }
            virt->set_reg(&v->virt, VREG_CR2, at);
            vcpu_fault(v, EXC_PF, true, fault);
            return false;
        }
        if ((at & (PAGE_SIZE - 1)) + size <= PAGE_SIZE) break;
        at = ALIGN_UP(at + 1, PAGE_SIZE);
    }
    return true;
}

/* Moves one unit between the port and memory. False: a fault was raised. */
static bool string_unit(struct vcpu *v, const struct vm_exit *e, const struct string_io *s, u64 *index) {
    const struct guestmem *mem = &v->vm->mem;
    unsigned size = e->io.size, first;
    struct guest_seg seg;
    u64 gva = low_bits(*index, s->address_bits);
    u32 value = 0;
    gpa_t gpa[2];
    int err;

    virt->get_seg(&v->virt, s->seg, &seg);
    if (s->mode != 64 && !seg_allows(&seg, e->io.in, gva, size)) {
        seg_fault(v, s->seg);
        return false;
    }
    if (s->mode != 64 || s->seg == SEG_FS || s->seg == SEG_GS) gva += seg.base;
    if (s->mode != 64) gva = (u32)gva;
    if (!string_translate(v, s->seg, gva, size, e->io.in,
                          gpa)) /* before the port: it may have to be done again */
        return false;
    first = MIN(size, (unsigned)(PAGE_SIZE - (gva & (PAGE_SIZE - 1))));
    if (e->io.in) {
        value = (u32)port_access(v, e->io.port, e->io.size, true, 0);
        err = guestmem_write(mem, gpa[0], &value, first) ||
              guestmem_write(mem, gpa[1], (u8 *)&value + first, size - first);
    } else {
        err = guestmem_read(mem, gpa[0], &value, first) ||
              guestmem_read(mem, gpa[1], (u8 *)&value + first, size - first);
    }
    if (err) {
        vm_crash(v->vm, v, "string I/O with memory at %llx, where there is no RAM",
                 (unsigned long long)gpa[0]);
        return false;
    }
    if (!e->io.in) port_access(v, e->io.port, e->io.size, false, value);
    reg_add(index, v->virt.regs.rflags & BIT(10) ? -(i64)size : size, s->address_bits);
    return true;
}

static void exit_string_io(struct vcpu *v, const struct vm_exit *e) {
    u64 *gpr = v->virt.regs.gpr, *index = &gpr[e->io.in ? REG_RDI : REG_RSI];
    struct string_io s;

    if (!string_decode(v, e, &s)) {
        vm_crash(v->vm, v, "string I/O by an instruction that changed meanwhile");
        return;
    }
    if (!e->io.rep) {
        if (!string_unit(v, e, &s, index)) return;
    } else {
        for (unsigned n = 0; n < STRING_BURST && low_bits(gpr[REG_RCX], s.address_bits); n++) {
            if (v->vm->state != VM_RUNNING || !string_unit(v, e, &s, index)) return;
            reg_add(&gpr[REG_RCX], -1, s.address_bits);
        }
        if (low_bits(gpr[REG_RCX], s.address_bits))
            return; /* as after an interrupt: it goes on when the instruction is executed again */
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
