/* The guest as a whole: its command line, whether it runs on Takt, hypercalls, the end.
 *
 * A guest defines `int main(void)`. It runs as a thread of vCPU 0 with interrupts on. What it
 * returns is the exit code of the VM.
 */
#ifndef GUEST_GUEST_H
#define GUEST_GUEST_H

#include <takt/abi.h>
#include <takt/errno.h>
#include <guest/duty.h>
#include <takt/types.h>

int main(void);

/* Ends the VM. The operator is told the code. On a bare QEMU its debug-exit device is used, and
 * QEMU ends with the code (code << 1) | 1. */
void guest_exit(int code) __attribute__((noreturn));
/* Prints a sentence, and ends the VM as crashed. Takt's report names the function that called
 * this. */
void guest_panic(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* The same, but Takt's report names the function of the instruction at `where`. */
void guest_panic_at(u64 where, const char *fmt, ...)
    __attribute__((noreturn, format(printf, 2, 3)));
/* If not NULL, guest_panic() calls it with the sentence before it ends the VM. */
extern void (*guest_panic_hook)(const char *why);

/* ---- command line: words `key=value` or `key` ---- */

/* The whole command line; never NULL. */
const char *cmdline(void);
/* Whether the word `key` is there, with or without a value. */
bool cmdline_has(const char *key);
/* The value of `key`, decimal, or hexadecimal after 0x; `otherwise` if it is not there or no
 * number. */
u64 cmdline_u64(const char *key, u64 otherwise);
/* Copies the value of `key`, cut to size - 1 characters and terminated. Returns its length; 0: it
 * is not there. */
size_t cmdline_str(const char *key, char *buf, size_t size);
/* A duty (<guest/duty.h>) by these words: percent=P, period_us=T (10000), jitter_pct=J (10),
 * loop=closed or open (closed). `percent` is used if the first one is not there. */
struct duty cmdline_duty(u64 percent);
/* How long this vCPU of a workload is to wait before it begins, in ns: phase_us=N if that is there,
 * else a time below `span` that follows from the VM's seed (<guest/phase.h>). */
u64 cmdline_phase(u32 vcpu, u64 span);

/* ---- Takt ---- */

/* Whether this VM runs on Takt, not on a bare machine. */
bool on_takt(void);
/* The number of this VM; 0 if it does not run on Takt. */
u32 takt_vm_id(void);
/* This VM's seed of random numbers, and that of the whole machine, which all VMs see
 * (TAKT_CPUID_SEED in <takt/abi.h>; <takt/seed.h> makes numbers of them). 0 if the VM does not run
 * on Takt. */
u64 takt_seed(void);
u64 takt_machine_seed(void);

/* Makes a hypercall, by VMCALL or VMMCALL as CPUID says. Returns what <takt/abi.h> says of it;
 * -ENOSYS if the VM does not run on Takt. */
i64 hypercall(u32 number, u64 a, u64 b, u64 c, u64 d);
static inline i64 hypercall0(u32 number) { return hypercall(number, 0, 0, 0, 0); }
static inline i64 hypercall1(u32 number, u64 a) { return hypercall(number, a, 0, 0, 0); }
static inline i64 hypercall2(u32 number, u64 a, u64 b) { return hypercall(number, a, b, 0, 0); }
static inline i64 hypercall3(u32 number, u64 a, u64 b, u64 c) {
    return hypercall(number, a, b, c, 0);
}

struct hvm_start_info;
void guest_start(const struct hvm_start_info *si) __attribute__((noreturn)); /* from start.asm */

#endif
