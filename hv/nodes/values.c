/* What stands behind bound nodes of the store: reading such a node calls a function read_...()
 * here, which asks the rest of the hypervisor, and writing one calls write_...(), which does what
 * the shell's command does, by the same table of parameters. The functions get the `ctx` that
 * node.h names, and the last part of the node's path as `name`. They write the value to `text`,
 * which stays empty if there is none; a write returns 0 or a negative errno. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "common/string.h"
#include "nodes/node.h"
#include "sched/machine.h"
#include "trace/trace.h"
#include "vcpu/vcpu.h"
#include "x86/percpu.h"

const struct pci_nodes *pci_nodes;

/* ---- parameters ---- */

char storelink_why[PARAM_WHY];

/* Returns the pool of a VM; NULL if the VM is going, so that its pool may be gone, too. */
static struct sched_pool *pool_of_vm(const struct vm *vm) {
    if (vm->state == VM_DYING) return NULL;
    return vm->sched.pool;
}

/* A parameter, with the pool whose policy has it, and the struct sched_pool or sched_vm to which
 * its value belongs. */
struct found_param {
    const struct param *param; /* NULL if the policy has none of that name, or there is no pool */
    struct sched_pool *pool;
    void *object;
};

/* Finds the parameter of that name. Whether `ctx` is a pool or a VM follows from the kind of the
 * parameter, which its name tells. */
static struct found_param find_param(void *ctx, const char *name) {
    struct found_param f = { .pool = ctx, .object = ctx };
    struct vm *vm = ctx;

    if (param_kind(name) == 'v') {
        f.pool = pool_of_vm(vm);
        f.object = &vm->sched;
    }
    if (f.pool && f.pool->policy) f.param = param_find(f.pool, name);
    return f;
}

/* Writes the value of a parameter as text. */
static void read_param(void *ctx, const char *name, char *text) {
    struct found_param f = find_param(ctx, name);
    char number[24];

    if (f.param)
        hv_snprintf(text, STORE_BOUND, "%s", param_text(f.param, f.pool, f.object, number));
}

/* Sets a parameter from the text that was written to its node. changes_from_store() keeps
 * storelink_param() from telling the watches a second time. */
static int write_param(void *ctx, const char *name, const char *text) {
    struct found_param f = find_param(ctx, name);
    int error;

    storelink_why[0] = 0;
    if (!f.param) return -EINVAL;
    changes_from_store(this_cpu()->id);
    error = param_set_text(f.param, f.pool, f.object, text, storelink_why);
    changes_from_store(SCHED_NO_CPU);
    return error;
}

const struct store_binding node_param = { write_param, read_param };

/* A VM asks for a number, and gets it if that is no more than the administrator's ceiling for
 * it. */
static int write_request(void *ctx, const char *name, const char *text) {
    struct vm *vm = ctx;
    int error;
    u64 n;

    if (parse_u64(text, &n, NULL)) return -EINVAL;
    if (n > vm->store.ceiling[param_number(&vm_names, name)]) return -EACCES;
    error = write_param(ctx, name, text);
    /* The parameter's own node has changed, too. */
    if (!error) storelink_param(NULL, &vm->sched, name);
    return error;
}

const struct store_binding node_request = { write_request, read_param };

/* ---- limits: numbers, to which `ctx` points ---- */

/* Reads a number to which `ctx` points. */
static void read_limit(void *ctx, const char *name, char *text) {
    hv_snprintf(text, STORE_BOUND, "%u", *(const u32 *)ctx);
}

/* Sets a number, which must be from `least` to `most`. */
static int write_limit(u32 *limit, u64 least, u64 most, const char *text) {
    u64 n;

    if (parse_u64(text, &n, NULL) || n < least || n > most) return -EINVAL;
    *limit = (u32)n;
    return 0;
}

/* Sets up to which number a VM may set one of its parameters itself. */
static int write_ceiling(void *ctx, const char *name, const char *text) {
    return write_limit(ctx, 0, UINT32_MAX, text);
}

const struct store_binding node_ceiling = { write_ceiling, read_limit };

#define QUOTA(field, most)                                                                         \
    { #field, offsetof(struct store_quota, field), most }
const struct quota node_quotas[NR_QUOTAS] = {
    QUOTA(nodes, 1000000),    QUOTA(watches, 1000),          QUOTA(value, XS_PAYLOAD_MAX),
    QUOTA(transactions, 100), QUOTA(perms, STORE_MAX_PERMS), QUOTA(requests, 1000),
    QUOTA(events, 200),       QUOTA(memory, 1u << 30),
};

/* Sets a quota: that of one VM, or the one with which new VMs begin. */
static int write_quota(void *ctx, const char *name, const char *text) {
    for (u32 i = 0; i < NR_QUOTAS; i++)
        if (strcmp(node_quotas[i].name, name) == 0)
            return write_limit(ctx, 1, node_quotas[i].most, text);
    return -EINVAL;
}

const struct store_binding node_quota = { write_quota, read_limit };

/* ---- a VM ---- */

/* Writes the CPU time in milliseconds that all vCPUs of a VM have had together. */
static void read_cpu_ms(void *ctx, const char *name, char *text) {
    const struct vm *vm = ctx;
    u64 ns = 0;

    for (u32 i = 0; vm->state != VM_DYING && i < vm->nr_vcpus && vm->vcpu[i]; i++) {
        struct sched_times t;

        sched_times(&vm->vcpu[i]->sched, &t);
        ns += t.state_ns[RS_RUNNING];
    }
    hv_snprintf(text, STORE_BOUND, "%llu", ns / NS_PER_MS);
}

const struct store_binding node_cpu_ms = { NULL, read_cpu_ms };

/* Writes the name of the VM's pool. */
static void read_vm_pool(void *ctx, const char *name, char *text) {
    const struct sched_pool *pool = pool_of_vm(ctx);

    if (pool) hv_snprintf(text, STORE_BOUND, "%s", pool->name);
}

/* Asks for the VM's move to another pool. The VM is paused until changes_step() has moved it, which
 * is possible only when no pCPU holds the state of one of its vCPUs. */
static int write_vm_pool(void *ctx, const char *name, const char *text) {
    struct sched_pool *to = sched_pool_find(text);
    struct vm *vm = ctx;

    if (!to || cpumask_empty(&to->cpus)) return -EINVAL;
    if (!pool_of_vm(vm) || vm->state == VM_CREATING) return -EINVAL;
    if (vm->turbo.pool) return -EINVAL; /* its turbo vCPU would stay behind */
    if (!vm->store.move) sched_pause(&vm->sched);
    vm->store.move = to;
    storelink_work();
    return 0;
}

const struct store_binding node_vm_pool = { write_vm_pool, read_vm_pool };

/* Writes how the scheduler has labelled a VM: as I/O-intensive, or not. */
static void read_vm_class(void *ctx, const char *name, char *text) {
    const struct vm *vm = ctx;

    hv_snprintf(text, STORE_BOUND, "%s", vm->sched.io ? "io" : "cpu");
}

const struct store_binding node_vm_class = { NULL, read_vm_class };

/* Writes how many I/O events a second the monitor has measured for a VM. */
static void read_vm_events(void *ctx, const char *name, char *text) {
    const struct vm *vm = ctx;

    hv_snprintf(text, STORE_BOUND, "%lu", vm->sched.io_rate / 1000);
}

const struct store_binding node_vm_events = { NULL, read_vm_events };

/* Writes whether a vCPU is online. */
static void read_vcpu(void *ctx, const char *name, char *text) {
    const struct vcpu *v = ctx;

    hv_snprintf(text, STORE_BOUND, "%s", v->sched.state == RS_OFFLINE ? "offline" : "online");
}

const struct store_binding node_vcpu = { NULL, read_vcpu };

/* The name of the node is the index of the device, one digit. */
_Static_assert(CONFIG_MAX_PCI <= 10, "one digit names a device of the machine");
static u32 pci_index(const char *name) { return (u32)(name[0] - '0'); }

/* Writes the state of a device of the machine that the VM has. */
static void read_pci(void *ctx, const char *name, char *text) {
    pci_nodes->tell(ctx, pci_index(name), text, STORE_BOUND);
}

/* The VM writes "released": its driver has let go of the device. */
static int write_pci(void *ctx, const char *name, const char *text) {
    if (strcmp(text, "released") != 0) return -EINVAL;
    return pci_nodes->let_go(ctx, pci_index(name));
}

const struct store_binding node_pci = { write_pci, read_pci };

/* ---- the host ---- */

/* Writes to which pool a pCPU belongs. */
static void read_cpu(void *ctx, const char *name, char *text) {
    const struct sched_pool *p = sched_pool_of_cpu((u32)(u64)ctx);

    if (p) hv_snprintf(text, STORE_BOUND, "%s", p->name);
}

const struct store_binding node_cpu = { NULL, read_cpu };

/* Writes a counter, as its sum over all pCPUs. */
static void read_counter(void *ctx, const char *name, char *text) {
    const struct counter *c = ctx;
    u64 sum = 0;

    for (u32 cpu = 0; cpu < nr_cpus; cpu++) sum += c->value[cpu];
    hv_snprintf(text, STORE_BOUND, "%lu", sum);
}

const struct store_binding node_counter = { NULL, read_counter };

/* Writes for how many seconds the machine has been running. */
static void read_uptime(void *ctx, const char *name, char *text) {
    hv_snprintf(text, STORE_BOUND, "%llu", machine_now() / NS_PER_S);
}

const struct store_binding node_uptime = { NULL, read_uptime };

/* Writes the name of a pool. A pool that is gone has no policy, and its nodes are empty. */
static void read_pool_name(void *ctx, const char *name, char *text) {
    const struct sched_pool *p = ctx;

    if (p->policy) hv_snprintf(text, STORE_BOUND, "%s", p->name);
}

const struct store_binding node_pool_name = { NULL, read_pool_name };

/* Writes which policy a pool runs. */
static void read_pool_policy(void *ctx, const char *name, char *text) {
    const struct sched_pool *p = ctx;

    if (p->policy) hv_snprintf(text, STORE_BOUND, "%s", p->policy->name);
}

const struct store_binding node_pool_policy = { NULL, read_pool_policy };
