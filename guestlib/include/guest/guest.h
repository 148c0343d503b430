/* The guest as a whole: its command line, whether Takt is below, hypercalls, the end.
 *
 * A guest defines `int main(void)`. It runs as a thread of vCPU 0 with interrupts on; what it returns is the
 * exit code of the VM.
 */
#ifndef GUEST_GUEST_H
#define GUEST_GUEST_H

#include <takt/abi.h>
#include <takt/errno.h>
#include <guest/duty.h>
#include <takt/types.h>

int main(void);

/* Ends the VM; the operator is told the code. On a bare QEMU, whose debug-exit device does it, QEMU ends with
 * (code << 1) | 1. */
void guest_exit(int code) __attribute__((noreturn));
/* One sentence, then the end as a crash. */
void guest_panic(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* The same, about the instruction at `where`, not about the caller. Takt's report names its function. */
void guest_panic_at(u64 where, const char *fmt, ...) __attribute__((noreturn, format(printf, 2, 3)));
/* Called by guest_panic() with the sentence instead of crashing, if set. */
extern void (*guest_panic_hook)(const char *why);

/* ---- command line: words `key=value` or `key` ---- */
const char *cmdline(void);                                   /* the whole; never NULL */
bool cmdline_has(const char *key);                           /* the word `key`, with or without value */
u64 cmdline_u64(const char *key, u64 otherwise);             /* decimal, or hexadecimal after 0x */
size_t cmdline_str(const char *key, char *buf, size_t size); /* length; 0 if not there */
/* What <guest/duty.h> is asked for: percent=P, period_us=T (10000), jitter_pct=J (10), loop=closed
 * or open. */
struct duty cmdline_duty(u64 percent);
/* ns that this vCPU of a workload is to wait before it begins: phase_us=N if that is there, else
 * below `span` as the VM's seed says (<guest/phase.h>). */
u64 cmdline_phase(u32 vcpu, u64 span);

/* ---- Takt ---- */
bool on_takt(void);
u32 takt_vm_id(void);
/* This VM's seed of random numbers, and that of the whole machine, which all VMs see
 * (TAKT_CPUID_SEED in <takt/abi.h>; <takt/seed.h> makes numbers of them). 0 if Takt is not
 * below. */
u64 takt_seed(void);
u64 takt_machine_seed(void);

/* By VMCALL or VMMCALL as CPUID says. Only on Takt: elsewhere it is -ENOSYS. */
i64 hypercall(u32 number, u64 a, u64 b, u64 c, u64 d);
static inline i64 hypercall0(u32 number) { return hypercall(number, 0, 0, 0, 0); }
static inline i64 hypercall1(u32 number, u64 a) { return hypercall(number, a, 0, 0, 0); }
static inline i64 hypercall2(u32 number, u64 a, u64 b) { return hypercall(number, a, b, 0, 0); }
static inline i64 hypercall3(u32 number, u64 a, u64 b, u64 c) { return hypercall(number, a, b, c, 0); }

struct hvm_start_info;
void guest_start(const struct hvm_start_info *si) __attribute__((noreturn)); /* from start.asm */

#endif
