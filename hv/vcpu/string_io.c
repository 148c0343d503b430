/* INS and OUTS: instructions that move data between an I/O port and memory, one unit (1, 2 or 4
 * bytes) after the other if they have the prefix REP. The CPU tells port, size and direction of the
 * access, but not where the data is in memory. So this file decodes the instruction, finds the data
 * by the guest's segments and page tables, and moves it. */
#include "vcpu/exits.h"
#include "virt/bits.h"

/* How many units one exit of a REP INS or OUTS moves at most. Then the guest executes the
 * instruction again for the rest. */
#define STRING_BURST 64

#define MAX_INSN     15 /* bytes of one instruction: SDM 2B 2.3.11 */

/* Prefixes (SDM 2A 2.1.1) and opcodes of INS and OUTS, with masks for those that differ in a
 * bit. */
#define PREFIX_SEGMENT        0x26 /* 26 ES, 2E CS, 36 SS, 3E DS */
#define PREFIX_SEGMENT_MASK   0xe7
#define PREFIX_SEGMENT_SHIFT  3 /* of the segment's number, two bits */
#define PREFIX_FS_GS          0x64
#define PREFIX_FS_GS_MASK     0xfe
#define PREFIX_ADDRESS_SIZE   0x67
#define OPCODE_STRING_IO      0x6c /* 6C, 6D INS; 6E, 6F OUTS */
#define OPCODE_STRING_IO_MASK 0xfc
#define OPCODE_STRING_IO_OUT  0x02

struct string_io {
    enum seg_name seg;     /* of the data */
    unsigned address_bits; /* of the instruction's addresses and counts: 16, 32, 64 */
    unsigned mode;         /* guest_mode() */
    u8 len;                /* bytes of the instruction */
};

/* Returns `v` with all but its lowest `bits` bits cleared. */
static u64 low_bits(u64 v, unsigned bits) {
    if (bits == 64) return v;
    return v & (BIT(bits) - 1);
}

/* Adds `by` to a register, of which the instruction uses `bits` bits. With 16 bits the other bits
 * of the register do not change; with 32 bits the upper half becomes 0. */
static void reg_add(u64 *reg, i64 by, unsigned bits) {
    u64 v = low_bits(*reg + (u64)by, bits);

    if (bits == 16) v |= *reg & ~0xffffull;
    *reg = v;
}

/* Returns the size of addresses in code of `mode` bits; a prefix (`other_size`) chooses the other
 * one. */
static unsigned string_address_bits(unsigned mode, bool other_size) {
    if (!other_size) return mode;
    return mode == 32 ? 16 : 32;
}

/* Reads the prefixes of the instruction. Returns false if it is not the one that exited, because
 * another vCPU has changed it meanwhile. */
static bool string_decode(struct vcpu *v, const struct vm_exit *e, struct string_io *s) {
    u8 b[MAX_INSN];
    unsigned n = guest_fetch(&v->virt, b, sizeof(b));
    bool other_size = false;

    s->mode = guest_mode(&v->virt);
    s->seg = SEG_DS;
    for (unsigned i = 0; i < n; i++) {
        if ((b[i] & PREFIX_SEGMENT_MASK) == PREFIX_SEGMENT)
            s->seg = (enum seg_name)(b[i] >> PREFIX_SEGMENT_SHIFT & 3);
        if ((b[i] & PREFIX_FS_GS_MASK) == PREFIX_FS_GS)
            s->seg = (enum seg_name)(SEG_FS + (b[i] & 1));
        if (b[i] == PREFIX_ADDRESS_SIZE) other_size = true;
        if ((b[i] & OPCODE_STRING_IO_MASK) != OPCODE_STRING_IO) continue;
        if (e->io.in) s->seg = SEG_ES; /* whatever the prefixes say */
        s->address_bits = string_address_bits(s->mode, other_size);
        s->len = (u8)(i + 1);
        return e->io.in == !(b[i] & OPCODE_STRING_IO_OUT);
    }
    return false;
}

/* May a string instruction access `size` bytes at offset `at` of this segment? SDM 3A 5.3 to
 * 5.5. */
static bool seg_allows(const struct guest_seg *seg, bool write, u64 at, unsigned size) {
    bool code = seg->attr & ATTR_CODE, rw = seg->attr & ATTR_RW;
    u64 last = at + size - 1;

    if (!(seg->attr & ATTR_P)) return false;
    if (write && (code || !rw)) return false; /* code is never writable */
    if (code && !rw) return false;            /* nor is it always readable */
    if (!code && seg->attr & ATTR_DOWN) {
        u64 top = seg->attr & ATTR_BIG ? 0xffffffffu : 0xffffu;

        return at > seg->limit && last <= top;
    }
    return last <= seg->limit;
}

/* Raises the exception for an access that a segment forbids. Returns false, for callers that return
 * it. */
static bool seg_fault(struct vcpu *v, enum seg_name seg) {
    vcpu_fault(v, seg == SEG_SS ? EXC_SS : EXC_GP, true, 0);
    return false;
}

/* Translates an address that the guest's instruction uses. Returns false if it faults. Page faults
 * go to the guest as #PF. An address that is not canonical raises #SS for the stack segment and #GP
 * for all others. */
bool insn_translate(struct vcpu *v, enum seg_name seg, u64 gva, unsigned access, gpa_t *gpa) {
    u32 fault;

    if (virt->cpl(&v->virt) == 3) access |= GA_USER;
    if (!guest_translate(&v->virt, gva, access, gpa, &fault)) return true;
    if (fault == GUEST_NOT_CANONICAL) return seg_fault(v, seg);
    vcpu_page_fault(v, gva, fault);
    return false;
}

/* Where one unit is in memory: it may cross from one page to the next. */
struct string_place {
    gpa_t gpa[2];
    unsigned first; /* bytes in the first page */
};

/* Finds where the unit at offset `index` is. Returns false if the access faults; the fault was
 * raised then. */
static bool string_place(struct vcpu *v, const struct vm_exit *e, const struct string_io *s,
                         u64 index, struct string_place *p) {
    unsigned size = e->io.size, access = e->io.in ? GA_WRITE : GA_READ;
    u64 gva = low_bits(index, s->address_bits);
    struct guest_seg seg;

    virt->get_seg(&v->virt, s->seg, &seg);
    if (s->mode != 64 && !seg_allows(&seg, e->io.in, gva, size)) return seg_fault(v, s->seg);
    if (s->mode != 64 || s->seg == SEG_FS || s->seg == SEG_GS) gva += seg.base;
    if (s->mode != 64) gva = (u32)gva;
    p->first = MIN(size, (unsigned)(PAGE_SIZE - (gva & (PAGE_SIZE - 1))));
    p->gpa[1] = 0;
    if (!insn_translate(v, s->seg, gva, access, &p->gpa[0])) return false;
    return p->first == size || insn_translate(v, s->seg, gva + p->first, access, &p->gpa[1]);
}

/* Moves one unit between the port and memory, and moves *index to the next unit. Returns false if a
 * fault was raised or the VM has crashed; then the port was not touched. */
static bool string_unit(struct vcpu *v, const struct vm_exit *e, const struct string_io *s,
                        u64 *index) {
    const struct guestmem *mem = &v->vm->mem;
    unsigned size = e->io.size;
    struct string_place p;
    i64 step = size;
    u32 value = 0;

    if (!string_place(v, e, s, *index, &p)) return false;
    if (guestmem_read(mem, p.gpa[0], &value, p.first) ||
        guestmem_read(mem, p.gpa[1], (u8 *)&value + p.first, size - p.first)) {
        vcpu_crash(v, "string I/O with memory at %lx, where there is no RAM", p.gpa[0]);
        return false;
    }
    value = (u32)port_access(v, e->io.port, e->io.size, e->io.in, value);
    if (e->io.in) {
        guestmem_write(mem, p.gpa[0], &value, p.first);
        guestmem_write(mem, p.gpa[1], (u8 *)&value + p.first, size - p.first);
    }
    if (v->virt.regs.rflags & RFLAGS_DF) step = -step;
    reg_add(index, step, s->address_bits);
    return true;
}

/* Handles the exit of INS and OUTS: moves a burst of units between port and memory. A burst is at
 * most STRING_BURST units, so that one exit cannot keep the pCPU for long. The registers then say
 * how far the instruction has come, as after an interrupt. */
void exit_string_io(struct vcpu *v, const struct vm_exit *e) {
    u64 *gpr = v->virt.regs.gpr, *index = &gpr[e->io.in ? REG_RDI : REG_RSI];
    struct string_io s;

    if (!string_decode(v, e, &s))
        return vcpu_crash(v, "string I/O by an instruction that changed meanwhile");
    for (unsigned n = 0; !e->io.rep || low_bits(gpr[REG_RCX], s.address_bits); n++) {
        /* The rest is moved as after an interrupt: when the instruction is executed again. */
        if (n == STRING_BURST || v->vm->state != VM_RUNNING) return;
        if (!string_unit(v, e, &s, index)) return;
        if (!e->io.rep) break;
        reg_add(&gpr[REG_RCX], -1, s.address_bits);
    }
    guest_skip(&v->virt, &(struct vm_exit){ .reason = EXIT_IO, .insn_len = s.len });
}
