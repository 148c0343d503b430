/* Runs scenarios in a worker, one after another. */
"use strict";

const TIMELINE_NAME = "timeline"; // the file that the program writes for pictures

const LONG_MS = 500; // a run that has taken so long is given up when another one is asked for

class Simulator {
    /* source: the text of program.js; wasm: the bytes of the program. A page that was opened from a
     * file may not load other files, so the worker is started from a text. */
    constructor(source, wasm) {
        this.url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
        this.wasm = wasm;
        this.resolve = null; // is called with the answer of the run that is under way
        this.since = 0; // when that began, ms
        this.start();
    }

    start() {
        this.worker = new Worker(this.url);
        this.worker.onmessage = (event) => this.answered(event.data);
        this.worker.postMessage({ wasm: this.wasm });
    }

    answered(answer) {
        const { resolve } = this;

        this.resolve = null;
        if (resolve) resolve(answer);
    }

    /* The run that is under way is no longer needed. It is given up if it takes long; starting the
     * worker anew would cost more time than the end of a short run. */
    hurry() {
        const { resolve } = this, left = this.since + LONG_MS - performance.now();

        if (!resolve) return;
        if (left > 0) {
            setTimeout(() => {
                if (this.resolve === resolve) this.hurry();
            }, left + 1);
            return;
        }
        this.worker.terminate();
        this.start();
        this.answered({ givenUp: true });
    }

    /* One run at a time. Returns a promise of { givenUp: true } if hurry() ended it; of { problem }
     * if the scenario cannot be run, with sentences for a person; otherwise of
     * { result, timeline }: the JSON of build/sim (docs/simulation.md), and the bytes for class
     * Timeline. */
    async run(scenario) {
        const args = ["-j", "-g", TIMELINE_NAME, ...optionsOf(scenario), FILE_NAME];
        const files = { [FILE_NAME]: scenario.file };
        const answer = await new Promise((resolve) => {
            this.resolve = resolve;
            this.since = performance.now();
            this.worker.postMessage({ args, files });
        });

        if (answer.givenUp) return answer;
        if (answer.trap) return { problem: `${answer.trap} ${answer.err}` };
        if (answer.status !== 0) return { problem: answer.err };
        return { result: JSON.parse(answer.out), timeline: answer.files[TIMELINE_NAME] };
    }
}

function bytesOfBase64(text) {
    const bytes = atob(text);

    return Uint8Array.from(bytes, (c) => c.charCodeAt(0));
}
