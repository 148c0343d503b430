/* A scenario is all that decides what the simulation does:
 *   file      the text of a VM file (docs/config.md)
 *   pcpus     how many pCPUs the machine has
 *   warmUp    how long the simulation runs before the measurement, s
 *   seconds   how long the measurement takes, s
 *   seed      a number as text, or "": the one of the file
 *   pool      the pool whose policy the controls change, or "": the one with most VMs
 *   compare   "yes": the same is simulated under a second policy, too; otherwise ""
 *   other     that policy: "sched=credit sched_preset=vslicer tslice_us=5000". These keys take the
 *             place of all that the file says about the scheduling of the pool. A word without "="
 *             is a preset
 * It can be written into the part of a URL behind "#", so that a link carries all of it. */
"use strict";

const FILE_NAME = "scenario.cfg"; // what the program calls the file in its messages

const EMPTY_SCENARIO = { file: "", pcpus: 2, warmUp: 2, seconds: 10, seed: "", pool: "",
                         compare: "", other: "" };

/* The controls that hold a member of the scenario as it is: id -> member. */
const FIELDS = { pcpus: "pcpus", "warm-up": "warmUp", seconds: "seconds", seed: "seed",
                 file: "file" };

/* Returns the options of build/sim for a scenario, without the name of the file. */
function optionsOf(scenario) {
    const options = ["-p", `${scenario.pcpus}`, "-w", `${scenario.warmUp}s`,
                     "-t", `${scenario.seconds}s`];

    if (scenario.seed !== "") options.push("-c", `seed=${scenario.seed}`);
    return options;
}

/* Returns what a person types to have the same result from build/sim. */
function commandOf(scenario) {
    return ["build/sim", ...optionsOf(scenario), FILE_NAME].join(" ");
}

/* Returns the keys of the second policy and their values, a Map. */
function otherSettings(scenario) {
    const words = scenario.other.split(" ").filter((word) => word !== "");

    return new Map(words.map((word) => {
        if (!word.includes("=")) return ["sched_preset", word];
        return word.split("=", 2);
    }));
}

/* What has its default is left out. */
function toHash(scenario) {
    const words = new URLSearchParams();

    for (const key of Object.keys(EMPTY_SCENARIO))
        if (key === "file" || scenario[key] !== EMPTY_SCENARIO[key]) words.set(key, scenario[key]);
    return "#" + words.toString();
}

/* Returns the scenario of the part of a URL from "#" on, or null if there is none. Instead of a
 * file it may name one of the examples: "#example=labs/vslicer.cfg&compare=yes". */
function fromHash(hash, examples) {
    const words = new URLSearchParams(hash.slice(1));
    const scenario = { ...EMPTY_SCENARIO, ...examples[words.get("example")] };

    if (!words.has("file") && !scenario.file) return null;
    for (const key of Object.keys(EMPTY_SCENARIO)) {
        if (!words.has(key)) continue;
        scenario[key] = words.get(key);
        if (typeof EMPTY_SCENARIO[key] === "number") scenario[key] = Number(scenario[key]);
    }
    return scenario;
}
