/* What each VM is entitled to: its max-min fair share by weight, within its cap and what it asks
 * for. A VM's weight is shared evenly by its vCPUs, and so is its cap, and a vCPU never gets more
 * than one pCPU. All shares rise in proportion to weight until they meet a limit, or until the
 * pCPUs are full that the vCPUs may use ("progressive filling"). A flow from vCPUs to pCPUs tells
 * which are full, because sets of pCPUs may overlap. tools/entitlement.py computes the same in
 * fractions. */
"use strict";

const NEARLY_NOTHING = 1e-9; // of a pCPU: shares that differ by less are equal

/* Computes a flow from vCPUs, each of which wants want[i] from any pCPU of cpus[i], into pCPUs of
 * capacity 1. Returns for each vCPU and pCPU how much flows, a Map for each vCPU. */
function maxFlow(want, cpus) {
    const flow = cpus.map(() => new Map());
    const load = new Map();
    const add = (map, key, amount) => map.set(key, (map.get(key) || 0) + amount);

    /* Finds pCPU time for vCPU i, if need be by moving others to pCPUs that were not yet looked at.
     * Returns how much it found. */
    const push = (i, amount, seen) => {
        for (const cpu of cpus[i]) {
            const room = 1 - (load.get(cpu) || 0);

            if (seen.has(cpu)) continue;
            seen.add(cpu);
            if (room > NEARLY_NOTHING) {
                const given = Math.min(amount, room);

                add(flow[i], cpu, given);
                add(load, cpu, given);
                return given;
            }
            for (let other = 0; other < want.length; other++) {
                const has = flow[other].get(cpu) || 0;

                if (other === i || has <= NEARLY_NOTHING) continue;
                const moved = push(other, Math.min(amount, has), seen);

                if (moved <= NEARLY_NOTHING) continue;
                add(flow[other], cpu, -moved);
                add(flow[i], cpu, moved);
                return moved;
            }
        }
        return 0;
    };

    want.forEach((amount, i) => {
        let left = amount, found;

        while (left > NEARLY_NOTHING && (found = push(i, left, new Set())) > NEARLY_NOTHING)
            left -= found;
    });
    return flow;
}

const sumOf = (flow) => Array.from(flow.values()).reduce((a, b) => a + b, 0);

/* Whether all can have what they want. */
function fits(want, cpus) {
    return maxFlow(want, cpus).every((flow, i) => sumOf(flow) >= want[i] - 1e-7);
}

/* vcpus: [{ weight, limit, cpus }]. Returns the share of each, 1 for a whole pCPU. */
function maxMin(vcpus) {
    const cpus = vcpus.map((v) => v.cpus);
    const share = vcpus.map((v) => (v.cpus.length && v.limit > 0 ? null : 0));
    const wants = (level) => vcpus.map((v, i) => {
        if (share[i] !== null) return share[i];
        return Math.min(v.limit, v.weight * level);
    });

    while (share.includes(null)) {
        const free = vcpus.map((_, i) => i).filter((i) => share[i] === null);
        let low = 0, high = Math.max(...free.map((i) => vcpus[i].limit / vcpus[i].weight));

        if (fits(wants(high), cpus)) low = high;
        for (let round = 0; round < 50 && low < high; round++) {
            const middle = (low + high) / 2;

            if (fits(wants(middle), cpus)) low = middle;
            else high = middle;
        }
        const want = wants(low);
        const stuck = free.filter((i) => {
            const more = want.map((x, k) => (k === i ? x + 1e-5 : x));

            return want[i] >= vcpus[i].limit - NEARLY_NOTHING || !fits(more, cpus);
        });

        /* Rounding may leave nobody who is clearly stuck. Then all that is left is settled. */
        for (const i of stuck.length ? stuck : free) share[i] = want[i];
    }
    return share;
}

/* Returns the number behind `key=` on a guest's command line, or `otherwise`. */
function wordOf(cmdline, key, otherwise) {
    const found = cmdline.split(" ").find((word) => word.startsWith(`${key}=`));

    if (!found) return otherwise;
    return Number(found.slice(key.length + 1));
}

const WAKE_US = 50, CLIENT_US = 20; // how long guests/waker.c and guests/client.c compute

/* How much of a pCPU each vCPU of a VM asks for: what the file says with `demand`, or else what
 * follows from its guest and the guest's command line. */
function demandOf(vm) {
    const word = (key, otherwise) => wordOf(vm.cmdline, key, otherwise);

    if (vm.demand_pct !== null) return vm.demand_pct / 100;
    switch (vm.image) {
    case "busy": return word("percent", 40) / 100;
    case "waker": return WAKE_US / word("period_us", 10000);
    case "client": return CLIENT_US * word("rate", 300) / 1e6;
    case "mixed": return Math.min(1, word("percent", 100) / 100 +
                                     word("rate", 300) * word("work_us", 50) / 1e6);
    case "hello": return 0;
    default: return 1;
    }
}

/* Returns the vCPUs of a result as maxMin() takes them, each with the number of its VM. */
function vcpusOf(result) {
    const list = [];

    result.vms.forEach((vm, number) => {
        const pool = result.pools.find((p) => p.pool === vm.pool);
        const turbo = result.pools.find((p) => p.turbo_of === vm.pool);
        const n = vm.vcpus + (vm.turbo ? 1 : 0);
        const cap = (vm.params.cap || 0) / 100;
        let cpus = pool.cpus.filter((cpu) => vm.affinity.includes(cpu));
        let limit = Math.min(1, demandOf(vm));

        if (vm.turbo && turbo) cpus = cpus.concat(turbo.cpus);
        if (cap) limit = Math.min(limit, cap / n);
        for (let i = 0; i < n; i++)
            list.push({ vm: number, weight: (vm.params.weight || 256) / n, limit, cpus });
    });
    return list;
}

/* Returns for each VM { vm, got, entitled }, in per cent of one pCPU. */
function sharesOf(result) {
    const vcpus = vcpusOf(result), share = maxMin(vcpus);

    return result.vms.map((vm, number) => {
        const mine = result.vcpus.filter((v) => v.vm === vm.vm);
        const entitled = share.filter((_, i) => vcpus[i].vm === number);

        return { vm: vm.vm, got: mine.reduce((sum, v) => sum + v.cpu_pct, 0),
                 entitled: 100 * entitled.reduce((a, b) => a + b, 0) };
    });
}
