/* Life of a VM, and its vCPUs. */
#ifndef HV_VM_VM_H
#define HV_VM_VM_H

#include "config.h"
#include "event/evtchn.h"
#include "platform/timer.h"
#include "sched/sched.h"
#include "vdev/bus.h"
#include "vdev/vlapic.h"
#include "vdev/vuart.h"
#include "virt/virt.h"
#include "vm/backend.h"
#include "vm/storelink.h"

#define VM_NAME CONFIG_NAME

struct vm;

/* What a vCPU has to look at before it enters its guest: bits of vcpu.todo. */
#define TODO_EVENT 0x1u /* an interrupt may be deliverable */
#define TODO_NMI   0x2u
#define TODO_INIT  0x4u
#define TODO_SIPI  0x8u  /* sipi_vector */
#define TODO_TICK  0x10u /* its LAPIC's timer may be due */
#define TODO_BREAK 0x20u /* for tests: a state that no CPU enters */

struct vcpu {
    struct virt_vcpu virt; /* first: hot */
    u32 todo;              /* TODO_*, set by anybody with an atomic or */
    u32 nmis_sent;         /* since TODO_NMI was taken last; by anybody with an atomic add */
    /* The last event raised here, port << 8 | vector, to time its delivery; 0: none. Anybody writes
     * it at once, so that no port is told with the vector of another. */
    u32 event;
    u32 id;
    struct vm *vm;
    struct sched_vcpu sched;
    struct vlapic lapic;
    struct takt_vcpu_info *info; /* the page that the guest reads; written by sched_state_hook */
    /* of its own pCPU */
    bool waiting_sipi, halted; /* the first: since INIT; the last: in HLT */
    u8 nmis;                   /* to be delivered: at most two, as a CPU keeps one beside that in progress */
    u8 sipi_vector;
    u32 poll_port; /* TAKT_HC_POLL waits for it, or for TAKT_PORT_ANY; 0: no poll */
    /* A hypercall that is to be made again, and the number of exits then: if it is still that, the guest has
     * not been entered since. 0: none. */
    struct vm_exit again;
    u64 again_exits;
    struct timer poll_timer, lapic_timer;
    u64 paused_at; /* TSC: the last PAUSE that exited, and how many there were in a row: exit.c's */
    u32 pauses;
    struct exit_log { /* the last exits, for dumps */
        u64 rip;
        u32 raw;
        u8 reason;
    } last[8];
    u64 exits;       /* all; also where in `last` the next goes */
    u64 interrupted; /* of them, for interrupts and NMIs to come and to be taken */
};

enum vm_state { VM_CREATING, VM_PAUSED, VM_RUNNING, VM_CRASHED, VM_SHUTDOWN, VM_DYING };

typedef void (*vm_done)(void *ctx, struct vm *vm, int error, const char *why);

/* ---- boot modules, registered by main.c (load.c) ---- */
struct module {
    const char *name;
    const void *data;
    size_t size;
};
#define MAX_MODULES 64
int module_add(const struct module *m); /* copies *m, not what it points at; -ENOSPC; -EEXIST */
const struct module *module_find(const char *name);

/* Loads an image: ELF with a PVH note, or multiboot1. Everything is checked by load_start(); load_step()
 * copies at most 64 KiB a call and at last writes the start of day and the registers of vCPU 0. */
struct load_segment {
    gpa_t gpa;
    u64 offset, filesz, memsz;
};
#define LOAD_SEGMENTS 32
struct loader {
    struct vm *vm;
    const u8 *image;
    u64 size;
    struct load_segment segment[LOAD_SEGMENTS];
    u32 nr, at;
    u64 done; /* bytes of segment `at` */
    u64 entry;
    bool multiboot;
};
const char *load_start(struct loader *l, struct vm *vm,
                       const struct module *m); /* NULL, or why it is refused */
bool load_step(struct loader *l);               /* true: call again */
/* The function of an image that a virtual address is in, as "fill+0x14", by the ELF symbol table in the file
 * (64 bits). Empty if that cannot be told: no table, more symbols than a pCPU may be held up for (4,096), or
 * an address outside of the image's code. */
#define IMAGE_SYMBOL 64
void image_symbol(const struct module *m, u64 address, char text[IMAGE_SYMBOL]);

/* Creation or destruction under way: at most one at a time. Of the housekeeping pCPU, once queued. */
struct vm_job {
    struct work work;
    u32 row;    /* of life.c's table */
    u32 at;     /* chunk, vCPU: the row's own */
    u64 offset; /* in the chunk that is scrubbed */
    bool again; /* make it anew when it is gone */
    int error;
    const char *why;
    vm_done done;
    void *ctx;
    struct loader loader;
};

struct assignment;
struct iommu_domain;

/* How a VM gets devices of the machine and loses them again: hv/passthrough's, set at boot before the
 * first VM; NULL: never. The first four are parts of life.c's table, and return as those do. */
struct vm_giver {
    int (*claim)(struct vm *vm);    /* before it has anything: vm->pci */
    void (*release)(struct vm *vm); /* when all else is gone */
    int (*attach)(struct vm *vm);   /* with RAM, vCPUs and event channels */
    int (*detach)(
        struct vm *vm); /* its vCPUs have stopped; after it no device reaches its RAM or raises events */
    /* Its devices reach [hpa, ...) at `gpa`, HPA_NONE: nothing, and nothing that was there before. From any
     * pCPU, from `attach` to `detach`; takes leaf locks. -ENOMEM */
    int (*map)(struct vm *vm, gpa_t gpa, hpa_t hpa, u64 len);
    /* hypercalls of a VM that has the device `index` */
    i64 (*info)(struct vm *vm, u32 index, gpa_t to);
    i64 (*eoi)(struct vm *vm, u32 index);
    i64 (*read)(struct vm *vm, u32 index, u32 offset, u32 size);
    i64 (*write)(struct vm *vm, u32 index, u32 offset, u32 size, u32 value);
    /* its node in the VM's home: what that says, and that the VM has let go of the device */
    void (*tell)(const struct vm *vm, u32 index, char *text, u32 size);
    int (*let_go)(struct vm *vm, u32 index);
};
extern const struct vm_giver *vm_giver;

struct vm {
    u32 id; /* below SCHED_TURBO; used again only after all the others */
    char name[VM_NAME];
    struct config_vm config; /* what it was made from */
    struct list in_all;
    u32 refs;            /* the list's, and one of everybody who holds a pointer across steps */
    enum vm_state state; /* under vm_lock */
    int exit_code;       /* after VM_SHUTDOWN: by debug-exit or TAKT_HC_SHUTDOWN */
    char why[128];       /* after VM_CRASHED, or when it could not be created: one sentence */
    struct guestmem mem;
    struct virt_vm virt;
    struct sched_dom sched, turbo; /* the latter: with a turbo vCPU, 0, that one */
    struct evtchn_dom events;
    struct bus ports, mmio;
    struct vconsole console;
    struct vuart uart;
    u32 nr_pci;               /* devices of the machine that it has, with gaps (NULL) where some were taken */
    struct iommu_domain *dma; /* what they reach, if an IOMMU confines them; hv/passthrough's */
    struct assignment *pci[CONFIG_MAX_PCI];
    struct device *device[TAKT_MAX_DEVICES]; /* as in `config`; NULL: none, not yet, or no more */
    struct backend back;
    struct storelink store;
    u64 tsc_offset;
    u32 nr_vcpus, routed;              /* the latter, atomically: events with route = spread */
    struct vcpu *vcpu[TAKT_MAX_VCPUS]; /* until the VM is DYING, then only for who destroys it */
    struct sched_vcpu *sched_vcpus[TAKT_MAX_VCPUS], *turbo_vcpu;
    struct vm_job job;
};

static inline struct vcpu *vcpu_of_sched(struct sched_vcpu *s) { return container_of(s, struct vcpu, sched); }

/* Once at boot, before the first VM and before cpu_loop(). */
void vm_init(void);
/* What guests' random numbers follow from: TAKT_CPUID_SEED. Set before the first VM, then
 * constant. */
extern u64 vm_seed;

/* ---- life (life.c). Creation and destruction are work items of many short steps; `done` (may be NULL) is
 * called at the end, with 0 or the error and one sentence. ---- */
int vm_create(const struct config_vm *c, vm_done done, void *ctx); /* -EEXIST name; -EINVAL; -ENOMEM */
/* -EBUSY: being made, or already dying: for good now. */
int vm_destroy(struct vm *vm, vm_done done, void *ctx);
int vm_pause(struct vm *vm);                /* -EINVAL: neither running nor paused */
int vm_unpause(struct vm *vm);              /* -EINVAL: not paused */
struct vm *vm_find(const char *name_or_id); /* takes a reference; NULL */
void vm_put(struct vm *vm);
/* The VMs in order of id. vm_next(NULL) is the first; takes a reference and drops the one of `after`. */
struct vm *vm_next(struct vm *after);
const char *vm_state_name(enum vm_state s);

/* Counts: no vCPU of it runs while it is paused once. */
void vm_sched_pause(struct vm *vm, bool pause);

/* The shell's, set before the first VM is created; NULL: none. A VM that is destroyed calls it when its vCPUs
 * have stopped. */
extern void (*vm_stopped)(struct vm *vm);

/* What a guest did wrong is its problem: log one sentence with its state, stop it, act on on_crash. Callable
 * from an exit handler; the vCPU does not enter again. `v` may be NULL. */
void vm_crash(struct vm *vm, struct vcpu *v, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The guest ends itself: it is destroyed, or made anew (reboot). */
void vm_shutdown(struct vm *vm, enum takt_shutdown how, int code);
/* The guest says that it cannot go on; `where` is the address of the instruction, 0: it does not say. As
 * vm_crash. */
void vm_gives_up(struct vm *vm, int code, u64 where);

/* ---- the loop of a pCPU (run.c): never returns. The pCPU is online in the scheduler, its timers are set up
 * and virt->cpu_enable() is done ---- */
void cpu_loop(void) __attribute__((noreturn));
/* Sets `todo` bits of v, and sees to it that v looks at them soon. From any pCPU. */
void vcpu_notify(struct vcpu *v, u32 todo);
/* v, the current one, sleeps until it is notified; not at all if it has something to do. */
void vcpu_block(struct vcpu *v);
/* One pass of the loop: what cpu_loop() does for ever. */
void cpu_pass(void);

/* ---- vCPUs (vcpu.c) ---- */
int vcpu_create(struct vm *vm, u32 id); /* -ENOMEM; -EINVAL: no pCPU of its pool is in `cpus` */
void vcpu_destroy(struct vcpu *v);      /* off every pCPU by now; undoes what of vcpu_create was done */
/* For sched_state_hook: writes the page that the guest reads. */
void vcpu_publish(struct sched_vcpu *s, u64 now);
static inline u64 vcpu_reg(struct vcpu *v, enum virt_reg r) { return virt->get_reg(&v->virt, r); }
static inline void vcpu_set_reg(struct vcpu *v, enum virt_reg r, u64 value) {
    virt->set_reg(&v->virt, r, value);
}
/* Around its own accesses to its LAPIC, by whatever road: the guest moves CR8, which is TPR, without an
 * exit. */
static inline struct vlapic *vcpu_lapic(struct vcpu *v) {
    if (v->virt.cr8 != vlapic_cr8(&v->lapic)) vlapic_set_cr8(&v->lapic, v->virt.cr8);
    return &v->lapic;
}
void vcpu_lapic_written(struct vcpu *v);
/* Does what `todo` asks for; false if the vCPU is not to enter its guest now. */
bool vcpu_prepare(struct vcpu *v);
/* Registers of the vCPU that starts first: 32-bit protected mode, flat, no paging. */
void vcpu_start_state(struct vcpu *v, u32 entry, u32 eax, u32 ebx);
void vcpu_dump(struct vcpu *v); /* to the log */
void vcpu_dump_exits(const struct vcpu *v);
void cpu_dump_exits(void); /* of the vCPU that this pCPU holds */

/* ---- exit handlers (exit.c and friends): functions of (vcpu, exit), also run by fuzzers on the host ---- */
void vcpu_handle_exit(struct vcpu *v, const struct vm_exit *e);
void exit_cpuid(struct vcpu *v, const struct vm_exit *e);
void exit_rdmsr(struct vcpu *v, const struct vm_exit *e);
void exit_wrmsr(struct vcpu *v, const struct vm_exit *e);
void exit_io(struct vcpu *v, const struct vm_exit *e);
void exit_mmio(struct vcpu *v, const struct vm_exit *e);
void exit_hypercall(struct vcpu *v, const struct vm_exit *e);
void exit_cr(struct vcpu *v, const struct vm_exit *e);
void exit_xsetbv(struct vcpu *v, const struct vm_exit *e);
/* A hypercall that is not finished: the instruction is executed again, when the vCPU runs again. */
#define HC_AGAIN ((i64)1 << 62)
/* Raises the other end of a port of v's VM. Errors as evtchn_send(). */
int vcpu_send(struct vcpu *v, u32 port);
/* Queues #GP(0); a fault that cannot be delivered stops the VM. */
void vcpu_fault(struct vcpu *v, u8 vector, bool has_code, u32 code);
void vcpu_page_fault(struct vcpu *v, u64 addr, u32 code);
static inline void vcpu_gp(struct vcpu *v) { vcpu_fault(v, EXC_GP, true, 0); }

/* What guests see of the CPU (cpuid.c), worked out once at boot. */
void cpuid_policy_init(void);
void msr_policy_init(void);                                 /* msr.c */
bool cpuid_guest_has(u32 leaf, unsigned reg, unsigned bit); /* reg: 0 EAX .. 3 EDX */
u64 cpuid_xcr0_allowed(void);
unsigned cpuid_physical_bits(void);
u64 cr4_guest_mask(void); /* CR4 bits of features that guests see */

/* Optional devices of vm->config, the UART and the rest of the bus (io.c). */
void vm_add_devices(struct vm *vm);

#endif
