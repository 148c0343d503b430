/* What a VM with `kernel =` has for an operating system: memory map, ramdisk and ACPI tables as the
 * loader leaves them, the IOAPIC with its rules for level-triggered lines, the UART's interrupt,
 * KVM's clock, and the ports that end the VM. */
#include <takt/errno.h>
#include <takt/start_info.h>
#include "image/firmware.h"
#include "vcpu/exits.h"
#include "exit_rig.h"
#include "x86/tsc.h"

#define VECTOR     0x41u
#define LEVEL      BIT(15)
#define MASKED     BIT(16)
#define REMOTE     BIT(14)
#define IOREGSEL   0x00u
#define IOWIN      0x10u
#define IOEOI      0x40u
#define ENTRY(pin) (0x10u + 2 * (pin))

static const u8 ramdisk[5000] = { 1, 2, 3 };

static int pc_setup(void **state) {
    static const struct module disk = { "disk", ramdisk, sizeof(ramdisk) };
    struct config_vm c = fake_config("pc", 2);

    fake_machine("null");
    fake_clock(1000);
    if (!module_find(disk.name)) module_add(&disk);
    strcpy(c.kernel, c.image);
    strcpy(c.ramdisk, "disk");
    *c.image = 0;
    vm = fake_vm(&c);
    assert_non_null(vm);
    v = vm->vcpu[0];
    fake_cpu(v->sched.cpu);
    fake_current(v);
    gpr = v->virt.regs.gpr;
    return 0;
}

static u64 access(struct bus *bus, u64 addr, u8 size, bool write, u64 value) {
    struct bus_access a = { .addr = addr, .size = size, .write = write, .vcpu = 0 };

    assert_true(bus_do(bus, &a, &value));
    return value;
}

static u32 io_read(u32 reg) {
    access(&vm->mmio, TAKT_IOAPIC_GPA + IOREGSEL, 4, true, reg);
    return (u32)access(&vm->mmio, TAKT_IOAPIC_GPA + IOWIN, 4, false, 0);
}

static void io_write(u32 reg, u32 value) {
    access(&vm->mmio, TAKT_IOAPIC_GPA + IOREGSEL, 4, true, reg);
    access(&vm->mmio, TAKT_IOAPIC_GPA + IOWIN, 4, true, value);
}

/* Pin `pin` interrupts vCPU `to` with VECTOR, by what `how` says. */
static void route(u32 pin, u32 to, u64 how) {
    io_write(ENTRY(pin) + 1, to << 24);
    io_write(ENTRY(pin), VECTOR | (u32)how);
}

static bool pending(u32 vcpu) { return vlapic_pending(&vm->vcpu[vcpu]->lapic) == VECTOR; }

static void take_interrupt(u32 vcpu) { vlapic_accept(&vm->vcpu[vcpu]->lapic, VECTOR); }

static void end_interrupt(u32 vcpu) { vlapic_write(&vm->vcpu[vcpu]->lapic, R_EOI << 4, 0, 1000); }

static void line(u32 pin, u32 level) {
    static u32 cause;

    cause = level;
    vm_line(vm, pin, &cause);
}

/* ---- the IOAPIC ---- */

static void test_ioapic_registers(void **state) {
    assert_int_equal(io_read(1), 0x20 | 23 << 16);
    assert_int_equal(io_read(ENTRY(5)), MASKED);
    io_write(ENTRY(5) + 1, 0x01000000);
    io_write(ENTRY(5), MASKED | LEVEL | REMOTE | BIT(12) | VECTOR);
    assert_int_equal(io_read(ENTRY(5) + 1), 0x01000000);
    assert_int_equal(io_read(ENTRY(5)),
                     MASKED | LEVEL | VECTOR); /* what it may not set is dropped */
    assert_int_equal(io_read(ENTRY(24)), 0);   /* there is no such pin */
    io_write(ENTRY(24), VECTOR);
    io_write(0, ~0u);
    assert_int_equal(io_read(0), 0x0f000000); /* only these bits of the id can be written */
    assert_int_equal(io_read(2), 0x0f000000); /* the arbitration register follows it */
    io_write(2, 0);
    assert_int_equal(io_read(2), 0x0f000000);
    assert_int_equal(access(&vm->mmio, TAKT_IOAPIC_GPA + 0x20, 4, false, 0), 0);
    access(&vm->mmio, TAKT_IOAPIC_GPA + IOWIN, 8, true, 0); /* of another size: nothing happens */
}

static void test_edge(void **state) {
    route(3, 0, 0);
    line(3, 1);
    assert_true(pending(0));
    take_interrupt(0);
    line(3, 1); /* it has not been low since */
    assert_false(pending(0));
    end_interrupt(0);
    assert_false(pending(0));
    line(3, 0);
    line(3, 1);
    assert_true(pending(0));
    assert_false(io_read(ENTRY(3)) & REMOTE);
}

/* A level-triggered pin interrupts again after the end of its interrupt, as long as the level is
 * there, and not before. */
static void test_level(void **state) {
    route(16, 0, LEVEL);
    line(16, 1);
    assert_true(pending(0));
    assert_true(io_read(ENTRY(16)) & REMOTE);
    take_interrupt(0);
    line(16, 0);
    line(16, 1);
    assert_int_equal(v->lapic.reg[R_IRR + VECTOR / 32], 0);
    end_interrupt(0);
    assert_true(pending(0));
    take_interrupt(0);
    line(16, 0);
    end_interrupt(0);
    assert_false(pending(0));
    assert_false(io_read(ENTRY(16)) & REMOTE);
}

static void test_level_that_was_masked(void **state) {
    route(16, 0, LEVEL | MASKED);
    line(16, 1);
    assert_false(pending(0));
    io_write(ENTRY(16), VECTOR | LEVEL);
    assert_true(pending(0));
}

/* Two pins share a vector. At the end of an interrupt each of them is asked. */
static void test_shared_vector(void **state) {
    u32 one = 1, none = 0;

    route(16, 0, LEVEL);
    route(17, 0, LEVEL);
    vm_line(vm, 16, &one);
    take_interrupt(0);
    vm_line(vm, 17, &one);
    vm_line(vm, 16, &none);
    end_interrupt(0);
    assert_true(pending(0));
    take_interrupt(0);
    vm_line(vm, 17, &none);
    end_interrupt(0);
    assert_false(pending(0));
    vm_line(vm, 16, &one);
    vm_line(vm, 17, &one);
    take_interrupt(0);
    vm_line(vm, 16, &none);
    vm_line(vm, 17, &none);
    end_interrupt(0);
    assert_false((io_read(ENTRY(16)) | io_read(ENTRY(17))) & REMOTE);
}

static void test_eoi_register(void **state) {
    route(16, 0, LEVEL);
    line(16, 1);
    line(16, 0);
    access(&vm->mmio, TAKT_IOAPIC_GPA + IOEOI, 4, true, VECTOR);
    assert_false(io_read(ENTRY(16)) & REMOTE);
}

/* Changed to edge-triggered and back, an entry forgets that it waits: Linux's way to make an EOI
 * with IOAPICs that have no register for it. */
static void test_eoi_by_edge(void **state) {
    route(16, 0, LEVEL);
    line(16, 1);
    line(16, 0);
    io_write(ENTRY(16), VECTOR | MASKED);
    io_write(ENTRY(16), VECTOR | LEVEL);
    assert_false(io_read(ENTRY(16)) & REMOTE);
}

static void test_to_another_vcpu(void **state) {
    vm->vcpu[1]->lapic.reg[R_SVR] = 0x1ff;
    route(16, 1, LEVEL);
    line(16, 1);
    assert_false(pending(0));
    assert_true(pending(1));
    take_interrupt(1);
    line(16, 0);
    end_interrupt(1);
    assert_false(io_read(ENTRY(16)) & REMOTE);
}

/* A vector that came as a level and now comes as an edge needs no more EOI of the IOAPIC. */
static void test_edge_after_level(void **state) {
    route(16, 0, LEVEL);
    line(16, 1);
    take_interrupt(0);
    line(16, 0);
    end_interrupt(0);
    route(16, 0, 0);
    line(16, 1);
    take_interrupt(0);
    assert_int_equal(v->lapic.reg[R_TMR + VECTOR / 32] >> VECTOR % 32 & 1, 0);
    end_interrupt(0);
}

/* A guest may write any delivery mode. SMI, the reserved one, SIPI and ExtINT reach no vCPU. */
static void test_modes_that_are_dropped(void **state) {
    static const u32 modes[] = { 2, 3, 6, 7 };

    for (u32 i = 0; i < ARRAY_SIZE(modes); i++) {
        vm->vcpu[0]->todo = vm->vcpu[1]->todo = 0;
        vm->vcpu[1]->lapic.reg[R_SVR] = 0x1ff;
        route(3, 0xff, modes[i] << 8);
        line(3, 1);
        line(3, 0);
        assert_int_equal(vm->vcpu[0]->todo | vm->vcpu[1]->todo, 0);
    }
}

/* A message to the one of several LAPICs that has the lowest priority goes to one that is enabled
 * by software, because the others take no interrupts (SDM 3A 11.4.7.2). */
static void test_lowest_priority(void **state) {
    const u64 lowest = DM_LOWEST << 8;

    vm->vcpu[1]->lapic.reg[R_SVR] = 0x1ff;
    v->lapic.reg[R_SVR] = 0xff;
    route(16, 0xff, lowest);
    line(16, 1);
    assert_false(pending(0));
    assert_true(pending(1));
    take_interrupt(1);
    line(16, 0);
    end_interrupt(1);
    v->lapic.reg[R_SVR] = 0x1ff;
    line(16, 1);
    assert_true(pending(0));
    assert_false(pending(1));
    take_interrupt(0);
    line(16, 0);
    end_interrupt(0);
}

/* ---- the power button ---- */

/* A press is one interrupt, if the guest listens. */
static void test_power_button(void **state) {
    assert_int_equal(vm_press_power(vm), -EAGAIN); /* its pin is masked at first */
    assert_false(pending(0));
    route(PC_BUTTON_PIN, 0, 0);
    assert_false(pending(0)); /* the press from before is forgotten */
    for (u32 i = 0; i < 2; i++) {
        assert_int_equal(vm_press_power(vm), 0);
        assert_true(pending(0));
        take_interrupt(0);
        end_interrupt(0);
        assert_false(pending(0));
    }
    vm_pause(vm);
    assert_int_equal(vm_press_power(vm), -EINVAL);
    vm_unpause(vm);
    *vm->config.kernel = 0;
    assert_int_equal(vm_press_power(vm), -ENODEV);
}

/* ---- UART ---- */

static void test_uart(void **state) {
    route(PC_UART_PIN, 0, LEVEL);
    access(&vm->ports, TAKT_UART_PORT + 1, 1, true, 1); /* IER: data */
    assert_false(pending(0));
    ring_put(&vm->console.in, "x", 1);
    vm_uart_changed(vm);
    assert_true(pending(0));
    take_interrupt(0);
    assert_int_equal(access(&vm->ports, TAKT_UART_PORT, 1, false, 0), 'x');
    end_interrupt(0);
    assert_false(pending(0));
    access(&vm->ports, TAKT_UART_PORT + 1, 1, true, 2); /* IER: transmitter empty */
    assert_true(pending(0));
    take_interrupt(0);
    assert_int_equal(access(&vm->ports, TAKT_UART_PORT + 2, 1, false, 0) & 0xf, 2); /* IIR */
    end_interrupt(0);
    assert_false(pending(0));
}

static u8 uart_read(u32 reg) { return (u8)access(&vm->ports, TAKT_UART_PORT + reg, 1, false, 0); }

/* A BREAK is a byte 0 with a mark in LSR, and the key comes behind it. */
static void test_break(void **state) {
    route(PC_UART_PIN, 0, LEVEL);
    access(&vm->ports, TAKT_UART_PORT + 1, 1, true, 1); /* IER: data */
    assert_true(vuart_break(&vm->uart, 'h'));
    assert_false(vuart_break(&vm->uart, 's')); /* the first one was not read */
    vm_uart_changed(vm);
    assert_true(pending(0));
    assert_int_equal(uart_read(5), 0x71); /* LSR: BREAK, something to read, nothing to send */
    assert_int_equal(uart_read(5), 0x61);
    assert_int_equal(uart_read(0), 0);
    assert_int_equal(uart_read(5), 0x61);
    assert_int_equal(uart_read(0), 'h');
    assert_int_equal(uart_read(5), 0x60);
    assert_true(vuart_break(&vm->uart, 's'));
    access(&vm->ports, TAKT_UART_PORT + 2, 1, true, 2); /* FCR: forget what was received */
    assert_int_equal(uart_read(5), 0x60);
}

/* ---- KVM's clock ---- */

static u32 cpuid_of(u32 leaf, unsigned reg) {
    static const u8 names[] = { REG_RAX, REG_RBX, REG_RCX, REG_RDX };

    gpr[REG_RAX] = leaf;
    gpr[REG_RCX] = 0;
    assert_int_equal(handle((struct vm_exit){ .reason = EXIT_CPUID }), NO_GP);
    return (u32)gpr[names[reg]];
}

static u32 msr_write(u32 msr, u64 value) {
    gpr[REG_RCX] = msr;
    gpr[REG_RAX] = (u32)value;
    gpr[REG_RDX] = value >> 32;
    return handle((struct vm_exit){ .reason = EXIT_WRMSR });
}

static void check_clock_of(u64 khz) {
    struct {
        u32 version, pad;
        u64 tsc, ns;
        u32 mul;
        signed char shift;
        u8 flags;
    } t;
    u64 before = tsc_khz;
    double ns;

    tsc_khz = khz;
    assert_int_equal(msr_write(0x4b564d01, BUF | 1), NO_GP);
    guestmem_read(&vm->mem, BUF, &t, sizeof(t));
    assert_int_equal(t.version % 2, 0);
    assert_int_equal(t.flags, 1);
    tsc_khz = before;
    ns = (double)khz * 1000; /* the ticks of a second */
    for (int i = 0; i < t.shift; i++) ns *= 2;
    ns = ns * t.mul / 4294967296.0;
    assert_true(ns > 999999000 && ns < 1000001000);
}

static void test_clock(void **state) {
    assert_int_equal(cpuid_of(0x40000000, 0), 0x40000010);
    assert_int_equal(cpuid_of(0x40000000, 1), 0x4b4d564b); /* "KVMK" */
    assert_int_equal(cpuid_of(0x40000001, 0), BIT(1) | BIT(3) | BIT(5) | BIT(24));
    assert_int_equal(cpuid_of(0x40000010, 0), tsc_khz);
    assert_int_equal(cpuid_of(0x40000010, 1), 1000000); /* kHz of the LAPIC's timer */
    for (u32 leaf = 0x40000002; leaf < 0x40000100; leaf++)
        if (leaf != 0x40000010) assert_int_equal(cpuid_of(leaf, 0), 0);
    assert_int_equal(cpuid_of(6, 0), 4); /* ARAT */
    check_clock_of(100000);
    check_clock_of(1000000);
    check_clock_of(2400001);
    check_clock_of(5000000);
    assert_int_not_equal(msr_write(0x4b564d01, BIT(40) | 1), NO_GP); /* there is no RAM */
    assert_int_not_equal(msr_write(0x4b564d02, 0), NO_GP);           /* asynchronous page faults */
}

/* Takt's own leaves are behind KVM's. */
static void test_takt_leaves(void **state) {
    const u32 pc = TAKT_CPUID_PC;

    assert_int_equal(cpuid_of(pc + TAKT_CPUID_BASE, 0), 0x40000104);
    assert_int_equal(cpuid_of(pc + TAKT_CPUID_BASE, 1), 0x746b6154); /* "Takt" */
    assert_int_equal(cpuid_of(pc + TAKT_CPUID_ABI, 0), TAKT_ABI_VERSION);
    assert_int_equal(cpuid_of(pc + TAKT_CPUID_INFO, 2), 2); /* vCPUs */
    assert_int_equal(cpuid_of(pc + TAKT_CPUID_SEED + 1, 0), 0);
}

/* No clock tells the time of day here, so that time begins when the machine does: the VM was made
 * about 1000 ns after that. */
static void test_wall_clock(void **state) {
    u32 w[3]; /* version, seconds, nanoseconds */

    assert_int_equal(msr_write(0x4b564d00, BUF), NO_GP);
    guestmem_read(&vm->mem, BUF, w, sizeof(w));
    assert_int_equal(w[0] % 2, 0);
    assert_int_equal(w[1], 0);
    assert_in_range(w[2], 1000, 1999);
}

static void test_steal(void **state) {
    struct {
        u64 ns;
        u32 version, flags;
        u8 preempted;
    } s;

    assert_int_not_equal(msr_write(0x4b564d03, (BUF + 32) | 1), NO_GP); /* not aligned */
    assert_int_equal(msr_write(0x4b564d03, BUF | 1), NO_GP);
    v->sched.state_ns[RS_RUNNABLE] = 12345;
    vcpu_publish(&v->sched, 2000);
    guestmem_read(&vm->mem, BUF, &s, sizeof(s));
    assert_int_equal(s.ns, 12345);
    assert_int_equal(s.version, 2);
    assert_int_equal(msr_write(0x4b564d03, BUF), NO_GP); /* off */
    v->sched.state_ns[RS_RUNNABLE] = 23456;
    vcpu_publish(&v->sched, 3000);
    guestmem_read(&vm->mem, BUF, &s, sizeof(s));
    assert_int_equal(s.ns, 12345);
}

/* ---- what the guest finds in its memory ---- */

static u32 word(gpa_t gpa) {
    u32 w = 0;

    assert_int_equal(guestmem_read(&vm->mem, gpa, &w, sizeof(w)), 0);
    return w;
}

static u8 sum(gpa_t gpa, u32 n) {
    u8 total = 0;

    for (u32 i = 0; i < n; i++) total += (u8)word(gpa + i);
    return total;
}

static void test_tables(void **state) {
    gpa_t rsdp = LOAD_FIRMWARE, xsdt = word(rsdp + 24), table;

    assert_int_equal(word(rsdp), 0x20445352); /* "RSD " */
    assert_int_equal(sum(rsdp, 20), 0);
    assert_int_equal(sum(rsdp, 36), 0);
    assert_int_equal(word(xsdt), 0x54445358); /* "XSDT" */
    assert_int_equal(sum(xsdt, word(xsdt + 4)), 0);
    table = word(xsdt + 36);
    assert_int_equal(word(table), 0x50434146); /* "FACP" */
    assert_int_equal(word(table + 4), 276);
    assert_int_equal(sum(table, 276), 0);
    assert_true(word(table + 112) & BIT(20)); /* hardware-reduced */
    table = word(table + 140);
    assert_int_equal(word(table), 0x54445344); /* "DSDT" */
    assert_int_equal(sum(table, word(table + 4)), 0);
    table = word(xsdt + 44);
    assert_int_equal(word(table), 0x43495041); /* "APIC" */
    assert_int_equal(word(table + 4), 44 + 12 + 2 * 8);
    assert_int_equal(sum(table, word(table + 4)), 0);
    assert_int_equal(word(0xffff0), 0xb00604ba); /* mov dx, 0x604; mov al, ... */
}

static void test_memory_map(void **state) {
    struct hvm_memmap_entry map[8];
    struct hvm_modlist_entry disk;
    struct hvm_start_info info;
    u8 copy[sizeof(ramdisk)];

    guestmem_read(&vm->mem, v->virt.regs.gpr[REG_RBX], &info, sizeof(info));
    assert_int_equal(info.rsdp_paddr, LOAD_FIRMWARE);
    assert_int_equal(info.nr_modules, 1);
    guestmem_read(&vm->mem, info.modlist_paddr, &disk, sizeof(disk));
    assert_int_equal(disk.size, sizeof(ramdisk));
    assert_int_equal(disk.paddr % PAGE_SIZE, 0);
    guestmem_read(&vm->mem, disk.paddr, copy, sizeof(copy));
    assert_memory_equal(copy, ramdisk, sizeof(copy));
    guestmem_read(&vm->mem, info.memmap_paddr, map, info.memmap_entries * sizeof(map[0]));
    for (u32 i = 1; i < info.memmap_entries; i++)
        assert_true(map[i - 1].addr + map[i - 1].size <= map[i].addr);
    for (u32 i = 0; i < info.memmap_entries; i++) {
        bool firmware = map[i].addr < 0x100000 && map[i].addr + map[i].size > LOAD_FIRMWARE;

        if (map[i].type == 1) assert_false(firmware);
    }
}

static void test_power(void **state) {
    /* No error causes an NMI, and no loop waits for a PIT. */
    assert_int_equal(access(&vm->ports, PC_NMI_PORT, 1, false, 0), 0x20);
    access(&vm->ports, PC_NMI_PORT, 1, true, 0x20 | 5 << 2);
    access(&vm->ports, PC_SLEEP_PORT, 1, true, 0x20 | 3 << 2); /* there is none */
    access(&vm->ports, PC_RESET_PORT, 1, true, 2);
    assert_int_equal(vm->state, VM_RUNNING);
    access(&vm->ports, PC_SLEEP_PORT, 1, true, 0x20 | 5 << 2);
    assert_true(vm->state >= VM_SHUTDOWN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, pc_setup, teardown)
        T(test_ioapic_registers),
        T(test_edge),
        T(test_level),
        T(test_level_that_was_masked),
        T(test_shared_vector),
        T(test_eoi_register),
        T(test_eoi_by_edge),
        T(test_to_another_vcpu),
        T(test_edge_after_level),
        T(test_modes_that_are_dropped),
        T(test_lowest_priority),
        T(test_power_button),
        T(test_uart),
        T(test_break),
        T(test_clock),
        T(test_takt_leaves),
        T(test_wall_clock),
        T(test_steal),
        T(test_tables),
        T(test_memory_map),
        T(test_power),
#undef T
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
