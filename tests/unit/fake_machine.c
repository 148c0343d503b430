#include "fake_machine.h"

#include <asm/prctl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <takt/errno.h>
#include <takt/start_info.h>
#include <unistd.h>
#include "fake_timer.h"
#include "lib/printf.h"
#include "platform/smp.h"
#include "platform/timer.h"
#include "sched/machine.h"
#include "x86/topology.h"
#include "x86/tsc.h"

/* ---- pCPUs, clock ---- */

static struct percpu cpus[FAKE_CPUS];
u32 nr_cpus;
struct percpu *percpu_of[TAKT_MAX_CPUS];

u32 cpu_cache(u32 cpu) { return cpu; }

u32 cpu_node(u32 cpu) { return percpu_of[cpu]->node; }

const struct cpu_places cpu_places = { cpu_cache, cpu_node };

struct place cpu_place(u32 cpu) {
    return (struct place){ .core = cpu };
}

u64 tsc_khz, tsc_boot, tsc_to_ns_mul, ns_to_tsc_mul;
void (*dump_hook)(void);
u32 fake_kicks[FAKE_CPUS], fake_halts;

void fake_cpu(u32 cpu) { syscall(SYS_arch_prctl, ARCH_SET_GS, &cpus[cpu]); }

/* A nanosecond is 2^32 ticks, so the TSC as good as stands still. */
void fake_clock(u64 ns) {
    fake_now = ns;
    tsc_to_ns_mul = 1;
    ns_to_tsc_mul = ~0ull;
    tsc_khz = 1000000;
    tsc_boot = rdtsc() - (ns << 32);
}

void cpu_kick(unsigned cpu) { fake_kicks[cpu]++; }

bool fake_interrupted_self;

void cpu_interrupt_self(void) { fake_interrupted_self = true; }

void irq_window(void) {}

void (*fake_meanwhile)(void);

bool fake_kick_may_stay;

/* A pCPU that halts or enters a guest although it was kicked would sleep or compute through that
 * kick. */
static void no_kick_is_left(void) { ASSERT(!this_cpu()->need_resched || fake_kick_may_stay); }

void cpu_halt(void) {
    no_kick_is_left();
    fake_halts++;
    if (fake_meanwhile) fake_meanwhile();
}

void lapic_timer_arm(u64 when) {}

u64 machine_now(void) /* unlike now_ns() it has no end after 2^32 ns */
{
    return fake_now;
}

u32 machine_cpu(void) { return this_cpu()->id; }

void machine_kick(u32 cpu) {
    percpu_of[cpu]->need_resched = true;
    if (cpu != this_cpu()->id) cpu_kick(cpu);
}

void machine_timer_set(u32 cpu, struct timer *t, u64 when) { timer_set(cpu, t, when); }

void machine_timer_cancel(struct timer *t) { timer_cancel(t); }

/* ---- work ---- */

static struct list items = { &items, &items };
u32 fake_steps;
static struct work *current; /* whose step is under way */

void work_add(struct work *w) {
    list_for_each(i, &items, struct work, link) {
        if (i == w) return;
    }
    list_add_tail(&items, &w->link);
}

bool work_due(void) { return !list_empty(&items); }

static struct virt_vcpu *loaded_on[FAKE_CPUS];

/* As in cpu_loop(), the guest of this pCPU rests meanwhile. */
static bool run(struct work *w) {
    u32 cpu = this_cpu()->id;
    struct virt_vcpu *v = loaded_on[cpu];
    u8 was = v ? v->vm->npt.tlb.cpu[cpu].loaded : 0;

    list_del(&w->link);
    current = w;
    if (was) tlb_rest(&v->vm->npt.tlb, cpu);
    fake_steps++;
    if (w->step(w)) work_add(w);
    if (was) tlb_resume(&v->vm->npt.tlb, cpu);
    return true;
}

void fake_work_resume(void) { work_add(current); }

bool work_run(void) { return work_due() && run(list_first(&items, struct work, link)); }

static bool run_due(void) {
    list_for_each(w, &items, struct work, link) {
        if (w->not_before <= fake_now) return run(w);
    }
    return false;
}

void fake_pass(u32 cpu) {
    fake_cpu(cpu);
    cpu_pass();
}

/* A vCPU that has to stop must see that, so its pCPU takes it off. A vCPU that was only kicked
 * enters its guest again. */
static void pass_where_needed(void) {
    static u32 seen[FAKE_CPUS];

    for (u32 i = 0; i < FAKE_CPUS; i++) {
        if (percpu_of[i]->need_resched || seen[i] != fake_kicks[i]) fake_pass(i);
        seen[i] = fake_kicks[i];
    }
    if (this_cpu()->id != 0) fake_cpu(0);
}

void fake_work(void) {
    while (work_due()) {
        pass_where_needed();
        work_run();
    }
}

void fake_work_due(void) {
    do pass_where_needed();
    while (run_due());
}

/* ---- the vendor ---- */

void (*fake_run)(struct virt_vcpu *v, struct vm_exit *e);

static struct fake_vcpu *priv(struct virt_vcpu *v) { return v->priv; }

static void reset_events_op(struct virt_vcpu *v) {
    priv(v)->cpl = 0;
    priv(v)->shadow = priv(v)->nmi_masked = false;
}

static int vcpu_init_op(struct virt_vcpu *v) {
    v->priv = heap_alloc(sizeof(struct fake_vcpu));
    if (!v->priv) return -ENOMEM;
    return 0;
}

static void vcpu_fini_op(struct virt_vcpu *v) {
    heap_free(v->priv);
    v->priv = NULL;
}

static struct tlb_tags tags[FAKE_CPUS];

static void load_op(struct virt_vcpu *v) {
    u32 cpu = this_cpu()->id;

    ASSERT(!priv(v)->loaded);
    priv(v)->loaded = true;
    loaded_on[cpu] = v;
    if (!tags[cpu].nr) tlb_tags_init(&tags[cpu], 1000);
    tlb_load(&v->vm->npt.tlb, &tags[cpu], &v->tlb, cpu);
}

static void save_op(struct virt_vcpu *v) {
    ASSERT(priv(v)->loaded);
    priv(v)->loaded = false;
    loaded_on[this_cpu()->id] = NULL;
    tlb_save(&v->vm->npt.tlb, this_cpu()->id);
}

static void no_flush(enum tlb_flush what, void *ctx) {}

static void run_op(struct virt_vcpu *v, u64 deadline, struct vm_exit *e) {
    u32 cpu = this_cpu()->id;

    ASSERT(priv(v)->loaded);
    no_kick_is_left();
    if (tlb_stale(&v->vm->npt.tlb, &v->tlb))
        tlb_prepare(&v->vm->npt.tlb, &tags[cpu], &v->tlb, cpu, no_flush, NULL);
    memset(e, 0, sizeof(*e));
    e->reason = EXIT_INTR;
    v->pending.type = EVENT_NONE;
    if (fake_run) fake_run(v, e);
}

static u64 get_reg_op(struct virt_vcpu *v, enum virt_reg r) { return priv(v)->reg[r]; }

static void set_reg_op(struct virt_vcpu *v, enum virt_reg r, u64 value) { priv(v)->reg[r] = value; }

static void get_seg_op(struct virt_vcpu *v, enum seg_name s, struct guest_seg *out) {
    *out = priv(v)->seg[s];
}

static void set_seg_op(struct virt_vcpu *v, enum seg_name s, const struct guest_seg *in) {
    priv(v)->seg[s] = *in;
}

static unsigned blocked_op(struct virt_vcpu *v) {
    unsigned blocked = 0;

    if (priv(v)->shadow) blocked |= BLOCKED_SHADOW;
    if (priv(v)->nmi_masked) blocked |= BLOCKED_NMI;
    return blocked;
}

static void clear_shadow_op(struct virt_vcpu *v) { priv(v)->shadow = false; }

static unsigned cpl_op(struct virt_vcpu *v) { return priv(v)->cpl; }

static const char *why_op(struct virt_vcpu *v) { return NULL; }

static const struct virt_ops fake_ops = {
    .name = "fake",
    .npt_format = &npt_format_amd,
    .reads_pdptes = true,
    .vcpu_init = vcpu_init_op,
    .vcpu_fini = vcpu_fini_op,
    .reset_events = reset_events_op,
    .load = load_op,
    .save = save_op,
    .run = run_op,
    .get_reg = get_reg_op,
    .set_reg = set_reg_op,
    .get_seg = get_seg_op,
    .set_seg = set_seg_op,
    .blocked = blocked_op,
    .clear_shadow = clear_shadow_op,
    .cpl = cpl_op,
    .why = why_op,
};

/* ---- VMs ---- */

static const struct {
    u8 ident[16];
    u16 type, machine;
    u32 version;
    u64 entry, phoff, shoff;
    u32 flags;
    u16 ehsize, phentsize, phnum, shentsize, shnum, shstrndx;
    struct {
        u32 type, flags;
        u64 offset, vaddr, paddr, filesz, memsz, align;
    } ph[2];
    struct {
        u32 namesz, descsz, type;
        char name[4];
        u32 desc;
    } note;
    u8 code[4];
} null_elf = {
    .ident = { 0x7f, 'E', 'L', 'F', 2, 1, 1 },
    .type = 2,
    .machine = 62,
    .version = 1,
    .entry = 0x100000,
    .phoff = 64,
    .ehsize = 64,
    .phentsize = 56,
    .phnum = 2,
    .ph = { { 1, 5, 196, 0x100000, 0x100000, 4, 4096, 4096 }, { 4, 4, 176, 0, 0, 20, 20, 4 } },
    .note = { 4, 4, XEN_ELFNOTE_PHYS32_ENTRY, "Xen", 0x100000 },
    .code = { 0xf4, 0xeb, 0xfd }, /* hlt; jmp */
};

const struct module fake_image = { "null", &null_elf, sizeof(null_elf) };
int fake_error;
char fake_why[128];

struct config_vm fake_config(const char *name, u32 vcpus) {
    struct config_vm c = { .memory = 2 << 20, .vcpus = vcpus, .on_crash = ON_CRASH_PRESERVE };

    cpumask_fill(&c.cpus);
    strcpy(c.head.name, name);
    strcpy(c.pool, "Pool-0");
    strcpy(c.image, "null");
    return c;
}

static void made(void *ctx, struct vm *vm, int error, const char *why) {
    fake_error = error;
    fake_why[0] = 0;
    if (why) strncpy(fake_why, why, sizeof(fake_why) - 1);
}

struct vm *fake_vm(const struct config_vm *c) {
    fake_error = vm_create(c, made, NULL);
    if (fake_error) return NULL;
    fake_work();
    if (fake_error) return NULL;
    return vm_find(c->head.name);
}

void fake_destroy(struct vm *vm) {
    vm_destroy(vm, made, NULL);
    vm_put(vm);
    fake_work();
}

void fake_current(struct vcpu *v) {
    struct fake_vcpu *f = v->virt.priv;

    for (int i = 0; i < 100 && !f->loaded; i++) {
        sched_wake(&v->sched);
        v->waiting_sipi = false;
        this_cpu()->need_resched = true;
        cpu_pass();
    }
    ASSERT(f->loaded);
    f->cpl = 0;
    f->reg[VREG_CR0] = 0x80000011;
    f->reg[VREG_CR4] = 0x20;
    f->reg[VREG_EFER] = 0x500;
    f->seg[SEG_CS] = (struct guest_seg){ 8, 0xa9b, 0xffffffff, 0 };
    v->virt.regs.rflags = 0x202;
    v->virt.regs.rip = 0x100000;
    vlapic_write(&v->lapic, 0xf0, 0x1ff, now_ns());
}

static const struct vm_part no_pci = { "none", NULL, NULL };

/* As main.c has them. */
enum { PART_CLAIM = 0, PART_PCI = 11 };
static const struct vm_part *parts[] = {
    [PART_CLAIM] = &no_pci,
    &memory_part,
    &ram_part,
    &sched_part,
    &vcpus_part,
    &events_part,
    &board_part,
    &pc_part,
    &devices_part,
    &params_part,
    &nodes_part,
    [PART_PCI] = &no_pci,
    &image_part,
    &offers_part,
    &run_part,
    NULL,
};

void fake_machine_gives(const struct vm_part *claim, const struct vm_part *pci) {
    parts[PART_CLAIM] = claim;
    parts[PART_PCI] = pci;
}

void fake_machine(const char *policy) {
    static struct sched_cpu sched_cpu[FAKE_CPUS];
    static void *ram;
    struct sched_pool *pool;

    if (ram) return;
    ram = aligned_alloc(2 << 20, FAKE_RAM);
    directmap_base = (u64)ram - (2 << 20);
    frame_add(2 << 20, (2 << 20) + FAKE_RAM);
    for (u32 i = 0; i < FAKE_CPUS; i++) {
        cpus[i].self = percpu_of[i] = &cpus[i];
        cpus[i].id = i;
    }
    nr_cpus = FAKE_CPUS;
    fake_cpu(0);
    fake_clock(1000);
    virt = &fake_ops;
    virt_xcr0_mask = 0xe7;
    sched_init();
    ASSERT(sched_pool_create("Pool-0", policy, &pool) == 0);
    for (u32 i = 0; i < FAKE_CPUS; i++)
        ASSERT(sched_cpu_online(i, &sched_cpu[i]) == 0 && sched_pool_add_cpu(pool, i) == 0);
    vm_init(parts);
    vcpu_init();
    back_ends_init();
    storelink_init();
    module_add(&fake_image);
}
