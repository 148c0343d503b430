/* Which faults are injected, and when: all follows from the seed and from the number of the event.
 * inject.h says what an event is, whole.h has the contracts of the functions that other files call.
 *
 * What is injected: VMs that are destroyed (and made again), crash or stand still for a while; back
 * ends and managers of disk I/O that do so while they serve; allocations of the hypervisor that
 * fail; kicks that arrive late; interrupts and events that nobody has sent; commands for the shell
 * that move vCPUs and change parameters. How much the network loses and reorders, and how full
 * rings get, is in the VM file (tools/simfaults.py). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "check.h"
#include "devices/device.h"
#include "platform/console.h"
#include "platform/smp.h"
#include "store/tree.h"
#include "tests/whole/inject/inject.h"
#include "vcpu/vcpu.h"
#include "x86/percpu.h"

#define MAX_KICK_NS (50 * NS_PER_US)
/* How long all VMs have to go at the end. */
#define END_NS    (4 * NS_PER_S)
#define MAX_AGAIN 16u /* VMs that wait to be made or to go on */
#define VM_EVERY  8u  /* of so many events, devices, windows and RAM are checked after one */

/* The program's own memory is there until it ends. After a panic nobody waits for a core. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "detect_leaks=0:handle_abort=0:disable_coredump=1:detect_stack_use_after_return=0";
}

static u64 state; /* of the generator; 0: nothing is injected */
static u64 seed, events, count[10];
static bool on;     /* faults come now */
static bool ending; /* all VMs are to go */
static u32 nr_vms_left = 1;
static struct model_count before; /* the first VM is made */

/* How often each fault comes: once in so many events, 0: never. */
static struct {
    u64 destroy, crash, server, pause, interrupt, event, command, kick;
    u64 memory;        /* once in so many allocations, while they fail at all */
    u64 memory_phases; /* once in so many events, allocations begin or cease to fail */
} every;
static bool memory_fails;
enum {
    DESTROYED,
    CRASHED,
    PAUSED,
    INTERRUPTS,
    EVENTS,
    COMMANDS,
    KICKS,
    ALLOCATIONS,
    BACK_ENDS,
    MANAGERS
};
static const char *const names[] = { "VMs destroyed",
                                     "crashed",
                                     "paused",
                                     "interrupts",
                                     "events",
                                     "commands",
                                     "kicks that came late",
                                     "allocations failed",
                                     "back ends died",
                                     "managers died" };

/* xorshift64*, as tests/sim has it. */
u64 inject_below(u64 n) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (state * 0x2545f4914f6cdd1dull >> 16) % n;
}

static bool happens(u64 once_in, u32 what) {
    if (!on || !once_in || inject_below(once_in)) return false;
    count[what]++;
    return true;
}

bool inject_no_memory(void) { return memory_fails && happens(every.memory, ALLOCATIONS); }

u64 whole_kick_late(void) {
    if (!happens(every.kick, KICKS)) return 0;
    return inject_below(MAX_KICK_NS);
}

/* ---- VMs that end, and come again ---- */

static const struct config *config;
static struct {
    const struct config_vm *make; /* is to be made then; NULL: is to go on */
    char name[VM_NAME];
    u64 at;
} again[MAX_AGAIN];
static u32 nr_again;

/* Returns a VM with a reference, or NULL. */
static struct vm *any_vm(void) {
    const struct config_vm *c = &config->vm[inject_below(config->nr_vms)];

    return vm_find(c->head.name);
}

/* Each fault with its time, for who looks for the cause of something. */
static void tell(const char *what, const struct vm *vm) {
    log_info("fault: %s is %s, event %lu", vm->name, what, events);
}

static void come_again(const struct vm *vm, bool make) {
    if (nr_again == MAX_AGAIN) return;
    again[nr_again].make = NULL;
    for (u32 i = 0; make && i < config->nr_vms; i++)
        if (strcmp(config->vm[i].head.name, vm->name) == 0) again[nr_again].make = &config->vm[i];
    memcpy(again[nr_again].name, vm->name, VM_NAME);
    again[nr_again++].at = whole_now + inject_below(200 * NS_PER_MS);
}

void whole_inject_again(const struct config_vm *c) {
    if (nr_again == MAX_AGAIN) return;
    again[nr_again].make = c;
    again[nr_again++].at = whole_now + inject_below(200 * NS_PER_MS);
}

/* Makes those VMs again whose time has come, and lets those go on that stand still. A VM cannot be
 * made again while its last life has not ended; then it is tried again 10 ms later. */
static void bring_back(void) {
    for (u32 i = 0; i < nr_again; i++) {
        struct vm *vm;

        if (again[i].at > whole_now) continue;
        if (again[i].make && vm_create(again[i].make, NULL, NULL) && on) {
            again[i].at += 10 * NS_PER_MS;
            continue;
        }
        vm = again[i].make ? NULL : vm_find(again[i].name);
        if (vm) vm_unpause(vm);
        if (vm) vm_put(vm);
        again[i--] = again[--nr_again];
    }
}

/* Destroys the VM, or lets it crash, as the hypervisor does when a VM fails. The VM is made again
 * later. Gives the reference to it back. */
static void end_vm(struct vm *vm, bool crash) {
    if (!vm) return;
    tell(crash ? "crashed" : "destroyed", vm);
    if (crash) vm_crash(vm, "by a fault that is injected");
    if (!crash || vm->config.on_crash == ON_CRASH_PRESERVE) {
        vm_destroy(vm, NULL, NULL);
        come_again(vm, true);
    }
    vm_put(vm);
    cpu_interrupt_self(); /* its vCPU may be the one that would be entered now */
}

/* Returns a VM that serves a device now, with a reference, or NULL. The more devices it serves, the
 * more often it is chosen. */
static struct vm *any_server(void) {
    struct vm *served[PORT_VMS];
    u32 n = 0;

    list_for_each(d, &devices, struct device, link) {
        if (d->back && n < PORT_VMS) served[n++] = d->back;
    }
    return n ? vm_find(served[inject_below(n)]->name) : NULL;
}

/* Ends a driver domain while it serves, and with it its manager of disk I/O, if it has one. */
static void end_server(void) {
    struct vm *vm = any_server();

    if (!vm) return;
    count[BACK_ENDS]++;
    if (strstr(vm->config.cmdline, " collab")) count[MANAGERS]++;
    end_vm(vm, inject_below(2));
}

static void pause_vm(void) {
    struct vm *vm = any_vm();

    if (!vm) return;
    if (vm_pause(vm) == 0) {
        tell("paused", vm);
        come_again(vm, false);
    }
    vm_put(vm);
    cpu_interrupt_self();
}

/* ---- smaller things ---- */

/* An event that nobody has sent. Guests and back ends have to look what there is to do. */
static void raise_event(void) {
    struct vm *vm = any_vm();
    u32 port = 1 + (u32)inject_below(24);

    if (!vm) return;
    if (vm->events.group[0] && vm->state == VM_RUNNING) evtchn_raise(&vm->events, port, whole_now);
    vm_put(vm);
}

/* Types a random command: one that moves vCPUs, changes weight and cap, lists devices, or writes to
 * the store. The shell reads it when pCPU 0 next does work. */
static void type_command(void) {
    const struct config_vm *c = &config->vm[inject_below(config->nr_vms)];
    char line[128];
    int n;

    switch (inject_below(6)) {
    case 0:
        n = snprintf(line, sizeof(line), "vcpu-pin %s all %lu\r", c->head.name,
                     inject_below(nr_cpus));
        break;
    case 1: n = snprintf(line, sizeof(line), "vcpu-pin %s all all\r", c->head.name); break;
    case 2:
        n = snprintf(line, sizeof(line), "sched-credit -d %s -w %lu -c %lu\r", c->head.name,
                     1 + inject_below(1000), inject_below(100));
        break;
    case 3: n = snprintf(line, sizeof(line), "devices -l\r"); break;
    case 4:
        n = snprintf(line, sizeof(line), "store write /fault/%lu %lu\r", inject_below(12), events);
        break;
    default: n = snprintf(line, sizeof(line), "store rm /fault/%lu\r", inject_below(12));
    }
    console_input(line, (unsigned)n);
}

static void inject(void) {
    if (happens(every.destroy, DESTROYED)) end_vm(any_vm(), false);
    if (happens(every.crash, CRASHED)) end_vm(any_vm(), true);
    if (on && every.server && !inject_below(every.server)) end_server();
    if (happens(every.pause, PAUSED)) pause_vm();
    if (happens(every.interrupt, INTERRUPTS)) cpu_interrupt_self();
    if (happens(every.event, EVENTS)) raise_event();
    if (happens(every.command, COMMANDS)) type_command();
    if (on && every.memory_phases && !inject_below(every.memory_phases))
        memory_fails = !memory_fails;
    if (nr_again) bring_back();
}

/* The end: destroys whatever is there. What a command has left in the store goes, too. */
static void destroy_all(void) {
    static bool cleared;

    if (!cleared) console_input("\rstore rm /fault\r", 17);
    cleared = true;
    nr_vms_left = 0;
    for (struct vm *vm = vm_next(NULL); vm; vm = vm_next(vm)) {
        nr_vms_left++;
        if (vm->state != VM_DYING && vm_destroy(vm, NULL, NULL) == 0) cpu_interrupt_self();
        vm->job.again = false;
    }
}

/* ---- checks ---- */

/* Changes whenever the store may have. */
static u64 store_mark(void) {
    u64 mark = store.generation * 31 + store.ids;

    list_for_each(c, &store.clients, struct store_client, link) mark = mark * 31 + c->memory;
    return mark;
}

static void check(void) {
    static u64 checked_store;

    sched_check(nr_cpus);
    check_events();
    check_memory();
    if (events % VM_EVERY == 0) check_devices();
    if (checked_store != store_mark()) check_store();
    checked_store = store_mark();
}

/* Called after each event: checks all invariants, and then injects the faults whose turn it is. At
 * the end of the run it destroys VMs instead. The checks take no virtual time. */
void whole_inject_step(void) {
    static bool inside;
    u64 owed = whole_owed();

    if (!state || !config || inside) return;
    inside = true;
    events++;
    check();
    whole_owe(owed);
    if (ending)
        destroy_all();
    else
        inject();
    inside = false;
}

/* ---- begin and end ---- */

/* Chooses 0, or a number between least and 16 * least. */
static u64 rate(u64 least) {
    if (inject_below(3) == 0) return 0;
    return least << inject_below(5);
}

/* Sets the injection of faults up for the seed `n`: the random numbers, and how often each kind of
 * fault comes in this run. */
void whole_inject_begin(u64 n) {
    seed = n;
    state = (n + 1) * 0x9e3779b97f4a7c15ull;
    for (u32 i = 0; i < 8; i++) inject_below(2);
    every.destroy = rate(1000);
    every.crash = rate(2000);
    every.server = rate(500);
    every.pause = rate(500);
    every.interrupt = rate(20);
    every.event = rate(50);
    every.command = rate(200);
    every.kick = rate(4);
    every.memory = rate(2);
    every.memory_phases = rate(200);
}

void whole_inject_boot(const struct config *c) {
    if (!state) return;
    /* Where VMs have their nodes stays when they have gone. */
    store_mkdir(&store.self, 0, "/local/domain");
    while (store_work()) {
    }
    before = model_count();
    config = c;
    on = true;
}

/* Prints what was injected. */
static void summary(void) {
    printf("seed %lu: %lu events", seed, events);
    for (u32 i = 0; i < ARRAY_SIZE(count); i++) printf(", %lu %s", count[i], names[i]);
    printf("\n");
}

/* Lets time pass until all VMs are destroyed, and then some. Nothing of them may be left: no frame,
 * and no object. */
void whole_inject_end(void) {
    struct model_count now;
    u64 limit = whole_now + END_NS;

    on = memory_fails = false;
    nr_again = 0;
    ending = true;
    while (nr_vms_left && whole_now < limit) engine_run_until(whole_now + 20 * NS_PER_MS);
    MUST(!nr_vms_left, "%u VMs cannot be destroyed in %u ms", nr_vms_left,
         (u32)(END_NS / NS_PER_MS));
    engine_run_until(whole_now + 200 * NS_PER_MS);
    now = model_count();
    if (now.objects != before.objects) model_tell_objects(before.allocations);
    MUST(now.objects == before.objects, "%lu objects are allocated after the last VM, %lu before",
         now.objects, before.objects);
    MUST(now.frames == before.frames, "%lu frames are allocated after the last VM, %lu before",
         now.frames, before.frames);
    summary();
}
