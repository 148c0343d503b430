/* The configuration: the machine and its VMs, as one text file describes them. docs/config.md has
 * the grammar. Host programs use this parser as well (tools/cfgdump.c). */
#ifndef HV_CONFIG_H
#define HV_CONFIG_H

#include <takt/device.h>
#include "lib/choose.h"

#define CONFIG_NAME       32
#define CONFIG_VALUE      256
#define CONFIG_CMDLINE    2048 /* of a VM's command line, as long as Linux reads it */
#define CONFIG_MAX_VMS    256
#define CONFIG_MAX_POOLS  17 /* Pool-0 among them */
#define CONFIG_MAX_PARAMS 16
#define CONFIG_MAX_PCI    4
#define CONFIG_MAX_KEYS   32 /* the most that one kind of section has */

/* A u64 says which device of the machine a VM asks for. Without CONFIG_VF it is a PCI device, whose
 * number (see parse_pci()) is in the lower 32 bits. With CONFIG_VF it is a virtual function:
 *   bits  0-31  its physical function: the number, or with CONFIG_VF_NAMED the N of its name igbN
 *   bits 32-39  which of the virtual functions; not used with CONFIG_VF_ANY
 *   bits 40-44  how many thousand interrupts a second it may make; 0: the VM's own limit holds */
#define CONFIG_VF_NUMBER(asked) ((u32)((asked) >> 32 & 0xff))
#define CONFIG_VF_RATE(asked)   (((asked) >> 40 & 31) * 1000)
#define CONFIG_VF               BIT(63)
#define CONFIG_VF_NAMED         BIT(62)
#define CONFIG_VF_ANY           BIT(61)

/* Where a value was written. Lines and columns count from 1. Line 0 is the command line. If the
 * column is 0 as well, the value is a default that nobody wrote. */
struct config_place {
    u16 line, column;
};

/* A setting that the parameter table (hv/sched/policy.h) knows by name. It is kept as text, because
 * it can be applied only when the VM or the pool exists. */
struct config_param {
    char name[CONFIG_NAME];
    char value[CONFIG_NAME];
    struct config_place at;
};

/* What the descriptions of pools and of VMs have in common. */
struct config_head {
    char name[CONFIG_NAME];
    u32 line;                                /* of the section's heading; 0: the file has none */
    u32 section;                             /* enum config_section, in hv/config_keys.h */
    struct config_place at[CONFIG_MAX_KEYS]; /* of each key's value; config_place_of() reads it */
    u32 nr_params;
    struct config_param param[CONFIG_MAX_PARAMS];
};

/* `net = VM options`, `disk = VM options`: VM `back` serves the device. It may map all RAM of the
 * VM that has the device. */
struct config_device {
    u32 type; /* VIRTIO_ID_* */
    char back[CONFIG_NAME];
    /* for the back end, which checks them */
    char options[sizeof(((struct takt_back *)0)->options)];
};

enum on_crash { ON_CRASH_DESTROY, ON_CRASH_RESTART, ON_CRASH_PRESERVE };
/* A fault that is made at boot on purpose, to see that it is noticed: smp_fault_tsc and
 * smp_fault_no_adjust say what happens. */
enum boot_fault { BOOT_FAULT_NONE, BOOT_FAULT_TSC, BOOT_FAULT_TSC_STUCK };
enum on_dma_fault { ON_DMA_FAULT_STOP, ON_DMA_FAULT_LOG };

struct config_vm {
    struct config_head head;
    char image[CONFIG_VALUE];   /* name of a boot module, or "" */
    char kernel[CONFIG_VALUE];  /* instead of `image`: the VM is a PC for an operating system */
    char ramdisk[CONFIG_VALUE]; /* name of a boot module that a kernel finds in its RAM, or "" */
    char cmdline[CONFIG_CMDLINE];
    u64 memory; /* bytes */
    u32 vcpus;
    /* one vCPU more, number 0, which runs in the turbo pool of the VM's pool */
    bool turbo;
    struct cpumask cpus; /* hard affinity */
    char pool[CONFIG_NAME];
    enum on_crash on_crash;
    struct config_device device[TAKT_MAX_DEVICES];
    u32 nr_devices;
    bool observer;             /* may read the whole store, the log among it */
    bool debugcon, debug_exit; /* the VM has these devices */
    bool start;                /* the VM is started at boot; the default is true */
    u32 nr_pci;                /* devices of the machine that the VM asks for */
    u64 pci[CONFIG_MAX_PCI];   /* which they are: see CONFIG_VF */
    /* The VM may have its PCI devices without an IOMMU that confines them, so that they can reach
     * all memory. Its RAM is then one block below 4 GiB. */
    bool unsafe_dma;
    /* The VM may have a PCI device that could reach a device of somebody else without the IOMMU's
     * seeing it. */
    bool allow_shared_group;
    /* what happens to the VM when a device reaches for what it may not */
    enum on_dma_fault on_dma_fault;
    /* interrupts a second that each device may make; 0: as its kind has it */
    u64 irq_rate;
    /* What each vCPU will ask for, in thousandths of a pCPU (`demand = 40%`); the default is 1000.
     * For reports only. */
    u32 demand_permille;
};

/* Does the CPU emulate a part of the LAPICs of guests (struct virt_apic)? */
enum apicv { APICV_AUTO, APICV_ON, APICV_OFF };

struct config_pool {
    struct config_head head;
    char sched[CONFIG_NAME];
    char preset[CONFIG_NAME];   /* "" or a preset of the policy; applied before the parameters */
    char turbo_of[CONFIG_NAME]; /* "", or the pool described before it whose turbo pool it is */
    struct cpumask cpus;        /* Pool-0 has those that no other pool has */
    /* instead of `cpus`: a node or a number, chosen at boot from those that no pool names */
    struct cpu_choice choice;
};

/* The testbed that the simulation of the whole machine takes itself for (docs/simulation.md). On a
 * machine the section is ignored. A field is 0 if the file does not give its key. */
struct config_model {
    struct config_head head;
    u64 clock;  /* Hz */
    u64 cpi;    /* cycles per instruction, in thousandths */
    u64 memory; /* bytes of RAM */
    u64 copy;   /* bytes a second that memcpy() moves */
    /* ns: the way from a guest to the hypervisor and back; from a kick until its pCPU notices */
    u64 exit, kick;
    /* ns: what a switch of vCPUs and what an interrupt of a guest cost besides the hypervisor's
     * code */
    u64 switch_cost, inject;
    /* A pCPU's cache, and what of it each VM uses, in bytes; how fast that is filled again, in
     * bytes a second. */
    u64 cache, warm, refill;
    char nic[CONFIG_NAME]; /* "", or the VM that plays a card with virtual functions */
    u64 itr;               /* ns: the shortest time between two interrupts of such a function */
    u64 remote;            /* how much slower the memory of another socket is, in thousandths */
    u32 posted;            /* 1: interrupts reach a guest that runs without an exit */
    u32 socket;            /* pCPUs that each socket has */
    u32 cpus;
};

struct config {
    /* the first is Pool-0, which [hypervisor] describes */
    struct config_pool pool[CONFIG_MAX_POOLS];
    u32 nr_pools;
    const char *file;           /* the name that config_parse() was given, for messages */
    bool lines_are_good;        /* config_parse() understood each line */
    char console[CONFIG_VALUE]; /* "com1,115200" */
    char trace_console[CONFIG_VALUE];
    char store_console[CONFIG_VALUE];
    u32 loglvl;
    u64 seed;
    u32 vfs;           /* virtual functions that each physical one gets */
    bool relax_rmrr;   /* devices that the firmware goes on using may be given to VMs: vtd.h */
    bool virtual_irqs; /* guests get their interrupts as virtual interrupts of the CPU: virt.h */
    u32 apicv;         /* enum apicv */
    /* what AMD's CPUs may be used for, if they have it: svm_allow() */
    bool decode_assists, flush_by_asid;
    bool noreboot;
    /* the machine is reset after so many seconds without a sign of life; 0: never */
    u32 watchdog;
    /* all threads of a core are used; if false, only the first of each core */
    bool smt;
    u32 max_cpus;   /* so many CPUs of the machine are used at most */
    bool selftest;  /* the self test runs instead of VMs (selftest/selftest.h) */
    bool probe;     /* the machine is described instead of running VMs (probe.h) */
    u32 boot_fault; /* enum boot_fault */
    /* 1: what guests print goes to the log; 0: it is kept until somebody attaches */
    u32 guest_console_log;
    bool top;    /* the live table starts after boot */
    bool record; /* what the scheduler does is recorded from boot on, to trace_console */
    char script[CONFIG_VALUE]; /* "" or the name of a boot module with timed shell commands */
    struct config_vm *vm;      /* the caller of config_defaults() gave room for `max_vms` */
    u32 nr_vms, max_vms;
    struct config_model model;
};

/* Called with each problem, which is an error if `fatal`, else a warning. `text` is one sentence
 * that begins with "file:line:column: ". It is valid during the call only. */
typedef void (*config_report)(void *ctx, bool fatal, const char *text);
/* Returns the name of parameter number `i` (from 0) of the policies, which the grammar itself does
 * not know; NULL after the last. *scope becomes 'p' if pools have it, 'v' if VMs have it. A name
 * may come more than once. */
typedef const char *(*config_param_at)(u32 i, char *scope);

/* The name of the boot module that the VM starts from. "": its section names none. */
static inline const char *config_vm_image(const struct config_vm *v) {
    if (*v->kernel) return v->kernel;
    return v->image;
}

/* Fills in the values of a file that says nothing: Pool-0 alone, and no VM. The descriptions of VMs
 * will be written to `vm`, where there is room for `max` of them. It belongs to the caller, and is
 * needed as long as `c`. */
void config_defaults(struct config *c, struct config_vm *vm, u32 max);
/* For how many VMs there has to be room, at most CONFIG_MAX_VMS, before `len` bytes of `text` are
 * parsed. It may be a few more than the text describes. */
u32 config_room(const char *text, size_t len);
/* Fills in what a VM has whose section says nothing, all but its image. `name` is copied. */
void config_vm_defaults(struct config_vm *v, const char *name);
/* The VM or pool of that name. NULL: there is none. */
const struct config_vm *config_find_vm(const struct config *c, const char *name);
const struct config_pool *config_find_pool(const struct config *c, const char *name);
/* Parses `len` bytes of `text` into `c`, which config_defaults() has filled in. `file` is what
 * messages call it; the string must live as long as `c`. Returns 0, or -EINVAL after at least one
 * fatal report. `c` must not be used to run VMs then; but if c->lines_are_good, other checks may go
 * on to look for more errors. */
int config_parse(struct config *c, const char *file, const char *text, size_t len,
                 config_param_at param_at, config_report report, void *ctx);
/* Applies the boot loader's command line, after config_parse(). Its words, with blanks between
 * them, are `key=value`, or a bare `key` for "yes". Keys are those of [hypervisor], Xen's
 * sched_credit_tslice_ms= and sched_ratelimit_us=, and sched_X= for any pool parameter X. An
 * unknown word is a warning. Reports begin with "command line:1:column: ". Returns as
 * config_parse(). */
int config_cmdline(struct config *c, const char *cmdline, config_param_at param_at,
                   config_report report, void *ctx);
/* Reads "igb0/any" or "01:00.0/2@4000" (4000 interrupts a second) to a CONFIG_VF. Returns 0, or
 * -EINVAL if it is neither; *request is then undefined. */
int config_vf(const char *s, u64 *request);
/* Gives CPUs to the pools that do not name theirs. They get them from those in `there` that no pool
 * names, without CPU 0; if these are too few, as many as there are. Pool-0 loses them. First come
 * the pools that want a node, and then those that want a number. */
void config_choose_cpus(struct config *c, const struct cpumask *there,
                        const struct cpu_places *places);
/* Sets one key of a [vm] section, which replaces the value that it has. Returns as config_parse();
 * an unknown key is an error here. The reported sentence has no place in front. */
int config_vm_set(struct config_vm *v, const char *key, const char *value, config_param_at param_at,
                  config_report report, void *ctx);

/* ---- what only the whole file can tell: hv/config_check.c ---- */

/* Where the value of a section's key was written. If the section does not set it, or `key` is NULL,
 * the place of the section's heading. */
struct config_place config_place_of(const struct config_head *h, const char *key);
/* Reports a sentence about that place. Returns -EINVAL if it is fatal, else 0. */
int config_complain(const struct config *c, struct config_place at, bool fatal,
                    config_report report, void *ctx, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
/* Checks whether the sections go together, and takes from Pool-0 the CPUs that other pools name.
 * Only config_parse() calls it. Returns as config_parse(). */
int config_check(struct config *c, config_report report, void *ctx);
/* Checks whether a machine with `nr_cpus` CPUs and `memory` bytes of RAM can have these pools and
 * VMs. Call it after the command line was read. Returns 0, or -EINVAL after at least one fatal
 * report; `c` stays usable all the same. */
int config_check_machine(const struct config *c, u32 nr_cpus, u64 memory, config_report report,
                         void *ctx);

#endif
