/* Looking into a VM: registers, memory, breakpoints and single steps. A program such as
 * tools/taktctl makes a core file of these commands, or a server for gdb; so the answers are for
 * programs in the first place. And an NMI for an operating system that hangs. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "common/string.h"
#include "sched/machine.h"
#include "shell/shell.h"
#include "vcpu/vcpu.h"

#define REGS_AT_ONCE 8
/* What one step of mem-read looks at: a row of RAW_MOST bytes, or of up to FILL_MOST bytes that
 * consist of one word of 8 bytes. */
#define BLOCK     256u
#define RAW_MOST  (4 * BLOCK)
#define FILL_MOST 32768u
#define ROW       16u            /* bytes in a line for a person */
#define ROWS      8u             /* lines in one step */
#define WRITE_MAX 96u            /* bytes that one mem-write can have in a line of the shell */
#define STEP_NS   (NS_PER_S / 2) /* how long `step` waits for the end of a step */

/* Bits of RFLAGS that are always 0 (SDM 1 3.4.3). With one of them the CPU refuses the entry. */
#define RFLAGS_ZERO 0xffffffffffc08028ull

/* ---- vcpu-regs ---- */

enum kind { GPR, RIP, RFLAGS, REG, SEL, BASE, LIMIT, ATTR };

static const struct {
    const char *name;
    u8 kind, number;
} regs[] = {
    { "rax", GPR, REG_RAX },
    { "rbx", GPR, REG_RBX },
    { "rcx", GPR, REG_RCX },
    { "rdx", GPR, REG_RDX },
    { "rsi", GPR, REG_RSI },
    { "rdi", GPR, REG_RDI },
    { "rbp", GPR, REG_RBP },
    { "rsp", GPR, REG_RSP },
    { "r8", GPR, 8 },
    { "r9", GPR, 9 },
    { "r10", GPR, 10 },
    { "r11", GPR, 11 },
    { "r12", GPR, 12 },
    { "r13", GPR, 13 },
    { "r14", GPR, 14 },
    { "r15", GPR, 15 },
    { "rip", RIP, 0 },
    { "rflags", RFLAGS, 0 },
    { "cs", SEL, SEG_CS },
    { "ss", SEL, SEG_SS },
    { "ds", SEL, SEG_DS },
    { "es", SEL, SEG_ES },
    { "fs", SEL, SEG_FS },
    { "gs", SEL, SEG_GS },
    { "fs_base", REG, VREG_FS_BASE },
    { "gs_base", REG, VREG_GS_BASE },
    { "k_gs_base", REG, VREG_KERNEL_GS_BASE },
    { "cr0", REG, VREG_CR0 },
    { "cr2", REG, VREG_CR2 },
    { "cr3", REG, VREG_CR3 },
    { "cr4", REG, VREG_CR4 },
    { "efer", REG, VREG_EFER },
    { "dr0", REG, VREG_DR0 },
    { "dr1", REG, VREG_DR1 },
    { "dr2", REG, VREG_DR2 },
    { "dr3", REG, VREG_DR3 },
    { "dr6", REG, VREG_DR6 },
    { "dr7", REG, VREG_DR7 },
    { "cs_attr", ATTR, SEG_CS },
    { "gdt_base", BASE, SEG_GDTR },
    { "gdt_limit", LIMIT, SEG_GDTR },
    { "idt_base", BASE, SEG_IDTR },
    { "idt_limit", LIMIT, SEG_IDTR },
    { "tr_base", BASE, SEG_TR },
};

/* Returns register number `n` of the table above. */
static u64 debug_reg_read(struct vcpu *v, u32 n) {
    struct guest_seg seg;

    switch (regs[n].kind) {
    case GPR: return v->virt.regs.gpr[regs[n].number];
    case RIP: return v->virt.regs.rip;
    case RFLAGS: return v->virt.regs.rflags;
    case REG: return vcpu_reg(v, (enum virt_reg)regs[n].number);
    default: break;
    }
    virt->get_seg(&v->virt, (enum seg_name)regs[n].number, &seg);
    switch (regs[n].kind) {
    case SEL: return seg.sel;
    case BASE: return seg.base;
    case LIMIT: return seg.limit;
    default: return seg.attr;
    }
}

/* Returns whether a register that set_reg() knows may have this value. The hypervisor itself would
 * fault if it loaded another one, so a debugger may set only these. */
static bool reg_takes(enum virt_reg reg, u64 value) {
    switch (reg) {
    case VREG_DR0:
    case VREG_DR1:
    case VREG_DR2:
    case VREG_DR3:
    case VREG_FS_BASE:
    case VREG_GS_BASE:
    case VREG_KERNEL_GS_BASE: return is_canonical(value);
    case VREG_DR6:
    case VREG_DR7: return !(value >> 32);
    default: return false;
    }
}

/* Changes register number `n`. Returns false if it cannot have that value. */
static bool debug_reg_write(struct vcpu *v, u32 n, u64 value) {
    switch (regs[n].kind) {
    case GPR: v->virt.regs.gpr[regs[n].number] = value; return true;
    case RIP:
        if (is_canonical(value)) v->virt.regs.rip = value;
        return is_canonical(value);
    case RFLAGS: v->virt.regs.rflags = (value & ~RFLAGS_ZERO) | RFLAGS_ONE; return true;
    case REG:
        if (!reg_takes((enum virt_reg)regs[n].number, value)) return false;
        vcpu_set_reg(v, (enum virt_reg)regs[n].number, value);
        return true;
    default: return false;
    }
}

/* Finds the vCPU that `text` names. Returns NULL after shell_fail(). Many commands call this, so it
 * is kept out of line: that makes the image smaller. */
static __attribute__((noinline)) struct vcpu *find_vcpu(const struct vm *vm, const char *text) {
    u64 n;

    if (!parse_u64(text, &n, NULL) && n < vm->nr_vcpus) return vm->vcpu[n];
    shell_fail(-EINVAL, "%s has no vCPU %s", vm->name, text);
    return NULL;
}

/* Returns 0 if nothing of the VM runs, so that its registers and memory can be looked at;
 * SHELL_AGAIN if that will be so soon; or an error after shell_fail(). */
static int await_rest(const struct shell_call *c) {
    if (vm_rests(c->vm)) return 0;
    if (c->vm->state == VM_PAUSED || c->vm->state == VM_CRASHED) return shell_later();
    return shell_fail(-EBUSY, "%s is %s: pause it first", c->vm->name, vm_state_name(c->vm->state));
}

COLUMNS(reg_columns, COL("Register", "name", 's', -10), COL("Value", "value", 's', 18));

/* Changes the registers that the words NAME=VALUE give, from word `i` on. */
static int set_registers(struct shell_call *c, struct vcpu *v, int i) {
    for (; i < c->argc; i++) {
        char *text = strchr(c->argv[i], '=');
        u64 value;
        u32 n = 0;

        if (!text) return shell_fail(-EINVAL, "expected register=value, not %s", c->argv[i]);
        *text++ = 0;
        while (n < ARRAY_SIZE(regs) && strcmp(regs[n].name, c->argv[i]) != 0) n++;
        if (n == ARRAY_SIZE(regs))
            return shell_fail(-EINVAL, "%s is no register: vcpu-regs lists them", c->argv[i]);
        if (parse_address(text, &value, NULL))
            return shell_fail(-EINVAL, "%s is no number: expected one such as 0x1f", text);
        if (!debug_reg_write(v, n, value))
            return shell_fail(-EINVAL, "%s cannot be %s", c->argv[i], text);
    }
    return 0;
}

/* Lists the registers of a vCPU, or changes some. */
static int cmd_vcpu_regs(struct shell_call *c) {
    struct vcpu *v;
    int rests = await_rest(c);

    if (rests) return rests;
    v = find_vcpu(c->vm, c->argv[2]);
    if (!v) return -EINVAL;
    if (c->argc > 3) return set_registers(c, v, 3);
    c->columns = reg_columns;
    for (u32 n = 0; n < REGS_AT_ONCE && c->index < ARRAY_SIZE(regs); n++, c->index++) {
        char value[20];

        hv_snprintf(value, sizeof(value), "0x%lx", debug_reg_read(v, c->index));
        table_row(c, CELLS(S(regs[c->index].name), S(value)));
    }
    if (c->index == ARRAY_SIZE(regs)) return 0;
    return SHELL_AGAIN;
}

/* ---- mem-read, mem-write ---- */

/* Returns where the byte at `address` is, and in *room how many bytes follow in one piece. The
 * address is guest-physical, or one of the vCPU that -v names. A debugger may read and write what
 * the guest's tables allow to be read by anybody. Returns NULL if there is no RAM. */
static u8 *memory_at(const struct shell_call *c, u64 address, u64 *room) {
    u64 most = ~0ull;
    gpa_t gpa = address;
    u8 *at;

    if (c->opt['v']) {
        struct virt_vcpu *hw = &find_vcpu(c->vm, c->opt['v'])->virt;
        u32 fault;

        most = PAGE_SIZE - (address & (PAGE_SIZE - 1));
        if (guest_translate(hw, address, GA_READ, &gpa, &fault) &&
            guest_translate(hw, address, GA_READ | GA_USER, &gpa, &fault))
            return NULL;
    }
    at = guestmem_at(&c->vm->mem, gpa, room);
    *room = MIN(*room, most);
    return at;
}

/* Checks option -v and reads the address. Returns 0, SHELL_AGAIN, or an error. */
static int memory_begin(struct shell_call *c, u64 *address) {
    int rests = await_rest(c);

    if (rests) return rests;
    if (c->opt['v'] && !find_vcpu(c->vm, c->opt['v'])) return -EINVAL;
    if (parse_address(c->argv[2], address, NULL))
        return shell_fail(-EINVAL, "%s is no address: expected one such as 0x1000", c->argv[2]);
    return 0;
}

/* Writes `n` bytes as base64 (RFC 4648) to `to`, which has room for 4 characters for each 3 bytes,
 * and for the terminator. */
static void base64(char *to, const u8 *from, u64 n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (; n; from += 3) {
        u32 bits = (u32)from[0] << 16;
        u64 have = MIN(n, 3);

        if (have > 1) bits |= (u32)from[1] << 8;
        if (have > 2) bits |= from[2];
        for (u64 i = 0; i < 4; i++) {
            *to = '=';
            if (i <= have) *to = digits[bits >> (18 - 6 * i) & 63];
            to++;
        }
        n -= have;
    }
    *to = 0;
}

/* Returns how many bytes from `at` on consist of one and the same word of 8 bytes: a multiple of
 * BLOCK, at most `n`. Returns 0 if not even the first block does. */
static u64 same_words(const u8 *at, u64 n) {
    u64 same = 0, first, word;

    memcpy(&first, at, sizeof(first));
    for (; same + sizeof(word) <= n; same += sizeof(word)) {
        memcpy(&word, at + same, sizeof(word));
        if (word != first) break;
    }
    return same - same % BLOCK;
}

COLUMNS(memory_columns, COL(NULL, "address", 'u', 0), COL(NULL, "times", 'u', 0),
        COL(NULL, "data", 's', 0));

/* Prints a row of memory for a program: bytes, and how often they follow each other. Returns how
 * many bytes of memory the row stands for. */
static u64 memory_row(struct shell_call *c, u64 address, const u8 *at, u64 n) {
    static char text[RAW_MOST / 3 * 4 + 8];
    u64 same = same_words(at, MIN(n, FILL_MOST)), length = 0;

    if (same) {
        base64(text, at, 8);
        table_row(c, CELLS(U(address), U(same / 8), S(text)));
        return same;
    }
    do length += MIN(n - length, BLOCK);
    while (length < MIN(n, RAW_MOST) && !same_words(at + length, MIN(n - length, BLOCK)));
    base64(text, at, length);
    table_row(c, CELLS(U(address), U(1), S(text)));
    return length;
}

/* Prints a line of memory for a person, of at most ROW bytes. Returns how many bytes it shows. */
static u64 memory_line(u64 address, const u8 *at, u64 n) {
    n = MIN(n, ROW - address % ROW);
    out("%016lx ", address);
    for (u64 i = 0; i < n; i++) out(" %02x", at[i]);
    out("%*s", (int)(3 * (ROW - n) + 2), "");
    for (u64 i = 0; i < n; i++) {
        char shown = '.';

        if (at[i] >= ' ' && at[i] < 127) shown = (char)at[i];
        out("%c", shown);
    }
    out("\n");
    return n;
}

/* Shows memory, from c->argv[2] on. What was shown by earlier steps is counted in `done`. */
static int cmd_mem_read(struct shell_call *c) {
    static u64 done;
    u64 address, length = ROW * ROWS, room;
    u32 rows = ROWS;
    int error = memory_begin(c, &address);

    if (error) return error;
    if (!c->index) done = 0;
    if (c->argc > 3 && parse_address(c->argv[3], &length, NULL))
        return shell_fail(-EINVAL, "%s is no length: expected a number of bytes", c->argv[3]);
    if (c->json) {
        c->columns = memory_columns;
        rows = 1;
    }
    for (; rows && done < length; rows--, c->index = 1) {
        const u8 *at = memory_at(c, address + done, &room);

        /* What is there before a hole is an answer, too. */
        if (!at && done) return 0;
        if (!at) return shell_fail(-EFAULT, "%s has no RAM at %s", c->vm->name, c->argv[2]);
        room = MIN(room, length - done);
        if (c->json)
            done += memory_row(c, address + done, at, room);
        else
            done += memory_line(address + done, at, room);
    }
    if (done >= length) return 0;
    return SHELL_AGAIN;
}

/* Changes memory from c->argv[2] on. The bytes are in c->argv[3], two hexadecimal digits each.
 * Nothing is changed if a part of it is no RAM. */
static int cmd_mem_write(struct shell_call *c) {
    u8 bytes[WRITE_MAX];
    u64 address, n = strlen(c->argv[3]) / 2, room, value;
    int error = memory_begin(c, &address);

    if (error) return error;
    if (!n || n > WRITE_MAX || strlen(c->argv[3]) % 2)
        return shell_fail(-EINVAL, "expected 1 to %u bytes of two hexadecimal digits each",
                          WRITE_MAX);
    for (u64 i = 0; i < n; i++) {
        char digits[5] = { '0', 'x', c->argv[3][2 * i], c->argv[3][2 * i + 1] };

        if (parse_address(digits, &value, NULL))
            return shell_fail(-EINVAL, "%s are no hexadecimal digits", digits + 2);
        bytes[i] = (u8)value;
        if (!memory_at(c, address + i, &room))
            return shell_fail(-EFAULT, "%s has no RAM at 0x%lx", c->vm->name, address + i);
    }
    for (u64 i = 0; i < n; i++) *memory_at(c, address + i, &room) = bytes[i];
    return 0;
}

/* ---- debug, step ---- */

COLUMNS(debug_columns, COL("debugged", "on", 'b', 0), COL("state", "state", 's', 0),
        COL("stopped by vCPU", "vcpu", 'd', 0), COL("DR6 then", "dr6", 'u', 0));

/* Says whether a VM is debugged, and which vCPU has stopped it (-1: none has). */
static int show_debug(struct shell_call *c) {
    const struct vm_debug *d = &c->vm->debug;

    record(c, debug_columns,
           CELLS(U(d->on), S(vm_state_name(c->vm->state)), D((i64)d->stopped - 1), U(d->dr6)));
    return 0;
}

/* Switches the debugging of a VM on or off, or shows its state. */
static int cmd_debug(struct shell_call *c) {
    bool on;
    int rests;

    if (c->argc == 2) return show_debug(c);
    on = strcmp(c->argv[2], "on") == 0;
    if (!on && strcmp(c->argv[2], "off") != 0) return shell_usage();
    rests = await_rest(c);
    if (rests) return rests;
    vm_debug_set(c->vm, on);
    return 0;
}

/* Lets a vCPU execute one instruction, and waits for the end of that. */
static int cmd_step(struct shell_call *c) {
    static u64 until;
    struct vcpu *v;
    int rests;

    if (c->index) {
        if (!vm_rests(c->vm) && machine_now() < until) return shell_later();
        return show_debug(c);
    }
    rests = await_rest(c);
    if (rests) return rests;
    v = find_vcpu(c->vm, c->argv[2]);
    if (!v) return -EINVAL;
    if (!c->vm->debug.on)
        return shell_fail(-EINVAL, "%s is not debugged: type debug %s on first", c->vm->name,
                          c->vm->name);
    if (vm_debug_step(c->vm, v->id))
        return shell_fail(-EINVAL, "%s is %s: only a paused VM can be stepped", c->vm->name,
                          vm_state_name(c->vm->state));
    until = machine_now() + STEP_NS;
    c->index = 1;
    return shell_later();
}

/* Sends an NMI to a vCPU, by default to vCPU 0. What follows is up to the VM's operating system: it
 * may tell where it hangs. */
static int cmd_trigger(struct shell_call *c) {
    const char *which = "0";
    struct vcpu *v;

    if (strcmp(c->argv[2], "nmi") != 0) return shell_usage();
    if (c->vm->state != VM_RUNNING)
        return shell_fail(-EINVAL, "%s is %s: only a VM that runs takes an NMI", c->vm->name,
                          vm_state_name(c->vm->state));
    if (c->argc > 3) which = c->argv[3];
    v = find_vcpu(c->vm, which);
    if (!v) return -EINVAL;
    vcpu_send_nmi(v);
    return 0;
}

/* Sends a BREAK on the VM's serial line, and a key behind it. Linux takes the two for a magic
 * system request. */
static int cmd_sysrq(struct shell_call *c) {
    struct vm *vm = c->vm;

    if (strlen(c->argv[2]) != 1) return shell_usage();
    if (!vm_is_pc(vm))
        return shell_fail(-ENODEV, "%s takes no BREAK: only a VM with a kernel= does", vm->name);
    if (vm->state != VM_RUNNING)
        return shell_fail(-EINVAL, "%s is %s: only a VM that runs takes a BREAK", vm->name,
                          vm_state_name(vm->state));
    if (!vuart_break(&vm->uart, *c->argv[2]))
        return shell_fail(-EAGAIN, "%s has not read yet what was typed on its console", vm->name);
    vm_uart_changed(vm);
    return 0;
}

const struct shell_command debug_commands[] = {
    { "debug", "VM [on|off]",
      "stops a VM at breakpoints, or shows what stopped it\n"
      "A breakpoint is the byte f1 (ICEBP) in the code; unpause lets the VM go on",
      cmd_debug, "V?w", "" },
    { "mem-read", "[-v VCPU] VM ADDRESS [LENGTH]",
      "shows memory of a VM that is paused or has crashed\n"
      "-v VCPU  the address is of that vCPU's program, and not guest-physical",
      cmd_mem_read, "Vw?w", "v:" },
    { "mem-write", "[-v VCPU] VM ADDRESS BYTES",
      "changes memory of a VM that is paused or has crashed\n"
      "BYTES  two hexadecimal digits for each byte\n"
      "-v VCPU  the address is of that vCPU's program, and not guest-physical",
      cmd_mem_write, "Vww", "v:" },
    { "step", "VM VCPU", "lets a vCPU of a debugged VM execute one instruction", cmd_step, "Vw",
      "" },
    { "sysrq", "VM KEY", "sends a magic system request of Linux: a BREAK and a key", cmd_sysrq,
      "Vw", "" },
    { "trigger", "VM nmi [VCPU]", "sends an NMI to a vCPU, by default to vCPU 0", cmd_trigger,
      "Vw?w", "" },
    { "vcpu-regs", "VM VCPU [NAME=VALUE...]",
      "shows or sets registers of a VM that is paused or crashed", cmd_vcpu_regs, "Vw*", "" },
    { 0 },
};
