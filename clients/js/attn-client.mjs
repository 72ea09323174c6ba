/**
 * attn-client.mjs: a client of attnd in one file, for browsers and Node 18 or later.
 *
 *     import { Client } from "./attn-client.mjs";
 *
 *     const client = new Client("http://127.0.0.1:8080");
 *     const reply = await client.attend([[1, 0, 0, 0]], { outputs: ["output", "lse"] });
 *     reply.output.data;                                // Float32Array, row-major
 *     reply.output.shape;                               // [1, 4]
 *
 *     await client.withSession({ model: "tiny" }, async (session) => {   // ended afterwards
 *       await session.prefill(rows);                    // rows [n,E] of layer 0
 *       (await session.decode(row)).output;             // row [E]
 *     });
 *
 * A tensor is `{ data, shape }`, `data` being a typed array; nested arrays are taken too, in which
 * null stands for minus infinity. Tensors travel as bytes (docs/API.md, "Binary form"). The bits of
 * 16-bit numbers are sent as they are: `{ data: Uint16Array, shape, datatype: "BF16" }`, or "FP16".
 * Maps asked for with `map_datatype` "FP16" or "UINT8" come as the float32 numbers that these stand
 * for.
 *
 * A request that got no answer, or an error that is retryable, is sent again for `retryMs`, unless
 * that could apply it twice. Steps of a Session carry `position` and `epoch`: a step whose answer
 * was lost is answered again, and not appended again. Calls of one Session wait for each other.
 *
 * Only `fetch` is used. For a page of another origin attnd must list that origin in
 * `allow_origins`; a page served over https reaches an http daemon on its own machine only.
 */

/**
 * @typedef {{data: ArrayBufferView, shape: number[], datatype?: string}} Tensor
 * @typedef {Tensor | Array<any>} TensorLike
 * @typedef {Object<string, any>} Reply members of a reply by name, tensors as Tensor
 */

// ---- Errors -----------------------------------------------------------------------------------

const MOVING = ["wrong_instance", "draining"]; // errors of a session that is on its way
const LOST = ["connection_lost", "bad_reply"]; // errors of the clients, not of attnd

/**
 * A request that failed. Decide by `code` (docs/API.md, "Errors").
 * `kind` is "invalid", "unauthorized", "not_found", "conflict", "session_lost", "busy",
 * "unavailable", "connection" where no answer came or one that cannot be read (code "bad_reply"),
 * or "item" for an item of a list; with these two `status` is 0. `length` is, with
 * position_conflict and position_gap, the true length of the layer; `lowestLength`, with
 * position_forgotten, the least length, beside 0, to which the session can be truncated or forked;
 * `owner`, with wrong_instance, the shard that the session's id names.
 */
export class AttnError extends Error {
    constructor(code, message, facts = {}) {
        super(
            `${code}: ${message}` + (facts.request_id ? ` (request ${facts.request_id})` : ""),
            facts.cause ? { cause: facts.cause } : undefined,
        );
        this.name = "AttnError";
        this.code = code;
        this.status = facts.status ?? 0;
        this.param = facts.param ?? null;
        this.retryable = Boolean(facts.retryable);
        this.length = facts.length ?? null;
        this.owner = facts.owner ?? null;
        this.lowestLength = facts.lowest_length ?? null;
        this.requestId = facts.request_id ?? null;
        this.retryAfterMs = facts.retryAfterMs ?? 0;
    }

    /** @returns {string} the class of the error, by its status */
    get kind() {
        const kinds = {
            401: "unauthorized",
            403: "unauthorized",
            404: "not_found",
            409: "conflict",
            410: "session_lost",
            429: "busy",
        };
        if (this.status === 0) return LOST.includes(this.code) ? "connection" : "item";
        const unavailable = this.status >= 500 || MOVING.includes(this.code);
        return kinds[this.status] ?? (unavailable ? "unavailable" : "invalid");
    }
}

function errorOf(body, status, headers) {
    const ours = typeof body?.error === "object" && typeof body.error?.code === "string";
    const facts = ours ? body.error : { retryable: [502, 503, 504].includes(status) };
    const after = Number(headers?.get("Retry-After") ?? 0);
    const error = new AttnError(facts.code ?? `http_${status}`, facts.message ?? "not from attnd", {
        ...facts,
        status,
        request_id: facts.request_id ?? headers?.get("X-Request-Id"),
        retryAfterMs: Number.isFinite(after) ? 1000 * after : 0,
    });
    // config/haproxy/haproxy.cfg has errors of this form; with these two a request may have been applied.
    error.ours = ours && (![502, 504].includes(status) || error.code === "deadline_exceeded");
    return error;
}

// ---- Tensors ----------------------------------------------------------------------------------

const F32 = "FP32",
    I64 = "INT64",
    MASK = "BOOL";
const HALVES = ["FP16", "BF16"]; // instead of FP32, as bits in a Uint16Array
/** Fields that hold tensors, with the datatype that they are sent in. */
const TENSORS = {
    hidden_states: F32,
    encoder_hidden_states: F32,
    key_hidden_states: F32,
    value_hidden_states: F32,
    query: F32,
    key: F32,
    value: F32,
    past_key: F32,
    past_value: F32,
    attention_bias: F32,
    head_mask: F32,
    position_ids: I64,
    query_offset: I64,
    sliding_window: I64,
    heads: I64,
    rows: I64,
    pool: I64,
    targets: I64,
    padding_mask: MASK,
    attention_mask: MASK,
    encoder_padding_mask: MASK,
};
const ALIGNMENT = 64; // of the first tensor within a body
const LITTLE = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;

function shapeOf(value) {
    return Array.isArray(value) ? [value.length, ...shapeOf(value[0])] : [];
}

/** Checks that nested arrays have `shape`, and appends their numbers to `numbers`, row-major. */
function flatten(value, shape, depth, numbers) {
    if (
        Array.isArray(value) !== depth < shape.length ||
        (depth < shape.length && value.length !== shape[depth])
    )
        throw new TypeError("nested arrays of unequal length");
    if (depth === shape.length) numbers.push(value);
    else for (const item of value) flatten(item, shape, depth + 1, numbers);
    return numbers;
}

function numberOf(value, datatype) {
    if (datatype === MASK) {
        if (value !== true && value !== false && value !== 1 && value !== 0)
            throw new TypeError("a mask holds 1 (may attend) and 0, nothing else");
        return Number(value);
    }
    if (value === null && datatype === F32) return -Infinity;
    if (typeof value === "bigint" && datatype === I64) return value;
    if (typeof value !== "number" || (datatype === I64 && !Number.isSafeInteger(value)))
        throw new TypeError(`${String(value)} where ${datatype} is wanted`);
    return datatype === I64 ? BigInt(value) : value;
}

const isTensor = (value) => ArrayBuffer.isView(value?.data);

/** @returns {{datatype: string, shape: number[], bytes: Uint8Array}} a tensor as it is sent */
function pack(value, datatype) {
    const typed = isTensor(value);
    const shape = typed ? [...value.shape] : shapeOf(value);
    if (!typed && !Array.isArray(value))
        throw new TypeError("a tensor is { data, shape } or nested arrays");
    const same = { FP32: [Float32Array], INT64: [BigInt64Array, Int32Array], BOOL: [] }[datatype];
    let data = typed ? value.data : null;
    const half = datatype === F32 && data instanceof Uint16Array && HALVES.includes(value.datatype);
    if (!half && !same.some((type) => data instanceof type)) {
        const numbers = typed ? [...data] : flatten(value, shape, 0, []);
        const type = { FP32: Float32Array, INT64: BigInt64Array, BOOL: Uint8Array }[datatype];
        data = type.from(numbers, (number) => numberOf(number, datatype));
    }
    if (data.length !== shape.reduce((product, size) => product * size, 1))
        throw new TypeError(`${data.length} numbers do not make the shape [${shape}]`);
    if (!LITTLE && data.BYTES_PER_ELEMENT > 1)
        throw new TypeError("this machine is not little-endian");
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    if (half) return { datatype: value.datatype, shape, bytes };
    return { datatype: data instanceof Int32Array ? "INT32" : datatype, shape, bytes };
}

/** The number that the 16 bits of a half stand for. */
function numberOfHalf(bits) {
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    const sign = bits & 0x8000 ? -1 : 1;
    if (exponent === 31) return sign * (fraction === 0 ? Infinity : NaN);
    if (exponent === 0) return sign * fraction * 2 ** -24;
    return sign * (1024 + fraction) * 2 ** (exponent - 25);
}

let halves = null; // the numbers of all halves, made when the first is met

/** @param {Uint16Array} bits @returns {Float32Array} the numbers that halves stand for */
export function numbersOfHalves(bits) {
    halves ??= new Float32Array(65536).map((_, half) => numberOfHalf(half));
    return new Float32Array(bits).map((half) => halves[half]);
}

/** The float32 numbers of maps that travel in fewer bits; a map of bytes has a range. */
function widen({ datatype, shape, minimum, maximum }, bytes) {
    if (datatype === "FP16") return numbersOfHalves(new Uint16Array(bytes));
    const size = shape.slice(-2).reduce((product, n) => product * n, 1);
    const [least, most] = [minimum, maximum].map((ends) => [ends].flat(2));
    return new Float32Array(new Uint8Array(bytes)).map((byte, i) => {
        const map = Math.floor(i / size);
        return least[map] + ((most[map] - least[map]) * byte) / 255;
    });
}

/** Bytes of an element of a reply, at a multiple of which its tensor begins. */
const WIDTHS = { FP32: 4, UINT32: 4, FP16: 2, UINT8: 1 };

/** A view of the bytes where their place allows one, else a copy; FP16 and UINT8 as float32. */
function unpack(entry, buffer, begin, size) {
    const { datatype, shape } = entry;
    const type = { FP32: Float32Array, UINT32: Uint32Array }[datatype];
    const bytes = () => buffer.slice(begin, begin + size);
    if (type === undefined) return { data: widen(entry, bytes()), shape };
    const width = WIDTHS[datatype];
    if (begin % width === 0) return { data: new type(buffer, begin, size / width), shape };
    return { data: new type(bytes()), shape };
}

/** The body of a call. Masks come last, so that all float32 stays aligned. */
function bodyOf(fields) {
    const parts = [];
    const document = (from) => {
        const made = {};
        const names = Object.keys(from).filter(
            (name) => from[name] !== undefined && from[name] !== null,
        );
        for (const name of [
            ...names.filter((n) => TENSORS[n] !== MASK),
            ...names.filter((n) => TENSORS[n] === MASK),
        ]) {
            const value = from[name];
            if (name === "sequences") made[name] = value.map(document);
            else if (!TENSORS[name] || typeof value === "number") made[name] = value;
            else {
                const { datatype, shape, bytes } = pack(value, TENSORS[name]);
                made[name] = { shape, datatype, binary_data_size: bytes.length };
                parts.push(bytes);
            }
        }
        return made;
    };
    let head = new TextEncoder().encode(JSON.stringify(document(fields)));
    if (parts.length > 0) {
        const padded = new Uint8Array(Math.ceil(head.length / ALIGNMENT) * ALIGNMENT).fill(0x20);
        padded.set(head);
        head = padded;
    }
    const body = new Uint8Array(parts.reduce((sum, part) => sum + part.length, head.length));
    let offset = 0;
    for (const part of [head, ...parts]) {
        body.set(part, offset);
        offset += part.length;
    }
    return { body, headLength: head.length };
}

/** The members of a reply in JSON or in binary form; its tensors are views of `buffer`. */
function replyOf(headers, buffer) {
    const told = headers.get("Inference-Header-Content-Length");
    const binary = (headers.get("Content-Type") ?? "").startsWith("application/octet-stream");
    if (binary && told === null)
        // fetch shows a page only the headers that the server exposes
        throw new AttnError(
            "bad_reply",
            "Inference-Header-Content-Length is missing or not exposed",
        );
    const length = told === null ? buffer.byteLength : Number(told);
    if (length === 0) return {};
    let offset = length;
    const reviver = (value) => {
        if (Array.isArray(value)) return value.map(reviver);
        if (typeof value !== "object" || value === null) return value;
        if (value.binary_data_size !== undefined) {
            const width = WIDTHS[value.datatype];
            const begin = length + Math.ceil((offset - length) / width) * width;
            offset = begin + value.binary_data_size;
            if (offset > buffer.byteLength)
                throw new AttnError("bad_reply", "the reply is shorter than its tensors");
            return unpack(value, buffer, begin, value.binary_data_size);
        }
        return Object.fromEntries(
            Object.entries(value).map(([name, inner]) => [name, reviver(inner)]),
        );
    };
    let document;
    try {
        document = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 0, length)));
    } catch (cause) {
        throw new AttnError("bad_reply", "the reply is not JSON", { cause });
    }
    return reviver(document);
}

// ---- Client -----------------------------------------------------------------------------------

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A key that no other request has. Node 18 has no global `crypto`; nothing here is a secret. */
function token() {
    const bytes = new Uint8Array(16).map(() => 256 * Math.random());
    globalThis.crypto?.getRandomValues(bytes);
    return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The header by which a proxy finds the shard of a session; none for what is no id. */
const naming = (id) => (id && encodeURIComponent(id) === id ? { "X-Session-Id": id } : {});

/** The name of the shard that an id begins with; "" for an id that names none. */
const shardOf = (id) => (id.includes(".") ? id.slice(0, id.indexOf(".")) : "");

/** Calls of one attnd. */
export class Client {
    /**
     * @param {string} url http:// or https://
     * @param {object} [options]
     * @param {string} [options.apiKey] docs/OPERATIONS.md, "API keys"
     * @param {number} [options.timeoutMs] of one attempt, from its begin to its last byte [60000]
     * @param {number} [options.retryMs] for which a request is repeated; 0: sent once [30000]. A
     *     server that was never reached is not waited for: see `waitUntilReady`
     * @param {number} [options.deadlineMs] after which attnd no longer computes an answer
     * @param {typeof fetch} [options.fetch] instead of the global one
     */
    constructor(url = "http://127.0.0.1:8080", options = {}) {
        this.url = String(url).replace(/\/+$/, "");
        this.retryMs = options.retryMs ?? 30000;
        this.timeoutMs = options.timeoutMs ?? 60000;
        this.headers = options.apiKey ? { Authorization: `Bearer ${options.apiKey}` } : {};
        if (options.deadlineMs !== undefined)
            this.headers["X-Deadline-Ms"] = String(options.deadlineMs);
        this.fetch = options.fetch ?? ((...call) => globalThis.fetch(...call));
        this.answered = false;
        this.sharded = false; // a list goes to each shard apart, once one was in the wrong place
    }

    async #exchange(method, path, headers, body) {
        try {
            const reply = await this.fetch(this.url + path, {
                method,
                headers,
                body,
                cache: "no-store",
                credentials: "omit",
                redirect: "error",
                signal: AbortSignal.timeout(this.timeoutMs),
            });
            const buffer = await reply.arrayBuffer();
            this.answered = true;
            return { status: reply.status, headers: reply.headers, buffer };
        } catch (cause) {
            // fetch does not tell whether the request had been sent.
            throw new AttnError(
                "connection_lost",
                String(cause?.cause?.message ?? cause?.message ?? cause),
                { retryable: true, cause },
            );
        }
    }

    /**
     * @param {boolean} [again] whether sending the request twice has no other effect than once
     * @returns {Promise<{headers: Headers, buffer: ArrayBuffer}>} a reply below 400
     */
    async request(method, path, { body, headers = {}, again = true, retryMs = this.retryMs } = {}) {
        const until = Date.now() + retryMs;
        const sent = { ...this.headers, ...headers };
        for (let wait = 50; ; wait = Math.min(2 * wait, 2000)) {
            let error, repeat;
            try {
                const reply = await this.#exchange(method, path, sent, body);
                if (reply.status < 400) return reply;
                let facts = null;
                try {
                    facts = JSON.parse(new TextDecoder().decode(reply.buffer));
                } catch {
                    /* a page of a proxy */
                }
                error = errorOf(facts, reply.status, reply.headers);
                const late = "X-Deadline-Ms" in sent && error.code === "deadline_exceeded";
                repeat = error.retryable && (again || error.ours) && !late;
            } catch (lost) {
                error = lost;
                repeat = this.answered && again;
            }
            const ms = Math.max(wait * (0.5 + Math.random() / 2), error.retryAfterMs);
            if (!repeat || Date.now() + ms > until) throw error;
            await pause(ms);
        }
    }

    /** @param {string} [lead] of a list, one of its sessions */
    async call(path, fields, lead) {
        const { body, headLength } = bodyOf({ ...fields, binary_output: true });
        const id = fields.session_id;
        const headers = {
            "Content-Type": "application/octet-stream",
            "Inference-Header-Content-Length": String(headLength),
            ...naming(id ?? lead),
        };
        // A start over encoder rows that is sent again goes to the session that it has made.
        const again =
            id === undefined ||
            (fields.position !== undefined && !fields.start) ||
            (fields.encoder_hidden_states ?? null) !== null;
        const reply = await this.request("POST", path, { body, headers, again });
        return replyOf(reply.headers, reply.buffer);
    }

    async post(path, fields, headers = {}) {
        const { body, headLength } = bodyOf(fields);
        const sent = { "Content-Type": "application/json" };
        if (headLength < body.length) {
            sent["Content-Type"] = "application/octet-stream";
            sent["Inference-Header-Content-Length"] = String(headLength);
        }
        const reply = await this.request("POST", path, { body, headers: { ...sent, ...headers } });
        return replyOf(reply.headers, reply.buffer);
    }

    /** @param {string} [id] of the session in the path @returns {Promise<any>} the JSON of a GET */
    async get(path, id) {
        const reply = await this.request("GET", path, { headers: naming(id) });
        return replyOf(reply.headers, reply.buffer);
    }

    /**
     * Attention over given rows. Fields of docs/API.md stand in `fields` by their names; weightless
     * attention has `query`, `key` and `value` there, and no `hiddenStates`.
     * @param {TensorLike} [hiddenStates] [T,E] or [B,T,E]
     * @param {object} [fields] model, layer, outputs, attention_mask, padding_mask, ...
     * @returns {Promise<Reply>} output [B,T,E], attention_weights [B,H,T,S], lse [B,H,T], ...
     */
    attend(hiddenStates, fields = {}) {
        return this.call("/attend", { hidden_states: hiddenStates, ...fields });
    }

    /**
     * One step of each of several distinct sessions, of one model or of none, in one request.
     * @param {Array<[Session, TensorLike | object]>} steps each session with its rows, or with an
     *     object of fields: query, key and value for a session without weights, or hidden_states,
     *     and whatever else is its own. `fields` stand in every item that does not have them
     * @returns {Promise<Array<Reply | AttnError>>} in the same order. Where sessions are on several
     *     shards, each of these gets a request, and an error of one stands for each of its steps
     */
    async stepMany(steps, { layer = 0, ...fields } = {}) {
        const sessions = steps.map(([session]) => session);
        if (new Set(sessions.map((session) => session.sessionId)).size !== sessions.length)
            throw new TypeError("a session stands twice among the steps");
        return Session.alone(sessions, async () => {
            const sequences = steps.map(([session, rows]) => ({
                ...session.place(layer),
                ...fields,
                ...(isTensor(rows) || Array.isArray(rows) ? { hidden_states: rows } : rows),
            }));
            const replies = await this.#steps(sequences, layer);
            return replies.map((item, index) =>
                item instanceof AttnError ? item : sessions[index].took(layer, item),
            );
        });
    }

    /** The numbers of items by request: all in one, until an item turns out to be elsewhere. */
    #lists(items, numbers) {
        const lists = new Map();
        for (const number of numbers) {
            const shard = this.sharded ? shardOf(items[number].session_id) : "";
            lists.set(shard, [...(lists.get(shard) ?? []), number]);
        }
        return [...lists.values()];
    }

    /** One request; an error of it, where it is one of several, is that of each item. */
    async #list(items, layer, only) {
        try {
            const fields = { layer, sequences: items };
            return (await this.call("/decode", fields, items[0]?.session_id)).sequences;
        } catch (error) {
            if (only || !(error instanceof AttnError)) throw error;
            return items.map(() => error);
        }
    }

    /** Replies to items; those of sessions that are on their way are asked for again. */
    async #steps(items, layer) {
        const until = Date.now() + this.retryMs;
        const replies = new Array(items.length);
        let asked = [...items.keys()];
        for (let wait = 50; ; ) {
            for (const numbers of this.#lists(items, asked)) {
                const sent = numbers.map((number) => items[number]);
                const made = await this.#list(sent, layer, sent.length === items.length);
                for (const [index, number] of numbers.entries()) replies[number] = made[index];
            }
            asked = asked.filter((number) => MOVING.includes(replies[number].error?.code));
            if (asked.length === 0 || Date.now() + wait > until) return replies;
            if (!this.sharded && replies.some((reply) => reply.error?.code === "wrong_instance")) {
                this.sharded = true;
                continue;
            }
            await pause(wait * (0.5 + Math.random() / 2));
            wait = Math.min(2 * wait, 2000);
        }
    }

    /**
     * @param {{session_id?: string, model?: string, max_length?: number, ttl_s?: number,
     *     shared?: boolean, encoder_hidden_states?: TensorLike,
     *     encoder_padding_mask?: TensorLike}} [fields] encoder rows for a model of cross-attention;
     *     for a session without weights num_attention_heads, head_dim and what else docs/API.md has
     *     of its shape
     * @returns {Promise<Session>} a new session
     */
    async session(fields = {}) {
        return new Session(
            this,
            await this.post("/sessions", fields, {
                "Idempotency-Key": token(),
                ...naming(fields.session_id),
            }),
        );
    }

    /**
     * Runs `work` with a new session, and ends the session whatever comes of it.
     * @template T
     * @param {object} fields as of `session`
     * @param {(session: Session) => Promise<T>} work
     * @returns {Promise<T>} what `work` returns
     */
    async withSession(fields, work) {
        const session = await this.session(fields);
        let result;
        try {
            result = await work(session);
        } catch (error) {
            await session.end({ retryMs: 0 }).catch(() => {}); // must not hide or delay the error
            throw error;
        }
        await session.end();
        return result;
    }

    /**
     * A new session of a model of cross-attention. The encoder's rows are projected here, in all
     * layers; `decode` and `prefill` then attend to them and append nothing.
     * @param {TensorLike} encoderHiddenStates [S,Ek]
     * @param {TensorLike} hiddenStates rows of the first step; its reply is the session's `first`
     * @param {object} [fields] model, layer, session_id, encoder_padding_mask, outputs, ...  Without
     *     session_id attnd makes the id, which a proxy of several shards can route
     * @returns {Promise<Session>}
     */
    async start(encoderHiddenStates, hiddenStates, fields = {}) {
        const encoder_hidden_states = encoderHiddenStates;
        if (fields.session_id == null) {
            const { model, encoder_padding_mask, session_id: _, ...step } = fields;
            const made = { model, encoder_hidden_states, encoder_padding_mask };
            const session = await this.session(made);
            try {
                session.first = await session.decode(hiddenStates, step);
            } catch (error) {
                await session.end({ retryMs: 0 }).catch(() => {}); // nobody else knows the id
                throw error;
            }
            return session;
        }
        const first = await this.call("/decode", {
            layer: 0,
            ...fields,
            start: true,
            encoder_hidden_states,
            hidden_states: hiddenStates,
        });
        const session = await this.open(fields.session_id);
        session.first = first;
        return session;
    }

    /** @returns {Promise<Session>} a session that is there */
    async open(sessionId) {
        const path = `/sessions/${encodeURIComponent(sessionId)}`;
        return new Session(this, await this.get(path, sessionId));
    }

    /** @returns {Promise<Session>} of what Session.export gave; not repeated if no answer comes */
    async restore(sessionId, state) {
        const reply = await this.request("PUT", `/sessions/${encodeURIComponent(sessionId)}/state`, {
            body: state,
            again: false,
            headers: { "Content-Type": "application/octet-stream", ...naming(sessionId) },
        });
        return new Session(this, replyOf(reply.headers, reply.buffer));
    }

    /** Yields all sessions, `limit` to a request. */
    async *sessions(limit = 100) {
        for (let after = ""; after !== null;) {
            const page = await this.get(
                `/sessions?limit=${limit}${after ? `&after=${encodeURIComponent(after)}` : ""}`,
            );
            yield* page.sessions;
            after = page.next;
        }
    }

    /** @returns {Promise<object[]>} the models, as GET /models has them */
    async models() {
        return (await this.get("/models")).models;
    }

    /** @returns {Promise<object>} one model, as GET /models/{name} has it */
    model(name) {
        return this.get(`/models/${encodeURIComponent(name)}`);
    }

    /** @returns {Promise<boolean>} whether requests are served now; asks once */
    async ready() {
        try {
            await this.request("GET", "/readyz", { retryMs: 0 });
            return true;
        } catch (error) {
            if (error.kind === "connection" || error.kind === "unavailable") return false;
            throw error;
        }
    }

    /** Returns once requests are served; throws after `ms`. */
    async waitUntilReady(ms = 60000) {
        for (const until = Date.now() + ms; !(await this.ready()); await pause(100))
            if (Date.now() > until)
                throw new AttnError("connection_lost", `not ready within ${ms} ms`);
    }
}

/** Keys and values of one sequence in every layer of one model. Made by a Client. */
export class Session {
    #last = Promise.resolve();

    /** @param {Client} client @param {object} facts as GET /sessions/{id} has them */
    constructor(client, facts) {
        this.client = client;
        this.sessionId = facts.session_id;
        this.model = facts.model;
        this.epoch = facts.epoch;
        /** @type {Reply | null} the reply to the step that `Client.start` has made */
        this.first = null;
        this.#note(facts);
    }

    #note(facts) {
        /** @type {Object<number, number>} tokens of each layer, as far as answers have told */
        this.lengths = Object.fromEntries(
            facts.lengths.map(({ layer, length }) => [layer, length]),
        );
    }

    /** Runs `work` once all calls before it, of all `sessions`, are answered. */
    static alone(sessions, work) {
        const done = Promise.all(sessions.map((session) => session.#last)).then(work);
        const settled = done.then(
            () => {},
            () => {},
        );
        for (const session of sessions) session.#last = settled;
        return done;
    }

    /** The members of a step that say where it goes. */
    place(layer) {
        return {
            session_id: this.sessionId,
            position: this.lengths[layer] ?? 0,
            epoch: this.epoch,
        };
    }

    /** Notes the length after a step; an error of an item becomes an AttnError. */
    took(layer, reply) {
        if (reply.error) return errorOf(reply, 0);
        this.lengths[layer] = reply.length;
        return reply;
    }

    #step(path, rows, { layer = 0, ...fields }) {
        return Session.alone([this], async () =>
            this.took(
                layer,
                await this.client.call(path, {
                    ...this.place(layer),
                    layer,
                    hidden_states: rows,
                    ...fields,
                }),
            ),
        );
    }

    /**
     * Appends rows [n,E] to a layer and attends over all it has.  Without weights `fields` have
     * query [H,n,D], key [G,n,D] and value [G,n,Dv], and hiddenStates is undefined.
     * @param {TensorLike} [hiddenStates] @param {object} [fields] layer, outputs, ...
     * @returns {Promise<Reply>} output [n,E], position, length
     */
    prefill(hiddenStates, fields = {}) {
        return this.#step("/attend", hiddenStates, fields);
    }

    /** The same for one row [E] (`output` is [E] too) or a few; `commit: false` appends nothing. */
    decode(hiddenStates, fields = {}) {
        return this.#step("/decode", hiddenStates, fields);
    }

    /** Reads `lengths` again, after a conflict. @returns {Promise<object>} as GET /sessions/{id} */
    refresh() {
        return Session.alone([this], async () => {
            const facts = await this.client.get(`/sessions/${this.sessionId}`, this.sessionId);
            if (facts.epoch !== this.epoch)
                throw new AttnError("epoch_mismatch", "the session was deleted and remade", {
                    status: 409,
                });
            this.#note(facts);
            return facts;
        });
    }

    /**
     * @param {{session_id?: string, length?: number}} [fields]
     * @returns {Promise<Session>} with the first `length` tokens of each layer, or all
     */
    fork(fields = {}) {
        return Session.alone(
            [this],
            async () =>
                new Session(
                    this.client,
                    await this.client.post(
                        `/sessions/${this.sessionId}/fork`,
                        { ...fields, epoch: this.epoch },
                        { "Idempotency-Key": token(), ...naming(this.sessionId) },
                    ),
                ),
        );
    }

    /** Forgets all but the first `length` tokens of each layer. */
    truncate(length) {
        return Session.alone([this], async () =>
            this.#note(
                await this.client.post(
                    `/sessions/${this.sessionId}/truncate`,
                    { length, epoch: this.epoch },
                    naming(this.sessionId),
                ),
            ),
        );
    }

    /** @returns {Promise<ArrayBuffer>} a safetensors file, for Client.restore */
    export() {
        return Session.alone(
            [this],
            async () =>
                (
                    await this.client.request("GET", `/sessions/${this.sessionId}/state`, {
                        headers: {
                            Accept: "application/octet-stream",
                            ...naming(this.sessionId),
                        },
                    })
                ).buffer,
        );
    }

    /** Ends the session; one that is gone already is no error. */
    end(options = {}) {
        return Session.alone([this], async () => {
            try {
                await this.client.request("DELETE", `/sessions/${this.sessionId}`, {
                    headers: naming(this.sessionId),
                    ...options,
                });
            } catch (error) {
                if (!["not_found", "session_lost"].includes(error.kind)) throw error;
            }
        });
    }
}
