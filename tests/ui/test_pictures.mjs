/**
 * test_pictures.mjs: what the page draws and exports, without a browser: colours, scales, labels,
 * maps and their files.
 *
 *     node --test tests/ui/test_pictures.mjs
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

// What address.js and client.js read of a page.
globalThis.document = { baseURI: "http://localhost/" };
globalThis.location = { hash: "", pathname: "/", search: "" };
globalThis.addEventListener = () => {};
const visited = []; // [how, address] of each change of settings
globalThis.history = {
    pushState: (state, title, address) => visited.push(["push", address]),
    replaceState: (state, title, address) => visited.push(["replace", address]),
};

const ui = (name) => import(`../../server/ui/${name}`);
const address = await ui("address.js");
const axes = await ui("axes.js");
const colors = await ui("colors.js");
const formats = await ui("formats.js");
const pictures = await ui("picture.js");
const drawings = await ui("svg.js");
const frames = await ui("drawing.js");
const { Heatmap } = await ui("heatmap.js");
const { combined } = await ui("combined.js");
const { pooled } = await ui("statistics.js");
const { Difference, productsOf, relativeChange } = await ui("difference.js");
const { differences } = await ui("controls.js");

/** Uniform numbers in [0, 1), the same in each run. */
function randomness(seed) {
    let state = seed;
    return () => {
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        return state / 2 ** 32;
    };
}

// ---- Colours ----------------------------------------------------------------------------------

/** Oklab lightness and relative luminance of a colour, by their definitions. */
function lightOf(rgb) {
    const [r, g, b] = rgb.map((part) => {
        const x = part / 255;
        return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
    });
    const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
    const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
    const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
    const lightness = 0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s;
    return { lightness, luminance: 0.2126 * r + 0.7152 * g + 0.0722 * b };
}

/** Asserts that lightness goes one way in steps that are nearly equal. */
function assertEven(table, name) {
    const light = table.map((rgb) => lightOf(rgb).lightness);
    const whole = light.at(-1) - light[0];
    for (let i = 16; i < light.length; i += 16) {
        const step = (light[i] - light[i - 16]) / whole;
        const share = 16 / (light.length - 1);
        assert.ok(step > 0.6 * share && step < 1.4 * share, `${name} at ${i}: ${step} of ${share}`);
    }
}

test("sequential maps move in even steps of lightness, diverging ones from both ends", () => {
    const names = colors.mapsOf(false).map(([name]) => name);
    assert.ok(names.length >= 2);
    for (const name of names) assertEven(colors.tableOf(name), name);
    const diverging = colors.mapsOf(true).map(([name]) => name);
    assert.ok(diverging.length >= 1);
    for (const name of diverging) {
        const table = colors.tableOf(name);
        assertEven(table.slice(0, 128).reverse(), `lower half of ${name}`);
        assertEven(table.slice(128), `upper half of ${name}`);
        const ends = [table[0], table.at(-1)].map((rgb) => lightOf(rgb).lightness);
        assert.ok(Math.abs(ends[0] - ends[1]) < 0.06, `${name}: equal magnitudes, equal lightness`);
    }
    assert.equal(colors.mapNamed("nothing", true), diverging[0]);
    assert.equal(colors.mapNamed(names[1], false), names[1]);
    assert.equal(
        colors.mapNamed(names[1], true),
        diverging[0],
        "a sequential map is none of scores",
    );
});

test("the grey map has no hue, and its luminance falls from white with each step", () => {
    const table = colors.tableOf("grey");
    assert.deepEqual(table[0], [255, 255, 255]);
    table.forEach((rgb, i) => {
        assert.equal(new Set(rgb).size, 1, `${rgb}`);
        if (i > 0) assert.ok(lightOf(rgb).luminance <= lightOf(table[i - 1]).luminance, `${i}`);
    });
    assert.ok(lightOf(table.at(-1)).luminance < 0.01);
    for (
        let i = 8;
        i < table.length;
        i += 8 // of 8 bits: eight steps are told apart
    )
        assert.ok(lightOf(table[i]).luminance < lightOf(table[i - 8]).luminance, `${i}`);
});

test("numbers on cells are read at 4.5 to 1 on every colour", () => {
    for (const diverging of [false, true])
        for (const [name] of colors.mapsOf(diverging))
            for (const rgb of colors.tableOf(name)) {
                const ground = lightOf(rgb).luminance;
                const ink = colors.inkOn(rgb) === "#ffffff" ? 1 : 0;
                const [more, less] = ink > ground ? [ink, ground] : [ground, ink];
                assert.ok((more + 0.05) / (less + 0.05) >= 4.5, `${name} ${rgb}`);
            }
});

test("a linear scale divides by the largest finite magnitude, hidden cells left out", () => {
    const scale = colors.scaleOf("linear", [0, 0.25, 0.5, -Infinity]);
    assert.deepEqual([0, 0.25, 0.5, 9].map(scale.unit), [0, 0.5, 1, 1]);
    assert.equal(scale.high, 0.5);
    assert.deepEqual(
        scale.ticks.map((tick) => tick.value),
        [0, 0.1, 0.2, 0.3, 0.4, 0.5],
    );
    for (const { unit, value } of scale.ticks) assert.ok(Math.abs(unit - value / 0.5) < 1e-9);
    const nothing = colors.scaleOf("linear", [0, -Infinity]);
    assert.equal(nothing.unit(0), 0);
});

test("a few cells do not decide the linear scale of a large map, and the legend says so", () => {
    const values = Float32Array.from({ length: 10000 }, (_, i) => (i === 0 ? 1 : (i % 100) / 5000));
    const scale = colors.scaleOf("linear", values);
    assert.ok(scale.clipped && Math.abs(scale.high - 99 / 5000) < 1e-6);
    assert.equal(scale.unit(1), 1);
    assert.match(scale.note, /larger/);
    assert.ok(scale.ticks.every((tick) => tick.value <= scale.high * 1.001));
    assert.equal(colors.scaleOf("linear", values, { high: 1 }).high, 1);
    assert.equal(colors.scaleOf("linear", values, { diverging: true }).high, 1);
    assert.equal(colors.scaleOf("linear", values.slice(0, 300)).high, 1, "a small map");
});

test("a large map of zeros but for a few cells has a scale that ends at the largest", () => {
    const scale = colors.scaleOf("linear", new Float32Array(10000).fill(0.5, 7, 9));
    assert.equal(scale.high, 0.5);
    assert.ok(!scale.clipped);
});

test("a logarithmic scale has its floor at a power of ten and says so", () => {
    const scale = colors.scaleOf("log", [1, 1e-9, 0, -Infinity]);
    assert.equal(scale.floor, 1e-5);
    assert.match(scale.note, /1e−5/);
    assert.deepEqual([0, 1e-9, 1e-5].map(scale.unit), [0, 0, 0]);
    assert.ok(Math.abs(scale.unit(0.01) - 0.6) < 1e-12);
    assert.equal(scale.unit(1), 1);
    assert.deepEqual(
        scale.ticks.map((tick) => tick.value),
        [1e-5, 1e-4, 1e-3, 0.01, 0.1, 1],
    );
});

test("numbers of a legend do not touch, and stand alike on both sides of 0", () => {
    for (const kind of ["linear", "log", "rank"])
        for (const diverging of [false, true])
            for (const width of [180, 260, 360]) {
                const values = Array.from(
                    { length: 99 },
                    (_, i) => (i + 1) * 0.173 * (i % 2 || -1),
                );
                const scale = colors.scaleOf(kind, values, { diverging });
                const tree = drawings.legend(scale, colors.mapNamed("", diverging), width, "black");
                const told = tree.children.filter(({ name }) => name === "text");
                const texts = told.map(({ children }) => children[0]);
                const ticks = tree.children.filter(({ name }) => name === "path");
                assert.equal(ticks.length, scale.ticks.length, "each tick has its line");
                assert.ok(told.length >= 2, `${kind} ${width}: ${texts}`);
                for (let i = 1; i < told.length; i++) {
                    const half = (j) => (told[j].children[0].length * 11 * 0.5) / 2;
                    const room = told[i].attributes.x - told[i - 1].attributes.x;
                    assert.ok(room >= half(i) + half(i - 1), `${kind} ${width}: ${texts}`);
                }
                if (!diverging) continue;
                assert.ok(texts.includes("0"), `${kind} ${width}: ${texts}`);
                const mirrored = texts.map((text) =>
                    text === "0" ? text : text.startsWith("−") ? text.slice(1) : `−${text}`,
                );
                assert.deepEqual(mirrored.reverse(), texts);
            }
});

test("a scale by rank gives each cell its share of smaller cells, ties alike", () => {
    const values = [3, 1, 2, 2, -Infinity, 10, 7, 8, 9];
    const scale = colors.scaleOf("rank", values);
    const finite = values.filter(Number.isFinite);
    for (const value of finite) {
        const below = finite.filter((other) => other < value).length;
        const same = finite.filter((other) => other === value).length;
        assert.ok(
            Math.abs(scale.unit(value) - (below + same / 2) / finite.length) < 1e-9,
            `${value}`,
        );
    }
});

test("diverging scales have 0 in the middle and are odd", () => {
    for (const kind of ["linear", "log", "rank"]) {
        const scale = colors.scaleOf(kind, [-4, 1, 0, 2, 0.5], { diverging: true });
        assert.equal(scale.unit(0), 0.5);
        for (const value of [0.1, 1, 2, 4])
            assert.ok(Math.abs(scale.unit(value) + scale.unit(-value) - 1) < 1e-12, kind);
        assert.ok(scale.unit(-4) < scale.unit(-1) && scale.unit(-1) < scale.unit(1));
        assert.ok(scale.ticks.some((tick) => tick.value === 0 && tick.unit === 0.5));
    }
    const shared = colors.scaleOf("linear", [1], { high: 4 });
    assert.equal(shared.unit(1), 0.25, "the end of a scale can be given");
});

test("painted cells have their colour; cells that cannot be attended have none", () => {
    const values = [0, 0.3, 1, -Infinity];
    const pixels = colors.paint(values, colors.scaleOf("linear", values), "violet");
    const expected = [0, Math.floor(0.3 * 256), 255].map((i) => [
        ...colors.tableOf("violet")[i],
        255,
    ]);
    assert.deepEqual([...pixels], [...expected.flat(), 0, 0, 0, 0]);
});

// ---- Labels -----------------------------------------------------------------------------------

test("labels never overlap and none that fits is left out, at any zoom", () => {
    const random = randomness(3);
    for (let i = 0; i < 2000; i++) {
        const count = 1 + Math.floor(random() * 5000);
        const begin = random() * (count - 1);
        const end = begin + 1 + random() * (count - begin - 1);
        const size = 700 / (end - begin);
        const places = axes.labelPlaces(begin, end, size, 15, count);
        for (let j = 0; j < places.length; j++) {
            assert.ok(places[j] + 0.5 >= begin && places[j] < end && places[j] < count);
            if (j > 0) assert.ok((places[j] - places[j - 1]) * size >= 15);
        }
        if (size >= 15) assert.ok(places.length >= Math.floor(end - begin) - 1, "all labels fit");
        else assert.ok((places.length + 1) * 15 * 2.5 + 15 >= 700, `${places.length} at ${size}`);
    }
});

test("of labels that would touch the first ones are kept", () => {
    const labels = [40, 54, 55, 10, 26, 24].map((at) => ({ at }));
    assert.deepEqual(
        axes.apart(labels, 15).map(({ at }) => at),
        [40, 55, 10],
    );
    assert.deepEqual(
        axes.apart(labels, 14).map(({ at }) => at),
        [40, 54, 10, 26],
    );
});

test("long labels end in an ellipsis within their width", () => {
    const measure = (text) => 7 * [...text].length;
    assert.equal(axes.fitted("cat", 70, measure), "cat");
    assert.equal(axes.fitted("internationalization", 70, measure), "internati…");
    assert.equal(axes.fitted("🙂🙂🙂🙂", 21, measure), "🙂🙂…", "no half of a letter");
    assert.equal(axes.fitted("word", 3, measure), "…");
});

test("blanks and controls of tokens are seen, and none turns the text around", () => {
    assert.equal(axes.shownText(" the"), "·the");
    assert.equal(axes.shownText("\u0120the\n"), "·the⏎");
    assert.equal(axes.shownText("a\u202eb\u0000"), "a\ufffdb\ufffd");
    assert.equal(axes.labelOf(["", "x"], 0, 7), "7");
    assert.equal(axes.labelOf(["", "x"], 1, 7), "x");
});

test("a profile shows the largest value under each pixel", () => {
    const values = [1, 5, 2, -Infinity, 3, 4];
    assert.deepEqual([...axes.profileOf(values, 6, 0, 6, 3)], [5, 2, 4]);
    assert.deepEqual([...axes.profileOf(values, 6, 1, 2, 2)], [5, 5]);
    assert.ok(Number.isNaN(axes.profileOf(values, 6, 3, 4, 1)[0]));
});

test("the tokens of the lines view lie around the selected one", () => {
    assert.deepEqual(axes.around(5, 40), [0, 40]);
    assert.deepEqual(axes.around(100, 500), [68, 132]);
    assert.deepEqual(axes.around(499, 500), [436, 500]);
});

test("maps of combined heads still say which layers are not shown", () => {
    const base = {
        kind: "rows",
        title: "rows",
        model: { resident_layers: [0, 1] },
        layers: [0],
        queries: 2,
        keys: 2,
        queryLabels: ["a", "b"],
        keyLabels: ["a", "b"],
        leftOut: "Not shown: layer 1",
    };
    const source = combined(base, "mean");
    assert.equal(source.leftOut, "Not shown: layer 1");
    assert.deepEqual([source.way, source.base, source.local], ["mean", base, true]);
});

// ---- Maps -------------------------------------------------------------------------------------

const layer = {
    is_causal: true,
    sliding_window: null,
    softcap: null,
    sinks: true,
    bias_kv: true,
    add_zero_attn: false,
    num_attention_heads: 2,
};

/** A source whose weights are known: of query t on key j, 0 where it does not see it. */
function sourceOf(queries, spec = layer) {
    const calls = [];
    const width = queries + Number(spec.bias_kv);
    const weight = (t, j) => (j <= t || j >= queries ? ((t * 31 + j * 17) % 97) / 9700 : 0);
    return {
        calls,
        weight,
        queries,
        keys: queries,
        kind: "rows",
        queryLabels: Array.from({ length: queries }, (_, t) => (t === 1 ? "<b>&" : "")),
        keyLabels: new Array(queries).fill(""),
        spec: () => spec,
        async call(number, fields) {
            calls.push(fields);
            const list = fields.rows ?? Array.from({ length: queries }, (_, t) => t);
            const [rows, columns] = fields.pool ?? [list.length, width];
            const data = new Float32Array(rows * columns);
            if (!fields.pool)
                list.forEach((t, r) => {
                    for (let j = 0; j < width; j++) data[r * width + j] = weight(t, j);
                });
            const maps = { attention_weights: { data, shape: [1, rows, columns] } };
            return fields.outputs.includes("head_stats")
                ? { ...maps, head_stats: [{ head: fields.heads[0], pattern: "local" }] }
                : maps;
        },
    };
}

const what = { layer: 0, head: 1, kind: "weights", stage: "raw", fields: { softcap: 3 } };

test("a small map is fetched whole, exact, with means, sinks and hidden cells", async () => {
    const source = sourceOf(9);
    const picture = await new pictures.Picture(source, what).fetch([500, 500]);
    assert.equal(source.calls.length, 1);
    const { outputs, heads, softcap, plain, pool } = source.calls[0];
    assert.deepEqual(
        [outputs[0], heads, softcap, plain, pool],
        ["attention_weights", [1], 3, true, undefined],
    );
    assert.deepEqual(outputs, ["attention_weights"], "one head is computed, and no statistics");
    assert.equal((await picture.fetchStats()).pattern, "local");
    assert.equal(picture.columns, 10);
    assert.equal(picture.columnLabel(9), "bias_kv");
    assert.equal(picture.columnLabel(4), "4");
    for (let t = 0; t < 9; t++) {
        let sum = 0;
        for (let j = 0; j < 10; j++) {
            assert.equal(picture.valueAt(t, j), Math.fround(source.weight(t, j)));
            assert.equal(picture.isHidden(t, j), j > t && j < 9);
            assert.equal(picture.rowValues(t)[j] === -Infinity, j > t && j < 9);
            sum += source.weight(t, j);
        }
        assert.ok(Math.abs(picture.sinks[t] - (1 - sum)) < 1e-6);
    }
    const off = { ...what, fields: { head_mask: [1, 0] } };
    const dark = await new pictures.Picture(sourceOf(9), off).fetch([500, 500]);
    assert.equal(dark.sinks, null, "a head that is off tells nothing of its sink");
    const mean = [3, 4, 5, 6, 7, 8].reduce((sum, t) => sum + source.weight(t, 3), 0) / 6;
    assert.ok(Math.abs(picture.means[3] - mean) < 1e-6, "over the queries that see the key");
});

test("a large map is pooled, and no reply of it is above 8 MB", async () => {
    const source = sourceOf(4096);
    const picture = await new pictures.Picture(source, what).fetch([700, 5000]);
    assert.deepEqual(source.calls[0].pool, [700, 1024]);
    assert.equal(source.calls[0].map_datatype, "FP16");
    assert.equal(picture.valueAt(4000, 17), undefined, "a pooled cell is no exact number");
    await picture.fetchRow(4000);
    const block = source.calls[1].rows;
    assert.ok(block.includes(4000) && block.length > 1 && 4 * block.length * 4097 <= 1e6);
    await picture.fetchRow(4001);
    assert.equal(source.calls.length, 2, "its neighbours came with it");
    assert.equal(picture.valueAt(4000, 17), Math.fround(source.weight(4000, 17)));
    assert.equal(picture.rowValues(4000)[4001], -Infinity);
    assert.equal(picture.valueAt(4000, 4001), 0, "the API's number of a hidden cell");
    const all = { row0: 0, row1: 4096, column0: 0, column1: 4097 };
    assert.equal(picture.wanted(all), null);
    const wanted = picture.wanted({ ...all, row0: 100.5, row1: 300 });
    assert.ok(wanted.row0 <= 100 && wanted.row0 + wanted.rows >= 300);
    assert.ok(4 * wanted.rows * picture.columns <= 8e6);
    await picture.fetchDetail(wanted);
    assert.equal(picture.valueAt(299, 5), Math.fround(source.weight(299, 5)));
    assert.equal(picture.wanted({ ...all, row0: 120, row1: 290 }), null, "they are there");
    const column = picture.columnValues(5, { row0: 120.5, row1: 124 });
    const exact = [120, 121, 122, 123].map((t) => Math.fround(source.weight(t, 5)));
    assert.deepEqual([column.first, [...column.values]], [120, exact]);
    assert.equal(picture.columnValues(5, all).values.length, 700, "pooled cells for all rows");
    await picture.fetchSums();
    const pools = source.calls.slice(-2).map((call) => [call.pool, call.pool_type]);
    assert.deepEqual(pools, [
        [[1, 4096], "mean"],
        [[4096, 1], "mean"],
    ]);
    for (let row = 0; row < 1500; row++) await picture.fetchRow(row);
    assert.equal(picture.rowValues(4000), undefined, "rows that were used last stay");
});

test("rows ahead of the pointer are fetched once, in few calls, and a slow link takes few", async () => {
    const source = sourceOf(4096);
    const picture = await new pictures.Picture(source, what).fetch([700, 700]);
    await picture.fetchRow(2000, undefined, 200000);
    const slow = source.calls[1].rows;
    await picture.fetchRow(3000, undefined, 1e9);
    assert.ok(4 * source.calls[2].rows.length * 4097 <= 8e6);
    assert.ok(slow.includes(2000) && 4 * slow.length * 4097 <= 220000);
    source.calls.length = 0;
    for (let row = 2000; row < 3500; row += 10) {
        await picture.fetchAhead(row, 1);
        assert.ok(picture.rowValues(row + 10), `${row + 10} is there before the pointer`);
    }
    assert.ok(
        source.calls.length <= 5 && source.calls.every(({ rows }) => 4 * rows.length * 4097 <= 8e6),
    );
    const asked = source.calls.flatMap(({ rows }) => rows);
    assert.equal(new Set(asked).size, asked.length, "no row twice");
    await picture.fetchAhead(2100, -1);
    assert.ok(source.calls.at(-1).rows.every((row) => row < 2100));
    source.calls.length = 0;
    const ahead = picture.fetchAhead(0, 1);
    await Promise.all([ahead, picture.fetchRow(5)]);
    assert.equal(source.calls.length, 1, "what is on its way is waited for");
    const { call } = source;
    source.call = () => (source.calls.push(null), Promise.reject(new Error("reply_too_large")));
    for (let i = 0; i < 3; i++) await picture.fetchAhead(800, 1);
    assert.equal(source.calls.length, 2, "a failure is not tried at each move of the pointer");
    await assert.rejects(
        picture.fetchRow(1200),
        /too_large/,
        "an error of a row that is asked for is told",
    );
    source.call = call;
    source.calls.length = 1;
    source.stats = new Map([[what.layer, { queries: 4096, heads: [{}, { pattern: "sink" }] }]]);
    const plain = new pictures.Picture(source, { ...what, head: 1, fields: { head_mask: [1, 0] } });
    assert.equal((await plain.fetchStats()).pattern, "sink", "all heads have asked for them");
    assert.equal(source.calls.length, 1);
    const changed = new pictures.Picture(source, { ...what, head: 1, fields: { softcap: 3 } });
    await changed.fetchStats();
    assert.equal(source.calls.length, 2, "of a layer that is changed they are others");
});

test("raw scores exist for each pair; masked ones are hidden", async () => {
    const source = sourceOf(5, { ...layer, bias_kv: false });
    const scores = { data: new Float32Array(25).fill(-2), shape: [1, 5, 5] };
    source.call = async (number, fields) => {
        source.calls.push(fields);
        return { attention_scores: { ...scores, data: scores.data.slice() } };
    };
    const raw = await new pictures.Picture(source, { ...what, kind: "scores" }).fetch([9, 9]);
    assert.equal(source.calls[0].stage, "raw");
    assert.equal(raw.valueAt(0, 4), -2);
    assert.equal(raw.isHidden(0, 4), false);
    const masked = { ...what, kind: "scores", stage: "masked" };
    const picture = await new pictures.Picture(source, masked).fetch([9, 9]);
    assert.equal(picture.isHidden(0, 4), true);
    assert.equal(picture.valueAt(0, 4), -Infinity);
});

test("a reply of another shape is no map; weightless calls append nothing", async () => {
    const source = sourceOf(5, { ...layer, bias_kv: false });
    source.spec = () => layer; // which has an appended column
    await assert.rejects(new pictures.Picture(source, what).fetch([9, 9]), /\[1, 5, 6\]/);
    source.lacks = ["query"];
    const picture = await new pictures.Picture(source, what).fetch([9, 9]);
    assert.deepEqual([picture.columns, picture.sinks, picture.isHidden(0, 4)], [5, null, false]);
});

test("the difference of two maps names its largest cell, over their common part", async () => {
    const first = await new pictures.Picture(sourceOf(6), what).fetch([9, 9]);
    const other = sourceOf(5);
    const plain = other.call;
    other.call = async (...call) => {
        const reply = await plain(...call);
        reply.attention_weights.data[3 * 6 + 2] += 0.5;
        return reply;
    };
    const second = await new pictures.Picture(other, what).fetch([9, 9]);
    const difference = new Difference(first, second);
    assert.deepEqual([difference.rows, difference.columns], [5, 5], "without appended columns");
    assert.deepEqual([difference.largest.row, difference.largest.column], [3, 2]);
    assert.ok(Math.abs(difference.largest.value + 0.5) < 1e-6);
    assert.ok(Math.abs(difference.valueAt(3, 2) + 0.5) < 1e-6);
    assert.equal(difference.isHidden(0, 3), true);
    const scores = [
        [1, -Infinity],
        [-Infinity, -Infinity],
    ].map((values) => ({
        ...first,
        kind: "scores",
        whole: true,
        rows: 1,
        columns: 2,
        keys: 2,
        map: { values: Float32Array.from(values), rows: 1, columns: 2 },
    }));
    const pooled = [8, 6].map((rows, i) => ({ ...scores[i], whole: false, rows }));
    assert.equal(new Difference(...pooled).comparable, false, "cells of unequal spans");
    assert.deepEqual([...new Difference(...pooled).map.values], [-Infinity]);
    const blank = new Difference(...scores);
    assert.deepEqual([...blank.map.values], [-Infinity, -Infinity], "no number, no difference");
});

test("what differs from the model is said by name", () => {
    const spec = { ...layer, sliding_window: 4096, softcap: 50 };
    const none = { off: "", window: "", softcap: "", causal: "" };
    assert.deepEqual(differences(spec, none), []);
    assert.deepEqual(differences(spec, { ...none, window: "4095,0", softcap: "50" }), []);
    assert.deepEqual(differences(spec, { off: "0,3", window: "15,0", softcap: "0", causal: "0" }), [
        "heads 0, 3 off",
        "window 16 instead of 4,096",
        "softcap none instead of 50",
        "not causal",
    ]);
    const full = { ...layer, is_causal: false };
    assert.deepEqual(differences(full, { ...none, window: "3,2" }), [
        "window 3 before, 2 after instead of none",
    ]);
});

test("the products of a query and a key sum to the score", () => {
    const { products, sum } = productsOf([1, 2, -3], [0.5, 4, 1], 0.25);
    assert.deepEqual([...products], [0.5, 8, -3]);
    assert.equal(sum, 5.5 * 0.25);
    assert.equal(relativeChange([3, 4], [3, 9]), 1);
    assert.equal(relativeChange([0, 0], [0, 0]), 0);
});

// ---- Files ------------------------------------------------------------------------------------

test("numbers have the fewest digits that read back as the same float32", () => {
    const random = randomness(11);
    const bits = new Uint32Array(1);
    const number = new Float32Array(bits.buffer);
    for (let i = 0; i < 20000; i++) {
        bits[0] = random() * 2 ** 32;
        if (!Number.isFinite(number[0])) continue;
        const text = formats.shortest(number[0]);
        assert.ok(Math.fround(Number(text)) === number[0], `${number[0]}`);
        const digits = text
            .replace(/e.*/, "")
            .replace(/^[-0.]+|\./g, "")
            .replace(/0+$/, "").length;
        if (digits > 1)
            assert.ok(Math.fround(Number(number[0].toPrecision(digits - 1))) !== number[0], text);
    }
    assert.equal(formats.shortest(Math.fround(0.1)), "0.1");
    assert.equal(formats.shortest(-Infinity), "-Infinity");
});

/** Runs Python on text, and returns what it prints. */
function python(program, ...given) {
    return execFileSync("python3", ["-c", program, ...given], { encoding: "utf8" });
}

test("a .npy file and a CSV hold the numbers, read by other programs", () => {
    const values = Float32Array.of(0.1, -2.5, -Infinity, 1e-30, 7, 1 / 3);
    const folder = mkdtempSync(join(tmpdir(), "pictures-"));
    try {
        const npy = formats.npyOf(values, [2, 3]);
        assert.equal((npy.length - 4 * values.length) % 64, 0);
        writeFileSync(join(folder, "a.npy"), npy);
        const read = `import ast, json, struct, sys
data = open(sys.argv[1], "rb").read()
assert data[:8] == b"\\x93NUMPY\\x01\\x00"
length, = struct.unpack("<H", data[8:10])
head = ast.literal_eval(data[10:10 + length].decode())
assert data[10 + length - 1:10 + length] == b"\\n"
print(head["shape"], head["descr"], head["fortran_order"])
print([str(value) for value in struct.unpack("<6f", data[10 + length:])])`;
        const [head, numbers] = python(read, join(folder, "a.npy")).split("\n");
        assert.equal(head, "(2, 3) <f4 False");
        assert.deepEqual(
            JSON.parse(numbers.replaceAll("'", '"')).map((text) =>
                Number(text.replace("inf", "Infinity")),
            ),
            [...values],
        );
        const labels = ['say "hi", now', "=1+1"];
        writeFileSync(join(folder, "a.csv"), formats.csvOf(labels, ["a", "b", "c"], values));
        const rows = JSON.parse(
            python(
                `import csv, json, sys
print(json.dumps(list(csv.reader(open(sys.argv[1], newline="")))))`,
                join(folder, "a.csv"),
            ),
        );
        assert.deepEqual(rows[0], ["", "a", "b", "c"]);
        assert.deepEqual([rows[1][0], rows[2][0]], [labels[0], "'=1+1"]);
        const all = [...rows[1].slice(1), ...rows[2].slice(1)].map(Number);
        assert.deepEqual(all.map(Math.fround), [...values]);
    } finally {
        rmSync(folder, { recursive: true });
    }
});

const request = {
    base: "http://127.0.0.1:8080/attn",
    path: "/attend",
    keyed: true,
    file: null,
    fields: {
        model: "it's $(a) `model`",
        hidden_states: { data: Float32Array.of(1, 0.1, -Infinity, 2), shape: [2, 2] },
        outputs: ["attention_weights"],
        heads: [1],
        is_causal: true,
    },
};
const sent = {
    model: request.fields.model,
    hidden_states: [
        [1, 0.1],
        [null, 2],
    ],
    outputs: ["attention_weights"],
    heads: [1],
    is_causal: true,
};

test("a curl command survives the shell, with the key left to the environment", () => {
    const shell = `curl() { for word; do printf '%s\\0' "$word"; done; }; ATTND_KEY='a b';`;
    const run = (command) =>
        execFileSync("sh", ["-c", `${shell} ${command}`], { encoding: "utf8" }).split("\0");
    const words = run(formats.curlOf(request));
    assert.deepEqual(words.slice(0, 5), [
        "-sS",
        "http://127.0.0.1:8080/attn/attend",
        "-H",
        "Authorization: Bearer a b",
        "--json",
    ]);
    assert.deepEqual(JSON.parse(words[5]), sent);
    const beside = run(formats.curlOf({ ...request, keyed: false, file: "body.json" }));
    assert.deepEqual(beside.slice(2, 4), ["--json", "@body.json"]);
});

test("a Python program is whole: it calls the client with the fields", () => {
    const folder = mkdtempSync(join(tmpdir(), "pictures-"));
    try {
        writeFileSync(
            join(folder, "attn_client.py"),
            `import json
class Weights:
    def tolist(self):
        return "weights"
class Client:
    def __init__(self, url, api_key=None):
        self.made = [url, api_key]
    def attend(self, hidden_states, **fields):
        print(json.dumps([*self.made, {"hidden_states": hidden_states, **fields}]))
        return {"attention_weights": Weights()}
`,
        );
        writeFileSync(join(folder, "body.json"), formats.jsonOf(request.fields));
        for (const file of [null, "body.json"]) {
            writeFileSync(join(folder, "call.py"), formats.pythonOf({ ...request, file }));
            const printed = execFileSync("python3", ["call.py"], {
                cwd: folder,
                env: { ...process.env, ATTND_KEY: "secret" },
                encoding: "utf8",
            });
            const [made, reply] = printed.trim().split("\n");
            const [url, key, fields] = JSON.parse(made);
            assert.deepEqual([url, key, reply], [request.base, "secret", "weights"]);
            assert.deepEqual(fields, sent);
        }
        const step = { ...request, path: "/decode" };
        step.fields = { ...request.fields, session_id: "s", position: 3 };
        assert.match(formats.pythonOf({ ...step, keyed: false }), /session\.decode\(rows, /);
    } finally {
        rmSync(folder, { recursive: true });
    }
});

/** What drawNumbers writes into cells `width` x `height`, by column: a row of `values`. */
function numbersIn(values, width, height, kind) {
    const written = new Map();
    const wide = { ".": 3.1, e: 6.2, "+": 7.5, "−": 7.5, "∞": 8.8 };
    const context = {
        measureText: (text) => ({ width: [...text].reduce((a, c) => a + (wide[c] ?? 6.4), 0) }),
        fillText(text, x) {
            written.set(Math.floor(x / width), { text, x, alpha: this.globalAlpha });
        },
    };
    const picture = { rows: 1, columns: values.length, isHidden: () => false };
    picture.valueAt = (_, column) => values[column];
    const area = { row0: 0, row1: 1, column0: 0, column1: values.length };
    const at = { xOf: (column) => column * width, yOf: (row) => row * height };
    const scale = { unit: () => 0.5, kind, high: 2 };
    const map = { area, cell: { width, height }, picture, scale, colors: "violet", ...at };
    frames.drawNumbers(map, context);
    for (const entry of written.values()) entry.width = context.measureText(entry.text).width;
    return written;
}

test("numbers stay within their cells at every zoom, and none loses its exponent", () => {
    const sizes = Array.from({ length: 31 }, (_, i) => 1.2345678 * 10 ** -i);
    const values = [...sizes, ...sizes.map((size) => -123.4 * size), 0, 1, 0.5, -Infinity];
    const counts = [];
    for (let width = 8; width <= 60; width++) {
        const written = numbersIn(values, width, 20);
        counts.push(written.size);
        for (const [column, { text, x, width: wide }] of written) {
            assert.ok(x - wide / 2 >= column * width, `${text} leaves a cell of ${width}`);
            assert.ok(x + wide / 2 <= (column + 1) * width, `${text} leaves a cell of ${width}`);
            const said = Number(text.replaceAll("−", "-").replace("∞", "Infinity"));
            const value = values[column];
            if (Number.isFinite(value) && value !== 0)
                assert.ok(Math.abs(said / value - 1) < 0.5, `${value} is said to be ${text}`);
            else assert.equal(said, value);
        }
    }
    assert.equal(counts[0], 0);
    assert.equal(counts.at(-1), values.length);
    assert.deepEqual(
        counts,
        [...counts].sort((a, b) => a - b),
    ); // more room, more numbers
    assert.equal(numbersIn(values, 60, 14).size, 0);
    assert.equal(numbersIn([0.123456], 60, 20).get(0).text, "0.123");
    assert.equal(numbersIn([0.123456], 24, 20).get(0).text, "0.1");
    const faint = [...numbersIn([0, 0.0011, 0.0009, -0.0011, 2], 60, 20, "linear").values()];
    assert.deepEqual(
        faint.map(({ alpha }) => alpha < 1),
        [true, false, true, false, false],
        "on a linear scale to 2, a number below a 2000th of it is faint",
    );
});

test("an SVG is XML with a rectangle for each cell, labels as text and nothing else", async () => {
    const picture = await new pictures.Picture(sourceOf(4), what).fetch([9, 9]);
    const scale = colors.scaleOf("linear", picture.map.values);
    const area = { row0: 1, row1: 4, column0: 0, column1: 5 };
    const title = 'a <script>alert("x")</script> & \u0001';
    const drawn = drawings.mapSvg({ picture, area, scale, colors: "violet", title });
    const parsed = JSON.parse(
        python(
            `import json, sys, xml.etree.ElementTree as tree
root = tree.fromstring(sys.argv[1].encode())
name = lambda node: node.tag.split("}")[1]
print(json.dumps([[name(node), node.get("fill"), node.text] for node in root.iter()]))`,
            drawn.replace(/^<\?xml[^>]*>\n/, ""),
        ),
    );
    assert.ok(
        parsed.every(([name]) => ["svg", "g", "rect", "text", "path", "title"].includes(name)),
    );
    const texts = parsed.filter(([name]) => name === "text").map(([, , text]) => text);
    assert.ok(texts.includes("<b>&"), "a label is text");
    assert.ok(texts.includes(title.replace("\u0001", "\ufffd")));
    assert.ok(texts.includes("bias_kv"));
    const fills = parsed.filter(([name]) => name === "rect").map(([, fill]) => fill);
    let cells = 0;
    for (let t = 1; t < 4; t++)
        for (let j = 0; j < 5; j++) {
            if (picture.isHidden(t, j)) continue;
            cells++;
            assert.ok(fills.includes(colors.hexOf("violet", scale.unit(picture.valueAt(t, j)))));
        }
    const sink = colors.hexOf("violet", scale.unit(picture.sinks[2]));
    assert.ok(texts.includes("sink") && fills.includes(sink));
    assert.equal(fills.length, cells + 3 + 3 + 64, "cells, sinks, ground, plot, frame, legend");
    const embedded = drawings.mapSvg({ picture, area, scale, colors: "violet", title }, "data:,x");
    assert.match(embedded, /<image [^>]*href="data:,x"/);
});

test("a cell of a pooled map covers each cell that it shares with the next one", () => {
    const values = Float32Array.from([1, 2, 9, 3, 4]);
    assert.deepEqual([...pooled(values, 5, 1, [2, 1]).values], [9, 9]);
    assert.deepEqual([...pooled(values, 1, 5, [1, 2]).values], [9, 9]);
    assert.deepEqual([...pooled(values, 5, 1, [2, 1], "mean").values], [4, Math.fround(16 / 3)]);
    assert.equal(pooled(values, 5, 1, [5, 1]).values, values);
});

// ---- The address ------------------------------------------------------------------------------

test("a default is not in the address, and a step is one that Back undoes", () => {
    address.set({ kind: "scores" });
    address.set({ head: 3 }, { step: true });
    address.set({ kind: "weights" });
    address.set({ kind: "weights" }); // changes nothing
    address.set({ head: "" });
    assert.deepEqual(visited, [
        ["replace", "/#kind=scores"],
        ["push", "/#head=3&kind=scores"],
        ["replace", "/#head=3"],
        ["replace", "/#"],
    ]);
});

// ---- Places -----------------------------------------------------------------------------------

test("a point of a map is in the cell whose place it is, in all of the map and in an area", () => {
    const areas = [
        { row0: 0, row1: 7, column0: 0, column1: 9 },
        { row0: 1.6, row1: 4.4, column0: 2.7, column1: 5.2 },
    ];
    const map = Object.create(Heatmap.prototype);
    const plot = { x: 40, y: 30, width: 270, height: 140 };
    Object.assign(map, { picture: { rows: 7, columns: 9 }, plot });
    for (const area of areas) {
        map.area = area;
        const across = plot.width / (area.column1 - area.column0);
        const down = plot.height / (area.row1 - area.row0);
        let inside = 0;
        for (let row = 0; row < 7; row++)
            for (let column = 0; column < 9; column++)
                for (const share of [0.02, 0.5, 0.98]) {
                    const x = plot.x + (column + share - area.column0) * across;
                    const y = plot.y + (row + share - area.row0) * down;
                    const shown =
                        x >= plot.x &&
                        x < plot.x + plot.width &&
                        y >= plot.y &&
                        y < plot.y + plot.height;
                    assert.deepEqual(map.cellAt(x, y), shown ? { row, column } : null);
                    inside += shown;
                }
        assert.ok(inside > 20);
    }
});
