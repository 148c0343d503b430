/* The controls for pools and VMs. They change the text of the VM file, which is what is simulated,
 * so whatever they do can also be typed. The second policy is not in the file: it is the member
 * `other` of the scenario. */
"use strict";

const NEW_VM = [["image", "spin"]];

/* Menus for policy and preset, and a list of the policy's parameters. */
class PolicyBlock {
    /* prefix: of the ids; get and set read and write a key of the pool, as text or null; changed is
     * called after a person has changed something. */
    constructor(parent, prefix, choices, get, set, changed) {
        Object.assign(this, { prefix, choices, get, set, changed });
        this.policy = make("select", { id: `${prefix}-policy` });
        this.preset = make("select", { id: `${prefix}-preset` });
        this.list = make("div");
        this.params = null;
        this.shown = null; // the policy whose parameters are listed
        fillMenu(this.policy, ["", ...choices.policies.map((p) => p.policy)], "");
        this.policy.oninput = () => this.choose("sched", this.policy.value);
        this.preset.oninput = () => this.choose("sched_preset", this.preset.value);
        parent.append(make("label", {}, "Policy ", this.policy),
                      make("label", {}, "Preset ", this.preset),
                      make("details", {}, make("summary", { textContent: "Parameters" }),
                           this.list));
    }

    /* Another policy has no use for presets and parameters of the one before, and a preset is to be
     * as it is. */
    choose(key, value) {
        if (key === "sched") this.set("sched_preset", null);
        for (const name of poolParams(this.choices)) this.set(name, null);
        this.set(key, value || null);
        this.changed();
    }

    /* Shows what the file says, and the values that are in effect in `pool` of a result. */
    show(pool) {
        const name = pool ? pool.policy : this.get("sched") || this.choices.policies[0].policy;
        const policy = this.choices.policies.find((p) => p.policy === name);

        this.policy.value = this.get("sched") || "";
        if (this.shown !== name) {
            this.shown = name;
            this.list.replaceChildren();
            this.params = new ParamList(this.list, this.prefix,
                                        policy.params.filter((p) => p.scope === "pool"),
                                        (param, value) => {
                                            this.set(param, value);
                                            this.changed();
                                        });
        }
        fillMenu(this.preset, ["", ...policy.presets], this.get("sched_preset") || "");
        this.params.show(pool ? pool.params : {}, (param) => this.get(param) !== null);
    }
}

/* Returns the names of all parameters that a pool may have, under whatever policy. */
function poolParams(choices) {
    const names = choices.policies.flatMap((p) => p.params.filter((e) => e.scope === "pool"));

    return [...new Set(names.map((e) => e.name))];
}

/* Returns the pool whose policy the controls change. If the scenario names none, that is the pool
 * that most VMs are in. */
function chosenPool(scenario) {
    const file = new VmFile(scenario.file), counts = new Map([[MAIN_POOL, 0]]);

    for (const name of file.names("pool")) counts.set(name, 0);
    if (counts.has(scenario.pool)) return scenario.pool;
    for (const name of file.names("vm")) {
        const pool = file.get(file.find("vm", name), "pool") || MAIN_POOL;

        counts.set(pool, (counts.get(pool) || 0) + 1);
    }
    return [...counts].reduce((best, entry) => (entry[1] > best[1] ? entry : best))[0];
}

/* Returns the VM file with the second policy in place of the first one. */
function otherFile(scenario, choices) {
    const file = new VmFile(scenario.file), section = file.needPoolSection(chosenPool(scenario));

    for (const key of ["sched", "sched_preset", ...poolParams(choices)])
        file.set(section, key, null);
    for (const [key, value] of otherSettings(scenario)) file.set(section, key, value);
    return file.text();
}

class Controls {
    /* choices: the JSON of build/sim -l; changed: is called when the scenario is another one. */
    constructor(choices, changed) {
        this.choices = choices;
        this.changed = changed;
        this.scenario = null;
        this.results = [null, null];
        this.vms = null; // the names of the VMs that have controls
        const get = (key) => this.file().get(this.file().poolSection(this.pool()), key);

        this.blocks = [
            new PolicyBlock(element("policy-a"), "a", choices, get,
                            (key, value) => this.setPool(key, value), () => this.edited()),
            new PolicyBlock(element("policy-b"), "b", choices,
                            (key) => otherSettings(this.scenario).get(key) || null,
                            (key, value) => this.setOther(key, value), () => this.edited()),
        ];
        for (const id of Object.keys(FIELDS)) element(id).oninput = () => this.field(id);
        element("pool").oninput = () => this.field("pool");
        element("compare").oninput = () => {
            this.scenario.compare = element("compare").checked ? "yes" : "";
            this.edited();
        };
        element("add-vm").onclick = () => this.addVm();
    }

    file() {
        return new VmFile(this.scenario.file);
    }

    pool() {
        return chosenPool(this.scenario);
    }

    /* Takes a whole scenario. */
    load(scenario) {
        this.scenario = { ...scenario };
        this.results = [null, null];
        this.edited();
    }

    /* Something has changed: shows it in all controls, and tells the page. */
    edited() {
        this.show();
        this.changed();
    }

    /* A field of the scenario was changed by a person. */
    field(id) {
        const key = FIELDS[id] || id, text = element(id).value;

        this.scenario[key] = typeof EMPTY_SCENARIO[key] === "number" ? Number(text) : text;
        this.edited();
    }

    /* Changes the file, and shows the new text. fn gets a VmFile. */
    change(fn) {
        const file = this.file();

        fn(file);
        this.scenario.file = file.text();
    }

    setPool(key, value) {
        this.change((file) => file.set(file.needPoolSection(this.pool()), key, value));
    }

    setOther(key, value) {
        const settings = otherSettings(this.scenario);

        if (value === null) settings.delete(key);
        else settings.set(key, value);
        this.scenario.other = [...settings].map(([name, text]) => `${name}=${text}`).join(" ");
    }

    /* Gives a key of a VM a value; null or "" removes it. */
    setVm(name, key, value) {
        this.change((file) => file.set(file.find("vm", name), key, value || null));
        this.edited();
    }

    addVm() {
        const names = this.file().names("vm");
        let number = names.length + 1;

        while (names.includes(`vm${number}`)) number++;
        this.change((file) => file.addVm(`vm${number}`, NEW_VM));
        this.edited();
    }

    removeVm(name) {
        this.change((file) => file.remove(file.find("vm", name)));
        this.edited();
    }

    /* The results of a run have come: controls show the values that were in effect. */
    showResults(results) {
        this.results = results;
        this.show();
    }

    show() {
        const { scenario } = this, pools = [MAIN_POOL, ...this.file().names("pool")];

        for (const id of Object.keys(FIELDS)) {
            const text = String(scenario[FIELDS[id]]);

            /* A value that was typed is left as it is, with the cursor in it. */
            if (document.activeElement !== element(id) && element(id).value !== text)
                element(id).value = text;
        }
        fillMenu(element("pool"), pools, this.pool());
        element("pool-row").hidden = pools.length === 1;
        element("compare").checked = scenario.compare !== "";
        element("policy-b").hidden = scenario.compare === "";
        this.blocks.forEach((block, side) => block.show(this.poolOf(side)));
        this.showVms();
    }

    /* Returns the chosen pool in the result of a side, or null. */
    poolOf(side) {
        const result = this.results[side];

        if (!result) return null;
        return result.pools.find((p) => p.pool === this.pool()) || null;
    }

    /* ---- VMs ---- */

    showVms() {
        const names = this.file().names("vm");
        const policies = names.map((name) => this.policyOfVm(name));
        const now = JSON.stringify([names, policies, this.file().names("pool")]);

        if (this.vms !== now) {
            this.vms = now;
            this.makeVms(names);
        }
        this.rows.forEach((row) => row.show());
    }

    resultOfVm(name) {
        const result = this.results[0];

        return result ? result.vms.find((vm) => vm.vm === name) || null : null;
    }

    /* Returns the policy under which a VM runs, as build/sim -l describes it. */
    policyOfVm(name) {
        const vm = this.resultOfVm(name);
        const pool = vm && this.results[0].pools.find((p) => p.pool === vm.pool);

        if (!pool) return this.choices.policies[0].policy;
        return pool.policy;
    }

    makeVms(names) {
        const open = new Set(Array.from(document.querySelectorAll("#vms details[open]"),
                                        (d) => d.dataset.vm));

        element("vms").replaceChildren();
        this.rows = names.map((name, k) => {
            const row = new VmRow(this, name, `vm${k}`);

            row.node.open = open.has(name);
            element("vms").append(row.node);
            return row;
        });
    }
}

/* The controls of one VM. */
class VmRow {
    constructor(controls, name, prefix) {
        const remove = make("button", { type: "button", textContent: "Remove",
                                        id: `${prefix}-remove` });
        const summary = make("summary");
        const policyName = controls.policyOfVm(name);
        const policy = controls.choices.policies.find((p) => p.policy === policyName);

        Object.assign(this, { controls, name, prefix, fields: new Map() });
        this.title = make("span");
        summary.append(make("strong", { textContent: name }), " ", this.title);
        this.node = make("details", {}, summary);
        this.node.dataset.vm = name;
        this.add("image", make("select"), controls.choices.images);
        this.add("cmdline", make("input", { type: "text", spellcheck: false }));
        this.add("vcpus", make("input", { type: "number", min: 1, max: 64, placeholder: "1" }));
        this.add("cpus", make("input", { type: "text", placeholder: "all" }));
        this.add("pool", make("select"),
                 ["", ...controls.file().names("pool")]);
        this.params = new ParamList(this.node, prefix,
                                    policy.params.filter((p) => p.scope === "vm"),
                                    (key, value) => controls.setVm(name, key, value));
        remove.onclick = () => controls.removeVm(name);
        this.node.append(remove);
    }

    /* Adds a control for a key of the VM's section. `words` are those of a menu. */
    add(key, control, words = null) {
        control.id = `${this.prefix}-${key}`;
        if (words) fillMenu(control, words, words[0]);
        control.oninput = () => this.controls.setVm(this.name, key, control.value);
        this.fields.set(key, control);
        this.node.append(make("label", {}, `${key} `, control));
    }

    show() {
        const file = this.controls.file(), section = file.find("vm", this.name);
        const result = this.controls.resultOfVm(this.name);

        for (const [key, control] of this.fields)
            if (document.activeElement !== control) control.value = file.get(section, key) || "";
        this.title.textContent = `${file.get(section, "image")} ` +
                                 `${file.get(section, "cmdline") || ""}`;
        this.params.show(result ? result.params : {}, (key) => file.get(section, key) !== null);
    }
}
