/**
 * test_patterns.mjs: what the page tells of a head by its weights and the tokens, without a browser.
 *
 *     node --test tests/ui/test_patterns.mjs
 */
import assert from "node:assert/strict";
import test from "node:test";

import * as rows from "../../server/ui/rows.js";
import * as statistics from "../../server/ui/statistics.js";

/** A map of as many rows as there are targets: `share` of a row on its target, or on the first key. */
function mapOf(targets, share) {
    const values = new Float32Array(targets.length ** 2);
    targets.forEach((target, t) => (values[t * targets.length + Math.max(0, target)] = share));
    return { values, rows: targets.length, columns: targets.length };
}

test("induction and brackets are told by the tokens, from half of the weight on", () => {
    const repeated = "a b c d a b c d".split(" ");
    const again = [-1, -1, -1, -1, 1, 2, 3, 4];
    const stats = { pattern: "focused" };
    assert.equal(
        statistics.patternOf(stats, mapOf(again, 0.6), { keyLabels: repeated }),
        "induction",
    );
    assert.equal(
        statistics.patternOf(stats, mapOf(again, 0.4), { keyLabels: repeated }),
        "focused",
    );
    for (const [self, pattern] of [
        [0.9, "self"],
        [0.1, "positional"],
    ])
        assert.equal(
            statistics.patternOf({ pattern: "positional", self }, null, { keyLabels: repeated }),
            pattern,
        );
    assert.equal(
        statistics.patternOf({ pattern: "sink" }, mapOf(again, 0.6), { keyLabels: repeated }),
        "sink",
    );
    assert.equal(
        statistics.patternOf(stats, mapOf(again.slice(0, 7), 0.6), {
            keyLabels: repeated.slice(0, 7),
        }),
        "focused",
        "three repeated tokens tell nothing",
    );
    assert.equal(
        statistics.patternOf(stats, null, { keyLabels: repeated }),
        "focused",
        "no weights",
    );
    const nested = "x ( y [ z ] w ) v".split(" ");
    assert.deepEqual(rows.brackets(nested), [-1, -1, 1, 1, 3, 3, 1, 1, -1]);
    assert.deepEqual(rows.brackets([")", " (", "Ġ["]), [-1, -1, 1]);
    assert.equal(
        statistics.patternOf(stats, mapOf(rows.brackets(nested), 0.7), { keyLabels: nested }),
        "bracket",
    );
});

test("statistics of a query's own place are not told where keys are other tokens", () => {
    assert.ok(statistics.tells({}, "self") && statistics.tells({ encoder: {} }, "first"));
    for (const name of ["self", "previous", "local", "mean_distance"])
        assert.ok(!statistics.tells({ encoder: {} }, name), name);
});
