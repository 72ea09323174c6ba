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
 * A tensor is `{ data, shape }`, `data` being a typed array or an array of numbers; `dims` stands
 * for `shape` too, as in ONNX Runtime. Nested arrays, of numbers, in which null stands for minus
 * infinity, or of typed arrays, are taken too. Tensors travel as bytes (docs/API.md, "Binary
 * form"). The bits of 16-bit numbers are sent as they are, `data` a Uint16Array, with `datatype`
 * "BF16" or "FP16". Maps asked for with `map_datatype` "FP16" or "UINT8" come as the float32
 * numbers that these stand for.
 *
 * A request that got no answer, or an error that is retryable, is sent again for `retryMs`, unless
 * that could apply it twice. Steps of a Session carry `position`, `epoch` and `revision`: a step
 * whose answer was lost is answered again, and not appended again, and a step, truncation or end
 * that arrives late changes nothing. Calls of one Session wait for each other. `signal`, an
 * AbortSignal among the fields of a call, ends it at once with an error of code "cancelled".
 *
 * Only `fetch` is used. For a page of another origin attnd must list that origin in
 * `allow_origins`; a page served over https reaches an http daemon on its own machine only.
 */

/* Types for TypeScript stand in attn-client.d.mts. */

// ---- Errors -----------------------------------------------------------------------------------

const MOVING = ["wrong_instance", "draining"]; // errors of a session that is on its way
const GONE = ["session_not_found", "session_lost", "epoch_mismatch"]; // of one that is to end
/** The kinds of this client's own errors, by their code. */
const OWN = {
    connection_lost: "connection",
    bad_reply: "connection",
    cancelled: "cancelled",
    invalid_argument: "invalid",
};

/**
 * A request that failed. Decide by `code` (docs/API.md, "Errors").
 * `kind` is "invalid", "unauthorized", "not_found", "conflict", "session_lost", "busy",
 * "unavailable"; or with `status` 0 "connection" where no answer came or one that is not attnd's
 * (code "bad_reply"), "cancelled" by a signal, "invalid" where this client refuses to send what
 * `param` names (code "invalid_argument"), or "item" for an item of a list. `length` is, with
 * position_conflict, position_gap and revision_mismatch, the true length of the layer;
 * `lowestLength`, with position_conflict and position_forgotten, the least length, beside 0, to which the session can be truncated or forked;
 * `epoch` and `revision`, with revision_mismatch, those that the session has; `owner`, with
 * wrong_instance, the shard that the session's id names.
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
        this.epoch = facts.epoch ?? null;
        this.revision = facts.revision ?? null;
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
        if (this.status === 0) return OWN[this.code] ?? "item";
        const unavailable = this.status >= 500 || MOVING.includes(this.code);
        return kinds[this.status] ?? (unavailable ? "unavailable" : "invalid");
    }
}

const invalid = (param, why) => new AttnError("invalid_argument", `${param}: ${why}`, { param });
const badReply = (why, cause) => new AttnError("bad_reply", `${why}: is this attnd?`, { cause });

/** The error of a call whose signal, or fetch, was aborted; its name is that of the reason. */
function cancelled(cause) {
    const error = new AttnError("cancelled", String(cause?.message ?? cause), { cause });
    error.name = cause?.name ?? "AbortError";
    return error;
}

/** The error of a reply that is none of attnd's: where it redirects to, without its query. */
function foreign(status, headers) {
    if (status >= 400) return "not from attnd";
    const place = (headers?.get("Location") ?? "another page").split("?")[0].slice(0, 200);
    return `redirected to ${place}, which is not followed: is this the URL of attnd?`;
}

function errorOf(body, status, headers) {
    const ours = typeof body?.error === "object" && typeof body.error?.code === "string";
    const facts = ours ? body.error : { retryable: [502, 503, 504].includes(status) };
    const after = Number(headers?.get("Retry-After") ?? 0);
    const message = facts.message ?? (status ? foreign(status, headers) : "not from attnd");
    const error = new AttnError(facts.code ?? `http_${status}`, message, {
        ...facts,
        status,
        request_id: facts.request_id ?? headers?.get("X-Request-Id"),
        retryAfterMs: Number.isFinite(after) ? 1000 * after : 0,
    });
    // config/haproxy/haproxy.cfg has errors of this form too; with 502 and 504 the request may have
    // been applied.
    error.ours = ours && (![502, 504].includes(status) || error.code === "deadline_exceeded");
    return error;
}

// ---- Tensors ----------------------------------------------------------------------------------

const F32 = "FP32",
    I64 = "INT64",
    MASK = "BOOL";
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
    grid: I64,
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

const isTyped = (value) => ArrayBuffer.isView(value) && !(value instanceof DataView);
const isList = (value) => Array.isArray(value) || isTyped(value);
/** Whether it is a tensor by its members, and not fields of a step. */
const isTensor = (value) => isList(value) || isList(value?.data);

const shapeOf = (value) => (isList(value) ? [value.length, ...shapeOf(value[0])] : []);

/** Checks that nested arrays have `shape`, and appends their numbers to `numbers`, row-major. */
function flatten(value, shape, depth, numbers) {
    if (isList(value) !== depth < shape.length || (isList(value) && value.length !== shape[depth]))
        throw new TypeError("nested arrays of unequal length");
    if (depth === shape.length) numbers.push(value);
    else for (const item of value) flatten(item, shape, depth + 1, numbers);
    return numbers;
}

function numberOf(value, datatype) {
    if (datatype === MASK) {
        if (![true, false, 1, 0, 1n, 0n].includes(value))
            throw new TypeError("a mask holds 1 (may attend) and 0, nothing else");
        return Number(value);
    }
    if (value === null && datatype === F32) return -Infinity;
    if (typeof value === "bigint" && datatype === I64) return value;
    if (typeof value !== "number" || (datatype === I64 && !Number.isSafeInteger(value)))
        throw new TypeError(`${String(value)} where ${datatype} is wanted`);
    return datatype === I64 ? BigInt(value) : value;
}

const HALVES_OF = { float16: "FP16", bfloat16: "BF16", FP16: "FP16", BF16: "BF16" };
const TYPES = { FP32: Float32Array, INT64: BigInt64Array, BOOL: Uint8Array };
const SAME = { FP32: [Float32Array], INT64: [BigInt64Array, Int32Array], BOOL: [] };

/** @returns {{datatype: string, shape: number[], bytes: Uint8Array}} a tensor as it is sent */
function pack(value, datatype) {
    if (!isTensor(value)) throw new TypeError("a tensor is { data, shape } or nested arrays");
    const given = isList(value) ? value : value.data;
    const stated = isList(value) ? null : (value.shape ?? value.dims);
    const half =
        datatype === F32 && given instanceof Uint16Array
            ? HALVES_OF[value.datatype ?? value.type]
            : undefined;
    let data = given;
    let shape = stated ? [...stated] : shapeOf(given);
    if (half === undefined && !SAME[datatype].some((type) => data instanceof type)) {
        if (!isTyped(given)) data = flatten(given, shapeOf(given), 0, []);
        data = TYPES[datatype].from(data, (number) => numberOf(number, datatype));
    }
    if (data.length !== shape.reduce((product, size) => product * size, 1))
        throw new TypeError(`${data.length} numbers do not make the shape [${shape}]`);
    if (!LITTLE && data.BYTES_PER_ELEMENT > 1)
        throw new TypeError("this machine is not little-endian");
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    const kind = data instanceof Int32Array ? "INT32" : datatype;
    return { datatype: half ?? kind, shape, bytes };
}

/** What JSON has for the value of a field that is no tensor. */
function plain(value) {
    if (value instanceof Set) return [...value].map(plain);
    if (typeof value === "bigint" && Number.isSafeInteger(Number(value))) return Number(value);
    if (typeof value === "number" && !Number.isFinite(value))
        throw new TypeError(`JSON has no ${value}`);
    if (typeof value === "function" || typeof value === "symbol" || typeof value === "bigint")
        throw new TypeError(`${String(value)} is nothing that JSON has`);
    return isTyped(value) ? Array.from(value, plain) : value;
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
    const document = (from, where = "") => {
        const made = {};
        const names = Object.keys(from).filter(
            (name) => from[name] !== undefined && from[name] !== null,
        );
        for (const name of [
            ...names.filter((n) => TENSORS[n] !== MASK),
            ...names.filter((n) => TENSORS[n] === MASK),
        ]) {
            const value = from[name];
            try {
                if (name === "sequences")
                    made[name] = value.map((item, i) => document(item, `sequences[${i}].`));
                else if (!TENSORS[name] || typeof value === "number" || value.input)
                    made[name] = plain(value);
                else {
                    const { datatype, shape, bytes } = pack(value, TENSORS[name]);
                    made[name] = { shape, datatype, binary_data_size: bytes.length };
                    parts.push(bytes);
                }
            } catch (error) {
                if (error instanceof AttnError) throw error;
                throw invalid(where + name, error.message);
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
function replyOf({ headers, buffer }) {
    const told = headers.get("Inference-Header-Content-Length");
    const binary = (headers.get("Content-Type") ?? "").startsWith("application/octet-stream");
    if (binary && told === null)
        // fetch shows a page only the headers that the server exposes
        throw badReply("Inference-Header-Content-Length is missing or not exposed");
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
            if (!(offset <= buffer.byteLength))
                throw badReply("the reply is shorter than its tensors");
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
        throw badReply("the reply is not JSON", cause);
    }
    if (typeof document !== "object" || document === null || Array.isArray(document))
        throw badReply("the reply is no JSON object");
    try {
        return reviver(document);
    } catch (cause) {
        if (cause instanceof AttnError) throw cause;
        throw badReply("the reply is not as attnd writes it", cause);
    }
}

/** The reply, where its members are of these types. */
function has(reply, members) {
    for (const [name, type] of Object.entries(members)) {
        const value = reply?.[name];
        if (type === Array ? !Array.isArray(value) : typeof value !== type)
            throw badReply(`the reply has no \`${name}\``);
    }
    return reply;
}

// ---- Client -----------------------------------------------------------------------------------

/** What `work` gives, or an error as soon as the signal says so. */
function unless(signal, work) {
    if (!signal) return work;
    return new Promise((resolve, reject) => {
        const stop = () => reject(cancelled(signal.reason));
        if (signal.aborted) stop();
        signal.addEventListener("abort", stop);
        work.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
    });
}

/** Waits; a signal ends that. */
async function pause(ms, signal) {
    let timer;
    const waited = new Promise((resolve) => (timer = setTimeout(resolve, ms)));
    await unless(signal, waited).finally(() => clearTimeout(timer));
}

function milliseconds(name, value) {
    if (typeof value !== "number" || !(value >= 0 && value < 2 ** 31))
        throw invalid(name, `${String(value)} is no number of milliseconds`);
    return value;
}

/** `text` as a header that names who calls; what is wrong with it is told without it. */
function secret(name, scheme, text) {
    if (!/^[\x21-\x7e]*$/.test(text))
        throw invalid(name, "it holds a character that no header can");
    return text ? { Authorization: `${scheme} ${text}` } : {};
}

/** The URL without its user, and the header that says who calls: by an API key, or by that user. */
function addressOf(url, apiKey) {
    const text = String(url).replace(/\/+$/, "");
    const user = /^(https?:\/\/)([^/?#]*)@/i.exec(text);
    if (!user)
        return { url: text, headers: secret("apiKey", "Bearer", String(apiKey ?? "").trim()) };
    if (apiKey) throw invalid("url", "its user stands where apiKey would: give one of them");
    let named;
    try {
        named = user[2].split(/:(.*)/s).slice(0, 2).map(decodeURIComponent).join(":");
    } catch {
        throw invalid("url", "its user or password is malformed");
    }
    if (!user[2].includes(":")) named += ":";
    const bytes = new TextEncoder().encode(named);
    const basic = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
    return { url: user[1] + text.slice(user[0].length), headers: secret("url", "Basic", basic) };
}

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

/** The error of an item of a reply, or of its request; null of one that succeeded. */
function errorIn(item) {
    if (item instanceof AttnError) return item;
    if (typeof item !== "object" || item === null)
        throw badReply("an item of the reply is no object");
    return item.error ? errorOf(item, 0) : null;
}

/** Calls of one attnd. */
export class Client {
    /**
     * @param {string} url http:// or https://; its user and password are sent as a proxy's login
     * @param {object} [options]
     * @param {string} [options.apiKey] docs/OPERATIONS.md, "API keys"
     * @param {number} [options.timeoutMs] of one attempt, from its begin to its last byte [60000]
     * @param {number} [options.retryMs] for which a request is repeated; 0: sent once [30000]. A
     *     server that was never reached is not waited for: see `waitUntilReady`
     * @param {number} [options.deadlineMs] after which attnd no longer computes an answer
     * @param {typeof fetch} [options.fetch] instead of the global one
     */
    constructor(url = "http://127.0.0.1:8080", options = {}) {
        const { url: address, headers } = addressOf(url, options.apiKey);
        this.url = address;
        this.headers = headers;
        this.retryMs = milliseconds("retryMs", options.retryMs ?? 30000);
        this.timeoutMs = milliseconds("timeoutMs", options.timeoutMs ?? 60000);
        if (options.deadlineMs !== undefined)
            this.headers["X-Deadline-Ms"] = String(milliseconds("deadlineMs", options.deadlineMs));
        this.fetch = options.fetch ?? ((...call) => globalThis.fetch(...call));
        this.answered = false;
        this.sharded = false; // a list goes to each shard apart, once one was in the wrong place
    }

    async #exchange(method, path, headers, body, signal) {
        const controller = new AbortController();
        const stop = () => controller.abort(signal.reason);
        const late = () => controller.abort(new DOMException("no answer came", "TimeoutError"));
        const timer = setTimeout(late, this.timeoutMs);
        if (signal?.aborted) stop();
        signal?.addEventListener("abort", stop);
        try {
            const reply = await this.fetch(this.url + path, {
                method,
                headers,
                body,
                cache: "no-store",
                credentials: "omit",
                redirect: "manual",
                signal: controller.signal,
            });
            const buffer = await reply.arrayBuffer();
            this.answered = true;
            // Of a redirect a page sees no more than that it is one.
            const status = reply.type === "opaqueredirect" ? 302 : reply.status;
            return { status, headers: reply.headers, buffer };
        } catch (cause) {
            if (signal?.aborted) throw cancelled(signal.reason);
            if (cause?.name === "AbortError") throw cancelled(cause); // by a fetch of the caller's
            // fetch does not tell whether the request had been sent.
            throw new AttnError(
                "connection_lost",
                String(cause?.cause?.message ?? cause?.message ?? cause),
                { retryable: true, cause },
            );
        } finally {
            clearTimeout(timer);
            signal?.removeEventListener("abort", stop);
        }
    }

    /**
     * @param {boolean} [again] whether sending the request twice has no other effect than once
     * @returns {Promise<{headers: Headers, buffer: ArrayBuffer}>} a reply below 300
     */
    async request(method, path, options = {}) {
        const { body, headers = {}, again = true, retryMs = this.retryMs, signal } = options;
        const until = Date.now() + retryMs;
        const sent = { ...this.headers, ...headers };
        for (let wait = 50; ; wait = Math.min(2 * wait, 2000)) {
            let error, repeat;
            try {
                const reply = await this.#exchange(method, path, sent, body, signal);
                if (reply.status < 300) return reply;
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
                repeat = lost.retryable && this.answered && again;
            }
            const ms = Math.max(wait * (0.5 + Math.random() / 2), error.retryAfterMs);
            if (!repeat || Date.now() + ms > until) throw error;
            await pause(ms, signal);
        }
    }

    /** @param {string} [lead] of a list, one of its sessions */
    async call(path, { signal, ...fields }, lead) {
        const { body, headLength } = bodyOf({ ...fields, binary_output: true });
        const id = fields.session_id;
        const headers = {
            "Content-Type": "application/octet-stream",
            "Inference-Header-Content-Length": String(headLength),
            ...naming(id ?? lead),
        };
        // A start over encoder rows that is sent again goes to the session that it has made.
        const again = (fields.sequences ?? [fields]).every(
            (item) =>
                item.session_id == null ||
                (item.position != null && !item.start) ||
                item.encoder_hidden_states != null,
        );
        return replyOf(await this.request("POST", path, { body, headers, again, signal }));
    }

    async post(path, { signal, ...fields }, headers = {}) {
        const { body, headLength } = bodyOf(fields);
        const sent = { "Content-Type": "application/json" };
        if (headLength < body.length) {
            sent["Content-Type"] = "application/octet-stream";
            sent["Inference-Header-Content-Length"] = String(headLength);
        }
        const all = { ...sent, ...headers };
        return replyOf(await this.request("POST", path, { body, headers: all, signal }));
    }

    /** @param {string} [id] of the session in the path @returns {Promise<any>} the JSON of a GET */
    async get(path, id, { signal } = {}) {
        return replyOf(await this.request("GET", path, { headers: naming(id), signal }));
    }

    /**
     * Attention over given rows. Fields of docs/API.md stand in `fields` by their names; weightless
     * attention has `query`, `key` and `value` there, and no `hiddenStates`.
     * @param {TensorLike} [hiddenStates] [T,E] or [B,T,E]
     * @param {object} [fields] model, layer, outputs, attention_mask, padding_mask, ..., signal
     * @returns {Promise<Reply>} output [B,T,E], attention_weights [B,H,T,S], lse [B,H,T], ...
     */
    async attend(hiddenStates, fields = {}) {
        const reply = await this.call("/attend", { hidden_states: hiddenStates, ...fields });
        for (const name of fields.outputs ?? ["output"]) has(reply, { [name]: "object" });
        return reply;
    }

    /**
     * One step of each of several distinct sessions, of one model or of none, in one request.
     * @param {Array<[Session, TensorLike | object]>} steps each session with its rows, or with an
     *     object of fields: query, key and value for a session without weights, or hidden_states,
     *     and whatever else is its own. `fields` stand in every item that does not have them
     * @returns {Promise<Array<Reply | AttnError>>} in the same order. Where sessions are on several
     *     shards, each of these gets a request, and an error of one stands for each of its steps
     */
    async stepMany(steps, { layer = 0, signal, ...fields } = {}) {
        const sessions = steps.map(([session]) => session);
        const ids = sessions.map((session) => session.sessionId);
        if (new Set(ids).size !== ids.length) throw invalid("steps", "a session stands twice");
        const work = async () => {
            const sequences = steps.map(([session, rows]) => ({
                ...session.place(layer),
                ...fields,
                ...(isTensor(rows) ? { hidden_states: rows } : rows),
            }));
            const ask = async (places) => {
                const items = places.map((place) => sequences[place]);
                const sent = { layer, sequences: items, signal };
                const reply = await this.call("/decode", sent, ids[places[0]]);
                return has(reply, { sequences: Array }).sequences;
            };
            const replies = await this.#askShards(ids, ask, signal);
            return replies.map((item, place) => sessions[place].took(layer, item));
        };
        return Session.alone(sessions, work, signal);
    }

    /**
     * Forks and ends sessions, up to 64 of each, in one request: first all forks.
     * @param {{fork?: Array<Session | [Session, {session_id?: string, length?: number}]>,
     *     end?: Session[], signal?: AbortSignal}} what a session that is gone already ends, too
     * @returns {Promise<{forks: Array<Session | AttnError>, ends: Array<null | AttnError>}>} in the
     *     same order: one that fails does not stop the others
     */
    async batch({ fork = [], end = [], signal } = {}) {
        const pairs = fork.map((item) => (Array.isArray(item) ? item : [item, {}]));
        const sources = pairs.map(([session]) => session);
        const all = [...sources, ...end];
        if (all.length === 0) return { forks: [], ends: [] };
        const work = async () => {
            const items = [
                ...pairs.map(([session, fields]) => ({
                    ...fields,
                    from: session.sessionId,
                    ...session.claim(),
                })),
                ...end.map(({ sessionId, epoch }) => ({ session_id: sessionId, epoch })),
            ];
            const ids = all.map((session) => session.sessionId);
            const ask = async (places) => {
                const sent = { fork: [], delete: [] };
                for (const place of places)
                    sent[place < pairs.length ? "fork" : "delete"].push(items[place]);
                for (const name of ["fork", "delete"])
                    if (sent[name].length === 0) delete sent[name];
                const headers = { "Idempotency-Key": token(), ...naming(ids[places[0]]) };
                const reply = await this.post("/sessions/batch", { ...sent, signal }, headers);
                return Object.keys(sent).flatMap((name) => has(reply, { [name]: Array })[name]);
            };
            const replies = await this.#askShards(ids, ask, signal);
            const errors = replies.map(errorIn);
            const isGone = (error) => error === null || GONE.includes(error.code);
            return {
                forks: pairs.map((_, place) => errors[place] ?? new Session(this, replies[place])),
                ends: errors.slice(pairs.length).map((error) => (isGone(error) ? null : error)),
            };
        };
        return Session.alone(all, work, signal);
    }

    /** The places of items by request: all in one, until an item turns out to be elsewhere. */
    #lists(ids, places) {
        const lists = new Map();
        for (const place of places) {
            const shard = this.sharded ? shardOf(ids[place]) : "";
            lists.set(shard, [...(lists.get(shard) ?? []), place]);
        }
        return [...lists.values()];
    }

    /** One request; an error of it, where it is one of several, is that of each item. */
    async #askShard(places, ask, only) {
        try {
            const made = await ask(places);
            if (made.length === places.length) return made;
            throw badReply(`the reply has ${made.length} items for ${places.length}`);
        } catch (error) {
            if (only || !(error instanceof AttnError)) throw error;
            return places.map(() => error);
        }
    }

    /** Replies to items of sessions; those that are on their way are asked for again. */
    async #askShards(ids, ask, signal) {
        const until = Date.now() + this.retryMs;
        const replies = new Array(ids.length);
        let asked = [...ids.keys()];
        for (let wait = 50; ;) {
            for (const places of this.#lists(ids, asked)) {
                const made = await this.#askShard(places, ask, places.length === ids.length);
                for (const [index, place] of places.entries()) replies[place] = made[index];
            }
            asked = asked.filter((place) => MOVING.includes(replies[place]?.error?.code));
            if (asked.length === 0 || Date.now() + wait > until) return replies;
            if (!this.sharded && replies.some((reply) => reply.error?.code === "wrong_instance")) {
                this.sharded = true;
                continue;
            }
            await pause(wait * (0.5 + Math.random() / 2), signal);
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
     * @param {object} [fields] model, layer, session_id, encoder_padding_mask, outputs, ... Without
     *     session_id attnd makes the id, which a proxy of several shards can route
     * @returns {Promise<Session>}
     */
    async start(encoderHiddenStates, hiddenStates, fields = {}) {
        const encoder_hidden_states = encoderHiddenStates;
        if (fields.session_id == null) {
            const { model, encoder_padding_mask, session_id: _, ...step } = fields;
            const { signal } = fields;
            const made = { model, encoder_hidden_states, encoder_padding_mask, signal };
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
        const session = await this.open(fields.session_id, fields);
        session.first = first;
        return session;
    }

    /** @returns {Promise<Session>} a session that is there */
    async open(sessionId, options = {}) {
        const path = `/sessions/${encodeURIComponent(sessionId)}`;
        return new Session(this, await this.get(path, sessionId, options));
    }

    /** @returns {Promise<Session>} of what Session.export gave; not repeated if no answer comes */
    async restore(sessionId, state, { signal } = {}) {
        const reply = await this.request(
            "PUT",
            `/sessions/${encodeURIComponent(sessionId)}/state`,
            {
                body: state,
                again: false,
                signal,
                headers: { "Content-Type": "application/octet-stream", ...naming(sessionId) },
            },
        );
        return new Session(this, replyOf(reply));
    }

    /** Yields all sessions, `limit` to a request. */
    async *sessions(limit = 100) {
        for (let after = ""; after !== null;) {
            const page = await this.get(
                `/sessions?limit=${limit}${after ? `&after=${encodeURIComponent(after)}` : ""}`,
            );
            yield* has(page, { sessions: Array }).sessions;
            after = typeof page.next === "string" ? page.next : null;
        }
    }

    /** @returns {Promise<object[]>} the models, as GET /models has them */
    async models(options = {}) {
        return has(await this.get("/models", undefined, options), { models: Array }).models;
    }

    /** @returns {Promise<object>} one model, as GET /models/{name} has it */
    async model(name, options = {}) {
        const path = `/models/${encodeURIComponent(name)}`;
        return has(await this.get(path, undefined, options), { name: "string" });
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
        has(facts, { session_id: "string", epoch: "number" });
        this.client = client;
        this.sessionId = facts.session_id;
        this.model = facts.model;
        this.epoch = facts.epoch;
        /** @type {Reply | null} the reply to the step that `Client.start` has made */
        this.first = null;
        this.#note(facts);
    }

    #note(facts) {
        /** New at each truncation; null: of an attnd without them. @type {number | null} */
        this.revision = facts.revision ?? null;
        /** @type {Object<number, number>} tokens of each layer, as far as answers have told */
        this.lengths = Object.fromEntries(
            has(facts, { lengths: Array }).lengths.map(({ layer, length }) => [layer, length]),
        );
    }

    /** Runs `work` once all calls before it, of all `sessions`, are answered. */
    static alone(sessions, work, signal) {
        const done = Promise.all(sessions.map((session) => session.#last)).then(() => {
            if (signal?.aborted) throw cancelled(signal.reason);
            return work();
        });
        const settled = done.then(
            () => {},
            () => {},
        );
        for (const session of sessions) session.#last = settled;
        return unless(signal, done);
    }

    /** The members of a request that say which session the caller believes this to be. */
    claim() {
        const { epoch, revision } = this;
        return revision === null ? { epoch } : { epoch, revision };
    }

    /** The members of a step that say where it goes. */
    place(layer) {
        return {
            session_id: this.sessionId,
            position: this.lengths[layer] ?? 0,
            ...this.claim(),
        };
    }

    /** Notes the length after a step; an error of an item becomes an AttnError. */
    took(layer, reply) {
        const error = errorIn(reply);
        if (error) return error;
        this.lengths[layer] = has(reply, { length: "number" }).length;
        this.revision = reply.revision ?? this.revision;
        return reply;
    }

    #step(path, rows, { layer = 0, ...fields }) {
        const work = async () => {
            const sent = { ...this.place(layer), layer, hidden_states: rows, ...fields };
            return this.took(layer, await this.client.call(path, sent));
        };
        return Session.alone([this], work, fields.signal);
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

    /** Reads `lengths` and `revision` again, after a conflict. @returns {Promise<object>} as GET */
    refresh({ signal } = {}) {
        const work = async () => {
            const path = `/sessions/${this.sessionId}`;
            const facts = await this.client.get(path, this.sessionId, { signal });
            if (has(facts, { epoch: "number" }).epoch !== this.epoch)
                throw new AttnError("epoch_mismatch", "the session was deleted and remade", {
                    status: 409,
                });
            this.#note(facts);
            return facts;
        };
        return Session.alone([this], work, signal);
    }

    /**
     * @param {{session_id?: string, length?: number, signal?: AbortSignal}} [fields]
     * @returns {Promise<Session>} with the first `length` tokens of each layer, or all
     */
    fork(fields = {}) {
        const work = async () => {
            const headers = { "Idempotency-Key": token(), ...naming(this.sessionId) };
            const sent = { ...fields, ...this.claim() };
            const path = `/sessions/${this.sessionId}/fork`;
            return new Session(this.client, await this.client.post(path, sent, headers));
        };
        return Session.alone([this], work, fields.signal);
    }

    /** Forgets all but the first `length` tokens of each layer. */
    truncate(length, { signal } = {}) {
        const work = async () => {
            const sent = { length, ...this.claim(), signal };
            const path = `/sessions/${this.sessionId}/truncate`;
            const facts = await this.client.post(path, sent, naming(this.sessionId));
            this.#note(facts);
            const longest = Math.max(0, ...Object.values(this.lengths));
            if (facts.replayed && longest > length)
                throw new AttnError(
                    "position_conflict",
                    "another caller has appended since the truncation",
                    { status: 409, length: longest },
                );
        };
        return Session.alone([this], work, signal);
    }

    /** @returns {Promise<ArrayBuffer>} a safetensors file, for Client.restore */
    export({ signal } = {}) {
        const headers = { Accept: "application/octet-stream", ...naming(this.sessionId) };
        const path = `/sessions/${this.sessionId}/state`;
        const work = async () =>
            (await this.client.request("GET", path, { headers, signal })).buffer;
        return Session.alone([this], work, signal);
    }

    /** Ends the session; one that is gone already is no error. */
    end(options = {}) {
        const query = this.revision === null ? "" : `?epoch=${this.epoch}`;
        const work = async () => {
            try {
                await this.client.request("DELETE", `/sessions/${this.sessionId}${query}`, {
                    headers: naming(this.sessionId),
                    ...options,
                });
            } catch (error) {
                const gone = ["not_found", "session_lost"].includes(error.kind);
                if (!gone && !GONE.includes(error.code)) throw error;
            }
        };
        return Session.alone([this], work, options.signal);
    }
}
