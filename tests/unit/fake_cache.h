/* Notes which memory the hypervisor writes back from the caches. */
#ifndef FAKE_CACHE_H
#define FAKE_CACHE_H

#include "x86/cpu.h"

extern void (*fake_write_back)(const void *p, u64 len); /* NULL: nobody */

#endif
