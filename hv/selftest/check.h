/* What the files of this room share. */
#ifndef HV_SELFTEST_CHECK_H
#define HV_SELFTEST_CHECK_H

#include "platform/firmware.h"
#include "virt/virt.h"

enum verdict { HOLDS, FAILS, NOT_HERE };

/* What a check found, and one sentence about it: the figures, or what is wrong, or why it could
 * not be checked. */
struct finding {
    enum verdict verdict;
    char text[120];
};

void found(struct finding *f, enum verdict v, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static inline u64 in_us(u64 ns) { return ns / (u64)NS_PER_US; }

/* Has CPU `cpu` call fn(arg): job_begin() does not wait for it; job_end() waits for its end, at
 * most `ns`, and returns false if it did not come. On the boot CPU itself job_begin() makes the
 * call. */
void job_begin(u32 cpu, void (*fn)(void *arg), void *arg);
bool job_end(u32 cpu, u64 ns);

/* ---- guest.c: checks of the CPUs. A guest with a chunk of memory and a vCPU on each CPU ---- */

int guest_init(void); /* -ENOMEM */
void check_entry(struct finding *f);
void check_tlb(struct finding *f);
void check_timer(struct finding *f);
void check_kick(struct finding *f);
void check_nmi(struct finding *f);

/* ---- device.c ---- */

/* An interrupt of the real-time clock through an IOAPIC, and through the IOMMU if there is one. */
void check_interrupt(struct finding *f, const struct acpi_info *acpi, const char *no_iommu);
/* A device that no VM has reaches for memory: the IOMMU stops it, and says so. */
void check_dma(struct finding *f, const char *no_iommu);

#endif
