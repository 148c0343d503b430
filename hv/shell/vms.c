/* Commands about VMs, named as in xl: list vcpu-list vcpu-pin create destroy pause unpause console. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/string.h"
#include "sched/machine.h"
#include "sched/policy.h"
#include "shell/guestcon.h"
#include "shell/shell.h"
#include "vm/vm.h"

struct vm *shell_vm(struct shell_call *c, const char *name) {
    struct vm *vm = vm_find(name);

    if (!vm) shell_fail(c, -ENOENT, "there is no VM %s", name);
    return vm;
}

bool shell_vm_has_pool(struct shell_call *c, struct vm *vm) {
    if (vm->sched.pool && vm->state != VM_DYING) return true;
    shell_fail(c, -EAGAIN, "%s is still being made, or on its way out", vm->name);
    return false;
}

bool shell_next_vm(struct shell_call *c) {
    if (c->only) return c->step == 0;
    c->vm = vm_next(c->vm);
    return c->vm;
}

struct vcpu *shell_next_vcpu(struct shell_call *c) {
    if (!c->vm) c->vm = vm_next(NULL);
    for (; c->vm; c->vm = vm_next(c->vm), c->index = 0) {
        if (c->vm->state != VM_DYING && c->index < c->vm->nr_vcpus && c->vm->vcpu[c->index])
            return c->vm->vcpu[c->index++];
        if (c->only) break;
    }
    return NULL;
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

static int cmd_list(struct shell_call *c) {
    char letters[7];
    struct vm *vm;
    u64 run_ns;

    c->columns = vm_columns;
    if (!shell_next_vm(c)) return 0;
    vm = c->vm;
    state_letters(vm, letters, &run_ns);
    table_row(c, CELLS(S(vm->name), U(vm->id), U(vm->config.memory >> 20), U(vm->config.vcpus),
                       S(vm_state_name(vm->state)), S(letters), U(run_ns),
                       S(vm->sched.pool ? vm->sched.pool->name : ""), D(vm->exit_code), S(vm->why)));
    return SHELL_AGAIN;
}

/* ---- vcpu-list ---- */

COLUMNS(vcpu_columns, COL("Name", "vm", 's', -24), COL("ID", "id", 'u', 5), COL("VCPU", "vcpu", 'u', 5),
        COL("CPU", "cpu", 'u', 5), COL("State", "state", 's', 9), COL(NULL, "paused", 'b', 0),
        COL("Time(s)", "time_s", 't', 11), COL(NULL, "running_ns", 'u', 0), COL(NULL, "runnable_ns", 'u', 0),
        COL(NULL, "blocked_ns", 'u', 0), COL(NULL, "switches", 'u', 0), COL(NULL, "wakes", 'u', 0),
        COL(NULL, "migrations", 'u', 0), COL("Affinity", "affinity", 's', 0));

const char *run_state_name(u32 s) {
    static const char *const words[] = { "running", "runnable", "blocked", "offline" };

    return words[s];
}

static int cmd_vcpu_list(struct shell_call *c) {
    struct vcpu *v = shell_next_vcpu(c);
    struct sched_times t;
    char cpus[64];

    c->columns = vcpu_columns;
    if (!v) return 0;
    sched_times(&v->sched, &t);
    format_cpus(&v->sched.affinity, cpus, sizeof(cpus));
    table_row(c, CELLS(S(v->vm->name), U(v->vm->id), U(v->id), U(t.cpu), S(run_state_name(t.state)),
                       U(v->vm->sched.paused), U(t.state_ns[RS_RUNNING]), U(t.state_ns[RS_RUNNING]),
                       U(t.state_ns[RS_RUNNABLE]), U(t.state_ns[RS_BLOCKED]), U(t.switches), U(t.wakes),
                       U(t.migrations), S(cpus)));
    return SHELL_AGAIN;
}

/* ---- vcpu-pin ---- */

static int cmd_vcpu_pin(struct shell_call *c) {
    struct vm *vm = c->vm;
    struct cpumask m;
    u64 first = 0, last = vm->nr_vcpus - 1;

    if (parse_cpus(c->argv[3], &m, NULL))
        return shell_fail(c, -EINVAL, "expected a list of CPUs such as 0-3,^2, or all, not %s", c->argv[3]);
    if (strcmp(c->argv[2], "all") != 0) {
        if (parse_u64(c->argv[2], &first, NULL) || first > last)
            return shell_fail(c, -EINVAL, "%s has no vCPU %s", vm->name, c->argv[2]);
        last = first;
    }
    for (u64 i = first; i <= last; i++) {
        int error =
            vm->state != VM_DYING && vm->vcpu[i] ? sched_set_affinity(&vm->vcpu[i]->sched, &m) : -ENOENT;

        if (error)
            return shell_fail(c, error, "vCPU %lu of %s cannot run there: its pool %s has none of these CPUs",
                              i, vm->name, vm->sched.pool ? vm->sched.pool->name : "");
    }
    return 0;
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
    int error;

    if (c->step) return await_job(c);
    error = vm_destroy(c->vm, job_done, new_job());
    vm_put(c->vm); /* the end waits for the last reference */
    c->vm = NULL;
    return error ? shell_fail(c, error, "%s is already on its way out", c->argv[1]) : SHELL_WAIT;
}

static int cmd_pause(struct shell_call *c) {
    bool pause = c->argv[0][0] == 'p'; /* or unpause */
    int error = pause ? vm_pause(c->vm) : vm_unpause(c->vm);

    if (!error) return 0;
    return shell_fail(c, error, "%s is %s: %s", c->vm->name, vm_state_name(c->vm->state),
                      pause ? "it cannot be paused" : "only a paused VM can be unpaused");
}

/* Until the VM has ended or crashed, or the time is over. For scripts. */
static int cmd_wait(struct shell_call *c) {
    static u64 until;
    u64 ns = 1000000 * NS_PER_S;
    struct vm *vm;
    bool over;

    if (!c->step) {
        if (c->argc == 3 && parse_time(c->argv[2], &ns, NULL)) return shell_usage(c);
        until = machine_now() + ns;
    }
    vm = vm_find(c->argv[1]);
    over = !vm || vm->state == VM_CRASHED || vm->state == VM_SHUTDOWN;
    if (vm) vm_put(vm);
    if (over) return 0;
    if (machine_now() >= until) return shell_fail(c, -ETIMEDOUT, "%s has not ended", c->argv[1]);
    c->at = machine_now() + NS_PER_MS;
    return SHELL_AGAIN;
}

const struct shell_command vm_commands[] = {
    { "list", "[VM]", "VMs, their memory, state (r b p s c d) and CPU time", cmd_list, 0, 1, TAKES_VM, NULL },
    { "vcpu-list", "[VM]", "vCPUs, where they are and may run", cmd_vcpu_list, 0, 1, TAKES_VM, NULL },
    { "vcpu-pin", "VM VCPU|all CPUS|all", "sets where vCPUs may run", cmd_vcpu_pin, 3, 3, TAKES_VM, NULL },
    { "create", "VM [KEY=VALUE...]",
      "creates a VM of the configuration file, or one described by keys of its [vm] section", cmd_create, 1,
      SHELL_ARGS, TAKES_WORDS, NULL },
    { "destroy", "VM", "ends a VM at once and frees what it had", cmd_destroy, 1, 1, TAKES_VM, NULL },
    { "pause", "VM", "keeps a VM from running", cmd_pause, 1, 1, TAKES_VM, NULL },
    { "unpause", "VM", "lets it run again", cmd_pause, 1, 1, TAKES_VM, NULL },
    { "wait", "VM [TIME]", "until it has ended or crashed, at most so long (500ms)", cmd_wait, 1, 2,
      TAKES_WORDS, NULL },
    { "console", "VM", "connects the terminal to a VM's console; ^] leaves", cmd_console, 1, 1, TAKES_VM,
      NULL },
    { 0 },
};
