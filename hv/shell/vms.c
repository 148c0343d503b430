/* Commands about VMs, named as in xl: list vcpu-list vcpu-pin create destroy shutdown pause unpause
 * console; and a list of their devices. A function cmd_...() is called again as long as it returns
 * SHELL_AGAIN. A command that lists something prints one row at each call, so that no call takes
 * long. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "common/string.h"
#include "mm/frame.h"
#include "sched/machine.h"
#include "sched/policy.h"
#include "shell/shell.h"
#include "devices/devices.h"
#include "vcpu/vcpu.h"

/* Returns the VM of that name with a reference, or NULL after shell_fail(). */
struct vm *shell_vm(const char *name) {
    struct vm *vm = vm_find(name);

    if (!vm) shell_fail(-ENOENT, "there is no VM %s", name);
    return vm;
}

/* Returns the pool of a VM in *pool. Returns 0, or an error after shell_fail(). */
int shell_vm_pool(const struct vm *vm, struct sched_pool **pool) {
    *pool = NULL;
    if (vm->state != VM_DYING) *pool = vm->sched.pool;
    if (!*pool)
        return shell_fail(-EAGAIN, "%s is still being made, or is being destroyed", vm->name);
    return 0;
}

/* Checks the name of a new VM or pool. Returns 0, or -EINVAL after shell_fail(). */
int shell_new_name(const char *name) {
    if (valid_name(name)) return 0;
    return shell_fail(-EINVAL,
                      "%s is no name: expected letters, digits, '-', '_' or '.', and not a number",
                      name);
}

/* Moves c->vm to the next VM. Returns false at the end. If the command is about one VM, this is the
 * only one. */
bool shell_next_vm(struct shell_call *c) {
    if (c->only) return c->step == 0;
    c->vm = vm_next(c->vm);
    return c->vm;
}

/* Returns the next vCPU of all VMs, or NULL at the end; c->vm and c->index keep the place between
 * calls. A VM that is being destroyed is left out. vCPUs are made in their order, so behind one
 * that is not there yet there is none. */
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

#define STATES "State: r running, b blocked, p paused, s shut down, c crashed, d dying"

/* Writes xl's six letters to `s`, as STATES explains them: those that hold, and '-' in the place of
 * each other one. *run_ns becomes the time that the VM's vCPUs have run. */
static void state_letters(struct vm *vm, char s[7], u64 *run_ns) {
    bool running = false, blocked = vm->nr_vcpus > 0;

    *run_ns = 0;
    memcpy(s, "------", 7);
    for (u32 i = 0; vm->state != VM_DYING && i < vm->nr_vcpus && vm->vcpu[i]; i++) {
        struct sched_times t;

        sched_times(&vm->vcpu[i]->sched, &t);
        *run_ns += t.state_ns[RS_RUNNING];
        running |= t.state == RS_RUNNING;
        blocked &= t.state == RS_BLOCKED;
    }
    if (running) s[0] = 'r';
    if (blocked) s[1] = 'b';
    if (vm->state == VM_PAUSED) s[2] = 'p';
    if (vm->state == VM_SHUTDOWN) s[3] = 's';
    if (vm->state == VM_CRASHED) s[4] = 'c';
    if (vm->state == VM_DYING) s[5] = 'd';
}

COLUMNS(vm_columns, COL("Name", "name", 's', -24), COL("ID", "id", 'u', 5),
        COL("Mem", "memory_mib", 'u', 6), COL("VCPUs", "vcpus", 'u', 6), COL(NULL, "state", 's', 0),
        COL("State", "flags", 's', 10), COL("Time(s)", "time_s", 't', 11),
        COL(NULL, "pool", 's', 0), COL(NULL, "exit_code", 'd', 0), COL(NULL, "why", 's', 0));

/* Lists the VMs, one at each step. For a person the meaning of the letters follows. */
static int cmd_list(struct shell_call *c) {
    const char *pool = "";
    char letters[7];
    struct vm *vm;
    u64 run_ns;

    c->columns = vm_columns;
    if (!shell_next_vm(c)) {
        table_end(c);
        if (!c->json) out("%s\n", STATES);
        return 0;
    }
    vm = c->vm;
    if (vm->sched.pool) pool = vm->sched.pool->name;
    state_letters(vm, letters, &run_ns);
    table_row(c, CELLS(S(vm->name), U(vm->id), U(vm->config.memory >> 20),
                       U(vm->config.vcpus + vm->config.turbo), S(vm_state_name(vm->state)),
                       S(letters), U(run_ns), S(pool), D(vm->exit_code), S(vm->why)));
    return SHELL_AGAIN;
}

/* ---- vcpu-list ---- */

COLUMNS(vcpu_columns, COL("Name", "vm", 'n', -16), COL("ID", "id", 'u', 4),
        COL("VCPU", "vcpu", 'u', 4), COL("CPU", "cpu", 'u', 4), COL("State", "state", 's', 9),
        COL(NULL, "paused", 'b', 0), COL("Time(s)", "time_s", 't', 10),
        COL(NULL, "running_ns", 'u', 0), COL(NULL, "runnable_ns", 'u', 0),
        COL(NULL, "blocked_ns", 'u', 0), COL(NULL, "offline_ns", 'u', 0),
        COL(NULL, "wake_ns", '{', 0), COL(NULL, "p50", 'u', 0), COL(NULL, "p99", 'u', 0),
        COL(NULL, "max", 'u', 0), COL(NULL, NULL, '}', 0), COL(NULL, "switches", 'u', 0),
        COL(NULL, "wakes", 'u', 0), COL(NULL, "migrations", 'u', 0), COL(NULL, "exits", 'u', 0),
        COL(NULL, "interrupted", 'u', 0), COL("Pool", "pool", 'n', -10),
        MORE("Class", "class", 's', -5), MORE("Micro(us)", "micro_us", 'u', 9),
        MORE("Turbo %", "turbo_pct", 'f', 8), MORE("Moved(us)", "moved_us", 'd', 9),
        MORE("Boost", "boost", 'u', 5), MORE("Preempted", "preemptions", 'u', 9),
        MORE("Boosts", "boosts", 'u', 8), MORE("Grants", "grants", 'u', 8),
        COL(NULL, "granted_ns", 'u', 0), COL("Affinity", "affinity", 's', 0));

/* Returns the word for a state of a vCPU (enum run_state). */
const char *run_state_name(u32 s) {
    static const char *const words[] = { "running", "runnable", "blocked", "offline" };

    return words[s];
}

/* Lists the vCPUs, one at each step. The cells are in the order of vcpu_columns, so the time in the
 * state "running" comes twice: in seconds for people, and as running_ns. */
static int cmd_vcpu_list(struct shell_call *c) {
    struct vcpu *v = shell_next_vcpu(c);
    const struct sched_vm *d;
    struct sched_times t;
    char cpus[CPUS_TEXT];

    c->columns = vcpu_columns;
    if (!v) return 0;
    sched_times(&v->sched, &t);
    format_cpus(&v->sched.affinity, cpus);
    d = v->sched.vm;
    table_row(c,
              CELLS(S(v->vm->name), U(v->vm->id), U(v->id), U(t.cpu), S(run_state_name(t.state)),
                    U(d->paused), U(t.state_ns[RS_RUNNING]), U(t.state_ns[RS_RUNNING]),
                    U(t.state_ns[RS_RUNNABLE]), U(t.state_ns[RS_BLOCKED]),
                    U(t.state_ns[RS_OFFLINE]), S("{"), U(t.wake_p50), U(t.wake_p99), U(t.wake_max),
                    S("}"), U(t.switches), U(t.wakes), U(t.migrations), U(v->exits),
                    U(v->interrupted), S(d->pool->name), S(t.kind), U(t.micro_ns / NS_PER_US),
                    U(t.turbo_pct), D(t.moved_ns / (i64)NS_PER_US), U(t.boost), U(t.preemptions),
                    U(t.boosts), U(t.grants), U(t.granted_ns), S(cpus)));
    return SHELL_AGAIN;
}

/* ---- devices ---- */

COLUMNS(device_columns, COL("Name", "vm", 'n', -14), MORE("ID", "id", 'u', 4),
        COL("Dev", "number", 'u', 3), COL("Type", "type", 's', -5),
        COL("Back end", "back", 'n', -14), COL("State", "state", 's', -8),
        COL(NULL, "status", 'u', 0), MORE("Queues", "queues", 'u', 6),
        COL("Notifies", "notifies", 'u', 10), COL("Interrupts", "interrupts", 'u', 10),
        COL("Dropped", "dropped", 'u', 7), MORE("Resets", "resets", 'u', 6));

/* Lists the devices of all VMs, or of one VM: one at each step. */
static int cmd_devices(struct shell_call *c) {
    struct device_info d;

    c->columns = device_columns;
    if (!c->vm) c->vm = vm_next(NULL);
    if (!c->vm) return 0;
    if (device_info(c->vm, c->index, &d)) {
        table_row(c, CELLS(S(c->vm->name), U(c->vm->id), U(c->index), S(d.type), S(d.back),
                           S(d.state), U(d.status), U(d.queues), U(d.notifies), U(d.interrupts),
                           U(d.dropped), U(d.resets)));
        c->index++;
        return SHELL_AGAIN;
    }
    if (c->only) return 0;
    c->vm = vm_next(c->vm);
    c->index = 0;
    if (!c->vm) return 0;
    return SHELL_AGAIN;
}

/* ---- vcpu-pin ---- */

/* Sets on which CPUs a vCPU, or all vCPUs of a VM, may run. A VM that is being destroyed is
 * refused, because its vCPUs go one after the other. */
static int cmd_vcpu_pin(struct shell_call *c) {
    struct vm *vm = c->vm;
    u64 first = 0, last = vm->nr_vcpus - 1;

    if (strcmp(c->argv[2], "all") != 0) {
        if (parse_u64(c->argv[2], &first, NULL) || first > last)
            return shell_fail(-EINVAL, "%s has no vCPU %s", vm->name, c->argv[2]);
        last = first;
    }
    for (u64 i = first; i <= last; i++) {
        struct vcpu *v = NULL;

        if (vm->state != VM_DYING) v = vm->vcpu[i];
        if (!v || sched_set_affinity(&v->sched, &c->cpus))
            return shell_fail(-EINVAL,
                              "vCPU %lu of %s cannot run there: its pool has none of these CPUs", i,
                              vm->name);
    }
    return 0;
}

/* ---- create, destroy: a work item of the VM does these jobs, in many steps. The command waits
 * for the end of the job. After ^C the job goes on without the command. ---- */

/* The number of the command that waits. The end of a job with an older number is ignored. */
static u64 ticket;
static int outcome; /* of the job that the command waits for; SHELL_AGAIN until it ends */

/* Called at the end of a job. `ctx` is the ticket that it began with. */
static void job_done(void *ctx, struct vm *vm, int error, const char *why) {
    if ((u64)ctx != ticket) return;
    outcome = 0;
    if (!why) why = "it failed";
    if (error) outcome = shell_fail(error, "%s", why);
}

/* Called when a command ends before its job does: drops the job's result. */
static void forget_job(struct shell_call *c) { ticket++; }

/* Begins to wait for a job. Returns the ticket by which its end is recognised. */
static void *new_job(struct shell_call *c) {
    c->end = forget_job;
    outcome = SHELL_AGAIN;
    return (void *)ticket;
}

/* Returns the result of the job, or waits on. */
static int await_job(struct shell_call *c) {
    if (outcome == SHELL_AGAIN) return shell_later();
    return outcome;
}

/* Keeps what is wrong with a key=value word, as the reason for which the command fails. */
static void keep_complaint(void *ctx, bool fatal, const char *text) {
    shell_fail(-EINVAL, "%s", text);
}

/* Fills in the VM's section of the configuration, changed by the command's key=value words; or the
 * defaults if the configuration has no such VM. */
static int describe_vm(struct shell_call *c, struct config_vm *v) {
    const struct config_vm *known = config_find_vm(shell_config(), c->argv[1]);

    if (!known && shell_new_name(c->argv[1])) return -EINVAL;
    config_vm_defaults(v, c->argv[1]);
    if (known) *v = *known;
    for (int i = 2; i < c->argc; i++) {
        char *value = strchr(c->argv[i], '=');

        if (!value) return shell_fail(-EINVAL, "expected key=value, not %s", c->argv[i]);
        *value++ = 0;
        if (config_vm_set(v, c->argv[i], value, param_name_at, keep_complaint, NULL))
            return -EINVAL;
    }
    if (!*config_vm_image(v))
        return shell_fail(-EINVAL,
                          "the configuration has no VM %s, and neither image= nor kernel= is given",
                          c->argv[1]);
    if (*v->image && *v->kernel)
        return shell_fail(-EINVAL, "VM %s has both an image and a kernel: expected one of them",
                          c->argv[1]);
    return 0;
}

/* What `create -w TIME` needs to know while it waits for room. */
static struct {
    u64 until; /* when it gives up, ns */
    int error; /* why it waits: -ENOMEM, or -EEXIST for the name; 0: the VM is being made */
    u64 free;  /* frames that were free when there were too few */
} room;

/* Begins to make the VM. Returns SHELL_AGAIN, or why that is not possible. */
static int create_begin(struct shell_call *c, const struct config_vm *v) {
    int error = vm_create(v, job_done, new_job(c));

    room.error = 0;
    if (error) return shell_done(error, "VM", c->argv[1]);
    return SHELL_AGAIN;
}

/* Returns whether there may be now what was missing when the VM could not be made. */
static bool there_is_room(const struct shell_call *c) {
    struct vm *other;

    if (room.error == -ENOMEM) return frame_free_count() > room.free;
    other = vm_find(c->argv[1]);
    if (other) vm_put(other);
    return !other;
}

/* Begins to make a VM at the first step. All later steps wait for the end of that job, so that the
 * operator sees whether it has succeeded. With -w, a VM that finds too little memory, or another VM
 * of its name, is made again as soon as that may have changed; `room` says what is waited for. */
static int cmd_create(struct shell_call *c) {
    static struct config_vm v; /* too big for the stack */
    u64 patience = 0;
    int result = room.error; /* if nothing has changed. The sentence is kept, too */

    if (!c->step) {
        if (c->opt['w'] && parse_time(c->opt['w'], &patience, NULL)) return shell_usage();
        room.until = machine_now() + patience;
        result = describe_vm(c, &v);
        if (!result) result = create_begin(c, &v);
    } else if (!room.error) {
        result = await_job(c);
    } else if (there_is_room(c)) {
        result = create_begin(c, &v);
    }
    if ((result != -ENOMEM && result != -EEXIST) || machine_now() >= room.until) return result;
    if (!room.error) room.free = frame_free_count();
    room.error = result;
    return shell_later();
}

/* Begins to destroy a VM at the first step. All later steps wait for the end of that job. */
static int cmd_destroy(struct shell_call *c) {
    int error;

    if (c->step) return await_job(c);
    error = vm_destroy(c->vm, job_done, new_job(c));
    vm_put(c->vm); /* the job ends only when the last reference is gone */
    c->vm = NULL;
    if (error)
        return shell_fail(error, "%s is still being made, or is being destroyed", c->argv[1]);
    return SHELL_AGAIN;
}

/* Keeps a VM from running, until it is unpaused. */
static int cmd_pause(struct shell_call *c) {
    int error = vm_pause(c->vm);

    if (!error) return 0;
    return shell_fail(error, "%s is %s: it cannot be paused", c->vm->name,
                      vm_state_name(c->vm->state));
}

/* Lets a paused VM run again. */
static int cmd_unpause(struct shell_call *c) {
    int error = vm_unpause(c->vm);

    if (!error) return 0;
    return shell_fail(error, "%s is %s: only a paused VM can be unpaused", c->vm->name,
                      vm_state_name(c->vm->state));
}

/* Asks the operating system of a VM to switch itself off, by the power button that a PC has. */
static int cmd_shutdown(struct shell_call *c) {
    switch (vm_press_power(c->vm)) {
    case 0: return 0;
    case -ENODEV:
        return shell_fail(-ENODEV,
                          "%s has no power button: only a VM with a kernel= has one; destroy ends "
                          "any VM",
                          c->vm->name);
    case -EINVAL:
        return shell_fail(-EINVAL, "%s is %s: only a VM that runs notices its power button",
                          c->vm->name, vm_state_name(c->vm->state));
    default:
        return shell_fail(-EAGAIN,
                          "the operating system of %s does not look at the power button, or not "
                          "yet; destroy ends any VM",
                          c->vm->name);
    }
}

#define WAIT_NS (1000000 * NS_PER_S) /* how long `wait` waits if no time is given: 11 days */

/* Waits until the VM has ended or crashed, or until the time is over. Scripts use it. */
static int cmd_wait(struct shell_call *c) {
    static u64 until;
    u64 ns = WAIT_NS;
    struct vm *vm = vm_find(c->argv[1]);
    bool over = !vm || (vm->state == VM_CRASHED && vm->config.on_crash == ON_CRASH_PRESERVE);

    if (vm) vm_put(vm);
    if (!c->step) {
        if (c->argc == 3 && parse_time(c->argv[2], &ns, NULL)) return shell_usage();
        until = machine_now() + ns;
    }
    if (over) return 0;
    if (machine_now() >= until) return shell_fail(-ETIMEDOUT, "%s has not ended", c->argv[1]);
    return shell_later();
}

#define ALL_COLUMNS "-l  shows all columns, also where they are wider than a terminal"

const struct shell_command vm_commands[] = {
    { "list", "[VM]", "lists VMs, their memory, state and CPU time\n" STATES, cmd_list, "?V", "" },
    { "vcpu-list", "[-l] [VM]", "lists vCPUs, where they are and where they may run\n" ALL_COLUMNS,
      cmd_vcpu_list, "?V", "l" },
    { "devices", "[-l] [VM]", "lists virtio devices and who serves them\n" ALL_COLUMNS, cmd_devices,
      "?V", "l" },
    { "vcpu-pin", "VM VCPU|all CPUS|all", "sets where vCPUs may run", cmd_vcpu_pin, "VwC", "" },
    { "create", "[-w TIME] VM [KEY=VALUE...]",
      "creates a VM of the configuration, or a new one\n"
      "KEY=VALUE  as in a [vm] section (docs/config.md); image= for a new one\n"
      "-w TIME    waits so long (20s) for VMs to end that have the memory or the name",
      cmd_create, "w*", "w:" },
    { "destroy", "VM", "ends a VM at once and frees what it had", cmd_destroy, "V", "" },
    { "shutdown", "VM",
      "presses the power button of a VM with a kernel=\n"
      "What follows is up to its operating system; wait waits until the VM is gone",
      cmd_shutdown, "V", "" },
    { "pause", "VM", "keeps a VM from running", cmd_pause, "V", "" },
    { "unpause", "VM", "lets a paused VM run again", cmd_unpause, "V", "" },
    { "wait", "VM [TIME]",
      "waits until a VM is gone, or has crashed and stays\n"
      "TIME  is the longest that it waits (500ms)",
      cmd_wait, "w?w", "" },
    { "console", "[-r] VM",
      "connects the terminal to a VM's console; ^] leaves\n"
      "-r  without escapes, for full-screen programs; the log waits",
      cmd_console, "V", "r" },
    { 0 },
};
