/* Text to values: numbers with units, times, shares, CPU lists, consoles. All take terminated text
 * and use all of it. They return 0, -EINVAL for text that is not understood, or -ERANGE for a
 * number that does not fit; `bad`, unless NULL, then points at the first character that was in the
 * way. */
#ifndef HV_LIB_PARSE_H
#define HV_LIB_PARSE_H

#include "lib/cpumask.h"

int parse_u64(const char *s, u64 *value, const char **bad); /* "42" */
int parse_size(const char *s, u64 *bytes,
               const char **bad); /* "64k", "16M", "2G": powers of 1024; no unit: bytes */
int parse_time(const char *s, u64 *ns, const char **bad); /* "10ms", "50us", "1.5s", "20ns"; no unit: error */
int parse_permille(const char *s, u64 *permille, const char **bad); /* "40%", "12.5%"; 0 to 100 % */
/* "00:03.0", "0001:00:03.0": segment, bus, device and function of PCI, hexadecimal, to
 * segment << 16 | bus << 8 | device << 3 | function. */
int parse_pci(const char *s, u64 *bdf, const char **bad);
int parse_cpus(const char *s, struct cpumask *m,
               const char **bad); /* "0-3,^2,5", "all"; may turn out empty */

/* "random:2", "cache:1": so many CPUs, chosen in that way. */
struct cpu_choice {
    enum { CHOOSE_NONE, CHOOSE_RANDOM, CHOOSE_CACHE } how;
    u32 nr;
};
int parse_choice(const char *s, struct cpu_choice *c); /* -EINVAL, -ERANGE: *c is then CHOOSE_NONE */

struct console_spec {
    enum { AT_NOTHING, AT_FIRMWARES, AT_COM, AT_PORT, AT_PCI, AT_MEMORY } where;
    u32 com;    /* AT_COM: 1 to 4; else 0 */
    u64 addr;   /* AT_PORT: its first port; AT_PCI: bus << 8 | device << 3 | function; AT_MEMORY: physical */
    u32 stride; /* AT_MEMORY: bytes from register to register, 1 or 4 */
    u32 baud;   /* if not given: 115200 for a port, else 0: as the firmware left it */
};
/* Where a serial port is: "none"; "auto", what the firmware's table SPCR names; "com1" to "com4",
 * "0x2f8" (a port), "pci:00:16.3", "mmio:0xfe03e000" (registers of a byte), "mmio32:0xfe03e000"
 * (registers 4 bytes apart). All but the first two may have a rate behind them, as in "com2,9600"
 * and "com1,115200,8n1". */
int parse_console(const char *s, struct console_spec *c, const char **bad);

#define CPUS_TEXT (3 * TAKT_MAX_CPUS) /* any list: of 64 CPUs, "0-1,3-4,6-7,..." is 121 characters at most */
/* Writes a CPU list in its shortest form ("0-3,5", "all" for a full mask, "none"). */
void format_cpus(const struct cpumask *m, char buf[CPUS_TEXT]);

/* Names of VMs and pools: letters, digits, '-', '_', '.'; 1 to 31 characters; not a number, which
 * would be an id. */
bool valid_name(const char *s);

#endif
