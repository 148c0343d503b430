/* Short words for what the other scripts do with elements of the page. */
"use strict";

const element = (id) => document.getElementById(id);
const textOf = (id) => element(id).textContent.trim();

/* Makes an element with some properties and children. */
function make(kind, properties = {}, ...children) {
    const node = Object.assign(document.createElement(kind), properties);

    node.append(...children);
    return node;
}

/* Replaces the options of a menu, and chooses one. `empty` is how the empty word is shown. */
function fillMenu(menu, words, chosen, empty = "(default)") {
    menu.replaceChildren(...words.map((word) => new Option(word || empty, word)));
    menu.value = chosen;
}
