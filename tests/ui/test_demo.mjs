/**
 * test_demo.mjs: the page's tokenizer and forward pass of the demonstration model, beside those of
 * examples/bpe.py and examples/generate.py.  In place of attnd both halve the rows of attention.
 *
 *     node --test tests/ui/test_demo.mjs
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import test from "node:test";

import { likeliest, MAX_TOKENS, modelOf } from "../../server/ui/demo_model.js";
import { tokenizerOf } from "../../server/ui/demo_tokenizer.js";

const folder = new URL("../../examples/demo/", import.meta.url);
const json = (name) => JSON.parse(readFileSync(new URL(name, folder), "utf8"));
const { about, examples, heads } = json("demo.json");

const texts = [
    ...examples,
    "",
    " ",
    "The cat sat on the mat. The cat sat on the",
    " (a [red] {one})  Zorblat's 12 caf\u00e9s\n\tna\u00efve \u6f22\u5b57 \ud83d\ude00 don't!?",
    "e\u0301 \u00a0\u2003x  \r\n\r\n (((",
    "Anna Annan ANNA anna the(the the",
];

const program = `
import json, pathlib, sys
sys.path.insert(1, "examples")
from generate import forward, read_decoder
from bpe import read_tokenizer
folder = pathlib.Path("examples/demo")
decoder, tokenizer, made = read_decoder(folder), read_tokenizer(folder), []
for text in json.load(sys.stdin):
    ids = tokenizer.encode(text)
    rows = forward(decoder, ids, range(len(ids)), lambda rows, layer: rows / 2)
    made.append({"ids": ids, "labels": [tokenizer.label(number) for number in ids],
                 "rows": rows.ravel().tolist(), "logits": decoder.logits(rows)[-1].tolist()})
json.dump(made, sys.stdout)
`;
const cwd = new URL("../../", import.meta.url);
const input = JSON.stringify(texts);
const expected = JSON.parse(execFileSync("/usr/bin/python3", ["-c", program], { cwd, input }));

const tokenizer = tokenizerOf(json("tokenizer.json"));
const model = await modelOf(new Blob([readFileSync(new URL("model.safetensors", folder))]));

function close(made, wanted) {
    assert.equal(made.length, wanted.length);
    const largest = wanted.reduce((most, number) => Math.max(most, Math.abs(number)), 0);
    made.forEach((number, place) => {
        assert.ok(Math.abs(number - wanted[place]) <= 1e-5 * largest, `${place}: ${number}`);
    });
}

test("tokens and their texts are those of bpe.py", () => {
    for (const [place, { ids, labels }] of expected.entries()) {
        assert.deepEqual(tokenizer.encode(texts[place]), ids, texts[place]);
        assert.deepEqual(ids.map(tokenizer.label), labels);
        assert.equal(ids[0], tokenizer.begin);
    }
});

test("rows and logits are those of numpy", async () => {
    for (const { ids, rows, logits } of expected) {
        const halved = async (taken) => taken.map((number) => number / 2);
        const made = await model.run(ids, halved);
        assert.equal(made.taken.length, model.layers);
        close(made.rows, rows);
        close(model.logits(made.rows, ids.length - 1), logits);
    }
});

test("the likeliest tokens come in order, with their probabilities", () => {
    const told = likeliest(Float32Array.of(1, 3, -Infinity, 2), 3);
    assert.deepEqual(
        told.map(({ id }) => id),
        [1, 3, 0],
    );
    const sum = Math.exp(0) + Math.exp(-1) + Math.exp(-2);
    close(
        told.map(({ probability }) => probability),
        [1, 2, 3].map((i) => Math.exp(1 - i) / sum),
    );
});

test("constants are those of config.json, and demo.json names heads and texts that are there", () => {
    const config = json("config.json");
    assert.equal(MAX_TOKENS, config.max_position_embeddings);
    assert.equal(config.rms_norm_eps, 1e-6); // of demo_model.js
    assert.deepEqual([config.model_type, config.hidden_act], ["qwen2", "silu"]);
    assert.deepEqual(
        [model.layers, model.width, model.vocabulary],
        [config.num_hidden_layers, config.hidden_size, config.vocab_size],
    );
    assert.ok(about.length > 0 && examples.length >= 3);
    for (const text of examples) assert.ok(tokenizer.encode(text).length <= MAX_TOKENS, text);
    for (const { layer, head, name, text } of heads) {
        assert.ok(layer < config.num_hidden_layers && head < config.num_attention_heads);
        assert.ok(name.length > 0 && text.endsWith("."), name);
    }
});
