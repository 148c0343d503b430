/* The memory of a front end on the host, as the back end sees it in its window. Drivers take
 * their pages from here, and the "guest-physical" address of a byte is its address in the arena. */
#ifndef TESTS_RING_RIG_H
#define TESTS_RING_RIG_H

#include <string.h>
#include "drivers/vring_back.h"
#include "drivers/vring_front.h"

#define ARENA_SIZE (4u << 20)
#define ARENA_GPA  0x10000 /* of its first byte, so that address 0 is not the first buffer */

static u8 arena[ARENA_SIZE] __attribute__((aligned(4096)));
static size_t arena_used;
static struct takt_window arena_window;

static inline void arena_reset(void) {
    memset(arena, 0, arena_used);
    arena_used = 0;
    arena_window = (struct takt_window){ (u64)arena - ARENA_GPA, ARENA_GPA + ARENA_SIZE, 0 };
}

static inline void *arena_pages(size_t n) {
    void *p = arena + arena_used;

    if (n > (ARENA_SIZE - arena_used) / PAGE_SIZE) return NULL;
    arena_used += n * PAGE_SIZE;
    memset(p, 0, n * PAGE_SIZE);
    return p;
}

/* What was taken last can be taken again. */
static inline void arena_free(void *p, size_t n) {
    if ((u8 *)p + n * PAGE_SIZE == arena + arena_used) arena_used -= n * PAGE_SIZE;
}

static inline u64 arena_gpa(const void *p) { return (u64)p - arena_window.base; }

static void (*arena_on_relax)(void);

static inline void arena_relax(void) {
    if (arena_on_relax) arena_on_relax();
}

static const struct driver_env arena_env = { arena_pages, arena_free, arena_gpa, arena_relax };

static inline int ring_join(struct vring_back *b, const struct vring_front *f, u64 features) {
    return vring_back_init(b, &arena_window, features, f->size, arena_gpa(f->desc),
                           arena_gpa(f->avail), arena_gpa(f->used));
}

static u64 rig_seed = 1;

static inline u32 rig_rand(u32 below) {
    rig_seed = rig_seed * 6364136223846793005ull + 1442695040888963407ull;
    return (u32)((rig_seed >> 33) % below);
}

#endif
