/* Reads and changes the text of a VM file (docs/config.md) line by line, so that comments and order
 * stay as their author has them. It understands only what the controls need; whether a file is good
 * is for the program to say. */
"use strict";

const MAIN_POOL = "Pool-0"; // is described by the section [hypervisor]

/* Returns a value without quotes and comment. */
function valueOf(text) {
    const quoted = text.match(/^"((?:[^"\\]|\\.)*)"/);

    if (quoted) return quoted[1].replace(/\\(.)/g, "$1");
    return text.replace(/(^|\s)[#;].*$/, "").trim();
}

/* Returns a value as it has to be written. */
function written(value) {
    if (!/["#;\\]/.test(value)) return value;
    return `"${value.replace(/["\\]/g, "\\$&")}"`;
}

class VmFile {
    constructor(text) {
        this.lines = text.split("\n");
    }

    text() {
        return this.lines.join("\n");
    }

    /* Returns all sections: { kind, name, line }, with the number of the line of the heading. */
    sections() {
        const found = [];

        this.lines.forEach((text, line) => {
            const heading = text.match(/^\s*\[\s*(\w+)\s*([^\s\]]*)\s*\]/);

            if (heading) found.push({ kind: heading[1], name: heading[2], line });
        });
        return found;
    }

    find(kind, name = "") {
        return this.sections().find((s) => s.kind === kind && s.name === name) || null;
    }

    names(kind) {
        return this.sections().filter((s) => s.kind === kind).map((s) => s.name);
    }

    /* Returns the section that describes a pool, or null. */
    poolSection(pool) {
        if (pool === MAIN_POOL) return this.find("hypervisor");
        return this.find("pool", pool);
    }

    /* Calls fn(key, value, line) for each key of a section. */
    eachKey(section, fn) {
        const next = this.sections().find((s) => s.line > section.line);
        const end = next ? next.line : this.lines.length;

        for (let line = section.line + 1; line < end; line++) {
            const pair = this.lines[line].match(/^\s*([\w-]+)\s*=\s*(.*)$/);

            if (pair) fn(pair[1], valueOf(pair[2]), line);
        }
    }

    /* Returns the value of a key, or null if the section is null or does not have the key. */
    get(section, key) {
        let found = null;

        if (section)
            this.eachKey(section, (name, value) => { if (name === key) found = value; });
        return found;
    }

    /* Gives a key of a section a value. With null the key is removed. */
    set(section, key, value) {
        let at = -1, last = section.line;

        this.eachKey(section, (name, _, line) => {
            last = line;
            if (name === key) at = line;
        });
        const text = `${key} = ${written(value || "")}`;

        if (value === null) {
            if (at >= 0) this.lines.splice(at, 1);
        } else if (at >= 0) {
            this.lines[at] = text;
        } else {
            this.lines.splice(last + 1, 0, text);
        }
    }

    /* Returns the section that describes a pool. Makes it if it is [hypervisor], which a file may
     * lack. */
    needPoolSection(pool) {
        const section = this.poolSection(pool), vms = this.find("vm", this.names("vm")[0]);

        if (section) return section;
        this.lines.splice(vms ? vms.line : this.lines.length, 0, "[hypervisor]", "");
        return this.poolSection(pool);
    }

    /* Adds a VM at the end. pairs: [[key, value]] */
    addVm(name, pairs) {
        while (this.lines.length && this.lines[this.lines.length - 1].trim() === "")
            this.lines.pop();
        this.lines.push("", `[vm ${name}]`, ...pairs.map(([key, value]) => `${key} = ${value}`),
                        "");
    }

    /* Removes a section with its keys, up to the next heading. */
    remove(section) {
        const next = this.sections().find((s) => s.line > section.line);
        const end = next ? next.line : this.lines.length;

        this.lines.splice(section.line, end - section.line);
    }
}
