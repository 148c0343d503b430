/* Life of a VM, and its vCPUs. */
#ifndef HV_VM_VM_H
#define HV_VM_VM_H

#include "config.h"
#include "event/evtchn.h"
#include "sched/sched.h"
#include "vdev/bus.h"
#include "vdev/vlapic.h"
#include "vdev/vuart.h"
#include "virt/virt.h"

#define VM_NAME CONFIG_NAME

struct vm;

struct vcpu {
    struct virt_vcpu virt;
    struct sched_vcpu sched;
    struct vlapic lapic;
    struct vm *vm;
    u32 id;
    struct takt_vcpu_info *info; /* the page that the guest reads */
    bool waiting_sipi;           /* after INIT */
    bool nmi_pending;
    u32 poll_port; /* what TAKT_HC_POLL waits for; TAKT_PORT_ANY */
    bool polling;
    struct timer poll_timer;
    struct exit_log { /* the last exits, for dumps */
        u8 reason;
        u32 raw;
        u64 rip;
    } last[8];
    u32 last_at;
    u64 exits; /* all */
    u64 exit_count[EXIT_NR];
};

enum vm_state { VM_CREATING, VM_PAUSED, VM_RUNNING, VM_CRASHED, VM_SHUTDOWN, VM_DYING };

struct vm {
    u32 id; /* never used again while a reference is held */
    char name[VM_NAME];
    struct config_vm config; /* what it was made from */
    u32 refs;                /* the list's, and one of everybody who holds a pointer across steps */
    enum vm_state state;     /* under vm_lock */
    int exit_code;           /* after VM_SHUTDOWN: by debug-exit or TAKT_HC_SHUTDOWN */
    char why[128];           /* after VM_CRASHED: one sentence */
    struct guestmem mem;
    struct virt_vm virt;
    struct sched_dom sched;
    struct evtchn_dom events;
    struct bus ports, mmio;
    struct vconsole console;
    struct vuart uart;
    u32 nr_vcpus;
    struct vcpu *vcpu[TAKT_MAX_VCPUS];
    struct sched_vcpu *sched_vcpus[TAKT_MAX_VCPUS];
    struct list in_all;
};

static inline struct vcpu *vcpu_of_sched(struct sched_vcpu *s)
{
    return container_of(s, struct vcpu, sched);
}

static inline struct vcpu *vcpu_of_virt(struct virt_vcpu *v)
{
    return container_of(v, struct vcpu, virt);
}

/* ---- life (life.c). Creation and destruction are work items of many short steps; `done` is called at the
 * end, with 0 or the error. ---- */
typedef void (*vm_done)(void *ctx, struct vm *vm, int error, const char *why);
int vm_create(const struct config_vm *c, vm_done done, void *ctx); /* -EEXIST name; -ENOMEM */
int vm_destroy(struct vm *vm, vm_done done, void *ctx);            /* -EBUSY: already dying */
int vm_pause(struct vm *vm);
int vm_unpause(struct vm *vm);
struct vm *vm_find(const char *name_or_id); /* takes a reference; NULL */
struct vm *vm_by_id(u32 id);                /* takes a reference; NULL */
void vm_put(struct vm *vm);
/* The VMs in order of id. vm_next(NULL) is the first; takes a reference and drops the one of `after`. */
struct vm *vm_next(struct vm *after);

/* Stages of destruction that rooms register for; called in this order (docs/architecture.md). */
enum vm_stage {
    VM_STAGE_STOPPED,
    VM_STAGE_DEVICES,
    VM_STAGE_IOMMU,
    VM_STAGE_EVENTS,
    VM_STAGE_MAPS,
    VM_STAGES
};
void vm_on_destroy(enum vm_stage stage, void (*fn)(struct vm *vm));

/* The shell's: every VM's console calls it when output came. Set before the first VM is created; NULL: none. */
extern void (*vm_console_more)(struct vconsole *c);

/* What a guest did wrong is its problem: log one sentence with its state, stop it, act on on_crash. Callable
 * from an exit handler; the vCPU does not enter again. */
void vm_crash(struct vm *vm, struct vcpu *v, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void vm_shutdown(struct vm *vm, enum takt_shutdown how, int code);

/* ---- the loop of a pCPU (run.c): never returns ---- */
void cpu_loop(void) __attribute__((noreturn));
/* Deliver or wake: something became pending for v. From any pCPU. */
void vcpu_notify(struct vcpu *v);

/* ---- exit handlers (exit.c and friends): functions of (vcpu, exit), also run by fuzzers on the host ---- */
void vcpu_handle_exit(struct vcpu *v, const struct vm_exit *e);
void exit_cpuid(struct vcpu *v, const struct vm_exit *e);
void exit_msr(struct vcpu *v, const struct vm_exit *e);
void exit_io(struct vcpu *v, const struct vm_exit *e);
void exit_mmio(struct vcpu *v, const struct vm_exit *e);
void exit_hypercall(struct vcpu *v, const struct vm_exit *e);
void exit_cr(struct vcpu *v, const struct vm_exit *e);

/* ---- boot modules, registered by main.c ---- */
struct module {
    const char *name;
    const void *data;
    size_t size;
};
const struct module *module_find(const char *name);

/* Loads the image into RAM and prepares vCPU 0: ELF with a PVH note, or multiboot1. 0, or a negative errno
 * and *why. */
int load_image(struct vm *vm, const struct module *m, const char **why);

#endif
