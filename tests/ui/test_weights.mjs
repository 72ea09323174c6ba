/**
 * test_weights.mjs: attention weights of files, without a browser: those that torch and numpy have
 * written, and the same files damaged in many ways.
 *
 *     node --test tests/ui/test_weights.mjs
 *
 * files/attentions.pt and .npz are of torch 1.13 and numpy 1.24 of Debian 12, the same numbers:
 *     torch.save(tuple(x.bfloat16() for x in a), "attentions.pt")  # a: softmax of [2, 1, 3, 6, 6]
 *     numpy.savez_compressed("attentions.npz", *[x.bfloat16().float().numpy() for x in a],
 *                            tokens=numpy.array("a b c d é f".split()))
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { Duplex } from "node:stream";
import test from "node:test";
import { createInflateRaw } from "node:zlib";

// What the modules read of a page.
globalThis.location = { hash: "", pathname: "/", search: "", origin: "http://localhost" };
globalThis.document = { baseURI: "http://localhost/" };
globalThis.addEventListener = () => {};
if (Number(process.versions.node.split(".")[0]) < 20)
    // which has no "deflate-raw", as browsers do
    globalThis.DecompressionStream = class {
        constructor(format) {
            assert.equal(format, "deflate-raw");
            Object.assign(this, Duplex.toWeb(createInflateRaw()));
        }
    };

const files = await import("../../server/ui/files.js");
const weights = await import("../../server/ui/weights.js");
const { rolledOut } = await import("../../server/ui/combined.js");

const bytesOf = (name) => readFileSync(new URL(`files/${name}`, import.meta.url));
const never = new AbortController().signal;

async function sourceOf(blob, name) {
    const opened = await files.open(blob, name);
    const [group] = weights.weightGroups(opened).values();
    if (!group) throw new files.InputError("no weights");
    return weights.weightsSource(opened, group, null, never, () => {});
}

async function mapsOf(source) {
    const maps = [];
    for (const layer of source.layers)
        for (let head = 0; head < source.spec(layer).num_attention_heads; head++)
            maps.push(await source.map(layer, head));
    return maps;
}

test("files of torch and of numpy hold the same weights", async () => {
    const torch = await sourceOf(new Blob([bytesOf("attentions.pt")]), "attentions.pt");
    const numpy = await sourceOf(new Blob([bytesOf("attentions.npz")]), "attentions.npz");
    assert.deepEqual(torch.layers, [0, 1]);
    const maps = await mapsOf(torch);
    assert.equal(maps.length, 6);
    assert.deepEqual(maps, await mapsOf(numpy));
    for (const map of maps)
        for (let t = 0; t < 6; t++) {
            const sum = map.subarray(6 * t, 6 * t + 6).reduce((all, weight) => all + weight, 0);
            assert.ok(Math.abs(sum - 1) < 0.01, `${sum}`);
        }
    assert.deepEqual(numpy.keyLabels, ["a", "b", "c", "d", "é", "f"]);
    assert.equal(torch.spec(0).is_causal, false);
});

test("a damaged file is refused with a sentence, or holds other weights", async () => {
    let state = 1;
    const random = (below) => {
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        return Math.floor((state / 2 ** 32) * below);
    };
    let refused = 0;
    for (const name of ["attentions.pt", "attentions.npz"]) {
        const whole = bytesOf(name);
        for (let i = 0; i < 1500; i++) {
            const bytes = Uint8Array.from(whole);
            for (let n = random(3); n >= 0; n--) bytes[random(bytes.length)] = random(256);
            const end = random(4) === 0 ? random(bytes.length) : bytes.length;
            try {
                await mapsOf(await sourceOf(new Blob([bytes.subarray(0, end)]), name));
            } catch (error) {
                assert.equal(error.constructor.name, "InputError", `${i}: ${error.stack}`);
                refused++;
            }
        }
    }
    assert.ok(refused > 600, `${refused}`);
});

test("a pickle that refers to itself ends", async () => {
    // ]q.(h.h.h.…e: a list that holds itself many times
    const many = [0x28, ...Array.from({ length: 200 }, () => [0x68, 0]).flat(), 0x65];
    const pickle = Uint8Array.from([0x80, 2, 0x5d, 0x71, 0, ...many, 0x2e]);
    const blob = new Blob([zip("x/data.pkl", pickle)]);
    await assert.rejects(files.open(blob, "self.pt"), /self.pt: has too many values/);
});

/** A ZIP file of one stored member. */
function zip(path, data) {
    const name = Buffer.from(path);
    const local = Buffer.alloc(30);
    local.writeUInt32LE(0x04034b50, 0);
    local.writeUInt16LE(name.length, 26);
    const entry = Buffer.alloc(46);
    entry.writeUInt32LE(0x02014b50, 0);
    entry.writeUInt32LE(data.length, 20);
    entry.writeUInt32LE(data.length, 24);
    entry.writeUInt16LE(name.length, 28);
    const end = Buffer.alloc(22);
    end.writeUInt32LE(0x06054b50, 0);
    end.writeUInt16LE(1, 10);
    end.writeUInt32LE(46 + name.length, 12);
    end.writeUInt32LE(30 + name.length + data.length, 16);
    return Buffer.concat([local, name, data, entry, name, end]);
}

test("rollout is the product of the layers with the rows of each divided by their sums", () => {
    const first = Float32Array.of(1, 0, 0.5, 0.5);
    const second = Float32Array.of(1, 0, 0.1, 0.1); // a row that sums to 0.2: 0.6 with the identity
    const one = rolledOut(first, null, 2);
    assert.deepEqual([...one], [1, 0, 0.25, 0.75]);
    const two = rolledOut(second, one, 2);
    const wanted = [1, 0, 0.05 / 0.6 + (0.55 / 0.6) * 0.25, (0.55 / 0.6) * 0.75];
    two.forEach((share, i) => assert.ok(Math.abs(share - wanted[i]) < 1e-6, `${i}: ${share}`));
});
