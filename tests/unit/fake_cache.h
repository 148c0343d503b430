/* Hears what is written back to memory. */
#ifndef FAKE_CACHE_H
#define FAKE_CACHE_H

#include "x86/cpu.h"

extern void (*fake_write_back)(const void *p, u64 len); /* NULL: nobody */

#endif
