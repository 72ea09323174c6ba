/**
 * test_client.mjs: attn-client.mjs against a daemon, beside plain requests and through losses.
 *
 *     node tests/clients/test_client.mjs URL CROSSED KEYED    of attnd with the models of daemon.py,
 *                                                          and the keys of test_client.py
 *
 * Prints each test that fails, and `Ran N tests`; the exit status is 1 where one failed.
 */
import assert from "node:assert/strict";
import http from "node:http";
import { readFileSync } from "node:fs";

import { AttnError, Client, Session } from "../../clients/js/attn-client.mjs";

const [url, crossed, keyed] = process.argv.slice(2);
const rows = Array.from({ length: 40 }, (_, token) =>
    Array.from({ length: 8 }, (_, width) => Math.sin(8 * token + width)),
);

/** A POST of plain JSON, by no client of ours: what a client is compared with. */
async function ask(path, body, of = url) {
    const reply = await fetch(of + path, {
        method: "POST",
        body: JSON.stringify(body),
        headers: { "Content-Type": "application/json" },
    });
    return reply.json();
}

/** A tensor as nested arrays, minus infinity as null. */
function nested({ data, shape }) {
    let values = Array.from(data, (value) => (value === -Infinity ? null : value));
    for (const size of shape.slice(1).reverse())
        values = Array.from({ length: values.length / size }, (_, n) =>
            values.slice(n * size, (n + 1) * size),
        );
    return values;
}

/** Equal but for the last digits of float32, which JSON cuts. */
function same(found, expected, where = "") {
    if (found?.data) found = nested(found);
    if (typeof expected === "number") {
        assert.ok(
            Math.abs(found - expected) <= 1e-7 * Math.max(1, Math.abs(expected)),
            `${where}: ${found}, not ${expected}`,
        );
    } else if (typeof expected === "object" && expected !== null) {
        assert.deepEqual(Object.keys(found), Object.keys(expected), where);
        for (const key of Object.keys(expected)) same(found[key], expected[key], `${where}.${key}`);
    } else {
        assert.equal(found, expected, where);
    }
}

/**
 * A server that asks `verdict(number)` for each request: "pass", "lose" the reply, "refuse", "hold"
 * (the connection ends, and the request arrives some requests later), or "late" (it passes, and
 * arrives once more some requests later).
 */
async function relay(verdict, work) {
    const counts = { pass: 0, lose: 0, refuse: 0, hold: 0, late: 0, arrived: 0 };
    const held = [];
    let number = 0;
    const arrive = async (until) => {
        const due = held.filter((item) => item.due <= until);
        for (const item of due) held.splice(held.indexOf(item), 1);
        for (const { forward } of due) {
            await (await forward()).arrayBuffer();
            counts.arrived++;
        }
    };
    const server = http.createServer((request, response) => {
        const parts = [];
        request.on("data", (part) => parts.push(part));
        request.on("end", async () => {
            await arrive(number);
            const what = verdict(number++);
            counts[what]++;
            if (what === "refuse") return request.socket.destroy();
            const headers = { ...request.headers };
            for (const name of ["connection", "content-length", "host", "accept-encoding"])
                delete headers[name];
            const body = parts.length ? Buffer.concat(parts) : undefined;
            const forward = () =>
                fetch(url + request.url, { method: request.method, headers, body });
            if (what === "hold" || what === "late")
                held.push({ due: number + [1, 3, 9, 40][number % 4], forward });
            if (what === "hold") return request.socket.destroy();
            const reply = await forward();
            const bytes = Buffer.from(await reply.arrayBuffer());
            if (what === "lose") return request.socket.destroy();
            const told = {};
            for (const name of ["content-type", "inference-header-content-length", "retry-after"])
                if (reply.headers.get(name)) told[name] = reply.headers.get(name);
            response.writeHead(reply.status, told).end(bytes);
        });
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    try {
        await work(`http://127.0.0.1:${server.address().port}`, () => arrive(Infinity));
    } finally {
        server.closeAllConnections();
        server.close();
    }
    return counts;
}

/** A client whose fetch gives the replies in turn, and notes the requests in `seen`. */
function fake(replies, options = {}) {
    const seen = [];
    const client = new Client("http://fake", {
        ...options,
        fetch: async (address, init) => {
            seen.push({ address, ...init });
            const next = replies.shift();
            if (next instanceof Error) throw next;
            return new Response(next.body === undefined ? '{"output":[]}' : next.body, {
                status: next.status ?? 200,
                headers: next.headers ?? {},
            });
        },
    });
    client.answered = true;
    return { client, seen };
}

const refusal = (status, code, retryable, headers) => ({
    status,
    headers,
    body: JSON.stringify({ error: { code, message: "m", retryable } }),
});
/** The JSON of a request in binary form. */
const headOf = ({ body, headers }) =>
    JSON.parse(
        new TextDecoder().decode(
            body.subarray(0, Number(headers["Inference-Header-Content-Length"])),
        ),
    );
const failing = async (promise) =>
    promise.then(
        () => assert.fail("no error"),
        (error) => error,
    );
const outputs = [
    "output",
    "attention_weights",
    "attention_scores",
    "lse",
    "key",
    "value",
    "head_stats",
    "query",
    "head_output",
    "concat",
];

const tests = {
    async "every output is what a plain request gets"() {
        const fields = { hidden_states: rows.slice(0, 5), outputs, stage: "masked" };
        const reply = await new Client(url).attend(fields.hidden_states, fields);
        assert.deepEqual(reply.attention_weights.shape, [4, 5, 5]);
        assert.ok(reply.output.data instanceof Float32Array);
        same(reply, await ask("/attend", fields));
    },

    async "maps as halves and bytes are the numbers that they stand for"() {
        const client = new Client(url);
        const calls = [
            { hidden_states: rows.slice(0, 5), outputs: ["attention_weights", "lse"] },
            { hidden_states: [rows.slice(0, 3), rows.slice(3, 6)], average_heads: true },
            { hidden_states: rows.slice(0, 3), average_heads: true },
            { hidden_states: rows.slice(0, 3), head_mask: [1, -3, 0, 0.5] },
            { hidden_states: rows.slice(0, 7), pool: [2, 3], pool_type: "mean" },
        ];
        for (const call of calls) {
            const fields = { outputs: ["attention_weights"], ...call };
            const full = await client.attend(call.hidden_states, fields);
            for (const [map_datatype, step] of Object.entries({ FP16: 2 ** -25, UINT8: 4 / 509 })) {
                const reply = await client.attend(call.hidden_states, { ...fields, map_datatype });
                const { data, shape } = reply.attention_weights;
                assert.deepEqual(shape, full.attention_weights.shape);
                assert.ok(data instanceof Float32Array);
                full.attention_weights.data.forEach((x, i) =>
                    assert.ok(Math.abs(data[i] - x) <= step + Math.abs(x) * 2 ** -11),
                );
                assert.deepEqual(reply.lse, full.lse);
            }
        }
        const fields = { outputs: ["attention_scores"], stage: "masked", map_datatype: "FP16" };
        const { data } = (await client.attend(rows.slice(0, 3), fields)).attention_scores;
        assert.equal(data[1], -Infinity);
    },

    async "maps of several steps stand where their elements fit"() {
        const client = new Client(url);
        const fields = { outputs: ["output", "attention_weights"], heads: [2], commit: false };
        await client.withSession({}, async (first) => {
            await client.withSession({}, async (second) => {
                const steps = [
                    [first, rows.slice(0, 3)],
                    [second, rows.slice(3, 6)],
                ];
                const full = await client.stepMany(steps, fields);
                for (const map_datatype of ["FP16", "UINT8"]) {
                    const replies = await client.stepMany(steps, { ...fields, map_datatype });
                    replies.forEach((reply, i) => assert.deepEqual(reply.output, full[i].output));
                }
            });
        });
    },

    async "selected maps and top_k"() {
        const fields = {
            hidden_states: rows.slice(0, 6),
            outputs: ["attention_weights"],
            heads: [3, 1],
            top_k: 2,
        };
        const reply = await new Client(url).attend(undefined, fields);
        assert.ok(reply.attention_weights.index.data instanceof Uint32Array);
        same(reply, await ask("/attend", fields));
    },

    async "statistics of targets, groups and ablation"() {
        const fields = {
            hidden_states: [rows.slice(0, 3), rows.slice(3, 6)],
            outputs: ["head_stats"],
            targets: [
                [-1, 0, 1],
                [2, 2, 2],
            ],
            target_groups: [[0], [1, 2]],
            ablate: true,
        };
        const reply = await new Client(url).attend(fields.hidden_states, fields);
        assert.equal(reply.head_stats[1][3].groups.length, 2);
        same(reply, await ask("/attend", fields));
    },

    async "batches, masks, biases and positions"() {
        const fields = {
            hidden_states: [rows.slice(0, 3), rows.slice(3, 6)],
            padding_mask: [
                [1, 1, 1],
                [0, 1, 1],
            ],
            attention_mask: [0, 1].map(() => [0, 1, 2].map(() => [true, true, true])),
            attention_bias: [0, 1].map(() => [0, 1, 2].map(() => [0, null, 0.5])),
            position_ids: [
                [0, 1, 5],
                [2, 3, 4],
            ],
            head_mask: [1, 0, 0.5, 1],
        };
        same(await new Client(url).attend(undefined, fields), await ask("/attend", fields));
    },

    async "tensors are the fields that the daemon reads as such"() {
        const { schemas } = (await (await fetch(url + "/openapi.json")).json()).components;
        const datatypes = { Float: "FP32", Bias: "FP32", Integer: "INT64", Mask: "BOOL" };
        const types = { FP32: Float32Array, INT64: BigInt64Array, BOOL: Uint8Array };
        const names = new Set();
        for (const schema of ["AttendRequest", "DecodeRequest", "StepRequest", "CreateRequest"])
            for (const [name, field] of Object.entries(schemas[schema].properties)) {
                const kind = /schemas\/(\w+)Tensor"/.exec(JSON.stringify(field))?.[1];
                if (kind === undefined) continue;
                const datatype = datatypes[kind];
                const { client, seen } = fake([{}]);
                await client.attend(undefined, {
                    [name]: { data: new types[datatype](1), shape: [1] },
                });
                const head = headOf(seen[0])[name];
                assert.deepEqual(
                    { ...head, binary_data_size: undefined },
                    { shape: [1], datatype, binary_data_size: undefined },
                    name,
                );
                assert.ok(head.binary_data_size > 0, name);
                names.add(name);
            }
        assert.ok(names.has("past_key") && names.size > 20);
    },

    async "weightless over keys that are there"() {
        const head = [rows.slice(0, 3), rows.slice(3, 6)];
        const fields = {
            query: head,
            key: head,
            value: head,
            past_key: [rows.slice(9, 12), rows.slice(9, 12)],
            past_value: [rows.slice(12, 15), rows.slice(12, 15)],
            sliding_window: [2, 0],
            heads: [1],
            outputs: ["output", "attention_weights"],
        };
        const expected = await ask("/attend", fields);
        const tensor = { data: Float32Array.from(fields.past_key.flat(2)), shape: [2, 3, 8] };
        same(await new Client(url).attend(undefined, { ...fields, past_key: tensor }), expected);
    },

    async "typed arrays of several types"() {
        const client = new Client(url);
        const expected = await ask("/attend", { hidden_states: rows.slice(0, 2) });
        const flat = rows.slice(0, 2).flat();
        for (const type of [Float32Array, Float64Array])
            same(
                (await client.attend({ data: type.from(flat), shape: [2, 8] })).output,
                expected.output,
            );
        const window = new Float32Array(20).subarray(3, 19);
        window.set(flat);
        const position_ids = { data: Int32Array.from([0, 1]), shape: [2] };
        const padding_mask = { data: Uint8Array.from([1, 1]), shape: [2] };
        const reply = await client.attend(
            { data: window, shape: [2, 8] },
            { position_ids, padding_mask },
        );
        same(reply.output, expected.output);
    },

    async "numbers of 16 bits are sent as they are"() {
        const client = new Client(url);
        const flat = Float32Array.from(rows.slice(0, 3).flat());
        const bits = Uint16Array.from(new Uint32Array(flat.buffer), (word) => word >>> 16);
        const cut = new Float32Array(Uint32Array.from(bits, (half) => half << 16).buffer);
        const expected = await client.attend({ data: cut, shape: [3, 8] });
        const tensor = { data: bits, shape: [3, 8], datatype: "BF16" };
        assert.deepEqual((await client.attend(tensor)).output, expected.output);
        const ones = { data: new Uint16Array(8).fill(0x3c00), shape: [1, 8], datatype: "FP16" };
        const one = await client.attend([new Array(8).fill(1)]);
        assert.deepEqual((await client.attend(ones)).output, one.output);
    },

    async "wrong tensors are refused here"() {
        const client = new Client("http://127.0.0.1:9");
        for (const fields of [
            { padding_mask: [1, 2] },
            { hidden_states: [[1, 2], [3]] },
            { hidden_states: [[1, 2], 3] },
            { hidden_states: [[1, "2"]] },
            { hidden_states: [new Float32Array(2), new Float32Array(3)] },
            { position_ids: [0.5] },
            { attention_bias: [[true]] },
            { attention_bias: { data: [true], shape: [1] } },
            { hidden_states: "rows" },
            { hidden_states: { data: new Float32Array(3), shape: [2, 2] } },
            { hidden_states: { data: new DataView(new ArrayBuffer(8)), shape: [2] } },
            { scale: NaN },
            { layer: 2n ** 70n },
        ]) {
            const [name] = Object.keys(fields);
            const error = await failing(client.attend(undefined, fields));
            assert.ok(error instanceof AttnError, name);
            assert.deepEqual(
                [error.code, error.kind, error.param],
                ["invalid_argument", "invalid", name],
            );
            assert.ok(error.message.includes(name));
        }
        const sequences = [{ query: [1] }, { query: [[1], 2] }];
        const error = await failing(client.attend(undefined, { sequences }));
        assert.equal(error.param, "sequences[1].query");
    },

    async "tensors in the forms that programs have them"() {
        const expected = await ask("/attend", { hidden_states: rows.slice(0, 2) });
        const flat = Float32Array.from(rows.slice(0, 2).flat());
        const shared = new Float32Array(new SharedArrayBuffer(64));
        shared.set(flat);
        for (const given of [
            { data: flat, dims: [2, 8], type: "float32" }, // of ONNX Runtime
            { data: Array.from(flat), shape: [2, 8] }, // of the API
            { data: rows.slice(0, 2), shape: [2, 8] },
            [flat.subarray(0, 8), flat.subarray(8)],
            [Float64Array.from(rows[0]), rows[1]],
            { data: shared, shape: [2, 8] },
        ]) {
            const padding_mask = { data: BigInt64Array.from([1n, 1n]), dims: [2] };
            const fields = { padding_mask, outputs: new Set(["output"]), layer: 0n };
            same((await new Client(url).attend(given, fields)).output, expected.output);
        }
        const half = { data: new Uint16Array(8).fill(0x3c00), dims: [1, 8], type: "float16" };
        const one = await new Client(url).attend([new Float32Array(8).fill(1)]);
        assert.deepEqual((await new Client(url).attend(half)).output, one.output);
        await new Client(url).withSession({}, async (session) => {
            const step = await session.decode(flat.subarray(0, 8));
            same(step.output, expected.output[0]);
        });
    },

    async "arguments are refused by name and without secrets"() {
        for (const [name, address, options] of [
            ["apiKey", "http://a", { apiKey: "s3cret\r\nX: y" }],
            ["url", "http://u:s3cret@a", { apiKey: "k" }],
            ["url", "http://u:s3cret%@a", {}],
            ["retryMs", "http://a", { retryMs: "5" }],
            ["timeoutMs", "http://a", { timeoutMs: NaN }],
            ["deadlineMs", "http://a", { deadlineMs: "5\r\n" }],
        ]) {
            const error = await failing((async () => new Client(address, options))());
            assert.deepEqual([error.kind, error.param], ["invalid", name]);
            assert.ok(!error.message.includes("s3cret"));
        }
        const { client, seen } = fake([{ body: '{"models":[]}' }], { apiKey: "key\n" });
        await client.models();
        assert.equal(seen[0].headers.Authorization, "Bearer key");
        const proxied = new Client("http://us%40er:p%3Ass@host/below/");
        assert.equal(proxied.url, "http://host/below");
        assert.equal(proxied.headers.Authorization, "Basic dXNAZXI6cDpzcw==");
        assert.equal(new Client("http://me@host").headers.Authorization, "Basic bWU6");
    },

    async "a signal ends a call at once"() {
        let arrived;
        const server = http.createServer(() => arrived()); // which never answers
        await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
        try {
            const address = `http://127.0.0.1:${server.address().port}`;
            const client = new Client(address);
            client.answered = true;
            const facts = { session_id: "a", model: "m", epoch: 5, lengths: [] };
            const session = new Session(client, facts);
            const calls = [
                (signal) => client.attend([[1]], { signal }),
                (signal) => client.stepMany([[session, [1]]], { signal }),
                (signal) => client.batch({ fork: [session], signal }),
                (signal) => session.decode([1], { signal }),
                (signal) => session.truncate(0, { signal }),
                (signal) => session.end({ signal }),
                (signal) => client.open("a", { signal }),
                (signal) => client.start([[1]], [1], { signal }),
                (signal) => client.models({ signal }),
            ];
            for (const call of calls) {
                const controller = new AbortController();
                const here = new Promise((resolve) => (arrived = resolve));
                const made = failing(call(controller.signal));
                await here;
                controller.abort();
                const error = await made;
                assert.ok(error instanceof AttnError);
                assert.deepEqual(
                    [error.code, error.kind, error.name, error.retryable],
                    ["cancelled", "cancelled", "AbortError", false],
                );
            }
            // What waits for another call of its session is not sent.
            const [first, second] = [new AbortController(), new AbortController()];
            const here = new Promise((resolve) => (arrived = resolve));
            const one = failing(session.decode([1], { signal: first.signal }));
            const two = failing(session.decode([1], { signal: second.signal }));
            await here;
            second.abort(new DOMException("too late", "TimeoutError"));
            assert.equal((await two).name, "TimeoutError");
            first.abort();
            assert.equal((await one).code, "cancelled");
            const own = new Client(address, {
                fetch: (path, init) => fetch(path, { ...init, signal: AbortSignal.abort() }),
            });
            own.answered = true;
            assert.equal((await failing(own.models())).code, "cancelled");
        } finally {
            server.closeAllConnections();
            server.close();
        }
        const { client, seen } = fake([refusal(503, "loading", true, { "Retry-After": "20" })]);
        const controller = new AbortController();
        const waiting = failing(client.models({ signal: controller.signal }));
        while (seen.length === 0) await new Promise((resolve) => setTimeout(resolve, 1));
        controller.abort();
        assert.equal((await waiting).code, "cancelled");
        assert.equal(seen.length, 1);
        const late = new Client(url, { timeoutMs: 1, retryMs: 0 });
        late.fetch = (_, { signal }) =>
            new Promise((_, reject) =>
                signal.addEventListener("abort", () => reject(signal.reason)),
            );
        const never = new Promise((resolve) => setTimeout(resolve, 20000, {}).unref());
        const error = await Promise.race([failing(late.models()), never]);
        assert.deepEqual([error.code, error.retryable], ["connection_lost", true]);
    },

    async "a redirect and another service's reply are errors"() {
        const facts = { session_id: "a", model: "m", epoch: 5, lengths: [] };
        const calls = (client) => {
            const session = new Session(client, facts);
            return [
                () => client.models(),
                () => client.model("m"),
                () => client.attend([[1]]),
                () => client.session(),
                () => client.open("a"),
                () => client.restore("a", new Uint8Array(1)),
                () => client.sessions().next(),
                () => session.refresh(),
                () => session.fork(),
                () => session.truncate(0),
                () => session.decode([1]),
                () => client.stepMany([[session, [1]]]),
                () => client.batch({ fork: [session], end: [session] }),
            ];
        };
        const pages = ['{"data":[]}', "[]", "7", "null", "<html>", '{"models":1}'];
        pages.push(
            '{"sequences":[1],"fork":[1],"delete":[1]}',
            '{"output":{"binary_data_size":1}}',
        );
        for (const body of pages)
            for (const number of calls(fake([]).client).keys()) {
                const { client, seen } = fake([{ body }]);
                const error = await failing(calls(client)[number]());
                assert.equal(error.code, "bad_reply", `${body} ${number}: ${error.stack}`);
                assert.equal(seen.length, 1);
            }
        for (const number of calls(fake([]).client).keys()) {
            const headers = { Location: "/login?secret=1" };
            const { client, seen } = fake([{ status: 302, headers, body: "" }]);
            const error = await failing(calls(client)[number]());
            assert.deepEqual([error.code, error.kind], ["http_302", "invalid"]);
            assert.match(error.message, /redirected to \/login, /);
            assert.equal(seen[0].redirect, "manual");
        }
        const opaque = new Client("http://fake", {
            fetch: async () => ({
                type: "opaqueredirect",
                status: 0,
                headers: new Headers(),
                arrayBuffer: async () => new ArrayBuffer(0),
            }),
        });
        assert.equal((await failing(opaque.models())).code, "http_302");
    },

    async "forks and ends in one request"() {
        const json = (document) => ({ body: JSON.stringify(document) });
        const facts = { session_id: "a.1", model: "m", epoch: 5, lengths: [] };
        const wrong = { error: { code: "wrong_instance", message: "m", retryable: true } };
        const gone = { error: { code: "session_not_found", message: "m" } };
        const bad = { error: { code: "internal", message: "m" } };
        const { client, seen } = fake([
            json({
                fork: [{ ...facts, session_id: "a.7", revision: 8 }, wrong],
                delete: [{ session_id: "a.1" }, wrong, gone],
            }),
            json({ fork: [bad], delete: [{ session_id: "b.1" }] }),
        ]);
        const one = new Session(client, { ...facts, revision: 7 });
        const two = new Session(client, { ...facts, session_id: "b.1" });
        const three = new Session(client, { ...facts, session_id: "a.3" });
        const { forks, ends } = await client.batch({
            fork: [[one, { session_id: "a.7", length: 2 }], two],
            end: [one, two, three],
        });
        assert.deepEqual(
            [forks[0].sessionId, forks[0].revision, forks[1].code],
            ["a.7", 8, bad.error.code],
        );
        assert.deepEqual(ends, [null, null, null]);
        const decoder = new TextDecoder();
        const [first, second] = seen.map(({ body }) => JSON.parse(decoder.decode(body)));
        assert.deepEqual(first, {
            fork: [
                { session_id: "a.7", length: 2, from: "a.1", epoch: 5, revision: 7 },
                { from: "b.1", epoch: 5 },
            ],
            delete: [
                { session_id: "a.1", epoch: 5 },
                { session_id: "b.1", epoch: 5 },
                { session_id: "a.3", epoch: 5 },
            ],
        });
        assert.deepEqual(second.fork, [{ from: "b.1", epoch: 5 }]);
        assert.deepEqual(
            seen.map((request) => [request.address, request.headers["X-Session-Id"]]),
            [
                ["http://fake/sessions/batch", "a.1"],
                ["http://fake/sessions/batch", "b.1"],
            ],
        );
        assert.notEqual(seen[0].headers["Idempotency-Key"], seen[1].headers["Idempotency-Key"]);
        assert.deepEqual(await client.batch(), { forks: [], ends: [] });
    },

    async "a revision goes with every change and is learned from every answer"() {
        const json = (document, status) => ({ body: JSON.stringify(document), status });
        const facts = { session_id: "a.1", model: "m", epoch: 5, lengths: [] };
        const long = [{ layer: 0, length: 9 }];
        const { client, seen } = fake([
            json({ length: 1, revision: 11 }),
            json({ ...facts, revision: 12 }),
            json({ sequences: [{ length: 1, revision: 13 }] }),
            json({ ...facts, revision: 20 }),
            json({ ...facts, revision: 14, replayed: true, lengths: long }),
            json(
                { error: { code: "revision_mismatch", message: "m", revision: 15, epoch: 5 } },
                409,
            ),
            json({ error: { code: "epoch_mismatch", message: "m" } }, 409),
            json({ length: 1 }),
            { status: 204, body: null },
        ]);
        const session = new Session(client, { ...facts, revision: 11 });
        await session.decode([1]);
        await session.truncate(0);
        await client.stepMany([[session, [1]]]);
        await session.fork();
        assert.equal((await failing(session.truncate(2))).length, 9);
        assert.deepEqual([session.revision, session.lengths], [14, { 0: 9 }]);
        const error = await failing(session.decode([1]));
        assert.deepEqual([error.kind, error.revision, error.epoch], ["conflict", 15, 5]);
        await session.end();
        const older = new Session(client, facts);
        await older.decode([1]);
        await older.end();
        const decoder = new TextDecoder();
        const bodyOf = ({ body, headers }) => {
            const length = headers["Inference-Header-Content-Length"];
            return JSON.parse(decoder.decode(body.subarray(0, length)));
        };
        assert.deepEqual(
            [0, 1, 2, 3, 4]
                .map((place) => bodyOf(seen[place]))
                .map((sent) => (sent.sequences?.[0] ?? sent).revision),
            [11, 11, 12, 13, 13],
        );
        assert.ok(seen[6].address.endsWith("/sessions/a.1?epoch=5"));
        assert.equal("revision" in bodyOf(seen[7]), false);
        assert.ok(seen[8].address.endsWith("/sessions/a.1"));
    },

    async "errors have facts"() {
        const client = new Client(url);
        const error = await failing(client.attend([[1, 0]]));
        assert.ok(error instanceof AttnError);
        assert.deepEqual(
            [error.code, error.status, error.param, error.retryable, error.kind],
            ["shape_mismatch", 422, "hidden_states", false, "invalid"],
        );
        assert.match(error.requestId, /^[0-9a-f]{16}$/);
        assert.equal((await failing(client.open("none"))).kind, "not_found");
        for (const call of [
            () => client.session({ session_id: "日本" }),
            () => client.restore("日本", new Uint8Array(8)),
        ])
            assert.equal((await failing(call())).kind, "invalid");
    },

    async "a session from its making to its end"() {
        const client = new Client(url);
        const whole = nested((await client.attend(rows.slice(0, 6))).output);
        let id;
        const failed = await failing(
            client.withSession({ model: "tiny" }, async (session) => {
                id = session.sessionId;
                same((await session.prefill(rows.slice(0, 3))).output, whole.slice(0, 3));
                const steps = await Promise.all([session.decode(rows[3]), session.decode(rows[4])]);
                same(steps[1].output, whole[4]);
                assert.equal(session.lengths[0], 5);
                const fork = await session.fork({ length: 4 });
                const [one, two] = await client.stepMany([
                    [session, rows[5]],
                    [fork, rows[4]],
                ]);
                same([nested(one.output), nested(two.output)], [whole[5], whole[4]]);
                await fork.truncate(2);
                assert.equal((await fork.refresh()).lengths[0].length, 2);
                const moved = await client.restore("moved", await session.export());
                assert.equal(moved.lengths[0], 6);
                const ids = [];
                for await (const entry of client.sessions(1)) ids.push(entry.session_id);
                assert.ok(ids.includes("moved") && ids.includes(fork.sessionId));
                await Promise.all([fork.end(), moved.end(), moved.end()]);
                throw new Error("planted");
            }),
        );
        assert.equal(failed.message, "planted");
        assert.equal((await failing(client.open(id))).code, "session_not_found");
    },

    async "fields of an item win over those of all"() {
        const client = new Client(url);
        await client.withSession({}, async (one) => {
            await client.withSession({}, async (two) => {
                const own = { hidden_states: rows[0], outputs: ["lse"] };
                const steps = [
                    [one, own],
                    [two, rows[0]],
                ];
                const [first, second] = await client.stepMany(steps, { outputs: ["output"] });
                assert.deepEqual(["lse" in first, "output" in first], [true, false]);
                assert.deepEqual(["lse" in second, "output" in second], [false, true]);
            });
        });
    },

    async "steps are applied once whatever is lost"() {
        const whole = nested((await new Client(url).attend(rows)).output);
        let replayed = 0;
        const verdicts = ["pass", "lose", "pass", "refuse", "lose", "pass"];
        const counts = await relay(
            (number) => (number ? verdicts[number % 6] : "pass"),
            async (lossy) => {
                const client = new Client(lossy);
                await client.models();
                await client.withSession({ model: "tiny" }, async (session) => {
                    for (const [token, row] of rows.entries()) {
                        const reply =
                            token % 3
                                ? await session.decode(row)
                                : (await client.stepMany([[session, row]]))[0];
                        same(reply.output, whole[token]);
                        replayed += reply.replayed ? 1 : 0;
                    }
                    assert.equal((await session.refresh()).lengths[0].length, rows.length);
                    const listed = [];
                    for await (const entry of client.sessions()) listed.push(entry.session_id);
                    assert.deepEqual(listed, [session.sessionId]);
                });
            },
        );
        assert.ok(replayed > 10 && Math.min(counts.pass, counts.lose, counts.refuse) > 5);
    },

    async "nothing is lost or doubled whatever arrives late"() {
        const verdicts = ["pass", "late", "pass", "hold", "lose", "pass", "late", "pass", "refuse"];
        const [lanes, steps] = [8, process.env.QUICK ? 40 : 250];
        /** Operations on sessions and their twins, one after the other. */
        const run = async (client, direct, lane) => {
            let place = lane;
            const next = (count) => (place = (place * 5 + 3) % 31) % count;
            const pairs = [];
            for (const name of ["a", "b", "c"]) {
                const session = await client.session({ session_id: `js_${lane}_${name}` });
                pairs.push([session, await direct.session()]);
            }
            for (let step = 0; step < steps; step++) {
                const pair = pairs[next(pairs.length)];
                const longest = Math.max(...Object.values(pair[0].lengths));
                if (step % 5 === 0 || longest > 30) {
                    const length = Math.max(0, longest - next(4));
                    for (const session of pair) await session.truncate(length);
                    assert.deepEqual(pair[0].lengths, pair[1].lengths);
                } else if (step % 19 === 0) {
                    const forks = [];
                    for (const session of pair) forks.push(await session.fork());
                    for (const session of pair) await session.end();
                    pairs[pairs.indexOf(pair)] = forks;
                } else {
                    const [row, layer] = [rows[next(30)], step % 2];
                    const [one, two] = await Promise.all(
                        pair.map((session) => session.decode(row, { layer })),
                    );
                    assert.deepEqual(one.output, two.output);
                }
            }
            return pairs;
        };
        const counts = await relay(
            (number) => (number ? verdicts[number % 9] : "pass"),
            async (delayed, arriveAll) => {
                const [client, direct] = [new Client(delayed), new Client(url)];
                await client.models();
                const made = await Promise.all(
                    Array.from({ length: lanes }, (_, lane) => run(client, direct, lane)),
                );
                await arriveAll();
                for (const pair of made.flat()) {
                    const [one, two] = await Promise.all(pair.map((session) => session.refresh()));
                    assert.deepEqual(one.lengths, two.lengths);
                    for (const session of pair) await session.end();
                }
                await arriveAll();
            },
        );
        assert.ok(Math.min(...Object.values(counts)) > 10, JSON.stringify(counts));
        const told = JSON.stringify(counts);
        console.log(`delays: ${lanes * steps} operations of the JavaScript client, relay: ${told}`);
    },

    async "what could be applied twice is sent once"() {
        const stepped = await new Client(url).session({ model: "tiny" });
        const unplaced = { hidden_states: [rows[0]], position: null };
        const counts = await relay(
            (number) => (number ? "lose" : "pass"),
            async (lossy) => {
                const client = new Client(lossy);
                await client.models();
                const calls = [
                    () => client.restore("a", new Uint8Array(8)),
                    () => client.attend([rows[0]], { session_id: "a" }),
                    () => client.attend([rows[0]], { session_id: "a", position: null }),
                    () => client.stepMany([[stepped, unplaced]]),
                    // Again, it would find the session that it has made.
                    () => client.attend([rows[0]], { session_id: "b", start: true, position: 0 }),
                ];
                for (const call of calls) assert.equal((await failing(call())).kind, "connection");
            },
        );
        assert.equal(counts.lose, 5);
        assert.equal((await stepped.refresh()).lengths[0].length, 1);
        await stepped.end();
    },

    async "what names no session is sent again"() {
        const counts = await relay(
            (number) => (number === 1 ? "lose" : "pass"),
            async (lossy) => {
                const client = new Client(lossy);
                await client.models();
                await client.attend([rows[0]], { session_id: null });
            },
        );
        assert.deepEqual([counts.lose, counts.pass], [1, 2]);
    },

    async "an admin lists in pages"() {
        const [one, lead] = ["k", "l"].map((key) => new Client(keyed, { apiKey: key.repeat(32) }));
        const made = [];
        for (const [client, id] of [
            [one, "a"],
            [one, "b"],
            [lead, "a"],
        ])
            made.push(await client.session({ model: "tiny", session_id: id }));
        const listed = [];
        for await (const entry of lead.sessions(1)) listed.push([entry.session_id, entry.owner]);
        for (const session of made) await session.end();
        assert.deepEqual(listed, [
            ["a", "lead"],
            ["a", "one"],
            ["b", "one"],
        ]);
    },

    async "what is retryable is sent again after the time it names"() {
        const { client, seen } = fake([
            refusal(503, "loading", true, { "Retry-After": "1" }),
            refusal(429, "queue_full", true),
            { status: 502, body: "<html>" },
            { body: '{"models":[]}' },
        ]);
        const begin = Date.now();
        assert.deepEqual(await client.models(), []);
        assert.ok(Date.now() - begin >= 999);
        assert.equal(seen.length, 4);
    },

    async "what is not retryable is sent once"() {
        for (const [reply, kind] of [
            [refusal(500, "internal", false), "unavailable"],
            [refusal(503, "draining", true, { "Retry-After": "60" }), "unavailable"],
        ]) {
            const { client, seen } = fake([reply]);
            assert.equal((await failing(client.models())).kind, kind);
            assert.equal(seen.length, 1);
        }
        const late = fake([refusal(504, "deadline_exceeded", true)], { deadlineMs: 50 });
        assert.equal((await failing(late.client.attend([[1]]))).code, "deadline_exceeded");
        assert.equal(late.seen[0].headers["X-Deadline-Ms"], "50");
        const page = fake([{ status: 502, body: "<html>" }]);
        assert.equal((await failing(page.client.restore("a", new Uint8Array(1)))).code, "http_502");
        for (const [status, code] of [
            [502, "bad_gateway"], // as config/haproxy/haproxy.cfg has them
            [504, "gateway_timeout"],
        ]) {
            const proxy = fake([refusal(status, code, true), { body: '{"length":1}' }]);
            const error = await failing(proxy.client.attend([[1]], { session_id: "a.1" }));
            assert.equal(error.code, code);
            assert.equal(proxy.seen.length, 1);
        }
    },

    async "every request of a session names it for a proxy"() {
        const facts = JSON.stringify({ session_id: "a.1", model: "m", epoch: 5, lengths: [] });
        const json = (body) => ({ body });
        const { client, seen } = fake([
            ...Array.from({ length: 6 }, () => json(facts)),
            json("{}"),
            json('{"length":1}'),
            json('{"length":2}'),
            json('{"sequences":[{"length":3}]}'),
            json("{}"),
        ]);
        const session = await client.session({ session_id: "a.1" });
        await client.open("a.1");
        await client.restore("a.1", new Uint8Array(1));
        await session.refresh();
        await session.fork();
        await session.truncate(0);
        await session.export();
        await session.prefill([[1]]);
        await session.decode([1]);
        await client.stepMany([[session, [1]]]);
        await session.end();
        assert.deepEqual(
            seen.map((request) => request.headers["X-Session-Id"]),
            new Array(11).fill("a.1"),
        );
    },

    async "the wrong shard is asked again for a time and then told"() {
        const wrong = {
            status: 421,
            body: JSON.stringify({
                error: { code: "wrong_instance", message: "m", retryable: true, owner: "b" },
            }),
        };
        const { client, seen } = fake([wrong, wrong, {}]);
        await client.attend([[1]], { session_id: "b.1" }); // no position: nothing was applied
        assert.equal(seen.length, 3);
        const never = fake(
            Array.from({ length: 50 }, () => wrong),
            { retryMs: 300 },
        );
        const error = await failing(never.client.attend([[1]], { session_id: "b.1" }));
        assert.deepEqual([error.kind, error.owner, error.status], ["unavailable", "b", 421]);
        assert.ok(never.seen.length > 1 && never.seen.length < 20);
        const lost = fake([refusal(410, "session_lost", false)]);
        assert.equal((await failing(lost.client.open("b.1"))).kind, "session_lost");
        assert.equal(lost.seen.length, 1);
    },

    async "a list goes to the shards of its sessions"() {
        const list = (...items) => ({ body: JSON.stringify({ sequences: items }) });
        const wrong = { error: { code: "wrong_instance", message: "m", retryable: true } };
        const { client, seen } = fake(
            [
                list({ length: 1 }, wrong, { length: 1 }),
                list(wrong),
                list({ length: 1 }),
                list({ length: 2 }, { length: 2 }),
                refusal(410, "session_lost", false),
            ],
            { retryMs: 20000 },
        );
        const facts = { model: "m", epoch: 5, lengths: [] };
        const steps = ["a.1", "b.1", "a.2"].map((session_id) => [
            new Session(client, { session_id, ...facts }),
            [1],
        ]);
        const lengths = (replies) => replies.map((reply) => reply.length);
        assert.deepEqual(lengths(await client.stepMany(steps)), [1, 1, 1]);
        const [one, two, three] = await client.stepMany(steps);
        assert.deepEqual([one.length, two.kind, three.length], [2, "session_lost", 2]);
        const full = { error: { code: "session_full", message: "m" } };
        const [refused] = await fake([list(full)]).client.stepMany(steps.slice(0, 1));
        assert.deepEqual([refused.kind, refused.status], ["item", 0]);
        assert.deepEqual(
            steps.map(([session]) => session.lengths[0]),
            [2, 1, 2],
        );
        assert.deepEqual(
            seen.map((request) => request.headers["X-Session-Id"]),
            ["a.1", "b.1", "b.1", "a.1", "b.1"],
        );
    },

    async "a server that never answered is not waited for"() {
        const client = new Client("http://127.0.0.1:9", { retryMs: 20000 });
        const begin = Date.now();
        assert.equal((await failing(client.models())).kind, "connection");
        assert.ok(Date.now() - begin < 15000);
        assert.equal(await client.ready(), false);
    },

    async "aligned tensors are views, others copies; a short reply is an error"() {
        const text = '{"output":{"shape":[2],"datatype":"FP32","binary_data_size":8}}';
        const numbers = new Uint8Array(Float32Array.of(1.5, -2).buffer);
        const reply = (blanks, cut = 0) => {
            const head = new TextEncoder().encode(text + " ".repeat(blanks));
            return {
                body: new Uint8Array([...head, ...numbers.subarray(cut)]),
                headers: {
                    "Inference-Header-Content-Length": String(head.length),
                    "Content-Type": "application/octet-stream",
                },
            };
        };
        for (let blanks = 0; blanks < 4; blanks++) {
            const { client } = fake([reply(blanks)]);
            const { output } = await client.attend([[1]]);
            assert.deepEqual([...output.data], [1.5, -2]);
            assert.equal(output.data.buffer.byteLength > 8, (text.length + blanks) % 4 === 0);
        }
        const hidden = reply(0);
        delete hidden.headers["Inference-Header-Content-Length"];
        const page = { body: "<html>", headers: { "Content-Type": "text/html" } };
        for (const [bad, why] of [
            [reply(0, 1), /shorter/],
            [hidden, /not exposed/],
            [page, /not JSON/],
        ]) {
            const error = await failing(fake([bad]).client.attend([[1]]));
            assert.deepEqual([error.code, error.kind], ["bad_reply", "connection"]);
            assert.match(error.message, why);
        }
    },

    async "a page may send every header, and sends no credentials"() {
        const forbidden =
            /^(accept-(charset|encoding)|access-control-|connection|content-length|cookie|date|dnt|expect|host|keep|origin|prox|sec-|ref|t[er]|up|via)/i;
        const facts = { session_id: "a", model: "tiny", epoch: 1, lengths: [] };
        const json = (value) => ({ body: JSON.stringify(value) });
        const { client, seen } = fake(
            [
                json(facts),
                json({ length: 1 }),
                json(facts),
                json(facts),
                json({}),
                { status: 204, body: null },
            ],
            { apiKey: "secret", deadlineMs: 9 },
        );
        const session = await client.session();
        await session.decode([1]);
        await session.fork();
        await session.truncate(0);
        await session.export();
        client.fetch = async (address, init) => (
            seen.push({ address, ...init }),
            new Response(null, { status: 204 })
        );
        await session.end();
        const names = new Set(seen.flatMap((request) => Object.keys(request.headers)));
        assert.ok(seen.length === 6 && [...names].every((name) => !forbidden.test(name)));
        assert.ok(
            seen.every(
                (request) =>
                    request.credentials === "omit" &&
                    request.headers.Authorization === "Bearer secret",
            ),
        );
        // What `allow_origins` has to allow; docs/CLIENTS.md says the same.
        assert.deepEqual([...names].sort(), [
            "Accept",
            "Authorization",
            "Content-Type",
            "Idempotency-Key",
            "Inference-Header-Content-Length",
            "X-Deadline-Ms",
            "X-Session-Id",
        ]);
    },

    async "steps attend to the encoder rows of the start, which may be sent again"() {
        const encoder = rows.slice(0, 9);
        const padding_mask = [1, 1, 0, 1, 1, 1, 1, 1, 0];
        const client = new Client(crossed);
        const fields = { layer: 1, session_id: "x", encoder_padding_mask: padding_mask };
        const session = await client.start(encoder, [rows[10]], fields);
        const again = await client.start(encoder, [rows[10]], fields);
        assert.equal(again.first.replayed, true);
        assert.deepEqual(session.lengths, { 0: 7, 1: 7 });
        const step = await session.decode([rows[10]], { layer: 1 });
        const body = { layer: 1, hidden_states: [rows[10]], padding_mask };
        const plain = await ask("/attend", { ...body, encoder_hidden_states: encoder }, crossed);
        for (const reply of [session.first, again.first, step])
            nested(reply.output)[0].forEach((number, i) =>
                assert.ok(Math.abs(number - plain.output[0][i]) < 1e-6),
            );
        await session.end();
    },

    async "a session is created over encoder rows"() {
        const encoder_padding_mask = [1, 1, 0, 1, 1, 1, 1, 1, 0];
        const client = new Client(crossed);
        const started = await client.start(rows.slice(0, 9), [rows[10]], { encoder_padding_mask });
        assert.match(started.sessionId, /^[\w-]+\.[0-9a-z]{26}$/); // names a shard
        const fields = { encoder_hidden_states: rows.slice(0, 9), encoder_padding_mask, ttl_s: 99 };
        await client.withSession(fields, async (session) => {
            assert.deepEqual(session.lengths, { 0: 7, 1: 7 });
            assert.equal((await session.refresh()).ttl_s, 99);
            const step = await session.decode([rows[10]]);
            assert.deepEqual(nested(step.output), nested(started.first.output));
        });
        await started.end();
    },

    async "an error says the lowest length that a window has left"() {
        const heads = [Array(200).fill([1, 0])];
        const shape = { num_attention_heads: 1, head_dim: 2, sliding_window: 8 };
        await new Client(url).withSession(shape, async (session) => {
            await session.decode(undefined, { query: heads, key: heads, value: heads });
            const error = await session.truncate(10).catch((caught) => caught);
            assert.equal(error.code, "position_forgotten");
            assert.equal(error.lowestLength, (await session.refresh()).lowest_length);
            await session.truncate(error.lowestLength);
            assert.deepEqual(session.lengths, { 0: error.lowestLength });
        });
    },

    async "a session without weights takes query, key and value"() {
        const heads = (seed) => ({
            query: [
                [Math.sin(seed), 1],
                [0.5, Math.cos(seed)],
            ],
            key: [[Math.cos(seed), Math.sin(seed)]],
            value: [[seed, -seed, 1]],
        });
        const all = (name) => [0, 1, 2].map((seed) => heads(seed)[name]);
        const client = new Client(url);
        const shape = { num_attention_heads: 2, num_key_value_heads: 1, head_dim: 2 };
        await client.withSession({ ...shape, value_head_dim: 3 }, async (session) => {
            assert.equal(session.model, null);
            await session.decode(undefined, heads(0));
            await session.decode(undefined, heads(1));
            const [reply] = await client.stepMany([[session, heads(2)]]);
            assert.equal(reply.length, 3);
            const expected = await ask("/attend", {
                query: [0, 1].map((head) => [heads(2).query[head]]),
                key: [all("key").map(([row]) => row)],
                value: [all("value").map(([row]) => row)],
            });
            same(
                nested(reply.output),
                expected.output.map(([row]) => row),
            );
        });
    },

    async "attn-client.d.mts has what attn-client.mjs has"() {
        const path = new URL("../../clients/js/attn-client.d.mts", import.meta.url);
        const text = readFileSync(path, "utf8");
        const declared = [...text.matchAll(/^export (?:class|function) (\w+)/gm)];
        const exported = await import("../../clients/js/attn-client.mjs");
        assert.deepEqual(declared.map((match) => match[1]).sort(), Object.keys(exported).sort());
        for (const type of [Client, Session]) {
            const body = text.split(`export class ${type.name} {`)[1].split("\n}")[0];
            const names = new Set([...body.matchAll(/^ {4}(\w+)[(<]/gm)].map((match) => match[1]));
            const inner = ["constructor", "took"]; // of which only the first is for programs
            const made = Object.getOwnPropertyNames(type.prototype);
            assert.deepEqual(
                [...names].filter((name) => !inner.includes(name)).sort(),
                made.filter((name) => !inner.includes(name)).sort(),
            );
        }
    },

    async "blocks of docs/CLIENTS.md run as they stand"() {
        const page = readFileSync(new URL("../../docs/CLIENTS.md", import.meta.url), "utf8");
        const blocks = [...page.matchAll(/^```js\n(.*?)^```/gms)].map((match) => match[1]);
        assert.ok(blocks.length > 0);
        const here = new URL("../../", import.meta.url).href;
        const code = blocks
            .join("\n")
            .replaceAll("http://127.0.0.1:8080", url)
            .replaceAll('"./clients/', `"${here}clients/`)
            .replaceAll("console.log(", "void (");
        await import(`data:text/javascript,${encodeURIComponent(code)}`);
    },
};

let failures = 0;
for (const [name, test] of Object.entries(tests)) {
    try {
        await test();
    } catch (error) {
        failures++;
        console.log(`FAILED: ${name}\n${error.stack}`);
    }
}
console.log(`Ran ${Object.keys(tests).length} tests`);
process.exit(failures ? 1 : 0);
