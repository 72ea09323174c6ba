/**
 * demo.js: the first screen: a small trained model reads a sentence, which the user may change.
 *
 * attnd computes attention alone. The rest of the demonstration model (demo.safetensors, served with
 * the page) runs in a worker, which asks for the attention of each layer; the page asks attnd for it.
 * So the rows that the maps are made of are the model's own on that sentence.
 */
import { settings } from "./address.js";
import { fitted, shownText } from "./axes.js";
import { base, call, models, unlessAborted } from "./client.js";
import { dialogOf } from "./dialog.js";
import { el } from "./dom.js";
import { InputError, numbersOf } from "./files.js";
import * as sources from "./source.js";

const NAME = "demo";
const LONGEST = 600; // characters of a sentence

/** Where a script may be taken from is a matter of the page's policy: this one, and no other. */
const policy = globalThis.trustedTypes?.createPolicy("attnd-worker", {
    createScriptURL: () => new URL("demo_worker.js", import.meta.url).href,
}) ?? { createScriptURL: () => new URL("demo_worker.js", import.meta.url) };

/** The files of the model, and the worker that has read them. */
class Demo {
    #worker = null;
    #turn = 0;

    constructor(facts, blob, tokenizer) {
        Object.assign(this, facts); // about, examples, heads
        this.files = { blob, tokenizer };
    }

    get model() {
        return models().find(({ name }) => name === NAME);
    }

    get worker() {
        if (!this.#worker) {
            this.#worker = new Worker(policy.createScriptURL(""), { type: "module" });
            this.#worker.postMessage(this.files);
        }
        return this.#worker;
    }

    /** @returns {Promise<{labels, taken, next}>} what the model does with a sentence */
    run(text, signal) {
        const turn = ++this.#turn;
        const { worker, model } = this;
        const attend = async ({ layer, rows }) => {
            const width = model.hidden_size;
            const states = { data: rows, shape: [rows.length / width, width] };
            const asked = { model: NAME, layer, hidden_states: states, outputs: ["output"] };
            const { output } = await call("/attend", asked, signal);
            worker.postMessage({ turn, output: numbersOf(output) });
        };
        const done = new Promise((resolve, reject) => {
            const listen = ({ data }) => {
                if (data.turn !== turn) return;
                if (data.rows) return void attend(data).catch(end);
                end(data.error ? new InputError(data.error) : null, data);
            };
            const end = (error, data) => {
                worker.removeEventListener("message", listen);
                if (error) reject(error);
                else resolve(data);
            };
            worker.addEventListener("message", listen);
            worker.addEventListener("error", () => end(new InputError("the worker has failed")));
            signal?.addEventListener("abort", () => end(signal.reason), { once: true });
            worker.postMessage({ turn, text });
        });
        return unlessAborted(signal, done);
    }
}

/** Rows that each layer took of the sentence. */
class SentenceSupply extends sources.Supply {
    has(layer, width) {
        return this.taken[layer]?.length === this.length * width;
    }

    keyOf(layer) {
        return String(layer);
    }

    read(layer, width) {
        return { data: this.taken[layer], shape: [this.length, width], datatype: "FP32" };
    }
}

let found; // promise of the Demo, or of null

/** @returns {Promise<Demo|null>} null where this attnd does not serve the model */
export function demo() {
    const get = async (name) => {
        const reply = await fetch(new URL(`ui/${name}`, base));
        if (!reply.ok) throw new InputError(`${name}: the server answered ${reply.status}`);
        return reply;
    };
    const find = async () => {
        if (!models().some(({ name }) => name === NAME)) return null;
        const [facts, tokenizer, weights] = await Promise.all(
            ["demo.json", "demo_tokenizer.json", "demo.safetensors"].map(get));
        return new Demo(await facts.json(), await weights.blob(), await tokenizer.json());
    };
    return (found ??= find().catch(() => null));
}

/** @returns {Promise<Source>} the model's layers over its own rows of a sentence; `next`: the tokens
 *     that it expects, the likeliest first */
export async function sentenceSource(text, signal) {
    const shown = await demo();
    if (!shown) throw new InputError("This attnd does not serve the model demo, which reads sentences");
    if (text.length > LONGEST) throw new InputError(`a sentence has ${LONGEST} characters at most`);
    const { labels, taken, next } = await shown.run(text, signal);
    const trimmed = labels.map((label) => label.trim() || label);
    const supply = new SentenceSupply({ title: `“${fitted(text, 48, (part) => part.length)}”`, labels: trimmed, length: labels.length,
        taken });
    const source = sources.rowsSource(shown.model, supply);
    return Object.assign(source, { next, told: shown.heads, about: shown.about });
}

// ---- What is said of a head ---------------------------------------------------------------------

const share = (weight) => `${Math.round(100 * weight)} %`;

/**
 * The sentence about one cell, which the map rings.
 * @param {import("./picture.js").Picture} picture @param {{row: number, column: number}} cell
 */
export function cellSentence(picture, { row, column }) {
    const weight = picture.valueAt(row, column);
    const label = (at) => `“${picture.columnLabel(at)}”`;
    const before = column > 0 && picture.columnLabel(column - 1) === picture.rowLabel(row)
        && column - 1 !== row;
    const why = before ? `, which followed ${label(column - 1)} the last time` : "";
    return `In the ringed cell “${picture.rowLabel(row)}” (row ${row}) gives ${share(weight)} of its ` +
        `weight to ${label(column)} (column ${column})${why}.`;
}

/** @returns {{row: number, column: number}} the cell that shows best what a head does */
export function tellingCell(picture, targets) {
    const last = picture.rows - 1;
    if (picture.pattern === "sink") return { row: last, column: 0 };
    if (picture.pattern === "previous") return { row: last, column: last - 1 };
    let best = { row: last, column: Math.min(last, picture.columns - 1), weight: -1 };
    for (let row = 1; row < picture.rows; row++)
        for (let column = 1; column < picture.keys; column++) {
            if (picture.pattern === "induction" && targets[row] !== column) continue;
            const weight = picture.valueAt(row, column);
            if (weight > best.weight) best = { row, column, weight };
        }
    return best;
}

// ---- Dialogs ------------------------------------------------------------------------------------

/** What to do to see one's own model: a command, ready to be copied. */
export function ownModelDialog() {
    const port = location.port || (location.protocol === "https:" ? 443 : 80);
    const line = `examples/capture.py --model DIRECTORY --url ${base.slice(0, -1)} ` +
        `"A sentence of yours." -o capture.safetensors`;
    const start = `attnd --model NAME=DIRECTORY --port ${port}`;
    const view = `examples/capture.py --model DIRECTORY "A sentence of yours." --view --port ${
        Number(port) + 1}`;
    const code = (text, testid) => {
        const note = el("span", { class: "muted", role: "status" });
        const copy = async () => {
            await navigator.clipboard.writeText(text).catch(() => {});
            note.textContent = "Copied.";
        };
        return el("div", { class: "command" }, el("code", { data: { testid } }, text),
            el("button", { type: "button", onclick: copy, data: { testid: `${testid}-copy` } }, "Copy"),
            note);
    };
    const dialog = dialogOf("own-model", "Your own model",
        el("p", {}, "A directory as Hugging Face has it. One command starts an attnd of its own with " +
            "the model, runs all of it but attention over your sentence, and opens this page on it:"),
        code(view, "command-view"),
        el("p", {}, "Or serve the model here, capture its rows into a file, and choose that under " +
            "Change, Capture:"),
        code(start, "command-start"),
        code(line, "command-capture"));
    dialog.addEventListener("close", () => dialog.remove());
    dialog.showModal();
}

// ---- The line with the sentence -----------------------------------------------------------------

/** @returns {HTMLElement} what the model expects next */
export function expected(next) {
    const chance = ({ text, probability }) => [el("b", {}, shownText(text.trim() || text)),
        ` ${share(probability)} `];
    return el("span", { data: { testid: "next" } }, "next token: ", next.map(chance));
}

/** @returns {string} the example after the one that is shown */
export function nextExample({ examples }) {
    const at = examples.indexOf(settings().sentence);
    return examples[(at + 1) % examples.length];
}
