/* The machine and its VMs, from one text file. Grammar in docs/config.md. Built for the host as well. */
#ifndef HV_CONFIG_H
#define HV_CONFIG_H

#include <takt/device.h>
#include "lib/parse.h"

#define CONFIG_NAME       32
#define CONFIG_VALUE      256
#define CONFIG_MAX_VMS    64
#define CONFIG_MAX_POOLS  17 /* Pool-0 among them */
#define CONFIG_MAX_PARAMS 16
#define CONFIG_MAX_PCI    4
#define CONFIG_MAX_KEYS   32 /* that one kind of section has */

/* How a VM asks for a device of the machine: a PCI device by its number (parse_pci() has the
 * form) in the lower 32 bits. With CONFIG_VF it asks for a virtual function. Then the lower 32
 * bits name the physical function: by its number, or with CONFIG_VF_NAMED by the N of its name
 * igbN. Bits 32 to 39 say which of its virtual functions, unless CONFIG_VF_ANY is set; bits 40
 * to 44 say how many thousand interrupts a second it may make, 0 if as many as the VM's other
 * devices. */
#define CONFIG_VF_NUMBER(asked) ((u32)((asked) >> 32 & 0xff))
#define CONFIG_VF_RATE(asked)   (((asked) >> 40 & 31) * 1000)
#define CONFIG_VF               BIT(63)
#define CONFIG_VF_NAMED         BIT(62)
#define CONFIG_VF_ANY           BIT(61)

/* Where a value was written. Lines and columns count from 1. Line 0 is the command line; if the column is 0,
 * too, nobody wrote it: it is a default. */
struct config_place {
    u16 line, column;
};

/* A setting that the parameter table (hv/sched/policy.h) knows by name; bound when its object exists. */
struct config_param {
    char name[CONFIG_NAME];
    char value[CONFIG_NAME];
    struct config_place at;
};

/* What a pool and a VM begin with. */
struct config_head {
    char name[CONFIG_NAME];
    u32 line;                                /* of its heading; 0: none */
    u32 section;                             /* which table of keys: hv/config.c */
    struct config_place at[CONFIG_MAX_KEYS]; /* of each key's value; config_place_of() reads it */
    u32 nr_params;
    struct config_param param[CONFIG_MAX_PARAMS];
};

/* `net = VM options`, `disk = VM options`: that VM serves the device, and may map all RAM of this one. */
struct config_device {
    u32 type; /* VIRTIO_ID_* */
    char back[CONFIG_NAME];
    char options[sizeof(((struct takt_back *)0)->options)]; /* handed on as they are */
};

enum on_crash { ON_CRASH_DESTROY, ON_CRASH_RESTART, ON_CRASH_PRESERVE };
/* See smp_fault_tsc and smp_fault_no_adjust. */
enum boot_fault { BOOT_FAULT_NONE, BOOT_FAULT_TSC, BOOT_FAULT_TSC_STUCK };
enum on_dma_fault { ON_DMA_FAULT_STOP, ON_DMA_FAULT_LOG };

struct config_vm {
    struct config_head head;
    char image[CONFIG_VALUE]; /* name of a boot module */
    char cmdline[CONFIG_VALUE];
    u64 memory; /* bytes */
    u32 vcpus;
    bool turbo;          /* one vCPU more, number 0, in the turbo pool of its pool */
    struct cpumask cpus; /* hard affinity */
    char pool[CONFIG_NAME];
    enum on_crash on_crash;
    struct config_device device[TAKT_MAX_DEVICES];
    u32 nr_devices;
    bool observer;                    /* reads all of the store, the log among it */
    bool debugcon, debug_exit, start; /* optional devices; started at boot (default 1) */
    u32 nr_pci;                       /* devices of the machine that are given to it */
    u64 pci[CONFIG_MAX_PCI];          /* what they are asked for by: above */
    bool unsafe_dma;         /* where no IOMMU confines them they may reach all memory: its RAM is one block
                                below 4 GiB */
    bool allow_shared_group; /* what they can reach unseen may be another's */
    enum on_dma_fault on_dma_fault; /* one of them reached for what it may not: the VM is stopped, or not */
    u64 irq_rate;                   /* interrupts a second that each of them may make; 0: by its kind */
    u32 demand_permille; /* of one pCPU a vCPU: what the image will ask for (`demand = 40%`); 1000 by default.
                            For reports only. */
};

struct config_pool {
    struct config_head head;
    char sched[CONFIG_NAME];
    char preset[CONFIG_NAME];   /* "" or a preset of the policy; applied before the parameters */
    char turbo_of[CONFIG_NAME]; /* "" or the pool above that it is the turbo pool of */
    struct cpumask cpus;        /* of Pool-0 those that no other pool has */
    struct cpu_choice choice;   /* instead: of those that no pool names, chosen at boot */
};

struct config {
    struct config_pool
        pool[CONFIG_MAX_POOLS]; /* first; the first of them is Pool-0, which [hypervisor] describes */
    u32 nr_pools;
    const char *file;           /* as config_parse was told; for messages */
    bool lines_are_good;        /* config_parse understood each line */
    char console[CONFIG_VALUE]; /* "com1,115200" */
    char trace_console[CONFIG_VALUE];
    char store_console[CONFIG_VALUE];
    u32 loglvl;
    u64 seed;
    u32 vfs;           /* virtual functions that each physical one gets */
    bool relax_rmrr;   /* devices that firmware goes on using may be given to VMs: vtd.h */
    bool virtual_irqs; /* guests' interrupts are virtual ones: virt.h */
    bool noreboot;
    u32 watchdog;              /* s without a sign of life, after which the machine is reset; 0: for ever */
    bool smt;                  /* all threads of a core are used; else the first of each */
    bool selftest;             /* instead of VMs the self test runs (selftest/selftest.h) */
    bool probe;                /* instead of VMs the machine is described (probe.h) */
    u32 boot_fault;            /* enum boot_fault: made at boot, to see that it is noticed */
    u32 guest_console_log;     /* guests' output to the log (`guest_console = log`); else kept until somebody
                                  attaches */
    bool top;                  /* the live table starts after boot */
    bool record;               /* the scheduler is recorded from boot, to trace_console */
    char script[CONFIG_VALUE]; /* boot module with timed shell commands */
    struct config_vm vm[CONFIG_MAX_VMS];
    u32 nr_vms;
};

/* Hears of each problem: fatal or a warning. `text` is one sentence that begins with "file:line:column: ". */
typedef void (*config_report)(void *ctx, bool fatal, const char *text);
/* Names the parameters that the grammar itself does not have: number `i` of them, from 0; NULL after the
 * last. *scope becomes 'p' if pools have it, 'v' if VMs have it. A name may come more than once. */
typedef const char *(*config_param_at)(u32 i, char *scope);

void config_defaults(struct config *c);
void config_vm_defaults(struct config_vm *v, const char *name);
/* NULL: there is none. */
const struct config_vm *config_find_vm(const struct config *c, const char *name);
const struct config_pool *config_find_pool(const struct config *c, const char *name);
/* Parses `len` bytes of `text`. `file` is what messages call it; the string must live as long as `c`. Returns
 * 0, or -EINVAL after at least one fatal report. No machine may be made of `c` then; but if
 * c->lines_are_good, other checks may go on to look for more errors. */
int config_parse(struct config *c, const char *file, const char *text, size_t len, config_param_at param_at,
                 config_report report, void *ctx);
/* Overrides from GRUB's command line, after config_parse: words separated by blanks, `key=value` or a bare
 * key for "yes". Keys are those of [hypervisor], Xen's sched_credit_tslice_ms= and sched_ratelimit_us=, and
 * sched_X= for any pool parameter X. Unknown words are a warning. Reports say "command line:1:column: ".
 * Returns as config_parse. */
int config_cmdline(struct config *c, const char *cmdline, config_param_at param_at, config_report report,
                   void *ctx);
/* "igb0/any", "01:00.0/2@4000" to a CONFIG_VF; -EINVAL. */
int config_vf(const char *s, u64 *request);
/* Pools that say how many CPUs, not which, get them of those in `there` that no pool names, but for CPU 0, or
 * as many as there are; Pool-0 lacks them then. cache_of: lib/choose.h. */
void config_choose_cpus(struct config *c, const struct cpumask *there, u32 (*cache_of)(u32 cpu));
/* One key of a [vm] section, replacing what is set. Returns as config_parse; an unknown key is an error here.
 * The sentence has no place in front. */
int config_vm_set(struct config_vm *v, const char *key, const char *value, config_param_at param_at,
                  config_report report, void *ctx);

/* ---- what only the whole file can tell: hv/config_check.c ---- */

/* Where the value of a section's key was written; if it was not, or `key` is NULL, the section's heading. */
struct config_place config_place_of(const struct config_head *h, const char *key);
/* Reports a sentence about that place. Returns -EINVAL if it is fatal, else 0. */
int config_complain(const struct config *c, struct config_place at, bool fatal, config_report report,
                    void *ctx, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
/* Do the sections go together? config_parse calls it. Takes from Pool-0 the CPUs that other pools name.
 * Returns as config_parse. */
int config_check(struct config *c, config_report report, void *ctx);
/* Can a machine with `nr_cpus` CPUs and `memory` bytes of RAM have these pools and VMs? Call it after the
 * command line was read. Returns as config_parse, but `c` stays usable. */
int config_check_machine(const struct config *c, u32 nr_cpus, u64 memory, config_report report, void *ctx);

#endif
