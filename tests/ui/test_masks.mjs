/**
 * test_masks.mjs: which pairs the page shows as ones that cannot be attended, without a browser.
 *
 *     node --test tests/ui/test_masks.mjs
 */
import assert from "node:assert/strict";
import test from "node:test";

import * as mask from "../../server/ui/mask.js";

/** Whether a query sees a key, by the rule of docs/API.md. */
function sees(spec, fields, queries, keys, t, j) {
    const i = keys - queries + t;
    const causal = fields.is_causal ?? spec.is_causal;
    const window = fields.sliding_window ?? spec.sliding_window;
    const chunk = fields.sliding_window ? 0 : spec.attention_chunk_size;
    if (causal && j > i) return false;
    if (chunk && Math.floor((j - FIRST) / chunk) !== Math.floor((i - FIRST) / chunk)) return false;
    if (Array.isArray(window))
        return (window[0] < 0 || j >= i - window[0]) && (window[1] < 0 || j <= i + window[1]);
    const both = !spec.is_causal && !fields.sliding_window;
    return window === null || (i - window < j && (both ? j < i + window : j <= i));
}

const FIRST = 1; // the first token that is not padding

const masks = [
    [{ is_causal: false, sliding_window: 3 }, {}, 8, 8],
    [{ is_causal: false, sliding_window: 3 }, { sliding_window: 2 }, 8, 8],
    [{ is_causal: true, sliding_window: null, attention_chunk_size: 3 }, {}, 5, 11],
    [{ is_causal: false, sliding_window: 4, attention_chunk_size: 5 }, {}, 7, 7],
    [
        { is_causal: true, sliding_window: null, attention_chunk_size: 3 },
        { sliding_window: 6 },
        9,
        9,
    ],
    [{ is_causal: true, sliding_window: null }, {}, 7, 7],
    [{ is_causal: false, sliding_window: null }, {}, 5, 9],
    [{ is_causal: true, sliding_window: 3 }, {}, 4, 11],
    [{ is_causal: true, sliding_window: 3 }, { sliding_window: [-1, -1] }, 6, 6],
    [{ is_causal: false, sliding_window: null }, { sliding_window: [2, 1] }, 9, 9],
    [
        { is_causal: true, sliding_window: null },
        { is_causal: false, sliding_window: [0, -1] },
        6,
        8,
    ],
    [{ is_causal: true, sliding_window: null }, {}, 9, 5],
];

test("spans are the keys that causality and window leave to each query", () => {
    for (const [spec, fields, queries, keys] of masks) {
        const spans = mask.spansOf(spec, fields, queries, keys, FIRST);
        const viewers = mask.viewersOf(spans, keys);
        for (let j = 0; j < keys; j++) {
            let count = 0;
            for (let t = 0; t < queries; t++) {
                const seen = sees(spec, fields, queries, keys, t, j);
                assert.equal(j >= spans.first[t] && j < spans.end[t], seen, `${t},${j}`);
                count += Number(seen);
            }
            assert.equal(viewers[j], count);
        }
    }
});

test("a pooled cell is hidden where no pair can be attended, appended columns never", () => {
    const padding = Uint8Array.of(0, 1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 1);
    for (const [spec, fields, queries, keys] of masks)
        for (const [rows, columns] of [
            [queries, keys + 2],
            [3, 4],
            [1, 1],
            [2, keys],
        ]) {
            const spans = mask.spansOf(spec, fields, queries, keys, FIRST);
            const whole = { queries, width: keys + 2, keys };
            const values = new Float32Array(rows * columns);
            mask.hide(values, rows, columns, spans, whole, padding);
            const begin = (i, parts, size) => Math.floor((i * size) / parts);
            const end = (i, parts, size) => Math.ceil(((i + 1) * size) / parts);
            for (let r = 0; r < rows; r++)
                for (let c = 0; c < columns; c++) {
                    let spanned = false;
                    let real = false;
                    for (let j = begin(c, columns, keys + 2); j < end(c, columns, keys + 2); j++) {
                        real ||= j >= keys || padding[j] === 1;
                        for (let t = begin(r, rows, queries); t < end(r, rows, queries); t++)
                            spanned ||= j >= keys || sees(spec, fields, queries, keys, t, j);
                    }
                    const hidden = values[r * columns + c] === -Infinity;
                    if (spanned && real) assert.ok(!hidden, `seen ${r},${c}`);
                    if (!spanned || !real) assert.ok(hidden, `not seen ${r},${c}`);
                }
        }
});
