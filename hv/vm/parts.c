/* The parts of a VM that need nothing of the rooms above: its memory tables, its RAM, its place in
 * the scheduler, and its scheduling parameters. Each part has a function `make`, which is called
 * again as long as it returns 1, and a function `undo` (life.c). To scrub is to overwrite memory
 * with zeros, before a VM gets it and after it had it. */
#include <takt/errno.h>
#include "common/string.h"
#include "sched/policy.h"
#include "vm/vm.h"
#include "x86/percpu.h"

#define SCRUB_PART 65536u  /* bytes that a step scrubs */
#define DMA_LIMIT  BIT(32) /* devices may know only 32 bits of an address */

/* ---- memory: tables alone ---- */

/* Returns the NUMA node of the first pCPU that the VM may use. Its memory comes from there, if
 * there is enough. */
static u32 home_node(const struct vm *vm) {
    struct sched_pool *pool = sched_pool_find(vm->config.pool);
    struct cpumask cpus = vm->config.cpus;

    if (pool) cpus = cpumask_and(&cpus, &pool->cpus);
    cpumask_for_each(cpu, &cpus) {
        if (cpu < nr_cpus) return percpu_of[cpu]->node;
    }
    return 0;
}

/* Makes the tables of the VM's memory; ram_make() adds the RAM itself. A VM with unsafe_dma gets
 * its RAM in one block below 4 GiB, because no IOMMU translates the addresses that its devices
 * use. */
static int memory_make(struct vm *vm) {
    int err;

    if (vm->config.memory / PAGE_SIZE > frame_free_count()) return -ENOMEM;
    err = guestmem_init(&vm->mem, vm->config.memory);
    if (err == -EINVAL) return vm_part_failed(vm, err, "its memory has to be a multiple of 2 MiB");
    if (err) return err;
    vm->mem.node = home_node(vm);
    if (vm->config.unsafe_dma && guestmem_reserve(&vm->mem, DMA_LIMIT))
        return vm_part_failed(
            vm, -ENOMEM,
            "RAM for unsafe_dma is one block below 4 GiB, of at most 1 GiB: there is none");
    vm->virt.mem = &vm->mem;
    return npt_init(&vm->virt.npt, virt->npt_format);
}

/* Frees the tables of the VM's memory, whose RAM is gone already. */
static int memory_undo(struct vm *vm) {
    if (vm->virt.mem) npt_fini(&vm->virt.npt);
    guestmem_fini(&vm->mem);
    return 0;
}

const struct vm_part memory_part = { "memory", memory_make, memory_undo };

/* ---- RAM ---- */

/* Scrubs the next part of the last chunk. Returns true when the whole chunk is scrubbed. */
static bool ram_scrub_part(struct vm *vm) {
    u64 *offset = &vm->job.offset;

    memset((u8 *)hpa_to_va(vm->mem.chunk[vm->mem.grown - 1]) + *offset, 0, SCRUB_PART);
    *offset = (*offset + SCRUB_PART) % CHUNK_SIZE;
    return *offset == 0;
}

/* Adds the next chunk to the VM's RAM. It is mapped only after it is scrubbed, so that the VM does
 * not see what was there before. Returns 1 if there is more to do. */
static int ram_make(struct vm *vm) {
    struct guestmem *m = &vm->mem;
    u32 n;

    if (vm->job.offset == 0 && guestmem_grow(m)) return -ENOMEM;
    if (!ram_scrub_part(vm)) return 1;
    n = m->grown - 1;
    if (npt_map(&vm->virt.npt, guestmem_chunk_gpa(m, n), m->chunk[n], CHUNK_SIZE, NPT_RWX, NPT_WB))
        return -ENOMEM;
    return (u64)m->grown << CHUNK_SHIFT < m->size;
}

/* Scrubs and frees the last chunk of the VM's RAM. A chunk is freed only after it is scrubbed.
 * Returns 1 if there is more to do. */
static int ram_undo(struct vm *vm) {
    if (!vm->mem.grown) return 0;
    if (ram_scrub_part(vm)) guestmem_shrink(&vm->mem);
    return 1;
}

const struct vm_part ram_part = { "RAM", ram_make, ram_undo };

/* ---- the scheduler ---- */

/* Puts the VM into its pool, and its turbo vCPU, if it has one, into the turbo pool of that
 * pool. */
static int sched_make(struct vm *vm) {
    struct sched_pool *pool = sched_pool_find(vm->config.pool);

    if (!pool) return vm_part_failed(vm, -ENOENT, "there is no such pool");
    if (sched_vm_init(&vm->sched, vm->id, vm->name, vm->sched_vcpus, pool)) return -EINVAL;
    if (vm->config.turbo && sched_vm_init_turbo(&vm->turbo, &vm->sched, &vm->turbo_vcpu))
        return vm_part_failed(vm, -EINVAL, "its pool has no turbo pool");
    return 0;
}

/* Takes the VM out of the scheduler. */
static int sched_undo(struct vm *vm) {
    if (vm->turbo.pool) sched_vm_fini(&vm->turbo);
    if (vm->sched.pool) sched_vm_fini(&vm->sched);
    return 0;
}

const struct vm_part sched_part = { "scheduling", sched_make, sched_undo };

/* A part of making a VM: sets the parameters of the VM file that the policy of its pool knows. Of
 * others the operator is told, and the VM is made all the same. A value that the policy refuses is
 * an error. */
static int params_make(struct vm *vm) {
    struct sched_pool *pool = vm->sched.pool;
    char why[PARAM_WHY];

    for (u32 i = 0; i < vm->config.head.nr_params; i++) {
        const struct config_param *c = &vm->config.head.param[i];
        const struct param *p = param_find(pool, c->name);

        if (!p || p->scope == PARAM_POOL) {
            log_warn("%s: its pool's policy has no parameter %s", vm->name, c->name);
            continue;
        }
        if (param_set_text(p, pool, &vm->sched, c->value, why)) {
            hv_snprintf(vm->why, sizeof(vm->why), "%s", why);
            return vm_part_failed(vm, -EINVAL, vm->why);
        }
    }
    return 0;
}

const struct vm_part params_part = { "parameters", params_make, NULL };
