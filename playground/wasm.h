/* Included before each source that is compiled to WebAssembly (mk/playground.mk). */
#ifndef PLAYGROUND_WASM_H
#define PLAYGROUND_WASM_H

/* hv/lib/spinlock.h has a processor of the x86 family pause while it waits for a lock. The
 * simulation has one thread only, so a lock that is taken would never be given back. That is a
 * fault of the program, and it ends. */
#define __builtin_ia32_pause() __builtin_trap()

#endif
