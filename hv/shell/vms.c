/* Commands about VMs, named as in xl: list vcpu-list vcpu-pin create destroy pause unpause console. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/string.h"
#include "sched/machine.h"
#include "sched/params.h"
#include "shell/guestcon.h"
#include "shell/shell.h"
#include "vm/vm.h"

#define ROWS 2 /* of a list, in one step */

/* A VM by name or number, with a reference; NULL after shell_fail. */
struct vm *shell_vm(struct shell_call *c, const char *name) {
    struct vm *vm = vm_find(name);

    if (!vm) shell_fail(c, -ENOENT, "there is no VM %s", name);
    return vm;
}

/* ---- list ---- */

/* xl's six letters: running, blocked, paused, shut down, crashed, dying. */
static void state_letters(struct vm *vm, char *s, u64 *run_ns) {
    bool running = false, blocked = vm->nr_vcpus > 0;

    *run_ns = 0;
    for (u32 i = 0; vm->state != VM_DYING && i < vm->nr_vcpus && vm->vcpu[i]; i++) {
        struct sched_times t;

        sched_times(&vm->vcpu[i]->sched, &t);
        *run_ns += t.state_ns[RS_RUNNING];
        running |= t.state == RS_RUNNING;
        blocked &= t.state == RS_BLOCKED;
    }
    hv_snprintf(s, 7, "%c%c%c%c%c%c", running ? 'r' : '-', blocked ? 'b' : '-',
                vm->state == VM_PAUSED ? 'p' : '-', vm->state == VM_SHUTDOWN ? 's' : '-',
                vm->state == VM_CRASHED ? 'c' : '-', vm->state == VM_DYING ? 'd' : '-');
}

COLUMNS(vm_columns, COL("Name", "name", 's', -24), COL("ID", "id", 'u', 5), COL("Mem", "memory_mib", 'u', 6),
        COL("VCPUs", "vcpus", 'u', 6), COL(NULL, "state", 's', 0), COL("State", "flags", 's', 10),
        COL("Time(s)", "time_s", 't', 11), COL(NULL, "pool", 's', 0), COL(NULL, "exit_code", 'd', 0),
        COL(NULL, "why", 's', 0));

static void vm_row(struct shell_call *c, struct vm *vm) {
    char letters[7];
    u64 run_ns;

    state_letters(vm, letters, &run_ns);
    table_row(c, vm_columns,
              CELLS(S(vm->name), U(vm->id), U(vm->config.memory >> 20), U(vm->nr_vcpus),
                    S(vm_state_name(vm->state)), S(letters), U(run_ns),
                    S(vm->sched.pool ? vm->sched.pool->name : ""), D(vm->exit_code), S(vm->why)));
}

static int cmd_list(struct shell_call *c) {
    struct vm *vm = c->cursor;

    if (c->argc > 2) return shell_usage(c);
    if (c->argc == 2 && !(vm = shell_vm(c, c->argv[1]))) return -ENOENT;
    if (c->step == 0) table_begin(c, vm_columns);
    if (c->argc == 2) vm_row(c, vm);
    for (int i = 0; c->argc == 1 && !c->stop && i < ROWS; i++) {
        c->cursor = vm = vm_next(vm);
        if (!vm) break;
        vm_row(c, vm);
    }
    if (vm && c->argc == 1 && !c->stop) return SHELL_AGAIN;
    if (vm) vm_put(vm);
    table_end(c);
    return 0;
}

/* ---- vcpu-list ---- */

int shell_each_vcpu(struct shell_call *c, u32 rows, const char *only,
                    void (*row)(struct shell_call *, struct vcpu *)) {
    struct vm *vm = c->cursor;

    if (c->step == 0) {
        vm = only ? shell_vm(c, only) : vm_next(NULL);
        if (only && !vm) return -ENOENT;
    }
    for (; vm && !c->stop && rows; rows--) {
        if (c->index < vm->nr_vcpus && vm->state != VM_DYING && vm->vcpu[c->index]) {
            row(c, vm->vcpu[c->index++]);
            continue;
        }
        c->index = 0;
        if (only) break;
        vm = vm_next(vm);
    }
    c->cursor = vm;
    if (vm && !c->stop && !rows) return SHELL_AGAIN;
    if (vm) vm_put(vm);
    c->cursor = NULL;
    return 0;
}

COLUMNS(vcpu_columns, COL("Name", "vm", 's', -24), COL("ID", "id", 'u', 5), COL("VCPU", "vcpu", 'u', 5),
        COL("CPU", "cpu", 'u', 5), COL("State", "state", 's', 9), COL(NULL, "paused", 'b', 0),
        COL("Time(s)", "time_s", 't', 11), COL(NULL, "running_ns", 'u', 0), COL(NULL, "runnable_ns", 'u', 0),
        COL(NULL, "blocked_ns", 'u', 0), COL(NULL, "switches", 'u', 0), COL(NULL, "wakes", 'u', 0),
        COL(NULL, "migrations", 'u', 0), COL("Affinity", "affinity", 's', 0));

const char *run_state_name(u32 s) {
    static const char *const words[] = { "running", "runnable", "blocked", "offline" };

    return words[s];
}

static void vcpu_row(struct shell_call *c, struct vcpu *v) {
    char cpus[64];
    struct sched_times t;

    sched_times(&v->sched, &t);
    format_cpus(&v->sched.affinity, cpus, sizeof(cpus));
    table_row(c, vcpu_columns,
              CELLS(S(v->vm->name), U(v->vm->id), U(v->id), U(t.cpu), S(run_state_name(t.state)),
                    U(v->vm->sched.paused), U(t.state_ns[RS_RUNNING]), U(t.state_ns[RS_RUNNING]),
                    U(t.state_ns[RS_RUNNABLE]), U(t.state_ns[RS_BLOCKED]), U(t.switches), U(t.wakes),
                    U(t.migrations), S(cpus)));
}

static int cmd_vcpu_list(struct shell_call *c) {
    const char *only = c->argc == 2 ? c->argv[1] : NULL;
    struct vm *vm;
    int result;

    if (c->argc > 2) return shell_usage(c);
    if (c->step == 0 && only) { /* look before the answer begins */
        vm = shell_vm(c, only);
        if (!vm) return -ENOENT;
        vm_put(vm);
    }
    if (c->step == 0) table_begin(c, vcpu_columns);
    result = shell_each_vcpu(c, ROWS, only, vcpu_row);
    if (result == 0) table_end(c);
    return result;
}

/* ---- vcpu-pin ---- */

static int pin(struct shell_call *c, struct vm *vm, const char *which, const struct cpumask *m) {
    u64 n = 0;
    bool all = strcmp(which, "all") == 0;

    if (!all && (parse_u64(which, &n, NULL) || n >= vm->nr_vcpus))
        return shell_fail(c, -EINVAL, "%s has no vCPU %s", vm->name, which);
    for (u32 i = all ? 0 : (u32)n; i < (all ? vm->nr_vcpus : (u32)n + 1); i++) {
        int error =
            vm->state != VM_DYING && vm->vcpu[i] ? sched_set_affinity(&vm->vcpu[i]->sched, m) : -ENOENT;

        if (error)
            return shell_fail(c, error, "vCPU %u of %s cannot run there: its pool %s has none of these CPUs",
                              i, vm->name, vm->sched.pool ? vm->sched.pool->name : "");
    }
    return 0;
}

static int cmd_vcpu_pin(struct shell_call *c) {
    struct cpumask m;
    struct vm *vm;
    int error;

    if (c->argc != 4) return shell_usage(c);
    if (parse_cpus(c->argv[3], &m, NULL))
        return shell_fail(c, -EINVAL, "expected a list of CPUs such as 0-3,^2, or all, not %s", c->argv[3]);
    vm = shell_vm(c, c->argv[1]);
    if (!vm) return -ENOENT;
    error = pin(c, vm, c->argv[2], &m);
    vm_put(vm);
    return error;
}

/* ---- create, destroy: work of many steps; the command waits for its end, but ^C leaves it to itself ---- */

static struct {
    u64 ticket; /* of the command that waits; a later answer to an earlier one is nobody's */
    bool done;
    int error;
    char why[128];
} job;

static void job_done(void *ctx, struct vm *vm, int error, const char *why) {
    if ((u64)ctx != job.ticket) return;
    job.error = error;
    hv_snprintf(job.why, sizeof(job.why), "%s", why ? why : "it failed");
    job.done = true;
    shell_wake();
}

static void *new_job(void) {
    job.ticket++;
    job.done = false;
    return (void *)job.ticket;
}

static int await_job(struct shell_call *c) {
    if (!job.done) return SHELL_WAIT;
    return job.error ? shell_fail(c, job.error, "%s", job.why) : 0;
}

static void keep_complaint(void *ctx, bool fatal, const char *text) {
    struct shell_call *c = ctx;

    shell_fail(c, -EINVAL, "%s", text);
}

/* The VM's section of the file, changed by key=value words. */
static int describe(struct shell_call *c, struct config_vm *v) {
    const struct config_vm *known = config_find_vm(shell_config(), c->argv[1]);

    if (!known && !valid_name(c->argv[1]))
        return shell_fail(c, -EINVAL,
                          "%s is no name: expected letters, digits, '-', '_' or '.', and not a number",
                          c->argv[1]);
    config_vm_defaults(v, c->argv[1]);
    if (known) *v = *known;
    for (int i = 2; i < c->argc; i++) {
        char *value = strchr(c->argv[i], '=');

        if (!value) return shell_fail(c, -EINVAL, "expected key=value, not %s", c->argv[i]);
        *value++ = 0;
        if (config_vm_set(v, c->argv[i], value, param_kind, keep_complaint, c)) return -EINVAL;
    }
    if (!*v->image)
        return shell_fail(c, -EINVAL, "the configuration has no VM %s, and no image= is given", c->argv[1]);
    return 0;
}

static int cmd_create(struct shell_call *c) {
    static struct config_vm v; /* too big for the stack */
    int error;

    if (c->step) return await_job(c);
    if (c->argc < 2) return shell_usage(c);
    error = describe(c, &v);
    if (error) return error;
    error = vm_create(&v, job_done, new_job());
    if (error)
        return shell_fail(c, error, "%s",
                          error == -EEXIST   ? "a VM of this name is there already"
                          : error == -ENOMEM ? "there is not enough memory"
                                             : "it cannot be created");
    return SHELL_WAIT;
}

static int cmd_destroy(struct shell_call *c) {
    struct vm *vm;
    int error;

    if (c->step) return await_job(c);
    if (c->argc != 2) return shell_usage(c);
    vm = shell_vm(c, c->argv[1]);
    if (!vm) return -ENOENT;
    error = vm_destroy(vm, job_done, new_job());
    vm_put(vm);
    return error ? shell_fail(c, error, "%s is already on its way out", c->argv[1]) : SHELL_WAIT;
}

static int pause_or_not(struct shell_call *c, int (*act)(struct vm *), const char *not_now) {
    struct vm *vm;
    int error;

    if (c->argc != 2) return shell_usage(c);
    vm = shell_vm(c, c->argv[1]);
    if (!vm) return -ENOENT;
    error = act(vm);
    if (error) shell_fail(c, error, "%s is %s: %s", vm->name, vm_state_name(vm->state), not_now);
    vm_put(vm);
    return error;
}

static int cmd_pause(struct shell_call *c) { return pause_or_not(c, vm_pause, "it cannot be paused"); }

static int cmd_unpause(struct shell_call *c) {
    return pause_or_not(c, vm_unpause, "only a paused VM can be unpaused");
}

/* Until the VM has ended or crashed, or the time is over. For scripts. */
static int cmd_wait(struct shell_call *c) {
    static u64 until;
    u64 ns = 1000000 * NS_PER_S;
    struct vm *vm;
    bool over;

    if (!c->step) {
        if (c->argc < 2 || c->argc > 3 || (c->argc == 3 && parse_time(c->argv[2], &ns, NULL)))
            return shell_usage(c);
        until = machine_now() + ns;
    }
    vm = vm_find(c->argv[1]);
    over = !vm || vm->state == VM_CRASHED || vm->state == VM_SHUTDOWN;
    if (vm) vm_put(vm);
    if (over || c->stop) return 0;
    if (machine_now() >= until) return shell_fail(c, -ETIMEDOUT, "%s has not ended", c->argv[1]);
    c->at = machine_now() + NS_PER_MS;
    return SHELL_AGAIN;
}

const struct shell_command vm_commands[] = {
    { "list", "[VM]", "VMs, their memory, state (r b p s c d) and CPU time", cmd_list, true },
    { "vcpu-list", "[VM]", "vCPUs, where they are and may run", cmd_vcpu_list, true },
    { "vcpu-pin", "VM VCPU|all CPUS|all", "sets where vCPUs may run", cmd_vcpu_pin, true },
    { "create", "VM [KEY=VALUE...]",
      "creates a VM of the configuration file, or one described by keys of its [vm] section", cmd_create,
      false },
    { "destroy", "VM", "ends a VM at once and frees what it had", cmd_destroy, true },
    { "pause", "VM", "keeps a VM from running", cmd_pause, true },
    { "unpause", "VM", "lets it run again", cmd_unpause, true },
    { "wait", "VM [TIME]", "until it has ended or crashed, at most so long (500ms)", cmd_wait, true },
    { "console", "VM", "connects the terminal to a VM's console; ^] leaves", cmd_console, true },
    { 0 },
};
