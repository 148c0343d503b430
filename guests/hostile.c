/* Does its worst, for ever, in one way (mode=io, mmio, hypercall, console, ipi, timer, yield, cli, msr,
 * cpuid, selfwake, ports), to see that the others' shares do not suffer. Every vCPU takes part. */
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/lapic.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <guest/time.h>
#include <guest/vcpu.h>
#include <takt/io.h>

#define VECTOR_STORM 0x50

static u64 seed = 1;

static u64 noise(void) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return seed >> 16;
}

static void storm_handler(void *arg) { lapic_eoi(); }

static void io(void) {
    outb((u16)(0x1000 + noise() % 0xe000), (u8)noise());
    (void)inl((u16)(0x1000 + noise() % 0xe000));
}

static void mmio(void) { (void)mmio_read32((void *)(TAKT_LAPIC_GPA + (noise() % 0x40) * 16)); }

static void any_hypercall(void) {
    u32 number = (u32)(noise() % 128);

    if (number != TAKT_HC_SHUTDOWN && number != TAKT_HC_POLL) /* those end or stop it */
        hypercall(number, noise(), noise(), noise(), noise());
}

static void console(void) { printf("\033[2Jnoise %lx\n", noise()); }

static void ipi(void) { lapic_icr(0, ICR_ASSERT | ICR_ALL | VECTOR_STORM); }

static void timer(void) {
    lapic_write(LAPIC_LVT_TIMER, LVT_PERIODIC | VECTOR_STORM);
    lapic_write(LAPIC_TIMER_INITIAL, 1);
}

static void yield(void) { hypercall0(TAKT_HC_YIELD); }

static void msr(void) {
    u64 v;

    rdmsr_fault((u32)noise(), &v);
}

static void any_cpuid(void) { cpuid((u32)noise(), (u32)noise()); }

/* Sleeps as shortly as it can, to be woken, and boosted, as often as it can. */
static void self_wake(void) { sleep_until(time_ns() + 1000); }

/* Holds all ports that it can get, and waits. */
static void ports(void) {
    while (event_alloc(takt_vm_id()) > 0)
        ;
    sleep_until(time_ns() + NS_PER_S);
}

static void cli(void) { irq_disable(); }

static const struct {
    const char *name;
    void (*fn)(void);
} modes[] = {
    { "io", io },
    { "mmio", mmio },
    { "hypercall", any_hypercall },
    { "console", console },
    { "ipi", ipi },
    { "timer", timer },
    { "yield", yield },
    { "msr", msr },
    { "cli", cli },
    { "cpuid", any_cpuid },
    { "selfwake", self_wake },
    { "ports", ports },
};

static void run(void *arg) {
    void (*fn)(void) = arg;

    for (;;) fn();
}

int main(void) {
    char mode[16] = "cli";
    unsigned n = vcpu_start_all();

    cmdline_str("mode", mode, sizeof(mode));
    irq_set_raw_handler(VECTOR_STORM, storm_handler, NULL);
    for (u32 i = 0; i < ARRAY_SIZE(modes); i++) {
        if (strcmp(modes[i].name, mode) != 0) continue;
        for (u32 v = 1; v < n; v++) thread_start(v, "hostile", run, (void *)modes[i].fn);
        run((void *)modes[i].fn);
    }
    printf("no mode is called %s\n", mode);
    return 1;
}
