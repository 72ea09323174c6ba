/**
 * test_modules.mjs: the page's modules that read files and make rows, without a browser.
 *
 *     node --test tests/ui/test_modules.mjs
 */
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import test from "node:test";

import * as files from "../../server/ui/files.js";
import * as rows from "../../server/ui/rows.js";
import * as statistics from "../../server/ui/statistics.js";
import { part, store, tell, watch } from "../../server/ui/store.js";

test("index.html fetches each module at once, and first of all what tells of one that is lost", () => {
    const folder = new URL("../../server/ui/", import.meta.url);
    const page = readFileSync(new URL("index.html", folder), "utf8");
    const asked = [...page.matchAll(/ (?:href|src)="ui\/(\w[^"]*js)"/g)].map((match) => match[1]);
    assert.equal(asked[0], "loading.js");
    const isWorker = (name) => /^demo_(worker|model|tokenizer)\.js$/.test(name); // asks for its own
    const there = readdirSync(folder).filter((name) => /\.m?js$/.test(name) && !isWorker(name));
    assert.deepEqual(asked.sort(), there.sort());
});

test("a part of the store has one owner, and those that watch it hear its news until they end", () => {
    const heard = [];
    const own = part("test", { count: 0 });
    assert.throws(() => part("test", {}), /two parts test/);
    const ends = ["first", "second"].map((who) => watch("test", (n) => heard.push(who + n)));
    own.count = 1;
    tell("test", 1);
    ends[0]();
    tell("test", 2);
    assert.deepEqual(heard, ["first1", "second1", "second2"]);
    assert.equal(store.test.count, 1);
});

const golden = new URL("../golden/", import.meta.url);

/** A .npy file: the header's dict as text, then bytes. */
function npy(dict, data, { version = 1, length } = {}) {
    const text = Buffer.from(dict + "\n");
    const head = Buffer.alloc(version === 1 ? 10 : 12);
    head.write("\x93NUMPY", "latin1");
    head[6] = version;
    if (version === 1) head.writeUInt16LE(length ?? text.length, 8);
    else head.writeUInt32LE(length ?? text.length, 8);
    return new Blob([head, text, data]);
}
const dict = (descr, shape, order = "False") =>
    `{'descr': '${descr}', 'fortran_order': ${order}, 'shape': ${shape}, }`;

/** A safetensors file of a header, given as an object or as text, and bytes. */
function safetensors(header, data = new Uint8Array(0), length) {
    const text = Buffer.from(typeof header === "string" ? header : JSON.stringify(header));
    const head = Buffer.alloc(8);
    head.writeBigUInt64LE(BigInt(length ?? text.length));
    return new Blob([head, text, data]);
}
const tensor = (shape, from, to, dtype = "F32") => ({ dtype, shape, data_offsets: [from, to] });
const floats = (...numbers) => new Uint8Array(Float32Array.from(numbers).buffer);

async function refused(blob, pattern) {
    const attempt = async () => {
        const opened = await files.open(blob, "f");
        files.captureOf(opened);
        for (const entry of opened.entries) await files.readRows(entry, "f");
    };
    await assert.rejects(attempt, (error) => {
        assert.match(error.message, pattern);
        assert.match(error.message, /^f: /);
        assert.ok(!(error instanceof TypeError) && !(error instanceof RangeError), error.stack);
        return true;
    });
}

test("npy_of_each_type_and_version_reads_back", async () => {
    const wanted = [1, -0.5, 2 ** -24, 65504, 0, 3];
    const half = Uint16Array.from([0x3c00, 0xb800, 0x0001, 0x7bff, 0, 0x4200]);
    for (const [descr, array, version] of [
        ["<f4", Float32Array.from(wanted), 1],
        ["<f8", Float64Array.from(wanted), 2],
        ["<f2", half, 3],
    ]) {
        const opened = await files.open(npy(dict(descr, "(2, 3)"), array, { version }), "x.npy");
        const read = await files.readRows(opened.entries[0], "x.npy");
        assert.deepEqual(read.shape, [2, 3]);
        assert.deepEqual([...files.numbersOf(read)], wanted);
        assert.equal(read.data instanceof Uint16Array, descr === "<f2");
    }
});

test("npy_with_a_batch_of_one_is_rows_and_other_shapes_are_refused", async () => {
    const three = await files.open(npy(dict("<f4", "(1, 2, 1)"), floats(1, 2)), "f");
    assert.deepEqual((await files.readRows(three.entries[0], "f")).shape, [2, 1]);
    await refused(npy(dict("<f4", "(2,)"), floats(1, 2)), /expected \[tokens, width\]/);
    await refused(npy(dict("<f4", "()"), floats(1)), /expected \[tokens, width\]/);
    await refused(npy(dict("<f4", "(0, 4)"), floats()), /expected \[tokens, width\]/);
    await refused(npy(dict("<f2", "(131073, 1)"), new Uint16Array(131073)), /expected \[tokens/);
});

test("malformed_npy_is_refused_with_a_sentence", async () => {
    await refused(npy(dict("<i4", "(1, 1)"), floats(1)), /type <i4; float32/);
    await refused(npy(dict("constructor", "(1, 1)"), floats(1)), /float32/);
    await refused(npy(dict("<f4", "(1, 1)", "True"), floats(1)), /Fortran/);
    await refused(npy(dict("<f4", "(2, 2)"), floats(1)), /makes 16 bytes, 4 are there/);
    await refused(npy(dict("<f4", "(1, 1)"), floats(1, 2)), /makes 4 bytes, 8 are there/);
    await refused(npy(dict("<f4", "(-1, 1)"), floats(1)), /no shape/);
    await refused(npy(dict("<f4", "(99999999999, 99999999999)"), floats(1)), /cannot be/);
    await refused(npy("{}", floats(1)), /float32/);
    await refused(npy("{}", floats(), { length: 60000 }), /longer than the file/);
    await refused(npy("{}", floats(), { version: 2, length: 0xffffffff }), /longer than the file/);
    await refused(npy("", floats()).slice(0, 9), /ends within its header/);
});

test("safetensors_of_each_type_read_back_and_integers_are_left_out", async () => {
    const data = new Blob([
        floats(1, 2),
        Uint16Array.from([0x3f80, 0xc000]), // 1, -2 as BF16
        Uint16Array.from([0x3c00, 0x3800]), // 1, 0.5 as FP16
        new Float64Array([0.25, 4]),
        new Int32Array([7]),
    ]);
    const header = {
        __metadata__: { tokens: '["a","b"]', number: 3 },
        a: tensor([1, 2], 0, 8),
        b: tensor([1, 2], 8, 12, "BF16"),
        c: tensor([1, 2], 12, 16, "F16"),
        d: tensor([2, 1], 16, 32, "F64"),
        e: tensor([1], 32, 36, "I32"),
    };
    const bytes = new Uint8Array(await data.arrayBuffer());
    const opened = await files.open(safetensors(header, bytes), "f");
    assert.deepEqual(
        opened.entries.map((entry) => entry.name),
        ["a", "b", "c", "d"],
    );
    const read = await Promise.all(opened.entries.map((entry) => files.readRows(entry, "f")));
    assert.deepEqual(
        read.map((rows) => [...files.numbersOf(rows)]),
        [
            [1, 2],
            [1, -2],
            [1, 0.5],
            [0.25, 4],
        ],
    );
    assert.deepEqual(files.metadataTokens(opened), ["a", "b"]);
    assert.equal(files.metadataTokens(opened, "constructor"), null);
});

test("safetensors_of_a_checkpoint_are_listed_and_read_lazily", async () => {
    const bytes = readFileSync(new URL("gpt2/model/model.safetensors", golden));
    const opened = await files.open(new Blob([bytes]), "model.safetensors");
    const entry = opened.entries.find(({ shape }) => shape.length === 2);
    const { data, shape } = await entry.read();
    assert.equal(data.length, shape[0] * shape[1]);
    assert.ok(data.every(Number.isFinite));
});

test("malformed_safetensors_are_refused_with_a_sentence", async () => {
    await refused(safetensors("{]"), /no JSON/);
    await refused(safetensors({ a: tensor([1, 2], 0, 8) }, floats(1)), /beyond the end/);
    await refused(safetensors({ a: tensor([1, 2], 0, 4) }, floats(1)), /makes 8 bytes, 4 are/);
    await refused(safetensors({ a: tensor([1, 2], 8, 0) }, floats(1, 2)), /data_offsets/);
    await refused(safetensors({ a: tensor([1, 2], -8, 0) }, floats(1, 2)), /data_offsets/);
    await refused(safetensors({ a: tensor([1, 2], 0.5, 8.5) }, floats(1, 2, 3)), /data_offsets/);
    await refused(safetensors({ a: { dtype: "F32", shape: [1] } }), /data_offsets/);
    await refused(
        safetensors({ a: { dtype: "F32", shape: [1], data_offsets: 4 } }),
        /data_offsets/,
    );
    await refused(safetensors({ a: null }), /data_offsets/);
    await refused(safetensors({ a: tensor("no", 0, 0) }), /list of dimensions/);
    await refused(safetensors({ a: tensor([1e300, 1e300], 0, 4) }, floats(1)), /cannot be/);
    await refused(safetensors({ a: tensor([2 ** 31, 2 ** 31, 8], 0, 4) }, floats(1)), /too large/);
    await refused(safetensors({ a: tensor(["1", 1], 0, 4) }, floats(1)), /cannot be/);
    await refused(safetensors("{}", floats(), 1e6), /cut short/);
    await refused(safetensors("{}" + " ".repeat(64 * 2 ** 20)), /above 67108864/);
    await refused(safetensors({ a: tensor([1, 1], 0, 4), __metadata__: null }).slice(0, 40), /cut/);
});

test("json_rows_are_nested_or_flat_with_a_shape", async () => {
    const read = async (text) => {
        const opened = await files.open(new Blob([text]), "f");
        const { data, shape } = await files.readRows(opened.entries[0], "f");
        return [[...data], shape];
    };
    assert.deepEqual(await read(" [[1, 2], [3, 4]]"), [
        [1, 2, 3, 4],
        [2, 2],
    ]);
    assert.deepEqual(await read('{"shape":[2,1],"data":[1,2]}'), [
        [1, 2],
        [2, 1],
    ]);
    await refused(new Blob(["[[1, 2], [3]]"]), /unequal length/);
    await refused(new Blob(["[[1, null]]"]), /finite/);
    await refused(new Blob(['[[1, "2"]]']), /finite/);
    await refused(new Blob(["[[[1]], [1]]"]), /unequal length/);
    await refused(new Blob([`[[${"0,".repeat(9e6)}0]${",[]".repeat(9e6)}]`]), /unequal length/);
    await assert.rejects(read("[1, 2]"), /has shape \[2\]; expected \[tokens, width\]/);
    await refused(new Blob(["[[1, 2]"]), /is no JSON/);
    await refused(new Blob(['{"rows": 1}']), /expected nested arrays/);
    await refused(new Blob(['{"data": [1]}']), /list of dimensions/);
    await refused(new Blob(['{"shape":[3],"data":[1]}']), /not that of 1 numbers/);
    await refused(new Blob([""]), /is empty/);
    await refused(new Blob(["plain text"]), /no .npy, .npz, .pt, safetensors or JSON/);
});

test("a_capture_has_layers_of_one_length_and_texts_for_it", async () => {
    const capture = (extra, metadata = {}) =>
        safetensors(
            {
                __metadata__: { format: "attn-capture-1", model: "m", ...metadata },
                "layer.0": tensor([2, 1], 0, 8),
                "layer.10": tensor([2, 2], 0, 16),
                ...extra,
            },
            floats(1, 2, 3, 4),
        );
    const metadata = { tokens: '["<b>x</b>","y"]' };
    const read = files.captureOf(await files.open(capture({}, metadata), "f"));
    assert.deepEqual([...read.rows.keys()], [0, 10]);
    assert.deepEqual([read.model, read.tokens, read.length], ["m", ["<b>x</b>", "y"], 2]);
    assert.equal(read.encoder.size, 0);
    const cross = capture(
        { "layer.0.encoder": tensor([3, 1], 0, 12) },
        { encoder_tokens: '["a","b","c"]' },
    );
    const both = files.captureOf(await files.open(cross, "f"));
    assert.deepEqual([both.encoderLength, both.encoderTokens], [3, ["a", "b", "c"]]);
    await refused(capture({ "layer.1": tensor([3, 1], 0, 12) }), /another layer/);
    await refused(capture({ "layer.1": tensor([2], 0, 8) }), /not \[T, E\]/);
    await refused(capture({}, { tokens: '["a"]' }), /1 texts for 2 rows/);
    await refused(capture({}, { tokens: '["a", 1]' }), /no list of texts/);
    await refused(capture({}, { tokens: "[" }), /no JSON list/);
    await refused(safetensors({ __metadata__: { format: "attn-capture-1" } }), /without a tensor/);
    assert.equal(files.captureOf(await files.open(safetensors({}), "f")), null);
});

test("labels_are_one_token_a_line", async () => {
    assert.deepEqual(await files.readLabels(new Blob(["a\r\n\nb c\n"])), ["a", "", "b c"]);
    await assert.rejects(
        files.readLabels(new Blob(["\n".repeat(131073)]), "l.txt"),
        /131072 at most/,
    );
});

test("random_rows_are_normal_and_depend_on_token_seed_and_width_alone", () => {
    const { data, shape } = rows.randomRows(["a", "b", "a"], "7", 9);
    assert.deepEqual(shape, [3, 9]);
    assert.deepEqual(data.slice(0, 9), data.slice(18));
    assert.notDeepEqual(data.slice(0, 9), data.slice(9, 18));
    assert.deepEqual(data.slice(9, 18), rows.randomRow("b", "7", 9));
    assert.notDeepEqual(rows.randomRow("b", "7", 9), rows.randomRow("b", "8", 9));
    const many = rows.randomRow("x", "1", 100000);
    const mean = many.reduce((sum, value) => sum + value, 0) / many.length;
    const moment = (power) => many.reduce((sum, x) => sum + x ** power, 0) / many.length;
    assert.ok(many.every(Number.isFinite));
    assert.ok(Math.abs(mean) < 0.02 && Math.abs(moment(2) - 1) < 0.02, `${mean} ${moment(2)}`);
    assert.ok(Math.abs(moment(4) - 3) < 0.15, `${moment(4)}`);
});

test("large_random_rows_are_the_same_numbers_cut_to_bf16", () => {
    const tokens = Array.from({ length: 2000 }, (_, t) => `t${t % 5}`);
    const large = rows.randomRows(tokens, "7", 512);
    assert.equal(large.datatype, "BF16");
    const row = files.numbersOf({ ...large, data: large.data.subarray(512, 1024) });
    const exact = rows.randomRow("t1", "7", 512);
    row.forEach((value, i) => assert.ok(Math.abs(value - exact[i]) <= Math.abs(exact[i]) / 128));
});

test("groups_and_successors_are_those_of_the_tokens", () => {
    const tokens = ["The", "▁cat", ".", "Ġcat", "sat", "</s>", "The"];
    assert.deepEqual(rows.tokensOf("  The cat\n sat\t"), ["The", "cat", "sat"]);
    assert.deepEqual(rows.groupOf("delimiters", tokens), [2, 5]);
    assert.deepEqual(rows.groupOf("rare", tokens), [2, 4, 5]);
    assert.deepEqual(rows.groupOf("first", tokens), [0]);
    assert.deepEqual(rows.groupOf("5, 0,5,99,x,-1", tokens), [0, 5]);
    assert.deepEqual(rows.successors(["a", "b", "a", "b", "b", "", ""]), [-1, -1, 1, 2, 4, -1, -1]);
    assert.throws(() => rows.tokensOf("a ".repeat(131073)), /131072 at most/);
});

test("heads_are_in_the_order_of_a_statistic_with_the_unknown_last", () => {
    const head = (layer, number, stats) => ({ layer, head: number, stats });
    const heads = [
        head(1, 0, { self: 0.5, groups: [{ share: 0.1, hits: 1 }] }),
        head(0, 1, undefined),
        head(0, 0, { self: 0.5, groups: [{ share: 0.3, hits: 0 }] }),
        head(0, 2, { self: 0.9 }),
    ];
    const order = (name) => statistics.sorted(heads, name).map((h) => `${h.layer}.${h.head}`);
    assert.deepEqual(order("layer"), ["0.0", "0.1", "0.2", "1.0"]);
    assert.deepEqual(order("self"), ["0.2", "0.0", "1.0", "0.1"]);
    assert.deepEqual(order("group_share"), ["0.0", "1.0", "0.1", "0.2"]);
    assert.deepEqual(statistics.rangeOf(heads, "self"), [0.5, 0.9]);
    assert.deepEqual(statistics.rangeOf(heads, "ablation"), [0, 0]);
    for (const name of ["constructor", "weights"])
        assert.equal(statistics.valueOf({}, name), undefined);
    assert.ok(!statistics.available([]).includes("target_hits"));
    assert.ok(statistics.available(["target"]).includes("target_hits"));
});

test("pooled_cells_cover_every_row_and_column_of_their_blocks", () => {
    for (const [rows, columns, R, C] of [
        [5, 7, 2, 3],
        [4, 4, 4, 4],
        [3, 3, 96, 96],
        [96, 1, 10, 5],
        [1, 9, 1, 2],
    ])
        for (const type of ["max", "mean"]) {
            const values = Float32Array.from({ length: rows * columns }, (_, i) => Math.sin(9 * i));
            const made = statistics.pooled(values, rows, columns, [R, C], type);
            assert.deepEqual([made.rows, made.columns], [Math.min(R, rows), Math.min(C, columns)]);
            made.values.forEach((value, i) => {
                const r = Math.floor(i / made.columns),
                    c = i % made.columns,
                    cells = [];
                for (let y = 0; y < rows; y++)
                    for (let x = 0; x < columns; x++) {
                        const row =
                            y >= Math.floor((r * rows) / made.rows) &&
                            y < Math.ceil(((r + 1) * rows) / made.rows);
                        const column =
                            x >= Math.floor((c * columns) / made.columns) &&
                            x < Math.ceil(((c + 1) * columns) / made.columns);
                        if (row && column) cells.push(values[y * columns + x]);
                    }
                const mean = cells.reduce((sum, cell) => sum + cell, 0) / cells.length;
                const wanted = type === "max" ? Math.max(...cells) : mean;
                assert.ok(Math.abs(value - wanted) < 1e-6, `${rows} x ${columns} ${type} ${i}`);
            });
        }
});
