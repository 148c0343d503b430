/* A file server's disk. Threads create files, append to them, read them whole and delete them, as
 * the requests of guest/workload.h say: of 10 requests, on average 2 create, 2 delete, 3 append and
 * 3 read. When there is no file to delete, to append to or to read, one is created; when there are
 * as many as there may be, one is deleted.
 *
 * Command line: files=N (24) is the most files at a time, file_kib=K (32) the mean size of a new
 * one (from half of it to one and a half), append_kib=K (16) what is appended. A file has at most 7
 * extents (guest/extents.h). Its inode, with its extents, has 64 bytes at the beginning of the
 * disk, and is written whenever the file changes. guest/workload.h and guest/disk.h have more
 * words. The exit code is 0 if all that was read was right. */
#include <guest/extents.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/workload.h>
#include <takt/seed.h>

#define EXTENTS 7
#define CHUNK   16384u /* bytes that are read or written at a time */

/* As it is on the disk. */
struct inode {
    u32 pages;      /* length of the file */
    u32 generation; /* 0: there is no file */
    struct extent extent[EXTENTS];
};
_Static_assert(sizeof(struct inode) == 64, "a page has a whole number of inodes");

static struct file {
    struct inode inode;
    bool busy; /* a thread uses it */
} * files;

static struct mutex lock = MUTEX; /* guards what follows, and `files` */
static struct extents space;
static u32 nr_files, generation;
static u8 **buffers; /* CHUNK bytes for each thread */

/* Writes the file's inode to its place at the beginning of the disk. */
static void write_inode(const struct file *f) {
    if (pagecache_write(&workload_disk.cache, (u64)(f - files) * sizeof(f->inode), &f->inode,
                        sizeof(f->inode)))
        guest_panic("fileserver: the inode of file %ld cannot be written", f - files);
}

/* Marks a file as busy that no other thread uses, and returns it. If `there`, it is a file that
 * exists, otherwise an unused entry for a new one. The search begins at a random entry. Returns
 * NULL if there is no such file. */
static struct file *take(bool there, u64 random) {
    struct file *f = NULL;

    mutex_lock(&lock);
    for (u64 i = 0; i < nr_files && !f; i++) {
        struct file *at = &files[(random + i) % nr_files];

        if (!at->busy && (at->inode.generation != 0) == there) f = at;
    }
    if (f) f->busy = true;
    mutex_unlock(&lock);
    return f;
}

static void let_go(struct file *f) {
    mutex_lock(&lock);
    f->busy = false;
    mutex_unlock(&lock);
}

/* Returns where page `at` of the file is on the disk, and how many of its pages follow each other
 * there. */
static struct extent place_of(const struct inode *n, u32 at) {
    const struct extent *x = n->extent;

    for (; at >= x->nr; x++) at -= x->nr;
    return (struct extent){ x->first + at, x->nr - at };
}

/* Reads or writes the file from page `at` on, which is in the pages `x` of the disk. Returns how
 * many words were wrong. */
static u64 transfer_extent(const struct inode *n, u32 at, struct extent x, u8 *buffer,
                           bool writes) {
    u64 offset = (u64)x.first * PAGE_SIZE, len = (u64)x.nr * PAGE_SIZE, bad = 0;
    struct pagecache_stream s = pagecache_stream(offset, len);

    for (u64 done = 0, size; done < len; done += size) {
        u64 place = (u64)at * PAGE_SIZE + done;
        int error;

        size = MIN(len - done, CHUNK);
        if (writes) {
            workload_fill(buffer, n->generation, place, size);
            error = pagecache_write(&workload_disk.cache, offset + done, buffer, size);
        } else {
            error = pagecache_read(&workload_disk.cache, &s, offset + done, buffer, size);
            bad += workload_check(buffer, n->generation, place, size);
        }
        if (error) guest_panic("fileserver: page %u is refused (error %d)", x.first, error);
    }
    return bad;
}

/* Writes pages [at, to) of a file, or reads them and checks what was read. Returns how many words
 * were wrong. */
static u64 transfer(const struct inode *n, u32 at, u32 to, u8 *buffer, bool writes) {
    u64 bad = 0;

    while (at < to) {
        struct extent x = place_of(n, at);

        x.nr = MIN(x.nr, to - at);
        bad += transfer_extent(n, at, x, buffer, writes);
        at += x.nr;
    }
    return bad;
}

/* Makes the file longer by up to `pages`, as far as there is room for its extents. Returns by how
 * many. */
static u32 lengthen(struct inode *n, u32 pages) {
    u32 before = n->pages, used = 0;

    while (used < EXTENTS && n->extent[used].nr) used++;
    mutex_lock(&lock);
    while (used < EXTENTS && n->pages - before < pages) {
        struct extent x = extents_take(&space, pages - (n->pages - before));

        if (!x.nr) break;
        n->extent[used++] = x;
        n->pages += x.nr;
    }
    mutex_unlock(&lock);
    return n->pages - before;
}

static u64 append(struct file *f, u32 pages, u8 *buffer) {
    u32 before = f->inode.pages, more = lengthen(&f->inode, pages);

    transfer(&f->inode, before, before + more, buffer, true);
    write_inode(f);
    return (u64)more * PAGE_SIZE;
}

static u64 create(struct file *f, u32 pages, u8 *buffer) {
    mutex_lock(&lock);
    generation++;
    f->inode = (struct inode){ .generation = generation };
    mutex_unlock(&lock);
    return append(f, pages, buffer);
}

/* Deletes a file: its pages become free, and its inode becomes empty. */
static void erase(struct file *f) {
    mutex_lock(&lock);
    for (u32 i = 0; i < EXTENTS && f->inode.extent[i].nr; i++)
        extents_give(&space, f->inode.extent[i]);
    mutex_unlock(&lock);
    f->inode = (struct inode){ 0 };
    write_inode(f);
}

enum what { CREATE, DELETE, APPEND, READ };

/* Carries out a request: creates, deletes, extends or reads a file that no other thread uses. */
static void answer(struct workload_request *r, u8 *buffer) {
    static const enum what deck[] = { CREATE, CREATE, DELETE, DELETE, APPEND,
                                      APPEND, APPEND, READ,   READ,   READ };
    u64 kib = cmdline_u64("file_kib", 32), bytes = 0;
    enum what what = deck[seed_below(seed_next(&r->rng), ARRAY_SIZE(deck))];
    enum workload_kind kind = WORKLOAD_WRITE;
    struct file *f = take(what != CREATE, seed_next(&r->rng));

    if (!f) { /* there are no files, or as many as there may be */
        if (what == CREATE)
            what = DELETE;
        else
            what = CREATE;
        f = take(what != CREATE, seed_next(&r->rng));
    }
    if (!f) guest_panic("fileserver: other threads use all files; files=N has to be larger");
    if (what == CREATE)
        bytes = create(f, 1 + (u32)((kib / 2 + seed_below(seed_next(&r->rng), kib)) / 4), buffer);
    if (what == APPEND) bytes = append(f, (u32)cmdline_u64("append_kib", 16) / 4, buffer);
    if (what == DELETE) erase(f);
    if (what == READ) {
        kind = WORKLOAD_READ;
        bytes = (u64)f->inode.pages * PAGE_SIZE;
        workload_wrong(transfer(&f->inode, 0, f->inode.pages, buffer, false));
    }
    workload_done(r, kind, bytes);
    let_go(f);
}

static void worker(void *number) {
    struct workload_request r;

    while (workload_next(&r)) answer(&r, buffers[(u64)number]);
}

/* Lays out the disk, inodes first and the pages of files behind them, and has the threads answer
 * all requests. */
static void serve(void) {
    u64 pages = workload_disk.cache.blocks, inodes;
    u32 threads = workload_thread_count();
    u8 *used = malloc(pages);

    nr_files = (u32)MAX(cmdline_u64("files", 24), 1ull);
    files = calloc(nr_files, sizeof(*files));
    buffers = calloc(threads, sizeof(u8 *));
    inodes = (nr_files * sizeof(struct inode) + PAGE_SIZE - 1) / PAGE_SIZE;
    if (!used || !files || !buffers) guest_panic("fileserver: there is no memory");
    for (u32 i = 0; i < threads; i++) {
        buffers[i] = guest_env.pages(CHUNK / PAGE_SIZE);
        if (!buffers[i]) guest_panic("fileserver: there is no memory");
    }
    extents_init(&space, used, (u32)pages);
    extents_take(&space, (u32)inodes);
    workload_threads(threads, worker);
    if (pagecache_sync(&workload_disk.cache)) guest_panic("fileserver: the disk refuses a sync");
}

int main(void) { return workload_main("fileserver", serve); }
