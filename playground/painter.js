/* Two ways to draw the same picture: on a canvas, and as the text of an SVG file. Both have the
 * methods rect, polyline and text, and moveTo, which says where (0, 0) is for what follows.
 * Coordinates are in CSS pixels. */
"use strict";

const FONT = "system-ui, sans-serif";
const FONT_SIZE = 12;

class CanvasPainter {
    /* The canvas gets the given size on the page, and the resolution of the screen. */
    constructor(canvas, width, height) {
        const scale = window.devicePixelRatio || 1;

        this.scale = scale;
        canvas.width = Math.round(width * scale);
        canvas.height = Math.round(height * scale);
        canvas.style.height = `${height}px`;
        this.context = canvas.getContext("2d");
        this.context.scale(scale, scale);
        this.context.font = `${FONT_SIZE}px ${FONT}`;
        this.context.textBaseline = "middle";
    }

    rect(x, y, width, height, color) {
        this.context.fillStyle = color;
        this.context.fillRect(x, y, width, height);
    }

    moveTo(x, y) {
        this.context.setTransform(this.scale, 0, 0, this.scale, x * this.scale, y * this.scale);
    }

    /* points: [x, y, x, y ...] */
    polyline(points, color, width = 1) {
        this.context.strokeStyle = color;
        this.context.lineWidth = width;
        this.context.beginPath();
        for (let i = 0; i < points.length; i += 2) this.context.lineTo(points[i], points[i + 1]);
        this.context.stroke();
    }

    /* align: left, center or right */
    text(x, y, words, color, align = "left") {
        this.context.fillStyle = color;
        this.context.textAlign = align;
        this.context.fillText(words, x, y);
    }
}

class SvgPainter {
    constructor(width, height) {
        this.x = this.y = 0; // what moveTo() was told
        this.parts = [`<svg xmlns="http://www.w3.org/2000/svg" width="${width}" ` +
                      `height="${height}" viewBox="0 0 ${width} ${height}" ` +
                      `font-family="${FONT}" font-size="${FONT_SIZE}">`];
    }

    rect(x, y, width, height, color) {
        this.parts.push(`<rect x="${(this.x + x).toFixed(2)}" y="${(this.y + y).toFixed(2)}" ` +
                        `width="${width.toFixed(2)}" height="${height.toFixed(2)}" ` +
                        `fill="${color}"/>`);
    }

    polyline(points, color, width = 1) {
        const list = points.map((p, i) => (p + (i % 2 ? this.y : this.x)).toFixed(2)).join(" ");

        this.parts.push(`<polyline points="${list}" fill="none" stroke="${color}" ` +
                        `stroke-width="${width}"/>`);
    }

    text(x, y, words, color, align = "left") {
        const anchor = { left: "start", center: "middle", right: "end" }[align];
        const escaped = words.replace(/&/g, "&amp;").replace(/</g, "&lt;");

        this.parts.push(`<text x="${(this.x + x).toFixed(2)}" y="${(this.y + y).toFixed(2)}" ` +
                        `fill="${color}" ` +
                        `dominant-baseline="central" text-anchor="${anchor}">${escaped}</text>`);
    }

    moveTo(x, y) {
        this.x = x;
        this.y = y;
    }

    /* Returns the text of the file. */
    file() {
        return [...this.parts, "</svg>"].join("\n");
    }
}

/* The colours of VMs, in the order of the file, and of the letters on each. Neighbours differ in
 * hue and in lightness. */
const LABEL_COLOR = { "#0072b2": "#fff", "#e69f00": "#000", "#00835f": "#fff", "#cc79a7": "#000",
                      "#c25400": "#fff", "#56b4e9": "#000", "#8c6d31": "#fff", "#7b61c4": "#fff",
                      "#b8b000": "#000", "#5f6b75": "#fff" };
const VM_COLORS = Object.keys(LABEL_COLOR);

const colorOfVm = (number) => VM_COLORS[number % VM_COLORS.length];

/* The page's colours as they are now, in light or in dark. */
function pageColors() {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();

    return { ground: color("--ground"), text: color("--text"), faint: color("--faint"),
             line: color("--line"), raised: color("--raised"), accent: color("--accent") };
}
