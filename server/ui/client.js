/**
 * client.js: the calls of this page to the daemon that serves it.
 *
 * The API key stays in this tab (sessionStorage).  A reply 401 asks for a key once, whichever call
 * got it, and that call is then sent again; who asks is set by app.js.  All calls can be cancelled.
 * A login that a proxy has put before attnd counts for the calls as for the page: they carry the
 * cookies and the HTTP authentication of the page's own origin.
 */
import { AttnError, Client } from "./attn-client.mjs";
import { sha256 } from "./formats.js";
import { part } from "./store.js";

const STORED = "attnd-api-key";
const TIMEOUT_MS = 600000; // of one call; people cancel earlier

/** Where attnd is: a proxy may have put it below a path.  Without the user and password of the
 * page's address, which fetch refuses and no copied command should have. */
export const base = location.origin + new URL(".", document.baseURI).pathname;

const state = part("client", {
    /** @type {(wrong: boolean) => Promise<boolean>} for a key */
    ask: async () => false,
    asking: null, // the promise of the dialog that is open
    dismissed: false, // the user has closed the dialog without a key
    models: [],
    carried: 0, // bytes a millisecond, of the last large reply once it had begun
});

// ---- The API key ------------------------------------------------------------------------------

/** @returns {string} the key of this tab, "" without one */
export function apiKey() {
    return sessionStorage.getItem(STORED) ?? "";
}

/** Keeps a key for this tab; "" forgets it. */
export function keepKey(key) {
    state.dismissed = false;
    if (key === "") sessionStorage.removeItem(STORED);
    else sessionStorage.setItem(STORED, key);
}

/** @param {(wrong: boolean) => Promise<boolean>} asker asks for a key; false: none was given */
export function onKeyWanted(asker) {
    state.ask = asker;
}

/** Whether there is another key now than the one that was refused. */
async function findsKey(refused) {
    if (apiKey() !== refused) return true;
    if (state.dismissed) return false;
    state.asking ??= state.ask(refused !== "").finally(() => (state.asking = null));
    state.dismissed = !(await state.asking);
    return !state.dismissed;
}

/** fetch with the key, and once more with another where that one is refused. */
async function fetchWithKey(url, init) {
    for (;;) {
        const key = apiKey();
        const headers = key ? { ...init.headers, Authorization: `Bearer ${key}` } : init.headers;
        const reply = await fetch(url, { ...init, headers, credentials: "same-origin" });
        if (reply.status !== 401 || !(await findsKey(key))) return reply;
        init.signal?.throwIfAborted();
    }
}

// ---- Calls ------------------------------------------------------------------------------------

/**
 * The client of this page's daemon.
 * @param {AbortSignal} [signal] cancels what it does
 * @returns {Client}
 */
export function client(signal) {
    const signals = (own) => (signal ? AbortSignal.any([own, signal]) : own);
    return new Client(base, {
        timeoutMs: TIMEOUT_MS,
        fetch: (url, init) => fetchWithKey(url, { ...init, signal: signals(init.signal) }),
    });
}

/** What `work` gives, or an error as soon as `signal` says so, whatever `work` still waits for. */
export function unlessAborted(signal, work) {
    if (!signal) return work;
    const stop = new Promise((_, reject) => {
        const fail = () => reject(new AttnError("cancelled", "cancelled"));
        if (signal.aborted) fail();
        signal.addEventListener("abort", fail, { once: true });
    });
    return Promise.race([work, stop]);
}

globalThis.PerformanceObserver &&
    new PerformanceObserver((list) => {
        for (const {
            transferSize: size,
            responseStart,
            responseEnd,
        } of /** @type {PerformanceResourceTiming[]} */ (list.getEntries()))
            if (size >= 1e5)
                // what a cache gives is not carried
                state.carried = size / Math.max(1, responseEnd - responseStart);
    }).observe({ type: "resource" });

/** @returns {number} bytes that the way from the daemon carries in so many milliseconds */
export const bytesIn = (milliseconds) => state.carried * milliseconds;

// ---- Rows that are sent once ------------------------------------------------------------------

const KEPT_FROM = 65536; // bytes of rows that are worth a request of their own
const ROWS = ["hidden_states", "encoder_hidden_states", "key_hidden_states", "value_hidden_states"];
const kept = new WeakMap(); // numbers -> promise of {input}, or of null where attnd does not keep them

/** Sends rows as an input. @returns {Promise<{input: string}|null>} what stands for them; null: the
 *  rows go with each call, which is the one that is tried again where that helps */
async function keep({ data, shape, datatype = "FP32" }) {
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    const described = JSON.stringify({ shape, datatype, binary_data_size: bytes.length });
    const head = described.padEnd(64 * Math.ceil(described.length / 64));
    const body = new Uint8Array(head.length + bytes.length);
    body.set(new TextEncoder().encode(head));
    body.set(bytes, head.length);
    const input = await sha256(body);
    const headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": String(head.length),
    };
    try {
        await client().request("PUT", `/inputs/${input}`, { body, headers, retryMs: 0 });
        return { input };
    } catch (/** @type {any} */ error) {
        if (error.retryable) kept.delete(data); // the next call asks anew
        return null;
    }
}

/** Large rows of a call: [field, numbers, promise of what stands for them], which are sent where
 *  they were not. */
function inputsOf(fields) {
    const large = ROWS.filter((name) => fields[name]?.data?.byteLength >= KEPT_FROM);
    if (!globalThis.crypto?.subtle) return [];
    return large.map((name) => {
        const { data } = fields[name];
        if (!kept.has(data)) {
            const asked = keep(fields[name]); // goes on where who asked first has gone
            kept.set(data, asked);
            asked.catch(() => kept.delete(data));
        }
        return [name, data, kept.get(data)];
    });
}

async function callNamed(path, fields, signal) {
    for (let tries = 2; ; tries--) {
        const inputs = tries > 0 ? inputsOf(fields) : []; // at last the rows go along
        const sent = { ...fields };
        for (const [name, , asked] of inputs) sent[name] = (await asked) ?? fields[name];
        try {
            return await client(signal).call(path, sent);
        } catch (/** @type {any} */ error) {
            if (error.code !== "input_not_found" || tries === 0) throw error;
            for (const [, data, asked] of inputs) if (kept.get(data) === asked) kept.delete(data); // another call may have sent them
        }
    }
}

/**
 * A call of /attend or /decode; large rows go to the daemon once, and calls name them.
 * @param {string} path
 * @param {object} fields by the names of docs/API.md; tensors as {data, shape} or nested arrays
 * @param {AbortSignal} [signal]
 * @returns {Promise<object>} the reply, its tensors as {data, shape}
 */
export function call(path, fields, signal) {
    return unlessAborted(signal, callNamed(path, fields, signal));
}

/**
 * The text of a GET.
 * @param {string} path
 * @param {AbortSignal} [signal]
 */
export async function text(path, signal) {
    const asked = client(signal).request("GET", path, { retryMs: 0 });
    return new TextDecoder().decode((await unlessAborted(signal, asked)).buffer);
}

// ---- Models -----------------------------------------------------------------------------------

/** @returns {object[]} the models, as GET /models has them; known before any panel starts */
export function models() {
    return state.models;
}

/**
 * Reads the models; waits for a daemon that is loading them.
 * @param {AbortSignal} signal
 * @param {() => void} waits called when there is something to wait for
 */
export async function readModels(signal, waits) {
    for (;;) {
        try {
            state.models = JSON.parse(await text("/models", signal)).models;
            return state.models;
        } catch (/** @type {any} */ error) {
            if (error.code !== "loading" || signal.aborted) throw error;
            waits();
            await new Promise((resolve) => setTimeout(resolve, 500));
        }
    }
}
