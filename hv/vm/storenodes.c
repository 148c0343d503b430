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

/* Parameters of all policies, by the scope of them: nodes are there for all, and empty where a pool's
 * policy has none of that name. A name's place in here is its number in masks. */
#define POOL_PARAMS 64
static const char *vm_params[STORELINK_PARAMS], *pool_params[POOL_PARAMS];
static u32 nr_vm_params, nr_pool_params;

static u64 pool_touched[SCHED_MAX_POOLS]; /* atomically: bits as in pool_params */
static u32 pool_nodes[SCHED_MAX_POOLS];   /* made so far; they stay, and are empty when the pool is gone */
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
    u32 n = (u32)MIN(strlen(s), (size_t)size);

    memcpy(buf, s, n);
    return (int)n;
}

static int number(void *buf, u32 size, u64 n) {
    char digits[24];

    hv_snprintf(digits, sizeof(digits), "%lu", n);
    return text(buf, size, digits);
}

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

void storelink_param(const struct param *e, const void *object) {
    const struct sched_pool *p = object;

    if (writer == this_cpu()->id) return;
    if (!e || e->scope == PARAM_POOL) {
        u64 bits = e ? BIT(number_of(pool_params, nr_pool_params, e->name)) : ~0ull;

        __atomic_fetch_or(&pool_touched[p->id], bits, __ATOMIC_SEQ_CST);
    } else {
        struct vm *vm = container_of((struct sched_dom *)object, struct vm, sched);

        __atomic_fetch_or(&vm->store.touched, BIT(number_of(vm_params, nr_vm_params, e->name)),
                          __ATOMIC_SEQ_CST);
    }
    storelink_work();
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

static int read_ceiling(void *ctx, const char *name, void *buf, u32 size) {
    const struct vm *vm = ctx;

    return number(buf, size, vm->store.ceiling[number_of(vm_params, nr_vm_params, name)]);
}

static int write_ceiling(void *ctx, const char *name, const void *value, u32 len) {
    struct vm *vm = ctx;
    char buf[VALUE_MAX];
    const char *s = written(buf, value, len);
    u64 n;

    if (!s || parse_u64(s, &n, NULL) || n > UINT32_MAX) return -EINVAL;
    vm->store.ceiling[number_of(vm_params, nr_vm_params, name)] = (u32)n;
    return 0;
}

/* A VM asks for a number, which it gets if that is no more than the administrator's ceiling for it. */
static int write_request(void *ctx, const char *name, const void *value, u32 len) {
    struct vm *vm = ctx;
    u32 i = number_of(vm_params, nr_vm_params, name);
    char buf[VALUE_MAX];
    const char *s = written(buf, value, len);
    u64 n;
    int error;

    if (!s || parse_u64(s, &n, NULL)) return -EINVAL;
    if (n > vm->store.ceiling[i]) return -EACCES;
    error = write_sched(ctx, name, value, len);
    if (error) return error;
    __atomic_fetch_or(&vm->store.touched, BIT(i), __ATOMIC_SEQ_CST);
    storelink_work();
    return 0;
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

static int read_class(void *ctx, const char *name, void *buf, u32 size) {
    const struct vm *vm = ctx;

    return text(buf, size, vm->sched.io ? "io" : "cpu");
}

static int read_rate(void *ctx, const char *name, void *buf, u32 size) {
    const struct vm *vm = ctx;

    return number(buf, size, vm->sched.io_rate / 1000);
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

static const struct store_binding pci_binding = { write_pci, read_pci };
static const struct store_binding sched_binding = { write_sched, read_sched },
                                  ceiling_binding = { write_ceiling, read_ceiling },
                                  request_binding = { write_request, read_sched },
                                  pool_binding = { write_pool, read_pool },
                                  class_binding = { NULL, read_class }, rate_binding = { NULL, read_rate },
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
    case 11: return bind(vm, "sched/", "class", &class_binding, vm, STORE_R);
    default: return bind(vm, "sched/", "events_per_s", &rate_binding, vm, STORE_R);
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
    } else if ((at -= FIXED_NODES) < 3 * nr_vm_params) {
        const char *p = vm_params[at / 3];

        r = at % 3 == 0   ? bind(vm, "sched/", p, &sched_binding, vm, STORE_R)
            : at % 3 == 1 ? bind(vm, "ceiling/", p, &ceiling_binding, vm, STORE_R)
                          : bind(vm, "request/", p, &request_binding, vm, STORE_R | STORE_W);
    } else if ((at -= 3 * nr_vm_params) < vm->nr_vcpus) {
        hv_snprintf(name, sizeof(name), "vcpu/%u/", at);
        r = bind(vm, name, "availability", &vcpu_binding, vm->vcpu[at], STORE_R);
    } else if ((at -= vm->nr_vcpus) < 2 * vm->config.nr_devices) {
        r = device_node(vm, at);
    } else if ((at -= 2 * vm->config.nr_devices) < CONFIG_MAX_PCI && vm_giver) {
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
    } else if (at == 1) {
        r = bind_host(HOST, 0, "uptime_s", &uptime_binding, NULL);
    } else if ((at -= 2) < nr_cpus) {
        r = bind_host(HOST "/cpu/%u", at, "pool", &cpu_binding, (void *)(u64)at);
    } else if ((at -= nr_cpus) < nr_counters) {
        r = bind_host(HOST "/counter", 0, __start_counters[at].name, &counter_binding, &__start_counters[at]);
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

static void bind_pool(struct sched_pool *p) {
    u32 at = pool_nodes[p->id]++;
    const char *name = at == 0 ? "name" : at == 1 ? "policy" : pool_params[at - 2];

    bind_host(HOST "/pool/%u", p->id, name, at < 2 ? &pool_name_binding : &pool_param_binding, p);
}

static bool touch_pool(struct sched_pool *p) {
    u64 *mask = &pool_touched[p->id];
    char path[96];
    int n;

    if (pool_nodes[p->id] < nr_pool_params + 2) return bind_pool(p), true;
    n = take_bit(mask);
    if (n < 0) return false;
    if ((u32)n >= nr_pool_params) return true;
    hv_snprintf(path, sizeof(path), HOST "/pool/%u/%s", p->id, pool_params[n]);
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
    store_touch(home(vm, "sched/", "pool"));
}

static bool touch_vm(struct vm *vm) {
    u64 mask = __atomic_load_n(&vm->store.touched, __ATOMIC_SEQ_CST);
    int n = take_bit(&mask);
    char index[12];

    if (vm->store.move) return move(vm), true;
    if (n < 0) return false;
    __atomic_fetch_and(&vm->store.touched, ~BIT(n), __ATOMIC_SEQ_CST);
    hv_snprintf(index, sizeof(index), "%u", (u32)n - STORELINK_PARAMS);
    store_touch(n < STORELINK_PARAMS ? home(vm, "sched/", vm_params[n]) : home(vm, "device/pci/", index));
    return true;
}

bool storenodes_step(void) {
    bool did = false;

    for (struct sched_pool *p = sched_pool_next(NULL); p && !did; p = sched_pool_next(p)) did = touch_pool(p);
    for (struct vm *vm = did ? NULL : vm_next(NULL); vm; vm = did ? (vm_put(vm), NULL) : vm_next(vm))
        if (vm->store.client.link.next && !vm->store.gone) did = touch_vm(vm);
    return did;
}
