/* The shell: every command on real VMs and pools, the words of its refusals, timed commands, and
 * the consoles of guests. An operator has nothing but the shell, and scripts read its JSON: a
 * command that answers wrongly, or changes something although it refuses, spoils an experiment
 * unseen. test_shell_walk.c has random sequences of commands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "fake_log.h"
#include "shell_rig.h"
#include "trace/trace.h"

extern const struct counter console_bytes_dropped;

static struct config cfg;
static const char script[] = "# timed\n"
                             "@300ms pause one\n"
                             "nonsense\n"
                             "+2ms list -j=later one\n";
static const struct module script_module = { "script", script, sizeof(script) - 1 };

static int setup(void **state) {
    fake_machine("credit");
    module_add(&script_module);
    rig_start(
        &cfg,
        "[hypervisor]\nscript = script\nguest_console = log\n[vm one]\nimage = null\nmemory = "
        "2M\n[vm two]\nimage = "
        "null\nmemory = 2M\nvcpus = 2\n"
        "weight = 512\n");
    return 0;
}

/* ---- commands ---- */

static void answers(const char *line, const char *expected) {
    const char *said = rig_say(line);

    if (!strstr(said, expected)) fail_msg("%s\n  said: %s\n  expected: %s", line, said, expected);
}

/* A VM is in the list before it is in a pool. */
static void not_yet_made(void **state) {
    static const char *const lines[] = { "sched-credit -d early -w 1000", "param -d early",
                                         "cpupool-migrate early Pool-0", "destroy early",
                                         "sched-credit" };
    struct config_vm c;

    config_vm_defaults(&c, "early");
    strcpy(c.image, "null");
    c.memory = 2 << 20;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(vm_create(&c, NULL, NULL), 0);
        answers(lines[i], i < 4 ? "early is still being made, or is being destroyed\n" : "Weight");
        rig_run(NS_PER_S);
        answers("destroy early", "takt> ");
        rig_run(NS_PER_S);
    }
}

/* The VM ends while its parameters are being printed: the answer is whole JSON all the same, and
 * says why it is short. */
static void cut_off_answer(void **state) {
    struct config_vm c = fake_config("early", 1);
    struct vm *vm;
    const char *said;

    assert_int_equal(vm_create(&c, NULL, NULL), 0);
    rig_run(100 * NS_PER_MS);
    vm = vm_find("early");
    fake_console_reset();
    fake_console_type("param -j -d early\r");
    for (u32 steps = 0; steps < 1000 && !strstr(fake_console_text, "\"help\""); steps++) work_run();
    assert_int_equal(vm_destroy(vm, NULL, NULL), 0);
    vm_put(vm);
    rig_run(NS_PER_S);
    said = strchr(fake_console_text, '\x1e');
    if (!strstr(said, "\"}], \"message\": \"early is still being made, or is being destroyed\"}\n"))
        fail_msg("%s", said);
}

/* A VM that is being destroyed is no longer in a pool, while its memory is still being scrubbed. */
static void on_its_way_out(void **state) {
    static const char *const lines[] = { "sched-credit", "sched-credit -d early -w 1000",
                                         "param -d early", "param -d early/0", "vcpu-list early" };
    struct config_vm c = fake_config("early", 1);

    for (int steps = 0; steps < 80; steps++) {
        struct vm *vm;

        assert_int_equal(vm_create(&c, NULL, NULL), 0);
        rig_run(100 * NS_PER_MS);
        vm = vm_find("early");
        assert_non_null(vm);
        assert_int_equal(vm_destroy(vm, NULL, NULL), 0);
        vm_put(vm);
        for (int i = 0; i < steps; i++) {
            for (u32 cpu = 0; cpu < FAKE_CPUS; cpu++) fake_pass(cpu);
            fake_cpu(0);
            work_run();
        }
        rig_say(lines[steps % ARRAY_SIZE(lines)]);
        rig_run(NS_PER_S);
    }
    answers("list", "Name");
}

static void script_ran(void **state) {
    assert_string_equal(rig_say("create one"), "takt> ");
    fake_console_reset();
    rig_run(310 * NS_PER_MS);
    assert_non_null(strstr(fake_console_text, "takt> pause one\n"));
    assert_non_null(strstr(
        fake_console_text,
        "takt> list -j=later one\n\x1e{\"id\": \"later\", \"command\": \"list\", \"error\": 0"));
    assert_non_null(strstr(fake_console_text, "\"state\": \"paused\""));
    answers("unpause one", "takt> ");
}

static void lists(void **state) {
    assert_string_equal(rig_say("create two"), "takt> ");
    assert_string_equal(rig_say("create pc kernel=null memory=2M"), "takt> ");
    assert_string_equal(rig_say("destroy pc"), "takt> ");
    answers("list", "Name                        ID    Mem  VCPUs      State     Time(s)\n");
    answers("list", "two ");
    answers("list two", "     2      2 ");
    answers("list -j=7 two", "\x1e{\"id\": \"7\", \"command\": \"list\", \"error\": 0, \"result\": "
                             "[{\"name\": \"two\", ");
    answers("vcpu-list two", "two ");
    answers("vcpu-list -j two", "\"vcpu\": 1,");
    answers("vcpu-list -j two", "\"offline_ns\": 0, \"wake_ns\": {\"p50\": ");
    answers("pcpu-list", "   0 Pool-0 ");
    answers("pcpu-list -j", "[{\"cpu\": 0, \"pool\": \"Pool-0\", \"guest_s\": ");
    answers("vcpu-list -j", "\"affinity\": \"all\"}]}\n");
    answers("sched-credit", "two                 2    512 ");
    answers("sched-credit -j", "\"weight\": 512, \"cap\": 0, ");
    answers("cpupool-list -j",
            "[{\"name\": \"Pool-0\", \"id\": 0, \"nr_cpus\": 2, \"sched\": \"credit\", "
            "\"vms\": 2, \"cpus\": \"0-1\", \"turbo\": \"\", \"turbo_of\": \"\"}]");
    answers("info -j", "\"nr_cpus\": 2, \"free_cpus\": 0");
    answers(
        "dmesg -j",
        "[{\"line\": \"[    0.000001] first\"}, {\"line\": \"[    0.000002] \\\"second\\\"\"}, ");
    answers("dmesg", "[    0.000003] third\ntakt> ");
    answers("help", "cpupool-migrate");
    answers("help pause", "pause VM\n");
    /* The last line of its help is there, too. */
    answers("help -j top", "-j          measures one interval");
    answers("trace status -j", "{\"mask\": 0, \"streaming\": false");
    answers("counters -j", "\"error\": 0, \"result\": [");
}

static void devices(void **state) {
    assert_string_equal(rig_say("create dev image=null memory=2M net='two rate=1M' disk=two"),
                        "takt> ");
    answers("devices", "Back end       State      Notifies Interrupts Dropped\n");
    answers("devices", " 0 net   two            waits             0          0       0\n");
    answers("devices -j dev",
            "\"number\": 1, \"type\": \"disk\", \"back\": \"two\", \"state\": \"waits\", "
            "\"status\": 0, \"queues\": 0, \"notifies\": 0, \"interrupts\": 0, \"dropped\": 0, "
            "\"resets\": 0}]}\n");
    answers("devices -j two", "\"result\": []}\n");
    assert_string_equal(rig_say("destroy dev"), "takt> ");
    answers("create dev image=null net=7", "net: expected the name of the VM that serves it");
    answers("create dev image=null memory=2M net=dev", "it cannot serve its own devices");
}

/* A look at a VM that has no devices takes a step, too. */
static void devices_in_steps(void **state) {
    u32 begin, of_one, of_all;

    rig_run(NS_PER_S); /* what else is under way */
    begin = fake_steps;
    rig_say("devices one");
    of_one = fake_steps - begin;
    rig_say("devices");
    of_all = fake_steps - begin - of_one;
    assert_int_equal(of_all, of_one + 1); /* there are two */
}

/* A name that is too long for a row is cut, and the names after it are still listed. */
static void names_of_nodes(void **state) {
    char line[200];

    for (int length = 65; length < 180; length += 90) {
        snprintf(line, sizeof(line), "store write /many/%0*d long", length, 7);
        answers(line, "takt> ");
    }
    answers("store write /many/last seen", "takt> ");
    answers("store ls /many", "last                     seen\n");
    answers("store ls -j /many", "{\"name\": \"last\", \"value\": \"seen\"}]}\n");
    answers("store ls /many", "00000007 ");
    answers("store ls /many", "0000... ");
}

static void refusals(void **state) {
    answers("nonsense", "nonsense: there is no such command; help lists them all\n");
    answers("nonsense -j",
            "\x1e{\"id\": \"\", \"command\": \"nonsense\", \"error\": -2, \"message\": "
            "\"there is no such command; ");
    answers("pause", "pause: usage: pause VM\n");
    answers("pause zero", "pause: there is no VM zero\n");
    answers("shutdown two", "shutdown: two has no power button: only a VM with a kernel= has one; "
                            "destroy ends any VM\n");
    answers("pause -j=\"$}\\\" zero", "\"id\": \"$}\\\\\", \"command\": \"pause\", \"error\": -2, "
                                      "\"message\": \"there is no VM zero\"}\n");
    answers("\"open", "a quotation mark is not closed\n");
    answers("list a b", "usage: list [VM]");
    answers("vcpu-pin two 2 all", "two has no vCPU 2\n");
    answers("vcpu-pin two 0 1-", "expected a list of CPUs");
    answers("vcpu-pin two 0 5", "cannot run there: its pool has none of these CPUs\n");
    answers("create one", "VM one is there already\n");
    answers("create three",
            "the configuration has no VM three, and neither image= nor kernel= is given\n");
    answers("create three image=null kernel=null memory=2M",
            "VM three has both an image and a kernel: expected one of them\n");
    answers("create three image=null memory=3M", "create: memory: expected a multiple of 2M");
    answers("create three image=null colour=red", "create: unknown key \"colour\"\n");
    answers("create three image=null cpus", "expected key=value, not cpus\n");
    answers("create 3 image=null", "3 is no name");
    answers("create three image=nothing", "create: ");
    answers("unpause two", "only a paused VM can be unpaused\n");
    answers("console -j two", "there is no JSON of it");
    answers("sched-credit -w 3", "usage: sched-credit ");
    answers("sched-credit -t 3", "usage: sched-credit ");
    answers("sched-credit -d two -s", "usage: sched-credit ");
    answers("sched-credit -p none", "there is no pool none\n");
    answers("sched-credit -x", "usage: sched-credit ");
    answers("sched-credit -d", "-d needs a value\n");
    answers("param nothing", "Pool-0 has no parameter nothing\n");
    answers("param -d two tslice_us", "two has no parameter tslice_us\n");
    answers("sched-credit -s --policy none",
            "credit has no preset \"none\": expected hardened, faithful-3.4, ");
    answers("cpupool-create a sched=none", "sched must be credit or null, not \"none\"\n");
    answers("cpupool-create Pool-0", "pool Pool-0 is there already\n");
    answers("cpupool-create a cpus=1", "CPU 1 is in use\n"); /* G7, and nothing is left: */
    answers("cpupool-list a", "there is no pool a\n");
    answers("cpupool-create 1", "1 is no name");
    answers("cpupool-create a cpus=7", "CPU 7 is not there\n");
    answers("cpupool-create a cpus=1,^1", "usage: cpupool-create "); /* G8 */
    answers("cpupool-destroy Pool-0", "pool Pool-0 is in use\n");
    answers("cpupool-rename Pool-0 x", "Pool-0 keeps its name\n");
    answers("cpupool-cpu-remove Pool-0 0", "CPU 0 ");
    answers("cpupool-migrate two none", "there is no pool none\n");
    answers("top -d 0", "the interval cannot be 0\n");
    answers("top -d x", "expected a number of seconds, not x\n");
    answers("trace start nothing", "expected sched, exit, event, replay or all, not nothing\n");
    answers("trace stream com1", "com1 is the console's port\n");
    answers("trace stream", "expected com1 to com4, perhaps with a rate, not \n");
}

static void weights_and_slices(void **state) {
    static const struct {
        const char *option, *value;
        bool good;
    } cases[] = { /* G4 */
                  { "-w", "0", false },          { "-w", "1", true },
                  { "-w", "65535", true },       { "-w", "65536", false },
                  { "-w", "-1", false },         { "-w", "x", false },
                  { "-w", "", false },           { "-c", "-1", false },
                  { "-c", "1", true },           { "-c", "0", true },
                  { "-c", "1000000000", false }, { "-w", "99999999999999999999", false }
    };
    char line[128];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        sprintf(line, "sched-credit -j -d two %s \"%s\"", cases[i].option, cases[i].value);
        answers(line, cases[i].good ? "\"error\": 0" : "\"error\": -22");
    }
    /* A command sets all of its values, or none of them. */
    answers("sched-credit -d two -w 300 -c 99999999", "sched-credit: ");
    answers("sched-credit -j -d two", "\"weight\": 65535");
    answers("sched-credit -j -s -t 0", "\"error\": -22");
    answers("sched-credit -j -s -t 1001", "\"error\": -22");
    answers("sched-credit -j -s -t 0.1 -r 50", "\"error\": ");
    answers("sched-credit -j -s -t 10", "\"error\": 0");
    answers("sched-credit -j -s -r 10001", "\"error\": -22"); /* above the slice */
    answers("sched-credit -j -s", "\"tslice_us\": 10000");
    answers("param -j tslice_us 20000", "\"error\": 0");
    answers("param -j tslice_us", "\"value\": \"20000\"");
    answers("param -j -d two cap 50", "\"error\": 0");
    answers("param -j -d two cap", "\"value\": \"50\"");
    answers("sched-credit -j -s --policy faithful-4.1", "\"error\": 0");
    answers("sched-credit -j -d two -w 512 -c 0", "\"error\": 0");
}

static void pools(void **state) {
    answers("cpupool-cpu-remove -j Pool-0 1", "\"error\": 0");
    answers("info -j", "\"free_cpus\": 1");
    answers("cpupool-create -j name=io sched=null cpus=1", "\"error\": 0");
    answers("cpupool-list -j io", "\"sched\": \"null\", \"vms\": 0, \"cpus\": \"1\"");
    answers("sched-credit -j -d two -w 512 -c 40", "\"error\": 0");
    answers("cpupool-migrate two io",
            "Not kept                  Value\nweight                      512\n"
            "cap                          40\ntakt> ");
    answers("cpupool-destroy io", "pool io is in use\n");
    answers("vcpu-pin two all 0", "its pool has none of these CPUs\n");
    answers("cpupool-rename -j io net", "\"error\": 0");
    answers("cpupool-list io", "there is no pool io\n");
    answers("cpupool-migrate -j two Pool-0", "\"error\": 0, \"result\": null}");
    answers("cpupool-destroy -j net", "\"error\": 0");
    answers("cpupool-create -j same cpus=1", "\"error\": 0");
    answers("sched-credit -j -d two -w 700 -c 30 --io io", "\"error\": 0");
    answers("cpupool-migrate -j two same", "\"error\": 0, \"result\": null}");
    answers("sched-credit -j -d two", "\"weight\": 700, \"cap\": 30, ");
    answers("sched-credit -j -d two", "\"io\": \"io\", \"pool\": \"same\"");
    answers("cpupool-migrate -j two Pool-0", "\"error\": 0, \"result\": null}");
    answers("sched-credit -j -d two -w 512 -c 0 --io auto", "\"error\": 0");
    answers("cpupool-destroy -j same", "\"error\": 0");
    answers("cpupool-cpu-add -j Pool-0 1", "\"error\": 0");
    answers("cpupool-cpu-add Pool-0 1", "CPU 1 ");
}

/* Options of sched-credit go through the parameter table, all of them or none. */
static void settings(void **state) {
    static const struct {
        const char *line, *expected;
    } cases[] = {
        { "sched-credit -j -d two --micro-us 5000 --share-pct=50 --io io", "\"error\": 0" },
        { "sched-credit -j -d two",
          "\"micro_us\": 5000, \"latency_us\": 0, \"share_pct\": 50, \"io\": \"io\"" },
        { "sched-credit -d two --share-pct 101 --micro-us 100",
          "share_pct must be a whole number from 0 to 100 (%), not \"101\"\n" },
        { "sched-credit -d two --micro-us 100 --share-pct 101",
          "share_pct must be a whole number from 0 to 100 (%), not \"101\"\n" },
        { "sched-credit -d two --weight 7 --io maybe --cap 50",
          "io must be auto, io or cpu, not \"maybe\"\n" },
        { "sched-credit -d two --micro-us", "--micro_us needs a value\n" },
        { "sched-credit -d two --nothing 5",
          "pool Pool-0, which runs credit, has no parameter nothing\n" },
        { "sched-credit -d two --boost off", "boost is a parameter of pools: give -s -p POOL\n" },
        { "sched-credit -d two -w 5 --weight 6", "weight is given twice\n" },
        { "sched-credit -d two --policy vslicer", "--policy sets all parameters of a pool: " },
        { "sched-credit --boost off", "usage: sched-credit " },
        { "pause --boost off", "usage: pause VM\n" },
        { "sched-credit -s --micro-us 100", "micro_us is a parameter of VMs: give -d VM\n" },
        { "sched-credit -s --sleepless on",
          "pool Pool-0, which runs credit, has no parameter sleepless\n" },
        { "sched-credit -j -d two",
          "\"weight\": 512, \"cap\": 0, \"micro_us\": 5000, \"latency_us\": 0, \"share_pct\": 50" },
        { "sched-credit -j -d two --micro-us 0 --share-pct 0 --io auto", "\"error\": 0" },
        { "sched-credit -j -s --policy vslicer", "\"error\": 0" },
        { "sched-credit -j -s",
          "\"boost\": \"off\", \"slicer\": \"vslicer\", \"share\": \"off\", \"aca\": \"0\"" },
        { "sched-credit -s --policy nothing",
          "credit has no preset \"nothing\": expected hardened, " },
        { "sched-credit -s --policy sc --boost off", "--policy sets all parameters of a pool: " },
        { "sched-credit -s -t 5 --policy sc", "--policy sets all parameters of a pool: " },
        { "sched-credit -j -s --policy hardened", "\"error\": 0" },
        { "sched-credit -j -s --aca on --boost anticipatory", "\"error\": 0" },
        { "sched-credit -j -s",
          "\"boost\": \"anticipatory\", \"slicer\": \"off\", \"share\": \"off\", \"aca\": \"1\"" },
        { "sched-credit -j -s --aca off --boost stock", "\"error\": 0" },
        { "sched-credit -j -s -t 0.1 -r 0",
          "\"error\": 0" }, /* one after the other it works in one order alone */
        { "sched-credit -j -s -r 1000 -t 30", "\"error\": 0" },
        { "sched-credit -j -s -r 40000 -t 20", "\"error\": -22" }, /* and this in none */
        { "sched-credit -j -s", "\"tslice_us\": 30000, \"ratelimit_us\": 1000" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) answers(cases[i].line, cases[i].expected);
}

/* Options that make no sense together are refused with a sentence, in whatever order they come, and
 * change nothing. */
static void combinations(void **state) {
    static const struct {
        const char *first, *second, *why;
    } cases[] = {
        { "--slicer vslicer", "--boost aggressive", "boost must be off or stock" },
        { "--slicer edf", "--boost anticipatory", "boost must be off or stock" },
        { "--slicer frequency", "--debit tick", "a tick would miss most micro-slices" },
        { "--slicer vslicer", "--share prorata", "exclude each other" },
        { "--slicer vslicer", "--aca on", "exclude each other" },
    };
    char line[128], before[512];

    for (size_t i = 0; i < 2 * ARRAY_SIZE(cases); i++) {
        const char *one = i % 2 ? cases[i / 2].first : cases[i / 2].second;
        const char *other = i % 2 ? cases[i / 2].second : cases[i / 2].first;

        answers("sched-credit -j -s --policy hardened", "\"error\": 0");
        sprintf(line, "sched-credit -j -s %s", one);
        answers(line, "\"error\": 0");
        snprintf(before, sizeof(before), "%s", rig_say("sched-credit -j -s"));
        sprintf(line, "sched-credit -s %s", other);
        answers(line, cases[i / 2].why);
        assert_string_equal(rig_say("sched-credit -j -s"), before);
    }
    answers("sched-credit -j -s --policy hardened", "\"error\": 0");
}

/* Turbo pools: made, paired, refused, and a VM with a turbo vCPU in what lists VMs. */
static void turbo(void **state) {
    answers("cpupool-cpu-remove -j Pool-0 1", "\"error\": 0");
    answers("cpupool-create t turbo_of=nothing", "there is no pool nothing\n");
    answers("cpupool-create t turbo_of=Pool-0 preset=nothing",
            "credit has no preset \"nothing\": expected hardened, ");
    answers("cpupool-create t turbo_of=Pool-0 preset=vslicer",
            "t cannot be the turbo pool of Pool-0: ");
    answers("cpupool-create t turbo_of=Pool-0 sched=null",
            "null has no preset \"turbo\": it has no presets\n");
    answers("cpupool-create t cpus=random:2",
            "too few CPUs are free: 1 of the 2 that are wanted\n");
    answers("cpupool-create t cpus=random:0", "usage: cpupool-create ");
    answers("cpupool-create t cpus=cache:x", "usage: cpupool-create ");
    answers("cpupool-list t", "there is no pool t\n"); /* nothing is left of all that */
    answers("create fast image=null memory=2M turbo=yes", "its pool has no turbo pool\n");
    answers("cpupool-create -j t turbo_of=Pool-0 cpus=random:1", "\"error\": 0");
    answers("sched-credit -j -s -p t",
            "\"tslice_us\": 100, \"ratelimit_us\": 0, \"boost\": \"off\"");
    answers("cpupool-list -j t", "\"cpus\": \"1\", \"turbo\": \"\", \"turbo_of\": \"Pool-0\"}]");
    answers("cpupool-list -j Pool-0", "\"turbo\": \"t\", \"turbo_of\": \"\"}]");
    answers("cpupool-destroy t", "pool t is half of a pair: cpupool-turbo t ends that\n");
    answers("info -j", "\"free_cpus\": 0"); /* it kept its CPU */
    answers("cpupool-create u turbo_of=Pool-0", "u or Pool-0 is in a pair already\n");
    answers("sched-credit -s -p t --slicer vslicer", "in a turbo pool, slicer must be off");
    answers("sched-credit -s --debit tick", "debit must be time");
    answers("sched-credit -s --policy faithful-4.1",
            "faithful-4.1: with a turbo pool, weight_scope must be dom");
    answers("sched-credit -s --share prorata", "share and aca must be off");
    answers("sched-credit -j -s --slicer vslicer --boost off", "\"error\": 0"); /* but with this */
    answers("sched-credit -j -s --policy hardened", "\"error\": 0");
    answers("create -j fast image=null memory=2M vcpus=2 turbo=yes weight=300", "\"error\": 0");
    answers("list -j fast", "\"vcpus\": 3, ");
    answers("vcpu-list -j fast", "\"vcpu\": 0, \"cpu\": 1, ");
    answers("vcpu-list -j fast",
            "\"pool\": \"t\", \"class\": \"turbo\", \"micro_us\": 0, \"turbo_pct\": ");
    answers("vcpu-list -j fast", "\"vcpu\": 2, \"cpu\": 0, ");
    answers("vcpu-list -j fast", "\"pool\": \"Pool-0\", \"class\": \"\", ");
    answers("pause fast", "takt> ");
    answers("vcpu-list -j fast", "\"state\": \"offline\", \"paused\": true, ");
    answers("unpause fast", "takt> ");
    answers("vcpu-pin fast 0 0",
            "vCPU 0 of fast cannot run there: its pool has none of these CPUs\n");
    answers("vcpu-pin -j fast 0 1", "\"error\": 0");
    answers("vcpu-pin fast 1 1",
            "vCPU 1 of fast cannot run there: its pool has none of these CPUs\n");
    answers("top -j -d 0.01", "\"vm\": \"fast\", \"vcpu\": 0, ");
    answers("top -j -d 0.01", "\"class\": \"turbo\", \"micro_us\": 0, \"turbo_pct\": ");
    answers("cpupool-create -j other", "\"error\": 0");
    answers("cpupool-migrate fast other", "fast has a turbo vCPU, so it cannot leave its pool\n");
    answers("cpupool-turbo t", "pool t has VMs\n");
    answers("cpupool-turbo other t", "other or t is in a pair already\n");
    answers("destroy -j fast", "\"error\": 0");
    /* The number of turbo cores changes at run time. */
    answers("cpupool-cpu-remove -j t 1", "\"error\": 0");
    answers("cpupool-cpu-add -j t 1", "\"error\": 0");
    answers("cpupool-turbo -j t", "\"error\": 0");
    answers("cpupool-turbo t nothing", "there is no pool nothing\n");
    answers("cpupool-turbo t other", "t cannot be the turbo pool of other: "); /* older than that */
    answers("cpupool-turbo -j other t", "\"error\": 0");
    answers("cpupool-turbo -j other", "\"error\": 0");
    answers("cpupool-destroy -j other", "\"error\": 0");
    answers("cpupool-destroy -j t", "\"error\": 0");
    answers("cpupool-cpu-add -j Pool-0 1", "\"error\": 0");
}

static void attached_console(void **state) {
    struct vm *two = vm_find("two");
    char got[16] = "";

    fake_console_reset();
    fake_console_type("console two\r");
    rig_run(1000);
    vconsole_put(&two->console, "hi\x1b[2J\x07\n", 8);
    rig_run(NS_PER_MS);
    assert_non_null(strstr(fake_console_text, "Connected to two. ^] leaves.\nhi\\x1b[2J\\x07\n"));
    fake_console_type("ab\x03");
    rig_run(1000);
    assert_int_equal(ring_get(&two->console.in, got, sizeof(got)), 3); /* ^C is the guest's */
    assert_string_equal(got, "ab\x03");
    fake_console_reset();
    vconsole_put(&two->console, "more", 4);
    rig_run(NS_PER_MS);
    assert_string_equal(fake_console_text, "more");
    fake_console_type("\x1d");
    rig_run(1000);
    assert_non_null(strstr(fake_console_text, "\nDisconnected from two.\ntakt> "));
    vm_put(two);
}

/* A program of a guest may draw on the terminal. But it cannot forge an answer of the shell. */
static void raw_console(void **state) {
    struct vm *two = vm_find("two");

    fake_console_reset();
    fake_console_type("console -r two\r");
    rig_run(1000);
    assert_true(console_raw);
    fake_console_reset();
    vconsole_put(&two->console, "\x1b[2J\xc3\xa4\r\n\x1e{\0}", 12);
    rig_run(NS_PER_MS);
    assert_string_equal(fake_console_text, "\x1b[2J\xc3\xa4\r\n\\x1e{\\x00}");
    fake_console_type("\x1d");
    rig_run(1000);
    assert_false(console_raw);
    assert_non_null(strstr(fake_console_text, "Disconnected from two.\ntakt> "));
    vm_put(two);
}

static u32 nmis_of(const struct vcpu *v) { return v->nmis_sent + v->nmis; }

/* `trigger VM nmi` sends an NMI to one vCPU, to vCPU 0 if none is named. */
static void trigger_nmi(void **state) {
    struct vm *two = vm_find("two");

    for (u32 i = 0; i < 2; i++) fake_of(two->vcpu[i])->nmi_masked = true;
    answers("trigger two nmi", "takt> ");
    assert_int_equal(nmis_of(two->vcpu[0]), 1);
    assert_int_equal(nmis_of(two->vcpu[1]), 0);
    answers("trigger two nmi 1", "takt> ");
    assert_int_equal(nmis_of(two->vcpu[0]), 1);
    assert_int_equal(nmis_of(two->vcpu[1]), 1);
    answers("trigger two nmi 2", "two has no vCPU 2\n");
    answers("trigger two nmi 4294967296", "two has no vCPU 4294967296\n");
    answers("trigger two nmi x", "two has no vCPU x\n");
    answers("pause two", "takt> ");
    answers("trigger two nmi", "two is paused: only a VM that runs takes an NMI\n");
    answers("unpause two", "takt> ");
    answers("trigger two power", "usage: trigger VM nmi [VCPU]\n");
    for (u32 i = 0; i < 2; i++) fake_of(two->vcpu[i])->nmi_masked = false;
    vm_put(two);
}

/* `sysrq VM KEY` is for a VM with a kernel= that runs. */
static void sysrq(void **state) {
    struct vm *two = vm_find("two");

    answers("sysrq two h", "two takes no BREAK: only a VM with a kernel= does\n");
    answers("sysrq two help", "usage: sysrq VM KEY\n");
    strcpy(two->config.kernel, "vmlinuz");
    answers("pause two", "takt> ");
    answers("sysrq two h", "two is paused: only a VM that runs takes a BREAK\n");
    answers("unpause two", "takt> ");
    assert_true(vuart_break(&two->uart, 'h'));
    answers("sysrq two h", "two has not read yet what was typed on its console\n");
    *two->config.kernel = 0;
    two->uart.line_break = 0;
    two->console.in.tail = two->console.in.head;
    vm_put(two);
}

/* At the prompt, when no person is attached to a console, guests' lines go to the log: line by
 * line, escaped, and not more of them than the other VMs can bear. */
static void guest_log(void **state) {
    struct vm *two = vm_find("two");
    unsigned lines;

    for (int i = 0; i < 3; i++) {
        vconsole_put(&two->console, "a\x1b", 2);
        rig_run(11 * NS_PER_MS);
        vconsole_put(&two->console, "b\r\nc", 4);
        rig_run(11 * NS_PER_MS);
        assert_string_equal(fake_log_last, i ? "two: ca\\x1bb" : "two: a\\x1bb");
    }
    vconsole_put(&two->console, "\n", 1);
    rig_run(11 * NS_PER_MS);
    assert_string_equal(fake_log_last, "two: c");
    lines = fake_log_lines;
    for (int i = 0; i < 1000; i++) {
        vconsole_put(&two->console, "flood\n", 6);
        rig_run(NS_PER_MS);
    }
    assert_in_range(fake_log_lines - lines, 90, 110);
    /* A counter says how many bytes found no room. */
    assert_in_range(console_bytes_dropped.value[0], 1, 6000);
    rig_run(10 * NS_PER_S);
    vm_put(two);
}

/* A VM has ended when it is gone, or when it has crashed and stays. It has not ended while it is
 * being destroyed, or is about to be. */
static void waits(void **state) {
    struct vm *two = vm_find("two");

    for (int preserve = 0; preserve < 2; preserve++) {
        two->config.on_crash = preserve ? ON_CRASH_PRESERVE : ON_CRASH_DESTROY;
        two->state = VM_CRASHED;
        fake_console_reset();
        fake_console_type("wait two 1s\r");
        rig_run(500 * NS_PER_MS);
        assert_int_equal(strstr(fake_console_text, "takt> ") != NULL, preserve);
        rig_run(NS_PER_S);
        assert_int_equal(strstr(fake_console_text, "two has not ended") != NULL, !preserve);
    }
    two->config.on_crash = ON_CRASH_DESTROY;
    two->state = VM_RUNNING;
    vm_put(two);
}

/* Destroys a VM without the shell, which is busy. */
static void destroy_meanwhile(const char *name) {
    struct vm *vm = vm_find(name);

    assert_non_null(vm);
    assert_int_equal(vm_destroy(vm, NULL, NULL), 0);
    vm_put(vm);
}

static bool there_is(const char *name) {
    struct vm *vm = vm_find(name);

    if (vm) vm_put(vm);
    return vm != NULL;
}

/* With -w a VM waits for memory that others have: not longer than that, no longer than necessary,
 * and behind it come all commands that were typed later. */
static void waits_for_room(void **state) {
    struct config_vm c = fake_config("hog", 1);
    char line[80];
    u64 half = frame_free_count() / 2 * PAGE_SIZE / CHUNK_SIZE * CHUNK_SIZE, began;

    c.memory = half + 4 * CHUNK_SIZE;
    assert_int_equal(vm_create(&c, NULL, NULL), 0);
    rig_run(NS_PER_S);
    snprintf(line, sizeof(line), "create late image=null memory=%luM", (unsigned long)half >> 20);
    began = fake_now;
    answers(line, "create: there is not enough free memory for it\n");
    assert_true(fake_now - began < 10 * NS_PER_MS);
    snprintf(line, sizeof(line), "create -w 50ms late image=null memory=%luM",
             (unsigned long)half >> 20);
    answers(line, "create: there is not enough free memory for it\n");
    assert_in_range(fake_now - began, 50 * NS_PER_MS, 70 * NS_PER_MS);
    assert_false(there_is("late"));

    snprintf(line, sizeof(line), "create -w 20s late image=null memory=%luM\rlist\r",
             (unsigned long)half >> 20);
    fake_console_reset();
    fake_console_type(line);
    rig_run(NS_PER_S);
    assert_false(there_is("late"));
    assert_null(strstr(fake_console_text, "Name "));
    destroy_meanwhile("hog");
    rig_run(NS_PER_S);
    assert_true(there_is("late"));
    assert_non_null(strstr(fake_console_text, "\nlate "));

    answers("create late image=null memory=2M", "VM late is there already\n");
    fake_console_reset();
    fake_console_type("create -w 20s late image=null memory=2M vcpus=2\r");
    rig_run(NS_PER_S);
    destroy_meanwhile("late");
    rig_run(NS_PER_S);
    answers("vcpu-list -j late", "\"vcpu\": 1");
    answers("destroy late", "takt> ");
    answers("create -w soon late image=null", "usage: create [-w TIME] VM");
}

/* What guests have printed is in the log before the machine ends. */
static void last_words(void **state) {
    struct config_vm c = fake_config("last", 1);
    struct vm *last;

    assert_int_equal(vm_create(&c, NULL, NULL), 0);
    rig_run(NS_PER_S);
    last = vm_find("last");
    assert_non_null(last);
    vconsole_put(&last->console, "this\nand\nthat", 13);
    if (!setjmp(fake_power_exit)) rig_say("poweroff");
    assert_true(fake_power_off);
    assert_string_equal(fake_log_last, "last: that");
    vm_put(last);
}

static void measured(void **state) {
    fake_console_reset();
    fake_console_type("top -j=m -w 0.005 -d 0.02\r");
    rig_run(20 * NS_PER_MS);
    assert_null(strchr(fake_console_text, '\x1e')); /* not before its time */
    rig_run(10 * NS_PER_MS);
    assert_non_null(strstr(
        fake_console_text,
        "{\"id\": \"m\", \"command\": \"top\", \"error\": 0, \"result\": {\"seconds\": 0.020, "
        "\"vendor\": \"fake\", \"vms_not_made\": 0, \"pcpus\": [{\"cpu\": 0, "));
    assert_non_null(strstr(fake_console_text, "\"vm\": \"two\", \"vcpu\": 1, "));
    assert_non_null(strstr(fake_console_text, "\"wake_us\": {\"count\": "));
    fake_console_reset();
    fake_console_type("top\r");
    rig_run(2100 * NS_PER_MS);
    assert_non_null(strstr(fake_console_text, "\x1b[HTakt, up "));
    assert_null(strstr(fake_console_text, "takt> "));
    fake_console_type("q");
    rig_run(1000);
    assert_non_null(strstr(fake_console_text, "takt> "));
}

/* A console that takes little at a time loses nothing of an answer. */
static void slow_console(void **state) {
    static char whole[1 << 16];

    fake_console_reset();
    fake_console_type("help\rhelp -j\r");
    rig_run(100 * NS_PER_MS);
    strcpy(whole, fake_console_text);
    assert_non_null(strstr(whole, "trace "));
    assert_non_null(strstr(whole, "\"result\": ["));
    fake_console_reset();
    fake_console_full = true;
    fake_console_limit = SHELL_STEP_ROOM - 1;
    fake_console_type("help\rhelp -j\r");
    rig_run(100 * NS_PER_MS);
    assert_int_equal(fake_console_len, 0);
    for (int i = 0; i < 200; i++) {
        fake_console_limit = SHELL_STEP_ROOM;
        rig_run(2 * NS_PER_MS);
    }
    fake_console_full = false;
    fake_console_limit = 1 << 20;
    assert_string_equal(fake_console_text, whole);
}

static void interrupted(void **state) {
    fake_console_reset();
    fake_console_type("top -b -d 1\r");
    rig_run(NS_PER_MS);
    assert_null(strstr(fake_console_text, "takt> "));
    fake_console_type("\x03");
    rig_run(NS_PER_MS);
    assert_non_null(strstr(fake_console_text, "takt> "));
    answers("half a line\x03info -j", "\"error\": 0");
}

static void trace_stream(void **state) {
    answers("trace start -j", "\"error\": 0");
    answers("trace stream -j com2", "\"error\": 0");
    rig_run(20 * NS_PER_MS);
    assert_memory_equal(fake_uart_text, "\xa5\x54H", 3);
    answers("trace stop -j", "\"error\": 0");
    rig_run(20 * NS_PER_MS);
    answers("trace status -j", "\"streaming\": false");
    fake_uart_there = false;
    answers("trace stream com2", "nothing answers at com2\n");
    fake_uart_there = true;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(script_ran),
        cmocka_unit_test(lists),
        cmocka_unit_test(devices),
        cmocka_unit_test(devices_in_steps),
        cmocka_unit_test(names_of_nodes),
        cmocka_unit_test(refusals),
        cmocka_unit_test(weights_and_slices),
        cmocka_unit_test(settings),
        cmocka_unit_test(combinations),
        cmocka_unit_test(pools),
        cmocka_unit_test(turbo),
        cmocka_unit_test(attached_console),
        cmocka_unit_test(raw_console),
        cmocka_unit_test(trigger_nmi),
        cmocka_unit_test(sysrq),
        cmocka_unit_test(guest_log),
        cmocka_unit_test(waits),
        cmocka_unit_test(measured),
        cmocka_unit_test(slow_console),
        cmocka_unit_test(interrupted),
        cmocka_unit_test(trace_stream),
        cmocka_unit_test(not_yet_made),
        cmocka_unit_test(cut_off_answer),
        cmocka_unit_test(on_its_way_out),
        cmocka_unit_test(waits_for_room),
        cmocka_unit_test(last_words),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
