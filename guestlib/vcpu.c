/* vCPUs of a guest: their descriptor tables (GDT, TSS), how they are started, and calls from one to
 * another. vCPU 0 runs from the start; it starts the others by the interrupts INIT and SIPI, as on
 * a real machine, at code that start.asm has for them. vcpu.h has the contracts. */
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/lapic.h>
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <guest/vcpu.h>
#include <guest/x86.h>
#include <takt/io.h>

#define AP_PAGE    0x8000 /* where the other vCPUs begin; start.asm has the same number */
#define AP_WAIT_NS (2 * NS_PER_S)
#define AP_LOOK_NS (AP_WAIT_NS / 4)
/* Descriptors of the GDT (SDM 3A 3.4.5). All begin at address 0. The 16-bit one ends at 1 MiB, the
 * others at 4 GiB. */
#define DESC_CODE64   0x00af9b000000ffffull
#define DESC_CODE32   0x00cf9b000000ffffull
#define DESC_CODE16   0x000f9b000000ffffull
#define DESC_DATA     0x00cf93000000ffffull
#define DESC_USER     (3ull << 45) /* for CPL 3 */
#define FW_CFG_SELECT 0x510        /* QEMU's configuration device, for guests without Takt */
#define FW_CFG_DATA   0x511
#define FW_CFG_CPUS   5

extern char ap_start[], ap_end[], boot_guard[], boot_stack[];
extern u64 ap_stack;
extern struct vcpu *ap_vcpu;

static struct vcpu first;
static struct vcpu *vcpus[TAKT_MAX_VCPUS];
static struct spinlock call_lock;
static struct semaphore came = SEMAPHORE(0); /* raised when a vCPU is online */

void vcpu_main(struct vcpu *v);

struct vcpu *vcpu_get(unsigned id) {
    if (id >= TAKT_MAX_VCPUS || !vcpus[id] || !vcpus[id]->online) return NULL;
    return vcpus[id];
}

/* Returns how many vCPUs the VM has. On a bare machine QEMU's configuration device tells the
 * number. A senseless answer means one vCPU. */
unsigned vcpu_count(void) {
    unsigned n;

    if (on_takt()) {
        n = cpuid(TAKT_CPUID_INFO, 0).ecx;
    } else {
        outw(FW_CFG_SELECT, FW_CFG_CPUS);
        n = inb(FW_CFG_DATA);
    }
    if (n < 1 || n > TAKT_MAX_VCPUS) return 1;
    return n;
}

/* Sets up the descriptor tables, GS and the traps of the vCPU that calls. */
static void init_tables(struct vcpu *v) {
    u64 base = (u64)&v->tss;
    struct {
        u16 limit;
        u64 base;
    } __attribute__((packed)) r = { sizeof(v->gdt) - 1, (u64)v->gdt };

    v->gdt[SEL_CODE64 >> 3] = DESC_CODE64;
    v->gdt[SEL_DATA >> 3] = DESC_DATA;
    v->gdt[SEL_CODE32 >> 3] = DESC_CODE32;
    v->gdt[SEL_CODE16 >> 3] = DESC_CODE16;
    v->gdt[SEL_USER_CODE32 >> 3] = DESC_CODE32 | DESC_USER;
    v->gdt[SEL_USER_DATA >> 3] = DESC_DATA | DESC_USER;
    v->gdt[SEL_USER_CODE64 >> 3] = DESC_CODE64 | DESC_USER;
    /* An available 64-bit TSS takes two slots (SDM 3A 8.2.3). */
    v->gdt[SEL_TSS >> 3] =
        (sizeof(v->tss) - 1) | (base & 0xffffff) << 16 | 0x89ull << 40 | (base >> 24 & 0xff) << 56;
    v->gdt[(SEL_TSS >> 3) + 1] = base >> 32;
    v->tss.ist[0] = (u64)v->df_stack + sizeof(v->df_stack);
    v->tss.iomap = sizeof(v->tss);
    v->self = v;
    v->exc.vector = EXC_NONE;
    load_gdt(&r, SEL_TSS);
    wrmsr(MSR_GS_BASE, (u64)v);
    trap_init_cpu();
}

/* Runs the function of vcpu_call() in the handler of VECTOR_CALL, on the vCPU that the call names.
 * That call waits until call_fn is NULL again. */
static void on_call(void *arg) {
    struct vcpu *v = this_vcpu();

    if (!v->call_fn) return;
    v->call_fn(v->call_arg);
    __atomic_store_n(&v->call_fn, NULL, __ATOMIC_RELEASE);
}

/* Sets up vCPU 0, which runs on the stack of the image. The page below it is unmapped, so that a
 * stack that is used up raises a fault instead of overwriting the image. */
void vcpu_init_first(void) {
    vcpus[0] = &first;
    init_tables(&first);
    lapic_init_cpu();
    time_init();
    time_init_cpu();
    page_map((u64)boot_guard, 0, 0);
    thread_init_cpu(boot_stack);
    irq_set_handler(VECTOR_CALL, on_call, NULL);
    first.online = true;
}

/* Sets up a vCPU other than 0, which comes here from start.asm. It becomes the idle thread of its
 * vCPU and never returns. */
void vcpu_main(struct vcpu *v) {
    init_tables(v);
    lapic_init_cpu();
    time_init_cpu();
    thread_init_cpu(v->stack);
    __atomic_store_n(&v->online, true, __ATOMIC_RELEASE);
    sem_up(&came);
    thread_idle();
}

/* Starts a vCPU in real mode, at address page * 4096. */
void vcpu_start_raw(unsigned id, u8 page) {
    lapic_icr(id, ICR_INIT | ICR_ASSERT);
    if (!on_takt()) delay_ns(10 * NS_PER_MS); /* SDM 3A 9.4.4.1 */
    lapic_icr(id, ICR_SIPI | ICR_ASSERT | page);
}

/* Returns how long the vCPU has run since the time `begin`, in ns. On Takt that is less than the
 * time that has passed, because other vCPUs may have had its pCPU. */
static u64 time_run(unsigned id, u64 begin) {
    if (on_takt()) return vcpu_times(id).run_ns;
    return time_ns() - begin;
}

/* Starts a vCPU, and waits until it is online. Returns false if it does not come, or if there is no
 * memory. */
static bool start_vcpu(unsigned id) {
    struct vcpu *v = calloc(1, sizeof(*v));
    char *stack = stack_alloc();
    u64 begin = time_ns();

    if (!v || !stack) return false;
    v->id = id;
    v->stack = stack;
    ap_vcpu = v;
    ap_stack = (u64)stack + THREAD_STACK;
    vcpus[id] = v;
    vcpu_start_raw(id, AP_PAGE >> 12);
    while (!__atomic_load_n(&v->online, __ATOMIC_ACQUIRE)) {
        if (time_run(id, begin) > AP_WAIT_NS) return false;
        sem_down_until(&came, time_ns() + AP_LOOK_NS);
    }
    return true;
}

/* Returns how many vCPUs are online. One that does not come is left out. */
unsigned vcpu_start_all(void) {
    unsigned n = 1;

    memcpy(pa_to_ptr(AP_PAGE), ap_start, ap_end - ap_start);
    for (unsigned id = 1; id < vcpu_count(); id++)
        if (vcpu_get(id) || start_vcpu(id)) n++;
    return n;
}

/* Runs fn(arg) in an interrupt handler of another vCPU, and waits until it has returned. There is
 * one call at a time. The lock is taken without switching interrupts off, so that a vCPU that waits
 * for it can be called meanwhile; otherwise two vCPUs that call each other would wait for ever. */
void vcpu_call(unsigned id, void (*fn)(void *), void *arg) {
    struct vcpu *v = vcpu_get(id);

    if (!v) return;
    while (__atomic_exchange_n(&call_lock.locked, 1, __ATOMIC_ACQUIRE)) cpu_relax();
    v->call_arg = arg;
    __atomic_store_n(&v->call_fn, fn, __ATOMIC_RELEASE);
    lapic_ipi(id, VECTOR_CALL);
    while (__atomic_load_n(&v->call_fn, __ATOMIC_ACQUIRE)) cpu_relax();
    spin_unlock(&call_lock);
}

/* Returns how long a vCPU has run and waited so far. The page that Takt publishes has the times up
 * to the last change of state, so the time in the present state is added. */
struct vcpu_times vcpu_times(unsigned id) {
    struct vcpu_times t = { 0 };
    const volatile struct takt_vcpu_info *p;
    u64 since;
    u32 seq, state;

    if (!on_takt()) return t;
    p = pa_to_ptr(TAKT_INFO_GPA + id * PAGE_SIZE);
    /* Takt makes `seq` odd while it changes the page. So a copy is good if `seq` was even before it
     * and is the same after it. */
    do {
        seq = p->seq;
        while (seq & 1) {
            cpu_relax();
            seq = p->seq;
        }
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        state = p->state;
        since = rdtsc() - p->since_tsc;
        t = (struct vcpu_times){ p->run_ns, p->runnable_ns, p->blocked_ns, p->wakes, p->wake_tsc };
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
    } while (p->seq != seq);
    if ((i64)since < 0) since = 0; /* the TSC of another pCPU may be a little ahead */
    since = since * NS_PER_MS / tsc_khz();
    if (state == TAKT_STATE_RUNNING)
        t.run_ns += since;
    else if (state == TAKT_STATE_RUNNABLE)
        t.stolen_ns += since;
    else if (state == TAKT_STATE_BLOCKED)
        t.blocked_ns += since;
    return t;
}
