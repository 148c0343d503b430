#include "drivers/disk_turns.h"

void disk_turns_init(struct disk_turns *t, struct disk_model *model) {
    *t = (struct disk_turns){ .model = model, .most = 1 };
    model->turns = t;
}

static u32 size_of(const struct disk_request *q) {
    if (q->type == VIRTIO_BLK_IN || q->type == VIRTIO_BLK_OUT) return q->bytes;
    return 0;
}

static void set_quanta(struct disk_turns *t) {
    u32 share[DISK_TURNS_DISKS];
    u64 quantum[DISK_TURNS_DISKS];

    for (u32 i = 0; i < t->nr_disks; i++) share[i] = t->disk[i]->share;
    drr_quanta(share, t->nr_disks, t->most, quantum);
    for (u32 i = 0; i < t->nr_disks; i++) t->disk[i]->drr.quantum = quantum[i];
}

bool disk_turns_add(struct disk_turns *t, struct disk_turn *d) {
    u32 i = 0;

    while (i < t->nr_disks && t->disk[i] != d) i++;
    if (i == DISK_TURNS_DISKS) return false;
    t->disk[i] = d;
    t->nr_disks = MAX(t->nr_disks, i + 1);
    d->waiting.first = NULL;
    drr_empty(&d->drr);
    set_quanta(t);
    return true;
}

void disk_turns_wait(struct disk_turns *t, struct disk_turn *d, struct disk_request *q) {
    disk_row_add(&d->waiting, q);
    if (size_of(q) <= t->most) return;
    t->most = size_of(q);
    set_quanta(t);
}

static bool has_room(struct disk_turns *t, u64 now) {
    while (t->nr_under_way && t->end[t->first] <= now) {
        t->first = (t->first + 1) % DISK_MODEL_MOST;
        t->nr_under_way--;
    }
    return t->nr_under_way < t->model->queue;
}

/* Takes the next request of the disk that is being visited. NULL: it has none, or none that its
 * credit pays for. */
static struct disk_request *take(struct disk_turns *t) {
    struct disk_turn *d = t->disk[t->at];

    if (!d->waiting.first) {
        drr_empty(&d->drr);
        return NULL;
    }
    if (!t->visited) drr_visit(&d->drr);
    t->visited = true;
    if (!drr_serve(&d->drr, size_of(d->waiting.first))) return NULL;
    return disk_row_take(&d->waiting);
}

/* No quantum is below the largest request, so each visit of a disk that has requests serves one.
 * The first visit in here may be the rest of one that began earlier. So if one visit more than
 * there are disks serves nothing, no disk has a request. */
struct disk_request *disk_turns_next(struct disk_turns *t, u64 now, struct disk_turn **d) {
    if (!has_room(t, now)) return NULL;
    for (u32 i = 0; t->nr_disks && i <= t->nr_disks; i++) {
        struct disk_request *q = take(t);

        if (q) {
            *d = t->disk[t->at];
            (*d)->bytes += size_of(q);
            q->due = disk_model_begin(t->model, now, size_of(q));
            t->end[(t->first + t->nr_under_way++) % DISK_MODEL_MOST] = q->due;
            return q;
        }
        t->at = (t->at + 1) % t->nr_disks;
        t->visited = false;
    }
    return NULL;
}
