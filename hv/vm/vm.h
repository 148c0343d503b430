/* What a VM is, and its life: the list of VMs, their states, making and destroying them.
 *
 * A VM is made of parts (struct vm_part). Rooms above this one define theirs, and main.c lists all
 * of them in their order. This room calls nothing above it. */
#ifndef HV_VM_VM_H
#define HV_VM_VM_H

#include "config.h"
#include "event/evtchn.h"
#include "image/image.h"
#include "lib/list.h"
#include "lib/printf.h"
#include "platform/timer.h"
#include "sched/sched.h"
#include "store/store.h"
#include "vdev/bus.h"
#include "vdev/vioapic.h"
#include "vdev/vuart.h"
#include "virt/virt.h"

#define VM_NAME CONFIG_NAME

struct vm;
struct vcpu;
struct device;
struct assignment;
struct iommu_domain;
struct storeline;

/* Called on the housekeeping pCPU when a creation or a destruction has ended: `error` is 0 or a
 * negative errno, `why` one sentence for it or NULL. `vm` stays valid during the call only. */
typedef void (*vm_done)(void *ctx, struct vm *vm, int error, const char *why);

/* ---- parts ---- */

/* One part of what a VM consists of. Its functions are steps of a work item on the housekeeping
 * pCPU, so each call has to be short. Either may be NULL if there is nothing to do. */
struct vm_part {
    const char *name; /* one word, for the log */
    /* Makes the part, or a piece of it. vm->job.at and vm->job.offset are 0 at the first call and
     * belong to the part until its last one. Returns
     *   1           there is more to do: it is called again (vm->job.work.not_before may be set),
     *   0           the part is made,
     *   an errno    the VM cannot be made. vm->job.why may be set to one sentence first; otherwise
     *               the operator reads that there is not enough memory. */
    int (*make)(struct vm *vm);
    /* Takes back what `make` has done, which may be only a piece of the part, or nothing.
     * Returns 1 to be called again, or 0. */
    int (*undo)(struct vm *vm);
};

/* The parts that this room makes (parts.c). */
extern const struct vm_part memory_part; /* the table of RAM, the second-level page table */
extern const struct vm_part ram_part;    /* RAM itself: scrubbed before it is mapped and after */
extern const struct vm_part sched_part;  /* its place in a pool of the scheduler */
extern const struct vm_part params_part; /* scheduling parameters of the VM file */

/* The creation or destruction that is under way: at most one at a time. It belongs to the
 * housekeeping pCPU once it is queued. */
struct vm_job {
    struct work work;
    u32 part;   /* an index of the table of parts */
    u32 at;     /* only for the part: how far it is */
    u64 offset; /* only for the part, too */
    bool again; /* the VM is to be made again when it is gone */
    int error;
    const char *why;
    vm_done done; /* may be NULL */
    void *ctx;
    struct loader loader;
};

/* For `make`: returns `error`, and lets the operator read `why`, which must stay valid. */
int vm_part_failed(struct vm *vm, int error, const char *why);

/* ---- what a VM has of the rooms above. Each is used by the room that is named alone ---- */

/* hv/devices: what a VM has as a back end. Under backend_lock. */
struct backend {
    struct list in_all;  /* of all back ends, from the devices part on; .next is NULL before */
    struct list windows; /* in the order of their addresses */
    u32 nr_windows;      /* in that list */
    u32 port;            /* the one of TAKT_HC_BACK_PORT; 0: the VM has not asked for it */
    hpa_t waste;         /* a chunk (devices/window.h); 0: there has been no window so far */
    u64 scrubbed;        /* how many bytes of it are scrubbed */
};

#define STORELINK_PARAMS 32 /* parameters of VMs, of all policies, that have nodes */

#define STORELINK_IO     BIT(63) /* in `touched`: the rights on io/ are to be set anew */

/* What a VM has as a client of the store. For hv/nodes. The store's lock guards it, apart from
 * `touched`. */
struct storelink {
    struct store_client client; /* client.link.next is NULL until the store part is made */
    struct list due;            /* in the list of those for whom something waits in the store */
    u32 port;                   /* the VM's own, which tells it so; 0: it has given no page yet */
    struct storeline *line;     /* the serial port of a PC, or NULL */
    u64 touched; /* changed by atomics: a bit for each parameter that was set other than through the
                  * store, from bit STORELINK_PARAMS on for each device of the machine, and
                  * STORELINK_IO */
    u32 ceiling[STORELINK_PARAMS]; /* the most that the VM may ask for, by parameter */
    /* The pool to which the VM is being moved, and for which it is paused; NULL: none. */
    struct sched_pool *move;
    bool gone; /* the VM is being destroyed */
};

/* What a debugger has asked of a VM (hv/vcpu/debug.c). The shell changes it only while no vCPU of
 * the VM runs; a vCPU changes it only when it stops the VM. vCPUs are given by their number plus 1,
 * and 0 means none. */
struct vm_debug {
    bool on;  /* debug exceptions of the guest (#DB) stop the VM, and the guest does not get them */
    u32 step; /* this vCPU executes one instruction, and all others wait */
    u32 stopped; /* changed by atomics: this vCPU has stopped the VM */
    u64 dr6;     /* why it has: its DR6 at that moment */
};

/* ---- a VM ---- */

enum vm_state { VM_CREATING, VM_PAUSED, VM_RUNNING, VM_CRASHED, VM_SHUTDOWN, VM_DYING };

struct vm {
    u32 id; /* below SCHED_TURBO; used again only after all the others */
    char name[VM_NAME];
    struct config_vm config; /* what it was made from */
    struct list in_all;
    /* One for the list, and one for each holder of a pointer that lasts longer than a step. */
    u32 refs;
    enum vm_state state; /* under vm_lock */
    int exit_code;       /* after VM_SHUTDOWN: by debug-exit or TAKT_HC_SHUTDOWN */
    char why[128];       /* after VM_CRASHED, or when it could not be created: one sentence */
    struct guestmem mem;
    struct virt_vm virt;
    struct sched_vm sched, turbo; /* `turbo`: if it has a turbo vCPU, that one, which is vCPU 0 */
    struct evtchn_vm events;
    struct bus ports, mmio;
    struct vconsole console;
    struct vuart uart;
    struct vioapic *ioapic; /* NULL: the VM is no PC (hv/vcpu/pc.c) */
    /* Devices of the machine that the VM has; an entry is NULL where one was taken. */
    u32 nr_pci;
    /* For hv/passthrough: what these devices reach, if an IOMMU confines them. */
    struct iommu_domain *dma;
    u32 pci_address; /* of a PC: what its guest wrote to port 0xcf8; atomically */
    struct assignment *pci[CONFIG_MAX_PCI];
    struct device *device[TAKT_MAX_DEVICES]; /* as in `config`; NULL: none, not yet, or no more */
    struct backend back;
    struct storelink store;
    u64 tsc_offset;
    u32 nr_vcpus;
    u32 routed; /* changed by atomics: how many events with route = spread there were */
    struct vcpu *vcpu[TAKT_MAX_VCPUS]; /* from VM_DYING on only for the job that destroys the VM */
    struct sched_vcpu *sched_vcpus[TAKT_MAX_VCPUS], *turbo_vcpu;
    struct vm_debug debug;
    struct vm_job job;
};

/* Is the VM a PC, on which an operating system runs (hv/vcpu/pc.c)? */
static inline bool vm_is_pc(const struct vm *vm) { return *vm->config.kernel; }

/* Call it once at boot, before the first VM. `parts` ends with NULL and has to stay. A VM is made
 * of the parts from the first to the last, and loses them from the last to the first. */
void vm_init(const struct vm_part *const *parts);

/* ---- life (life.c) ---- */

/* Begins to make a VM from *c, which is copied. `done` (may be NULL) is called when that has ended.
 * Returns 0, or one of these; then `done` is not called:
 *   -EEXIST  there is a VM of that name
 *   -EINVAL  it has no name, or no number of vCPUs that a VM can have
 *   -ENOMEM  there is no memory */
int vm_create(const struct config_vm *c, vm_done done, void *ctx);
/* Begins to destroy the VM. The caller keeps its reference. Returns 0, or -EBUSY if the VM is being
 * made, or is being destroyed already. In that case `done` is not called, and the VM will not be
 * made again afterwards. */
int vm_destroy(struct vm *vm, vm_done done, void *ctx);
/* Pauses the VM. Returns 0, or -EINVAL if it is neither running nor paused. */
int vm_pause(struct vm *vm);
/* Lets the VM go on. Returns 0, or -EINVAL if it is not paused. */
int vm_unpause(struct vm *vm);
/* Finds a VM by its name or, in decimal, its id. Takes a reference. Returns NULL if there is none.
 */
struct vm *vm_find(const char *name_or_id);
/* Gives a reference back. The last one frees struct vm and its vCPUs. */
void vm_put(struct vm *vm);
/* Goes through the VMs in the order of their ids: returns the one after `after`, or the first one
 * if that is NULL; NULL after the last. Takes a reference, and gives the one of `after` back. */
struct vm *vm_next(struct vm *after);
const char *vm_state_name(enum vm_state s);

/* Called for a VM that is being destroyed, when none of its vCPUs runs any more and before anything
 * else of it is undone. It is set before the first VM is made; NULL means that nobody wants to
 * know. */
extern void (*vm_stopped)(struct vm *vm);

/* Keeps all vCPUs of the VM from running, until it has been unpaused as often as it was paused. */
void vm_sched_pause(struct vm *vm);
void vm_sched_unpause(struct vm *vm);

/* ---- ends that a VM brings upon itself. These can be called from an exit handler: the vCPU does
 * not enter its guest again. The first call counts ---- */

/* Ends a VM whose guest did something wrong, which is that VM's problem alone: logs the sentence,
 * stops the VM, and does what its `on_crash` says. Returns false if the VM had ended already. */
bool vm_crash(struct vm *vm, const char *fmt, ...) PRINTF(2, 3);
bool vm_vcrash(struct vm *vm, const char *fmt, va_list ap);
/* The guest ends itself: the VM is destroyed, or made again (reboot). */
void vm_shutdown(struct vm *vm, enum takt_shutdown how, int code);
/* The guest says that it cannot go on. `where` is the address of the instruction that says so, 0 if
 * that is not known. */
void vm_gives_up(struct vm *vm, int code, u64 where);

#endif
