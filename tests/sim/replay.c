/* Replays a recording: feeds the scheduler with the inputs that are in it, at the same virtual
 * times, and compares each decision with the recorded one. A decision that comes out differently
 * depends on something that is not recorded, so an experiment could not be repeated. Recordings
 * come from the image or from the simulation, and may be damaged: each record is checked before it
 * is used. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sched/core.h"
#include "sim.h"

struct replay_vm {
    struct sched_vm d;
    struct sched_vcpu *slot[SIM_MAX_VCPUS];
};

static struct replay_vm *vms[65536];

/* In an input, arg[1] is its number in the sequence of all inputs, and arg[0] says of what kind
 * it is and of which pool. A decision has the number of its input. */
static u32 sequence(const struct trace_record *r) { return r->arg[1]; }
static u32 kind_of(const struct trace_record *r) { return r->arg[0] & 0xff; }
static u32 pool_of(const struct trace_record *r) { return r->arg[0] >> 8 & 0xff; }
static u32 small_of(const struct trace_record *r) { return r->arg[0] >> 16; }
static u64 arg_of(const struct trace_record *r) { return r->arg[2] | (u64)r->arg[3] << 32; }

/* Returns whether x has to stay before y: by sequence, and an input before its decisions. The
 * records of one input came from one CPU, in order, so the order of equal ones is kept. */
static bool in_order(const struct trace_record *x, const struct trace_record *y) {
    if (sequence(x) != sequence(y)) return sequence(x) < sequence(y);
    return x->ns == 0 || x->event <= y->event;
}

/* Sorts r[0] to r[n - 1], and leaves equal ones in their order, which qsort() would not. `tmp` has
 * room for as many. */
static void merge_sort(struct trace_record *r, size_t n, struct trace_record *tmp) {
    size_t half = n / 2, i = 0, k = half, out = 0;

    if (n < 2) return;
    merge_sort(r, half, tmp);
    merge_sort(r + half, n - half, tmp);
    while (i < half && k < n) {
        if (in_order(&r[i], &r[k]))
            tmp[out++] = r[i++];
        else
            tmp[out++] = r[k++];
    }
    while (i < half) tmp[out++] = r[i++];
    while (k < n) tmp[out++] = r[k++];
    memcpy(r, tmp, n * sizeof(*r));
}

/* Keeps only inputs and decisions, and sorts them into the order in which they happened: the
 * recording has a buffer for each pCPU, and these stand one behind the other. Returns how many
 * there are. *lost says whether the recorder lost any records, of whatever kind. */
static size_t select_records(struct trace_record *r, size_t n, bool *lost) {
    size_t out = 0;

    *lost = false;
    for (size_t i = 0; i < n; i++) {
        if (r[i].event == TRC_LOST) *lost = true;
        if (r[i].event == TRC_SCHED_INPUT || r[i].event == TRC_SCHED_DECISION) r[out++] = r[i];
    }
    struct trace_record *tmp = malloc((out + 1) * sizeof(*tmp));

    merge_sort(r, out, tmp);
    free(tmp);
    return out;
}

/* Returns the set of pCPUs that an input has: its own argument is the first word, and those of up
 * to `n` records behind it are further words, as long as these records belong to it. */
static struct cpumask mask_of(const struct trace_record *r, size_t n) {
    struct cpumask m = { { arg_of(r) } };

    for (size_t i = 1; i <= n && r[i].event == TRC_SCHED_INPUT && kind_of(&r[i]) == IN_WORD; i++)
        if (small_of(&r[i]) < CPUMASK_WORDS) m.word[small_of(&r[i])] = arg_of(&r[i]);
    return m;
}

/* Makes a VM. If a damaged recording makes one with an id that is still in use, the old one stays
 * in its pool's list, so its memory is kept. */
static struct replay_vm *new_vm(u32 id) {
    if (vms[id] && !vms[id]->d.pool) free(vms[id]);
    return vms[id] = calloc(1, sizeof(*vms[id]));
}

/* Tells the scheduler what an input says of a VM: it is made or ends, moves, is paused, or its
 * label changes. */
static void apply_vm(u32 kind, struct sched_pool *p, u32 id, u32 small) {
    if (kind == IN_DOM_INIT) {
        struct replay_vm *d = new_vm(id);

        sched_vm_init(&d->d, id, "", d->slot, p);
        return;
    }
    if (kind == IN_TURBO) {
        struct sched_vm *d = vms[id] ? &vms[id]->d : NULL;
        struct replay_vm *t = NULL;

        if (d && d->pool && !d->peer && !(id & SCHED_TURBO)) t = new_vm(id | SCHED_TURBO);
        if (t) sched_vm_init_turbo(&t->d, d, t->slot);
        return;
    }
    if (!vms[id]) return;
    struct sched_vm *d = &vms[id]->d;

    if (kind == IN_DOM_FINI)
        sched_vm_fini(d);
    else if (kind == IN_LABEL)
        sched_label(d, small);
    else if (kind == IN_DOM_MOVE)
        sched_pool_move_vm(p, d);
    else if (kind == IN_PAUSE)
        sched_pause(d);
    else
        sched_unpause(d);
}

/* Tells the scheduler what an input says of a vCPU. `m` is the set of pCPUs in it. */
static void apply_vcpu(u32 kind, struct sched_vm *d, u32 id, u64 arg, const struct cpumask *m) {
    struct sched_vcpu *v = d->vcpu[id];

    if (kind == IN_VCPU_INIT) {
        v = calloc(1, sizeof(*v)); /* a few hundred bytes, freed when the process ends */
        sched_vcpu_init(v, d, id, m);
        return;
    }
    if (!v) return;
    if (kind == IN_VCPU_FINI)
        sched_vcpu_fini(v);
    else if (kind == IN_AFFINITY)
        sched_set_affinity(v, m);
    else if (kind == IN_WAKE)
        sched_wake(v);
    else if (kind == IN_BLOCK)
        sched_block(v);
    else if (kind == IN_YIELD)
        sched_yield(v);
    else if (kind == IN_SAVED)
        sched_saved((u32)arg, v);
}

/* Sets a parameter of a VM (`who`), or of the pool. */
static void apply_param(struct sched_pool *p, u32 index, u32 who, i64 value) {
    const struct param *e = param_at(p, index);
    void *object = p;
    const char *why;

    if (!e) return;
    if (who != TRACE_NOBODY) {
        struct replay_vm *d = vms[who >> 16];

        if (!d) return;
        object = &d->d;
    }
    param_set(e, p, object, value, &why);
}

/* Calls the function of the scheduler that the recorded input stands for, with the same arguments,
 * as its caller did when the recording was made. `behind` records follow this one. */
static void apply(const struct trace_record *r, size_t behind) {
    u32 kind = kind_of(r), pool = pool_of(r), small = small_of(r);
    struct cpumask m = mask_of(r, behind);
    u64 arg = arg_of(r);
    struct sched_pool *p = &sched_pools[pool % SCHED_MAX_POOLS];
    char name[16];

    switch (kind) {
    case IN_CPU_ONLINE: sim_cpu_online((u32)arg); break;
    case IN_POOL_CREATE:
        snprintf(name, sizeof(name), "pool%u", pool);
        sched_set_seed(arg);
        sched_pool_create(name, sched_policies[small]->name, &p);
        break;
    case IN_POOL_DESTROY: sched_pool_destroy(p); break;
    case IN_CPU_ADD: sched_pool_add_cpu(p, (u32)arg); break;
    case IN_CPU_REMOVE: sched_pool_remove_cpu(p, (u32)arg); break;
    case IN_PARAM: apply_param(p, small, r->who, (i64)arg); break;
    case IN_PRESET: param_preset(p, p->policy->presets[small].name); break;
    case IN_PAIR:
        if (small == 0) p = NULL; /* the pair ends */
        sched_pool_pair(&sched_pools[arg % SCHED_MAX_POOLS], p);
        break;
    case IN_RUN: sched_run((u32)arg); break;
    case IN_TIMER:
        sched_cpus[arg]->timer[small].armed = true;
        sched_timer_fire((u32)arg, small);
        break;
    case IN_DOM_INIT:
    case IN_DOM_FINI:
    case IN_DOM_MOVE:
    case IN_PAUSE:
    case IN_TURBO:
    case IN_LABEL:
    case IN_UNPAUSE: apply_vm(kind, p, r->who >> 16, small); break;
    default:
        if (vms[r->who >> 16])
            apply_vcpu(kind, &vms[r->who >> 16]->d, r->who % SIM_MAX_VCPUS, arg, &m);
    }
}

/* Returns what is wrong with a record, which has to be number `expected` of the sequence, or NULL
 * if nothing is. The scheduler trusts its callers, so a pool or pCPU that is not there would crash
 * the simulation. */
static const char *senseless(const struct trace_record *r, size_t i, u32 expected) {
    u32 kind = kind_of(r), pool = pool_of(r), small = small_of(r);
    bool has_pool = kind != IN_CPU_ONLINE,
         exists = pool < SCHED_MAX_POOLS && sched_pools[pool].policy;
    bool has_cpu = kind == IN_CPU_ONLINE || kind == IN_CPU_ADD || kind == IN_CPU_REMOVE ||
                   kind == IN_RUN || kind == IN_SAVED || kind == IN_TIMER;

    if (r->event != TRC_SCHED_INPUT) return "a decision without its input";
    if (sequence(r) != expected && expected == 1) return "the recording does not begin at boot";
    if (sequence(r) != expected) return "an input is missing";
    if (kind < IN_CPU_ONLINE || kind > IN_LABEL) return "an unknown kind of input";
    if (has_cpu && (r->arg[3] || r->arg[2] >= TAKT_MAX_CPUS ||
                    (kind != IN_CPU_ONLINE && !sched_cpus[r->arg[2]])))
        return "a pCPU that is not there";
    if (kind == IN_TIMER && small >= SCHED_TIMERS) return "a timer that no policy has";
    if (kind == IN_POOL_CREATE) {
        u32 policies = 0;

        while (sched_policies[policies]) policies++;
        if (small >= policies || exists)
            return "a pool that exists already, or whose policy is not known";
        return NULL;
    }
    if (has_pool && !exists) return "a pool that is not there";
    if (kind == IN_PRESET) {
        const struct sched_preset *x = sched_pools[pool].policy->presets;

        for (u32 k = 0; x && x->name && k < small; k++) x++;
        if (!x || !x->name) return "a preset that is not there";
    }
    return NULL;
}

/* Writes a sentence about a record, for the person who has to find the difference. */
static void describe(char *buf, size_t size, const char *what, const struct trace_record *r) {
    snprintf(buf, size,
             "%s: at %llu ns on CPU %u, sequence %u: event %x, vCPU %x, kind %u, argument %llu",
             what, (unsigned long long)r->ns, r->cpu, sequence(r), r->event, r->who, kind_of(r),
             (unsigned long long)arg_of(r));
}

/* Replays a recording of `n` records: gives the scheduler one input after the other, and compares
 * the records that it makes of it with those of the recording. Returns 0 if all agree, 1 at the
 * first difference, and -1 if the recording makes no sense; *d then says where and what. */
int sim_replay(struct trace_record *r, size_t n, struct sim_difference *d) {
    struct sim_options o = { .mask = TRACE_CLASS_REPLAY, .keep = true };
    bool lost;
    u32 expected = 1;

    *d = (struct sim_difference){ 0 };
    n = select_records(r, n, &lost);
    if (lost) {
        snprintf(d->what, sizeof(d->what),
                 "records were lost, so the recording cannot be replayed");
        return -1;
    }
    if (n == 0) {
        snprintf(d->what, sizeof(d->what), "there is nothing to replay");
        return -1;
    }
    sim_start(&o);
    sim.replaying = true;
    sched_state_hook = NULL;
    memset(vms, 0, sizeof(vms));
    for (size_t i = 0; i < n; expected++) {
        const char *bad = senseless(&r[i], i, expected);

        d->record = i;
        if (bad) {
            describe(d->what, sizeof(d->what), bad, &r[i]);
            return -1;
        }
        sim.now = r[i].ns;
        sim.cpu = r[i].cpu;
        sim.nr_kept = 0;
        apply(&r[i], n - i - 1);
        for (size_t k = 0; k < sim.nr_kept; k++, i++) {
            if (i == n && k) return 0; /* the recording ends between an input and its decision */
            if (i == n || memcmp(&sim.kept[k], &r[i], sizeof(*r))) {
                describe(d->what, sizeof(d->what), "replayed", &sim.kept[k]);
                return 1;
            }
        }
        if (sim.nr_kept == 0) {
            describe(d->what, sizeof(d->what), "not made again", &r[d->record]);
            return 1;
        }
        if (i < n && r[i].event == TRC_SCHED_DECISION) {
            describe(d->what, sizeof(d->what), "not made again", &r[i]);
            return 1;
        }
    }
    return 0;
}
