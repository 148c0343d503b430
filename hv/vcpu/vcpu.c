/* vCPUs: making and destroying them, what their LAPICs ask for, their state at the start, and the
 * page in which a guest reads its times. The LAPIC of a vCPU is emulated by vdev/vlapic.c, which
 * knows nothing of vCPUs; the functions lapic_...() here are what it calls. */
#include <takt/errno.h>
#include "vcpu/exits.h"
#include "virt/bits.h"
#include "x86/trap.h"
#include "x86/tsc.h"

/* Prepares what all vCPUs share: what CPUID and MSRs tell guests, the hypercalls, and the functions
 * that the scheduler and a panic call. Once at boot. */
void vcpu_init(void) {
    cpuid_policy_init();
    msr_policy_init();
    calls_init();
    apicv_init();
    sched_state_hook = vcpu_publish;
    dump_hook = cpu_dump_exits;
}

/* ---- what a LAPIC asks for ---- */

/* Returns the vCPU that has this LAPIC. */
static struct vcpu *vcpu_of_lapic(struct vlapic *l) { return container_of(l, struct vcpu, lapic); }

/* Returns the LAPIC of vCPU `id` of the same VM; NULL if there is none. */
static struct vlapic *lapic_peer(struct vlapic *l, u32 id) {
    const struct vm *vm = vcpu_of_lapic(l)->vm;

    return id < vm->nr_vcpus ? &vm->vcpu[id]->lapic : NULL;
}

/* Tells a vCPU that its LAPIC has something for it: an interrupt, an NMI, an INIT or a SIPI. The
 * vCPU is told by a bit in v->todo, which it sees before its next entry. */
static void lapic_notify(struct vlapic *l, enum delivery_mode what, u8 vector) {
    static const u32 todo[] = {
        [DM_FIXED] = TODO_EVENT, [DM_NMI] = TODO_NMI, [DM_INIT] = TODO_INIT, [DM_SIPI] = TODO_SIPI
    };
    struct vcpu *v = vcpu_of_lapic(l);

    /* A SIPI that came before this INIT came too early, and is lost. */
    if (what == DM_INIT) __atomic_fetch_and(&v->todo, ~TODO_SIPI, __ATOMIC_SEQ_CST);
    if (what == DM_SIPI) v->sipi_vector = vector;
    if (what == DM_NMI) __atomic_fetch_add(&v->nmis_sent, 1, __ATOMIC_SEQ_CST);
    vcpu_notify(v, todo[what]);
}

/* Sends an NMI to a vCPU of a VM that runs, as the NMI button of a server does. */
void vcpu_send_nmi(struct vcpu *v) { lapic_notify(&v->lapic, DM_NMI, 0); }

/* Arms the timer by which a LAPIC is told that the time `when` has come; ~0 disarms it. */
static void lapic_arm(struct vlapic *l, u64 when) {
    struct vcpu *v = vcpu_of_lapic(l);

    if (when == ~0ull)
        timer_cancel(&v->lapic_timer);
    else
        timer_set(v->sched.cpu, &v->lapic_timer, when);
}

/* The function of a LAPIC's timer: tells the vCPU that the time has come. */
static void lapic_timeout(struct timer *t, u64 now) {
    vcpu_notify(container_of(t, struct vcpu, lapic_timer), TODO_TICK);
}

/* Returns the time (ns) at which the guest's TSC has the value `tsc`. The guest's TSC is the host's
 * TSC minus its value at the VM's creation. ~0, or "never", is returned if the host's TSC would
 * overflow before, or if the time is 2^59 ticks or more after the boot. A time before the boot has
 * passed, so it is 0. */
static u64 lapic_tsc_to_ns(struct vlapic *l, u64 tsc) {
    u64 host = tsc - vcpu_of_lapic(l)->vm->tsc_offset, ticks = host - tsc_boot;

    if (host < tsc) return ~0ull;
    if (host < tsc_boot) return 0;
    if (ticks >> 59) return ~0ull;
    return tsc_to_ns(ticks);
}

/* The guest has ended the handling of an interrupt (EOI). If the interrupt came by the VM's IOAPIC,
 * that may have to raise it again. */
static void lapic_eoi(struct vlapic *l, u8 vector) {
    vioapic_eoi(container_of(l, struct vcpu, lapic)->vm->ioapic, vector);
}

static const struct vlapic_ops lapic_ops = { .peer = lapic_peer,
                                             .notify = lapic_notify,
                                             .arm = lapic_arm,
                                             .tsc_to_ns = lapic_tsc_to_ns,
                                             .eoi = lapic_eoi };

/* To be called after the guest has written to its LAPIC. The CPU has a copy of the LAPIC's priority
 * (CR8), which is set anew. If an interrupt can be delivered now, a bit in v->todo makes the vCPU
 * look before its next entry. */
void vcpu_lapic_written(struct vcpu *v) {
    v->virt.cr8 = (u8)vlapic_cr8(&v->lapic);
    if (!(__atomic_load_n(&v->todo, __ATOMIC_RELAXED) & TODO_EVENT) &&
        vlapic_pending(&v->lapic) > 0)
        __atomic_fetch_or(&v->todo, TODO_EVENT, __ATOMIC_SEQ_CST);
}

/* ---- life ---- */

/* The function of the timer of a poll, a hypercall that waits: its time is over, so the vCPU looks
 * again. */
static void poll_timeout(struct timer *t, u64 now) {
    vcpu_notify(container_of(t, struct vcpu, poll_timer), TODO_EVENT);
}

/* Makes the page in which the guest reads how long this vCPU has run, waited and slept
 * (struct takt_vcpu_info), and maps it read-only. A new vCPU sleeps until it is started. */
static int map_info_page(struct vm *vm, struct vcpu *v) {
    hpa_t page = frame_alloc_zeroed(0);

    if (page == HPA_NONE) return -ENOMEM;
    v->info = hpa_to_va(page);
    v->info->tsc_khz = tsc_khz;
    v->info->state = TAKT_STATE_BLOCKED;
    return npt_map(&vm->virt.npt, TAKT_INFO_GPA + v->id * PAGE_SIZE, page, PAGE_SIZE, NPT_R,
                   NPT_WB);
}

/* Makes vCPU number `id`. Returns 0, or
 *   -ENOMEM  there is no memory
 *   -EINVAL  no pCPU of its pool is in `cpus` of the VM file */
static int vcpu_create(struct vm *vm, u32 id) {
    struct vcpu *v = virt_vcpu_alloc(sizeof(*v));
    struct cpumask any;
    int err;

    if (!v) return -ENOMEM;
    vm->vcpu[id] = v; /* from here on vcpu_destroy() undoes it */
    vm->nr_vcpus = id + 1;
    v->id = id;
    v->vm = vm;
    v->virt.vm = &vm->virt;
    v->virt.tsc_offset = vm->tsc_offset;
    v->waiting_sipi = id != 0; /* vCPU 0 starts at once, and its kernel starts the others */
    timer_init(&v->poll_timer, poll_timeout);
    timer_init(&v->lapic_timer, lapic_timeout);
    err = virt->vcpu_init(&v->virt);
    if (err) return err;
    guest_reset(&v->virt);
    err = map_info_page(vm, v);
    if (err) return err;
    vlapic_init(&v->lapic, id, &lapic_ops);
    if (id != 0 || !vm->config.turbo)
        return sched_vcpu_init(&v->sched, &vm->sched, id, &vm->config.cpus);
    /* the turbo vCPU runs on the pCPUs of the turbo pool, whatever `cpus` says */
    cpumask_fill(&any);
    return sched_vcpu_init(&v->sched, &vm->turbo, id, &any);
}

/* Undoes as much of vcpu_create() as was done. No pCPU has the vCPU loaded any more. The memory of
 * *v is freed later, with the last reference to its VM. */
static void vcpu_destroy(struct vcpu *v) {
    timer_cancel_wait(&v->lapic_timer);
    timer_cancel_wait(&v->poll_timer);
    if (v->sched.vm) sched_vcpu_fini(&v->sched);
    if (v->virt.priv) virt->vcpu_fini(&v->virt);
    if (v->info) frame_free(va_to_hpa(v->info), 0);
    v->info = NULL;
}

/* A part of making a VM: makes one vCPU at each call. Returns 1 if more are to be made. */
static int vcpus_make(struct vm *vm) {
    int err;

    vm->virt.cr4_guest = cr4_guest_mask();
    err = vcpu_create(vm, vm->nr_vcpus);
    if (err == -EINVAL)
        return vm_part_failed(vm, err, "none of the pCPUs in `cpus` belongs to its pool");
    if (err) return err;
    return vm->nr_vcpus < vm->config.vcpus + vm->config.turbo;
}

/* Destroys one vCPU at each call, the last one first. nr_vcpus does not change, because vm_put()
 * still has to free so many. */
static int vcpus_undo(struct vm *vm) {
    if (vm->job.at == vm->nr_vcpus) return 0;
    vcpu_destroy(vm->vcpu[vm->nr_vcpus - 1 - vm->job.at]);
    vm->job.at++;
    return 1;
}

const struct vm_part vcpus_part = { "vCPUs", vcpus_make, vcpus_undo };

/* Writes the times of a vCPU to the page that its guest reads. `seq` is odd meanwhile, so that the
 * guest notices and reads again. The sums in `s` do not contain the time since `now`, at which the
 * vCPU entered its state; the guest adds that by `since_tsc`. Any pCPU may call this when it wakes
 * the vCPU, while the vCPU's own pCPU executes a WRMSR with which the guest gives `steal` up. So
 * `steal` is read once: a second look could find NULL. */
void vcpu_publish(struct sched_vcpu *s, u64 now) {
    const struct vcpu *v = vcpu_of_sched(s);
    struct takt_vcpu_info *i = v->info;
    struct kvm_steal *steal = __atomic_load_n(&v->steal, __ATOMIC_ACQUIRE);

    if (!i) return;
    if (steal) kvmclock_steal(steal, s->state_ns[RS_RUNNABLE], s->state == RS_RUNNABLE);
    __atomic_store_n(&i->seq, i->seq + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    i->state = s->state;
    i->since_tsc = tsc_at(now) + v->virt.tsc_offset;
    i->run_ns = s->state_ns[RS_RUNNING];
    i->runnable_ns = s->state_ns[RS_RUNNABLE];
    i->blocked_ns = s->state_ns[RS_BLOCKED];
    if (s->woken_at) i->wake_tsc = tsc_at(s->woken_at) + v->virt.tsc_offset;
    i->wakes = s->wakes;
    __atomic_store_n(&i->seq, i->seq + 1, __ATOMIC_RELEASE);
}

/* ---- how vCPU 0 begins ---- */

/* Descriptor attributes, SDM 3A 3.4.5: present and accessed, 32-bit, granules of 4 KiB. TR has the
 * type of a busy 32-bit TSS, as a TR that was loaded has. */
#define START_CODE 0xc9b
#define START_DATA 0xc93
#define START_TSS  0x08b

/* Sets the registers with which vCPU 0 begins to execute the image. Images start in 32-bit mode
 * without paging, as PVH and multiboot define it; EAX and EBX tell them who started them and where
 * their information is. */
void vcpu_start_state(struct vcpu *v, const struct image_start *start) {
    static const struct guest_seg code = { .sel = 0x08, .attr = START_CODE, .limit = 0xffffffff };
    static const struct guest_seg data = { .sel = 0x10, .attr = START_DATA, .limit = 0xffffffff };
    static const struct guest_seg tss = { .attr = START_TSS, .limit = 0x67 };

    v->virt.regs = (struct guest_regs){ .rip = start->entry, .rflags = RFLAGS_ONE };
    v->virt.regs.gpr[REG_RAX] = start->eax;
    v->virt.regs.gpr[REG_RBX] = start->ebx;
    vcpu_set_reg(v, VREG_CR0, CR0_PE | CR0_ET);
    for (int s = SEG_ES; s <= SEG_GS; s++) virt->set_seg(&v->virt, (enum seg_name)s, &data);
    virt->set_seg(&v->virt, SEG_CS, &code);
    virt->set_seg(&v->virt, SEG_TR, &tss);
}
