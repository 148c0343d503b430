/* A network card with virtual functions. The driver domain that `nic` of [model] names plays the
 * card: its code takes no time, and neither do its exits, as a card has engines of its own. A VM's
 * device that this driver domain serves is a virtual function. Its rings lie in the VM's RAM. The
 * card moves frames by DMA, so no copy is charged, and a doorbell of the driver is a write to the
 * card, so it costs no exit. Whether an interrupt costs one is said by `delivery`.
 *
 * `itr` is the shortest time between two interrupts of a function. The first one comes at once; one
 * that would come earlier waits, as with register EITR of Intel's 82576 (drivers/igb_regs.h). Its
 * virtual functions have that register, too. Rate, delay, loss and queue of the wire are options of
 * the device (docs/io.md). whole.h has the contracts. */
#include <string.h>
#include "devices/device.h"
#include "platform/smp.h"
#include "tests/whole/whole.h"
#include "vcpu/vcpu.h"

#define INSTRUCTION_PS 1 /* of the card's code; more than nothing, so that a loop that polls ends */

static char name[CONFIG_NAME]; /* of the VM that plays the card; "": the model is off */
static u64 interval;           /* ns between interrupts; 0: no limit */
static struct vcpu *card;      /* a vCPU of that VM, and the pCPU where it was loaded last */
static u32 card_cpu;

static struct function {
    u32 handle; /* of the device, see struct takt_back */
    u64 next;   /* the earliest time of its next interrupt, ns */
    bool waits; /* an interrupt waits for that time */
} functions[PORT_VMS];
static u32 nr_functions;
static struct timer due;

static bool is_card(const struct vm *vm) { return name[0] && strcmp(vm->name, name) == 0; }

static struct vcpu *vcpu_of(const struct virt_vcpu *v) {
    return container_of(v, struct vcpu, virt);
}

/* The card's pCPU raises the interrupt, in nic_step(). */
static void wake(struct timer *t, u64 now) { cpu_kick(card_cpu); }

void nic_start(const struct config_model *m) {
    memcpy(name, m->nic, sizeof(name));
    interval = m->itr;
    timer_init(&due, wake);
}

u64 nic_instruction(const struct virt_vm *vm) {
    return is_card(container_of(vm, struct vm, virt)) ? INSTRUCTION_PS : whole_costs.guest;
}

bool nic_load(const struct virt_vcpu *v, u32 cpu) {
    if (!is_card(vcpu_of(v)->vm)) return false;
    card = vcpu_of(v);
    card_cpu = cpu;
    return true;
}

bool nic_is_free(const struct virt_vcpu *v, const struct vm_exit *e) {
    const struct vm *vm = vcpu_of(v)->vm;
    u64 at = e->npf.gpa - TAKT_VIRTIO_GPA;

    if (!name[0] || is_card(vm)) return name[0];
    return e->reason == EXIT_NPF && e->npf.write && at < vm->config.nr_devices * PAGE_SIZE &&
           at % PAGE_SIZE == VIRTIO_QUEUE_NOTIFY &&
           strcmp(vm->config.device[at / PAGE_SIZE].back, name) == 0;
}

/* ---- interrupts ---- */

static struct function *function_of(u32 handle) {
    for (struct function *f = functions; f < functions + nr_functions; f++)
        if (f->handle == handle) return f;
    if (nr_functions == ARRAY_SIZE(functions)) return NULL;
    functions[nr_functions] = (struct function){ .handle = handle };
    return &functions[nr_functions++];
}

bool nic_holds_interrupt(const struct virt_vcpu *v) {
    struct function *f;

    if (!interval || !is_card(vcpu_of(v)->vm) || v->regs.gpr[REG_RAX] != TAKT_HC_BACK_IRQ)
        return false;
    f = function_of((u32)v->regs.gpr[REG_RBX]);
    if (!f) return false;
    if (whole_now >= f->next) {
        f->next = whole_now + interval;
        return false;
    }
    f->waits = true;
    if (!due.queued || f->next < due.when) engine_timer(&due, f->next);
    return true;
}

/* As the hypercall would: the device may be gone by now. */
static void raise(u32 handle) {
    list_for_each(d, &devices, struct device, link) {
        if (d->vm->id * TAKT_MAX_DEVICES + d->number != handle || d->back != card->vm) continue;
        if (virtio_mmio_used(&d->regs)) vcpu_send(card, d->back_port);
        return;
    }
}

void nic_step(void) {
    u64 owed = whole_owed(), next = ~0ull;

    if (!interval || due.queued || this_cpu()->id != card_cpu) return;
    for (struct function *f = functions; f < functions + nr_functions; f++) {
        if (f->waits && f->next <= whole_now) {
            f->waits = false;
            f->next = whole_now + interval;
            raise(f->handle);
            cpu_interrupt_self();
        }
        if (f->waits) next = MIN(next, f->next);
    }
    if (next != ~0ull) engine_timer(&due, next);
    whole_owe(owed);
}
