/**
 * address.js: all settings of the page, kept in the address, so that a link shows the same picture.
 *
 * A setting is text under a name.  A setting that is not in the address has its default, and a
 * setting that is given its default leaves the address.  Everything that shows a setting listens.
 */
import { part, tell, watch } from "./store.js";

const defaults = {
    tab: "attention", // attention, sessions
    theme: "system", // system, light, dark
    capture: "", // path of a capture on this page's own origin
    capture_file: "", // name of a capture of this computer, which an address cannot hold
    rows_file: "", // likewise of rows
    encoder_file: "", // likewise of rows that keys and values come from
    weights_file: "", // likewise of attention weights
    digest: "", // first digits of the SHA-256 of the chosen file
    heads: "", // empty: each; mean, layers, rollout
    padding: "", // positions of keys that are padding, "0-3,7"
    model: "",
    session: "", // id of a session that is looked at
    layers: "", // shown in the overview, "0,1,5"; empty: all
    sentence: "", // that the demonstration model reads
    text: "", // of random rows, split by spaces
    seed: "7", // of random rows
    encoder: "", // text of random rows that keys and values come from: cross-attention
    layer: "", // of the head that is open
    head: "", // empty: none is open
    kind: "weights", // weights, scores
    stage: "raw", // of scores: raw, softcap, masked
    view: "map", // map, lines, neurons, compare
    scale: "linear", // linear, log, rank
    colors: "", // empty: by kind
    paper: "two", // width of a figure: one, two columns
    size: "", // pixels of a thumbnail; empty: as fits
    pool: "max", // max, mean: what a cell of a thumbnail is
    sort: "layer", // of the overview: layer, or a statistic
    color_by: "weights", // of the overview: weights, or a statistic
    filter: "", // of the overview: heads of this pattern only
    targets: "", // delimiters, rare, first, induction, or key positions "0,3"
    ablate: "", // 1: the importance of each head is asked for
    area: "", // row0,row1,column0,column1 of the map that is shown; empty: all
    cell: "", // row,column that is selected
    off: "", // heads that are switched off in the open layer, "0,3"
    window: "", // left,right instead of the layer's
    softcap: "", // instead of the layer's
    causal: "", // 1, 0 instead of the layer's
    with: "", // layer,head that the open head is compared with; model: itself, unchanged
    with_model: "", // model of it, where that is another one
};

const state = part("address", { settings: read() });

function read() {
    const given = new URLSearchParams(location.hash.slice(1));
    const settings = { ...defaults };
    for (const name of Object.keys(defaults)) if (given.has(name)) settings[name] = given.get(name);
    return settings;
}

/** The address of the page with the settings `settings`. */
function write(settings) {
    const given = new URLSearchParams();
    for (const [name, value] of Object.entries(settings))
        if (value !== defaults[name]) given.set(name, value);
    return `${location.pathname}${location.search}#${given}`;
}

function say(changed) {
    if (changed.size > 0) tell("address", state.settings, changed);
}

function differing(before, after) {
    return new Set(Object.keys(defaults).filter((name) => before[name] !== after[name]));
}

/** @returns {Readonly<Object<string, string>>} all settings */
export function settings() {
    return state.settings;
}

/**
 * Changes settings.
 * @param {Object<string, string|number>} changes by name
 * @param {{step?: boolean}} [how] step: the change is one that Back undoes
 */
export function set(changes, { step = false } = {}) {
    const before = state.settings;
    state.settings = { ...before };
    for (const [name, value] of Object.entries(changes)) {
        if (!(name in defaults)) throw new Error(`no setting ${name}`);
        state.settings[name] = String(value);
    }
    const changed = differing(before, state.settings);
    if (changed.size === 0) return;
    history[step ? "pushState" : "replaceState"](null, "", write(state.settings));
    say(changed);
}

/** Calls listener(settings, Set of the names that changed) after every change. */
export function listen(listener) {
    return watch("address", listener);
}

/** A list of integers in a setting: "0,3" is [0, 3]; anything that is no integer is left out. */
export function integers(text) {
    return text
        .split(",")
        .filter((part) => /^-?\d+$/.test(part.trim()))
        .map(Number);
}

for (const event of ["popstate", "hashchange"])
    addEventListener(event, () => {
        const before = state.settings;
        state.settings = read();
        say(differing(before, state.settings));
    });
