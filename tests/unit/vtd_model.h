/* A model of a VT-d unit. It includes the driver, which reaches the registers of the model
 * through the functions below. The model caches everything that a unit may cache, for ever, and
 * sees only what was written back to memory: so a missing flush shows. For the one test that
 * includes it. */
#ifndef TESTS_VTD_MODEL_H
#define TESTS_VTD_MODEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <takt/errno.h>
#include <takt/io.h>
#include "fake_cache.h"
#include "fake_machine.h"
#include "fake_pci.h"
#include "platform/hostmap.h"

static u32 model_read(const volatile u8 *p);
static void model_write(volatile u8 *p, u32 v);
static volatile void *model_map(hpa_t pa, u64 len);

#define mmio_read32  model_read
#define mmio_write32 model_write
#define mmio_map     model_map
#include "hv/passthrough/vtd_unit.c"
#include "hv/passthrough/vtd_scope.c"
#include "hv/passthrough/vtd.c"
#include "hv/passthrough/vtd_fault.c"
#include "hv/passthrough/vtd_start.c"
#undef mmio_map

#define MODEL_UNITS 3u
#define MODEL_BASE  0xfed90000ull
#define MODEL_RAM   (2ull << 20) /* fake_machine()'s begins here */
/* One fault record, at 0x220. */
#define MODEL_CAP  (0x22ull << 24 | CAP_LEVELS_4 | CAP_LEVELS_3 | CAP_2M | 6)
#define MODEL_ECAP (ECAP_QUEUE | ECAP_REMAPS | ECAP_X2APIC)

struct model_page {
    bool valid;
    u32 domain;
    u64 gpa, hpa, rights;
};

static struct model_unit {
    u64 cap, ecap;
    bool silent, stuck; /* its queue; its command register */
    /* A flush of contexts was asked for, and no wait has told that it is over. */
    bool contexts_pending;
    u32 entry_flushes; /* how many flushes of interrupt entries it has had */
    u32 status, protected, faults, fault_control, queue_head, queue_tail;
    u64 root_asked, root_now, table_asked, table_now, queue;
    u64 record[2];
    struct {
        bool valid;
        u64 e[2];
    } context[65536], entry[256];
    struct model_page page[64];
} model[MODEL_UNITS];

static u8 model_regs[MODEL_UNITS][PAGE_SIZE];
static u8 *model_memory; /* what is in memory; caches may know better */

static volatile void *model_map(hpa_t pa, u64 len) {
    if (pa < MODEL_BASE || (pa - MODEL_BASE) / PAGE_SIZE >= MODEL_UNITS) return NULL;
    if (len > PAGE_SIZE) return NULL;
    return model_regs[(pa - MODEL_BASE) / PAGE_SIZE];
}

static void model_written_back(const void *p, u64 len) {
    u64 first = ALIGN_DOWN(va_to_hpa(p), 64), end = ALIGN_UP(va_to_hpa(p) + len, 64);

    assert_true(first >= MODEL_RAM && end <= MODEL_RAM + FAKE_RAM);
    memcpy(model_memory + first - MODEL_RAM, hpa_to_va(first), end - first);
}

static u64 model_get(const struct model_unit *m, hpa_t pa) {
    assert_true(pa >= MODEL_RAM && pa < MODEL_RAM + FAKE_RAM);
    return *(const u64 *)(m->ecap & ECAP_COHERENT ? (u8 *)hpa_to_va(pa)
                                                  : model_memory + pa - MODEL_RAM);
}

/* ---- the queue ---- */

/* VT-d 6.5.2.7: all entries of interrupts, or 2^mask from an index on. */
static void model_flush_entries(struct model_unit *m, u64 low) {
    u32 first = (u32)(low >> 32 & 0xffff), nr = 1u << (low >> 27 & 31);

    m->entry_flushes++;
    if (!(low >> 4 & 1)) {
        first = 0;
        nr = ARRAY_SIZE(m->entry);
    }
    for (u32 i = first; i < first + nr && i < ARRAY_SIZE(m->entry); i++) m->entry[i].valid = false;
}

/* Hardware may do what the queue asks for in any order, but for what is before a wait and what
 * is behind it. A translation that is fetched by an old context after the IOTLB was flushed
 * stays in it: 6.5.2.1. */
static void model_descriptor(struct model_unit *m, u64 low, u64 high) {
    switch (low & 15) {
    case 1:
        memset(m->context, 0, sizeof(m->context));
        m->contexts_pending = true;
        break;
    case 2:
        if (m->contexts_pending)
            fail_msg("the IOTLB is flushed before the flush of contexts is over");
        for (struct model_page *p = m->page; p < m->page + 64; p++)
            if ((low >> 4 & 3) == 1 || ((low >> 4 & 3) == 2 && p->domain == (low >> 16 & 0xffff)))
                p->valid = false;
        break;
    case 4: model_flush_entries(m, low); break;
    case 5:
        m->contexts_pending = false;
        assert_int_equal(low & 0xfffffff0, 1u << 5);
        *(u32 *)hpa_to_va(high) = (u32)(low >> 32);
        break;
    default: m->faults |= 1u << 4;
    }
}

static void model_run_queue(struct model_unit *m) {
    while (m->status & QUEUE && !m->silent && !(m->faults & FAULTS_QUEUE) &&
           m->queue_head != m->queue_tail) {
        hpa_t at = (m->queue & ~(PAGE_SIZE - 1)) + m->queue_head;

        model_descriptor(m, model_get(m, at), model_get(m, at + 8));
        m->queue_head = (m->queue_head + 16) % PAGE_SIZE;
    }
}

/* ---- registers ---- */

static void model_command(struct model_unit *m, u32 v) {
    if (m->stuck) return;
    /* While the unit translates, a new root would leave it half way between two drivers' tables. */
    if (v & SET_ROOT) assert_false(m->status & TRANSLATE);
    if (v & SET_ROOT) m->root_now = m->root_asked;
    if (v & SET_INTERRUPTS) m->table_now = m->table_asked;
    if (v & QUEUE && !(m->status & QUEUE)) m->queue_head = 0;
    if (v & TRANSLATE) assert_true(m->root_now);
    m->status = (m->status & (u32)(SET_ROOT | SET_INTERRUPTS)) | v;
}

static u32 model_read(const volatile u8 *p) {
    struct model_unit *m = &model[(p - &model_regs[0][0]) / PAGE_SIZE];
    u32 reg = (u32)((p - &model_regs[0][0]) % PAGE_SIZE);
    u64 faults = m->cap >> 24 & 0x3ff;

    if (reg >= faults * 16 && reg < faults * 16 + 16)
        return (u32)(m->record[reg / 8 % 2] >> (reg % 8 ? 32 : 0));
    switch (reg) {
    case REG_CAP: return (u32)m->cap;
    case REG_CAP + 4: return (u32)(m->cap >> 32);
    case REG_ECAP: return (u32)m->ecap;
    case REG_ECAP + 4: return (u32)(m->ecap >> 32);
    case REG_STATUS: return m->status;
    case REG_FAULTS: return m->faults;
    case REG_PROTECTED: return m->protected;
    }
    fail_msg("register %x is read", reg);
    return 0;
}

static void model_half(u64 *to, u32 upper, u32 v) { memcpy((u8 *)to + 4 * upper, &v, 4); }

static void model_write(volatile u8 *p, u32 v) {
    struct model_unit *m = &model[(p - &model_regs[0][0]) / PAGE_SIZE];
    u32 reg = (u32)((p - &model_regs[0][0]) % PAGE_SIZE);

    switch (reg) {
    case REG_COMMAND: model_command(m, v); break;
    case REG_ROOT:
    case REG_ROOT + 4: model_half(&m->root_asked, reg / 4 % 2, v); break;
    case REG_INTERRUPTS:
    case REG_INTERRUPTS + 4: model_half(&m->table_asked, reg / 4 % 2, v); break;
    case REG_QUEUE:
    case REG_QUEUE + 4: model_half(&m->queue, reg / 4 % 2, v); break;
    case REG_QUEUE_TAIL:
        m->queue_tail = v;
        model_run_queue(m);
        break;
    case REG_FAULTS: m->faults &= ~v; break;
    case REG_FAULT_CONTROL: m->fault_control = v; break;
    case REG_PROTECTED: m->protected = v ? m->protected : 0; break;
    case 0x220 + 12: m->record[1] &= ~((u64)v << 32 & BIT(63)); break;
    default:
        assert_true(reg >= REG_FAULT_DATA && reg <= REG_FAULT_UPPER);
        fake_registers[reg] = (u8)v;
    }
}

/* ---- what devices do ---- */

static void model_fault(struct model_unit *m, u32 source, u32 reason, u64 info, bool read) {
    if (m->record[1] >> 63) {
        m->faults |= 1;
        return;
    }
    m->record[0] = info;
    m->record[1] = BIT(63) | (read ? BIT(62) : 0) | (u64)reason << 32 | source;
    m->faults |= 2;
    if (!(m->fault_control >> 31)) fake_interrupt(vtd.fault_vector);
}

/* A page through the tables: 0 or the reason of the fault. */
static u32 model_walk(struct model_unit *m, u32 source, u64 gpa, struct model_page *out) {
    u64 *e = m->context[source].e, table;
    u32 shift = 39;

    if (!m->context[source].valid) {
        u64 bus = model_get(m, m->root_now + 16 * (source >> 8));

        if (!(bus & 1)) return 1;
        for (u32 i = 0; i < 2; i++)
            e[i] = model_get(m, (bus & ~(PAGE_SIZE - 1)) + 16 * (source & 255) + 8 * i);
        if (!(e[0] & 1)) return 2;
        m->context[source].valid = true;
    }
    if (e[0] & 0xffe || (e[1] & 7) < 1 || (e[1] & 7) > 2 || !(m->cap >> 8 >> (e[1] & 7) & 1))
        return 3;
    if ((e[1] & 7) == 1) shift = 30;
    if (gpa >> (shift + 9)) return 4;
    out->domain = (u32)(e[1] >> 8);
    out->rights = 3;
    for (table = e[0];; shift -= 9) {
        u64 entry = model_get(m, (table & ~(PAGE_SIZE - 1)) + 8 * (gpa >> shift & 511));

        out->rights &= entry & 3;
        table = entry & 0x000ffffffffff000ull;
        if (!(entry & 3) || shift == 12 || entry & 128) break;
    }
    if (shift > 12 && out->rights) assert_true(shift == 21 && m->cap & CAP_2M);
    out->gpa = ALIGN_DOWN(gpa, PAGE_SIZE);
    out->hpa = table | (gpa & (BIT(shift) - 1) & ~(PAGE_SIZE - 1));
    return 0;
}

/* Returns where a device's access arrives, or HPA_NONE if it is stopped. */
static hpa_t model_dma(struct model_unit *m, u32 source, u64 gpa, bool write) {
    struct model_page page = { 0 };
    u32 reason;

    if (!(m->status & TRANSLATE)) return gpa;
    reason = model_walk(m, source, gpa, &page);
    for (struct model_page *p = m->page; !reason && p < m->page + 64; p++)
        if (p->valid && p->domain == page.domain && p->gpa == page.gpa) page = *p;
    if (!reason && write && !(page.rights & 2)) reason = 5;
    if (!reason && !write && !(page.rights & 1)) reason = 6;
    if (reason) {
        model_fault(m, source, reason, gpa, !write);
        return HPA_NONE;
    }
    page.valid = true;
    for (struct model_page *p = m->page; p < m->page + 64; p++)
        if (!p->valid || p->gpa == page.gpa) {
            *p = page;
            break;
        }
    return page.hpa + gpa % PAGE_SIZE;
}

/* What a message becomes: vector, and whom it reaches in *cpu; -1: nothing. `pin`: from an
 * IOAPIC, whose data has a vector. */
static int model_message(struct model_unit *m, u32 source, u64 addr, u32 data, u32 *cpu) {
    u32 index = (u32)(addr >> 5 & 0x7fff) + (addr & 8 ? data : 0), reason = 0;
    u64 *e = m->entry[index & 255].e;

    if (!(m->status & REMAP)) fail_msg("interrupts are not remapped");
    if (!(addr & 16)) {
        if (!(m->status & COMPATIBLE)) model_fault(m, source, 0x25, 0, false);
        return -1;
    }
    if (index >= 2u << (m->table_now & 15)) reason = 0x21;
    if (!reason && !m->entry[index].valid) {
        for (u32 i = 0; i < 2; i++)
            e[i] = model_get(m, (m->table_now & ~(PAGE_SIZE - 1)) + 16 * index + 8 * i);
        m->entry[index].valid = e[0] & 1;
        if (!(e[0] & 1)) reason = 0x22;
    }
    if (!reason && (e[1] >> 18 & 3) == 1 && (e[1] & 0xffff) != source) reason = 0x26;
    if (reason) {
        model_fault(m, source, reason, (u64)index << 48, false);
        return -1;
    }
    *cpu = (u32)(e[0] >> 32);
    if (!(m->table_now >> 11 & 1)) *cpu = *cpu >> 8 & 255;
    return (int)(e[0] >> 16 & 255);
}

/* Everything as before boot. */
static void model_reset(void) {
    if (!model_memory) model_memory = malloc(FAKE_RAM);
    memset(model_memory, 0xa5, FAKE_RAM); /* what was there before */
    fake_write_back = model_written_back;
    memset(model, 0, sizeof(model));
    for (u32 i = 0; i < MODEL_UNITS; i++) {
        model[i].cap = MODEL_CAP;
        model[i].ecap = MODEL_ECAP;
    }
}

#endif
