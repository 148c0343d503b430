/* Measures what operations cost a guest, and prints one line `BENCH name value` for each. The value
 * is the median over n=N (10000) iterations of the TSC ticks between two RDTSC around the
 * operation, minus that of two RDTSC around nothing. Where the TSC counts instructions, the value
 * is a number of instructions. The VM needs two vCPUs on one pCPU for the line vcpu_switch.
 *
 * With `notify` and `serve`, two VMs on one pCPU measure what it costs a front end and a back end
 * to tell each other of buffers while neither sleeps. The guest with `notify` has a network device
 * that the guest with `serve` offers. Each tells the other, yields, and takes what it was told.
 *
 * With `msi`, the VM has QEMU's device for exercises, which interrupts when a register is written.
 * The guest measures the time from that write to the first instruction of the handler. It goes on
 * for ever, so that others can be measured beside it. */
#include <guest/device.h>
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/lapic.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/sort.h>
#include <guest/thread.h>
#include <guest/vcpu.h>
#include <takt/io.h>

#define MAX_N        10000
#define VECTOR_SELF  0x50
#define VECTOR_WAKE  0x51
#define MSR_MISC     0x1a0 /* IA32_MISC_ENABLE, which the hypervisor intercepts */
#define PORT_NOBODY  0x5e4
#define PORT_SCRATCH (TAKT_UART_PORT + 7)
#define HC_UNKNOWN   0x3fff
#define WAKE_TICKS   100000 /* TSC ticks from setting the timer to its interrupt */
#define TOUCHES      256

static u32 sample[MAX_N], iterations, empty;

static u32 median(u32 *a, u32 n) {
    sort_u32(a, n);
    return a[n / 2];
}

/* Prints the median of the samples, less the cost of measuring nothing. */
static void report(const char *name, u32 n) {
    u32 m = median(sample, n);

    if (m < empty) m = empty;
    printf("BENCH %s %u\n", name, m - empty);
}

#define MEASURE(operation)                                                                         \
    for (u32 i_ = 0; i_ < iterations; i_++) {                                                      \
        u64 t_ = rdtsc();                                                                          \
        operation;                                                                                 \
        sample[i_] = rdtsc() - t_;                                                                 \
    }

/* Measures a hypercall that does not exist, so that only the way to the hypervisor and back is
 * counted. */
static void bench_hypercall(void) {
    if (cpuid(TAKT_CPUID_ABI, 0).ebx & TAKT_FEAT_VMMCALL) {
        MEASURE(__asm__ volatile("vmmcall" : : "a"(HC_UNKNOWN) : "memory"));
    } else {
        MEASURE(__asm__ volatile("vmcall" : : "a"(HC_UNKNOWN) : "memory"));
    }
    report("hypercall_null", iterations);
}

/* Measures operations that cause an exit to the hypervisor, apart from `empty`, which causes none.
 */
static void bench_exits(void) {
    printf("BENCH empty %u\n", empty);
    MEASURE(cpuid(0, 0));
    report("cpuid", iterations);
    if (on_takt()) bench_hypercall();
    MEASURE(rdmsr(MSR_MISC));
    report("rdmsr", iterations);
    MEASURE(inb(PORT_NOBODY));
    report("pio_unclaimed", iterations);
    MEASURE(inb(PORT_SCRATCH));
    report("pio_device", iterations);
}

/* ---- interrupts, with handlers that are as short as they can be ---- */

extern volatile u64 woken;
void self_entry(void), wake_entry(void), event_entry(void);
__asm__(".pushsection .text\n"
        "self_entry:\n"
        "  push %rax; mov $0xfee000b0, %eax; movl $0, (%rax); pop %rax; iretq\n"
        "wake_entry:\n"
        "  push %rax; push %rdx\n"
        "  rdtsc; mov %eax, woken; mov %edx, woken + 4\n"
        "  mov $0xfee000b0, %eax; movl $0, (%rax)\n"
        "  pop %rdx; pop %rax; iretq\n"
        "event_entry:\n"
        "  push %rax; push %rdx\n"
        "  rdtsc; mov %eax, woken; mov %edx, woken + 4\n"
        "  pop %rdx; pop %rax; iretq\n"
        ".popsection\n"
        ".pushsection .bss; .balign 8; woken: .quad 0; .popsection");

/* Measures reading a register of the local APIC in both of its modes, and an interrupt that a vCPU
 * sends to itself. */
static void bench_lapic(void) {
    u64 f;

    if (lapic_has_x2()) {
        f = irq_save();
        lapic_set_mode(true);
        irq_restore(f);
        MEASURE(rdmsr(0x800 + LAPIC_ID / 16));
        report("x2apic_read", iterations);
    }
    f = irq_save();
    lapic_set_mode(false);
    irq_restore(f);
    MEASURE(mmio_read32((void *)(TAKT_LAPIC_GPA + LAPIC_ID)));
    report("lapic_read", iterations);
    trap_set_entry(VECTOR_SELF, self_entry);
    MEASURE(
        mmio_write32((void *)(TAKT_LAPIC_GPA + LAPIC_ICR), ICR_SELF | ICR_ASSERT | VECTOR_SELF));
    report("self_ipi", iterations);
}

/* Measures how late a vCPU that has halted runs again. The local APIC is in xAPIC mode. The timer
 * of the guest library is quiet meanwhile, because no thread sleeps. */
static void bench_hlt(void) {
    bool deadline = lapic_has_deadline();
    u32 lvt = VECTOR_WAKE;

    if (deadline) lvt |= LVT_DEADLINE;
    irq_disable();
    trap_set_entry(VECTOR_WAKE, wake_entry);
    lapic_write(LAPIC_LVT_TIMER, lvt);
    for (u32 i = 0; i < iterations; i++) {
        u64 due = rdtsc() + WAKE_TICKS;

        woken = 0;
        if (deadline)
            wrmsr(MSR_TSC_DEADLINE, due);
        else
            lapic_write(LAPIC_TIMER_INITIAL, (u32)(WAKE_TICKS * lapic_timer_khz() / tsc_khz()));
        while (!woken) {
            irq_enable_and_halt();
            irq_disable();
        }
        sample[i] = empty;
        if (woken > due) sample[i] += woken - due;
    }
    time_init_cpu();
    irq_enable();
    report("hlt_timer", iterations);
}

/* ---- two vCPUs on one pCPU ---- */

static volatile u64 left; /* the time at which the other vCPU called yield */
static volatile bool stop;

/* Notes the time when it calls yield, as a thread on the other vCPU; the hypervisor then switches
 * to vCPU 0. */
static void yielder(void *arg) {
    irq_disable();
    while (!stop) {
        left = rdtsc();
        hypercall0(TAKT_HC_YIELD);
    }
    irq_enable();
}

/* Measures from the moment when the other vCPU calls yield until this one runs again. A round in
 * which the other vCPU did not run in between does not count. */
static void bench_switch(void) {
    struct thread *t;
    u32 n = 0;

    if (!on_takt() || vcpu_start_all() < 2) return;
    t = thread_start(1, "yielder", yielder, NULL);
    irq_disable();
    for (u32 tries = 0; n < iterations && tries < 4 * iterations; tries++) {
        u64 now, was = left;

        hypercall0(TAKT_HC_YIELD);
        now = rdtsc();
        if (left != was) /* otherwise the other vCPU did not run in between */
            sample[n++] = now - left;
    }
    irq_enable();
    stop = true;
    thread_join(t);
    if (n) report("vcpu_switch", n);
}

/* Measures the first write to a page, which the hypervisor has to add to the VM's memory. */
static void bench_touch(void) {
    u32 n = MIN(iterations, (u32)TOUCHES);
    u8 *p = page_alloc(n);

    if (!p) return;
    for (u32 i = 0; i < n; i++) {
        u64 t = rdtsc();

        *(volatile u8 *)(p + i * PAGE_SIZE) = 1;
        sample[i] = rdtsc() - t;
    }
    report("first_touch", n);
}

/* ---- a device, and the guest that serves it ---- */

/* Measures how long QueueNotify takes, by which a driver tells the back end of new buffers
 * (`notify`). Then it yields, so that the other VM can tell it something. */
static int bench_notify(void) {
    struct vring_front ring;
    struct virtio_dev dev;
    u32 port;

    if (device_open(&dev, VIRTIO_ID_NET, 0, 5 * NS_PER_S) || virtio_begin(&dev, 0) ||
        virtio_queue(&dev, 0, &ring, 16))
        guest_panic("there is no network device");
    virtio_go(&dev);
    port = device_port(&dev);
    for (u32 i = 0; i < iterations; i++) {
        u64 t = rdtsc();

        dev.ops->notify(&dev, 0);
        sample[i] = rdtsc() - t;
        hypercall0(TAKT_HC_YIELD);
        event_take(port);
    }
    report("queue_notify", iterations);
    return 0;
}

/* Measures the hypercall by which a back end raises the driver's interrupt (`serve`). It offers the
 * network device of the other VM, and waits until that VM's driver is ready. */
static int bench_irq(void) {
    static struct takt_back is;
    static struct takt_front front;
    static struct takt_offer offer = { .features = BIT(VIRTIO_F_VERSION_1),
                                       .nr_queues = 1,
                                       .queue_max = 16 };
    i64 port;

    while (hypercall2(TAKT_HC_BACK_LIST, 0, (u64)&is)) sleep_ns(NS_PER_MS);
    port = hypercall2(TAKT_HC_BACK_OFFER, is.handle, (u64)&offer);
    if (port < 0) guest_panic("the device cannot be offered: error %ld", port);
    while (hypercall3(TAKT_HC_BACK_STATE, is.handle, (u64)&front, 0) == 0 &&
           !(front.status & VIRTIO_DRIVER_OK))
        hypercall0(TAKT_HC_YIELD);
    for (u32 i = 0; i < iterations; i++) {
        u64 t = rdtsc();

        hypercall1(TAKT_HC_BACK_IRQ, is.handle);
        sample[i] = rdtsc() - t;
        hypercall0(TAKT_HC_YIELD);
        event_take((u32)port);
    }
    report("back_irq", iterations);
    return 0;
}

#define EDU       0x11e81234u
#define EDU_RAISE 0x60
#define EDU_ACK   0x64

static void on_event(u32 port, void *arg) {}

/* Measures the way of an interrupt of a device that was given to this VM. The handler event_entry()
 * above notes the time and does nothing else, so that only the way of the interrupt is measured. */
static int bench_msi(void) {
    static struct takt_pci pci;
    volatile u8 *regs;

    if (pci_get(0, &pci) || pci.id != EDU)
        guest_panic("this VM has no PCI device that could interrupt");
    regs = (volatile u8 *)pci.bar[0].addr;
    if (event_set_handler(pci.port, 0, on_event, NULL))
        guest_panic("the event of the device cannot be handled");
    trap_set_entry(VECTOR_EVENT, event_entry);
    for (bool told = false;; told = true) {
        for (u32 i = 0; i < iterations; i++) {
            u64 t = rdtsc();

            mmio_write32(regs + EDU_RAISE, 1);
            while (!event_take(pci.port))
                ;
            sample[i] = woken - t;
            mmio_write32(regs + EDU_ACK, 1);
        }
        if (!told) report("msi", iterations);
    }
}

/* Runs the measurement that the command line names or, if it names none, all those that need no
 * other VM. Returns the guest's exit code. First it measures `empty`, which is what the two RDTSC
 * of a measurement cost by themselves. */
int main(void) {
    iterations = MIN(cmdline_u64("n", MAX_N), (u64)MAX_N);
    iterations = MAX(iterations, 1u);
    MEASURE(__asm__ volatile("" : : : "memory"));
    empty = median(sample, iterations);
    if (cmdline_has("notify")) return bench_notify();
    if (cmdline_has("serve")) return bench_irq();
    if (cmdline_has("msi")) return bench_msi();
    bench_exits();
    bench_touch();
    bench_lapic();
    bench_switch();
    bench_hlt();
    printf("BENCH end %u\n", iterations);
    return 0;
}
