/* The keys of the configuration file, and how the value of each one is read. hv/config.c, which
 * knows the file's lines and sections, is the only user. */
#ifndef HV_CONFIG_KEYS_H
#define HV_CONFIG_KEYS_H

#include "config.h"

/* What a value looks like. */
enum config_kind {
    TEXT,
    NAME,
    CONSOLE,
    COM,
    MEMORY,
    COUNT,
    PCPUS,
    NUMBER,
    SECONDS,
    CPUS,
    SHARE,
    BOOL,
    LOGLVL,
    ON_CRASH,
    GUEST_CONSOLE,
    ON_DMA_FAULT,
    BOOT_FAULT,
    PCI,
    VF,
    NET,
    DISK,
    RNG,
    FREQUENCY,
    RATE,
    CPI,
    DURATION,
    CACHE,
    FACTOR,
    DELIVERY,
    APICV,
};

/* Where a value goes after it was read. */
enum config_storage {
    AS_NUMBER,        /* into a field of 1, 4 or 8 bytes */
    AS_TEXT,          /* into an array of characters, unchanged */
    AS_CPUS,          /* into a struct cpumask, or into the pool's choice (random:2) */
    AS_PCI_DEVICE,    /* appended to the VM's list of PCI devices: such a key may be repeated */
    AS_VIRTIO_DEVICE, /* appended to the VM's list of virtio devices: likewise */
};

enum config_section { NO_SECTION, BAD_SECTION, HYPERVISOR, POOL, VM, MODEL };

struct config_key {
    const char *name;
    u8 section, kind; /* enum config_section, enum config_kind */
    u16 offset, size; /* of the field in the section's structure, in bytes */
};

/* The key `name` of a section. NULL: the section has no such key. */
const struct config_key *config_find_key(enum config_section section, const char *name);
/* The first key of a section, in the order of the table; those of one section are neighbours. */
const struct config_key *config_first_key(enum config_section section);
/* The key of that number in the whole table. NULL: there are not so many. */
const struct config_key *config_key_at(u32 index);

enum config_storage config_storage_of(const struct config_key *k);
/* What a value of the key must be. It ends the sentence "KEY: expected ..." of an error. */
const char *config_expected(const struct config_key *k);

/* The next three take the text of a value and return 0, or -EINVAL or -ERANGE if it is none that
 * the key can have. Then *bad is the character of `value` that was in the way. */

/* Checks text that is kept as it is: its length, and whether it is a name or a console. */
int config_check_text(const struct config_key *k, const char *value, const char **bad);
/* Reads a value of storage AS_NUMBER or AS_PCI_DEVICE; the latter as struct config_vm keeps it. */
int config_read_number(const struct config_key *k, const char *value, u64 *v, const char **bad);
/* Reads a list of CPUs, which must not be empty. */
int config_read_cpus(const char *value, struct cpumask *cpus, const char **bad);
/* Returns the number that the field of key `k` in `object` has. */
u64 config_load_number(const struct config_key *k, const void *object);
/* Stores a number that was read for key `k` in its field of `object`, the section's structure. */
void config_store_number(const struct config_key *k, void *object, u64 v);

#endif
