/* The nodes that Takt keeps in the store: a VM's home and the host's. Those that stand for something that
 * changes are bound: reading one asks, writing one does what the shell's command does, by the same table of
 * parameters. docs/store.md has the list. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "platform/console.h"
#include "platform/timer.h"
#include "sched/machine.h"
#include "vm/vm.h"
#include "x86/percpu.h"

static struct store_client self; /* the hypervisor's */

/* What param_hook may name: first what is no parameter, then those of all policies. Nodes are there for all,
 * and empty where a pool's policy has none of that name. A name's place in here is its number in masks. */
#define NO_PARAMS 2
struct names {
    u32 nr, max;
    const char *of[64];
};
static struct names vm_names = { NO_PARAMS, STORELINK_PARAMS, { "pool", "class" } },
                    pool_names = { NO_PARAMS, 64, { "name", "policy" } };

static struct {
    struct sched_pool *pool; /* NULL: there was none yet of this id */
    u64 touched;             /* atomically: bits as in pool_names. A node that is made once stays */
} pools[SCHED_MAX_POOLS];
/* The pCPU that sets a parameter on behalf of the store; watches hear already. */
static u32 writer = SCHED_NO_CPU;

static u32 number_of(const struct names *names, const char *name) {
    u32 i = 0;

    while (i < names->nr && strcmp(names->of[i], name)) i++;
    return i;
}

static void collect_names(void) {
    for (u32 i = 0; sched_policies[i]; i++)
        for (const struct param *p = sched_policies[i]->params; p && p->name; p++) {
            struct names *names = p->scope == PARAM_POOL ? &pool_names : &vm_names;

            if (number_of(names, p->name) == names->nr && names->nr < names->max)
                names->of[names->nr++] = p->name;
        }
}

static void touched(u64 *mask, const struct names *names, const char *name) {
    u64 all = ~0ull >> (64 - names->nr);

    __atomic_fetch_or(mask, name ? all & BIT(number_of(names, name)) : all, __ATOMIC_SEQ_CST);
    storelink_work();
}

void storelink_param(struct sched_pool *p, struct sched_dom *d, const char *name) {
    if (writer == this_cpu()->id) return;
    if (!d) {
        pools[p->id].pool = p;
        touched(&pools[p->id].touched, &pool_names, name);
    } else if (!(d->id & SCHED_TURBO)) { /* that part has no parameters of its own */
        touched(&container_of(d, struct vm, sched)->store.touched, &vm_names, name);
    }
}

void storelink_pci(struct vm *vm, u32 index) {
    __atomic_fetch_or(&vm->store.touched, BIT(STORELINK_PARAMS + index), __ATOMIC_SEQ_CST);
    storelink_work();
}

/* ---- parameters ---- */

char storelink_why[PARAM_WHY];

static struct sched_pool *pool_of(const struct vm *vm) {
    return vm->state == VM_DYING ? NULL : vm->sched.pool;
}

/* A parameter's name says whether `ctx` is a pool or a VM. NULL: the policy has none of that name. */
static const struct param *find(void *ctx, const char *name, struct sched_pool **pool, void **object) {
    struct vm *vm = ctx;

    if (param_kind(name) == 'v') {
        *pool = pool_of(vm);
        *object = &vm->sched;
    } else {
        *pool = *object = ctx;
    }
    return *pool && (*pool)->policy ? param_find(*pool, name) : NULL;
}

static void read_param(void *ctx, const char *name, char *text) {
    struct sched_pool *pool;
    void *object;
    const struct param *p = find(ctx, name, &pool, &object);
    char number[24];

    if (p) hv_snprintf(text, STORE_BOUND, "%s", param_text(p, pool, object, number));
}

static int write_param(void *ctx, const char *name, const char *text) {
    struct sched_pool *pool;
    void *object;
    const struct param *p = find(ctx, name, &pool, &object);
    int error;

    storelink_why[0] = 0;
    if (!p) return -EINVAL;
    __atomic_store_n(&writer, this_cpu()->id, __ATOMIC_SEQ_CST);
    error = param_set_text(p, pool, object, text, storelink_why);
    __atomic_store_n(&writer, SCHED_NO_CPU, __ATOMIC_SEQ_CST);
    return error;
}

/* A VM asks for a number, which it gets if that is no more than the administrator's ceiling for it. */
static int write_request(void *ctx, const char *name, const char *text) {
    struct vm *vm = ctx;
    int error;
    u64 n;

    if (parse_u64(text, &n, NULL)) return -EINVAL;
    if (n > vm->store.ceiling[number_of(&vm_names, name)]) return -EACCES;
    error = write_param(ctx, name, text);
    if (!error) storelink_param(NULL, &vm->sched, name);
    return error;
}

/* ---- limits: numbers that are what `ctx` points to ---- */

static void read_limit(void *ctx, const char *name, char *text) {
    hv_snprintf(text, STORE_BOUND, "%u", *(const u32 *)ctx);
}

static int write_limit(u32 *limit, u64 least, u64 most, const char *text) {
    u64 n;

    if (parse_u64(text, &n, NULL) || n < least || n > most) return -EINVAL;
    *limit = (u32)n;
    return 0;
}

static int write_ceiling(void *ctx, const char *name, const char *text) {
    return write_limit(ctx, 0, UINT32_MAX, text);
}

/* A VM's quotas, or what VMs begin with. What a call walks along is bounded, so that it stays a part. */
#define QUOTA(field, most)                                                                                   \
    { #field, offsetof(struct store_quota, field), most }
static const struct {
    const char *name;
    u32 at, most;
} quotas[] = { QUOTA(nodes, 1000000),    QUOTA(watches, 1000),          QUOTA(value, XS_PAYLOAD_MAX),
               QUOTA(transactions, 100), QUOTA(perms, STORE_MAX_PERMS), QUOTA(requests, 1000),
               QUOTA(events, 200),       QUOTA(memory, 1u << 30) };

static int write_quota(void *ctx, const char *name, const char *text) {
    u32 i = 0;

    while (strcmp(quotas[i].name, name)) i++;
    return write_limit(ctx, 1, quotas[i].most, text);
}

/* ---- what else stands behind nodes ---- */

/* Milliseconds of CPU that a VM has had, by all its vCPUs. */
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

/* "pool", "class" or "events_per_s" of a VM. */
static void read_vm(void *ctx, const char *name, char *text) {
    const struct vm *vm = ctx;
    const struct sched_pool *pool = pool_of(vm);

    switch (*name) {
    case 'p': hv_snprintf(text, STORE_BOUND, "%s", pool ? pool->name : ""); break;
    case 'c': hv_snprintf(text, STORE_BOUND, "%s", vm->sched.io ? "io" : "cpu"); break;
    case 'e': hv_snprintf(text, STORE_BOUND, "%lu", vm->sched.io_rate / 1000); break;
    }
}

static int write_pool(void *ctx, const char *name, const char *text) {
    struct sched_pool *to = sched_pool_find(text);
    struct vm *vm = ctx;

    if (!to || cpumask_empty(&to->cpus) || !pool_of(vm) || vm->state == VM_CREATING || vm->turbo.pool)
        return -EINVAL;
    if (!vm->store.move) sched_pause(&vm->sched);
    vm->store.move = to;
    storelink_work();
    return 0;
}

static void read_vcpu(void *ctx, const char *name, char *text) {
    const struct vcpu *v = ctx;

    hv_snprintf(text, STORE_BOUND, "%s", v->sched.state == RS_OFFLINE ? "offline" : "online");
}

static void read_pci(void *ctx, const char *name, char *text) {
    vm_giver->tell(ctx, (u32)(*name - '0'), text, STORE_BOUND);
}

static int write_pci(void *ctx, const char *name, const char *text) {
    return strcmp(text, "released") ? -EINVAL : vm_giver->let_go(ctx, (u32)(*name - '0'));
}

static void read_cpu(void *ctx, const char *name, char *text) {
    const struct sched_pool *p = sched_pool_of_cpu((u32)(u64)ctx);

    if (p) hv_snprintf(text, STORE_BOUND, "%s", p->name);
}

static void read_counter(void *ctx, const char *name, char *text) {
    const struct counter *c = ctx;
    u64 sum = 0;

    for (u32 cpu = 0; cpu < nr_cpus; cpu++) sum += c->value[cpu];
    hv_snprintf(text, STORE_BOUND, "%lu", sum);
}

static void read_uptime(void *ctx, const char *name, char *text) {
    hv_snprintf(text, STORE_BOUND, "%llu", machine_now() / NS_PER_S);
}

/* "name" or "policy" of a pool. */
static void read_pool_name(void *ctx, const char *name, char *text) {
    const struct sched_pool *p = ctx;

    if (p->policy) hv_snprintf(text, STORE_BOUND, "%s", *name == 'n' ? p->name : p->policy->name);
}

static const struct store_binding param_node = { write_param, read_param },
                                  request_node = { write_request, read_param },
                                  ceiling_node = { write_ceiling, read_limit },
                                  quota_node = { write_quota, read_limit },
                                  pool_node = { write_pool, read_vm }, monitor_node = { NULL, read_vm },
                                  cpu_ms_node = { NULL, read_cpu_ms }, vcpu_node = { NULL, read_vcpu },
                                  pci_node = { write_pci, read_pci }, cpu_node = { NULL, read_cpu },
                                  counter_node = { NULL, read_counter }, uptime_node = { NULL, read_uptime },
                                  pool_name_node = { NULL, read_pool_name };

/* ---- which nodes there are ---- */

/* In the home of a VM, or NULL: of the host; the lock is held, so there is one buffer. */
static PRINTF(2, 3) const char *path(const struct vm *vm, const char *fmt, ...) {
    static char text[160];
    int len = vm ? hv_snprintf(text, sizeof(text), STORE_HOME, vm->id)
                 : hv_snprintf(text, sizeof(text), "/takt/host");
    va_list ap;

    va_start(ap, fmt);
    hv_vsnprintf(text + len, sizeof(text) - (u32)len, fmt, ap);
    va_end(ap);
    return text;
}

static int put(const char *to, const char *text) {
    return store_write(&self, 0, to, text, (u32)strlen(text));
}

static int bind_quota(const struct vm *vm, u32 i, struct store_quota *q, const struct store_perms *perms) {
    return store_bind(path(vm, "/quota/%s", quotas[i].name), &quota_node, (char *)q + quotas[i].at, perms);
}

/* Each test is a node, in the order in which they are made. */
int storenodes_vm(struct vm *vm, u32 at) {
    const struct store_perms own = { 1, { { (u16)vm->id, 0 } } },
                             reads = { 2, { { 0, 0 }, { (u16)vm->id, STORE_R } } },
                             writes = { 2, { { 0, 0 }, { (u16)vm->id, STORE_R | STORE_W } } };
    char number[24];

    if (at-- == 0) return store_mkdir(&self, 0, path(vm, "%s", ""));
    if (at-- == 0) return store_set_perms(&self, 0, path(vm, "%s", ""), &reads);
    if (at-- == 0) return put(path(vm, "/name"), vm->name);
    hv_snprintf(number, sizeof(number), "%u", vm->id);
    if (at-- == 0) return put(path(vm, "/domid"), number);
    hv_snprintf(number, sizeof(number), "%lu", vm->mem.size >> 10);
    if (at-- == 0) return put(path(vm, "/memory/target"), number);
    if (at-- == 0) return put(path(vm, "/console/type"), "takt");
    if (at-- == 0) return store_mkdir(&self, 0, path(vm, "/data"));
    if (at-- == 0) return store_set_perms(&self, 0, path(vm, "/data"), &own);
    if (at-- == 0) return store_mkdir(&self, 0, path(vm, "/io"));
    if (at-- == 0) return put(path(vm, "/sched/turbo"), vm->config.turbo ? "1" : "0");
    if (at-- == 0) return store_bind(path(vm, "/cpu_ms"), &cpu_ms_node, vm, &reads);
    if (at-- == 0) return store_bind(path(vm, "/sched/pool"), &pool_node, vm, &reads);
    if (at-- == 0) return store_bind(path(vm, "/sched/class"), &monitor_node, vm, &reads);
    if (at-- == 0) return store_bind(path(vm, "/sched/events_per_s"), &monitor_node, vm, &reads);
    for (u32 i = NO_PARAMS; i < vm_names.nr; i++) {
        const char *p = vm_names.of[i];
        u32 *ceiling = &vm->store.ceiling[i];

        if (at-- == 0) return store_bind(path(vm, "/sched/%s", p), &param_node, vm, &reads);
        if (at-- == 0) return store_bind(path(vm, "/ceiling/%s", p), &ceiling_node, ceiling, &reads);
        if (at-- == 0) return store_bind(path(vm, "/request/%s", p), &request_node, vm, &writes);
    }
    for (u32 i = 0; i < vm->nr_vcpus; i++)
        if (at-- == 0)
            return store_bind(path(vm, "/vcpu/%u/availability", i), &vcpu_node, vm->vcpu[i], &reads);
    for (u32 i = 0; i < vm->config.nr_devices; i++) {
        const struct config_device *d = &vm->config.device[i];
        const char *kind = d->type == VIRTIO_ID_NET ? "vif" : "vbd";

        if (at-- == 0) return put(path(vm, "/device/%s/%u/backend", kind, i), d->back);
        if (at-- == 0) return put(path(vm, "/device/%s/%u/options", kind, i), d->options);
    }
    for (u32 i = 0; i < ARRAY_SIZE(quotas); i++)
        if (at-- == 0) return bind_quota(vm, i, &vm->store.client.quota, &reads);
    for (u32 i = 0; i < CONFIG_MAX_PCI && vm_giver; i++)
        if (at-- == 0) return store_bind(path(vm, "/device/pci/%u", i), &pci_node, vm, &writes);
    return STORENODES_END;
}

static const struct store_perms operator_only = { 1, { { 0, 0 } } };

int storenodes_host(u32 at) {
    if (at-- == 0) {
        collect_names();
        for (struct sched_pool *p = NULL; (p = sched_pool_next(p));) storelink_param(p, NULL, NULL);
        return store_open(&self, 0, true);
    }
    if (at-- == 0) return store_bind(path(NULL, "/uptime_s"), &uptime_node, NULL, &operator_only);
    for (u64 i = 0; i < nr_cpus; i++)
        if (at-- == 0)
            return store_bind(path(NULL, "/cpu/%lu/pool", i), &cpu_node, (void *)i, &operator_only);
    for (const struct counter *c = __start_counters; c < __stop_counters; c++)
        if (at-- == 0)
            return store_bind(path(NULL, "/counter/%s", c->name), &counter_node, (void *)c, &operator_only);
    for (u32 i = 0; i < ARRAY_SIZE(quotas); i++)
        if (at-- == 0) return bind_quota(NULL, i, &store_quota, &operator_only);
    if (at-- == 0) return store_mkdir(&self, 0, path(NULL, "/log"));
    if (at-- == 0) return store_set_perms(&self, 0, path(NULL, "/log"), &operator_only);
    return STORENODES_END;
}

/* ---- the log, for observers ---- */

/* The last pieces of it, each some lines, are nodes log/0 to log/31 in turn. log/next is the number that the
 * next piece will have; piece n is in node n modulo 32. */
#define LOG_NODES    32u
#define LOG_EVERY_NS (100 * NS_PER_MS)

static struct {
    char piece[1024];
    size_t len;
    bool written; /* the piece; but log/next not yet */
    u64 position; /* in the log, of what comes next */
    u64 next;
} kept;

/* A part: the store may be busy, then it goes on at the next call. */
static void keep_log(void) {
    char number[24];

    if (!kept.len) kept.len = log_read(&kept.position, kept.piece, sizeof(kept.piece));
    if (!kept.len) return;
    if (!kept.written)
        kept.written =
            !store_write(&self, 0, path(NULL, "/log/%lu", kept.next % LOG_NODES), kept.piece, (u32)kept.len);
    hv_snprintf(number, sizeof(number), "%lu", kept.next + 1);
    if (!kept.written || put(path(NULL, "/log/next"), number)) return;
    kept.len = 0;
    kept.written = false;
    kept.next++;
}

static bool log_step(struct work *w) {
    storelink_enter();
    keep_log();
    storelink_leave();
    w->not_before = machine_now() + LOG_EVERY_NS;
    return true;
}

void storenodes_keep_log(void) {
    static struct work work = { .step = log_step };
    static bool begun;

    if (!begun) work_add(&work);
    begun = true;
}

/* ---- what changed by other roads ---- */

/* The number of a bit, which is then no longer set in *mask; -1: none was. */
static int take_bit(u64 *mask) {
    int n = *mask ? __builtin_ctzll(*mask) : -1;

    if (n >= 0) __atomic_fetch_and(mask, ~BIT(n), __ATOMIC_SEQ_CST);
    return n;
}

/* The first time it makes the node. */
static bool touch_pool(u32 id) {
    int n = take_bit(&pools[id].touched);
    const char *node;

    if (n < 0) return false;
    node = path(NULL, "/pool/%u/%s", id, pool_names.of[n]);
    if (store_touch(node) == -ENOENT)
        store_bind(node, n < NO_PARAMS ? &pool_name_node : &param_node, pools[id].pool, &operator_only);
    return true;
}

/* Where the VM is to go, once no pCPU has its state. */
static void move(struct vm *vm) {
    struct param_values lost;
    int error = param_move_dom(vm->store.move, &vm->sched, &lost);

    if (error == -EAGAIN) return;
    if (error) log_warn("%s: cannot be moved to pool %s", vm->name, vm->store.move->name);
    for (u32 i = 0; !error && i < lost.nr; i++)
        log_warn("%s: pool %s does not keep its %s, which was %ld", vm->name, vm->store.move->name,
                 lost.of[i].param->name, lost.of[i].value);
    vm->store.move = NULL;
    sched_unpause(&vm->sched);
}

static bool touch_vm(struct vm *vm) {
    int n;

    if (vm->store.move) return move(vm), true;
    n = take_bit(&vm->store.touched);
    if (n < 0) return false;
    store_touch(n < STORELINK_PARAMS ? path(vm, "/sched/%s", vm_names.of[n])
                                     : path(vm, "/device/pci/%u", (u32)n - STORELINK_PARAMS));
    return true;
}

bool storenodes_step(void) {
    bool did = false;

    for (u32 id = 0; id < SCHED_MAX_POOLS && !did; id++) did = touch_pool(id);
    for (struct vm *vm = did ? NULL : vm_next(NULL); vm; vm = did ? (vm_put(vm), NULL) : vm_next(vm))
        if (vm->store.client.link.next && !vm->store.gone) did = touch_vm(vm);
    return did;
}
