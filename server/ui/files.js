/**
 * files.js: files that people choose, read without trust: .npy, safetensors (captures and states
 * too), JSON, labels.
 *
 * Every file becomes a list of tensors by name, whose numbers are read when they are wanted: a
 * checkpoint of gigabytes costs its header.  A tensor is { data, shape, datatype }; FP16 and BF16
 * keep their bits (Uint16Array), so that they are sent as they are.  Every length is checked
 * against the bytes that are there before it is used.  An error names the file and what it needs.
 */
import { numbersOfHalves } from "./attn-client.mjs";

/** @typedef {{data: Float32Array|Uint16Array, shape: number[], datatype: string}} Tensor */
/**
 * @typedef {{name: string, shape: number[], datatype: string, read: () => Promise<Tensor>}} Entry
 * @typedef {{name: string, entries: Entry[], metadata: Object<string, string>}} Opened
 */

const MAX_HEADER = 64 * 2 ** 20; // bytes of a header, and of a JSON or text file
const MAX_DIMENSION = 2 ** 31;
export const MAX_TOKENS = 131072;

const widths = { FP64: 8, FP32: 4, FP16: 2, BF16: 2 };

/** What the user can put right: its text says how. */
export class InputError extends Error {
    code = "input";
}

function fail(name, text) {
    throw new InputError(`${name}: ${text}`);
}

const shown = (shape) => `[${shape.join(", ")}]`;
const wrongBytes = (shape, bytes, there) =>
    `shape ${shown(shape)} makes ${bytes} bytes, ${there} are there`;

// ---- Numbers ----------------------------------------------------------------------------------

/** @returns {Float32Array} the numbers of a tensor; FP16 and BF16 widen exactly */
export function numbersOf({ data, datatype }) {
    if (datatype === "FP16") return numbersOfHalves(data);
    if (datatype !== "BF16") return data;
    const bits = Uint32Array.from(data, (half) => half << 16);
    return new Float32Array(bits.buffer);
}

/** The tensor of little-endian bytes; FP64 is rounded to FP32. */
function tensorOf(buffer, shape, datatype) {
    if (datatype === "FP32") return { data: new Float32Array(buffer), shape, datatype };
    if (datatype !== "FP64") return { data: new Uint16Array(buffer), shape, datatype };
    return { data: Float32Array.from(new Float64Array(buffer)), shape, datatype: "FP32" };
}

/** @returns {number} the product of a shape's dimensions, each of them checked */
function countOf(shape, name) {
    if (!Array.isArray(shape) || shape.length > 8) fail(name, "a shape is a list of dimensions");
    let count = 1;
    for (const size of shape) {
        if (!Number.isSafeInteger(size) || size < 0 || size > MAX_DIMENSION)
            fail(name, `shape ${shown(shape)} has a dimension that cannot be`);
        count *= size;
        if (!Number.isSafeInteger(count)) fail(name, `shape ${shown(shape)} is too large`);
    }
    return count;
}

/** An entry whose bytes are at `begin` of `blob`. */
function entryOf(blob, name, shape, datatype, begin) {
    const end = begin + countOf(shape, name) * widths[datatype];
    return {
        name,
        shape,
        datatype,
        read: async () => tensorOf(await blob.slice(begin, end).arrayBuffer(), shape, datatype),
    };
}

// ---- .npy -------------------------------------------------------------------------------------

const npyTypes = { "<f8": "FP64", "<f4": "FP32", "<f2": "FP16" };

/** The value of a key in the header's dict, as text. */
function dictValue(header, key) {
    const value = `('[^']*'|"[^"]*"|\\([^)]*\\)|\\w+)`;
    return new RegExp(`['"]${key}['"]\\s*:\\s*${value}`).exec(header)?.[1];
}

async function openNpy(blob, name) {
    const head = new DataView(await blob.slice(0, 12).arrayBuffer());
    const wide = head.byteLength === 12 && head.getUint8(6) >= 2;
    if (head.byteLength < 12) fail(name, "the .npy file ends within its header");
    const length = wide ? head.getUint32(8, true) : head.getUint16(8, true);
    const begin = (wide ? 12 : 10) + length;
    if (length > MAX_HEADER || begin > blob.size) fail(name, "its header is longer than the file");
    const header = await blob.slice(begin - length, begin).text();
    const type = dictValue(header, "descr")?.slice(1, -1);
    const datatype = Object.hasOwn(npyTypes, type ?? "") ? npyTypes[type] : undefined;
    if (!datatype) fail(name, `numbers of type ${type}; float32, float16 or float64 are expected`);
    if (dictValue(header, "fortran_order") !== "False")
        fail(name, "is in Fortran order; save numpy.ascontiguousarray(rows)");
    const sizes = dictValue(header, "shape") ?? "";
    if (!/^\((\d+\s*,\s*)*(\d+\s*)?\)$/.test(sizes)) fail(name, "its header has no shape");
    const shape = (sizes.match(/\d+/g) ?? []).map(Number);
    const bytes = countOf(shape, name) * widths[datatype];
    if (begin + bytes !== blob.size)
        fail(name, wrongBytes(shape, bytes, blob.size - begin));
    return { name, entries: [entryOf(blob, name, shape, datatype, begin)], metadata: {} };
}

// ---- safetensors ------------------------------------------------------------------------------

const safetensorsTypes = { F64: "FP64", F32: "FP32", F16: "FP16", BF16: "BF16" };

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** One tensor of the header; null for one whose numbers are of no use here (integers, flags). */
function safetensorsEntry(blob, file, name, described, begin) {
    const where = `${file}: ${name}`;
    const offsets = described?.data_offsets;
    if (!Array.isArray(offsets)) fail(where, "it has no data_offsets");
    const [from, to] = offsets;
    const count = countOf(described.shape, where);
    if (!Number.isSafeInteger(from) || !Number.isSafeInteger(to) || from < 0 || to < from)
        fail(where, "its data_offsets cannot be");
    if (begin + to > blob.size) fail(where, "its bytes lie beyond the end of the file");
    if (!Object.hasOwn(safetensorsTypes, described.dtype)) return null;
    const datatype = safetensorsTypes[described.dtype];
    if (count * widths[datatype] !== to - from)
        fail(where, wrongBytes(described.shape, count * widths[datatype], to - from));
    return entryOf(blob, name, described.shape, datatype, begin + from);
}

async function openSafetensors(blob, name, length) {
    const begin = 8 + length;
    if (length > MAX_HEADER) fail(name, `has a header of ${length} bytes, above ${MAX_HEADER}`);
    let header;
    try {
        header = JSON.parse(await blob.slice(8, begin).text());
    } catch {
        fail(name, "its header is no JSON");
    }
    if (!isObject(header)) fail(name, "its header is no JSON object");
    const texts = Object.entries(header.__metadata__ ?? {});
    const metadata = Object.fromEntries(texts.filter(([, value]) => typeof value === "string"));
    const entries = Object.entries(header)
        .filter(([key]) => key !== "__metadata__")
        .map(([key, described]) => safetensorsEntry(blob, name, key, described, begin))
        .filter((entry) => entry !== null);
    return { name, entries, metadata };
}

// ---- JSON -------------------------------------------------------------------------------------

/** Rows [[...], ...] as a tensor. */
function nestedRows(rows, name) {
    const width = Array.isArray(rows[0]) ? rows[0].length : 0;
    if (!rows.every((row) => Array.isArray(row) && row.length === width))
        fail(name, "rows of unequal length; expected [[number, ...], ...]");
    return { numbers: rows.flat(), shape: [rows.length, width] };
}

async function openJson(blob, name) {
    if (blob.size > MAX_HEADER) fail(name, "JSON above 64 MiB; save the rows as .npy");
    let value;
    try {
        value = JSON.parse(await blob.text());
    } catch (error) {
        fail(name, `is no JSON (${error.message})`);
    }
    if (!Array.isArray(value) && !Array.isArray(value?.data))
        fail(name, 'expected nested arrays, or an object {"shape": [T, E], "data": [...]}');
    const { numbers, shape } = Array.isArray(value)
        ? nestedRows(value, name)
        : { numbers: value.data, shape: value.shape };
    if (countOf(shape, name) !== numbers.length)
        fail(name, `shape ${shown(shape)} is not that of ${numbers.length} numbers`);
    if (!numbers.every(Number.isFinite)) fail(name, "holds something that is no finite number");
    const tensor = { data: Float32Array.from(numbers), shape, datatype: "FP32" };
    return { name, entries: [{ name, ...tensor, read: async () => tensor }], metadata: {} };
}

// ---- What a file is -----------------------------------------------------------------------------

/**
 * Opens a file by what its first bytes say, whatever its name is.
 * @param {Blob} blob
 * @param {string} [name] for errors and titles
 * @returns {Promise<Opened>}
 */
export async function open(blob, name = blob.name ?? "file") {
    const bytes = new Uint8Array(await blob.slice(0, 9).arrayBuffer());
    if (bytes.length === 0) fail(name, "is empty");
    if (bytes[0] === 0x93 && String.fromCharCode(...bytes.subarray(1, 6)) === "NUMPY")
        return openNpy(blob, name);
    if (bytes.length === 9) {
        const length = Number(new DataView(bytes.buffer).getBigUint64(0, true));
        const safetensors = bytes[8] === 0x7b && bytes[7] === 0;
        if (safetensors && length > blob.size - 8)
            fail(name, `has a header of ${length} bytes, the file ${blob.size}: it is cut short`);
        if (safetensors) return openSafetensors(blob, name, length);
    }
    if (/^\s*[[{]/.test(String.fromCharCode(...bytes))) return openJson(blob, name);
    return fail(name, "is no .npy, safetensors or JSON file");
}

/** @returns {Promise<Opened>} a file of this page's own origin; `path` is relative to the page */
export async function fetchFile(path, signal) {
    const url = new URL(path, location.origin + location.pathname);
    if (url.origin !== location.origin || /^[a-z][\w+.-]*:|^[/\\]{2}/i.test(path.trim()))
        fail(path, "a capture in the address is a path of this page's own origin");
    const reply = await fetch(url, { signal, redirect: "error" }).catch((error) => {
        signal?.throwIfAborted();
        return fail(path, `could not be fetched (${error.message})`);
    });
    if (!reply.ok) fail(path, `the server answered ${reply.status}`);
    return open(await reply.blob(), url.pathname.split("/").pop() || path);
}

// ---- Rows ---------------------------------------------------------------------------------------

/** @returns {number[]|null} [T, E] of a tensor that can be rows: [T,E] or [1,T,E] */
export function rowsShape({ shape }) {
    const [tokens, width] = shape.length === 3 && shape[0] === 1 ? shape.slice(1) : shape;
    if (shape.length < 2 || shape.length > 3 || (shape.length === 3 && shape[0] !== 1)) return null;
    return tokens >= 1 && tokens <= MAX_TOKENS && width >= 1 ? [tokens, width] : null;
}

/** @returns {Promise<Tensor>} the numbers of an entry as rows [T,E] */
export async function readRows(entry, file) {
    const shape = rowsShape(entry);
    if (!shape)
        fail(file, `${entry.name} has shape ${shown(entry.shape)}; expected [tokens, width]`);
    return { ...(await entry.read()), shape };
}

/** @returns {string[]} a text file of one token a line */
export async function readLabels(blob, name = blob.name ?? "labels") {
    if (blob.size > MAX_HEADER) fail(name, "is above 64 MiB");
    const lines = (await blob.text()).replace(/\r?\n$/, "").split(/\r?\n/);
    if (lines.length > MAX_TOKENS) fail(name, `has ${lines.length} lines; ${MAX_TOKENS} at most`);
    return lines;
}

/** @returns {string[]|null} the texts in the metadata's `key`; null where it has none */
export function metadataTokens({ name, metadata }, key = "tokens") {
    if (!Object.hasOwn(metadata, key)) return null;
    let tokens;
    try {
        tokens = JSON.parse(metadata[key]);
    } catch {
        fail(name, `${key} in its metadata is no JSON list`);
    }
    if (!Array.isArray(tokens) || !tokens.every((token) => typeof token === "string"))
        fail(name, `${key} in its metadata is no list of texts`);
    return tokens;
}

/**
 * The tensors of a capture: `layer.N` are the rows of layer N, `layer.N.encoder` those of its keys.
 * @param {Opened} opened
 * @returns {{model: string|null, rows: Map<number, Entry>, encoder: Map<number, Entry>,
 *     tokens: string[]|null, encoderTokens: string[]|null, length: number,
 *     encoderLength: number}|null} null for a file that is none
 */
export function captureOf(opened) {
    const maps = { rows: new Map(), encoder: new Map() };
    for (const entry of opened.entries) {
        const [, layer, encoder] = /^layer\.(\d{1,4})(\.encoder)?$/.exec(entry.name) ?? [];
        if (layer !== undefined) maps[encoder ? "encoder" : "rows"].set(Number(layer), entry);
    }
    if (maps.rows.size === 0) {
        if (opened.metadata.format?.startsWith("attn-capture"))
            fail(opened.name, "is a capture without a tensor layer.N");
        return null;
    }
    const [length, encoderLength] = [maps.rows, maps.encoder].map((map) => {
        let tokens = 0;
        for (const entry of map.values()) {
            const shape = rowsShape(entry);
            if (!shape)
                fail(opened.name, `${entry.name} has shape ${shown(entry.shape)}, not [T, E]`);
            if (tokens !== 0 && shape[0] !== tokens)
                fail(opened.name, `${entry.name} has ${shape[0]} rows, another layer ${tokens}`);
            tokens = shape[0];
        }
        return tokens;
    });
    return {
        model: opened.metadata.model ?? null,
        ...maps,
        tokens: checkedTokens(opened, "tokens", length),
        encoderTokens: checkedTokens(opened, "encoder_tokens", encoderLength),
        length,
        encoderLength,
    };
}

function checkedTokens(opened, key, length) {
    const tokens = metadataTokens(opened, key);
    if (tokens && length > 0 && tokens.length !== length)
        fail(opened.name, `${key} has ${tokens.length} texts for ${length} rows`);
    return tokens;
}
