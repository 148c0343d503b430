/* The configuration file: what each line means, and the sentence that an operator gets about a
 * wrong one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "config.h"
#include "common/string.h"

static struct config cfg;
static struct config_vm cfg_vms[CONFIG_MAX_VMS];
static char said[4096];

static void hear(void *ctx, bool fatal, const char *text) {
    size_t n = strlen(said);

    snprintf(said + n, sizeof(said) - n, "%s%s\n", fatal ? "" : "warning: ", text);
}

static const char *param_at(u32 i, char *scope) {
    static const char *const names[] = { "weight", "cap", "tslice_us", "ratelimit_us", "debit" };

    if (i >= ARRAY_SIZE(names)) return NULL;
    *scope = i < 2 ? 'v' : 'p';
    return names[i];
}

static int parse(const char *text) {
    said[0] = 0;
    config_defaults(&cfg, cfg_vms, CONFIG_MAX_VMS);
    return config_parse(&cfg, "t.cfg", text, strlen(text), param_at, hear, NULL);
}

static int cmdline(const char *text) {
    said[0] = 0;
    return config_cmdline(&cfg, text, param_at, hear, NULL);
}

static void whole_file(void **state) {
    const char *text = "# all that there is\n"
                       "[hypervisor]\n"
                       "sched = credit\r\n"
                       "tslice_us=10000 ; in microseconds\n"
                       "console = com2,9600\n"
                       "loglvl = debug\n"
                       "seed = 42\n"
                       "guest_console = log\n"
                       "\n"
                       "[pool io]\n"
                       "  cpus = 2-4,^3\n"
                       "  sched = null\n"
                       "  sched_preset = faithful-4.2\n"
                       "[vm web]\n"
                       "image = busy\n"
                       "cmdline = \"percent=40 # not a comment \\\"q\\\"\" # a comment\n"
                       "memory = 32M\n"
                       "vcpus = 2\n"
                       "cpus = 2\n"
                       "pool = io\n"
                       "on_crash = restart\n"
                       "debugcon = yes\n"
                       "start = no\n"
                       "demand = 40%\n"
                       "pci = 00:03.0\n"
                       "pci = 0000:Ff:1f.7\n"
                       "unsafe_dma = yes\n"
                       "on_dma_fault = log\n"
                       "net = bare\trate=20M  delay=5ms # slow\n"
                       "disk = bare\n"
                       "net = bare \"x\"\n"
                       "weight = 512\n"
                       "cap = 25\n"
                       "[vm bare]\n"
                       "image = spin";

    assert_int_equal(parse(text), 0);
    assert_string_equal(said, "");
    assert_string_equal(cfg.pool[0].sched, "credit");
    assert_string_equal(cfg.console, "com2,9600");
    assert_int_equal(cfg.loglvl, 3);
    assert_int_equal(cfg.seed, 42);
    assert_true(cfg.guest_console_log);
    assert_int_equal(cfg.pool[0].head.nr_params, 1);
    assert_string_equal(cfg.pool[0].head.param[0].name, "tslice_us");
    assert_string_equal(cfg.pool[0].head.param[0].value, "10000");
    assert_int_equal(cfg.pool[0].head.param[0].at.line, 4);
    assert_int_equal(cfg.pool[0].head.param[0].at.column, 11);
    assert_int_equal(config_place_of(&cfg.pool[0].head, "console").line, 5);
    assert_int_equal(config_place_of(&cfg.pool[0].head, "console").column, 11);
    assert_int_equal(config_place_of(&cfg.pool[0].head, "script").line, 2);
    assert_int_equal(cfg.nr_pools, 2);
    assert_int_equal(cfg.pool[1].cpus.word[0], 0x14);
    assert_string_equal(cfg.pool[1].sched, "null");
    assert_string_equal(cfg.pool[1].preset, "faithful-4.2");
    assert_int_equal(cfg.nr_vms, 2);

    struct config_vm *v = &cfg.vm[0];

    assert_string_equal(v->head.name, "web");
    assert_string_equal(v->cmdline, "percent=40 # not a comment \"q\"");
    assert_int_equal(v->memory, 32 << 20);
    assert_int_equal(v->vcpus, 2);
    assert_int_equal(cfg.pool[0].cpus.word[0], ~0x14ull);
    assert_int_equal(v->cpus.word[0], 4);
    assert_string_equal(v->pool, "io");
    assert_int_equal(v->on_crash, ON_CRASH_RESTART);
    assert_true(v->debugcon && !v->debug_exit && !v->start);
    assert_int_equal(v->demand_permille, 400);
    assert_int_equal(v->nr_pci, 2);
    assert_int_equal(v->pci[0], 3 << 3);
    assert_int_equal(v->pci[1], 0xffff);
    assert_true(v->unsafe_dma && v->on_dma_fault == ON_DMA_FAULT_LOG);
    assert_int_equal(v->nr_devices, 3);
    assert_int_equal(v->device[0].type, VIRTIO_ID_NET);
    assert_string_equal(v->device[0].back, "bare");
    assert_string_equal(v->device[0].options, "rate=20M  delay=5ms");
    assert_int_equal(v->device[1].type, VIRTIO_ID_BLOCK);
    assert_string_equal(v->device[1].options, "");
    assert_string_equal(v->device[2].options, "\"x\"");
    assert_int_equal(v->head.nr_params, 2);
    assert_string_equal(v->head.param[0].value, "512");

    v = &cfg.vm[1];
    assert_int_equal(v->memory, 16 << 20);
    assert_int_equal(v->vcpus, 1);
    assert_int_equal(v->cpus.word[0], ~0ull);
    assert_true(v->start);
    assert_int_equal(v->demand_permille, 1000);
    assert_int_equal(v->nr_devices, 0);
    assert_int_equal(v->head.nr_params, 0);
    assert_true(v->nr_pci == 0 && !v->unsafe_dma && v->on_dma_fault == ON_DMA_FAULT_STOP);
}

/* Each text must be refused (or warned about) with exactly this. */
static void complaints(void **state) {
    static const struct {
        const char *text, *said;
    } bad[] = {
        { "x = 1\n", "t.cfg:1:1: expected a [section] before the first key\n" },
        { "[vm a]\nimage = x\nmemory = 3M\n", "t.cfg:3:10: memory: expected a multiple of 2M such "
                                              "as 16M, from 2M to 1T, not \"3M\"\n" },
        { "[vm a]\nimage = x\nmemory = 16Mx\n",
          "t.cfg:3:12: memory: expected a multiple of 2M such as 16M, "
          "from 2M to 1T, not \"16Mx\"\n" },
        { "[vm a]\nimage = x\nvcpus = 0\n",
          "t.cfg:3:9: vcpus: expected a number from 1 to 64, not \"0\"\n" },
        { "[vm a]\nimage = x\nvcpus = 65\n",
          "t.cfg:3:9: vcpus: expected a number from 1 to 64, not \"65\"\n" },
        { "[vm a]\nimage = x\nvcpus =\n",
          "t.cfg:3:8: vcpus: expected a number from 1 to 64, not \"\"\n" },
        { "[hypervisor]\nmax_cpus = 257\n",
          "t.cfg:2:12: max_cpus: expected a number from 1 to 256, not \"257\"\n" },
        { "[hypervisor]\nmax_cpus = 0\n",
          "t.cfg:2:12: max_cpus: expected a number from 1 to 256, not \"0\"\n" },
        { "[vm a]\nimage = x\nimage = y\n", "t.cfg:3:1: image is given twice in this section\n" },
        { "[vm a]\nimage = x\nweight = 1\nweight = 2\n",
          "t.cfg:4:10: weight was already given on line 3\n" },
        { "[vm a]\nimage = x\npci = 00:03.0\npci = 0000:00:03.0\n",
          "t.cfg:4:7: pci: 0000:00:03.0 is given twice\n" },
        { "[vm a]\nimage = x\npci = 00:20.0\n", "t.cfg:3:14: pci: expected a PCI device such as "
                                                "00:03.0 or 0001:03:00.0, not \"00:20.0\"\n" },
        { "[vm a]\nimage = x\npci = nic\n",
          "t.cfg:3:7: pci: expected a PCI device such as 00:03.0 or 0001:03:00.0, not \"nic\"\n" },
        { "[vm a]\nimage = x\npci = 0:1.0\n", "t.cfg:3:8: pci: expected a PCI device such as "
                                              "00:03.0 or 0001:03:00.0, not \"0:1.0\"\n" },
        { "[vm a]\nimage = x\npci = 1:0\npci = 00:00.8\npci = 0001:00:03\n",
          "t.cfg:3:8: pci: expected a PCI device such as 00:03.0 or 0001:03:00.0, not \"1:0\"\n"
          "t.cfg:4:14: pci: expected a PCI device such as 00:03.0 or 0001:03:00.0, not "
          "\"00:00.8\"\n"
          "t.cfg:5:17: pci: expected a PCI device such as 00:03.0 or 0001:03:00.0, not "
          "\"0001:00:03\"\n" },
        { "[vm a]\nimage = x\npci = 00:01.0\npci = 00:02.0\npci = 00:03.0\npci = 00:04.0\npci = "
          "00:05.0\n",
          "t.cfg:7:7: pci: 00:05.0 is one too many: a VM can have 4\n" },
        { "[vm a]\nimage = x\ncolour = red\n",
          "warning: t.cfg:3:1: unknown key \"colour\" is ignored\n" },
        { "[vm a]\nimage = x\ntslice_us = 5\n", "warning: t.cfg:3:1: unknown key \"tslice_us\" is "
                                                "ignored: it belongs into [hypervisor] or "
                                                "[pool NAME]\n" },
        { "[hypervisor]\nvcpus = 5\n",
          "warning: t.cfg:2:1: unknown key \"vcpus\" is ignored: it belongs into [vm NAME]\n" },
        { "[vm a]\nimage = x\nwieght = 3\nmemroy = 4M\ncpu = 0\nq = 1\n",
          "warning: t.cfg:3:1: unknown key \"wieght\" is ignored: is it weight?\n"
          "warning: t.cfg:4:1: unknown key \"memroy\" is ignored: is it memory?\n"
          "warning: t.cfg:5:1: unknown key \"cpu\" is ignored: is it cpus?\n"
          "warning: t.cfg:6:1: unknown key \"q\" is ignored\n" },
        { "[hypervisor]\ntslice = 5\n",
          "warning: t.cfg:2:1: unknown key \"tslice\" is ignored: is it tslice_us?\n" },
        { "[vm a]\nmemory = 4M\n", "t.cfg:1:1: VM a has no image: expected image = NAME or kernel "
                                   "= NAME of a boot module\n" },
        { "[vm a]\nimage = x\nkernel = y\nmemory = 2M\n",
          "t.cfg:3:10: VM a has both an image and a kernel: expected one of them\n" },
        { "[vm a]\nimage = x\nramdisk = y\nmemory = 2M\n",
          "t.cfg:3:11: VM a has a ramdisk without a kernel that could use it\n" },
        { "[vm a]\nimage = x\n[vm a]\nimage = x\n",
          "t.cfg:3:1: VM a was already described on line 1\n" },
        { "[vm 7]\nimage = x\n",
          "t.cfg:1:1: \"7\" is no name: expected at most 31 letters, digits, '-', '_' "
          "or '.', and not a number\n" },
        { "[vm]\n", "t.cfg:1:1: expected [hypervisor], [pool NAME], [vm NAME] or "
                    "[model], not \"[vm]\"\n" },
        { "[host x]\n", "t.cfg:1:1: expected [hypervisor], [pool NAME], [vm NAME] or [model], not "
                        "\"[host x]\"\n" },
        { "[vm a\n", "t.cfg:1:1: expected ']' at the end of the section's heading\n" },
        { "[hypervisor] x\n", "t.cfg:1:14: expected the end of the line after ']', not \"x\"\n" },
        { "[pool t]\nturbo_of = p\ncpus = 1\n[pool p]\ncpus = 2\n",
          "t.cfg:2:12: pool t is to be the turbo pool of p, which is not described before it\n" },
        { "[pool t]\nturbo_of = none\ncpus = 1\n", "t.cfg:2:12: pool t is to be the turbo pool of "
                                                   "none, which is not described before it\n" },
        { "[pool t]\nturbo_of = Pool-0\ncpus = 1\n[pool p]\ncpus = 2\n[vm a]\nimage = x\npool = "
          "p\nturbo = "
          "yes\n",
          "t.cfg:9:9: VM a is to have a turbo vCPU, but pool p has no turbo pool\n" },
        { "[pool t]\ncpus = random:0\n",
          "t.cfg:2:8: cpus: expected a list of CPUs such as 0-3,^2, or all, not \"random:0\"\n" },
        { "[hypervisor]\n[hypervisor]\n", "t.cfg:2:1: [hypervisor] is given twice\n" },
        { "[hypervisor]\nnoreboot\n",
          "t.cfg:2:1: expected \"key = value\" or a [section], not \"noreboot\"\n" },
        { "[hypervisor]\n= 3\n", "t.cfg:2:1: expected a key before '='\n" },
        { "[hypervisor]\nscript = \"a\n",
          "t.cfg:2:10: the quotation mark is not closed on this line\n" },
        { "[hypervisor]\nscript = \"a\" b\n",
          "t.cfg:2:14: expected the end of the line after the quoted value, not \"b\"\n" },
        { "[hypervisor]\nseed = 1\x01\n", "t.cfg:2:9: expected text, not a control character\n" },
        { "[hypervisor]\nconsole = com7\n", "t.cfg:2:14: console: expected com1 to com4, a port "
                                            "such as 0x2f8, pci:00:16.3, mmio:0xfe03e000 or "
                                            "mmio32:0xfe03e000, each perhaps with a rate, as "
                                            "com1,115200; or auto, or none, not \"com7\"\n" },
        { "[hypervisor]\ntrace_console = 0x2f8\n",
          "t.cfg:2:17: trace_console: expected com1 to com4, perhaps with a rate, as com2,115200, "
          "or none, "
          "not \"0x2f8\"\n" },
        { "[hypervisor]\napicv = yes\n",
          "t.cfg:2:9: apicv: expected auto, on or off, not \"yes\"\n" },
        { "[pool Pool-0]\n",
          "t.cfg:1:1: Pool-0 is always there: its settings belong into [hypervisor]\n" },
        { "[pool a]\ncpus = 0-1\n",
          "t.cfg:2:8: pool a cannot have CPU 0, which always belongs to Pool-0\n" },
        { "[pool a]\ncpus = 1-2\n[pool b]\ncpus = 2\n",
          "t.cfg:4:8: CPU 2 is in pool b and in one before it\n" },
        { "[pool a]\n",
          "warning: t.cfg:1:1: pool a has no CPUs: no VM can run there until it gets one\n" },
        { "[pool a]\ncpus = 1,^1\n",
          "t.cfg:2:8: cpus: expected a list of CPUs such as 0-3,^2, or all, not \"1,^1\"\n" },
        { "[vm a]\nimage = x\npool = b\n",
          "t.cfg:3:8: VM a wants pool b, which this file does not describe\n" },
        { "[pool p]\ncpus = 1\n[vm a]\nimage = x\npool = p\ncpus = 2\n",
          "t.cfg:6:8: VM a may run on none of the CPUs of pool p\n" },
        { "[pool p]\ncpus = 1\n[vm a]\nimage = x\ncpus = 1\n",
          "t.cfg:5:8: VM a may run on none of the CPUs of pool Pool-0\n" },
        { "[vm a]\nimage = x\nnet = 7 up\n",
          "t.cfg:3:7: net: expected the name of the VM that serves it, perhaps "
          "with at most 95 characters of options, not \"7 up\"\n" },
        { "[vm a]\nimage = x\ndisk =\n",
          "t.cfg:3:7: disk: expected the name of the VM that serves it, perhaps "
          "with at most 95 characters of options, not \"\"\n" },
        { "[vm a]\nimage = x\ndisk = a12345678901234567890123456789012\n",
          "t.cfg:3:8: disk: expected the name of the VM that serves it, perhaps with at most 95 "
          "characters "
          "of "
          "options, not \"a12345678901234567890123456789012\"\n" },
        { "[model]\n[model]\n", "t.cfg:2:1: [model] is given twice\n" },
        { "[model]\ncpi = 0.8\n",
          "t.cfg:2:7: cpi is given without clock, the rate of the cycles\n" },
        { "[model]\nclock = 2.4\ncpi = 0.01\ncopy = 5GB\nexit = 2ms\n",
          "t.cfg:2:12: clock: expected a clock rate such as 2.4GHz, from 1MHz to 10GHz, not "
          "\"2.4\"\n"
          "t.cfg:3:7: cpi: expected cycles per instruction such as 0.8, from 0.1 to 100, not "
          "\"0.01\"\n"
          "t.cfg:4:9: copy: expected a rate such as 5GB/s, from 1MB/s to 1000GB/s, not "
          "\"5GB\"\n"
          "t.cfg:5:8: exit: expected a time such as 700ns or 2us, from 1ns to 1ms, not \"2ms\"\n" },
        { "[model]\ncache = 1M\nwarm = 64k\nsocket = 2\n",
          "t.cfg:1:1: cache, warm and refill are one model: all three are needed\n"
          "t.cfg:1:1: socket and remote are one model: both are needed\n" },
        { "[model]\nweight = 3\n",
          "warning: t.cfg:2:1: unknown key \"weight\" is ignored: it belongs into [vm NAME]\n" },
        { "[vm a]\nimage = x\ndisk = a\n", "t.cfg:1:1: VM a cannot serve its own devices\n" },
        { "[vm a]\nimage = x\nnet = b\n", "warning: t.cfg:1:1: VM a waits for VM b, which this "
                                          "file does not describe, to serve it\n" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        int error = parse(bad[i].text);

        assert_string_equal(said, bad[i].said);
        assert_int_equal(error, strncmp(bad[i].said, "warning", 7) == 0 ? 0 : -EINVAL);
    }
}

static void model(void **state) {
    assert_int_equal(parse("[vm a]\nimage = x\n"), 0);
    assert_int_equal(cfg.model.head.line, 0);
    assert_int_equal(cfg.model.clock | cfg.model.cpi | cfg.model.cpus, 0);
    assert_int_equal(parse("[model]\nclock = 2.4GHz\ncpi = 0.8\ncpus = 4\nmemory = 2G\n"
                           "copy = 2.5GB/s\nexit = 1.5us\nkick = 700ns\ndelivery = posted\n"
                           "inject = 100ns\nswitch = 2us\ncache = 8M\nwarm = 256k\n"
                           "refill = 10GB/s\nsocket = 4\nremote = 1.5\n"),
                     0);
    assert_string_equal(said, "");
    assert_int_equal(cfg.model.head.line, 1);
    assert_int_equal(cfg.model.clock, 2400000000ull);
    assert_int_equal(cfg.model.cpi, 800);
    assert_int_equal(cfg.model.cpus, 4);
    assert_int_equal(cfg.model.memory, 2ull << 30);
    assert_int_equal(cfg.model.copy, 2500000000ull);
    assert_int_equal(cfg.model.exit, 1500);
    assert_int_equal(cfg.model.kick, 700);
    assert_int_equal(cfg.model.posted, 1);
    assert_int_equal(cfg.model.inject, 100);
    assert_int_equal(cfg.model.switch_cost, 2000);
    assert_int_equal(cfg.model.cache, 8 << 20);
    assert_int_equal(cfg.model.warm, 256 << 10);
    assert_int_equal(cfg.model.refill, 10000000000ull);
    assert_int_equal(cfg.model.socket, 4);
    assert_int_equal(cfg.model.remote, 1500);
}

static u32 one_cache(u32 cpu) { return 0; }
static u32 two_nodes(u32 cpu) { return cpu / 4; }

/* The file has a turbo pool whose CPUs are chosen at boot, and a VM with a turbo vCPU in the pool
 * that it serves. */
static void turbo(void **state) {
    assert_int_equal(parse("[pool p]\ncpus = cache:3\n[pool t]\nturbo_of = p\ncpus = random:2\n[vm "
                           "a]\nimage = x\npool = p\n"
                           "turbo = yes\n"),
                     0);
    assert_string_equal(said, "");
    assert_string_equal(cfg.pool[2].turbo_of, "p");
    assert_int_equal(cfg.pool[1].choice.how, CHOOSE_CACHE);
    assert_int_equal(cfg.pool[1].choice.nr, 3);
    assert_int_equal(cfg.pool[2].choice.how, CHOOSE_RANDOM);
    assert_int_equal(cfg.pool[2].choice.nr, 2);
    assert_true(cfg.vm[0].turbo);
    assert_int_equal(cfg.vm[0].vcpus, 1);
    config_choose_cpus(&cfg, &(struct cpumask){ { 0xff } },
                       &(struct cpu_places){ one_cache, two_nodes });
    assert_int_equal(cfg.pool[1].cpus.word[0], 0xe0);
    assert_int_equal(cpumask_weight(&cfg.pool[2].cpus), 2);
    assert_int_equal(cfg.pool[2].cpus.word[0] & 0xe1, 0); /* CPU 0 stays */
    assert_int_equal(cfg.pool[0].cpus.word[0] & 0xff, 0x1f & ~cfg.pool[2].cpus.word[0]);
}

/* Pools that want a node get it before pools that want a number of CPUs. CPU 0 stays in Pool-0. */
static void nodes(void **state) {
    const struct cpu_places places = { one_cache, two_nodes };

    assert_int_equal(parse("[pool any]\ncpus = cache:2\n[pool north]\ncpus = node:1\n[pool south]\n"
                           "cpus = node:0\n[pool none]\ncpus = node:2\n[vm a]\nimage = x\n"
                           "pool = north\n"),
                     0);
    assert_string_equal(said, "");
    config_choose_cpus(&cfg, &(struct cpumask){ { 0x7f } }, &places);
    assert_int_equal(cfg.pool[2].cpus.word[0], 0x70);
    assert_int_equal(cfg.pool[3].cpus.word[0], 0x0e);
    assert_true(cpumask_empty(&cfg.pool[1].cpus)); /* nothing is left */
    assert_true(cpumask_empty(&cfg.pool[4].cpus)); /* there is no such node */
    assert_int_equal(cfg.pool[0].cpus.word[0] & 0x7f, 1);
}

/* Every prefix of a good file is either good or refused with a report: a truncated module never
 * passes in silence as an error. */
static void truncated_anywhere(void **state) {
    const char *text =
        "[pool io]\ncpus = 2-4\n[vm web]\nimage = busy\nmemory = 32M\npool = io\nweight = 512\n";

    for (size_t n = 0; n <= strlen(text); n++) {
        said[0] = 0;
        config_defaults(&cfg, cfg_vms, CONFIG_MAX_VMS);
        if (config_parse(&cfg, "t.cfg", text, n, param_at, hear, NULL))
            assert_int_not_equal(said[0], 0);
    }
}

/* The file names things that the machine does not have. */
static void machine(void **state) {
    static const struct {
        const char *text, *said;
        u32 cpus;
        u64 mib;
    } cases[] = {
        { "[vm a]\nimage = x\ncpus = 5\n",
          "t.cfg:3:8: VM a can run on no CPU: the machine's are 0 to 1\n", 2, 64 },
        { "[pool p]\ncpus = 5\n[vm a]\nimage = x\npool = p\n",
          "t.cfg:2:8: pool p has none of the machine's CPUs, which are 0 to 1\n", 2, 64 },
        { "[vm a]\nimage = x\ncpus = 1-2\n",
          "warning: t.cfg:3:8: VM a names CPU 2, but the machine's are 0 to 1\n", 2, 64 },
        { "[vm a]\nimage = x\ncpus = ^0\n", "", 2, 64 },
        { "[pool p]\ncpus = 1-2\n",
          "warning: t.cfg:2:8: pool p names CPU 2, but the machine's are 0 to 1\n", 2, 64 },
        { "[pool p]\ncpus = random:2\n[pool q]\ncpus = random:2\n",
          "t.cfg:4:8: pool q wants 2 CPUs, but of the machine's 4 it can have only 1\n", 4, 64 },
        { "[pool p]\ncpus = random:2\n[pool q]\ncpus = random:1\n", "", 4, 64 },
        { "[vm a]\nimage = x\nmemory = 32M\n[vm b]\nimage = x\nstart = no\nmemory = 64M\n[vm "
          "c]\nimage = x\n"
          "memory = 34M\n",
          "t.cfg:10:10: VM c wants 34 MiB after the VMs before it took 32, but the machine has 64 "
          "MiB\n",
          1, 64 },
        { "[vm a]\nimage = x\nmemory = 32M\n[vm c]\nimage = x\nmemory = 32M\n", "", 1, 64 },
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        bool error = *cases[i].said && strncmp(cases[i].said, "warning", 7) != 0;

        assert_int_equal(parse(cases[i].text), 0);
        said[0] = 0;
        assert_int_equal(config_check_machine(&cfg, cases[i].cpus, cases[i].mib << 20, hear, NULL),
                         error ? -EINVAL : 0);
        assert_string_equal(said, cases[i].said);
    }
}

static void too_many(void **state) {
    static char text[257 * 32];
    size_t n = 0;

    for (int i = 0; i < 257; i++) n += (size_t)sprintf(text + n, "[vm v%d]\nimage = x\n", i);
    assert_int_equal(parse(text), -EINVAL);
    assert_string_equal(said, "t.cfg:513:1: VM v256 is one too many: 256 are allowed\n");
}

/* There is room for each VM of a text, and never for more than a file may have. */
static void room(void **state) {
    static char text[300 * 2];
    const char *two = "[vm a]\nimage = [x]\n# [vm no]\n \t[vm b]\r\n";

    assert_int_equal(config_room(two, strlen(two)), 2);
    assert_int_equal(config_room("", 0), 0);
    for (size_t i = 0; i < sizeof(text); i += 2) memcpy(text + i, "[\n", 2);
    assert_int_equal(config_room(text, sizeof(text)), 256);
}

static void devices(void **state) {
    static char text[1024];
    struct config_vm v;
    size_t n = (size_t)sprintf(text, "[vm b]\nimage = x\n[vm a]\nimage = x\nnet = b %095d\n", 7);

    assert_int_equal(parse(text), 0);
    assert_int_equal(strlen(cfg.vm[1].device[0].options), 95);
    for (u32 i = 0; i < TAKT_MAX_DEVICES; i++) n += (size_t)sprintf(text + n, "disk = b\n");
    assert_int_equal(parse(text), -EINVAL);
    assert_string_equal(said, "t.cfg:13:8: disk: it is one device too many: a VM can have 8\n");
    sprintf(text, "[vm b]\nimage = x\n[vm a]\nimage = x\nnet = b %096d\n", 7);
    assert_int_equal(parse(text), -EINVAL);

    config_vm_defaults(&v, "c");
    assert_int_equal(config_vm_set(&v, "net", "b rate=1M", param_at, hear, NULL), 0);
    assert_int_equal(config_vm_set(&v, "disk", "b", param_at, hear, NULL), 0);
    assert_int_equal(config_vm_set(&v, "rng", "b seed=7", param_at, hear, NULL), 0);
    assert_int_equal(v.nr_devices, 3);
    assert_int_equal(v.device[2].type, VIRTIO_ID_RNG);
    assert_string_equal(v.device[0].back, "b");
    assert_string_equal(v.device[0].options, "rate=1M");
}

static void apicv(void **state) {
    assert_int_equal(parse("[hypervisor]\nseed = 1\n"), 0);
    assert_int_equal(cfg.apicv, APICV_AUTO);
    assert_int_equal(parse("[hypervisor]\napicv = on\n"), 0);
    assert_string_equal(said, "");
    assert_int_equal(cfg.apicv, APICV_ON);
    assert_int_equal(cmdline("apicv=off"), 0);
    assert_int_equal(cfg.apicv, APICV_OFF);
    assert_int_equal(cmdline("apicv=auto"), 0);
    assert_int_equal(cfg.apicv, APICV_AUTO);
}

static void abilities_of_amd(void **state) {
    assert_int_equal(parse("[hypervisor]\nseed = 1\n"), 0);
    assert_false(cfg.decode_assists || cfg.flush_by_asid);
    assert_int_equal(parse("[hypervisor]\ndecode_assists = yes\n"), 0);
    assert_true(cfg.decode_assists && !cfg.flush_by_asid);
    assert_int_equal(cmdline("flush_by_asid decode_assists=no"), 0);
    assert_true(!cfg.decode_assists && cfg.flush_by_asid);
}

static void command_line(void **state) {
    assert_int_equal(parse("[hypervisor]\ntslice_us = 30000\n"), 0);
    assert_int_equal(
        cmdline(" sched=null sched_credit_tslice_ms=5 sched_ratelimit_us=500 console=com3,9600  "
                "noreboot relax_rmrr virtual_irqs "
                "loglvl=all seed=7 sched_preset=faithful-4.1 sched_debit=tick script=s.txt"),
        0);
    assert_string_equal(said, "");
    assert_string_equal(cfg.pool[0].sched, "null");
    assert_string_equal(cfg.console, "com3,9600");
    assert_string_equal(cfg.pool[0].preset, "faithful-4.1");
    assert_string_equal(cfg.script, "s.txt");
    assert_true(cfg.noreboot);
    assert_true(cfg.relax_rmrr);
    assert_true(cfg.virtual_irqs);
    assert_int_equal(cfg.loglvl, 3);
    assert_int_equal(cfg.seed, 7);
    assert_int_equal(cfg.pool[0].head.nr_params, 3);
    assert_string_equal(cfg.pool[0].head.param[0].name, "tslice_us"); /* overridden in place */
    assert_string_equal(cfg.pool[0].head.param[0].value, "5000");
    assert_string_equal(cfg.pool[0].head.param[1].name, "ratelimit_us");
    assert_string_equal(cfg.pool[0].head.param[1].value, "500");
    assert_string_equal(cfg.pool[0].head.param[2].name, "debit");

    assert_int_equal(cmdline("quiet sched_nonsense=1"), 0);
    assert_string_equal(said,
                        "warning: command line:1:1: unknown key \"quiet\" is ignored\n"
                        "warning: command line:1:7: unknown key \"sched_nonsense\" is ignored\n");
    assert_int_equal(cmdline("noreboot=maybe"), -EINVAL);
    assert_string_equal(said, "command line:1:10: noreboot: expected yes or no, not \"maybe\"\n");
    assert_int_equal(cmdline("sched_credit_tslice_ms=30ms"), -EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_file),
        cmocka_unit_test(complaints),
        cmocka_unit_test(truncated_anywhere),
        cmocka_unit_test(too_many),
        cmocka_unit_test(room),
        cmocka_unit_test(devices),
        cmocka_unit_test(apicv),
        cmocka_unit_test(abilities_of_amd),
        cmocka_unit_test(command_line),
        cmocka_unit_test(model),
        cmocka_unit_test(turbo),
        cmocka_unit_test(nodes),
        cmocka_unit_test(machine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
