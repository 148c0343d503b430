/* Saves what is on the page as files: the VM file, and the pictures of all sides as one picture. */
"use strict";

const PICTURE_GAP = 24; // px above each picture, for its title
const SIDE_GAP = 20;

function download(name, type, content) {
    const url = URL.createObjectURL(new Blob([content], { type }));
    const link = make("a", { href: url, download: name });

    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/* Returns where each picture of the sides goes: { items: [{ side, title, drawn, x, y, width }],
 * width, height }. */
function layOut(sides) {
    const items = [];
    let x = 0, height = 0;

    for (const side of sides) {
        const width = side.find("gantt").clientWidth;
        let y = 0;

        items.push({ title: side.title, x, y, width, drawn: null });
        y += PICTURE_GAP;
        for (const [name, tall, drawn] of side.pictures()) {
            items.push({ title: PICTURE_TITLES[name], x, y, width, drawn });
            y += PICTURE_GAP + tall;
        }
        x += width + SIDE_GAP;
        height = Math.max(height, y);
    }
    return { items, width: x - SIDE_GAP, height };
}

/* Draws all pictures with one painter. */
function drawAll(painter, plan) {
    const colors = pageColors();

    painter.rect(0, 0, plan.width, plan.height, colors.ground);
    for (const item of plan.items) {
        painter.moveTo(item.x, item.y);
        painter.text(4, PICTURE_GAP / 2, item.title, colors.text);
        painter.moveTo(item.x, item.y + PICTURE_GAP);
        if (item.drawn) item.drawn(painter, item.width);
    }
}

function saveSvg(sides) {
    const plan = layOut(sides), painter = new SvgPainter(plan.width, plan.height);

    drawAll(painter, plan);
    download("takt.svg", "image/svg+xml", painter.file());
}

function savePng(sides) {
    const plan = layOut(sides), canvas = make("canvas");

    drawAll(new CanvasPainter(canvas, plan.width, plan.height), plan);
    canvas.toBlob((blob) => download("takt.png", "image/png", blob), "image/png");
}
