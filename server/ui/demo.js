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
import { part } from "./store.js";

/** @typedef {import("./source.js").Source} Source */

const NAME = "demo";
export const LONGEST = 600; // characters of a sentence

/** Those that /models has of the model of the page's files: one for each dtype (f32, bf16, int8, w8a16)
 *  and kv_dtype (f32, bf16, f16, int8). */
export const FINGERPRINTS = `
    fbefb79c6e7e0fe9 fd80a18fb4dfa35b 1545436c93dcc3ee c55d040950053920
    47b083f76ae23aa4 8b24649e538c2dff 837dff085278c35c 5af601f120a112fb
    1a00eb82ab8acf36 6d474601633b1db4 a6cf19955a20e1a0 6c4668e9ede773b9
    ea998717d14d72bd 75d074d3efef49f9 a4ec92264b7f5fcf 5c3a451634d5c8ff`
    .trim()
    .split(/\s+/);

/** @returns {object|undefined} the model demo, unless another one has that name */
export function servedDemo() {
    return models().find(
        ({ name, fingerprint }) => name === NAME && FINGERPRINTS.includes(fingerprint),
    );
}

/** Where a script may be taken from is a matter of the page's policy: this one, and no other. */
const policy = globalThis.trustedTypes?.createPolicy("attnd-worker", {
    createScriptURL: () => new URL("demo_worker.js", import.meta.url).href,
}) ?? { createScriptURL: () => new URL("demo_worker.js", import.meta.url) };

/** The files of the model, and the worker that has read them. */
class Demo {
    #worker = null;
    #turn = 0;

    constructor(facts, blob, tokenizer) {
        this.about = facts.about;
        this.examples = facts.examples;
        this.heads = facts.heads;
        this.files = { blob, tokenizer };
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
        const { worker } = this;
        const attend = async ({ layer, rows }) => {
            const { hidden_size: width } = servedDemo();
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
    constructor(/** @type {any} */ { taken, ...facts }) {
        super(facts);
        this.taken = taken;
    }

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

const state = part("demo", { found: undefined }); // promise of the Demo

async function readFiles() {
    const get = async (name) => {
        const reply = await fetch(new URL(`ui/${name}`, base)).catch(() => null);
        if (!reply) throw new InputError(`${name}: no answer came`);
        if (!reply.ok) throw new InputError(`${name}: the server answered ${reply.status}`);
        return reply;
    };
    const [facts, tokenizer, weights] = await Promise.all(
        ["demo.json", "demo_tokenizer.json", "demo.safetensors"].map(get),
    );
    return new Demo(await facts.json(), await weights.blob(), await tokenizer.json());
}

/** @returns {Promise<Demo|null>} null where this attnd does not serve the model; files that did not
 *     come are asked for anew the next time */
export async function demo() {
    if (!servedDemo()) return null;
    state.found ??= readFiles().catch((error) => {
        state.found = undefined;
        throw error;
    });
    return state.found;
}

/** @returns {Promise<Source>} the model's layers over its own rows of a sentence; `next`: the tokens
 *     that it expects, the likeliest first */
export async function sentenceSource(text, signal) {
    const shown = await demo();
    if (!shown)
        throw new InputError("This attnd does not serve the model demo, which reads sentences");
    if (text.length > LONGEST) throw new InputError(`a sentence has ${LONGEST} characters at most`);
    const { labels, taken, next } = await shown.run(text, signal);
    const trimmed = labels.map((label) => label.trim() || label);
    const supply = new SentenceSupply({
        title: `“${fitted(text, 48, (part) => part.length)}”`,
        labels: trimmed,
        length: labels.length,
        taken,
    });
    const source = sources.rowsSource(servedDemo(), supply);
    return Object.assign(source, { next, told: shown.heads });
}

// ---- What is said of a head ---------------------------------------------------------------------

const share = (weight) => `${Math.round(100 * weight)}\u00a0%`; // stays on one line

/**
 * The sentence about one cell, which the map rings.
 * @param {import("./picture.js").Picture} picture @param {{row: number, column: number}} cell
 */
export function cellSentence(picture, { row, column }) {
    const weight = picture.valueAt(row, column);
    const [likeliest] = picture.source.next;
    const label = (at) => `“${picture.columnLabel(at)}”`;
    const before =
        column > 0 &&
        picture.columnLabel(column - 1) === picture.rowLabel(row) &&
        column - 1 !== row;
    const why = before ? `, which followed ${label(column - 1)} the last time` : "";
    const then =
        row === picture.rows - 1 && likeliest?.text.trim() === picture.columnLabel(column)
            ? `; the model expects it next (${share(likeliest.probability)})`
            : "";
    return (
        `In the ringed cell “${picture.rowLabel(row)}” (row ${row}) gives ${share(weight)} of its ` +
        `weight to ${label(column)} (column ${column})${why}${then}.`
    );
}

/** @returns {{row: number, column: number}} the cell that shows best what a head does */
export function tellingCell(picture, targets) {
    const last = picture.rows - 1;
    if (picture.pattern === "induction" && picture.valueAt(last, targets[last]) >= 0.5)
        return { row: last, column: targets[last] };
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
    const line =
        `examples/capture.py --model DIRECTORY --url ${base.slice(0, -1)} ` +
        `"A sentence of yours." -o capture.safetensors`;
    const start = `attnd --model NAME=DIRECTORY --port ${port}`;
    const view = `examples/capture.py --model DIRECTORY "A sentence of yours." --view --port ${
        Number(port) + 1
    }`;
    const code = (text, testid) => {
        const note = el("span", { class: "muted", role: "status" });
        const copy = async () => {
            await navigator.clipboard.writeText(text).catch(() => {});
            note.textContent = "Copied.";
        };
        return el(
            "div",
            { class: "command" },
            el("code", { data: { testid } }, text),
            el(
                "button",
                { type: "button", onclick: copy, data: { testid: `${testid}-copy` } },
                "Copy",
            ),
            note,
        );
    };
    const dialog = dialogOf(
        "own-model",
        "Your own model",
        el(
            "p",
            {},
            "A directory as Hugging Face has it. One command starts an attnd of its own with " +
                "the model, runs all of it but attention over your sentence, and opens this page on it:",
        ),
        code(view, "command-view"),
        el(
            "p",
            {},
            "Or serve the model here, capture its rows into a file, and choose that under " +
                "Change, Capture:",
        ),
        code(start, "command-start"),
        code(line, "command-capture"),
    );
    dialog.addEventListener("close", () => dialog.remove());
    dialog.showModal();
}

// ---- The line with the sentence -----------------------------------------------------------------

/** @returns {HTMLElement} what the model expects next */
export function expected(next) {
    const told = next.filter(({ probability }) => probability >= 0.005); // 1 % and more, as shown
    const chance = ({ text, probability }, i) => [
        i > 0 ? ", " : null,
        el("span", {}, el("b", {}, shownText(text.trim() || text)), ` ${share(probability)}`),
    ];
    return el(
        "span",
        { class: "expected", data: { testid: "next" } },
        "expected next: ",
        told.map(chance),
    );
}

/** @returns {string} the example after the one that is shown */
export function nextExample({ examples }) {
    const at = examples.indexOf(settings().sentence);
    return examples[(at + 1) % examples.length];
}
