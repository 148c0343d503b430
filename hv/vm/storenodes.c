/* The nodes that Takt keeps in the store: a VM's home and the host's. Those that stand for something that
 * changes are bound: reading one asks, writing one does what the shell's command does, by the same table of
 * parameters. docs/store.md has the list. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "sched/machine.h"
#include "vm/vm.h"
#include "x86/percpu.h"

#define HOST      "/takt/host"
#define VALUE_MAX 64 /* of what can be written to a bound node */

static struct store_client self; /* the hypervisor's */

/* What param_hook may name: first what is no parameter, then those of all policies, by their scope. Nodes are
 * there for all, and empty where a pool's policy has none of that name. A name's place in here is its number
 * in masks. */
#define POOL_PARAMS 64
#define NO_PARAMS   2
static const char *vm_params[STORELINK_PARAMS] = { "pool", "class" },
                  *pool_params[POOL_PARAMS] = { "name", "policy" };
static u32 nr_vm_params = NO_PARAMS, nr_pool_params = NO_PARAMS;

static struct {
    struct sched_pool *pool; /* NULL: there was none yet of this id */
    u64 touched;             /* atomically: bits as in pool_params */
    u32 nodes;               /* made so far; they stay, and are empty when the pool is gone */
} pools[SCHED_MAX_POOLS];
static u32 writer =
    SCHED_NO_CPU; /* the pCPU that sets a parameter on behalf of the store; watches hear already */

static u32 number_of(const char *const *list, u32 nr, const char *name) {
    u32 i = 0;

    while (i < nr && strcmp(list[i], name)) i++;
    return i;
}

static void collect(const struct param *p) {
    bool pool = p->scope == PARAM_POOL;
    const char **list = pool ? pool_params : vm_params;
    u32 *nr = pool ? &nr_pool_params : &nr_vm_params, max = pool ? POOL_PARAMS : STORELINK_PARAMS;

    if (number_of(list, *nr, p->name) == *nr && *nr < max) list[(*nr)++] = p->name;
}

/* ---- values ---- */

static int text(void *buf, u32 size, const char *s) {
    return MIN(hv_snprintf(buf, size, "%s", s), (int)size - 1);
}

static int number(void *buf, u32 size, u64 n) { return MIN(hv_snprintf(buf, size, "%lu", n), (int)size - 1); }

static int read_param(struct sched_pool *pool, const char *name, const void *object, void *buf, u32 size) {
    const struct param *p = pool && pool->policy ? param_find(pool, name) : NULL;
    char value[24] = "";

    return text(buf, size, p ? param_text(p, pool, object, value) : value);
}

/* What was written, as a string; NULL: it cannot be a value. */
static const char *written(char *to, const void *value, u32 len) {
    if (len >= VALUE_MAX) return NULL;
    memcpy(to, value, len);
    to[len] = 0;
    return to;
}

/* What was written, as a number. */
static int written_number(const void *value, u32 len, u64 *n) {
    char buf[VALUE_MAX];
    const char *s = written(buf, value, len);

    return s && !parse_u64(s, n, NULL) ? 0 : -EINVAL;
}

static int write_param(struct sched_pool *pool, const char *name, void *object, const void *value, u32 len) {
    const struct param *p = pool && pool->policy ? param_find(pool, name) : NULL;
    char buf[VALUE_MAX];
    const char *s = written(buf, value, len), *why;
    int error;

    if (!p || !s) return -EINVAL;
    __atomic_store_n(&writer, this_cpu()->id, __ATOMIC_SEQ_CST);
    error = param_set_text(p, pool, object, s, &why);
    __atomic_store_n(&writer, SCHED_NO_CPU, __ATOMIC_SEQ_CST);
    return error;
}

static void touched(u64 *mask, const char *const *list, u32 nr, const char *name) {
    u64 all = ~0ull >> (64 - nr);

    __atomic_fetch_or(mask, name ? all & BIT(number_of(list, nr, name)) : all, __ATOMIC_SEQ_CST);
    storelink_work();
}

void storelink_param(struct sched_pool *p, struct sched_dom *d, const char *name) {
    if (writer == this_cpu()->id) return;
    if (!d) {
        pools[p->id].pool = p;
        touched(&pools[p->id].touched, pool_params, nr_pool_params, name);
    } else if (!(d->id & SCHED_TURBO)) { /* that part has no parameters of its own */
        touched(&container_of(d, struct vm, sched)->store.touched, vm_params, nr_vm_params, name);
    }
}

/* ---- a VM's ---- */

static struct sched_pool *pool_of(const struct vm *vm) {
    return vm->state == VM_DYING ? NULL : vm->sched.pool;
}

static int read_sched(void *ctx, const char *name, void *buf, u32 size) {
    struct vm *vm = ctx;

    return read_param(pool_of(vm), name, &vm->sched, buf, size);
}

static int write_sched(void *ctx, const char *name, const void *value, u32 len) {
    struct vm *vm = ctx;

    return write_param(pool_of(vm), name, &vm->sched, value, len);
}

/* Limits: numbers that are what `ctx` points to. */
static int read_limit(void *ctx, const char *name, void *buf, u32 size) {
    return number(buf, size, *(const u32 *)ctx);
}

static int write_limit(void *ctx, u64 least, u64 most, const void *value, u32 len) {
    u64 n;

    if (written_number(value, len, &n) || n < least || n > most) return -EINVAL;
    *(u32 *)ctx = (u32)n;
    return 0;
}

static int write_ceiling(void *ctx, const char *name, const void *value, u32 len) {
    return write_limit(ctx, 0, UINT32_MAX, value, len);
}

/* A VM asks for a number, which it gets if that is no more than the administrator's ceiling for it. */
static int write_request(void *ctx, const char *name, const void *value, u32 len) {
    struct vm *vm = ctx;
    u64 n;
    int error = written_number(value, len, &n);

    if (error) return error;
    if (n > vm->store.ceiling[number_of(vm_params, nr_vm_params, name)]) return -EACCES;
    error = write_sched(ctx, name, value, len);
    if (!error) storelink_param(NULL, &vm->sched, name);
    return error;
}

static int read_pool(void *ctx, const char *name, void *buf, u32 size) {
    struct sched_pool *pool = pool_of(ctx);

    return text(buf, size, pool ? pool->name : "");
}

static int write_pool(void *ctx, const char *name, const void *value, u32 len) {
    struct vm *vm = ctx;
    char buf[VALUE_MAX];
    const char *s = written(buf, value, len);
    struct sched_pool *to = s ? sched_pool_find(s) : NULL;

    if (!to || cpumask_empty(&to->cpus) || !pool_of(vm) || vm->state == VM_CREATING || vm->turbo.pool)
        return -EINVAL;
    if (!vm->store.move) sched_pause(&vm->sched);
    vm->store.move = to;
    storelink_work();
    return 0;
}

/* "class" or "events_per_s". */
static int read_monitor(void *ctx, const char *name, void *buf, u32 size) {
    const struct vm *vm = ctx;

    if (*name == 'e') return number(buf, size, vm->sched.io_rate / 1000);
    return text(buf, size, vm->sched.io ? "io" : "cpu");
}

static int read_vcpu(void *ctx, const char *name, void *buf, u32 size) {
    const struct vcpu *v = ctx;

    return text(buf, size, v->sched.state == RS_OFFLINE ? "offline" : "online");
}

static int read_pci(void *ctx, const char *name, void *buf, u32 size) {
    char value[32] = "";

    if (vm_giver) vm_giver->tell(ctx, (u32)(*name - '0'), value, sizeof(value));
    return text(buf, size, value);
}

static int write_pci(void *ctx, const char *name, const void *value, u32 len) {
    char buf[VALUE_MAX];
    const char *s = written(buf, value, len);

    return vm_giver && s && strcmp(s, "released") == 0 ? vm_giver->let_go(ctx, (u32)(*name - '0')) : -EINVAL;
}

void storelink_pci(struct vm *vm, u32 index) {
    __atomic_fetch_or(&vm->store.touched, BIT(STORELINK_PARAMS + index), __ATOMIC_SEQ_CST);
    storelink_work();
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

static u32 *quota(struct store_quota *q, u32 at) { return (u32 *)((char *)q + quotas[at].at); }

static int write_quota(void *ctx, const char *name, const void *value, u32 len) {
    u32 i = 0;

    while (strcmp(quotas[i].name, name)) i++;
    return write_limit(ctx, 1, quotas[i].most, value, len);
}

static const struct store_binding sched_binding = { write_sched, read_sched },
                                  pci_binding = { write_pci, read_pci },
                                  quota_binding = { write_quota, read_limit },
                                  ceiling_binding = { write_ceiling, read_limit },
                                  request_binding = { write_request, read_sched },
                                  pool_binding = { write_pool, read_pool },
                                  monitor_binding = { NULL, read_monitor },
                                  vcpu_binding = { NULL, read_vcpu };

/* The path of something in a VM's home; the lock is held, so there is one buffer. */
static const char *home(const struct vm *vm, const char *below, const char *name) {
    static char path[160];

    hv_snprintf(path, sizeof(path), "/local/domain/%u%s%s%s", vm->id, *below ? "/" : "", below, name);
    return path;
}

static int put(const struct vm *vm, const char *name, const char *value) {
    return store_write(&self, 0, home(vm, name, ""), value, (u32)strlen(value));
}

/* For the VM to read, or also to write; for the operator in any case; for nobody else. */
static struct store_perms for_vm(const struct vm *vm, u16 rights) {
    return (struct store_perms){ 2, { { 0, 0 }, { (u16)vm->id, rights } } };
}

static int bind(struct vm *vm, const char *below, const char *name, const struct store_binding *b, void *ctx,
                u16 rights) {
    struct store_perms p = for_vm(vm, rights);

    return store_bind(home(vm, below, name), b, ctx, &p);
}

/* What is there once. */
static int fixed_node(struct vm *vm, u32 at) {
    struct store_perms own = { 1, { { (u16)vm->id, 0 } } }, read = for_vm(vm, STORE_R);
    char n[24];

    switch (at) {
    case 0: return store_mkdir(&self, 0, home(vm, "", ""));
    case 1: return store_set_perms(&self, 0, home(vm, "", ""), &read);
    case 2: return put(vm, "name", vm->name);
    case 3: hv_snprintf(n, sizeof(n), "%u", vm->id); return put(vm, "domid", n);
    case 4: hv_snprintf(n, sizeof(n), "%lu", vm->mem.size >> 10); return put(vm, "memory/target", n);
    case 5: return put(vm, "console/type", "takt");
    case 6: return store_mkdir(&self, 0, home(vm, "data", ""));
    case 7: return store_set_perms(&self, 0, home(vm, "data", ""), &own);
    case 8: return store_mkdir(&self, 0, home(vm, "io", ""));
    case 9: return put(vm, "sched/turbo", vm->config.turbo ? "1" : "0");
    case 10: return bind(vm, "sched/", "pool", &pool_binding, vm, STORE_R);
    case 11: return bind(vm, "sched/", "class", &monitor_binding, vm, STORE_R);
    default: return bind(vm, "sched/", "events_per_s", &monitor_binding, vm, STORE_R);
    }
}
#define FIXED_NODES 13

static int device_node(struct vm *vm, u32 at) {
    const struct config_device *d = &vm->config.device[at / 2];
    char name[32];

    hv_snprintf(name, sizeof(name), "device/%s/%u/%s", d->type == VIRTIO_ID_NET ? "vif" : "vbd", at / 2,
                at % 2 ? "options" : "backend");
    return put(vm, name, at % 2 ? d->options : d->back);
}

int storenodes_vm(struct vm *vm, u32 at) {
    char name[24];
    int r;

    if (at < FIXED_NODES) {
        r = fixed_node(vm, at);
    } else if ((at -= FIXED_NODES) < 3 * (nr_vm_params - NO_PARAMS)) {
        const char *p = vm_params[NO_PARAMS + at / 3];

        r = at % 3 == 0 ? bind(vm, "sched/", p, &sched_binding, vm, STORE_R)
            : at % 3 == 1
                ? bind(vm, "ceiling/", p, &ceiling_binding, &vm->store.ceiling[NO_PARAMS + at / 3], STORE_R)
                : bind(vm, "request/", p, &request_binding, vm, STORE_R | STORE_W);
    } else if ((at -= 3 * (nr_vm_params - NO_PARAMS)) < vm->nr_vcpus) {
        hv_snprintf(name, sizeof(name), "vcpu/%u/", at);
        r = bind(vm, name, "availability", &vcpu_binding, vm->vcpu[at], STORE_R);
    } else if ((at -= vm->nr_vcpus) < 2 * vm->config.nr_devices) {
        r = device_node(vm, at);
    } else if ((at -= 2 * vm->config.nr_devices) < ARRAY_SIZE(quotas)) {
        r = bind(vm, "quota/", quotas[at].name, &quota_binding, quota(&vm->store.client.quota, at), STORE_R);
    } else if ((at -= ARRAY_SIZE(quotas)) < CONFIG_MAX_PCI && vm_giver) {
        hv_snprintf(name, sizeof(name), "%u", at);
        r = bind(vm, "device/pci/", name, &pci_binding, vm, STORE_R | STORE_W);
    } else {
        return 0;
    }
    return r < 0 ? r : 1;
}

/* ---- the host's ---- */

static int read_cpu(void *ctx, const char *name, void *buf, u32 size) {
    const struct sched_pool *p = sched_pool_of_cpu((u32)(u64)ctx);

    return text(buf, size, p ? p->name : "");
}

static int read_counter(void *ctx, const char *name, void *buf, u32 size) {
    const struct counter *c = ctx;
    u64 sum = 0;

    for (u32 cpu = 0; cpu < nr_cpus; cpu++) sum += c->value[cpu];
    return number(buf, size, sum);
}

static int read_uptime(void *ctx, const char *name, void *buf, u32 size) {
    return number(buf, size, machine_now() / NS_PER_S);
}

static int read_pool_name(void *ctx, const char *name, void *buf, u32 size) {
    const struct sched_pool *p = ctx;

    return text(buf, size, !p->policy ? "" : *name == 'n' ? p->name : p->policy->name);
}

static int read_pool_param(void *ctx, const char *name, void *buf, u32 size) {
    return read_param(ctx, name, ctx, buf, size);
}

static int write_pool_param(void *ctx, const char *name, const void *value, u32 len) {
    return write_param(ctx, name, ctx, value, len);
}

static const struct store_binding cpu_binding = { NULL, read_cpu }, counter_binding = { NULL, read_counter },
                                  uptime_binding = { NULL, read_uptime },
                                  pool_name_binding = { NULL, read_pool_name },
                                  pool_param_binding = { write_pool_param, read_pool_param };

static int bind_host(const char *fmt, u32 n, const char *name, const struct store_binding *b, void *ctx) {
    static const struct store_perms operator_only = { 1, { { 0, 0 } } };
    char path[96];
    u32 len = (u32)hv_snprintf(path, sizeof(path), fmt, n);

    hv_snprintf(path + len, sizeof(path) - len, "/%s", name);
    return store_bind(path, b, ctx, &operator_only);
}

int storenodes_host(u32 at) {
    u32 nr_counters = (u32)(__stop_counters - __start_counters);
    int r;

    if (at == 0) {
        r = store_open(&self, 0, true);
        for (u32 i = 0; sched_policies[i]; i++)
            for (const struct param *p = sched_policies[i]->params; p && p->name; p++) collect(p);
        for (struct sched_pool *p = NULL; (p = sched_pool_next(p));) storelink_param(p, NULL, NULL);
    } else if (at == 1) {
        r = bind_host(HOST, 0, "uptime_s", &uptime_binding, NULL);
    } else if ((at -= 2) < nr_cpus) {
        r = bind_host(HOST "/cpu/%u", at, "pool", &cpu_binding, (void *)(u64)at);
    } else if ((at -= nr_cpus) < nr_counters) {
        r = bind_host(HOST "/counter", 0, __start_counters[at].name, &counter_binding, &__start_counters[at]);
    } else if ((at -= nr_counters) < ARRAY_SIZE(quotas)) {
        r = bind_host(HOST "/quota", 0, quotas[at].name, &quota_binding, quota(&store_quota, at));
    } else {
        return 0;
    }
    return r < 0 ? r : 1;
}

/* ---- what changed by other roads ---- */

/* The number of a bit, which is then no longer set in *mask; -1: none was. */
static int take_bit(u64 *mask) {
    int n = *mask ? __builtin_ctzll(*mask) : -1;

    if (n >= 0) __atomic_fetch_and(mask, ~BIT(n), __ATOMIC_SEQ_CST);
    return n;
}

static bool touch_pool(u32 id) {
    u32 at = pools[id].nodes;
    char path[96];
    int n;

    if (pools[id].pool && at < nr_pool_params) {
        bind_host(HOST "/pool/%u", id, pool_params[at],
                  at < NO_PARAMS ? &pool_name_binding : &pool_param_binding, pools[id].pool);
        pools[id].nodes++;
        return true;
    }
    n = take_bit(&pools[id].touched);
    if (n < 0) return false;
    hv_snprintf(path, sizeof(path), HOST "/pool/%u/%s", id, pool_params[n]);
    store_touch(path);
    return true;
}

/* Where the VM is to go, once no pCPU has its state. */
static void move(struct vm *vm) {
    int error = sched_pool_move_dom(vm->store.move, &vm->sched);

    if (error == -EAGAIN) return;
    if (error) log_warn("%s: cannot be moved to pool %s", vm->name, vm->store.move->name);
    vm->store.move = NULL;
    sched_unpause(&vm->sched);
}

static bool touch_vm(struct vm *vm) {
    char index[12];
    int n;

    if (vm->store.move) return move(vm), true;
    n = take_bit(&vm->store.touched);
    if (n < 0) return false;
    hv_snprintf(index, sizeof(index), "%u", (u32)n - STORELINK_PARAMS);
    store_touch(n < STORELINK_PARAMS ? home(vm, "sched/", vm_params[n]) : home(vm, "device/pci/", index));
    return true;
}

bool storenodes_step(void) {
    bool did = false;

    for (u32 id = 0; id < SCHED_MAX_POOLS && !did; id++) did = touch_pool(id);
    for (struct vm *vm = did ? NULL : vm_next(NULL); vm; vm = did ? (vm_put(vm), NULL) : vm_next(vm))
        if (vm->store.client.link.next && !vm->store.gone) did = touch_vm(vm);
    return did;
}
