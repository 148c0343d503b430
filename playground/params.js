/* A list of controls for parameters of the scheduler, made from what build/sim -l prints: a menu
 * for a parameter that has words, otherwise a slider and a number. */
"use strict";

const SLIDER_STEPS = 1000;

/* Where a value is on a slider. Steps are small for small values, because parameters differ by
 * orders of magnitude. */
function toSlider(param, value) {
    const span = Math.log(param.max - param.min + 1);

    return Math.round(SLIDER_STEPS * Math.log(value - param.min + 1) / span);
}

function fromSlider(param, place) {
    const span = Math.log(param.max - param.min + 1);

    return param.min + Math.round(Math.exp(span * place / SLIDER_STEPS) - 1);
}

class ParamList {
    /* prefix: of the ids of the controls; params: from build/sim -l; set: is called with the name
     * of a parameter and its new value as text, or null if it is to have its default again. */
    constructor(parent, prefix, params, set) {
        this.rows = new Map();
        for (const param of params) {
            const row = param.words ? this.menuRow(prefix, param, set)
                                    : this.numberRow(prefix, param, set);
            const reset = make("button", { type: "button", textContent: "×",
                                           title: `${param.name}: back to its default` });

            reset.id = `${prefix}-reset-${param.name}`;
            reset.onclick = () => set(param.name, null);
            row.reset = reset;
            row.node.append(reset);
            row.node.title = param.help;
            this.rows.set(param.name, row);
            parent.append(row.node);
        }
    }

    menuRow(prefix, param, set) {
        const menu = make("select", { id: `${prefix}-param-${param.name}` });

        fillMenu(menu, param.words, param.words[0]);
        menu.oninput = () => set(param.name, menu.value);
        return { node: make("div", { className: "param" },
                            make("label", { htmlFor: menu.id, textContent: param.name }), menu),
                 show: (value) => { menu.value = value; } };
    }

    numberRow(prefix, param, set) {
        const number = make("input", { id: `${prefix}-param-${param.name}`, type: "number",
                                       min: param.min, max: param.max });
        const slider = make("input", { id: `${prefix}-slide-${param.name}`, type: "range", min: 0,
                                       max: Math.min(SLIDER_STEPS, param.max - param.min) });
        const fine = param.max - param.min <= SLIDER_STEPS; // each value has a step of its own
        const name = param.unit ? `${param.name} (${param.unit})` : param.name;

        slider.setAttribute("aria-label", name);
        slider.oninput = () => {
            const place = Number(slider.value);

            number.value = fine ? param.min + place : fromSlider(param, place);
            set(param.name, number.value);
        };
        number.oninput = () => set(param.name, number.value);
        return { node: make("div", { className: "param" },
                            make("label", { htmlFor: number.id, textContent: name }), slider,
                            number),
                 show: (value) => {
                     slider.value = fine ? value - param.min : toSlider(param, value);
                     number.value = value;
                 } };
    }

    /* Shows the values that are in effect. `isSet` tells which of them the file sets. A control
     * that a person is using is left alone. */
    show(values, isSet) {
        for (const [name, row] of this.rows) {
            row.reset.disabled = !isSet(name);
            row.node.classList.toggle("set", isSet(name));
            if (name in values && !row.node.contains(document.activeElement))
                row.show(values[name]);
        }
    }
}
