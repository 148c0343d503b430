/* What each vCPU did and when: reads the file that build/sim -g writes (struct timeline_record in
 * tests/sim/sim.h), and prepares it for pictures. All times are in ns. */
"use strict";

const RECORD_BYTES = 32;
const STATE = { RUNNING: 0, READY: 1, BLOCKED: 2, OFFLINE: 3, UNKNOWN: 255 };
const CLASS_NAMES = ["BOOST", "UNDER", "OVER"];
const HIGH_WORD = 2 ** 32;

/* Returns how many of the sorted numbers are not above `x`: the place behind the last of them. */
function placeBehind(sorted, x) {
    let low = 0, high = sorted.length;

    while (low < high) {
        const middle = (low + high) >> 1;

        if (sorted[middle] <= x) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* One series of values, each of which holds from its time until that of the next one. */
class Steps {
    constructor() {
        this.times = [];
        this.values = [];
    }

    add(time, value) {
        const last = this.times.length - 1;

        if (last >= 0 && this.values[last] === value) return;
        if (last >= 0 && this.times[last] === time) {
            this.values[last] = value;
            return;
        }
        this.times.push(time);
        this.values.push(value);
    }
}

class Timeline {
    /* bytes: the file; result: the JSON of the same run. */
    constructor(bytes, result) {
        this.result = result;
        this.begin = result.warm_up_s * 1e9; // of the measurement
        this.end = this.begin + result.seconds * 1e9;
        this.names = result.vcpus.map((v) => this.nameOf(v));
        this.read(bytes);
        this.sort();
    }

    /* A vCPU has the name of its VM if that has no other one. */
    nameOf(v) {
        const alone = this.result.vcpus.filter((other) => other.vm === v.vm).length === 1;

        if (alone) return v.vm;
        return `${v.vm}/${v.vcpu}`;
    }

    read(bytes) {
        const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
        const n = Math.floor(bytes.byteLength / RECORD_BYTES);

        this.count = n;
        this.ns = new Float64Array(n);
        this.vcpu = new Uint16Array(n);
        this.cpu = new Uint16Array(n);
        this.state = new Uint8Array(n);
        this.cls = new Uint8Array(n);
        this.credit = new Float64Array(n);
        this.sliceEnd = new Float64Array(n);
        for (let i = 0, at = 0; i < n; i++, at += RECORD_BYTES) {
            this.ns[i] = view.getUint32(at, true) + HIGH_WORD * view.getUint32(at + 4, true);
            this.vcpu[i] = view.getUint16(at + 8, true);
            this.cpu[i] = view.getUint16(at + 10, true);
            this.state[i] = view.getUint8(at + 12);
            this.cls[i] = view.getUint8(at + 13);
            this.credit[i] = view.getUint32(at + 16, true) +
                             HIGH_WORD * view.getInt32(at + 20, true);
            this.sliceEnd[i] = view.getUint32(at + 24, true) +
                               HIGH_WORD * view.getUint32(at + 28, true);
        }
    }

    /* Sorts the records into what pictures need:
     *   records[vcpu]  the numbers of its records, and times[vcpu] their times
     *   runs[cpu]      who ran there: from, to, and the number of the record that began it. A vCPU
     *                  that was picked again begins a new run.
     *   ready[cpu]     how many vCPUs waited there, as Steps
     *   credits[vcpu]  its credit, as Steps, in ms
     *   wakes[vcpu]    when it ran after a wake, and how long it had waited: at, ns */
    sort() {
        const vcpus = this.names.length, cpus = this.result.pcpus;
        const make = (n, fn) => Array.from({ length: n }, fn);
        const last = new Int32Array(vcpus).fill(-1); // its last record
        const wokenAt = new Float64Array(vcpus).fill(-1);
        const waiting = new Int32Array(cpus);

        this.records = make(vcpus, () => []);
        this.times = make(vcpus, () => []);
        this.runs = make(cpus, () => ({ from: [], to: [], record: [] }));
        this.ready = make(cpus, () => new Steps());
        this.credits = make(vcpus, () => new Steps());
        this.wakes = make(vcpus, () => ({ at: [], ns: [] }));
        this.hasCredit = false;
        for (let i = 0; i < this.count; i++) {
            const v = this.vcpu[i], before = last[v];

            this.records[v].push(i);
            this.times[v].push(this.ns[i]);
            this.countReady(waiting, before, i);
            this.noteRun(before, i);
            this.noteWake(wokenAt, before, i);
            if (this.cls[i] < CLASS_NAMES.length) {
                this.hasCredit = true;
                this.credits[v].add(this.ns[i], this.credit[i] / 1e6);
            }
            last[v] = i;
        }
        for (const runs of this.runs) {
            const open = runs.to.length - 1;

            if (open >= 0 && runs.to[open] === null) runs.to[open] = this.end;
        }
    }

    stateOf(record) {
        if (record < 0) return STATE.UNKNOWN;
        return this.state[record];
    }

    countReady(waiting, before, i) {
        const ns = this.ns[i];

        if (this.stateOf(before) === STATE.READY) {
            const cpu = this.cpu[before];

            this.ready[cpu].add(ns, --waiting[cpu]);
        }
        if (this.state[i] === STATE.READY) {
            const cpu = this.cpu[i];

            this.ready[cpu].add(ns, ++waiting[cpu]);
        }
    }

    /* A run ends when its vCPU no longer runs there, and also when the vCPU was picked again, which
     * shows by the end of its slice. The record of a vCPU that comes may stand before the record of
     * the one that goes, if both are of one moment. */
    noteRun(before, i) {
        const wasRunning = this.stateOf(before) === STATE.RUNNING;
        const runs = this.state[i] === STATE.RUNNING;

        if (wasRunning && runs && this.cpu[before] === this.cpu[i] &&
            this.sliceEnd[before] === this.sliceEnd[i])
            return;
        if (wasRunning) {
            const list = this.runs[this.cpu[before]];

            for (let k = list.to.length - 1; k >= 0 && k >= list.to.length - 2; k--)
                if (list.to[k] === null && this.vcpu[list.record[k]] === this.vcpu[i])
                    list.to[k] = this.ns[i];
        }
        if (runs) {
            const list = this.runs[this.cpu[i]];

            list.from.push(this.ns[i]);
            list.to.push(null);
            list.record.push(i);
        }
    }

    noteWake(wokenAt, before, i) {
        const v = this.vcpu[i];

        if (this.stateOf(before) === STATE.BLOCKED && this.state[i] !== STATE.BLOCKED)
            wokenAt[v] = this.ns[i];
        if (this.state[i] === STATE.BLOCKED) wokenAt[v] = -1;
        if (this.state[i] === STATE.RUNNING && wokenAt[v] >= 0) {
            this.wakes[v].at.push(this.ns[i]);
            this.wakes[v].ns.push(this.ns[i] - wokenAt[v]);
            wokenAt[v] = -1;
        }
    }

    /* Returns the number of the record that holds for a vCPU at a time, or -1. */
    recordAt(vcpu, time) {
        const place = placeBehind(this.times[vcpu], time);

        if (place === 0) return -1;
        return this.records[vcpu][place - 1];
    }

    /* Returns the number of the run on a pCPU at a time, or -1 if the pCPU was idle. */
    runAt(cpu, time) {
        const runs = this.runs[cpu];
        const k = placeBehind(runs.from, time) - 1;

        if (k < 0 || runs.to[k] <= time) return -1;
        return k;
    }

    /* Returns the records of the vCPUs that waited at a time: on `cpu`, or on all if that is
     * null. */
    waitingAt(cpu, time) {
        const found = [];

        for (let v = 0; v < this.names.length; v++) {
            const record = this.recordAt(v, time);

            if (this.stateOf(record) !== STATE.READY) continue;
            if (cpu === null || this.cpu[record] === cpu) found.push(record);
        }
        return found;
    }

    /* Returns the vCPU's record before this one, or -1. */
    recordBefore(record) {
        const list = this.records[this.vcpu[record]];
        const place = placeBehind(list, record) - 2;

        if (place < 0) return -1;
        return list[place];
    }

    /* Returns when the vCPU of a record came into the state that it had before that record. */
    sinceBefore(record) {
        let at = this.recordBefore(record);
        const state = this.stateOf(at);
        let since = this.ns[record];

        while (at >= 0 && this.state[at] === state) {
            since = this.ns[at];
            at = this.recordBefore(at);
        }
        return since;
    }
}

/* ---- in words ---- */

/* Returns a duration with a unit that suits it. */
function duration(ns) {
    if (Math.abs(ns) >= 1e9) return `${(ns / 1e9).toFixed(3)} s`;
    if (Math.abs(ns) >= 1e6) return `${(ns / 1e6).toFixed(2)} ms`;
    return `${(ns / 1e3).toFixed(1)} µs`;
}

function creditWords(timeline, record) {
    const name = CLASS_NAMES[timeline.cls[record]];

    if (!name) return "";
    return `${name}, credit ${(timeline.credit[record] / 1e6).toFixed(2)} ms`;
}

/* Returns the name of a record's vCPU, with its class and credit in brackets if it has them. */
function vcpuWords(timeline, record) {
    const name = timeline.names[timeline.vcpu[record]], credit = creditWords(timeline, record);

    if (!credit) return name;
    return `${name} (${credit})`;
}

/* Returns why the scheduler picked this vCPU and not one of those that waited, a sentence. */
function reasonWords(timeline, record, others) {
    const cls = timeline.cls[record], name = CLASS_NAMES[cls];
    const worst = others.filter((other) => timeline.cls[other] > cls);
    const better = others.filter((other) => timeline.cls[other] < cls);

    if (others.length === 0) return "No other vCPU waited on this pCPU.";
    if (!name) return "Its policy has no classes; it came first by the policy's own order.";
    if (better.length > 0)
        return `${better.length} of a better class waited, but could not run yet: the rate limit ` +
               "lets a vCPU run on for a while, or the state of the other was still being saved.";
    if (worst.length === others.length)
        return `${name} goes before ${CLASS_NAMES[timeline.cls[worst[0]]]}.`;
    return `It came first among those that are ${name}.`;
}

/* Returns the sentences about run number `k` of a pCPU, for a person. */
function runWords(timeline, cpu, k) {
    const runs = timeline.runs[cpu], record = runs.record[k], from = runs.from[k];
    const others = timeline.waitingAt(cpu, from).filter((r) => r !== record);
    const before = timeline.recordBefore(record);
    const words = [`${timeline.names[timeline.vcpu[record]]} runs on pCPU ${cpu} from ` +
                   `${(from / 1e9).toFixed(6)} s on for ${duration(runs.to[k] - from)}`];
    const credit = creditWords(timeline, record);

    const sentences = [];

    if (timeline.sliceEnd[record])
        words.push(`with a slice of ${duration(timeline.sliceEnd[record] - from)}`);
    if (credit) words.push(`picked as ${credit}`);
    if (timeline.stateOf(before) === STATE.READY)
        words.push(`after a wait of ${duration(from - timeline.sinceBefore(record))}`);
    if (timeline.stateOf(before) === STATE.RUNNING) words.push("picked again");
    if (before >= 0 && timeline.cpu[before] !== cpu)
        words.push(`taken from pCPU ${timeline.cpu[before]}`);
    sentences.push(words.join(", "), reasonWords(timeline, record, others));
    if (others.length)
        sentences.push("Waiting here: " + others.map((r) => vcpuWords(timeline, r)).join("; "));
    return sentences;
}

/* Returns the sentences about an idle pCPU. */
function idleWords(timeline, cpu, time) {
    const elsewhere = timeline.waitingAt(null, time);
    const words = [`pCPU ${cpu} is idle at ${(time / 1e9).toFixed(6)} s`];

    if (elsewhere.length === 0) words.push("No vCPU waited anywhere.");
    else words.push("Waiting: " + elsewhere.map((r) => vcpuWords(timeline, r)).join("; "));
    return words;
}
