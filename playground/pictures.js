/* The pictures. Each function draws one, with a painter, into a rectangle of the given width.
 * `window` is the span of time that is shown: { from, to } in ns. */
"use strict";

const PICTURE_TITLES = { gantt: "Who ran where", ready: "How many vCPUs waited, by pCPU",
                         credit: "Credit", shares: "Shares",
                         histogram: "From wake to run: how many wakes took how long" };

const LEFT = 64; // px for the names of rows
const RIGHT = 8;
const AXIS = 22; // px for the numbers of an axis
const ROW = 26; // px: a row of the Gantt chart
const READY_ROW = 24; // px: a row that shows how many vCPUs wait
const CHART = 130; // px: height of the other charts, with their axes
const LABEL_ROOM = 7; // px for each letter of a label

/* Returns round numbers between two values, about as many as asked for. */
function ticks(from, to, wanted) {
    const span = (to - from) / wanted;
    const power = 10 ** Math.floor(Math.log10(span));
    const step = [1, 2, 5, 10].find((factor) => factor * power >= span) * power;
    const list = [];

    for (let k = Math.ceil(from / step); k * step <= to; k++) list.push(k * step);
    return list;
}

/* Where time is on the picture. */
class TimeScale {
    constructor(window, width) {
        this.window = window;
        this.width = Math.max(width - LEFT - RIGHT, 1);
        this.perNs = this.width / (window.to - window.from);
    }

    x(ns) {
        return LEFT + (ns - this.window.from) * this.perNs;
    }

    /* The same, but not outside of the picture. */
    inside(ns) {
        return Math.min(Math.max(this.x(ns), LEFT), LEFT + this.width);
    }

    time(x) {
        return this.window.from + (x - LEFT) / this.perNs;
    }
}

function timeAxis(painter, colors, scale, y) {
    const span = scale.window.to - scale.window.from;
    const marks = ticks(scale.window.from / 1e6, scale.window.to / 1e6, scale.width / 90);
    const digits = Math.max(0, Math.ceil(-Math.log10(span / 1e6 / 8)));

    for (const ms of marks) {
        const x = scale.x(ms * 1e6);

        painter.rect(x, y, 1, 5, colors.faint);
        if (x > LEFT + scale.width - 30) continue; // its number would be cut off
        painter.text(x, y + 13, `${ms.toFixed(digits)} ms`, colors.faint, "center");
    }
}

/* ---- who ran where ---- */

const ganttHeight = (timeline) => ROW * timeline.runs.length + AXIS;

/* Draws the runs of one pCPU. Runs of the same vCPU that are next to each other within one pixel
 * are drawn as one. */
function drawRuns(painter, timeline, scale, colors, cpu, y) {
    const runs = timeline.runs[cpu], { from, to } = scale.window;
    let k = Math.max(placeBehind(runs.from, from) - 1, 0);

    while (k < runs.from.length && runs.from[k] < to) {
        const vcpu = timeline.vcpu[runs.record[k]], left = scale.inside(runs.from[k]);
        let end = runs.to[k];

        k++;
        while (k < runs.from.length && timeline.vcpu[runs.record[k]] === vcpu &&
               scale.x(runs.from[k]) - left < 1)
            end = runs.to[k++];
        const width = scale.inside(end) - left, name = timeline.names[vcpu];

        if (width <= 0) continue;
        painter.rect(left, y + 2, Math.max(width, 0.5), ROW - 4, timeline.colors[vcpu]);
        if (width > 3) painter.rect(left, y + 2, 1, ROW - 4, colors.ground);
        if (width > LABEL_ROOM * name.length + 6)
            painter.text(left + 5, y + ROW / 2, name, LABEL_COLOR[timeline.colors[vcpu]]);
    }
}

function drawGantt(painter, width, timeline, window, colors) {
    const scale = new TimeScale(window, width);

    painter.rect(0, 0, width, ganttHeight(timeline), colors.ground);
    timeline.runs.forEach((_, cpu) => {
        const y = cpu * ROW;

        painter.text(4, y + ROW / 2, `pCPU ${cpu}`, colors.text);
        painter.rect(LEFT, y + ROW / 2, scale.width, 1, colors.line);
        drawRuns(painter, timeline, scale, colors, cpu, y);
    });
    timeAxis(painter, colors, scale, timeline.runs.length * ROW);
}

/* ---- values over time ---- */

/* Returns the points of a step function for polyline(). Where several steps fall on one pixel, only
 * the least and the greatest value are drawn there. */
function stepPoints(steps, scale, toY) {
    const { from, to } = scale.window, points = [];
    let k = Math.max(placeBehind(steps.times, from) - 1, 0);

    while (k < steps.times.length && steps.times[k] < to) {
        const x = scale.inside(steps.times[k]);
        let least = steps.values[k], greatest = least, last = least;

        k++;
        while (k < steps.times.length && steps.times[k] < to && scale.x(steps.times[k]) - x < 1) {
            last = steps.values[k++];
            least = Math.min(least, last);
            greatest = Math.max(greatest, last);
        }
        if (points.length) points.push(x, points[points.length - 1]);
        if (greatest > least) points.push(x, toY(greatest), x, toY(least));
        points.push(x, toY(last));
    }
    if (points.length) points.push(LEFT + scale.width, points[points.length - 1]);
    return points;
}

/* Returns the least and the greatest value within the window, with `also` among them. */
function rangeOf(list, window, also) {
    let least = also, greatest = also;

    for (const steps of list) {
        const first = Math.max(placeBehind(steps.times, window.from) - 1, 0);

        for (let k = first; k < steps.times.length && steps.times[k] < window.to; k++) {
            least = Math.min(least, steps.values[k]);
            greatest = Math.max(greatest, steps.values[k]);
        }
    }
    return { least, greatest };
}

/* Draws several step functions into one chart. */
function drawSteps(painter, width, list, lineColors, window, colors, unit) {
    const scale = new TimeScale(window, width), bottom = CHART - AXIS;
    const { least, greatest } = rangeOf(list, window, 0);
    const span = Math.max(greatest - least, 1);
    const toY = (value) => bottom - 4 - (value - least) / span * (bottom - 10);

    painter.rect(0, 0, width, CHART, colors.ground);
    for (const mark of ticks(least, least + span, 4)) {
        painter.rect(LEFT, toY(mark), scale.width, 1, colors.line);
        painter.text(LEFT - 4, toY(mark), `${Number(mark.toFixed(6))}${unit}`, colors.faint,
                     "right");
    }
    list.forEach((steps, i) => {
        const points = stepPoints(steps, scale, toY);

        if (points.length) painter.polyline(points, lineColors[i], 1.3);
    });
    timeAxis(painter, colors, scale, bottom);
}

const readyHeight = (timeline) => READY_ROW * timeline.ready.length + AXIS;

/* A row for each pCPU. The line is higher where more vCPUs wait; the scale is that of the pCPU with
 * most of them. */
function drawReady(painter, width, timeline, window, colors) {
    const scale = new TimeScale(window, width);
    const most = Math.max(rangeOf(timeline.ready, window, 1).greatest, 1);

    painter.rect(0, 0, width, readyHeight(timeline), colors.ground);
    timeline.ready.forEach((steps, cpu) => {
        const base = (cpu + 1) * READY_ROW - 3;
        const toY = (value) => base - value / most * (READY_ROW - 6);
        const points = stepPoints(steps, scale, toY);

        painter.text(4, base - READY_ROW / 3, `pCPU ${cpu}`, colors.text);
        painter.rect(LEFT, base, scale.width, 1, colors.line);
        if (cpu === 0) painter.text(LEFT - 4, toY(most) + 4, `${most}`, colors.faint, "right");
        if (points.length) painter.polyline(points, colors.accent, 1.2);
    });
    timeAxis(painter, colors, scale, READY_ROW * timeline.ready.length);
}

function drawCredit(painter, width, timeline, window, colors) {
    drawSteps(painter, width, timeline.credits, timeline.colors, window, colors, " ms");
}

/* ---- from wake to run ---- */

const BINS_PER_DECADE = 4;
const FIRST_BIN = 3; // 10^3 ns: the first bin has all that is below 1 us
const DECADES = 6; // up to 1 s
const BINS = BINS_PER_DECADE * DECADES + 1;

function binOf(ns) {
    const place = Math.floor((Math.log10(Math.max(ns, 1)) - FIRST_BIN) * BINS_PER_DECADE) + 1;

    return Math.min(Math.max(place, 0), BINS - 1);
}

/* Returns for each bin how many wakes of each vCPU in the measurement are in it. */
function histogramOf(timeline) {
    const bins = Array.from({ length: BINS }, () => new Array(timeline.names.length).fill(0));

    timeline.wakes.forEach((wakes, vcpu) => {
        wakes.at.forEach((at, k) => {
            if (at >= timeline.begin) bins[binOf(wakes.ns[k])][vcpu]++;
        });
    });
    return bins;
}

function drawHistogram(painter, width, timeline, _, colors) {
    const bins = histogramOf(timeline), bottom = CHART - AXIS;
    const sums = bins.map((bin) => bin.reduce((a, b) => a + b, 0)), most = Math.max(...sums, 1);
    const binWidth = (width - LEFT - RIGHT) / BINS;

    painter.rect(0, 0, width, CHART, colors.ground);
    if (!sums.some((sum) => sum))
        painter.text(LEFT + 8, bottom / 2, "No vCPU slept and woke.", colors.faint);
    for (const mark of ticks(0, most, 3)) {
        const y = bottom - mark / most * (bottom - 8);

        painter.rect(LEFT, y, width - LEFT - RIGHT, 1, colors.line);
        painter.text(LEFT - 4, y, mark.toLocaleString("en"), colors.faint, "right");
    }
    bins.forEach((bin, b) => {
        let y = bottom;

        bin.forEach((count, vcpu) => {
            const height = count / most * (bottom - 8);

            y -= height;
            if (count)
                painter.rect(LEFT + b * binWidth + 1, y, binWidth - 2, height,
                             timeline.colors[vcpu]);
        });
    });
    ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s"].forEach((words, decade) => {
        const x = LEFT + (1 + decade * BINS_PER_DECADE) * binWidth;

        painter.rect(x, bottom, 1, 5, colors.faint);
        if (decade < DECADES) painter.text(x, bottom + 13, words, colors.faint, "center");
    });
}

/* ---- shares against entitlement ---- */

const BAR = 22;

const LEGEND = ["bar: CPU time, % of one pCPU", "mark: what the VM is entitled to"];
const LEGEND_LINE = 15;

const sharesHeight = (shares) => BAR * shares.length + 4 + LEGEND_LINE * LEGEND.length;

/* shares: [{ vm, got, entitled, color }], in per cent of one pCPU */
function drawShares(painter, width, shares, colors) {
    const most = Math.max(...shares.map((s) => Math.max(s.got, s.entitled)), 1);
    const room = width - LEFT - RIGHT - 110, toX = (percent) => LEFT + percent / most * room;

    painter.rect(0, 0, width, sharesHeight(shares), colors.ground);
    shares.forEach((s, i) => {
        const y = i * BAR;

        painter.text(4, y + BAR / 2, s.vm.slice(0, 9), colors.text);
        painter.rect(LEFT, y + 4, toX(s.got) - LEFT, BAR - 8, s.color);
        painter.rect(toX(s.entitled) - 1, y + 1, 3, BAR - 2, colors.text);
        painter.text(toX(Math.max(s.got, s.entitled)) + 8, y + BAR / 2,
                     `${s.got.toFixed(1)} of ${s.entitled.toFixed(1)} %`, colors.faint);
    });
    LEGEND.forEach((words, i) => {
        painter.text(LEFT, shares.length * BAR + 11 + LEGEND_LINE * i, words, colors.faint);
    });
}
