#include "drivers/collab/coschedule.h"

/* ---- keys ---- */

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

void coschedule_parts(u64 share, const struct coschedule_list *w, u32 sockets, u64 *part) {
    u32 socket[COSCHEDULE_VCPUS] = { 0 };

    for (u32 k = 0; k < w->nr; k++) socket[k] = coschedule_socket(k, w->nr, sockets);
    share_by_socket(share, w->value, socket, w->nr, sockets, part);
}

/* ---- latencies ---- */

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

/* ---- places of threads ---- */

/* The socket that lacks most of its part of all weights, if `placed` is what it has. */
static u32 emptiest(const struct coschedule_list *socket, const u64 *placed, u64 all) {
    i64 most = 0;
    u64 sum = 0;
    u32 best = 0;

    for (u32 s = 0; s < socket->nr; s++) sum += socket->value[s];
    for (u32 s = 0; s < socket->nr; s++) {
        i64 lacks = (i64)(all * socket->value[s]) - (i64)(placed[s] * sum);

        if (s && lacks <= most) continue;
        best = s;
        most = lacks;
    }
    return best;
}

/* The vCPU of that socket with the smallest weight. */
static u32 lightest(const u64 *load, u32 nr_vcpus, u32 socket, u32 sockets) {
    u32 best = nr_vcpus;

    for (u32 k = 0; k < nr_vcpus; k++) {
        if (coschedule_socket(k, nr_vcpus, sockets) != socket) continue;
        if (best == nr_vcpus || load[k] < load[best]) best = k;
    }
    return best;
}

/* The heaviest thread that has no place yet. */
static u32 heaviest(const u32 *weight, u32 n, u64 placed) {
    u32 best = n;

    for (u32 i = 0; i < n; i++) {
        if (placed & BIT(i)) continue;
        if (best == n || weight[i] > weight[best]) best = i;
    }
    return best;
}

void coschedule_place(const u32 *weight, u32 n, const struct coschedule_list *socket, u32 nr_vcpus,
                      u32 *vcpu) {
    u64 on_socket[COSCHEDULE_VCPUS] = { 0 }, load[COSCHEDULE_VCPUS] = { 0 };
    u64 all = 0, placed = 0;

    for (u32 i = 0; i < n; i++) all += weight[i];
    for (u32 k = 0; k < n; k++) {
        u32 i = heaviest(weight, n, placed), s = emptiest(socket, on_socket, all);

        vcpu[i] = lightest(load, nr_vcpus, s, socket->nr);
        on_socket[s] += weight[i];
        load[vcpu[i]] += weight[i];
        placed |= BIT(i);
    }
}
