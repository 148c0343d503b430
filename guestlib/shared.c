/* Modelled devices that disks of several VMs share. guest/shared.h has the contracts. */
#include <guest/guest.h>
#include <guest/manager.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/shared.h>
#include <guest/string.h>
#include <guest/x86.h>

#define WORDS_MAX 128 /* bytes of what the command line says of a device */

static struct shared_device devices[SHARED_MOST];
static u32 nr_sets; /* that were made; they stay */

static struct shared_device *shared_find(const char *name) {
    for (struct shared_device *d = devices; d < devices + SHARED_MOST; d++)
        if (d->name[0] && !strcmp(d->name, name)) return d;
    return NULL;
}

/* Makes an entry for a device of that name. Returns NULL if the name is too long or there are too
 * many devices; the console says which. */
static struct shared_device *new_entry(const char *name) {
    if (strlen(name) >= SHARED_NAME) {
        printf("iodom: device %s: a name has at most %d letters\n", name, SHARED_NAME - 1);
        return NULL;
    }
    for (struct shared_device *d = devices; d < devices + SHARED_MOST; d++) {
        if (d->name[0]) continue;
        *d = (struct shared_device){ .set = NULL };
        memcpy(d->name, name, strlen(name) + 1);
        return d;
    }
    printf("iodom: on=%s: there can be %d devices\n", name, SHARED_MOST);
    return NULL;
}

/* Reads what the command line says of the device. Returns false, and says so, if it is nothing. */
static bool shared_read_words(const char *name, char *words) {
    if (!cmdline_str(name, words, WORDS_MAX)) {
        printf("iodom: on=%s: the command line has no device %s=bw=...\n", name, name);
        return false;
    }
    for (char *p = words; *p; p++)
        if (*p == ',') *p = ' ';
    return true;
}

/* Returns whether the device's words make sense, and says which one does not. */
static bool words_known(const char *name, const char *words, const struct option_kind *known) {
    const char *strange = option_unknown(words, known);

    if (strange) printf("iodom: device %s: what is \"%s\"?\n", name, strange);
    return !strange;
}

/* ---- a single device ---- */

/* Makes a device that is not a set, by the words of the command line. Returns NULL if a word is
 * wrong or there is no place. */
static struct shared_device *make_single(const char *name, const char *words) {
    struct shared_device *d;

    if (!words_known(name, words, disk_model_options)) return NULL;
    d = new_entry(name);
    if (d) disk_model_init(&d->model, words);
    return d;
}

/* ---- a set ---- */

/* Returns the device of that name, which is to be a member of the set *whole. NULL, told why: it
 * cannot be one. */
static struct shared_device *member_for(const struct shared_device *whole, const char *name) {
    struct shared_device *d = shared_find(name);
    char words[WORDS_MAX];

    if (!d && !shared_read_words(name, words)) return NULL;
    if (!d) d = make_single(name, words);
    if (d && !d->used && !d->part_of && d != whole) return d;
    if (d) printf("iodom: device %s: %s is used already\n", whole->name, name);
    return NULL;
}

/* Adds the members that are named in `of`, with + between them. Returns whether that was possible;
 * the console says why not. */
static bool add_members(struct shared_device *whole, char *of) {
    for (char *next; of; of = next) {
        struct shared_device *d;

        next = strchr(of, '+');
        if (next) *next++ = '\0';
        d = member_for(whole, of);
        if (!d) return false;
        if (!disk_set_add(whole->set, &whole->model, &d->model)) {
            printf("iodom: device %s: a set has at most %u members\n", whole->name, DISK_SET_MOST);
            return false;
        }
        d->part_of = whole;
    }
    return true;
}

/* Gives each member a monitor of its own, which tells the store what the member does. */
static void watch_members(struct disk_set *s) {
    for (u32 k = 0; k < s->nr; k++) {
        struct disk_member *m = &s->member[k];
        const struct shared_device *d = container_of(m->model, struct shared_device, model);

        m->monitor = manager_device(&m->model->load, d->name);
    }
}

/* Forgets a set that could not be made. Its members are single devices again. */
static void drop_set(struct shared_device *whole) {
    for (struct shared_device *d = devices; d < devices + SHARED_MOST; d++)
        if (d->part_of == whole) d->part_of = NULL;
    free(whole->set);
    whole->name[0] = '\0';
}

/* Makes a device that consists of others, by the words of the command line. Returns NULL, after a
 * sentence on the console, if that cannot be. */
static struct shared_device *make_set(const char *name, const char *words) {
    struct shared_device *d;
    char of[WORDS_MAX] = "";
    const char *why;

    if (!words_known(name, words, disk_set_options)) return NULL;
    d = new_entry(name);
    if (!d) return NULL;
    d->set = calloc(1, sizeof(*d->set));
    why = "there is no memory for it";
    if (d->set) why = disk_set_init(d->set, &d->model, words);
    if (why) printf("iodom: device %s: %s\n", name, why);
    option_word(words, "of", of, sizeof(of));
    if (why || !add_members(d, of)) {
        drop_set(d);
        return NULL;
    }
    watch_members(d->set);
    nr_sets++;
    return d;
}

/* ---- all devices ---- */

/* Makes the device `name` as the command line describes it. Returns NULL if it does not, or not
 * correctly. */
static struct shared_device *shared_make(const char *name) {
    struct shared_device *d;
    char words[WORDS_MAX];

    if (!shared_read_words(name, words)) return NULL;
    if (option_has(words, "of"))
        d = make_set(name, words);
    else
        d = make_single(name, words);
    if (d) d->drr = option_is(words, "sched", "drr");
    return d;
}

/* Sets up the turns of a device to which its first disk comes. Only now it is known that the device
 * is not a member of a set, whose turns would hold instead. */
static void begin_to_use(struct shared_device *d, u32 nr_cores) {
    d->used = true;
    if (nr_cores || d->drr) disk_turns_init(&d->turns, &d->model);
    for (u32 i = 0; i < nr_cores; i++) disk_turns_add_core(&d->turns, &d->core[i]);
}

/* Returns the device that a disk with the option on=NAME is on, and makes it for its first disk.
 * Returns NULL if it cannot be had; the console says why. */
struct shared_device *shared_device(const char *options, u32 nr_cores) {
    char name[SHARED_NAME] = "";
    struct shared_device *d;

    option_word(options, "on", name, sizeof(name));
    d = shared_find(name);
    if (!d) d = shared_make(name);
    if (!d) return NULL;
    if (d->part_of) {
        printf("iodom: on=%s: it is a part of %s\n", name, d->part_of->name);
        return NULL;
    }
    if (!d->used) begin_to_use(d, nr_cores);
    return d;
}

/* Tells the monitors of the sets' members what the members have done until `now`. */
void shared_settle(u64 now) {
    for (struct shared_device *d = devices; nr_sets && d < devices + SHARED_MOST; d++) {
        u64 f;

        if (!d->name[0] || !d->set) continue;
        f = irq_save();
        driver_lock(&d->turns.lock);
        disk_set_settle(d->set, now);
        driver_unlock(&d->turns.lock);
        irq_restore(f);
    }
}
