/* Deficit round robin: in which order the requests of disks begin that share one device. A disk
 * that is visited gets credit (its *quantum*, in bytes, in proportion to its share), may begin
 * requests as long as its credit pays for them, and keeps the rest for the next visit. So large
 * requests cannot crowd out small ones. disk_turns.h has the contracts. */
#include "drivers/disk_turns.h"
#include "drivers/disk_set.h"

/* ---- a round ---- */

void disk_round_init(struct disk_round *r) { *r = (struct disk_round){ .most = 1 }; }

/* Computes the quanta anew: they are in the ratio of the shares, and none is below the largest
 * request. */
void disk_round_shares(struct disk_round *r) {
    u32 share[DISK_TURNS_DISKS] = { 0 };
    u64 quantum[DISK_TURNS_DISKS];

    if (!r->nr_disks) return;
    for (u32 i = 0; i < r->nr_disks; i++) share[i] = r->disk[i]->share;
    drr_quanta(share, r->nr_disks, r->most, quantum);
    for (u32 i = 0; i < r->nr_disks; i++) r->disk[i]->drr.quantum = quantum[i];
}

/* Lets the disk take turns with the others of the round from now on. Returns false if the round has
 * no place for it. A disk that is in the round already begins anew, without requests and without
 * credit. */
bool disk_round_add(struct disk_round *r, struct disk_turn *d) {
    u32 i = 0;

    while (i < r->nr_disks && r->disk[i] != d) i++;
    if (i == DISK_TURNS_DISKS) return false;
    r->disk[i] = d;
    r->nr_disks = MAX(r->nr_disks, i + 1);
    d->waiting.first = NULL;
    drr_empty(&d->drr);
    disk_round_shares(r);
    return true;
}

/* Takes the disk out of the round, so that it gets no turns any more. The visit that has begun
 * ends, because the disk that it was of may be another one now. */
void disk_round_remove(struct disk_round *r, const struct disk_turn *d) {
    u32 i = 0;

    while (i < r->nr_disks && r->disk[i] != d) i++;
    if (i == r->nr_disks) return;
    r->nr_disks--;
    for (; i < r->nr_disks; i++) r->disk[i] = r->disk[i + 1];
    r->at = 0;
    r->visited = false;
    disk_round_shares(r);
}

void disk_round_wait(struct disk_round *r, struct disk_turn *d, struct disk_request *q) {
    if (!d->from) q->turn = d;
    disk_row_add(&d->waiting, q);
    if (disk_request_size(q) <= r->most) return;
    r->most = disk_request_size(q);
    disk_round_shares(r);
}

/* Has an I/O core that has no chosen request yet choose one from those of its disks. */
static void choose(struct disk_round *r, struct disk_turn *core) {
    struct disk_request *q;

    if (!core->from || core->waiting.first) return;
    q = disk_round_next(core->from);
    if (q) disk_round_wait(r, core, q);
}

/* Takes the next request of the disk that is being visited, and pays for it from the disk's credit.
 * Returns NULL if the disk has no request, or if its credit is too small for the next one. */
static struct disk_request *take(struct disk_round *r) {
    struct disk_turn *d = r->disk[r->at];

    choose(r, d);
    if (!d->waiting.first) {
        drr_empty(&d->drr);
        return NULL;
    }
    if (!r->visited) drr_visit(&d->drr);
    r->visited = true;
    if (!drr_serve(&d->drr, disk_request_size(d->waiting.first))) return NULL;
    return disk_row_take(&d->waiting);
}

/* Takes the request whose turn it is out of its disk's list. Returns NULL if no disk has one. The
 * disks are visited in turn. A visit adds the disk's quantum to its credit, and no quantum is below
 * the largest request, so each visit of a disk that has requests serves one. The first visit in
 * here may be the rest of one that began earlier. So if one visit more than there are disks serves
 * nothing, no disk has a request. */
struct disk_request *disk_round_next(struct disk_round *r) {
    for (u32 i = 0; r->nr_disks && i <= r->nr_disks; i++) {
        struct disk_request *q = take(r);

        if (q) {
            r->disk[r->at]->bytes += disk_request_size(q);
            return q;
        }
        r->at = (r->at + 1) % r->nr_disks;
        r->visited = false;
    }
    return NULL;
}

/* ---- a device ---- */

void disk_turns_init(struct disk_turns *t, struct disk_model *model) {
    *t = (struct disk_turns){ .model = model };
    disk_round_init(&t->round);
    model->turns = t;
}

bool disk_turns_add_core(struct disk_turns *t, struct disk_core *c) {
    *c = (struct disk_core){ .turn = { .share = DISK_TURNS_SHARE, .from = &c->round } };
    disk_round_init(&c->round);
    return disk_round_add(&t->round, &c->turn);
}

/* Removes the requests whose time has come from the device's queue, and returns whether another one
 * may begin. */
static bool turns_has_room(struct disk_turns *t, u64 now) {
    while (t->nr_under_way && t->end[t->first] <= now) {
        t->first = (t->first + 1) % DISK_MODEL_MOST;
        t->nr_under_way--;
    }
    return t->nr_under_way < t->model->load.queue;
}

/* Notes when a request ends. They are kept in the order of their ends; on a set of devices that may
 * be another one than that in which they began. */
static void note_end(struct disk_turns *t, u64 due) {
    u32 i = t->nr_under_way++;

    for (; i; i--) {
        u64 before = t->end[(t->first + i - 1) % DISK_MODEL_MOST];

        if (before <= due) break;
        t->end[(t->first + i) % DISK_MODEL_MOST] = before;
    }
    t->end[(t->first + i) % DISK_MODEL_MOST] = due;
}

/* Takes the request that begins at `now`, and has the model say when it ends (q->due). Returns NULL
 * if none waits, or if the device's queue is full. The model is told of the request only when it
 * begins, so the time that it waited for its turn is not part of the model's time. */
struct disk_request *disk_turns_next(struct disk_turns *t, u64 now) {
    struct disk_request *q;

    if (!turns_has_room(t, now)) return NULL;
    q = disk_round_next(&t->round);
    if (!q) return NULL;
    q->due = disk_device_begin(t->model, now, q);
    note_end(t, q->due);
    return q;
}
