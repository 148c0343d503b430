/* Logs the state of a vCPU whose VM has crashed, so that the author of the guest can find out why:
 * registers, where the guest's own addresses lead, the bytes of the instruction, and the last
 * exits. */
#include "lib/printf.h"
#include "vcpu/vcpu.h"

#define MAX_INSN 15 /* bytes of one instruction: SDM 2B 2.3.11 */

/* Logs the vCPU's last exits, the latest first. */
void vcpu_dump_exits(const struct vcpu *v) {
    for (unsigned i = 0; i < ARRAY_SIZE(v->last) && i < v->exits; i++) {
        const struct exit_log *l = &v->last[(v->exits - 1 - i) % ARRAY_SIZE(v->last)];

        log_err("  exit -%u: reason %u raw %x rip %lx", i, l->reason, l->raw, l->rip);
    }
}

/* Says where an access by the guest itself would lead. Most triple faults come from a page
 * table, an IDT or a stack that cannot be reached, and the registers alone do not show that. */
static void dump_access(struct vcpu *v, const char *what, u64 va, unsigned access) {
    gpa_t gpa;
    u32 fault;
    u64 room;

    if (guest_translate(&v->virt, va, access, &gpa, &fault) == 0)
        log_err("  %s at %lx: guest-physical %lx%s", what, va, gpa,
                guestmem_at(&v->vm->mem, gpa, &room) ? "" : ", where there is no RAM");
    else if (fault == GUEST_NOT_CANONICAL)
        log_err("  %s at %lx: not a canonical address", what, va);
    else
        log_err("  %s at %lx: page fault with error code %x", what, va, fault);
}

/* Logs the bytes of the instruction at RIP. */
static void dump_code(struct vcpu *v) {
    char text[3 * MAX_INSN + 1] = "";
    u8 bytes[MAX_INSN];
    unsigned n = guest_fetch(&v->virt, bytes, sizeof(bytes));

    for (unsigned i = 0; i < n; i++) hv_snprintf(text + 3 * i, 4, " %02x", bytes[i]);
    log_err("  code:%s", n ? text : " none can be read");
}

/* Logs the registers and addresses that the CPU needs to execute an instruction or to deliver an
 * exception, and the bytes at RIP. Where one of them leads nowhere is usually why the guest
 * crashed. */
static void dump_reach(struct vcpu *v) {
    struct guest_seg cs, ss, idt, gdt, tr;

    virt->get_seg(&v->virt, SEG_CS, &cs);
    virt->get_seg(&v->virt, SEG_SS, &ss);
    virt->get_seg(&v->virt, SEG_IDTR, &idt);
    virt->get_seg(&v->virt, SEG_GDTR, &gdt);
    virt->get_seg(&v->virt, SEG_TR, &tr);
    if (guest_mode(&v->virt) == 64) { /* which ignores the bases of CS and SS */
        cs.base = 0;
        ss.base = 0;
    }
    log_err("  cr2 %lx, IDT limit %x, GDT at %lx limit %x, TR %04x at %lx", vcpu_reg(v, VREG_CR2),
            idt.limit, gdt.base, gdt.limit, tr.sel, tr.base);
    dump_access(v, "RIP", cs.base + v->virt.regs.rip, GA_READ);
    dump_access(v, "IDT", idt.base, GA_READ);
    dump_access(v, "stack", ss.base + v->virt.regs.gpr[REG_RSP], GA_READ);
    dump_code(v);
}

/* Logs the state of a vCPU whose VM has crashed. If the image has a symbol table, the log also
 * names the function at RIP. */
void vcpu_dump(struct vcpu *v) {
    const struct module *m = module_find(v->vm->config.image);
    const struct guest_regs *r = &v->virt.regs;
    char symbol[IMAGE_SYMBOL] = "";
    struct guest_seg cs;

    virt->get_seg(&v->virt, SEG_CS, &cs);
    log_err("  vCPU %u: rip %04x:%016lx rflags %lx cr0 %lx cr3 %lx cr4 %lx efer %lx", v->id, cs.sel,
            r->rip, r->rflags, vcpu_reg(v, VREG_CR0), vcpu_reg(v, VREG_CR3), vcpu_reg(v, VREG_CR4),
            vcpu_reg(v, VREG_EFER));
    for (unsigned i = 0; i < 16; i += 4)
        log_err("  r%u-%u: %016lx %016lx %016lx %016lx", i, i + 3, r->gpr[i], r->gpr[i + 1],
                r->gpr[i + 2], r->gpr[i + 3]);
    if (m) image_symbol(m, r->rip, symbol);
    if (*symbol) log_err("  in %s of image %s", symbol, m->name);
    dump_reach(v);
    vcpu_dump_exits(v);
}
