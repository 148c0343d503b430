/* Faults of devices: accesses to memory, and interrupts, that an IOMMU (VT-d calls it a "unit") has
 * stopped. The unit writes down each of them in a record, and interrupts. The VM that has the
 * device ends, or the operator is told. Section numbers are of the VT-d specification. */
#include "passthrough/vtd.h"

#include "lib/printf.h"
#include "passthrough/vtd_shared.h"
#include "passthrough/vtd_unit.h"
#include "trace/trace.h"
#include "vm/vm.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

DEFINE_COUNTER(dma_faults);

/* Reasons of faults: 7.1. Those from 20h to 2Fh are about interrupts. */
enum {
    FAULT_CONTEXT_ABSENT =
        2, /* the device is blocked; so it is with 1, no entry in the root table */
    FAULT_IRQ_FIRST = 0x20,
    FAULT_IRQ_INDEX = 0x21,
    FAULT_IRQ_ABSENT = 0x22,
    FAULT_IRQ_FORM = 0x25,
    FAULT_IRQ_SOURCE = 0x26,
    FAULT_IRQ_LAST = 0x2f,
};
#define FAULT_IRQ_ENTRY(info) ((u32)((info) >> 48))

/* How long it is at least from one interrupt about faults to the next, and from one log line about
 * a device to the next. */
#define FAULT_PAUSE NS_PER_MS
#define FAULT_SAYS  NS_PER_S

static struct timer fault_timer;

/* Returns the end of the sentence about a fault, which says why the access was stopped; "" if Takt
 * has no words for the reason. */
static const char *fault_reason(u32 reason) {
    if (reason <= FAULT_CONTEXT_ABSENT) return ": it is blocked";
    switch (reason) {
    case FAULT_IRQ_INDEX: return ": there are not so many";
    case FAULT_IRQ_ABSENT: return ": there is none";
    case FAULT_IRQ_FORM: return ": it is not of the form that is remapped";
    case FAULT_IRQ_SOURCE: return ": it is another device's";
    default: return "";
    }
}

/* Writes a sentence about a fault to `to`, which has `size` bytes. `source` is the bdf of the
 * device, `reason` and `info` are from the fault record, and `read` says whether the access was a
 * read. */
static void describe_fault(char *to, u32 size, u32 source, u32 reason, u64 info, bool read) {
    const char *why = fault_reason(reason), *access = "write to";
    char name[PCI_NAME];

    if (read) access = "read from";
    pci_name(source, name);
    if (reason >= FAULT_IRQ_FIRST && reason <= FAULT_IRQ_LAST)
        hv_snprintf(to, size, "PCI device %s may not interrupt by entry %u%s (VT-d fault %x)", name,
                    FAULT_IRQ_ENTRY(info), why, reason);
    else
        hv_snprintf(to, size, "PCI device %s may not %s %lx%s (VT-d fault %x)", name, access,
                    (u64)ALIGN_DOWN(info, PAGE_SIZE), why, reason);
}

/* Handles one fault record (7.3, 11.4.7.8), which consists of the two words `info` and `high`. If a
 * VM that has not ended owns the device, the VM is ended, unless its VM file says that it should go
 * on. Otherwise the log gets a line, at most one every FAULT_SAYS for a device. */
static void on_fault(u32 segment, u64 info, u64 high) {
    u32 source = segment << 16 | RECORD_SOURCE(high);
    struct assignment *a = assignment_of(pci_find(source));
    struct vm *vm = a->owner;
    const char *whose = "nobody's";
    u64 now = now_ns();
    char text[96];

    if (vm) whose = vm->name;
    counter_inc(&dma_faults, this_cpu()->id);
    a->faults++;
    describe_fault(text, sizeof(text), source, RECORD_REASON(high), info, high & RECORD_READ);
    if (vm && vm->config.on_dma_fault == ON_DMA_FAULT_STOP &&
        (vm->state == VM_RUNNING || vm->state == VM_PAUSED)) {
        pci_write(a->pci->bdf, PCI_COMMAND, 2, pci_idle_command(a->pci));
        vm_crash(vm, "%s", text);
    } else if (!a->fault_said || now - a->fault_said >= FAULT_SAYS) {
        a->fault_said = now;
        log_warn("%s: %s; %lu so far", whose, text, a->faults);
    }
}

/* Reads all fault records of a unit that are valid, handles them if the unit is on, and clears
 * them. */
void vtd_take_faults(struct iommu_unit *u) {
    u32 first = CAP_FAULT_RECORDS(u->cap), end = first + RECORD_SIZE * CAP_NR_RECORDS(u->cap);

    for (u32 at = first; at < end; at += RECORD_SIZE) {
        u64 high = vtd_read64(u, at + RECORD_UPPER);

        if (!(high & RECORD_VALID)) continue;
        if (u->on) on_fault(vtd.dmar.unit[u - vtd.unit].segment, vtd_read64(u, at), high);
        vtd_write(u, at + RECORD_LAST, (u32)(RECORD_VALID >> 32));
    }
    vtd_write(u, REG_FAULTS, (u32)FAULTS_LOST);
}

/* Handles the faults of all units, and masks or unmasks the interrupts by which they tell of
 * faults. A unit is unmasked after its records were cleared, because a record that is still valid
 * then would raise no interrupt. */
static void faults_masked(bool masked) {
    FOR_UNITS(u) {
        if (!u->on) continue;
        if (masked) vtd_write(u, REG_FAULT_CONTROL, (u32)FAULTS_MASKED);
        vtd_take_faults(u);
        if (!masked) vtd_write(u, REG_FAULT_CONTROL, 0);
    }
}

/* A device can raise one interrupt per fault. So mask the fault interrupt, and look again after a
 * while. */
static void on_fault_interrupt(void *arg) {
    faults_masked(true);
    timer_set(WORK_CPU, &fault_timer, now_ns() + FAULT_PAUSE);
}

/* The pause is over: lets the units interrupt again, and handles what they have noted meanwhile. */
static void on_fault_timer(struct timer *t, u64 now) { faults_masked(false); }

/* Returns how many accesses of the device were stopped since it was given to a VM, or since
 * boot. */
u64 iommu_faults(const struct pci_device *d) { return assignment_of(d)->faults; }

/* Prepares the interrupt by which all units tell of faults. Returns its vector, or a negative
 * number if no vector is left. */
int vtd_faults_init(void) {
    timer_init(&fault_timer, on_fault_timer);
    return irq_alloc(on_fault_interrupt, NULL);
}
