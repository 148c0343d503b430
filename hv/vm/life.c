/* Life of a VM. Making one goes through the rows of a table, in short parts that a work item does; destroying
 * it goes back through them, from the last that was begun. So each row's `undo` may find only a part of what
 * its `make` does. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "platform/timer.h"
#include "sched/policy.h"
#include "vm/vm.h"
#include "x86/percpu.h"
#include "x86/trap.h"
#include "x86/tsc.h"

#define SCRUB_PART    65536u
#define DMA_LIMIT     BIT(32)  /* devices may have no more than 32 bits of address */
#define RESTART_PAUSE NS_PER_S /* a VM that crashes or reboots as soon as it runs does so no more often */

void (*vm_stopped)(struct vm *vm);
const struct vm_giver *vm_giver;

/* ---- the list of VMs, and their states ---- */

static struct spinlock vm_lock;
static struct list vms = { &vms, &vms };
static u32 last_id;

void vm_put(struct vm *vm) {
    bool last;

    spin_lock(&vm_lock);
    last = --vm->refs == 0;
    spin_unlock(&vm_lock);
    if (!last) return;
    for (u32 i = 0; i < vm->nr_vcpus; i++) heap_free(vm->vcpu[i]);
    heap_free(vm);
}

struct vm *vm_find(const char *name_or_id) {
    struct vm *found = NULL;
    u64 id;

    if (parse_u64(name_or_id, &id, NULL)) id = 0;
    spin_lock(&vm_lock);
    list_for_each(vm, &vms, struct vm, in_all)
        if (strcmp(vm->name, name_or_id) == 0 || (vm->id == id && !found)) found = vm;
    if (found) found->refs++;
    spin_unlock(&vm_lock);
    return found;
}

struct vm *vm_next(struct vm *after) {
    struct vm *next = NULL;

    spin_lock(&vm_lock);
    list_for_each(vm, &vms, struct vm, in_all) /* by id: `after` may be off the list by now */
        if (!next && (!after || vm->id > after->id)) next = vm;
    if (next) next->refs++;
    spin_unlock(&vm_lock);
    if (after) vm_put(after);
    return next;
}

const char *vm_state_name(enum vm_state s) {
    static const char *const names[] = { "creating", "paused", "running", "crashed", "shutdown", "dying" };

    return names[s];
}

#define ALIVE    (BIT(VM_RUNNING) | BIT(VM_PAUSED))
#define STANDING (ALIVE | BIT(VM_CRASHED) | BIT(VM_SHUTDOWN))

void vm_sched_pause(struct vm *vm, bool pause) {
    struct sched_dom *parts[] = { &vm->sched, &vm->turbo };

    for (u32 i = 0; i < 2; i++)
        if (parts[i]->pool) pause ? sched_pause(parts[i]) : (void)sched_unpause(parts[i]);
}

/* From one of the states in `from` to `to`; its vCPUs stop with that, or go on. False: it was in another. */
static bool change(struct vm *vm, u64 from, enum vm_state to) {
    bool may;

    spin_lock(&vm_lock);
    may = from & BIT(vm->state);
    if (may) {
        vm->state = to;
        vm_sched_pause(vm, to != VM_RUNNING);
    }
    spin_unlock(&vm_lock);
    return may;
}

int vm_pause(struct vm *vm) {
    return change(vm, BIT(VM_RUNNING), VM_PAUSED) || vm->state == VM_PAUSED ? 0 : -EINVAL;
}

int vm_unpause(struct vm *vm) { return change(vm, BIT(VM_PAUSED), VM_RUNNING) ? 0 : -EINVAL; }

/* ---- what it is made of. A part returns 1 to be called again, 0 when all is done, or, making, an error and
 * job.why if that is other than a lack of memory ---- */

static int failed(struct vm *vm, int error, const char *why) {
    vm->job.why = why;
    return error;
}

static int make_claim(struct vm *vm) {
    if (!vm->config.nr_pci) return 0;
    return vm_giver ? vm_giver->claim(vm)
                    : failed(vm, -ENODEV, "devices of the machine cannot be given to VMs");
}

static int undo_claim(struct vm *vm) {
    if (vm->nr_pci) vm_giver->release(vm);
    return 0;
}

/* The node of the first pCPU that the VM may use: its memory comes from there, if there is enough. */
static u32 home_node(const struct vm *vm) {
    struct sched_pool *pool = sched_pool_find(vm->config.pool);
    struct cpumask cpus = pool ? cpumask_and(&vm->config.cpus, &pool->cpus) : vm->config.cpus;

    cpumask_for_each(cpu, &cpus) {
        if (cpu < nr_cpus) return percpu_of[cpu]->node;
    }
    return 0;
}

static int make_memory(struct vm *vm) {
    int err;

    if (vm->config.memory / PAGE_SIZE > frame_free_count()) return -ENOMEM;
    err = guestmem_init(&vm->mem, vm->config.memory);
    if (err == -EINVAL) return failed(vm, err, "its memory has to be a multiple of 2 MiB");
    if (err) return err;
    vm->mem.node = home_node(vm);
    if (vm->config.unsafe_dma && guestmem_reserve(&vm->mem, DMA_LIMIT))
        return failed(vm, -ENOMEM,
                      "RAM for unsafe_dma is one block below 4 GiB, of at most 1 GiB: there is none");
    vm->virt.mem = &vm->mem;
    vm->virt.cr4_guest = cr4_guest_mask();
    return npt_init(&vm->virt.npt, virt->npt_format);
}

static int undo_memory(struct vm *vm) {
    if (vm->virt.mem) npt_fini(&vm->virt.npt);
    guestmem_fini(&vm->mem);
    return 0;
}

/* Scrubs the next part of the last chunk; true when that is done. */
static bool scrub_part(struct vm *vm) {
    u64 *offset = &vm->job.offset;

    memset((u8 *)hpa_to_va(vm->mem.chunk[vm->mem.grown - 1]) + *offset, 0, SCRUB_PART);
    *offset = (*offset + SCRUB_PART) % CHUNK_SIZE;
    return *offset == 0;
}

/* A chunk is there for the guest only once it is scrubbed. */
static int make_ram(struct vm *vm) {
    struct guestmem *m = &vm->mem;
    u32 n;

    if (vm->job.offset == 0 && guestmem_grow(m)) return -ENOMEM;
    if (!scrub_part(vm)) return 1;
    n = m->grown - 1;
    if (npt_map(&vm->virt.npt, guestmem_chunk_gpa(m, n), m->chunk[n], CHUNK_SIZE, NPT_RWX, NPT_WB))
        return -ENOMEM;
    return (u64)m->grown << CHUNK_SHIFT < m->size;
}

/* And free once it is scrubbed again. */
static int undo_ram(struct vm *vm) {
    if (!vm->mem.grown) return 0;
    if (scrub_part(vm)) guestmem_shrink(&vm->mem);
    return 1;
}

static int make_sched(struct vm *vm) {
    struct sched_pool *pool = sched_pool_find(vm->config.pool);

    if (!pool) return failed(vm, -ENOENT, "there is no such pool");
    if (sched_dom_init(&vm->sched, vm->id, vm->name, vm->sched_vcpus, pool)) return -EINVAL;
    if (vm->config.turbo && sched_dom_init_turbo(&vm->turbo, &vm->sched, &vm->turbo_vcpu))
        return failed(vm, -EINVAL, "its pool has no turbo pool");
    return 0;
}

static int undo_sched(struct vm *vm) {
    if (vm->turbo.pool) sched_dom_fini(&vm->turbo);
    if (vm->sched.pool) sched_dom_fini(&vm->sched);
    return 0;
}

static int make_vcpus(struct vm *vm) {
    int err = vcpu_create(vm, vm->nr_vcpus);

    if (err == -EINVAL) return failed(vm, err, "none of the pCPUs in `cpus` belongs to its pool");
    return err ? err : vm->nr_vcpus < vm->config.vcpus + vm->config.turbo;
}

static int undo_vcpus(struct vm *vm) {
    if (vm->job.at == vm->nr_vcpus) return 0;
    vcpu_destroy(vm->vcpu[vm->nr_vcpus - 1 - vm->job.at++]);
    return 1;
}

/* Who takes an event that is bound to a vCPU, as the VM's `route` says; only who takes interrupts at all. */
static struct vcpu *route(struct vm *vm, u32 bound) {
    u32 how = vm->sched.route, n = vm->nr_vcpus;
    u32 first = how == ROUTE_SPREAD ? __atomic_fetch_add(&vm->routed, 1, __ATOMIC_RELAXED) : bound;

    for (u32 i = 0; how != ROUTE_FIXED && i < n; i++) {
        struct vcpu *v = vm->vcpu[(first + i) % n];

        if (vlapic_on(&v->lapic) && (how == ROUTE_SPREAD || v->sched.state == RS_RUNNING)) return v;
    }
    return vm->vcpu[bound];
}

static void events_raise(struct evtchn_dom *d, u32 vcpu, u8 vector, u32 port, bool other) {
    struct vm *vm = container_of(d, struct vm, events);

    if (other) sched_io_events(&vm->sched, 1);
    if (vector) {
        struct vcpu *v = route(vm, vcpu);

        /* The handler is the same on each vCPU: whether it makes an EOI was said of the bound
         * one. */
        if (v->id != vcpu)
            vlapic_set_no_eoi(&v->lapic, vector, vlapic_no_eoi(&vm->vcpu[vcpu]->lapic, vector));
        __atomic_store_n(&v->event, port << 8 | vector, __ATOMIC_RELAXED);
        vlapic_raise(&v->lapic, vector);
    }
    for (u32 i = 0; i < vm->nr_vcpus; i++) { /* any of them may poll for this very port */
        u32 polled = __atomic_load_n(&vm->vcpu[i]->poll_port, __ATOMIC_SEQ_CST);

        if (polled == port || (polled == TAKT_PORT_ANY && i == vcpu)) vcpu_notify(vm->vcpu[i], TODO_EVENT);
    }
}

static int make_events(struct vm *vm) {
    hpa_t page = frame_alloc_zeroed(0);

    if (page == HPA_NONE) return -ENOMEM;
    evtchn_init(&vm->events, vm->id, vm->nr_vcpus, hpa_to_va(page), events_raise);
    return npt_map(&vm->virt.npt, TAKT_SHARED_GPA, page, PAGE_SIZE, NPT_RW, NPT_WB);
}

static int undo_events(struct vm *vm) {
    if (!vm->events.shared) return 0;
    if (evtchn_fini(&vm->events)) return 1;
    frame_free(va_to_hpa(vm->events.shared), 0);
    return 0;
}

static int make_devices(struct vm *vm) { return vm->nr_pci ? vm_giver->attach(vm) : 0; }

static int undo_devices(struct vm *vm) { return vm->nr_pci ? vm_giver->detach(vm) : 0; }

/* Parameters of the VM file that the policy of its pool knows. */
static int make_params(struct vm *vm) {
    struct sched_pool *pool = vm->sched.pool;
    char why[PARAM_WHY];

    for (u32 i = 0; i < vm->config.head.nr_params; i++) {
        const struct config_param *c = &vm->config.head.param[i];
        const struct param *p = param_find(pool, c->name);

        if (!p || p->scope == PARAM_POOL) {
            log_warn("%s: its pool's policy has no parameter %s", vm->name, c->name);
            continue;
        }
        if (param_set_text(p, pool, &vm->sched, c->value, why)) {
            hv_snprintf(vm->why, sizeof(vm->why), "%s", why);
            return failed(vm, -EINVAL, vm->why);
        }
    }
    return 0;
}

static int make_image(struct vm *vm) {
    const struct module *m = module_find(vm->config.image);
    const char *why;

    if (vm->job.at++) return load_step(&vm->job.loader);
    if (!m) {
        hv_snprintf(vm->why, sizeof(vm->why), "its image is not among the boot modules: %s",
                    vm->config.image);
        return failed(vm, -ENOENT, vm->why);
    }
    vm_add_devices(vm);
    why = load_start(&vm->job.loader, vm, m);
    if (!why) return 1;
    /* The name comes last: of a very long one the end is lost, and the sentence is still whole. */
    hv_snprintf(vm->why, sizeof(vm->why), "%s: %s", why, m->name);
    return failed(vm, -EINVAL, vm->why);
}

/* Once it runs, the job is the one of whoever destroys it. */
static int make_run(struct vm *vm) {
    vm_done done = vm->job.done;
    void *ctx = vm->job.ctx;

    log_info("%s: id %u, %u vCPU%s, %u MiB, runs", vm->name, vm->id, vm->nr_vcpus, plural(vm->nr_vcpus),
             (unsigned)(vm->mem.size >> 20));
    sched_wake(&vm->vcpu[0]->sched);
    change(vm, BIT(VM_CREATING), VM_RUNNING);
    if (done) done(ctx, vm, 0, NULL);
    return 0;
}

static int undo_run(struct vm *vm) {
    if (!sched_dom_stopped(&vm->sched) || (vm->turbo.pool && !sched_dom_stopped(&vm->turbo))) return 1;
    if (vm_stopped) vm_stopped(vm);
    return 0;
}

/* Devices go before the windows that they reach, and these before the RAM. */
static const struct {
    int (*make)(struct vm *vm);
    int (*undo)(struct vm *vm);
} rows[] = {
    { make_claim, undo_claim },         { make_memory, undo_memory }, { make_ram, undo_ram },
    { make_sched, undo_sched },         { make_vcpus, undo_vcpus },   { make_events, undo_events },
    { vm_make_virtio, vm_undo_virtio }, { make_params, NULL },        { vm_make_store, vm_undo_store },
    { make_devices, undo_devices },     { make_image, NULL },         { make_run, undo_run },
};

/* ---- the work ---- */

static void destroyed(struct vm *vm) {
    struct vm_job *j = &vm->job;

    spin_lock(&vm_lock);
    list_del(&vm->in_all);
    spin_unlock(&vm_lock);
    if (!j->error)
        log_info("%s: destroyed", vm->name);
    else if (!j->done) /* else that is whose sentence it is */
        log_err("%s: not made anew: %s", vm->name, j->why);
    if (j->again && vm_create(&vm->config, NULL, NULL)) log_err("%s: not made anew", vm->name);
    if (j->done) j->done(j->ctx, vm, j->error, j->why);
    vm_put(vm);
}

static bool job_step(struct work *w) {
    struct vm *vm = container_of(w, struct vm, job.work);
    struct vm_job *j = &vm->job;
    bool making = vm->state == VM_CREATING;
    int (*part)(struct vm *) = making ? rows[j->row].make : rows[j->row].undo;
    int r = part ? part(vm) : 0;

    if (r > 0) return true;
    if (making && r == 0 && j->row + 1 == ARRAY_SIZE(rows)) return false;
    j->at = 0;
    j->offset = 0;
    if (r < 0) { /* this row is the first to be undone */
        j->error = r;
        vm->state = VM_DYING;
    } else if (making) {
        j->row++;
    } else if (j->row-- == 0) {
        destroyed(vm);
        return false;
    }
    return true;
}

/* Gives it the next id that is free, up to STORE_MAX_ID, and a place in the list, which is in the order of
 * ids. */
static void enlist(struct vm *vm) {
    struct list *at;

    do {
        vm->id = last_id = last_id % STORE_MAX_ID + 1;
        for (at = vms.next; at != &vms && list_entry(at, struct vm, in_all)->id < vm->id;) at = at->next;
    } while (at != &vms && list_entry(at, struct vm, in_all)->id == vm->id);
    list_add_tail(at, &vm->in_all);
}

int vm_create(const struct config_vm *c, vm_done done, void *ctx) {
    bool taken = false;
    struct vm *vm;

    if (!c->head.name[0] || c->vcpus == 0 || c->vcpus + c->turbo > TAKT_MAX_VCPUS) return -EINVAL;
    vm = heap_alloc(sizeof(*vm));
    if (!vm) return -ENOMEM;
    vm->config = *c;
    memcpy(vm->name, c->head.name, sizeof(vm->name));
    vm->refs = 1;
    vm->state = VM_CREATING;
    vm->tsc_offset = -rdtsc();
    vm->job = (struct vm_job){ .work.step = job_step, .done = done, .ctx = ctx };
    vm->job.why = "there is not enough free memory for it";
    spin_lock(&vm_lock);
    list_for_each(other, &vms, struct vm, in_all) taken |= strcmp(other->name, vm->name) == 0;
    if (!taken) enlist(vm);
    spin_unlock(&vm_lock);
    if (taken) {
        heap_free(vm);
        return -EEXIST;
    }
    work_add(&vm->job.work);
    return 0;
}

static int queue_destroy(struct vm *vm, vm_done done, void *ctx, bool again) {
    struct vm_job *j = &vm->job;
    u64 made = tsc_to_ns(-vm->tsc_offset - tsc_boot);

    if (!change(vm, STANDING, VM_DYING)) return -EBUSY;
    j->done = done;
    j->ctx = ctx;
    j->why = NULL;
    j->again = again;
    j->work.not_before = again ? made + RESTART_PAUSE : 0;
    work_add(&j->work);
    return 0;
}

int vm_destroy(struct vm *vm, vm_done done, void *ctx) {
    int err = queue_destroy(vm, done, ctx, false);

    if (err) vm->job.again = false; /* it goes already, and now it will not come again */
    return err;
}

/* ---- ends of its own making ---- */

/* The first to say so stops it; its vCPUs leave their pCPUs at their next pass. */
static bool stop(struct vm *vm, enum vm_state state) {
    this_cpu()->need_resched = true;
    return change(vm, ALIVE, state);
}

void vm_crash(struct vm *vm, struct vcpu *v, const char *fmt, ...) {
    va_list ap;

    if (!stop(vm, VM_CRASHED)) return;
    va_start(ap, fmt);
    hv_vsnprintf(vm->why, sizeof(vm->why), fmt, ap);
    va_end(ap);
    log_err("%s: crashed: %s", vm->name, vm->why);
    if (v) vcpu_dump(v);
    if (vm->config.on_crash != ON_CRASH_PRESERVE)
        queue_destroy(vm, NULL, NULL, vm->config.on_crash == ON_CRASH_RESTART);
}

void vm_gives_up(struct vm *vm, int code, u64 where) {
    const struct module *m = module_find(vm->config.image);
    char symbol[IMAGE_SYMBOL] = "";

    vm->exit_code = code;
    if (m && where) image_symbol(m, where, symbol);
    vm_crash(vm, NULL, "it says so itself, with code %d%s%s", code, *symbol ? ", in " : "", symbol);
}

void vm_shutdown(struct vm *vm, enum takt_shutdown how, int code) {
    if (stop(vm, VM_SHUTDOWN)) {
        vm->exit_code = code;
        log_info("%s: %s with code %d", vm->name, how == TAKT_SHUTDOWN_REBOOT ? "reboots" : "ends", code);
        queue_destroy(vm, NULL, NULL, how == TAKT_SHUTDOWN_REBOOT);
    }
}

void vm_init(void) {
    cpuid_policy_init();
    msr_policy_init();
    sched_state_hook = vcpu_publish;
    dump_hook = cpu_dump_exits;
}
