/* The way of a guest from its entry to main(): it notes its command line, finds out whether it runs
 * on Takt or on a bare machine, sets up memory, vCPU 0 and the first thread, and calls main() in
 * that thread. Also hypercalls, and the guest's end. guest.h has the contracts. */
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/phase.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <guest/vcpu.h>
#include <takt/io.h>
#include <takt/start_info.h>

static bool takt, vmmcall;
static char line[1024];

void (*guest_panic_hook)(const char *why);

bool on_takt(void) { return takt; }

u32 takt_vm_id(void) {
    if (!takt) return 0;
    return cpuid(TAKT_CPUID_ABI, 0).ecx;
}

u64 takt_seed(void) {
    struct cpuid c = cpuid(TAKT_CPUID_SEED, 0);

    if (!takt) return 0;
    return c.ecx | (u64)c.edx << 32;
}

u64 takt_machine_seed(void) {
    struct cpuid c = cpuid(TAKT_CPUID_SEED, 0);

    if (!takt) return 0;
    return c.eax | (u64)c.ebx << 32;
}

i64 hypercall_vmcall(u32 number, u64 a, u64 b, u64 c, u64 d);
i64 hypercall_vmmcall(u32 number, u64 a, u64 b, u64 c, u64 d);

i64 hypercall(u32 number, u64 a, u64 b, u64 c, u64 d) {
    if (!takt) return -ENOSYS;
    if (vmmcall) return hypercall_vmmcall(number, a, b, c, d);
    return hypercall_vmcall(number, a, b, c, d);
}

/* Finds out whether the hypervisor is Takt, and which of the two hypercall instructions the CPU has
 * (VMCALL on Intel, VMMCALL on AMD). The wrong one would raise #UD. */
static void detect(void) {
    struct cpuid c = cpuid(TAKT_CPUID_BASE, 0);

    takt = !memcmp(&c.ebx, TAKT_SIGNATURE, 12);
    vmmcall = takt && cpuid(TAKT_CPUID_ABI, 0).ebx & TAKT_FEAT_VMMCALL;
}

const char *cmdline(void) { return line; }

/* Finds the word `key` of the command line. Returns what follows the key: '=', a blank, or the end.
 * Returns NULL if the word is not there. */
static const char *find_word(const char *key) {
    size_t n = strlen(key);

    for (const char *p = line; *p;) {
        while (*p == ' ') p++;
        if (!strncmp(p, key, n) && (p[n] == '=' || p[n] == ' ' || !p[n])) return p + n;
        while (*p && *p != ' ') p++;
    }
    return NULL;
}

bool cmdline_has(const char *key) { return find_word(key) != NULL; }

/* Copies the value of the command line's word `key=value` to buf. Returns its length, or 0 if there
 * is none. A word without `=` has an empty value, so it counts as not there for the callers that
 * want one. */
size_t cmdline_str(const char *key, char *buf, size_t size) {
    const char *p = find_word(key);
    size_t n = 0;

    if (p && *p == '=') {
        p++;
        while (*p && *p != ' ' && n + 1 < size) buf[n++] = *p++;
    }
    if (size) buf[n] = 0;
    return n;
}

/* Returns the value of a digit; 16 or more if the character is not a digit. */
static unsigned digit_value(char c) {
    if (c >= '0' && c <= '9') return (unsigned)(c - '0');
    if (c >= 'a' && c <= 'f') return (unsigned)(c - 'a') + 10;
    if (c >= 'A' && c <= 'F') return (unsigned)(c - 'A') + 10;
    return 16;
}

/* Returns the number that the command line gives for `key`, or `otherwise`. A value that is not a
 * number, such as `times=many`, counts as missing, so that the default is used. */
u64 cmdline_u64(const char *key, u64 otherwise) {
    char buf[24], *p = buf;
    unsigned base = 10;
    u64 v = 0;

    if (!cmdline_str(key, buf, sizeof(buf))) return otherwise;
    if (p[0] == '0' && p[1] == 'x') {
        base = 16;
        p += 2;
    }
    for (; *p; p++) {
        unsigned d = digit_value(*p);

        if (d >= base) return otherwise;
        v = v * base + d;
    }
    return v;
}

/* Reads the words that say how a workload divides its time between computing and sleeping. duty.h
 * explains them. A misspelt `loop` ends the guest, because a measurement would otherwise silently
 * be of the other kind. */
struct duty cmdline_duty(u64 percent) {
    struct duty d = { .period = MAX(cmdline_u64("period_us", 10000), 1ull) * NS_PER_US,
                      .percent = cmdline_u64("percent", percent),
                      .jitter_pct = MIN(cmdline_u64("jitter_pct", DUTY_JITTER), 100ull) };
    char loop[16];

    if (!cmdline_str("loop", loop, sizeof(loop))) return d;
    d.open = strcmp(loop, "open") == 0;
    if (!d.open && strcmp(loop, "closed"))
        guest_panic("loop must be closed or open, not \"%s\"", loop);
    return d;
}

u64 cmdline_phase(u32 vcpu, u64 span) {
    if (cmdline_has("phase_us")) return cmdline_u64("phase_us", 0) * NS_PER_US;
    return phase_of(takt_seed(), vcpu, span);
}

/* Ends the VM with an exit code, and does not return. Off Takt the hypercall fails, and the port of
 * QEMU's exit device ends the machine. If there is no such device either, the CPU halts. */
void guest_exit(int code) {
    hypercall2(TAKT_HC_SHUTDOWN, TAKT_SHUTDOWN_POWEROFF, (u32)code);
    outl(TAKT_DEBUG_EXIT_PORT, code);
    irq_disable();
    for (;;) __asm__ volatile("hlt");
}

#define PANIC_TEXT 256

/* Ends the VM as crashed, with `why` on its console. `where` is the address that the hypervisor's
 * report names. Off Takt the exit code 127 stands for a crash. */
static __attribute__((noreturn)) void give_up(u64 where, const char *why) {
    irq_disable();
    if (guest_panic_hook) guest_panic_hook(why);
    printf("panic: %s\n", why);
    hypercall3(TAKT_HC_SHUTDOWN, TAKT_SHUTDOWN_CRASH, 0, where);
    guest_exit(127);
}

/* Prints a sentence, ends the VM as crashed, and does not return. */
void guest_panic(const char *fmt, ...) {
    char why[PANIC_TEXT];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    /* This call is often the last instruction of its function. Then the return address is already
     * in the next function. One byte before it is within the calling function for sure. */
    give_up((u64)__builtin_return_address(0) - 1, why);
}

/* Ends the VM as guest_panic() does, for a caller that knows a better address than its own, such as
 * that of an instruction that faulted. */
void guest_panic_at(u64 where, const char *fmt, ...) {
    char why[PANIC_TEXT];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    give_up(where, why);
}

static void run_main(void *arg) { guest_exit(main()); }

/* Sets up the guest from what the loader tells, and starts the thread that calls main(); start.asm
 * calls it. The order matters: traps come first, so that a mistake in anything below is reported;
 * threads need memory and a timer. It never returns: it becomes the idle thread of vCPU 0. */
void guest_start(const struct hvm_start_info *si) {
    if (si->magic == HVM_START_MAGIC && si->cmdline_paddr) {
        const char *s = pa_to_ptr(si->cmdline_paddr);
        size_t n = MIN(strlen(s), sizeof(line) - 1);

        memcpy(line, s, n);
    }
    detect();
    console_init();
    trap_init();
    mem_init(si);
    vcpu_init_first();
    event_init();
    if (!thread_start(0, "main", run_main, NULL))
        guest_panic("there is no memory for the first thread");
    thread_idle();
}
