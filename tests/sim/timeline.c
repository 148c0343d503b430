/* The option -g: writes a file from which pictures can be drawn. It has one record (struct
 * timeline_record in sim.h) whenever something that the record holds has changed for a vCPU. After
 * each event of the simulation all vCPUs are compared with what was last written of them, so the
 * scheduler needs no code for this. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "config.h"
#include "sched/credit.h"
#include "sim.h"

_Static_assert(sizeof(struct timeline_record) == 32, "readers know the size");

static struct {
    struct sim_vcpu *vcpu;
    struct timeline_record last;
} watched[CONFIG_MAX_VMS * (SIM_MAX_VCPUS + 1)];
static u32 nr_watched;
static FILE *file;
static const char *name;
static void (*next_check)(void); /* sim.check before timeline_start() */

/* Ends the program with a sentence about the file. */
static __attribute__((noreturn)) void give_up(void) {
    perror(name);
    exit(2);
}

/* Returns a record of what vCPU i does now. */
static struct timeline_record look_at(u32 i) {
    const struct sched_vcpu *s = &watched[i].vcpu->s;
    struct timeline_record r = { .ns = sim.now,
                                 .vcpu = (u16)i,
                                 .cpu = (u16)s->cpu,
                                 .state = (u8)s->state,
                                 .cls = TIMELINE_NO_CLASS,
                                 .io = s->vm->io };

    if (s->state == RS_RUNNING && sched_cpus[s->cpu]->slice.queued)
        r.slice_end = sched_cpus[s->cpu]->slice.when;
    if (s->vm->pool->policy == &credit_policy) {
        r.cls = (u8)credit_vcpu(s)->cls;
        r.credit = credit_vcpu(s)->credit;
    }
    return r;
}

/* Writes the record of each vCPU for which something but the time is different. */
static void look(void) {
    const size_t time = sizeof(((struct timeline_record *)0)->ns);

    if (next_check) next_check();
    for (u32 i = 0; i < nr_watched; i++) {
        struct timeline_record r = look_at(i), *last = &watched[i].last;

        if (memcmp((char *)&r + time, (char *)last + time, sizeof(r) - time) == 0) continue;
        *last = r;
        if (fwrite(&r, sizeof(r), 1, file) != 1) give_up();
    }
}

static void watch(struct sim_vm *d) {
    for (u32 i = 0; i < d->nr_vcpus; i++) watched[nr_watched++].vcpu = d->vcpu[i];
}

/* Opens the file `to`, writes the first records, and has each later change written after its
 * event. */
void timeline_start(const char *to, const struct report_vm *vm, u32 nr_vms) {
    name = to;
    file = fopen(name, "wb");
    if (!file) give_up();
    setvbuf(file, NULL, _IOFBF, 1 << 16);
    nr_watched = 0;
    for (u32 i = 0; i < nr_vms; i++) {
        if (vm[i].turbo) watch(vm[i].turbo);
        if (vm[i].d) watch(vm[i].d);
    }
    for (u32 i = 0; i < nr_watched; i++)
        watched[i].last = (struct timeline_record){ .state = TIMELINE_UNKNOWN };
    next_check = sim.check;
    sim.check = look;
    look();
}

void timeline_end(void) {
    sim.check = next_check;
    if (fclose(file)) give_up();
}
