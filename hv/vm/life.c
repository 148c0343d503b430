/* Life of a VM. Making and destroying one are jobs: lists of phases that a work item goes through in short
 * steps.
 * A VM that cannot be made is destroyed by the same phases as any other, each of which undoes what it finds.
 * */
#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "platform/timer.h"
#include "platform/work.h"
#include "sched/params.h"
#include "vm/vm.h"
#include "x86/percpu.h"
#include "x86/trap.h"
#include "x86/tsc.h"

#define SCRUB_STEP    65536u
#define RESTART_PAUSE NS_PER_S /* before a VM that crashed starts again */

/* One step of a phase: 1 to be called again, 0 when the phase is done, or an error. */
struct vm_job {
    struct work work;
    struct vm *vm;
    int (*const *phase)(struct vm_job *j);
    u32 at;      /* chunk, vCPU or stage: the phase's own */
    u32 chunk;   /* that is being scrubbed */
    u64 offset;  /* in it */
    bool making; /* else destroying */
    bool again;  /* make it anew when it is gone */
    int error;
    const char *why;
    vm_done done;
    void *ctx;
    struct loader loader;
};

void (*vm_console_more)(struct vconsole *c);

/* ---- the list of VMs ---- */

static struct spinlock vm_lock;
static struct list vms;
static u32 last_id;
static void (*destroy_hooks[VM_STAGES][4])(struct vm *);

void vm_put(struct vm *vm) {
    bool last;

    spin_lock(&vm_lock);
    last = --vm->refs == 0;
    spin_unlock(&vm_lock);
    if (!last) return;
    for (u32 i = 0; i < vm->nr_vcpus; i++) heap_free(vm->vcpu[i]);
    heap_free(vm);
}

static struct vm *find_locked(u32 id) {
    list_for_each(vm, &vms, struct vm, in_all)
        if (vm->id == id) return vm;
    return NULL;
}

struct vm *vm_find(const char *name_or_id) {
    struct vm *found = NULL;
    u64 id;

    spin_lock(&vm_lock);
    list_for_each(vm, &vms, struct vm, in_all)
        if (strcmp(vm->name, name_or_id) == 0) found = vm;
    if (!found && parse_u64(name_or_id, &id, NULL) == 0 && id == (u32)id) found = find_locked((u32)id);
    if (found) found->refs++;
    spin_unlock(&vm_lock);
    return found;
}

struct vm *vm_next(struct vm *after) {
    struct vm *next = NULL;

    spin_lock(&vm_lock);
    list_for_each(vm, &vms, struct vm, in_all) { /* by id: `after` may be off the list by now */
        if (!after || vm->id > after->id) {
            next = vm;
            next->refs++;
            break;
        }
    }
    spin_unlock(&vm_lock);
    if (after) vm_put(after);
    return next;
}

const char *vm_state_name(enum vm_state s) {
    static const char *const names[] = { "creating", "paused", "running", "crashed", "shutdown", "dying" };

    return names[s];
}

void vm_on_destroy(enum vm_stage stage, void (*fn)(struct vm *vm)) {
    for (u32 i = 0; i < ARRAY_SIZE(destroy_hooks[stage]); i++) {
        if (!destroy_hooks[stage][i]) {
            destroy_hooks[stage][i] = fn;
            return;
        }
    }
    panic("too many hooks for stage %d of a VM's destruction", stage);
}

static void run_hooks(enum vm_stage stage, struct vm *vm) {
    for (u32 i = 0; i < ARRAY_SIZE(destroy_hooks[stage]) && destroy_hooks[stage][i]; i++)
        destroy_hooks[stage][i](vm);
}

/* ---- what event channels ask for ---- */

static struct evtchn_dom *events_find(u32 id) {
    struct vm *vm;

    spin_lock(&vm_lock);
    vm = find_locked(id);
    if (vm && (vm->state == VM_CREATING || vm->state == VM_DYING)) vm = NULL;
    if (vm) vm->pins++;
    spin_unlock(&vm_lock);
    return vm ? &vm->events : NULL;
}

static void events_put(struct evtchn_dom *d) {
    spin_lock(&vm_lock);
    container_of(d, struct vm, events)->pins--;
    spin_unlock(&vm_lock);
}

static void events_raise(struct evtchn_dom *d, u32 vcpu, u8 vector, u32 port) {
    struct vcpu *v = container_of(d, struct vm, events)->vcpu[vcpu];

    if (vector) {
        v->event_port = port;
        v->event_vector = vector;
        vlapic_raise(&v->lapic, vector);
    }
    if (__atomic_load_n(&v->polling, __ATOMIC_SEQ_CST)) vcpu_notify(v, TODO_EVENT);
}

/* ---- jobs ---- */

static bool job_step(struct work *w);

static void job_begin(struct vm_job *j, int (*const *phases)(struct vm_job *)) {
    j->phase = phases;
    j->at = j->chunk = 0;
    j->offset = 0;
}

static int failed(struct vm_job *j, int error, const char *why) {
    j->why = why;
    return error;
}

/* Scrubs the next part of the chunk that is its turn; true when that chunk is done. */
static bool scrub_part(struct vm_job *j) {
    memset((u8 *)hpa_to_va(j->vm->mem.chunk[j->chunk]) + j->offset, 0, SCRUB_STEP);
    j->offset += SCRUB_STEP;
    if (j->offset < CHUNK_SIZE) return false;
    j->offset = 0;
    j->chunk++;
    return true;
}

/* ---- making ---- */

static int make_base(struct vm_job *j) {
    struct vm *vm = j->vm;
    int err;

    if (vm->config.memory / PAGE_SIZE > frame_free_count())
        return failed(j, -ENOMEM, "there is not enough free memory for it");
    err = guestmem_init(&vm->mem, vm->config.memory);
    if (err) return failed(j, err, "its memory has to be a multiple of 2 MiB");
    vm->virt.mem = &vm->mem;
    vm->virt.cr4_guest = cr4_guest_mask();
    err = virt->vm_init(&vm->virt);
    return err ? failed(j, err, "there is not enough memory for its page tables") : 0;
}

/* A chunk is there for the guest only once it is scrubbed. */
static int make_ram(struct vm_job *j) {
    struct guestmem *mem = &j->vm->mem;
    int err;

    if (j->offset == 0 && guestmem_grow(mem))
        return failed(j, -ENOMEM, "there is not enough free memory for it");
    if (!scrub_part(j)) return 1;
    err = npt_map(&j->vm->virt.npt, guestmem_chunk_gpa(mem, j->chunk - 1), mem->chunk[j->chunk - 1],
                  CHUNK_SIZE, NPT_RWX, NPT_WB);
    if (err) return failed(j, err, "there is not enough memory for its page tables");
    return (u64)j->chunk << CHUNK_SHIFT < mem->size;
}

static int make_shared(struct vm_job *j) {
    struct vm *vm = j->vm;
    hpa_t page = frame_alloc_zeroed(0);

    if (page == HPA_NONE) return failed(j, -ENOMEM, "there is not enough free memory for it");
    evtchn_init(&vm->events, vm->id, vm->config.vcpus, hpa_to_va(page));
    vm->events.find = events_find;
    vm->events.put = events_put;
    vm->events.raise = events_raise;
    if (npt_map(&vm->virt.npt, TAKT_SHARED_GPA, page, PAGE_SIZE, NPT_RW, NPT_WB))
        return failed(j, -ENOMEM, "there is not enough memory for its page tables");
    return 0;
}

static int make_sched(struct vm_job *j) {
    struct vm *vm = j->vm;
    struct sched_pool *pool = sched_pool_find(vm->config.pool[0] ? vm->config.pool : "Pool-0");

    if (!pool) return failed(j, -ENOENT, "there is no such pool");
    if (sched_dom_init(&vm->sched, vm->id, vm->name, vm->sched_vcpus, pool))
        return failed(j, -ENOMEM, "there is not enough memory to schedule it");
    return 0;
}

static int make_vcpu(struct vm_job *j) {
    int err = vcpu_create(j->vm, j->at, &j->why);

    return err ? err : ++j->at < j->vm->config.vcpus;
}

/* Parameters of the VM file that the policy of its pool knows. */
static int make_params(struct vm_job *j) {
    struct vm *vm = j->vm;

    for (u32 i = 0; i < vm->config.nr_params; i++) {
        const struct config_param *c = &vm->config.param[i];
        const struct param *p = param_find(vm->sched.pool, c->name);
        u32 n = p && p->scope == PARAM_VCPU ? vm->nr_vcpus : 1;

        if (!p || p->scope == PARAM_POOL) {
            log_warn("%s: its pool's policy has no parameter %s", vm->name, c->name);
            continue;
        }
        for (u32 k = 0; k < n; k++) {
            void *object = p->scope == PARAM_VCPU ? (void *)&vm->vcpu[k]->sched : &vm->sched;
            const char *why = "a parameter of its policy is refused";

            if (param_set_text(p, vm->sched.pool, object, c->value, &why)) return failed(j, -EINVAL, why);
        }
    }
    return 0;
}

static int make_devices(struct vm_job *j) {
    const struct module *m = module_find(j->vm->config.image);

    if (vm_add_devices(j->vm)) return failed(j, -ENOSPC, "it has too many devices");
    if (!m) return failed(j, -ENOENT, "its image is not among the boot modules");
    return load_start(&j->loader, j->vm, m, &j->why);
}

static int make_image(struct vm_job *j) { return load_step(&j->loader); }

static int make_start(struct vm_job *j) {
    struct vm *vm = j->vm;

    spin_lock(&vm_lock);
    vm->state = VM_RUNNING;
    spin_unlock(&vm_lock);
    sched_wake(&vm->vcpu[0]->sched);
    sched_unpause(&vm->sched);
    return 0;
}

static int (*const make_phases[])(struct vm_job *) = { make_base,  make_ram,    make_shared,  make_sched,
                                                       make_vcpu,  make_params, make_devices, make_image,
                                                       make_start, NULL };

/* ---- destroying: in the order of docs/architecture.md ---- */

static int end_stop(struct vm_job *j) {
    struct vm *vm = j->vm;

    if (!vm->sched.pool) return 0;
    if (j->at++ == 0) sched_pause(&vm->sched);
    if (!sched_dom_stopped(&vm->sched)) return 1;
    run_hooks(VM_STAGE_STOPPED, vm);
    return 0;
}

static int end_devices(struct vm_job *j) {
    run_hooks(VM_STAGE_DEVICES, j->vm);
    run_hooks(VM_STAGE_IOMMU, j->vm);
    return 0;
}

/* Who is just sending to it holds a pin, and may still touch its vCPUs. */
static int end_events(struct vm_job *j) {
    bool pinned;

    if (j->vm->events.shared && evtchn_fini(&j->vm->events)) return 1;
    spin_lock(&vm_lock);
    pinned = j->vm->pins != 0;
    spin_unlock(&vm_lock);
    if (pinned) return 1;
    run_hooks(VM_STAGE_EVENTS, j->vm);
    return 0;
}

static int end_maps(struct vm_job *j) {
    run_hooks(VM_STAGE_MAPS, j->vm);
    return 0;
}

static int end_vcpu(struct vm_job *j) {
    struct vm *vm = j->vm;

    if (j->at == vm->nr_vcpus) return 0;
    vcpu_destroy(vm->vcpu[vm->nr_vcpus - 1 - j->at++]);
    return j->at < vm->nr_vcpus;
}

static int end_sched(struct vm_job *j) {
    if (j->vm->sched.pool) sched_dom_fini(&j->vm->sched);
    return 0;
}

static int end_scrub(struct vm_job *j) {
    if (j->chunk == j->vm->mem.grown) return 0;
    scrub_part(j);
    return 1;
}

static int end_memory(struct vm_job *j) {
    struct vm *vm = j->vm;

    if (vm->virt.mem) virt->vm_fini(&vm->virt);
    if (vm->events.shared) frame_free(va_to_hpa(vm->events.shared), 0);
    guestmem_fini(&vm->mem);
    return 0;
}

static int (*const end_phases[])(struct vm_job *) = { end_stop,  end_devices, end_events, end_maps, end_vcpu,
                                                      end_sched, end_scrub,   end_memory, NULL };

/* ---- */

static int queue_create(const struct config_vm *c, vm_done done, void *ctx);

static void destroyed(struct vm_job *j) {
    struct vm *vm = j->vm;
    int err;

    spin_lock(&vm_lock);
    list_del(&vm->in_all);
    spin_unlock(&vm_lock);
    if (!j->error)
        log_info("%s: destroyed", vm->name);
    else if (!j->done) /* else that is whose sentence it is */
        log_err("%s: not made anew: %s", vm->name, j->why);
    if (j->again) {
        err = queue_create(&vm->config, NULL, NULL);
        if (err) log_err("%s: not made anew: error %d", vm->name, err);
    }
    if (j->done) j->done(j->ctx, vm, j->error, j->why);
    heap_free(j);
    vm_put(vm);
}

static void made(struct vm_job *j) {
    log_info("%s: id %u, %u vCPU%s, %u MiB, runs", j->vm->name, j->vm->id, j->vm->nr_vcpus,
             j->vm->nr_vcpus == 1 ? "" : "s", (unsigned)(j->vm->mem.size >> 20));
    if (j->done) j->done(j->ctx, j->vm, 0, NULL);
    heap_free(j);
}

static bool job_step(struct work *w) {
    struct vm_job *j = container_of(w, struct vm_job, work);
    int r = (*j->phase)(j);

    if (r > 0) return true;
    if (r < 0) { /* only while making */
        j->error = r;
        j->making = false;
        spin_lock(&vm_lock);
        j->vm->state = VM_DYING;
        spin_unlock(&vm_lock);
        job_begin(j, end_phases);
        return true;
    }
    j->at = j->chunk = 0;
    j->offset = 0;
    if (*++j->phase) return true;
    if (j->making)
        made(j);
    else
        destroyed(j);
    return false;
}

static struct vm_job *job_new(struct vm *vm, vm_done done, void *ctx) {
    struct vm_job *j = heap_alloc(sizeof(*j));

    if (!j) return NULL;
    j->vm = vm;
    j->done = done;
    j->ctx = ctx;
    j->work.step = job_step;
    return j;
}

static int enlist(struct vm *vm) {
    spin_lock(&vm_lock);
    list_for_each(other, &vms, struct vm, in_all) {
        if (strcmp(other->name, vm->name) == 0) {
            spin_unlock(&vm_lock);
            return -EEXIST;
        }
    }
    vm->id = ++last_id;
    list_add_tail(&vms, &vm->in_all);
    spin_unlock(&vm_lock);
    return 0;
}

static int queue_create(const struct config_vm *c, vm_done done, void *ctx) {
    struct vm *vm = heap_alloc(sizeof(*vm));
    struct vm_job *j = vm ? job_new(vm, done, ctx) : NULL;
    int err = -ENOMEM;

    if (!j) goto free;
    vm->config = *c;
    memcpy(vm->name, c->name, sizeof(vm->name));
    vm->refs = 1;
    vm->state = VM_CREATING;
    vm->tsc_offset = -rdtsc();
    vconsole_init(&vm->console);
    vm->console.more = vm_console_more;
    err = enlist(vm);
    if (err) goto free;
    j->making = true;
    job_begin(j, make_phases);
    work_add(&j->work);
    return 0;
free:
    heap_free(j);
    heap_free(vm);
    return err;
}

int vm_create(const struct config_vm *c, vm_done done, void *ctx) {
    if (!c->name[0] || c->vcpus == 0 || c->vcpus > TAKT_MAX_VCPUS) return -EINVAL;
    return queue_create(c, done, ctx);
}

static int queue_destroy(struct vm *vm, vm_done done, void *ctx, bool again, u64 delay) {
    struct vm_job *j = job_new(vm, done, ctx);
    bool busy;

    if (!j) return -ENOMEM;
    spin_lock(&vm_lock);
    busy = vm->state == VM_DYING || vm->state == VM_CREATING;
    if (!busy) vm->state = VM_DYING;
    spin_unlock(&vm_lock);
    if (busy) {
        heap_free(j);
        return -EBUSY;
    }
    j->again = again;
    j->work.not_before = delay ? now_ns() + delay : 0;
    job_begin(j, end_phases);
    work_add(&j->work);
    return 0;
}

int vm_destroy(struct vm *vm, vm_done done, void *ctx) { return queue_destroy(vm, done, ctx, false, 0); }

/* ---- while it lives ---- */

int vm_pause(struct vm *vm) {
    int err = 0;

    spin_lock(&vm_lock);
    if (vm->state == VM_RUNNING) {
        vm->state = VM_PAUSED;
        sched_pause(&vm->sched);
    } else if (vm->state != VM_PAUSED) {
        err = -EINVAL;
    }
    spin_unlock(&vm_lock);
    return err;
}

int vm_unpause(struct vm *vm) {
    int err = -EINVAL;

    spin_lock(&vm_lock);
    if (vm->state == VM_PAUSED) {
        vm->state = VM_RUNNING;
        err = sched_unpause(&vm->sched);
    }
    spin_unlock(&vm_lock);
    return err;
}

/* The first to say so stops it; its vCPUs leave their pCPUs at their next pass. */
static bool stop(struct vm *vm, enum vm_state state) {
    bool first;

    spin_lock(&vm_lock);
    first = vm->state == VM_RUNNING || vm->state == VM_PAUSED;
    if (first) {
        vm->state = state;
        sched_pause(&vm->sched);
    }
    spin_unlock(&vm_lock);
    this_cpu()->need_resched = true;
    return first;
}

static void act_on_crash(struct vm *vm) {
    bool again = vm->config.on_crash == ON_CRASH_RESTART;

    if (vm->config.on_crash == ON_CRASH_PRESERVE) return;
    if (queue_destroy(vm, NULL, NULL, again, again ? RESTART_PAUSE : 0))
        log_err("%s: stays as it is: there is no memory to destroy it", vm->name);
}

void vm_crash(struct vm *vm, struct vcpu *v, const char *fmt, ...) {
    va_list ap;

    if (!stop(vm, VM_CRASHED)) return;
    va_start(ap, fmt);
    hv_vsnprintf(vm->why, sizeof(vm->why), fmt, ap);
    va_end(ap);
    log_err("%s: crashed: %s", vm->name, vm->why);
    if (v) vcpu_dump(v);
    act_on_crash(vm);
}

void vm_shutdown(struct vm *vm, enum takt_shutdown how, int code) {
    if (!stop(vm, how == TAKT_SHUTDOWN_CRASH ? VM_CRASHED : VM_SHUTDOWN)) return;
    vm->exit_code = code;
    if (how == TAKT_SHUTDOWN_CRASH) {
        hv_snprintf(vm->why, sizeof(vm->why), "it says so itself, with code %d", code);
        log_err("%s: crashed: %s", vm->name, vm->why);
        act_on_crash(vm);
        return;
    }
    log_info("%s: %s with code %d", vm->name, how == TAKT_SHUTDOWN_REBOOT ? "reboots" : "ends", code);
    queue_destroy(vm, NULL, NULL, how == TAKT_SHUTDOWN_REBOOT, 0);
}

void vm_init(void) {
    list_init(&vms);
    cpuid_policy_init();
    msr_policy_init();
    sched_state_hook = vcpu_publish;
    dump_hook = cpu_dump_exits;
}
