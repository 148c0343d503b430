/* The life of a VM: creating, running, paused, crashed, shut down, dying (docs/architecture.md,
 * "Life of a VM"). A VM consists of parts, such as its RAM or its vCPUs; each has a function `make`
 * and a function `undo`. Making a VM goes through the table of parts, in short steps of a work
 * item, so that guests need not wait for it. Destroying it goes back through them, beginning with
 * the last part that was begun. So the `undo` of a part may find only a piece of what its `make`
 * does. A VM is freed when the last reference to it is given back. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "common/string.h"
#include "vm/vm.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

/* A VM that crashes or reboots as soon as it runs is made anew no more often than this. */
#define RESTART_PAUSE NS_PER_S

void (*vm_stopped)(struct vm *vm);

static const struct vm_part *const *parts;

/* Keeps the parts that VMs are made of. It is called once, before the first VM. */
void vm_init(const struct vm_part *const *all) { parts = all; }

/* ---- the list of VMs, and their states ---- */

static struct spinlock vm_lock;
static struct list vms = { &vms, &vms }; /* in the order of ids */
static u32 last_id;

/* Gives a reference to a VM back; the last one frees struct vm. The memory is freed without the
 * lock: no code can find the VM any more after its last reference is gone. */
void vm_put(struct vm *vm) {
    bool last;

    spin_lock(&vm_lock);
    last = --vm->refs == 0;
    spin_unlock(&vm_lock);
    if (!last) return;
    for (u32 i = 0; i < vm->nr_vcpus; i++) heap_free(vm->vcpu[i]);
    heap_free(vm);
}

/* Returns the VM of that name or id with a reference, or NULL. The reference is taken under the
 * lock, so that the VM cannot be freed in between. */
struct vm *vm_find(const char *name_or_id) {
    struct vm *found = NULL;
    u64 id;

    if (parse_u64(name_or_id, &id, NULL)) id = 0; /* no VM has this id */
    spin_lock(&vm_lock);
    list_for_each(vm, &vms, struct vm, in_all) {
        if (vm->id == id && !found) found = vm;
        /* A VM whose name looks like an id comes first. */
        if (strcmp(vm->name, name_or_id) == 0) found = vm;
    }
    if (found) found->refs++;
    spin_unlock(&vm_lock);
    return found;
}

/* Returns the VM after `after`, with a reference, or NULL at the end. VMs are in the order of their
 * ids, so it does no harm if `after` was taken off the list meanwhile. */
struct vm *vm_next(struct vm *after) {
    struct vm *next = NULL;

    spin_lock(&vm_lock);
    /* The list is sorted by id. So the search works even if `after` is not in the list any more. */
    list_for_each(vm, &vms, struct vm, in_all) {
        if (after && vm->id <= after->id) continue;
        next = vm;
        break;
    }
    if (next) next->refs++;
    spin_unlock(&vm_lock);
    if (after) vm_put(after);
    return next;
}

/* Returns the word for a state of a VM. */
const char *vm_state_name(enum vm_state s) {
    static const char *const names[] = {
        [VM_CREATING] = "creating", [VM_PAUSED] = "paused",     [VM_RUNNING] = "running",
        [VM_CRASHED] = "crashed",   [VM_SHUTDOWN] = "shutdown", [VM_DYING] = "dying",
    };

    return names[s];
}

#define ALIVE    (BIT(VM_RUNNING) | BIT(VM_PAUSED))
#define STANDING (ALIVE | BIT(VM_CRASHED) | BIT(VM_SHUTDOWN))

/* Keeps all vCPUs of the VM from running. Pauses are counted. */
void vm_sched_pause(struct vm *vm) {
    if (vm->sched.pool) sched_pause(&vm->sched);
    if (vm->turbo.pool) sched_pause(&vm->turbo);
}

/* Undoes one vm_sched_pause(). */
void vm_sched_unpause(struct vm *vm) {
    if (vm->sched.pool) sched_unpause(&vm->sched);
    if (vm->turbo.pool) sched_unpause(&vm->turbo);
}

/* Changes the state from one of those in the mask `from` to `to`. The vCPUs stop with that, or go
 * on. Returns false if the VM was in another state, in which it stays. */
static bool vm_change(struct vm *vm, u64 from, enum vm_state to) {
    bool may;

    spin_lock(&vm_lock);
    may = from & BIT(vm->state);
    if (may) {
        vm->state = to;
        if (to == VM_RUNNING)
            vm_sched_unpause(vm);
        else
            vm_sched_pause(vm);
    }
    spin_unlock(&vm_lock);
    return may;
}

/* Pauses the VM for the operator. Returns 0 or -EINVAL. */
int vm_pause(struct vm *vm) {
    if (vm_change(vm, BIT(VM_RUNNING), VM_PAUSED)) return 0;
    if (vm->state == VM_PAUSED) return 0;
    return -EINVAL;
}

/* Lets a VM that the operator has paused go on. Returns 0 or -EINVAL. */
int vm_unpause(struct vm *vm) {
    if (!vm_change(vm, BIT(VM_PAUSED), VM_RUNNING)) return -EINVAL;
    return 0;
}

/* ---- the work of making and destroying ---- */

/* Keeps `why` as the reason for which the VM could not be made. Returns `error`. */
int vm_part_failed(struct vm *vm, int error, const char *why) {
    vm->job.why = why;
    return error;
}

/* Lets the VM run, now that all its parts are made. Its job, the record of how far the making has
 * come, is free for the one that destroys the VM. */
static void vm_made(struct vm *vm) {
    vm_done done = vm->job.done;
    void *ctx = vm->job.ctx;

    log_info("%s: id %u, %u vCPU%s, %u MiB, runs", vm->name, vm->id, vm->nr_vcpus,
             plural(vm->nr_vcpus), (unsigned)(vm->mem.size >> 20));
    vm_change(vm, BIT(VM_CREATING), VM_RUNNING);
    if (done) done(ctx, vm, 0, NULL);
}

/* Takes the VM off the list, now that all its parts are undone, reports its end, and makes the VM
 * anew if that was asked for. The one that has the VM created or destroyed by a command waits for
 * `done`. Nobody waits for a VM that is made anew, so an error of the job means then that this has
 * failed. The list's reference is given back, so the VM is freed as soon as nobody else has one. */
static void vm_destroyed(struct vm *vm) {
    struct vm_job *j = &vm->job;

    spin_lock(&vm_lock);
    list_del(&vm->in_all);
    spin_unlock(&vm_lock);
    if (!j->error)
        log_info("%s: destroyed", vm->name);
    else if (!j->done)
        log_err("%s: not made anew: %s", vm->name, j->why);
    if (j->again && vm_create(&vm->config, NULL, NULL)) log_err("%s: not made anew", vm->name);
    if (j->done) j->done(j->ctx, vm, j->error, j->why);
    vm_put(vm);
}

/* Goes on with another part, from its beginning. */
static void life_next_part(struct vm_job *j, u32 part) {
    j->part = part;
    j->at = 0;
    j->offset = 0;
}

/* Does one step of making the VM: calls the function of the part that is due, which returns 1 if it
 * wants to be called again. After an error the job goes on with destroying. Returns true if there
 * is more to do. */
static bool make_step(struct vm *vm) {
    struct vm_job *j = &vm->job;
    const struct vm_part *p = parts[j->part];
    int r = 0;

    if (p->make) r = p->make(vm);
    if (r > 0) return true;
    if (r < 0) { /* this part is the first to be undone */
        log_at(LOG_DEBUG, "%s: its part %s cannot be made: error %d", vm->name, p->name, -r);
        life_next_part(j, j->part);
        j->error = r;
        vm->state = VM_DYING;
        return true;
    }
    if (!parts[j->part + 1]) {
        vm_made(vm);
        return false;
    }
    life_next_part(j, j->part + 1);
    return true;
}

/* Does one step of destroying the VM. Returns true if there is more to do. */
static bool life_undo_step(struct vm *vm) {
    struct vm_job *j = &vm->job;
    const struct vm_part *p = parts[j->part];

    if (p->undo && p->undo(vm)) return true;
    if (j->part == 0) {
        vm_destroyed(vm);
        return false;
    }
    life_next_part(j, j->part - 1);
    return true;
}

/* The step of the work item that makes or destroys a VM. */
static bool job_step(struct work *w) {
    struct vm *vm = container_of(w, struct vm, job.work);

    if (vm->state == VM_CREATING) return make_step(vm);
    return life_undo_step(vm);
}

/* Has some VM this id? The caller holds vm_lock. */
static bool id_taken(u32 id) {
    list_for_each(vm, &vms, struct vm, in_all) {
        if (vm->id == id) return true;
    }
    return false;
}

/* Gives the VM the next id that is free, up to STORE_MAX_ID, and its place in the list. The caller
 * holds vm_lock. */
static void vm_enlist(struct vm *vm) {
    struct list *before = &vms;

    do last_id = last_id % STORE_MAX_ID + 1;
    while (id_taken(last_id));
    vm->id = last_id;
    list_for_each(other, &vms, struct vm, in_all) {
        if (other->id < vm->id) continue;
        before = &other->in_all;
        break;
    }
    list_add_tail(before, &vm->in_all);
}

/* Has some VM this name? The caller holds vm_lock. */
static bool name_taken(const char *name) {
    list_for_each(vm, &vms, struct vm, in_all) {
        if (strcmp(vm->name, name) == 0) return true;
    }
    return false;
}

/* Begins to make a VM from *c. Returns 0 or a negative errno. The VM gets its id and its place in
 * the list at once, so that the name is taken. The work item does all the rest. */
int vm_create(const struct config_vm *c, vm_done done, void *ctx) {
    struct vm *vm;
    bool taken;

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
    taken = name_taken(vm->name);
    if (!taken) vm_enlist(vm);
    spin_unlock(&vm_lock);
    if (taken) {
        heap_free(vm);
        return -EEXIST;
    }
    work_add(&vm->job.work);
    return 0;
}

/* Begins to destroy a VM: queues the work item that does it. The job that made the VM is over, so
 * this one begins with the last part. If `again`, the VM is made anew afterwards, and the job
 * begins no earlier than RESTART_PAUSE after the VM was made, so that a guest that always crashes
 * at once does not keep the machine busy. Returns 0, or -EBUSY if the VM is being made or
 * destroyed. */
static int queue_destroy(struct vm *vm, vm_done done, void *ctx, bool again) {
    struct vm_job *j = &vm->job;
    u64 made = tsc_to_ns(-vm->tsc_offset - tsc_boot); /* vm_create() has set the offset to -TSC */

    if (!vm_change(vm, STANDING, VM_DYING)) return -EBUSY;
    j->done = done;
    j->ctx = ctx;
    j->why = NULL;
    j->again = again;
    j->work.not_before = 0;
    if (again) j->work.not_before = made + RESTART_PAUSE;
    work_add(&j->work);
    return 0;
}

/* Begins to destroy the VM. Returns 0 or -EBUSY. */
int vm_destroy(struct vm *vm, vm_done done, void *ctx) {
    int err = queue_destroy(vm, done, ctx, false);

    if (err) vm->job.again = false; /* the VM goes already, and now it will not be made anew */
    return err;
}

/* ---- a VM ends by itself ---- */

/* Stops the VM, if nothing has ended it before. Its vCPUs leave their pCPUs at their next pass. */
static bool vm_stop(struct vm *vm, enum vm_state state) {
    this_cpu()->need_resched = true;
    return vm_change(vm, ALIVE, state);
}

/* Ends a VM because of what its guest did, for a reason that the sentence tells. Returns false if
 * the VM had ended already. Only the first end counts: later calls change nothing, so that `why`
 * keeps the sentence that explains what happened first. */
bool vm_vcrash(struct vm *vm, const char *fmt, va_list ap) {
    if (!vm_stop(vm, VM_CRASHED)) return false;
    hv_vsnprintf(vm->why, sizeof(vm->why), fmt, ap);
    log_err("%s: crashed: %s", vm->name, vm->why);
    if (vm->config.on_crash != ON_CRASH_PRESERVE)
        queue_destroy(vm, NULL, NULL, vm->config.on_crash == ON_CRASH_RESTART);
    return true;
}

/* Ends a VM as vm_vcrash() does. The sentence goes to the log and, as vm->why, to the operator. */
bool vm_crash(struct vm *vm, const char *fmt, ...) {
    va_list ap;
    bool first;

    va_start(ap, fmt);
    first = vm_vcrash(vm, fmt, ap);
    va_end(ap);
    return first;
}

/* Ends a VM whose guest says that it cannot go on. The name of the function that gave up is looked
 * up in the image's symbol table. An address alone would tell the operator little. */
void vm_gives_up(struct vm *vm, int code, u64 where) {
    const struct module *m = module_find(vm->config.image);
    char symbol[IMAGE_SYMBOL] = "";

    vm->exit_code = code;
    if (m && where) image_symbol(m, where, symbol);
    if (*symbol)
        vm_crash(vm, "the guest gave up with code %d, in %s", code, symbol);
    else
        vm_crash(vm, "the guest gave up with code %d", code);
}

/* Ends a VM because its guest asks for that. Only the first end of a VM counts: two vCPUs may ask
 * for it at the same time. */
void vm_shutdown(struct vm *vm, enum takt_shutdown how, int code) {
    bool again = how == TAKT_SHUTDOWN_REBOOT;
    const char *does = "ends";

    if (again) does = "reboots";
    if (!vm_stop(vm, VM_SHUTDOWN)) return;
    vm->exit_code = code;
    log_info("%s: %s with code %d", vm->name, does, code);
    queue_destroy(vm, NULL, NULL, again);
}
