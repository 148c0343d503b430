/* The table of all keys of the configuration, the table of the kinds of values that they have, and
 * the functions that read a value of each kind. A new key is one line here and a field in `struct
 * config`. */
#include <takt/errno.h>
#include "config_keys.h"
#include "lib/parse.h"
#include "lib/printf.h"
#include "common/string.h"

struct word {
    const char *text; /* NULL ends a list of words */
    u64 value;
};

static const struct word bool_words[] = { { "no", false }, { "yes", true },    { "off", false },
                                          { "on", true },  { "false", false }, { "true", true },
                                          { "0", false },  { "1", true },      { NULL } };
/* "none" and "all" are what Xen calls the first and the last of the levels. */
static const struct word loglvl_words[] = { { "error", LOG_ERR },
                                            { "warning", LOG_WARN },
                                            { "info", LOG_INFO },
                                            { "debug", LOG_DEBUG },
                                            { "none", LOG_ERR },
                                            { "all", LOG_DEBUG },
                                            { NULL } };
static const struct word on_crash_words[] = { { "destroy", ON_CRASH_DESTROY },
                                              { "restart", ON_CRASH_RESTART },
                                              { "preserve", ON_CRASH_PRESERVE },
                                              { NULL } };
static const struct word guest_console_words[] = { { "keep", false }, { "log", true }, { NULL } };
static const struct word on_dma_fault_words[] = { { "stop", ON_DMA_FAULT_STOP },
                                                  { "log", ON_DMA_FAULT_LOG },
                                                  { NULL } };
static const struct word boot_fault_words[] = { { "none", BOOT_FAULT_NONE },
                                                { "tsc", BOOT_FAULT_TSC },
                                                { "tsc-stuck", BOOT_FAULT_TSC_STUCK },
                                                { NULL } };

static const struct word delivery_words[] = { { "emulated", false }, { "posted", true }, { NULL } };

static const struct word apicv_words[] = {
    { "auto", APICV_AUTO }, { "on", APICV_ON }, { "off", APICV_OFF }, { NULL }
};

static const char pci_expected[] = "a PCI device such as 00:03.0 or 0001:03:00.0";
static const char server_expected[] =
    "the name of the VM that serves it, perhaps with at most 95 characters of options";

/* What each kind of value looks like, and where it goes. */
static const struct {
    enum config_storage storage;
    const char *expected;     /* ends the sentence "KEY: expected ..." of an error */
    u64 min, max;             /* what a number may be */
    const struct word *words; /* if not NULL, the value is one of these */
} kinds[] = {
    [TEXT] = { AS_TEXT, "text of at most 255 characters" },
    [NAME] = { AS_TEXT, "a name" },
    [CONSOLE] = { AS_TEXT, "com1 to com4, a port such as 0x2f8, pci:00:16.3, mmio:0xfe03e000 or "
                           "mmio32:0xfe03e000, "
                           "each perhaps with a rate, as com1,115200; or auto, or none" },
    [COM] = { AS_TEXT, "com1 to com4, perhaps with a rate, as com2,115200, or none" },
    [MEMORY] = { AS_NUMBER, "a multiple of 2M such as 16M, from 2M to 1T", 2 << 20, 1ull << 40 },
    [COUNT] = { AS_NUMBER, "a number from 1 to 64", 1, 64 },
    [PCPUS] = { AS_NUMBER, "a number from 1 to 256", 1, TAKT_MAX_CPUS },
    [NUMBER] = { AS_NUMBER, "a number below 2^64", 0, UINT64_MAX },
    [SECONDS] = { AS_NUMBER, "a number of seconds from 0 to 600", 0, 600 },
    [CPUS] = { AS_CPUS, "a list of CPUs such as 0-3,^2, or all" },
    [SHARE] = { AS_NUMBER, "a share such as 40% or 2.5%", 0, 1000 },
    [BOOL] = { AS_NUMBER, "yes or no", 0, true, bool_words },
    [LOGLVL] = { AS_NUMBER, "error, warning, info or debug", 0, LOG_DEBUG, loglvl_words },
    [ON_CRASH] = { AS_NUMBER, "destroy, restart or preserve", 0, ON_CRASH_PRESERVE,
                   on_crash_words },
    [GUEST_CONSOLE] = { AS_NUMBER, "keep or log", 0, true, guest_console_words },
    [ON_DMA_FAULT] = { AS_NUMBER, "stop or log", 0, ON_DMA_FAULT_LOG, on_dma_fault_words },
    [BOOT_FAULT] = { AS_NUMBER, "none, tsc or tsc-stuck", 0, BOOT_FAULT_TSC_STUCK,
                     boot_fault_words },
    [PCI] = { AS_PCI_DEVICE, pci_expected, 0, UINT64_MAX },
    [VF] = { AS_PCI_DEVICE, "a virtual function such as igb0/any or 01:00.0/2", 0, UINT64_MAX },
    [NET] = { AS_VIRTIO_DEVICE, server_expected },
    [DISK] = { AS_VIRTIO_DEVICE, server_expected },
    [RNG] = { AS_VIRTIO_DEVICE, server_expected },
    [FREQUENCY] = { AS_NUMBER, "a clock rate such as 2.4GHz, from 1MHz to 10GHz", 1000000,
                    10000000000 },
    [RATE] = { AS_NUMBER, "a rate such as 5GB/s, from 1MB/s to 1000GB/s", 1000000, 1000000000000 },
    [CPI] = { AS_NUMBER, "cycles per instruction such as 0.8, from 0.1 to 100", 100, 100000 },
    [CACHE] = { AS_NUMBER, "a size such as 256k or 8M, from 4k to 1G", 4 << 10, 1 << 30 },
    [FACTOR] = { AS_NUMBER, "a factor such as 1.5, from 1 to 100", 1000, 100000 },
    [APICV] = { AS_NUMBER, "auto, on or off", 0, APICV_OFF, apicv_words },
    [DELIVERY] = { AS_NUMBER, "emulated or posted", 0, true, delivery_words },
    [DURATION] = { AS_NUMBER, "a time such as 700ns or 2us, from 1ns to 1ms", 1, NS_PER_MS },
};

/* A key of `section`, whose value goes into `field` of struct `type`. */
#define KEY(section, type, name, kind, field)                                                      \
    { name, section, kind, offsetof(struct type, field), sizeof(((struct type *)0)->field) }

static const struct config_key keys[] = {
    KEY(HYPERVISOR, config, "sched", NAME, pool[0].sched),
    KEY(HYPERVISOR, config, "sched_preset", TEXT, pool[0].preset),
    KEY(HYPERVISOR, config, "console", CONSOLE, console),
    KEY(HYPERVISOR, config, "trace_console", COM, trace_console),
    KEY(HYPERVISOR, config, "store_console", COM, store_console),
    KEY(HYPERVISOR, config, "loglvl", LOGLVL, loglvl),
    KEY(HYPERVISOR, config, "seed", NUMBER, seed),
    KEY(HYPERVISOR, config, "vfs", COUNT, vfs),
    KEY(HYPERVISOR, config, "relax_rmrr", BOOL, relax_rmrr),
    KEY(HYPERVISOR, config, "virtual_irqs", BOOL, virtual_irqs),
    KEY(HYPERVISOR, config, "apicv", APICV, apicv),
    KEY(HYPERVISOR, config, "decode_assists", BOOL, decode_assists),
    KEY(HYPERVISOR, config, "flush_by_asid", BOOL, flush_by_asid),
    KEY(HYPERVISOR, config, "noreboot", BOOL, noreboot),
    KEY(HYPERVISOR, config, "watchdog", SECONDS, watchdog),
    KEY(HYPERVISOR, config, "smt", BOOL, smt),
    KEY(HYPERVISOR, config, "max_cpus", PCPUS, max_cpus),
    KEY(HYPERVISOR, config, "selftest", BOOL, selftest),
    KEY(HYPERVISOR, config, "probe", BOOL, probe),
    KEY(HYPERVISOR, config, "boot_fault", BOOT_FAULT, boot_fault),
    KEY(HYPERVISOR, config, "guest_console", GUEST_CONSOLE, guest_console_log),
    KEY(HYPERVISOR, config, "top", BOOL, top),
    KEY(HYPERVISOR, config, "record", BOOL, record),
    KEY(HYPERVISOR, config, "script", TEXT, script),
    KEY(POOL, config_pool, "sched", NAME, sched),
    KEY(POOL, config_pool, "sched_preset", TEXT, preset),
    KEY(POOL, config_pool, "cpus", CPUS, cpus),
    KEY(POOL, config_pool, "turbo_of", NAME, turbo_of),
    KEY(VM, config_vm, "image", TEXT, image),
    KEY(VM, config_vm, "kernel", TEXT, kernel),
    KEY(VM, config_vm, "ramdisk", TEXT, ramdisk),
    KEY(VM, config_vm, "cmdline", TEXT, cmdline),
    KEY(VM, config_vm, "memory", MEMORY, memory),
    KEY(VM, config_vm, "vcpus", COUNT, vcpus),
    KEY(VM, config_vm, "turbo", BOOL, turbo),
    KEY(VM, config_vm, "cpus", CPUS, cpus),
    KEY(VM, config_vm, "pool", NAME, pool),
    KEY(VM, config_vm, "net", NET, device),
    KEY(VM, config_vm, "disk", DISK, device),
    KEY(VM, config_vm, "rng", RNG, device),
    KEY(VM, config_vm, "on_crash", ON_CRASH, on_crash),
    KEY(VM, config_vm, "observer", BOOL, observer),
    KEY(VM, config_vm, "debugcon", BOOL, debugcon),
    KEY(VM, config_vm, "debug_exit", BOOL, debug_exit),
    KEY(VM, config_vm, "start", BOOL, start),
    KEY(VM, config_vm, "pci", PCI, pci),
    KEY(VM, config_vm, "vf", VF, pci),
    KEY(VM, config_vm, "unsafe_dma", BOOL, unsafe_dma),
    KEY(VM, config_vm, "on_dma_fault", ON_DMA_FAULT, on_dma_fault),
    KEY(VM, config_vm, "allow_shared_group", BOOL, allow_shared_group),
    KEY(VM, config_vm, "irq_rate", NUMBER, irq_rate),
    KEY(VM, config_vm, "demand", SHARE, demand_permille),
    KEY(MODEL, config_model, "cpus", PCPUS, cpus),
    KEY(MODEL, config_model, "memory", MEMORY, memory),
    KEY(MODEL, config_model, "clock", FREQUENCY, clock),
    KEY(MODEL, config_model, "cpi", CPI, cpi),
    KEY(MODEL, config_model, "copy", RATE, copy),
    KEY(MODEL, config_model, "exit", DURATION, exit),
    KEY(MODEL, config_model, "kick", DURATION, kick),
    KEY(MODEL, config_model, "switch", DURATION, switch_cost),
    KEY(MODEL, config_model, "cache", CACHE, cache),
    KEY(MODEL, config_model, "warm", CACHE, warm),
    KEY(MODEL, config_model, "refill", RATE, refill),
    KEY(MODEL, config_model, "delivery", DELIVERY, posted),
    KEY(MODEL, config_model, "inject", DURATION, inject),
    KEY(MODEL, config_model, "nic", NAME, nic),
    KEY(MODEL, config_model, "itr", DURATION, itr),
    KEY(MODEL, config_model, "socket", PCPUS, socket),
    KEY(MODEL, config_model, "remote", FACTOR, remote),
};

/* ---- keys ---- */

/* Returns the key of that name that a section of this kind has, or NULL. */
const struct config_key *config_find_key(enum config_section section, const char *name) {
    for (const struct config_key *k = keys; k < keys + ARRAY_SIZE(keys); k++)
        if (k->section == section && strcmp(k->name, name) == 0) return k;
    return NULL;
}

/* Returns the first key of a section of this kind. The keys of a section follow each other. */
const struct config_key *config_first_key(enum config_section section) {
    const struct config_key *k = keys;

    while (k->section != section) k++;
    return k;
}

/* Returns key number `index` of all, or NULL at the end. */
const struct config_key *config_key_at(u32 index) {
    if (index >= ARRAY_SIZE(keys)) return NULL;
    return &keys[index];
}

/* Returns how a value of this kind is stored in the structure of its section. */
enum config_storage config_storage_of(const struct config_key *k) { return kinds[k->kind].storage; }

/* Returns what a value of the key must be, as the end of an error's sentence. */
const char *config_expected(const struct config_key *k) { return kinds[k->kind].expected; }

/* ---- values ---- */

/* Reads one of a list of words. *v becomes its value. Returns 0, or -EINVAL if the list has no such
 * word. */
static int read_choice_word(const struct word *words, const char *text, u64 *v) {
    for (const struct word *w = words; w->text; w++) {
        if (strcmp(w->text, text) != 0) continue;
        *v = w->value;
        return 0;
    }
    return -EINVAL;
}

/* Reads the name of a card, "igb0" or "01:00.0", into a request for one of its virtual functions:
 * into the lower bits of CONFIG_VF, and CONFIG_VF_NAMED. */
static int read_physical_function(const char *s, u64 *request) {
    u64 n;

    if (strncmp(s, "igb", 3) == 0) {
        if (parse_u64(s + 3, &n, NULL) || n > 0xffff) return -EINVAL;
        *request |= CONFIG_VF_NAMED | n;
        return 0;
    }
    if (parse_pci(s, &n, NULL) || n > UINT32_MAX) return -EINVAL;
    *request |= n;
    return 0;
}

/* Reads a request for a virtual function, such as "igb0/any" or "01:00.0/2@4000". A virtual
 * function is a part of a card that a VM can have for itself (SR-IOV). *request packs the card,
 * which of its functions, and the limit of interrupts a second into one number (config.h). Returns
 * 0 or -EINVAL. */
int config_vf(const char *s, u64 *request) {
    char text[32], *vf, *rate;
    u64 n;

    if (strlen(s) >= sizeof(text)) return -EINVAL;
    memcpy(text, s, strlen(s) + 1);
    *request = CONFIG_VF;
    rate = strchr(text, '@');
    if (rate) {
        *rate++ = 0;
        if (parse_u64(rate, &n, NULL) || n < 1000 || n >= 32000) return -EINVAL;
        *request |= n / 1000 << 40;
    }
    vf = strchr(text, '/');
    if (!vf) return -EINVAL;
    *vf++ = 0;
    if (strcmp(vf, "any") == 0) {
        *request |= CONFIG_VF_ANY;
    } else {
        if (parse_u64(vf, &n, NULL) || n > 0xff) return -EINVAL;
        *request |= n << 32;
    }
    return read_physical_function(text, request);
}

/* Reads the text of a number or of a PCI device into *value, as the kind of key `k` wants it.
 * Returns 0 or -EINVAL. A number outside the limits of its kind is refused here, so that no later
 * code has to check it. */
int config_read_number(const struct config_key *k, const char *value, u64 *v, const char **bad) {
    int error;

    switch (k->kind) {
    case CACHE:
    case MEMORY: error = parse_size(value, v, bad); break;
    case COUNT:
    case PCPUS:
    case SECONDS:
    case NUMBER: error = parse_u64(value, v, bad); break;
    case SHARE: error = parse_permille(value, v, bad); break;
    case FREQUENCY: error = parse_frequency(value, v, bad); break;
    case RATE: error = parse_rate(value, v, bad); break;
    case FACTOR:
    case CPI: error = parse_thousandths(value, v, bad); break;
    case DURATION: error = parse_time(value, v, bad); break;
    case PCI: error = parse_pci(value, v, bad); break;
    case VF: error = config_vf(value, v); break;
    default: error = read_choice_word(kinds[k->kind].words, value, v);
    }
    if (error) return error;
    *bad = value;
    if (k->kind == MEMORY && *v % (2 << 20)) return -ERANGE; /* guest RAM is whole 2 MiB chunks */
    if (*v < kinds[k->kind].min || *v > kinds[k->kind].max) return -ERANGE;
    return 0;
}

/* Checks a value that is kept as text: its length, and whether it is a name or a console. Returns 0
 * or -EINVAL. *bad becomes the character that is wrong, as far as that can be told. */
int config_check_text(const struct config_key *k, const char *value, const char **bad) {
    struct console_spec console;
    int error;

    if (strlen(value) >= k->size) return -ERANGE;
    switch (k->kind) {
    case NAME:
        if (!valid_name(value)) return -EINVAL;
        return 0;
    case CONSOLE: return parse_console(value, &console, bad);
    case COM:
        error = parse_console(value, &console, bad);
        if (!error && console.where != AT_COM && console.where != AT_NOTHING) return -EINVAL;
        return error;
    default: return 0;
    }
}

/* Reads a list of CPUs, which must not be empty. Returns 0 or -EINVAL. */
int config_read_cpus(const char *value, struct cpumask *cpus, const char **bad) {
    int error = parse_cpus(value, cpus, bad);

    if (error) return error;
    *bad = value;
    if (cpumask_empty(cpus)) return -EINVAL;
    return 0;
}

/* Returns the number in the field of `object` that belongs to key `k`. */
u64 config_load_number(const struct config_key *k, const void *object) {
    const void *field = (const char *)object + k->offset;

    switch (k->size) {
    case sizeof(u8): return *(const u8 *)field;
    case sizeof(u32): return *(const u32 *)field;
    case sizeof(u64): return *(const u64 *)field;
    default: panic("%s: its field has %u bytes instead of 1, 4 or 8", k->name, (u32)k->size);
    }
}

/* Stores a number in the field of `object` that belongs to key `k`. The limits of the kinds make
 * sure that the number fits its field. */
void config_store_number(const struct config_key *k, void *object, u64 v) {
    void *field = (char *)object + k->offset;

    switch (k->size) {
    case sizeof(u8): *(u8 *)field = (u8)v; break;
    case sizeof(u32): *(u32 *)field = (u32)v; break;
    case sizeof(u64): *(u64 *)field = v; break;
    default: panic("%s: its field has %u bytes instead of 1, 4 or 8", k->name, (u32)k->size);
    }
}
