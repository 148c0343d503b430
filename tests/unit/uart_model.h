/* A model of a 16550 at COM1 that behaves as real ones do: it holds 16 bytes in each direction,
 * a byte takes its time on the line, a byte that is not read in time is lost, and the
 * transmitter may stall, as behind a BMC that is busy. Each access takes a microsecond of
 * fake_now, as on an LPC bus. The driver is included here and reaches the ports of the model.
 * For the one source that includes it. */
#ifndef TESTS_UART_MODEL_H
#define TESTS_UART_MODEL_H

#include <string.h>
#include <takt/io.h>
#include "fake_timer.h"

static u8 model_in(u16 port);
static void model_out(u16 port, u8 v);

#define inb  model_in
#define outb model_out
#include "drivers/uart.c"
#undef inb
#undef outb

#define MODEL_PORT  0x3f8
#define MODEL_FIFO  16u
#define ACCESS_NS   1000u
#define BITS        10u /* of a byte on the line: start, 8, stop */
#define FOREVER     (~0ull)
#define MODEL_KEEPS (1u << 20)

static struct {
    u8 reg[8], divisor[2], fcr;
    bool absent;
    /* The transmitter. */
    u32 sending; /* bytes in FIFO and shift register */
    u8 fifo[MODEL_FIFO + 1];
    u64 sent_at;     /* when the first of them has left */
    u64 stalled_to;  /* no byte leaves before */
    u64 first, last; /* when the first and the last byte left */
    char text[MODEL_KEEPS];
    u32 len;
    u32 overwritten; /* bytes that the driver wrote to a full FIFO */
    /* The receiver. */
    const char *typed; /* what comes in, without pauses */
    u32 left;
    u64 next_at; /* when its next byte has come */
    u8 got[MODEL_FIFO];
    u32 waiting, lost;
    u64 silent_since;
    bool overrun;
    bool empty_pending; /* interrupts since the transmitter is empty, and nobody has asked why */
} model;

static u64 model_byte_ns(void) {
    u32 divisor = model.divisor[0] | (u32)model.divisor[1] << 8;

    return BITS * NS_PER_S * (divisor ? divisor : 1) / 115200;
}

static void model_update(void) {
    while (model.sending && fake_now >= model.stalled_to && model.sent_at <= fake_now) {
        if (model.len + 1 < MODEL_KEEPS) model.text[model.len++] = (char)model.fifo[0];
        model.text[model.len] = 0;
        memmove(model.fifo, model.fifo + 1, --model.sending);
        if (model.sending == 1) model.empty_pending = true;
        if (!model.first) model.first = model.sent_at;
        model.last = model.sent_at;
        model.sent_at = MAX(model.sent_at, model.stalled_to) + model_byte_ns();
    }
    while (model.left && model.next_at <= fake_now) {
        if (model.waiting < MODEL_FIFO) {
            model.got[model.waiting++] = (u8)*model.typed;
        } else {
            model.lost++;
            model.overrun = true;
        }
        model.silent_since = model.next_at;
        model.typed++;
        model.left--;
        model.next_at += model_byte_ns();
    }
}

/* Somebody types, or a script sends, without pauses from now on. */
static inline void model_type(const char *s) {
    model.typed = s;
    model.left = (u32)strlen(s);
    model.next_at = fake_now + model_byte_ns();
}

static inline void model_stall(u64 ns) {
    model.stalled_to = ns == FOREVER ? FOREVER : fake_now + ns;
}

/* Does it interrupt? At its level, or when nothing has come for the time of four bytes (data sheet,
 * 8.4.1). */
static inline bool model_interrupts(void) {
    static const u32 levels[] = { 1, 4, 8, 14 };

    model_update();
    if (model.reg[REG_IER] & 2 && model.empty_pending) return true;
    if (!(model.reg[REG_IER] & 1) || !model.waiting) return false;
    return model.waiting >= levels[model.fcr >> 6] ||
           fake_now >= model.silent_since + 4 * model_byte_ns();
}

static u8 model_in(u16 port) {
    u32 reg = port - MODEL_PORT;
    u8 v;

    fake_now += ACCESS_NS;
    model_update();
    if (model.absent || reg > 7) return 0xff;
    if (reg < 2 && model.reg[REG_LCR] & 0x80) return model.divisor[reg];
    if (reg == REG_LSR) {
        v = 0;
        if (model.waiting) v |= 1;
        if (model.overrun) v |= 2;
        if (model.sending <= 1) v |= 0x20; /* the last one is in the shift register */
        if (!model.sending) v |= 0x40;
        model.overrun = false;
        return v;
    }
    if (reg == REG_IIR) {
        v = model.empty_pending ? 2 : 1; /* 1: none */
        model.empty_pending = false;
        return v;
    }
    if (reg != REG_DATA) return model.reg[reg];
    v = model.got[0];
    if (model.waiting) memmove(model.got, model.got + 1, --model.waiting);
    model.silent_since = fake_now;
    return v;
}

static void model_out(u16 port, u8 v) {
    u32 reg = port - MODEL_PORT;

    fake_now += ACCESS_NS;
    model_update();
    if (reg > 7) return;
    if (reg < 2 && model.reg[REG_LCR] & 0x80) {
        model.divisor[reg] = v;
        return;
    }
    if (reg == REG_FCR) {
        model.fcr = v;
        if (v & 2) model.waiting = 0;
        return;
    }
    model.reg[reg] = v;
    if (reg == REG_IER && v & 2 && model.sending <= 1) model.empty_pending = true;
    if (reg != REG_DATA) return;
    if (model.sending > MODEL_FIFO) {
        model.overwritten++;
        return;
    }
    if (!model.sending) model.sent_at = MAX(fake_now, model.stalled_to) + model_byte_ns();
    if (!model.sending && model.stalled_to == FOREVER) model.sent_at = FOREVER;
    model.fifo[model.sending++] = v;
}

#endif
