/* Which nodes there are in the store, a tree of named values ("nodes") that VMs, the hypervisor and
 * programs on the host share: the home of each VM, and the host's. docs/store.md has the list. A
 * "bound" node holds no value: reading or writing it calls a function (values.c). Nodes are made
 * one a step, in groups of alike ones, because making all at once would take too long. */
#include <takt/errno.h>
#include "common/string.h"
#include "nodes/node.h"
#include "trace/trace.h"
#include "x86/percpu.h"

struct store_client nodes_client;

const struct store_perms node_operator_only = { 1, { { 0, 0 } } };

/* Returns the path of a node of `vm`, or of the host if `vm` is NULL, followed by the formatted
 * text. The path lies in a static buffer until the next call. One buffer is enough, because all
 * callers hold store_lock. */
const char *node_path(const struct vm *vm, const char *fmt, ...) {
    static char text[160];
    va_list ap;
    int len;

    if (vm)
        len = hv_snprintf(text, sizeof(text), STORE_HOME, vm->id);
    else
        len = hv_snprintf(text, sizeof(text), "/takt/host");
    va_start(ap, fmt);
    hv_vsnprintf(text + len, sizeof(text) - (u32)len, fmt, ap);
    va_end(ap);
    return text;
}

/* Writes text as the value of a node, which is made if it does not exist. Returns 0 or a negative
 * errno. */
int node_put(const char *path, const char *text) {
    return store_write(&nodes_client, 0, path, text, (u32)strlen(text));
}

/* Writes a number as the value of a node. */
static int layout_put_number(const char *path, u64 n) {
    char number[24];

    hv_snprintf(number, sizeof(number), "%lu", n);
    return node_put(path, number);
}

/* Makes a node that only has others below it. */
static int make_dir(const char *path) { return store_mkdir(&nodes_client, 0, path); }

/* Sets which VMs may read and write a node. */
static int set_perms(const char *path, const struct store_perms *perms) {
    return store_set_perms(&nodes_client, 0, path, perms);
}

/* Makes the node of quota number `i`, a limit of what a VM may have in the store. */
static int bind_quota(const struct vm *vm, u32 i, struct store_quota *q,
                      const struct store_perms *perms) {
    u32 *limit = (u32 *)((char *)q + node_quotas[i].at);

    return store_bind(node_path(vm, "/quota/%s", node_quotas[i].name), &node_quota, limit, perms);
}

/* ---- a VM's home. Each function makes node number `item` of its group, and returns
 * STORENODES_END if the group has no such node. ---- */

/* Returns permissions by which the VM owns the node. */
static struct store_perms perms_own(const struct vm *vm) {
    return (struct store_perms){ 1, { { (u16)vm->id, 0 } } };
}

/* Returns permissions by which the operator owns the node, and the VM may read it. */
static struct store_perms perms_read(const struct vm *vm) {
    return (struct store_perms){ 2, { { 0, 0 }, { (u16)vm->id, STORE_R } } };
}

/* Returns permissions by which the operator owns the node, and the VM may read and write it. */
static struct store_perms perms_write(const struct vm *vm) {
    return (struct store_perms){ 2, { { 0, 0 }, { (u16)vm->id, STORE_R | STORE_W } } };
}

/* ---- io/: what a VM and those that serve its devices tell each other (docs/collab.md) ---- */

/* Returns whether `back` serves a device of `front`, by the configuration of `front`. */
static bool serves(const struct vm *back, const struct vm *front) {
    for (u32 i = 0; i < front->config.nr_devices; i++)
        if (strcmp(front->config.device[i].back, back->name) == 0) return true;
    return false;
}

/* Gives each back end of the VM the right to write the VM's node io/. Returns 0 or a negative
 * errno. A back end can write to all RAM of the VM anyway, so this right gives it nothing new. */
int nodes_share_io(const struct vm *vm) {
    struct store_perms perms = perms_write(vm);

    for (struct vm *other = vm_next(NULL); other; other = vm_next(other)) {
        if (other == vm || !serves(other, vm) || perms.nr == STORE_MAX_PERMS) continue;
        perms.of[perms.nr].id = (u16)other->id;
        perms.of[perms.nr].rights = STORE_R | STORE_W;
        perms.nr++;
    }
    return set_perms(node_path(vm, "/io"), &perms);
}

/* Called when the VM `back` is new. Sets the rights on io/ anew for the VMs whose devices it
 * serves. Their watches of io/ fire then. */
static int share_io_of_fronts(const struct vm *back) {
    for (struct vm *vm = vm_next(NULL); vm; vm = vm_next(vm))
        if (serves(back, vm)) __atomic_fetch_or(&vm->store.touched, STORELINK_IO, __ATOMIC_SEQ_CST);
    storelink_work();
    return 0;
}

/* ---- groups of nodes of a VM's home ---- */

/* Makes node number `item` of those that every VM has. Nodes whose values change are bound to
 * functions, which read or write what the hypervisor knows. */
static int vm_home(struct vm *vm, u32 item) {
    const struct store_perms own = perms_own(vm), reads = perms_read(vm);

    switch (item) {
    case 0: return make_dir(node_path(vm, "%s", ""));
    case 1: return set_perms(node_path(vm, "%s", ""), &reads);
    case 2: return node_put(node_path(vm, "/name"), vm->name);
    case 3: return layout_put_number(node_path(vm, "/domid"), vm->id);
    case 4: return layout_put_number(node_path(vm, "/memory/target"), vm->mem.size >> 10);
    case 5: return node_put(node_path(vm, "/console/type"), "takt");
    case 6: return make_dir(node_path(vm, "/data"));
    case 7: return set_perms(node_path(vm, "/data"), &own);
    case 8: return make_dir(node_path(vm, "/io"));
    case 9: return nodes_share_io(vm);
    case 10: return share_io_of_fronts(vm);
    case 11: return node_put(node_path(vm, "/sched/turbo"), vm->config.turbo ? "1" : "0");
    case 12: return store_bind(node_path(vm, "/cpu_ms"), &node_cpu_ms, vm, &reads);
    case 13: return store_bind(node_path(vm, "/sched/pool"), &node_vm_pool, vm, &reads);
    case 14: return store_bind(node_path(vm, "/sched/class"), &node_vm_class, vm, &reads);
    case 15: return store_bind(node_path(vm, "/sched/events_per_s"), &node_vm_events, vm, &reads);
    default: return STORENODES_END;
    }
}

/* Makes three nodes for each parameter of the VM: its value, which the VM may read; the most that
 * the VM may ask for; and what it asks for, which it may write. */
static int vm_params(struct vm *vm, u32 item) {
    const struct store_perms reads = perms_read(vm), writes = perms_write(vm);
    u32 i = NO_PARAMS + item / 3;
    const char *name;

    if (i >= vm_names.nr) return STORENODES_END;
    name = vm_names.of[i];
    switch (item % 3) {
    case 0: return store_bind(node_path(vm, "/sched/%s", name), &node_param, vm, &reads);
    case 1:
        return store_bind(node_path(vm, "/ceiling/%s", name), &node_ceiling, &vm->store.ceiling[i],
                          &reads);
    default: return store_bind(node_path(vm, "/request/%s", name), &node_request, vm, &writes);
    }
}

/* Makes one node for each vCPU of the VM. */
static int vm_vcpus(struct vm *vm, u32 item) {
    const struct store_perms reads = perms_read(vm);

    if (item >= vm->nr_vcpus) return STORENODES_END;
    return store_bind(node_path(vm, "/vcpu/%u/availability", item), &node_vcpu, vm->vcpu[item],
                      &reads);
}

/* Makes two nodes for each device of the VM. */
static int vm_devices(struct vm *vm, u32 item) {
    const struct config_device *d = &vm->config.device[item / 2];
    const char *kind = "vbd"; /* as XenStore calls them; it has no name for the last one */

    if (item / 2 >= vm->config.nr_devices) return STORENODES_END;
    if (d->type == VIRTIO_ID_NET) kind = "vif";
    if (d->type == VIRTIO_ID_RNG) kind = "rng";
    if (item % 2 == 0)
        return node_put(node_path(vm, "/device/%s/%u/backend", kind, item / 2), d->back);
    return node_put(node_path(vm, "/device/%s/%u/options", kind, item / 2), d->options);
}

/* Makes one node for each quota of the VM. */
static int vm_quotas(struct vm *vm, u32 item) {
    const struct store_perms reads = perms_read(vm);

    if (item >= NR_QUOTAS) return STORENODES_END;
    return bind_quota(vm, item, &vm->store.client.quota, &reads);
}

/* Makes one node for each device of the machine that the VM may have. */
static int vm_pci(struct vm *vm, u32 item) {
    const struct store_perms writes = perms_write(vm);

    if (item >= CONFIG_MAX_PCI || !pci_nodes) return STORENODES_END;
    return store_bind(node_path(vm, "/device/pci/%u", item), &node_pci, vm, &writes);
}

typedef int (*node_group)(struct vm *vm, u32 item);

/* Makes the node to which *at points. If its group has no more nodes, goes on to the next group
 * that has one. */
static int make_next(const node_group *groups, u32 nr, struct vm *vm, struct node_walk *at) {
    for (; at->group < nr; at->group++) {
        int r = groups[at->group](vm, at->item);

        if (r == 0) at->item++;
        if (r != STORENODES_END) return r;
        at->item = 0;
    }
    return STORENODES_END;
}

/* Makes the next node of a VM. Returns 0, STORENODES_END if there are no more, or a negative
 * errno. */
int nodes_make_next_of_vm(struct vm *vm, struct node_walk *at) {
    static const node_group groups[] = {
        vm_home, vm_params, vm_vcpus, vm_devices, vm_quotas, vm_pci
    };

    return make_next(groups, ARRAY_SIZE(groups), vm, at);
}

/* ---- the host's nodes: `vm` is NULL ---- */

/* Opens the connection by which the hypervisor makes nodes, and makes the first node of the
 * host. */
static int host_begin(struct vm *vm, u32 item) {
    switch (item) {
    case 0: changes_init(); return store_open(&nodes_client, 0, true);
    case 1:
        return store_bind(node_path(NULL, "/uptime_s"), &node_uptime, NULL, &node_operator_only);
    default: return STORENODES_END;
    }
}

/* Makes one node for each pCPU. */
static int host_cpus(struct vm *vm, u32 item) {
    void *cpu = (void *)(u64)item;

    if (item >= nr_cpus) return STORENODES_END;
    return store_bind(node_path(NULL, "/cpu/%u/pool", item), &node_cpu, cpu, &node_operator_only);
}

/* Makes one node for each counter. */
static int host_counters(struct vm *vm, u32 item) {
    const struct counter *c = __start_counters + item;

    if (c >= __stop_counters) return STORENODES_END;
    return store_bind(node_path(NULL, "/counter/%s", c->name), &node_counter, (void *)c,
                      &node_operator_only);
}

/* Makes one node for each quota that new VMs begin with. */
static int host_quotas(struct vm *vm, u32 item) {
    if (item >= NR_QUOTAS) return STORENODES_END;
    return bind_quota(NULL, item, &store_quota, &node_operator_only);
}

/* Makes the directory of the log. */
static int host_log(struct vm *vm, u32 item) {
    switch (item) {
    case 0: return make_dir(node_path(NULL, "/log"));
    case 1: return set_perms(node_path(NULL, "/log"), &node_operator_only);
    default: return STORENODES_END;
    }
}

/* Makes the next node of the host. Returns 0, STORENODES_END if there are no more, or a negative
 * errno. */
int nodes_make_next_of_host(struct node_walk *at) {
    static const node_group groups[] = { host_begin, host_cpus, host_counters, host_quotas,
                                         host_log };

    return make_next(groups, ARRAY_SIZE(groups), NULL, at);
}
