/* The result of one simulation on the page: its pictures and its table. The page has one, or two
 * side by side. */
"use strict";

const WHEEL_ZOOM = 1.2; // for each step of the wheel

class Side {
    /* view: the View of the page, which all sides share; tell: is called with sentences about what
     * the pointer is on. */
    constructor(parent, view, tell) {
        const part = element("side").content.cloneNode(true);

        this.root = part.firstElementChild;
        parent.append(part);
        this.view = view;
        this.tell = tell;
        this.pointers = new Map(); // on a picture: pointer id -> x
        this.cursor = { cpu: 0, time: null }; // what the keyboard looks at
        this.timeline = null;
        for (const name of ["gantt", "ready", "credit"]) this.listen(this.find(name));
        this.find("gantt").onkeydown = (event) => this.key(event);
    }

    find(name) {
        return this.root.querySelector(`.${name}`);
    }

    remove() {
        this.root.remove();
    }

    /* Takes a new result and draws it. */
    show(title, result, timeline) {
        const number = new Map(result.vms.map((vm, k) => [vm.vm, k]));

        this.title = title;
        this.root.querySelector("h2").textContent = title;
        this.result = result;
        this.timeline = timeline;
        timeline.colors = result.vcpus.map((v) => colorOfVm(number.get(v.vm)));
        this.shares = sharesOf(result);
        this.shares.forEach((s, k) => { s.color = colorOfVm(k); });
        this.cursor.cpu = Math.min(this.cursor.cpu, result.pcpus - 1);
        this.showLegend();
        showTable(this.find("table"), result);
        this.find("trace").textContent = result.trace;
        this.find("records").textContent = result.records.toLocaleString("en");
        this.draw();
    }

    showLegend() {
        const items = this.result.vms.map((vm, k) => {
            const mark = make("span");

            mark.style.background = colorOfVm(k);
            return make("li", {}, mark, vm.vm);
        });

        this.find("legend").replaceChildren(...items);
    }

    /* Returns what is drawn, in order: the name of the picture, its height, and the function that
     * draws it with (painter, width). */
    pictures() {
        const window = this.view.window, timeline = this.timeline, colors = pageColors();
        const list = [
            ["gantt", ganttHeight(timeline), (p, w) => drawGantt(p, w, timeline, window, colors)],
            ["ready", readyHeight(timeline), (p, w) => drawReady(p, w, timeline, window, colors)],
            ["credit", CHART, (p, w) => drawCredit(p, w, timeline, window, colors)],
            ["histogram", CHART, (p, w) => drawHistogram(p, w, timeline, window, colors)],
            ["shares", sharesHeight(this.shares), (p, w) => drawShares(p, w, this.shares, colors)],
        ];

        return list.filter(([name]) => name !== "credit" || timeline.hasCredit);
    }

    /* Draws all pictures, or those of `names`. */
    draw(names = null) {
        if (!this.timeline) return;
        this.find("credit").hidden = !this.timeline.hasCredit;
        this.find("credit-title").hidden = !this.timeline.hasCredit;
        for (const [name, height, drawn] of this.pictures()) {
            const canvas = this.find(name);

            if (names && !names.includes(name)) continue;
            drawn(new CanvasPainter(canvas, canvas.clientWidth, height), canvas.clientWidth);
        }
    }

    /* Draws those pictures whose axis is time. */
    drawWindow() {
        this.draw(["gantt", "ready", "credit"]);
    }

    /* ---- pointer and wheel: pan, zoom, and what is there ---- */

    listen(canvas) {
        const place = (event) => event.clientX - canvas.getBoundingClientRect().left;

        canvas.onpointerdown = (event) => {
            canvas.setPointerCapture(event.pointerId);
            this.pointers.set(event.pointerId, place(event));
            if (canvas.matches(".gantt")) this.point(canvas, event); // a finger does not hover
        };
        canvas.onpointerup = canvas.onpointercancel = (event) => {
            this.pointers.delete(event.pointerId);
        };
        canvas.onpointermove = (event) => {
            if (this.pointers.has(event.pointerId))
                this.drag(canvas, event.pointerId, place(event));
            else if (canvas.matches(".gantt")) this.point(canvas, event);
        };
        canvas.addEventListener("wheel", (event) => {
            const factor = event.deltaY > 0 ? WHEEL_ZOOM : 1 / WHEEL_ZOOM;

            event.preventDefault();
            if (Math.abs(event.deltaX) > Math.abs(event.deltaY))
                this.view.pan(event.deltaX / canvas.clientWidth);
            else this.view.zoom(factor, this.scale(canvas).time(place(event)));
        }, { passive: false });
    }

    scale(canvas) {
        return new TimeScale(this.view.window, canvas.clientWidth);
    }

    /* One pointer pans; the distance of two zooms. */
    drag(canvas, id, x) {
        const before = this.pointers.get(id);
        const others = Array.from(this.pointers).filter(([other]) => other !== id);

        this.pointers.set(id, x);
        if (others.length === 0) {
            this.view.pan((before - x) / this.scale(canvas).width);
            return;
        }
        const other = others[0][1];
        const distance = Math.max(Math.abs(x - other), 10);

        this.view.zoom(Math.max(Math.abs(before - other), 10) / distance,
                       this.scale(canvas).time((x + other) / 2));
    }

    point(canvas, event) {
        const y = event.clientY - canvas.getBoundingClientRect().top;
        const x = event.clientX - canvas.getBoundingClientRect().left;
        const cpu = Math.floor(y / ROW);

        if (!this.timeline || cpu < 0 || cpu >= this.timeline.runs.length || x < LEFT) return;
        this.tellOf(cpu, this.scale(canvas).time(x));
    }

    /* Tells what a pCPU did at a time, and why. */
    tellOf(cpu, time) {
        const run = this.timeline.runAt(cpu, time);

        this.cursor = { cpu, time };
        if (run < 0) this.tell(idleWords(this.timeline, cpu, time));
        else this.tell(runWords(this.timeline, cpu, run));
    }

    /* ---- keyboard ---- */

    key(event) {
        const keys = {
            ArrowLeft: () => this.view.pan(-0.2), ArrowRight: () => this.view.pan(0.2),
            "+": () => this.view.zoom(1 / 2), "=": () => this.view.zoom(1 / 2),
            "-": () => this.view.zoom(2), "0": () => this.view.all(),
            ArrowUp: () => this.otherCpu(-1), ArrowDown: () => this.otherCpu(1),
            "[": () => this.otherRun(-1), "]": () => this.otherRun(1),
        };

        if (event.ctrlKey || event.altKey || event.metaKey || !keys[event.key]) return;
        event.preventDefault();
        keys[event.key]();
    }

    otherCpu(step) {
        const cpu = this.cursor.cpu + step;

        if (cpu < 0 || cpu >= this.timeline.runs.length) return;
        this.cursor.cpu = cpu;
        this.otherRun(0);
    }

    /* Goes `step` runs on from the cursor, and tells about that run. */
    otherRun(step) {
        const { cpu } = this.cursor, runs = this.timeline.runs[cpu];
        let time = this.cursor.time;

        if (time === null || time < this.view.window.from || time > this.view.window.to)
            time = this.view.window.from;
        const k = Math.max(placeBehind(runs.from, time) - 1 + step, 0);

        if (k >= runs.from.length) return;
        this.tellOf(cpu, runs.from[k]);
        if (runs.from[k] < this.view.window.from || runs.from[k] > this.view.window.to)
            this.view.center(runs.from[k]);
    }
}

/* The span of time that is shown. It is within a run of `end` ns. */
class View {
    constructor(changed) {
        this.changed = changed; // is called when the window is another one
        this.end = 1;
        this.window = null;
    }

    /* A new run has been made. The window stays if it can. */
    setRun(begin, end) {
        const same = this.window && this.end === end;

        this.end = end;
        if (!same) this.window = { from: begin, to: Math.min(begin + FIRST_WINDOW, end) };
    }

    set(from, to) {
        const span = Math.min(Math.max(to - from, LEAST_WINDOW), this.end);
        const start = Math.min(Math.max(from, 0), this.end - span);

        this.window = { from: start, to: start + span };
        this.changed();
    }

    /* By a part of what is shown. */
    pan(part) {
        const by = part * (this.window.to - this.window.from);

        this.set(this.window.from + by, this.window.to + by);
    }

    /* Shows `factor` times as much time; `fixed` stays where it is. */
    zoom(factor, fixed = (this.window.from + this.window.to) / 2) {
        const { from, to } = this.window;

        this.set(fixed - (fixed - from) * factor, fixed + (to - fixed) * factor);
    }

    center(time) {
        const half = (this.window.to - this.window.from) / 2;

        this.set(time - half, time + half);
    }

    all() {
        this.set(0, this.end);
    }
}

const FIRST_WINDOW = 300e6, LEAST_WINDOW = 1e3; // ns

/* ---- the table ---- */

/* The columns are what build/sim prints, too. The last two, from raising an event until it was
 * handled, are there only if the workload has events. */
function showTable(table, result) {
    const titles = ["VM", "vCPU", "pCPU", "CPU %", "wait max (ms)", "wake p50 (µs)", "p99", "max",
                    "switches/s"];
    const events = result.vcpus.some((v) => v.events);
    const head = make("tr");
    const cell = (row, kind, text) => row.append(make(kind, { textContent: text }));

    if (events) titles.push("event mean (µs)", "p99");
    titles.forEach((title) => cell(head, "th", title));
    table.replaceChildren(head);
    for (const v of result.vcpus) {
        const row = make("tr");

        cell(row, "th", v.vm);
        for (const text of [v.vcpu, v.pcpu, v.cpu_pct.toFixed(2), v.wait_max_ms.toFixed(1),
                            v.wake_us.p50.toFixed(0), v.wake_us.p99.toFixed(0),
                            v.wake_us.max.toFixed(0), v.switches_per_s.toFixed(1)])
            cell(row, "td", text);
        if (v.events) {
            cell(row, "td", v.event_us.mean.toFixed(0));
            cell(row, "td", v.event_us.p99.toFixed(0));
        }
        table.append(row);
    }
}
