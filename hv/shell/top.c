/* top: the live table, and measurements of an exact interval for scripts.
 *
 * A measurement is a pass over all vCPUs that keeps where each of them is, and a second pass that prints the
 * difference. A share is ns running over ns elapsed of that vCPU's own run-state times, so how long a pass
 * takes does not matter. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/string.h"
#include "sched/machine.h"
#include "sched/policy.h"
#include "shell/entitle.h"
#include "shell/shell.h"
#include "vm/vm.h"
#include "x86/percpu.h"

#define ROWS 256 /* vCPUs that a table can show */

struct sample {
    u32 vm, vcpu;
    u64 total, run, switches, exits; /* ns, ns */
};

struct cpu_sample {
    u64 guest, hv, idle; /* TSC ticks */
};

enum phase { WARM_UP, BASE, WAIT, ENTITLE, CPUS, TABLE, NEXT };

static struct {
    enum phase phase;
    u64 warm_up, interval, began, until; /* ns */
    u32 rounds;                          /* left; 0: without end */
    bool live, first;                    /* first: of the rounds */
    u32 nr, row;                         /* samples, and the next one to print */
    u32 not_shown;
    struct sample sample[ROWS];
    struct claim claim[ROWS];
    struct cpu_sample cpu[TAKT_MAX_CPUS];
} top;

static u64 total_of(const struct sched_times *t) {
    u64 sum = 0;

    for (u32 i = 0; i < RS_NR; i++) sum += t->state_ns[i];
    return sum;
}

/* ---- the first pass ---- */

static void base_cpu(u32 cpu) {
    const struct percpu *p = percpu_of[cpu];

    top.cpu[cpu] = (struct cpu_sample){ p->guest_tsc, p->hv_tsc, p->idle_tsc };
}

static void claim_of(struct claim *cl, struct vcpu *v) {
    struct sched_pool *pool = v->vm->sched.pool;
    const struct param *weight = param_find(pool, "weight"), *cap = param_find(pool, "cap");
    u64 w = weight ? (u64)param_get(weight, pool, &v->vm->sched) : 1;
    u64 c = cap ? (u64)param_get(cap, pool, &v->vm->sched) : 0, n = v->vm->nr_vcpus;

    cl->cpus = cpumask_and(&v->sched.affinity, &pool->cpus);
    cl->weight = MAX(w * 4096 / n, 1u);
    cl->limit = MIN(v->vm->config.demand_permille * 1000, SHARE_ONE);
    if (c) /* percent of one pCPU, of all its vCPUs together */
        cl->limit = (u32)MIN(cl->limit, c * (SHARE_ONE / 100) / n);
    cl->settled = false;
}

static void base_row(struct shell_call *c, struct vcpu *v) {
    struct sched_times t;

    if (top.nr == ROWS) {
        top.not_shown++;
        return;
    }
    if (top.first) sched_reset_latency(&v->sched);
    sched_times(&v->sched, &t);
    claim_of(&top.claim[top.nr], v);
    top.sample[top.nr++] =
        (struct sample){ v->vm->id, v->id, total_of(&t), t.state_ns[RS_RUNNING], t.switches, v->exits };
}

/* ---- the second pass ---- */

static u64 percent(u64 part, u64 whole) /* in hundredths */
{
    return whole ? part * 10000 / whole : 0;
}

static u64 per_second(u64 events, u64 ns) /* in hundredths */
{
    return ns < 10000 ? 0 : events * (100 * NS_PER_S / 10000) / (ns / 10000);
}

COLUMNS(cpu_columns, COL("pCPU", "cpu", 'u', 4), COL("guest %", "guest_pct", 'f', 10),
        COL("hyp %", "hv_pct", 'f', 10), COL("idle %", "idle_pct", 'f', 10));

static void print_head(struct shell_call *c) {
    u64 now = machine_now();

    if (c->json)
        out("{\"seconds\": %lu.%03lu, \"vendor\": \"%s\", \"pcpus\": ", (now - top.began) / 1000000000,
            (now - top.began) / 1000000 % 1000, virt ? virt->name : "none");
    else
        out("%sTakt, up %lu s%s%s", top.live ? "\x1b[H" : "", now / 1000000000,
            top.live ? "; any key leaves for the shell" : "", c->eol);
    c->columns = cpu_columns;
}

static void cpu_row(struct shell_call *c, u32 cpu) {
    const struct percpu *p = percpu_of[cpu];
    u64 guest = p->guest_tsc - top.cpu[cpu].guest, hv = p->hv_tsc - top.cpu[cpu].hv,
        idle = p->idle_tsc - top.cpu[cpu].idle;
    u64 all = guest + hv + idle;

    table_row(c, CELLS(U(cpu), U(percent(guest, all)), U(percent(hv, all)), U(percent(idle, all))));
}

COLUMNS(columns, COL("VM", "vm", 's', -14), COL("vCPU", "vcpu", 'u', 4), COL("pCPU", "pcpu", 'u', 4),
        COL("state", "state", 's', -8), COL("CPU %", "cpu_pct", 'f', 7),
        COL("entitled", "entitled_pct", 'f', 8), COL(NULL, "wake_us", '{', 0), COL(NULL, "count", 'u', 0),
        COL("wake p50", "p50", 'f', 9), COL("p99", "p99", 'f', 9), COL("max us", "max", 'f', 9),
        COL(NULL, NULL, '}', 0), COL("switch/s", "switches_per_s", 'f', 9),
        COL("exit/s", "exits_per_s", 'f', 9));

/* NULL for a vCPU that came after the first pass: the next round shows it. */
static struct sample *sample_of(struct vcpu *v) {
    for (u32 i = 0; i < top.nr; i++) {
        u32 k = (top.row + i) % top.nr; /* nearly always the first try */

        if (top.sample[k].vm == v->vm->id && top.sample[k].vcpu == v->id) {
            top.row = k + 1;
            return &top.sample[k];
        }
    }
    return NULL;
}

static void vcpu_row(struct shell_call *c, struct vcpu *v) {
    const struct sample *s = sample_of(v);
    struct sched_times t;
    u64 ns;

    if (!s) return;
    sched_times(&v->sched, &t);
    ns = MAX(total_of(&t) - s->total, 1u);
    table_row(c,
              CELLS(S(v->vm->name), U(v->id), U(t.cpu), S(run_state_name(t.state)),
                    U(percent(t.state_ns[RS_RUNNING] - s->run, ns)), U(top.claim[s - top.sample].share / 100),
                    U(t.wake_count), U(t.wake_p50 / 10), U(t.wake_p99 / 10), U(t.wake_max / 10),
                    U(per_second(t.switches - s->switches, ns)), U(per_second(v->exits - s->exits, ns))));
}

static void print_end(struct shell_call *c) {
    table_end(c);
    if (c->json)
        out("}");
    else if (top.not_shown)
        out("%u more vCPUs are not shown%s", top.not_shown, c->eol);
    out(c->json ? "" : top.live ? "\x1b[J" : "\n");
}

/* ---- options ---- */

static int seconds(struct shell_call *c, const char *text, u64 *ns) {
    char buf[24];
    size_t n = strnlen(text, sizeof(buf) - 2);
    bool unit = n && text[n - 1] == 's';

    hv_snprintf(buf, sizeof(buf), unit ? "%s" : "%ss", text);
    if (parse_time(buf, ns, NULL) || *ns > 1000000 * NS_PER_S)
        return shell_fail(c, -EINVAL, "expected a number of seconds, not %s", text);
    return 0;
}

static void any_key(struct shell_call *c, const char *s, unsigned n) { c->stop = true; }

static int begin(struct shell_call *c) {
    const char *const *o = c->opt;
    u64 n = 0;

    memset(&top, 0, offsetof(__typeof__(top), sample));
    top.interval = NS_PER_S;
    top.first = true;
    if (o['i'] && (parse_u64(o['i'], &n, NULL) || n > 1000000))
        return shell_fail(c, -EINVAL, "-i wants a number, not %s", o['i']);
    if ((o['d'] && seconds(c, o['d'], &top.interval)) || (o['w'] && seconds(c, o['w'], &top.warm_up)))
        return -EINVAL;
    if (!top.interval) return shell_fail(c, -EINVAL, "the interval cannot be 0");
    if (c->json && n > 1) return shell_fail(c, -EINVAL, "-j gives one interval: -i 1");
    top.live = !o['b'] && !c->json && !n;
    top.rounds = c->json ? 1 : (u32)n;
    if (top.live) {
        c->typed = any_key;
        c->eol = "\x1b[K\n"; /* takes away the rest of what stood there */
        out("\x1b[H\x1b[2J");
    }
    c->at = machine_now() + top.warm_up;
    top.phase = WARM_UP;
    top.until = c->at;
    return SHELL_AGAIN;
}

/* ---- one step ---- */

static void begin_round(struct shell_call *c) {
    top.began = machine_now();
    top.until = top.began + top.interval;
    top.nr = top.not_shown = 0;
    for (u32 cpu = 0; cpu < nr_cpus; cpu++) base_cpu(cpu);
    top.phase = BASE;
}

/* One step of a pass over all vCPUs; goes on to `then` at its end. */
static int pass(struct shell_call *c, void (*row)(struct shell_call *, struct vcpu *), enum phase then) {
    struct vcpu *v = shell_next_vcpu(c);

    if (v)
        row(c, v);
    else
        top.phase = then;
    return SHELL_AGAIN;
}

static int cmd_top(struct shell_call *c) {
    if (c->step == 0) return begin(c);
    switch (top.phase) {
    case WARM_UP:
    case WAIT:
        if (machine_now() < top.until)
            c->at = top.until;
        else if (top.phase == WARM_UP)
            begin_round(c);
        else
            top.phase = ENTITLE;
        return SHELL_AGAIN;
    case BASE: return pass(c, base_row, WAIT);
    case ENTITLE:
        if (!entitle_step(top.claim, top.nr)) {
            print_head(c);
            top.phase = CPUS;
            top.row = 0;
        }
        return SHELL_AGAIN;
    case CPUS:
        if (top.row < nr_cpus) {
            cpu_row(c, top.row++);
        } else {
            table_end(c);
            out(c->json ? ", \"vcpus\": " : "");
            c->columns = columns;
            top.row = 0;
            top.phase = TABLE;
        }
        return SHELL_AGAIN;
    case TABLE: return pass(c, vcpu_row, NEXT);
    case NEXT: break;
    }
    print_end(c);
    if (top.rounds == 1) return 0;
    if (top.rounds) top.rounds--;
    top.first = false;
    begin_round(c);
    return SHELL_AGAIN;
}

const struct shell_command top_commands[] = {
    { "top", "[-b] [-d SECONDS] [-i ROUNDS] [-w SECONDS]",
      "what each vCPU gets; live until a key, -b or -i: printed plainly; -w: warm up first; -j: one interval",
      cmd_top, 0, 0, TAKES_WORDS, "bd:i:w:" },
    { 0 },
};
