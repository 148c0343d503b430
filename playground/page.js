/* The page: has the scenario of the controls simulated, and shows what came. */
"use strict";

const examples = JSON.parse(textOf("examples"));
const choices = JSON.parse(textOf("choices"));
const program = bytesOfBase64(textOf("wasm"));
const simulators = []; // one for each side, so that both run at the same time
const view = new View(() => drawSoon());
const sides = [];
const controls = new Controls(choices, () => update());
let running = false;
let changed = false; // the scenario has changed since the run that is under way began
let drawing = false; // the pictures will be drawn before the screen is next refreshed

/* ---- results ---- */

/* Shows what is wrong with the scenario. The pictures of the last good one stay. */
function showProblem(problem) {
    element("problem").hidden = !problem;
    element("problem").textContent = problem || "";
}

function showWindow() {
    const { from, to } = view.window;

    element("shown").textContent = `${(from / 1e9).toFixed(4)} s to ${(to / 1e9).toFixed(4)} s`;
}

/* However often this is called, the pictures are drawn once for each refresh of the screen. */
function drawSoon() {
    if (drawing || !view.window) return;
    drawing = true;
    requestAnimationFrame(() => {
        drawing = false;
        showWindow();
        sides.forEach((side) => side.drawWindow());
    });
}

/* Makes as many sides as there are results. */
function haveSides(n) {
    while (sides.length > n) sides.pop().remove();
    while (sides.length < n) sides.push(new Side(element("sides"), view, tell));
}

function tell(sentences) {
    element("told").textContent = sentences.map((s) => (s.endsWith(".") ? s : `${s}.`)).join(" ");
}

/* Returns the VM files that are to be simulated: the first one, and that of the second policy. */
function filesOf(scenario) {
    if (!scenario.compare) return [scenario.file];
    return [scenario.file, otherFile(scenario, choices)];
}

/* Returns what a side is called: its pool with policy and preset, as its file has them. */
function titleOf(text, scenario, result) {
    const file = new VmFile(text), pool = chosenPool(scenario);
    const preset = file.get(file.poolSection(pool), "sched_preset");
    const { policy } = result.pools.find((p) => p.pool === pool);

    return `${pool}: ${policy}${preset ? `, preset ${preset}` : ""}`;
}

function show(scenario, files, answers) {
    const problem = answers.map((answer) => answer.problem).find((words) => words);

    element("command").textContent = `The same on a command line: ${commandOf(scenario)}`;
    showProblem(problem);
    if (problem) return;
    const timelines = answers.map((a) => new Timeline(a.timeline, a.result));

    haveSides(answers.length);
    view.setRun(timelines[0].begin, timelines[0].end);
    showWindow();
    controls.showResults(answers.map((a) => a.result));
    sides.forEach((side, k) => side.show(titleOf(files[k], scenario, answers[k].result),
                                         answers[k].result, timelines[k]));
}

function simulatorOf(side) {
    while (simulators.length <= side) simulators.push(new Simulator(textOf("program"), program));
    return simulators[side];
}

/* Simulates what the controls say. If they change meanwhile, does it once more. */
async function update() {
    changed = true;
    if (running) {
        simulators.forEach((simulator) => simulator.hurry());
        return;
    }
    running = true;
    element("results").setAttribute("aria-busy", "true");
    while (changed) {
        const scenario = { ...controls.scenario }, begin = performance.now();
        const files = filesOf(scenario);

        changed = false;
        history.replaceState(null, "", toHash(scenario));
        const answers = await Promise.all(
            files.map((file, side) => simulatorOf(side).run({ ...scenario, file })));

        if (answers.some((answer) => answer.givenUp)) continue;
        show(scenario, files, answers);
        document.body.dataset.took = performance.now() - begin;
    }
    running = false;
    element("results").setAttribute("aria-busy", "false");
    document.body.dataset.done = String(Number(document.body.dataset.done || 0) + 1);
}

/* The URL of the page already carries the scenario. */
async function copyLink() {
    try {
        await navigator.clipboard.writeText(location.href);
        tell(["The link is in the clipboard"]);
    } catch {
        tell([`The browser does not let this page write to the clipboard. The link is ` +
              location.href]);
    }
}

/* Takes the VM file that a person has chosen, and keeps the rest of the scenario. */
async function loadFile() {
    const [file] = element("load-file").files;

    if (!file) return;
    element("example").value = "";
    controls.load({ ...controls.scenario, file: await file.text(), pool: "" });
}

/* ---- start ---- */

const FIRST_EXAMPLE = "boot/demo.cfg";

/* Loads the scenario of the URL. Returns whether there is one. */
function loadHash() {
    const scenario = fromHash(location.hash, examples);

    if (!scenario) return false;
    element("example").value = new URLSearchParams(location.hash.slice(1)).get("example") || "";
    controls.load(scenario);
    return true;
}

const exampleOf = (name) => ({ ...EMPTY_SCENARIO, ...examples[name] });

function start() {
    fillMenu(element("example"), ["", ...Object.keys(examples)], FIRST_EXAMPLE, "(none)");
    element("example").onchange = () => {
        if (element("example").value) controls.load(exampleOf(element("example").value));
    };
    element("controls").onsubmit = (event) => event.preventDefault();
    element("earlier").onclick = () => view.pan(-0.5);
    element("later").onclick = () => view.pan(0.5);
    element("zoom-in").onclick = () => view.zoom(1 / 2);
    element("zoom-out").onclick = () => view.zoom(2);
    element("zoom-all").onclick = () => view.all();
    element("save-file").onclick = () =>
        download(FILE_NAME, "text/plain", controls.scenario.file);
    element("save-svg").onclick = () => saveSvg(sides);
    element("save-png").onclick = () => savePng(sides);
    element("copy-link").onclick = copyLink;
    element("load-file").onchange = loadFile;
    window.onresize = () => sides.forEach((side) => side.draw());
    matchMedia("(prefers-color-scheme: dark)").onchange = window.onresize;
    window.onhashchange = loadHash;
    if (!loadHash()) controls.load(exampleOf(FIRST_EXAMPLE));
}

start();
