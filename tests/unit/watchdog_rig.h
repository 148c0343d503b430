/* Includes the source of the watchdog's driver. The one test that includes this defines the
 * driver's ports, work items and time: model_in(), model_out(), mmio_map() and smp_all_alive(). */
#ifndef TESTS_WATCHDOG_RIG_H
#define TESTS_WATCHDOG_RIG_H

#include <takt/io.h>
#include "platform/hostmap.h"
#include "platform/smp.h"
#include "platform/timer.h"
#include "trace/trace.h"
#include "x86/tsc.h"

/* What the driver reads from and writes to `bytes` bytes of ports from `port` on. */
u32 model_in(u16 port, u32 bytes);
void model_out(u16 port, u32 v, u32 bytes);

static struct work *added; /* the work item that gives signs of life; NULL: the driver added none */
static u64 now = 1000;     /* ns */

static void model_work_add(struct work *w) { added = w; }

#define inb(port)     ((u8)model_in(port, 1))
#define inw(port)     ((u16)model_in(port, 2))
#define inl(port)     model_in(port, 4)
#define outb(port, v) model_out(port, v, 1)
#define outw(port, v) model_out(port, v, 2)
#define outl(port, v) model_out(port, v, 4)
#define work_add      model_work_add
#define now_ns()      now
#include "hv/platform/watchdog.c"

#endif
