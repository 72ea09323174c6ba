/**
 * source.js: what is looked at: a model's layers over given rows, or over a session.
 *
 * A Supply gives rows of a width for a layer: of a capture, a file, or random ones by token.  A
 * Source joins a model with supplies and makes the requests of all views, so that what is shown and
 * what "copy as curl" writes are one thing.  One source is current; views listen for the next.
 */
import { call, client } from "./client.js";
import { integers, settings } from "./address.js";
import { InputError, numbersOf, open, readRows, rowsShape } from "./files.js";
import { randomRow, randomRows } from "./rows.js";
import { part, tell, watch } from "./store.js";

/** @typedef {import("./tensors.js").Tensor} Tensor */

const PADDING = ["[PAD]", "<pad>", "<|pad|>"]; // tokens that are never attended
const CACHE_BYTES = 24e6; // rows that stay in memory, of all supplies
const MAX_STATE_BYTES = 64e6; // a session whose keys are fetched

// ---- Layers -------------------------------------------------------------------------------------

/** @returns {object} a layer's specification, from an entry of GET /models */
export function specOf(model, layer) {
    return { ...model, ...model.differing_layers.find((other) => other.layer === layer) };
}

/** @returns {boolean} whether the layer can take its keys from its own rows */
export function attendsItself(spec) {
    const { hidden_size: width, key_size, value_size } = spec;
    return !spec.is_cross && key_size === width && value_size === width;
}

/** @returns {object} what stands for the model of a session without weights: its shape */
export function weightlessModel({ weightless, lengths }) {
    return {
        ...weightless,
        name: "attention",
        family: "without weights",
        mask: "causal",
        is_causal: true,
        attention_chunk_size: null,
        resident_layers: lengths.map(({ layer }) => layer),
        differing_layers: [],
    };
}

/** @returns {string} the masks of a model's layers, in words */
export function masksOf(model) {
    const count = new Map();
    for (const layer of model.resident_layers) {
        const { mask, sliding_window, attention_chunk_size } = specOf(model, layer);
        const width = sliding_window ?? attention_chunk_size;
        const kind = mask === "sliding_window" ? "window" : "chunk";
        const name = width ? `${kind} ${width}` : mask;
        count.set(name, (count.get(name) ?? 0) + 1);
    }
    return [...count].map(([name, n]) => (count.size > 1 ? `${n} × ${name}` : name)).join(", ");
}

/** Fields that the settings in the address change in the layer that is open; {} in all others. */
export function modifiersOf(layer, spec) {
    const given = settings(),
        fields = {};
    if (given.layer === "" || Number(given.layer) !== layer) return fields;
    const off = new Set(integers(given.off));
    if (off.size > 0)
        fields.head_mask = Array.from({ length: spec.num_attention_heads }, (_, head) =>
            off.has(head) ? 0 : 1,
        );
    const window = integers(given.window);
    if (window.length === 2) fields.sliding_window = window;
    if (given.softcap !== "" && Number.isFinite(Number(given.softcap)))
        fields.softcap = Number(given.softcap);
    if (given.causal !== "") fields.is_causal = given.causal === "1";
    return fields;
}

// ---- Supplies -----------------------------------------------------------------------------------

const cache = new Map(); // key -> tensor, the oldest first
const reading = new Map(); // key -> promise of a tensor, which others wait for too

/** The tensor that `read` gives, from memory if it was read of late. */
async function cached(owner, name, read) {
    const key = `${owner.id}/${name}`;
    if (!cache.has(key) && !reading.has(key))
        reading.set(
            key,
            Promise.resolve(read()).finally(() => reading.delete(key)),
        );
    const tensor = cache.get(key) ?? (await reading.get(key));
    cache.delete(key);
    cache.set(key, tensor);
    let bytes = 0;
    for (const [old, { data }] of [...cache].reverse()) {
        bytes += data.byteLength;
        if (bytes > CACHE_BYTES && old !== key) cache.delete(old);
    }
    return tensor;
}

const state = part("source", { shown: null, supplies: 0 }); // the one that is looked at

/** Rows for layers. `has(layer, width)` says whether there are some of that width; `keyOf` names
 *  those of a layer in memory, `read` reads them. */
export class Supply {
    /** @type {string} */
    title;
    /** @type {string|null} what is to be known of the rows */
    mark;
    /** @type {string[]} */
    labels;
    /** @type {number} */
    length;

    /** @param {{title: string, mark?: string|null, labels: string[], length: number}} facts */
    constructor(facts) {
        Object.assign(this, { id: ++state.supplies, mark: null }, facts);
    }

    /** @returns {boolean} */
    has(layer, width) {
        throw new Error("of a kind of supply");
    }

    /** @returns {string} */
    keyOf(layer, width) {
        throw new Error("of a kind of supply");
    }

    /** @returns {any} */
    read(layer, width) {
        throw new Error("of a kind of supply");
    }

    /** @returns {Promise<Tensor>} rows begin to begin + count of those for a layer */
    async at(layer, width, begin = 0, count = this.length - begin) {
        const rows = await cached(this, this.keyOf(layer, width), () => this.read(layer, width));
        if (count === this.length) return rows;
        const data = rows.data.subarray(begin * width, (begin + count) * width);
        return { ...rows, data, shape: [count, width] };
    }
}

class TokenSupply extends Supply {
    constructor(/** @type {any} */ { seed, ...facts }) {
        super(facts);
        this.seed = seed;
    }

    has() {
        return true;
    }

    keyOf(layer, width) {
        return `w${width}`; // the same rows for every layer of that width
    }

    read(layer, width) {
        return randomRows(this.labels, this.seed, width);
    }
}

class FileSupply extends Supply {
    constructor(/** @type {any} */ { file, entryOf, ...facts }) {
        super(facts);
        this.file = file;
        this.entryOf = entryOf;
    }

    has(layer, width) {
        const entry = this.entryOf(layer);
        return entry !== undefined && rowsShape(entry)[1] === width;
    }

    keyOf(layer) {
        return this.entryOf(layer).name;
    }

    read(layer) {
        return readRows(this.entryOf(layer), this.file);
    }
}

/** @returns {Supply} seeded random rows, one for each distinct token */
export function tokenSupply(tokens, seed) {
    if (tokens.length === 0) throw new InputError("the text has no tokens");
    return new TokenSupply({
        title: `random rows, seed ${seed}`,
        mark: "random rows: the pattern is not the model's on real text",
        labels: tokens,
        length: tokens.length,
        seed,
    });
}

function checkLabels(labels, length, file) {
    if (labels && labels.length !== length)
        throw new InputError(`${file}: there are ${labels.length} labels for ${length} rows`);
    return labels ?? new Array(length).fill("");
}

/** @returns {Supply} one tensor of a file, as rows of every layer of its width */
export function tensorSupply(file, entry, labels = null) {
    const shape = rowsShape(entry);
    if (!shape) throw new InputError(`${file}: ${entry.name} is no tensor [tokens, width]`);
    const title = entry.name === file ? file : `${file}: ${entry.name}`;
    const known = checkLabels(labels, shape[0], file);
    return new FileSupply({ title, file, labels: known, length: shape[0], entryOf: () => entry });
}

/** @returns {Supply|null} rows of each layer of a capture; `encoder`: those of its keys */
export function captureSupply(file, capture, { encoder = false, labels = null } = {}) {
    const entries = encoder ? capture.encoder : capture.rows,
        length = encoder ? capture.encoderLength : capture.length,
        texts = labels ?? (encoder ? capture.encoderTokens : capture.tokens);
    if (entries.size === 0) return null;
    const facts = { title: file, file, labels: checkLabels(texts, length, file), length };
    return new FileSupply({ ...facts, entryOf: (layer) => entries.get(layer) });
}

/** The rows and label of one token, for a live session. */
export function randomToken(token, seed, width) {
    return { data: randomRow(token, seed, width), shape: [1, width], datatype: "FP32" };
}

// ---- Sources ------------------------------------------------------------------------------------

export class Source {
    kind = "rows"; // or "session"
    path = "/attend";
    mark = null;
    leftOut = ""; // a sentence about layers that are not shown
    lacks = []; // outputs that this source cannot have
    local = false; // computed in the page
    /** @type {string|undefined} how heads are combined */
    way;
    /** @type {any} entry of GET /models, or what stands for it */
    model;
    /** @type {string} */
    title;
    /** @type {number[]} */
    layers;
    /** @type {string[]} */
    queryLabels;
    /** @type {string[]} */
    keyLabels;
    /** @type {Supply} */
    supply;
    /** @type {Supply|null} rows of keys and values, where these are others */
    encoder;
    /** @type {Uint8Array|null} 0 where a key is padding */
    padding;
    /** @type {any} as GET /sessions/{id} has it */
    session;
    /** @type {boolean} the step is computed and not kept */
    peek;
    /** @type {Map<number, number>} tokens of each layer of the session */
    lengths;
    /** @type {Map<string, any>} tensors of the session's state */
    entries;
    /** @type {object[]|undefined} heads that are told of, of the demonstration model */
    told;
    /** @type {object[]|undefined} tokens that it expects */
    next;
    stats = new Map(); // layer -> {queries, heads}: head_stats as the model has it, once they came

    constructor(facts) {
        Object.assign(this, facts);
    }

    get queries() {
        return this.queryLabels.length;
    }

    get keys() {
        return this.keyLabels.length;
    }

    spec(layer) {
        return specOf(this.model, layer);
    }

    /** @returns {object} fields that the settings change in a layer */
    modifiers(layer) {
        return modifiersOf(layer, this.spec(layer));
    }

    /** @returns {Promise<object>} the fields of a call that say what is attended */
    async inputs(layer) {
        throw new Error("of a kind of source");
    }

    headName(layer, head) {
        return `Layer ${layer}, head ${head}`;
    }

    /** @returns {Promise<{path: string, fields: object}>} what is sent for `fields` of a call */
    async request(layer, { plain = false, ...fields }) {
        const rows = await this.inputs(layer),
            changed = plain ? {} : this.modifiers(layer);
        return { path: this.path, fields: { ...rows, ...changed, ...fields } };
    }

    /** @returns {Promise<Object<string, any>>} the decoded reply; `plain`: as the model has it */
    async call(layer, fields, signal) {
        const asked = await this.request(layer, fields);
        signal?.throwIfAborted();
        return call(asked.path, asked.fields, signal);
    }
}

export class RowsSource extends Source {
    async inputs(layer) {
        const { supply, encoder, model } = this,
            spec = this.spec(layer),
            fields = { model: model.name, layer };
        fields.hidden_states = await supply.at(layer, spec.hidden_size);
        if (this.padding) fields.padding_mask = { data: this.padding, shape: [this.keys] };
        if (encoder && spec.key_size === spec.value_size)
            fields.encoder_hidden_states = await encoder.at(layer, spec.key_size);
        else if (encoder) {
            fields.key_hidden_states = await encoder.at(layer, spec.key_size);
            fields.value_hidden_states = await encoder.at(layer, spec.value_size);
        }
        return fields;
    }
}

/** Why a layer cannot take rows of these supplies; null where it can. */
function obstacle(spec, layer, supply, encoder) {
    if (spec.hidden_size === undefined) return "without weights, rows have no queries: ask its key";
    if (!supply.has(layer, spec.hidden_size))
        return `rows of ${spec.hidden_size} numbers are expected`;
    if (!encoder) return attendsItself(spec) ? null : "keys need a second input (cross-attention)";
    if (spec.rope) return "with RoPE, keys are the input's own rows: no second input";
    const fits = encoder.has(layer, spec.key_size) && encoder.has(layer, spec.value_size);
    const { key_size, value_size } = spec;
    return fits ? null : `keys of ${key_size} and values of ${value_size} numbers are expected`;
}

/** What stands in `leftOut`, or the error where no layer remains. */
function chooseLayers(model, supply, encoder, wanted) {
    const layers = [],
        reasons = new Map(); // reason -> layers
    for (const layer of wanted?.length ? wanted : model.resident_layers) {
        if (!model.resident_layers.includes(layer)) continue;
        const reason = obstacle(specOf(model, layer), layer, supply, encoder);
        if (reason === null) layers.push(layer);
        else reasons.set(reason, [...(reasons.get(reason) ?? []), layer]);
    }
    const parts = [...reasons].map(
        ([reason, out]) =>
            `${out.length > 1 ? "layers" : "layer"} ${out.join(", ")} of ${model.name}: ${reason}`,
    );
    const why = parts.join("; ");
    if (layers.length > 0) return { layers, leftOut: why && `Not shown: ${why}` };
    const none = `${model.name} has none of the layers that are asked for`;
    throw new InputError(`${supply.title} fits no layer: ${why || none}`);
}

const RANDOM = "random weights: patterns mean nothing";

const marks = (...supplied) =>
    supplied
        .filter((supply) => supply?.mark)
        .map(({ mark }) => mark)
        .join("; ") || null;

/** @returns {Uint8Array|null} 0 where a key is padding, by its text or the setting; or null */
export function paddingOf(labels) {
    const real = Uint8Array.from(labels, (label) => (PADDING.includes(label.trim()) ? 0 : 1));
    const given = settings()
        .padding.split(",")
        .filter((part) => part.trim() !== "");
    for (const part of given) {
        const [, from, to = from] = /^\s*(\d+)\s*(?:-\s*(\d+)\s*)?$/.exec(part) ?? [];
        if (!(Number(from) <= Number(to) && Number(to) < real.length))
            throw new InputError(
                `padding ${part.trim()}: positions of keys are expected, from 0 to ` +
                    `${real.length - 1}, such as 0-3,7`,
            );
        real.fill(0, Number(from), Number(to) + 1);
    }
    return real.includes(0) ? real : null;
}

/**
 * Attention of a model's layers over given rows, stateless.
 * @param {object} model entry of GET /models
 * @param {Supply} supply rows of the queries
 * @param {Supply|null} [encoder] rows of keys and values: cross-attention
 * @param {number[]} [wanted] layers; none: all
 * @returns {Source} with `leftOut`: a sentence about layers that cannot take these rows, or ""
 */
export function rowsSource(model, supply, encoder = null, wanted = []) {
    return new RowsSource({
        title: encoder ? `${supply.title} over ${encoder.title}` : supply.title,
        mark: marks({ mark: model.random && RANDOM }, supply, encoder),
        model,
        supply,
        encoder,
        queryLabels: supply.labels,
        keyLabels: (encoder ?? supply).labels,
        padding: paddingOf((encoder ?? supply).labels),
        ...chooseLayers(model, supply, encoder, wanted),
    });
}

/** @returns {boolean} whether a layer of the model takes these rows */
export function takesRows(model, supply, encoder) {
    try {
        return rowsSource(model, supply, encoder) !== null;
    } catch {
        return false;
    }
}

// ---- Sessions -----------------------------------------------------------------------------------

class StepSource extends Source {
    kind = "session";
    path = "/decode";

    async inputs(layer) {
        const { session, supply, peek } = this,
            count = this.queries,
            length = this.lengths.get(layer);
        const rows = await supply.at(
            layer,
            this.spec(layer).hidden_size,
            supply.length - count,
            count,
        );
        return {
            session_id: session.session_id,
            layer,
            epoch: session.epoch,
            revision: session.revision,
            position: peek ? length : length - count,
            ...(peek ? { commit: false } : {}),
            hidden_states: rows,
        };
    }
}

/** Labels of the keys of a session whose last tokens have `labels`. */
function keyLabels(length, labels) {
    return [...new Array(Math.max(0, length - labels.length)).fill(""), ...labels].slice(-length);
}

/** The layers of a session that hold as many tokens as its longest one. */
function longest(session) {
    const length = Math.max(...session.lengths.map((entry) => entry.length));
    const layers = session.lengths.filter((entry) => entry.length === length);
    return { length, layers: layers.map((entry) => entry.layer) };
}

/**
 * A step of a session: its last one sent again, or one that is computed and not kept (`peek`).
 * @param {object} model @param {object} session as GET /sessions/{id} has it
 * @param {Supply} supply its last `count` rows are those of the step
 */
export function stepSource(model, session, supply, { count = supply.length, peek = false } = {}) {
    const { length, layers } = longest(session);
    if (count < 1 || count > supply.length)
        throw new InputError(`a step has 1 to ${supply.length} of the rows of ${supply.title}`);
    if (!peek && count > length)
        throw new InputError(`session ${session.session_id} holds ${length} tokens, not ${count}`);
    const labels = supply.labels.slice(supply.length - count);
    return new StepSource({
        title: `session ${session.session_id}, ${peek ? "a step not kept" : "its last step"}`,
        mark: supply.mark,
        model,
        session,
        supply,
        peek,
        lengths: new Map(session.lengths.map((entry) => [entry.layer, entry.length])),
        queryLabels: labels,
        keyLabels: keyLabels(peek ? length + count : length, peek ? labels : supply.labels),
        ...chooseLayers(model, supply, null, layers),
    });
}

class LastKeySource extends Source {
    kind = "session";
    lacks = ["query", "key", "value", "head_output", "concat", "ablation"];

    async inputs(layer) {
        const spec = this.spec(layer),
            [key, value] = await Promise.all(
                ["key", "value"].map((name) => this.entries.get(`layers.${layer}.${name}`).read()),
            );
        const [groups, length, width] = key.shape,
            heads = spec.num_attention_heads,
            chunk = spec.attention_chunk_size,
            query = new Float32Array(heads * width);
        for (let head = 0; head < heads; head++) {
            const last = (Math.floor((head * groups) / heads) * length + length - 1) * width;
            query.set(numbersOf(key).subarray(last, last + width), head * width);
        }
        return {
            query: { data: query, shape: [heads, 1, width] },
            key,
            value,
            scale: spec.scale,
            ...(spec.softcap ? { softcap: spec.softcap } : {}),
            ...(spec.sliding_window ? { sliding_window: spec.sliding_window } : {}),
            ...(chunk ? { sliding_window: ((length - 1) % chunk) + 1 } : {}),
        };
    }
}

/** @returns {Promise<Source>} each head's last cached key, asked as its query */
export async function lastKeySource(model, session) {
    const { length, layers } = longest(session);
    if (length === 0) throw new InputError(`session ${session.session_id} holds no tokens`);
    if (session.bytes > MAX_STATE_BYTES)
        throw new InputError(
            `session ${session.session_id} is too large to fetch: give the rows ` +
                "of its last step, or rows for a step that is not kept",
        );
    const state = await (await client().open(session.session_id)).export();
    const opened = await open(new Blob([state]), session.session_id);
    return new LastKeySource({
        title: `session ${session.session_id}, its last key`,
        mark: "each head's last cached key stands in for its query: not a step of the model",
        model,
        session,
        layers,
        leftOut: "",
        entries: new Map(opened.entries.map((entry) => [entry.name, entry])),
        queryLabels: [""],
        keyLabels: new Array(length).fill(""),
    });
}

/** @returns {string} "1 head", "2 heads" */
export const counted = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;

/** @returns {string} one line that says what a source is */
export function factsOf({ title, told, model, layers, queries, keys }) {
    const over = `${counted(queries, "row")} over ${counted(keys, "key")}`;
    const tokens = queries === keys ? counted(keys, "token") : over;
    const heads = counted(specOf(model, layers[0]).num_attention_heads, "head");
    const all = `${counted(layers.length, "layer")} × ${heads}`;
    return [told ? null : title, `${model.name} (${model.family})`, all, tokens]
        .filter(Boolean)
        .join(" · ");
}

// ---- The one that is looked at ------------------------------------------------------------------

/** @returns {Source|null} */
export function current() {
    return state.shown;
}

/** Makes `source` the current one; the same one again says that it has grown. */
export function use(source) {
    state.shown = source;
    tell("source", source);
}

/** Calls listener(source) for every source from now on. @returns {() => void} ends that */
export function onSource(listener) {
    return watch("source", listener);
}
