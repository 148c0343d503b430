/* The guest as a whole: its command line, whether it runs on Takt, hypercalls, and its end.
 *
 * A guest defines `int main(void)`. It runs as a thread of vCPU 0 with interrupts on. Its result is
 * the exit code of the VM. */
#ifndef GUEST_GUEST_H
#define GUEST_GUEST_H

#include <takt/abi.h>
#include <takt/errno.h>
#include <guest/duty.h>
#include <takt/types.h>

int main(void);

/* Ends the VM. The operator is told the code. On QEMU without Takt, QEMU ends with the code (code
 * << 1) | 1, by its debug-exit device. */
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
/* Returns whether the word `key` is there, with or without a value. */
bool cmdline_has(const char *key);
/* Returns the value of `key`, decimal, or hexadecimal after 0x. Returns `otherwise` if the key is
 * not there or its value is not a number. */
u64 cmdline_u64(const char *key, u64 otherwise);
/* Copies the value of `key`, cut to size - 1 characters and terminated. Returns its length. If the
 * key is not there, *buf is an empty text and the result is 0. */
size_t cmdline_str(const char *key, char *buf, size_t size);
/* Reads a duty (<guest/duty.h>) from these words: percent=P, period_us=T (10000), jitter_pct=J
 * (10), loop=closed or open (closed). `percent` is used if the first word is not there. Panics if
 * `loop` is something else. */
struct duty cmdline_duty(u64 percent);
/* Returns how long this vCPU of a workload has to wait before it begins, in ns: phase_us=N of the
 * command line, or else a time below `span` that follows from the VM's seed (<guest/phase.h>). */
u64 cmdline_phase(u32 vcpu, u64 span);

/* ---- Takt ---- */

/* Returns whether this VM runs on Takt, and not on a bare machine. */
bool on_takt(void);
/* Returns the number of this VM; 0 if it does not run on Takt. */
u32 takt_vm_id(void);
/* Return this VM's seed of random numbers, and that of the whole machine, which all VMs see
 * (TAKT_CPUID_SEED in <takt/abi.h>; <takt/seed.h> makes numbers from a seed). They are 0 if the VM
 * does not run on Takt. */
u64 takt_seed(void);
u64 takt_machine_seed(void);

/* Makes a hypercall, by VMCALL or VMMCALL as CPUID says. Returns what <takt/abi.h> says about it,
 * or -ENOSYS if the VM does not run on Takt. */
i64 hypercall(u32 number, u64 a, u64 b, u64 c, u64 d);
static inline i64 hypercall0(u32 number) { return hypercall(number, 0, 0, 0, 0); }
static inline i64 hypercall1(u32 number, u64 a) { return hypercall(number, a, 0, 0, 0); }
static inline i64 hypercall2(u32 number, u64 a, u64 b) { return hypercall(number, a, b, 0, 0); }
static inline i64 hypercall3(u32 number, u64 a, u64 b, u64 c) {
    return hypercall(number, a, b, c, 0);
}

struct hvm_start_info;
/* Called by start.asm. */
void guest_start(const struct hvm_start_info *si) __attribute__((noreturn));

#endif
