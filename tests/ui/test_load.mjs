/**
 * test_load.mjs: the page's reading of metrics, without a browser.
 *
 *     node --test tests/ui/test_load.mjs
 */
import assert from "node:assert/strict";
import test from "node:test";

import { roundUp } from "../../server/ui/chart.js";
import { between, parse, quantile, total } from "../../server/ui/prometheus.js";

const text = (counts, sum) => `# HELP t seconds
# TYPE t histogram
${counts.map(([le, count]) => `t_bucket{stage="parse",le="${le}"} ${count}`).join("\n")}
t_sum{stage="parse"} ${sum}
t_count{stage="parse"} ${counts.at(-1)[1]}
t_bucket{stage="write",le="+Inf"} 1000
t_sum{stage="write"} 5
t_count{stage="write"} 1000
`;

test("samples are read with their labels, and comments are not", () => {
    const odd = parse(
        'a 1\n# a 2\nb{x="1,2",y="a \\"b\\" }"} 2.5e-3\nc{le="+Inf"} +Inf\n\nnonsense\n',
    );
    assert.deepEqual([...odd.keys()], ["a", "b", "c"]);
    assert.deepEqual(odd.get("b"), [{ labels: { x: "1,2", y: 'a \\"b\\" }' }, value: 0.0025 }]);
    assert.equal(odd.get("c")[0].value, Infinity);
    assert.equal(total(odd, "a"), 1);
    assert.equal(total(odd, "absent"), 0);
});

test("a histogram between two readings has what came in between, of the labels that were chosen", () => {
    const before = parse(
        text(
            [
                ["1", 10],
                ["2", 10],
                ["+Inf", 10],
            ],
            5,
        ),
    );
    const after = parse(
        text(
            [
                ["1", 15],
                ["2", 20],
                ["+Inf", 20],
            ],
            18,
        ),
    );
    const span = between(before, after, "t", ({ stage }) => stage === "parse");
    assert.deepEqual(span, {
        count: 10,
        sum: 13,
        buckets: [
            [1, 5],
            [2, 10],
            [Infinity, 10],
        ],
    });
    assert.equal(quantile(span, 0.5), 1);
    assert.equal(quantile(span, 0.75), 1.5); // half of the way through the second bucket
    assert.equal(quantile(span, 0.25), 0.5); // likewise of the first, from 0
    assert.equal(quantile(between(after, after, "t"), 0.5), null); // nothing came
});

test("what passed the last bound is said to be that bound", () => {
    const before = parse(
        text(
            [
                ["1", 0],
                ["2", 0],
                ["+Inf", 0],
            ],
            0,
        ),
    );
    const after = parse(
        text(
            [
                ["1", 1],
                ["2", 1],
                ["+Inf", 10],
            ],
            90,
        ),
    );
    const span = between(before, after, "t", ({ stage }) => stage === "parse");
    assert.equal(quantile(span, 0.99), 2);
});

test("a series that was not there before counts from 0", () => {
    const after = parse(
        text(
            [
                ["1", 4],
                ["+Inf", 4],
            ],
            2,
        ),
    );
    assert.equal(between(parse(""), after, "t", ({ stage }) => stage === "parse").count, 4);
});

test("a scale ends at 1, 2 or 5 times a power of ten", () => {
    for (const [value, bound] of [
        [0, 1],
        [1, 1],
        [1.1, 2],
        [4, 5],
        [51, 100],
        [0.0003, 0.0005],
    ])
        assert.ok(Math.abs(roundUp(value) / bound - 1) < 1e-9, `${value}: ${roundUp(value)}`);
});
