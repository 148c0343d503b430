#include "drivers/collab/coschedule.h"

/* ---- keys ---- */

/* Reads a list of decimal numbers that single spaces divide, such as "30 10", into *l. Returns
 * false, and leaves *l as it is, if the text is anything else, or if it has too many numbers or one
 * above COSCHEDULE_WEIGHT. A guest has written the text, so it may hold anything. */
bool coschedule_read(struct coschedule_list *l, const char *text, u32 len) {
    struct coschedule_list new = { 0 };
    bool digit = false;

    for (u32 i = 0; i < len; i++) {
        u32 *value;

        if (text[i] == ' ') {
            if (!digit) return false;
            digit = false;
            continue;
        }
        if (text[i] < '0' || text[i] > '9') return false;
        if (!digit && new.nr == COSCHEDULE_VCPUS) return false;
        new.nr += !digit;
        digit = true;
        value = &new.value[new.nr - 1];
        *value = *value * 10 + (u32)(text[i] - '0');
        if (*value > COSCHEDULE_WEIGHT) return false;
    }
    if (!digit) return false;
    *l = new;
    return true;
}

/* ---- shares ---- */

/* Computes which part of the VM's share falls to each of its sockets: S_SKT of the paper. `w` has
 * the weight of the I/O threads on each vCPU. */
void coschedule_parts(u64 share, const struct coschedule_list *w, u32 sockets, u64 *part) {
    u32 socket[COSCHEDULE_VCPUS] = { 0 };

    for (u32 k = 0; k < w->nr; k++) socket[k] = coschedule_socket(k, w->nr, sockets);
    share_by_socket(share, w->value, socket, w->nr, sockets, part);
}

/* ---- latencies ---- */

/* Brings the mean latency of an I/O core up to date. `ended` and `ns` are the core's sums of
 * requests and of their latencies. The requests since the last look count for a quarter of the new
 * mean. After a second without requests the mean becomes 0, which means unknown. */
void coschedule_look(struct coschedule_latency *l, u64 ended, u64 ns, u64 now) {
    u64 requests = ended - l->ended, mean;

    if (!requests) {
        if (now - l->sampled >= BALANCE_EVERY_NS) l->mean = 0;
        return;
    }
    mean = MAX((ns - l->ns) / requests, 1ull);
    if (l->mean) mean = MAX((3 * l->mean + mean) / 4, 1ull);
    *l = (struct coschedule_latency){ .ended = ended, .ns = ns, .mean = mean, .sampled = now };
}
