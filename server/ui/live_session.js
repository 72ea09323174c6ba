/**
 * live_session.js: a session that grows before one's eyes: each row is a step of every layer.
 *
 * The maps of a live session are the lines that its steps replied with, one below the other. What
 * the lines do not have (scores, statistics, heads switched off) is computed anew from the same
 * rows, without the session. The session stays while other sources are looked at, until the user ends
 * it, it expires, or the page is left.
 */
import { settings } from "./address.js";
import { apiKey, client } from "./client.js";
import { el, labelled } from "./dom.js";
import { InputError, numbersOf } from "./files.js";
import { remember } from "./sessions.js";
import * as sources from "./source.js";
import { pooled } from "./statistics.js";
import { announce, run, showError } from "./status.js";
import { part } from "./store.js";

const MAX_LINE_BYTES = 48e6; // lines that the page keeps of one session
const TTL_S = 900; // of a session whose page was killed

const state = part("live_session", { source: null }); // the LiveSource, while there is one

/** Rows that were added so far. */
class AddedSupply extends sources.Supply {
    constructor(base) {
        super({ title: base.title, mark: base.mark, labels: [], length: 0 });
        this.base = base;
        this.added = []; // for each token: null for the base's row of that index, or {token, seed}
    }

    has(layer, width) {
        return this.base.has(layer, width);
    }

    async rowOf(index, layer, width) {
        const typed = this.added[index];
        if (typed) return sources.randomToken(typed.token, typed.seed, width);
        return this.base.at(layer, width, this.added.slice(0, index).filter((t) => !t).length, 1);
    }

    async at(layer, width, begin = 0, count = this.length - begin) {
        const data = new Float32Array(count * width);
        for (let i = 0; i < count; i++)
            data.set(numbersOf(await this.rowOf(begin + i, layer, width)), i * width);
        return { data, shape: [count, width], datatype: "FP32" };
    }

    get taken() {
        return this.added.filter((typed) => !typed).length;
    }

    /** The next token: the one that was typed, or the base's next one. */
    push(typed) {
        this.labels.push(typed ? typed.token : this.base.labels[this.taken]);
        this.added.push(typed);
        this.length++;
    }

    pop() {
        this.labels.pop();
        this.added.pop();
        this.length--;
    }
}

const refined = ["attention_scores", "head_stats", "query", "head_output"];

class LiveSource extends sources.RowsSource {
    kind = "session";
    lines = new Map(); // layer -> [{data [H][W], width}] of each step

    /** A step sees what is cached: rows that are computed anew do not see later ones either. */
    async inputs(layer) {
        return { ...(await super.inputs(layer)), is_causal: true };
    }

    /** The map [H',T',W] of the lines, pooled as the fields say. */
    map(layer, { heads, rows, pool, pool_type }) {
        const lines = this.lines.get(layer),
            count = this.spec(layer).num_attention_heads,
            appended = lines.at(-1).width - lines.length,
            width = lines.length + appended;
        const shownRows = rows ?? [...lines.keys()],
            maps = (heads ?? [...Array(count).keys()]).map((head) => {
                const map = new Float32Array(shownRows.length * width);
                shownRows.forEach((t, at) => {
                    const line = lines[t],
                        begin = head * line.width,
                        seen = line.width - appended;
                    map.set(line.data.subarray(begin, begin + seen), at * width);
                    const rest = line.data.subarray(begin + seen, begin + line.width);
                    map.set(rest, at * width + lines.length);
                });
                const whole = pool ?? [shownRows.length, width];
                return pooled(map, shownRows.length, width, whole, pool_type);
            });
        const { rows: R, columns: C } = maps[0];
        const data = new Float32Array(maps.length * R * C);
        maps.forEach(({ values }, i) => data.set(values, i * R * C));
        return { data, shape: [maps.length, R, C] };
    }

    async call(layer, fields, signal) {
        const { outputs } = fields,
            modifiers = fields.plain ? {} : sources.modifiersOf(layer, this.spec(layer)),
            other = Object.keys(modifiers).length > 0 || fields.top_k || fields.average_heads;
        if (!outputs?.includes("attention_weights") || other)
            return super.call(layer, fields, signal);
        const others = outputs.filter((name) => name !== "attention_weights");
        const { pool, pool_type, map_datatype, heads, rows, ...rest } = fields;
        const maps = { attention_weights: this.map(layer, fields) };
        if (others.length === 0) return maps;
        const selected = others.some((name) => refined.includes(name)) && heads ? { heads } : {};
        const asked = { ...rest, ...selected, outputs: others };
        return { ...(await super.call(layer, asked, signal)), ...maps };
    }
}

// ---- Steps --------------------------------------------------------------------------------------

/** Sends the newest row through all layers; after an error the session is as it was. */
async function step(progress) {
    const { session, supply, layers } = state.source,
        index = supply.length - 1,
        replies = new Map();
    let done = 0;
    try {
        for (const layer of layers) {
            const row = await supply.at(layer, state.source.spec(layer).hidden_size, index, 1);
            const fields = { layer, outputs: ["attention_weights"] };
            replies.set(layer, (await session.decode(row, fields)).attention_weights);
            progress(++done, layers.length);
        }
    } catch (/** @type {any} */ error) {
        supply.pop();
        await session.truncate(index).catch(() => {}); // the error to be told is the first one
        throw error;
    }
    for (const [layer, { data, shape }] of replies)
        state.source.lines.get(layer).push({ data, width: shape.at(-1) });
}

function lineBytes() {
    let bytes = 0;
    for (const lines of state.source.lines.values())
        for (const { data } of lines) bytes += data.byteLength;
    return bytes;
}

async function begin(base) {
    const { model, layers } = base,
        supply = new AddedSupply(base.supply);
    const session = await client().session({ model: model.name, ttl_s: TTL_S });
    remember(session.sessionId);
    state.source = new LiveSource({
        title: `live session, ${base.title}`,
        mark: base.mark,
        leftOut: base.leftOut,
        base,
        model,
        layers,
        supply,
        encoder: null,
        session,
        queryLabels: supply.labels,
        keyLabels: supply.labels,
    });
    for (const layer of layers) state.source.lines.set(layer, []);
}

/** Adds one row: the token that was typed, or the next of the rows that were loaded. */
async function add(base, typed) {
    const fresh = state.source === null;
    const done = await run("live", "A step through all layers", async (signal, progress) => {
        if (fresh) await begin(base);
        if (lineBytes() > MAX_LINE_BYTES)
            throw new InputError("This live session has as many lines as the page keeps (48 MB)");
        if (!typed && state.source.supply.taken >= state.source.supply.base.length)
            throw new InputError("All rows that were loaded have been added; type a token");
        state.source.supply.push(typed);
        await step(progress);
        return true;
    });
    if (!done) return fresh && end();
    if (typed) state.source.mark = "random rows: the pattern is not the model's on real text";
    sources.use(state.source);
    return announce(`token ${state.source.queries}, ${state.source.queryLabels.at(-1)}, added`);
}

/** Ends the session; `last`: the page goes away, and cannot wait. */
function end(last = false) {
    if (state.source === null) return;
    const { session } = state.source;
    state.source = null;
    const path = `${client().url}/sessions/${session.sessionId}`,
        headers = apiKey() ? { Authorization: `Bearer ${apiKey()}` } : {};
    if (last) fetch(path, { method: "DELETE", keepalive: true, headers });
    else session.end().catch((error) => showError("live", error));
}

// ---- Panel --------------------------------------------------------------------------------------

/** The controls. `chosen()` is the source whose rows a new session takes. */
export function panel(chosen) {
    const token = el("input", { data: { testid: "live-token" }, size: 12 });
    const told = el("p", { class: "muted", data: { testid: "live-state" } });
    const base = () => {
        const from = state.source ?? chosen();
        if (!from?.supply || from.encoder || (from.kind === "session" && from !== state.source))
            throw new InputError("Load rows for self-attention first: a text, a capture or a file");
        return from;
    };
    const guarded = (work) => () => {
        try {
            return work();
        } catch (/** @type {any} */ error) {
            return showError("live", error);
        }
    };
    const next = guarded(() => add(base(), null));
    const type = guarded(() => {
        const text = token.value.trim();
        if (text === "") throw new InputError("Type a token first");
        token.value = "";
        return add(base(), { token: text, seed: settings().seed });
    });
    token.addEventListener("keydown", (event) => event.key === "Enter" && type());
    const button = (text, testid, onclick) =>
        el("button", { type: "button", data: { testid }, onclick }, text);
    const back = button("Show it", "live-show", () => sources.use(state.source));
    const tell = (now) => {
        back.hidden = state.source === null || now === state.source;
        told.textContent = state.source
            ? `${state.source.queries} tokens in session ${state.source.session.sessionId}`
            : "Each row is one step through all layers, and a new line of every map.";
    };
    sources.onSource(tell);
    tell(null);
    addEventListener("pagehide", () => end(true));
    return [
        button("Add the next row", "live-next", next),
        labelled("or a token, as a random row", token),
        button("Add it", "live-add", type),
        button(
            "End the session",
            "live-end",
            guarded(() => {
                const [rows, isShown] = [state.source?.base, state.source === sources.current()];
                end();
                if (rows && isShown) sources.use(rows);
                else tell(sources.current());
            }),
        ),
        back,
        told,
    ];
}
