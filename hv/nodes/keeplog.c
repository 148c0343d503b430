/* Copies the log into the store, for observers: VMs that may read all of the store. The store is a
 * tree of named values ("nodes"). Pieces of the log, each some lines, go to nodes log/0 to log/31
 * in turn: piece n is in node n modulo 32. log/next is the number that the next piece will have. */
#include "nodes/node.h"
#include "platform/console.h"
#include "sched/machine.h"

#define LOG_NODES    32u
#define LOG_EVERY_NS (100 * NS_PER_MS)

static struct {
    char piece[1024];
    size_t len;   /* bytes of the piece; 0 means that there is no piece now */
    bool written; /* the piece is in its node; log/next is not yet */
    u64 position; /* in the log, of what comes after the piece */
    u64 next;
} kept;

/* Does one step. If the store is busy, the next call goes on from here. */
static void keep_log(void) {
    char number[24];

    if (!kept.len) kept.len = log_read(&kept.position, kept.piece, sizeof(kept.piece));
    if (!kept.len) return;
    if (!kept.written) {
        const char *node = node_path(NULL, "/log/%lu", kept.next % LOG_NODES);

        if (store_write(&nodes_client, 0, node, kept.piece, (u32)kept.len)) return;
        kept.written = true;
    }
    hv_snprintf(number, sizeof(number), "%lu", kept.next + 1);
    if (node_put(node_path(NULL, "/log/next"), number)) return;
    kept.len = 0;
    kept.written = false;
    kept.next++;
}

/* The step of a work item, ten times a second. */
static bool log_step(struct work *w) {
    storelink_enter();
    keep_log();
    storelink_leave();
    w->not_before = machine_now() + LOG_EVERY_NS;
    return true;
}

/* Begins to copy the log into the store, when the first observer comes. */
void keeplog_start(void) {
    static struct work work = { .step = log_step };
    static bool begun;

    if (!begun) work_add(&work);
    begun = true;
}
