/* How a guest spreads its threads over its sockets. place.h has the contract. */
#include "drivers/collab/place.h"

/* Returns the socket that lacks most of the weight that belongs to it. placed[s] is the weight of
 * the threads that socket s has by now, and `all` that of all threads. */
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

/* Returns the vCPU of that socket whose threads have the smallest weight together. load[k] is that
 * of vCPU k. */
static u32 lightest(const u64 *load, u32 nr_vcpus, u32 socket, u32 sockets) {
    u32 best = nr_vcpus;

    for (u32 k = 0; k < nr_vcpus; k++) {
        if (coschedule_socket(k, nr_vcpus, sockets) != socket) continue;
        if (best == nr_vcpus || load[k] < load[best]) best = k;
    }
    return best;
}

/* Returns the heaviest thread that has no place yet; bit i of `placed` says that thread i has one.
 */
static u32 heaviest(const u32 *weight, u32 n, u64 placed) {
    u32 best = n;

    for (u32 i = 0; i < n; i++) {
        if (placed & BIT(i)) continue;
        if (best == n || weight[i] > weight[best]) best = i;
    }
    return best;
}

/* Chooses a vCPU for each of `n` threads, so that the weights on the sockets are in the ratio of
 * `socket` as far as whole threads allow. The heaviest thread is placed first: what it leaves
 * uneven, lighter ones can still even out. vcpu[i] becomes the vCPU of thread i. */
void place_threads(const u32 *weight, u32 n, const struct coschedule_list *socket, u32 nr_vcpus,
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
