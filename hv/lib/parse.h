/* Turns text into values: numbers with units, times, shares, CPU lists, consoles. Each function
 * takes a terminated text and has to understand all of it. It returns 0, or
 *   -EINVAL  the text is not understood
 *   -ERANGE  a number does not fit
 * and then sets *bad, unless `bad` is NULL, to the first character that was in the way. */
#ifndef HV_LIB_PARSE_H
#define HV_LIB_PARSE_H

#include "lib/cpumask.h"

/* "42" */
int parse_u64(const char *s, u64 *value, const char **bad);
/* "0x2f8", or decimal digits. */
int parse_address(const char *s, u64 *value, const char **bad);
/* "64k", "16M", "2G": units are powers of 1024. Without a unit it is bytes. */
int parse_size(const char *s, u64 *bytes, const char **bad);
/* "10ms", "50us", "1.5s", "20ns". There has to be a unit. */
int parse_time(const char *s, u64 *ns, const char **bad);
/* "40%", "12.5%", from 0 to 100 %. */
int parse_permille(const char *s, u64 *permille, const char **bad);
/* "2.4GHz", "800MHz": there has to be a unit. */
int parse_frequency(const char *s, u64 *hz, const char **bad);
/* "5GB/s", "800MB/s": powers of 1000. There has to be a unit. */
int parse_rate(const char *s, u64 *bytes_per_s, const char **bad);
/* "0.8": in thousandths. */
int parse_thousandths(const char *s, u64 *value, const char **bad);
/* "00:03.0" or "0001:00:03.0": segment, bus, device and function of PCI, in hexadecimal. *bdf
 * becomes segment << 16 | bus << 8 | device << 3 | function. */
int parse_pci(const char *s, u64 *bdf, const char **bad);
/* "0-3,^2,5" or "all". The set may turn out to be empty. */
int parse_cpus(const char *s, struct cpumask *m, const char **bad);

/* "random:2" or "cache:1": how many CPUs, and how they are chosen (lib/choose.h). "node:1": all
 * CPUs of that NUMA node. */
struct cpu_choice {
    enum { CHOOSE_NONE, CHOOSE_RANDOM, CHOOSE_CACHE, CHOOSE_NODE } how;
    u32 nr; /* how many CPUs; 0 if `how` is CHOOSE_NONE or CHOOSE_NODE */
    u32 node;
};
/* Reads such a choice. After an error c->how is CHOOSE_NONE. */
int parse_choice(const char *s, struct cpu_choice *c);

struct console_spec {
    enum { AT_NOTHING, AT_FIRMWARES, AT_COM, AT_PORT, AT_PCI, AT_MEMORY } where;
    u32 com; /* AT_COM: 1 to 4; else 0 */
    /* AT_PORT: its first port; AT_PCI: bus << 8 | device << 3 | function; AT_MEMORY: physical */
    u64 addr;
    u32 stride; /* AT_MEMORY: bytes from register to register, 1 or 4 */
    /* If the text names none, this is 115200 for a port. Otherwise it is 0, which keeps what the
     * firmware has set. */
    u32 baud;
};
/* Where a serial port is:
 *   none               nowhere
 *   auto               where the firmware's table SPCR says
 *   com1 to com4
 *   0x2f8              at this I/O port
 *   pci:00:16.3        a PCI device
 *   mmio:0xfe03e000    registers of a byte in memory
 *   mmio32:0xfe03e000  the same, 4 bytes apart
 * All but the first two may be followed by a rate, as in "com2,9600" and "com1,115200,8n1". */
int parse_console(const char *s, struct console_spec *c, const char **bad);

/* Room for any list: the longest one of 256 CPUs, "0-1,3-4,6-7,...", has 609 characters. */
#define CPUS_TEXT (3 * TAKT_MAX_CPUS)
/* Writes a CPU list in its shortest form ("0-3,5", "all" for a full mask, "none"). */
void format_cpus(const struct cpumask *m, char buf[CPUS_TEXT]);

/* Returns whether this is a name that a VM or a pool may have. A name has 1 to 31 letters, digits,
 * '-', '_' and '.', and does not begin with '-'. It is not a number, because a number means an id
 * where a name is expected. */
bool valid_name(const char *s);

#endif
