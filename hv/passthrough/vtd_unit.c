/* Commands to an IOMMU (VT-d calls it a "unit"), the hardware that decides what a device can read
 * and write. A unit caches what it has read from our tables. So after each change it has to be told
 * to forget, by a request in a queue in memory, and it has to confirm that. Section numbers are of
 * the VT-d specification. */
#include "passthrough/vtd_unit.h"

#include "lib/printf.h"
#include "passthrough/assign.h"
#include "platform/timer.h"
#include "trace/trace.h"
#include "vm/vm.h"
#include "x86/cpu.h"
#include "x86/tsc.h"

DEFINE_COUNTER(iommu_flushes);

#define QUEUE_ENTRIES 256u
#define QUEUE_ENTRY   16u    /* bytes */
#define PATIENCE      10000u /* reads of a register, some 100 ns to 1 us each */

bool vtd_write_back;

bool vtd_becomes(const struct iommu_unit *u, u32 reg, u32 bits, u32 value) {
    for (u32 i = 0; i < PATIENCE; i++)
        if ((vtd_read(u, reg) & bits) == value) return true;
    return false;
}

/* Switches a function of the unit on or off, and waits until the unit has obeyed. Returns false if
 * it does not. The command register holds all functions that are switched on, so the other bits are
 * read from the status register and written again. */
bool vtd_command(const struct iommu_unit *u, u32 bit, bool yes) {
    u32 others = vtd_read(u, REG_STATUS) & (u32)LASTING & ~bit, wanted = 0;

    if (yes) wanted = bit;
    vtd_write(u, REG_COMMAND, others | wanted);
    return vtd_becomes(u, REG_STATUS, bit, wanted);
}

/* Makes what was written at [p, p + len) visible to all units. Some units read memory without
 * looking into the CPU's caches. For them the caches are written back. */
void vtd_publish(const volatile void *p, u64 len) {
    if (vtd_write_back) cache_write_back((const void *)p, len);
}

/* ---- the queue ---- */

/* Puts a request into the queue. It wraps around at its end. The unit sees the request only when
 * REG_QUEUE_TAIL is written. */
static void queue_submit(struct iommu_unit *u, u64 low, u64 high) {
    u->queue[u->tail][0] = low;
    u->queue[u->tail][1] = high;
    vtd_publish(u->queue[u->tail], QUEUE_ENTRY);
    u->tail = (u->tail + 1) % QUEUE_ENTRIES;
}

/* Ends the VMs whose devices belong to a unit that was given up, since nothing confines these
 * devices reliably any more. It is the function of a timer, so it runs without locks. */
static void on_trouble(struct timer *t, u64 now) {
    FOR_ASSIGNMENTS(a) {
        if (!a->iommu || !a->iommu->why || !a->owner) continue;
        assign_off(a, false); /* its VM may have made it master again meanwhile */
        vm_crash(a->owner, "the IOMMU of its devices does not answer any more");
    }
}

static struct timer trouble = { .fn = on_trouble };

/* Gives up a unit that does not answer. Its devices lose bus mastering at once. The caller may hold
 * locks, so the VMs cannot be ended here; the timer does that. */
static void give_up(struct iommu_unit *u) {
    log_err("the IOMMU at %lx does not answer: the VMs that have its devices end", u->base);
    FOR_ASSIGNMENTS(a) {
        if (a->iommu == u) pci_write(a->pci->bdf, PCI_COMMAND, 2, pci_idle_command(a->pci));
    }
    timer_set(WORK_CPU, &trouble, now_ns());
}

/* Waits until the unit has come to the last wait in the queue. Returns false if the queue has an
 * error, or if the unit takes too long. */
static bool queue_is_done(const struct iommu_unit *u) {
    for (u32 i = 0; i < PATIENCE && !(vtd_read(u, REG_FAULTS) & FAULTS_QUEUE); i++)
        if (*u->done == u->serial) return true;
    return *u->done == u->serial;
}

/* Asks the unit to forget what it has cached, and waits until it has. `what` is the request
 * (FLUSH_*). It is followed in the queue by a "wait", a request by which the unit writes u->serial
 * to *u->done when all before it is done. If the answer does not come, the unit is given up,
 * because Takt cannot tell what the unit still has in its caches. */
void vtd_flush(struct iommu_unit *u, u64 what) {
    bool done;

    if (u->why || !u->queue) return;
    counter_inc(&iommu_flushes, this_cpu()->id);
    spin_lock(&u->lock);
    queue_submit(u, what, 0);
    u->serial++;
    queue_submit(u, WAIT(u->serial), va_to_hpa((const void *)u->done));
    vtd_write(u, REG_QUEUE_TAIL, u->tail * QUEUE_ENTRY);
    done = queue_is_done(u);
    if (!done) u->why = "its IOMMU does not answer any more";
    spin_unlock(&u->lock);
    if (!done) give_up(u);
}

void vtd_flush_context(struct iommu_unit *u, u32 domain_id) {
    vtd_flush(u, FLUSH_CONTEXTS);
    vtd_flush(u, FLUSH_DOMAIN(domain_id));
}
