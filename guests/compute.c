/* A job that only computes, on all vCPUs: the VM ends when each of them has had work_ms=T (1000) ms
 * of CPU time. It prints how long that took, and all CPU time that the VM had. */
#include <guest/compute.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

/* The CPU time of the vCPU, ns. Outside of Takt nobody counts it, so the clock has to do. */
static u64 worked(u32 vcpu) {
    if (on_takt()) return vcpu_times(vcpu).run_ns;
    return time_ns();
}

/* Computes on vCPU `arg`, as a thread, until that vCPU has had work_ms of CPU time. */
static void compute(void *arg) {
    u32 vcpu = (u32)(u64)arg;
    u64 end = worked(vcpu) + cmdline_u64("work_ms", 1000) * NS_PER_MS, now;

    while ((now = worked(vcpu)) < end) compute_some(end - now);
}

/* Starts a thread on each vCPU, waits until all have ended, and prints how long that took and how
 * much CPU time the VM had. */
int main(void) {
    u32 n = vcpu_start_all();
    struct thread **t = malloc(n * sizeof(struct thread *));
    u64 began = time_ns(), cpu = 0;

    if (!t) guest_panic("compute: there is no memory");
    for (u64 i = 0; i < n; i++) {
        t[i] = thread_start((u32)i, "compute", compute, (void *)i);
        if (!t[i]) guest_panic("compute: there is no memory for %u threads", n);
    }
    for (u32 i = 0; i < n; i++) thread_join(t[i]);
    for (u32 i = 0; i < n; i++) cpu += vcpu_times(i).run_ns;
    printf("compute: took_us=%lu vcpus=%u cpu_us=%lu\n", (time_ns() - began) / 1000, n, cpu / 1000);
    return 0;
}
