/**
 * files.js: files that people choose, read without trust: .npy, .npz, .pt, safetensors (captures
 * and states too), JSON, labels.
 *
 * Every file becomes a list of tensors by name (tensors.js), whose numbers are read when they are
 * wanted: a checkpoint of gigabytes costs its header.  Every length is checked against the bytes
 * that are there before it is used.  An error names the file and what it needs.
 */
import { membersOf } from "./archive.js";
import { sha256 } from "./formats.js";
import { openTorch } from "./pickle.js";
import {
    InputError,
    MAX_HEADER,
    MAX_TOKENS,
    bytesOf,
    countOf,
    entryOf,
    entryOfTensor,
    fail,
    numbersOf,
    shown,
    wrongBytes,
} from "./tensors.js";

/** @typedef {import("./tensors.js").Tensor} Tensor */
/** @typedef {import("./tensors.js").Opened} Opened */
/** @typedef {import("./tensors.js").Entry} Entry */

export { InputError, MAX_TOKENS, numbersOf };

// ---- .npy -------------------------------------------------------------------------------------

const npyTypes = { "<f8": "FP64", "<f4": "FP32", "<f2": "FP16" };

/** The value of a key in the header's dict, as text. */
function dictValue(header, key) {
    const value = `('[^']*'|"[^"]*"|\\([^)]*\\)|\\w+)`;
    return new RegExp(`['"]${key}['"]\\s*:\\s*${value}`).exec(header)?.[1];
}

/** What a .npy file says of its array: {type, order, shape, begin}; shape may be null. */
async function readNpyHeader(blob, name) {
    const head = new DataView(await blob.slice(0, 12).arrayBuffer());
    const wide = head.byteLength === 12 && head.getUint8(6) >= 2;
    if (head.byteLength < 12) fail(name, "the .npy file ends within its header");
    const length = wide ? head.getUint32(8, true) : head.getUint16(8, true);
    const begin = (wide ? 12 : 10) + length;
    if (length > MAX_HEADER || begin > blob.size) fail(name, "its header is longer than the file");
    const header = await blob.slice(begin - length, begin).text();
    const sizes = dictValue(header, "shape") ?? "";
    const known = /^\((\d+\s*,\s*)*(\d+\s*)?\)$/.test(sizes);
    return {
        type: dictValue(header, "descr")?.slice(1, -1) ?? "",
        order: dictValue(header, "fortran_order"),
        shape: known ? (sizes.match(/\d+/g) ?? []).map(Number) : null,
        begin,
    };
}

/** The entry of an array of numbers. */
function npyEntry(blob, name, { type, order, shape, begin }, file = name) {
    const where = file === name ? name : `${file}: ${name}`;
    if (!Object.hasOwn(npyTypes, type))
        fail(where, `numbers of type ${type}; float32, float16 or float64 are expected`);
    if (order !== "False") fail(where, "is in Fortran order; save numpy.ascontiguousarray(rows)");
    if (!shape) fail(where, "its header has no shape");
    const bytes = bytesOf(shape, npyTypes[type], where);
    if (begin + bytes !== blob.size) fail(where, wrongBytes(shape, bytes, blob.size - begin));
    return entryOf(blob, name, shape, npyTypes[type], begin);
}

async function openNpy(blob, name) {
    return { name, entries: [npyEntry(blob, name, await readNpyHeader(blob, name))], metadata: {} };
}

/** The texts of an array of them, which numpy keeps as 32-bit characters padded with 0. */
async function textsOf(blob, { type, shape, begin }, where) {
    const [count] = shape ?? [];
    const width = Number(type.slice(2));
    if (shape?.length !== 1 || count > MAX_TOKENS || begin + 4 * width * count !== blob.size)
        fail(where, `a list of ${MAX_TOKENS} texts at most is expected`);
    const codes = new Uint32Array(await blob.slice(begin).arrayBuffer());
    const letter = (code) => (code <= 0x10ffff ? String.fromCodePoint(code) : "\ufffd");
    return Array.from({ length: count }, (_, i) =>
        [...codes.subarray(i * width, (i + 1) * width)].filter(Boolean).map(letter).join(""),
    );
}

/** The arrays of an .npz file; arrays of texts, such as `tokens`, are metadata. */
async function openNpz(members, name) {
    const opened = { name, entries: [], metadata: {} };
    for (const [path, blob] of members) {
        const key = path.replace(/\.npy$/, "");
        const where = `${name}: ${key}`;
        const header = await readNpyHeader(blob, where);
        if (/^<U[1-9]\d{0,4}$/.test(header.type))
            opened.metadata[key] = JSON.stringify(await textsOf(blob, header, where));
        else if (Object.hasOwn(npyTypes, header.type))
            opened.entries.push(npyEntry(blob, key, header, name));
    }
    return opened;
}

/** What a ZIP file is: that of numpy.savez, or of torch.save. */
async function openZip(blob, name) {
    const members = await membersOf(blob, name);
    const paths = [...members.keys()];
    if (paths.some((path) => /(^|\/)data\.pkl$/.test(path))) return openTorch(members, name);
    if (paths.length > 0 && paths.every((path) => path.endsWith(".npy")))
        return openNpz(members, name);
    return fail(name, "is a ZIP file, but neither of numpy.savez nor of torch.save");
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
    countOf(described.shape, where); // whatever its type
    if (!Number.isSafeInteger(from) || !Number.isSafeInteger(to) || from < 0 || to < from)
        fail(where, "its data_offsets cannot be");
    if (begin + to > blob.size) fail(where, "its bytes lie beyond the end of the file");
    if (!Object.hasOwn(safetensorsTypes, described.dtype)) return null;
    const datatype = safetensorsTypes[described.dtype];
    const bytes = bytesOf(described.shape, datatype, where);
    if (bytes !== to - from) fail(where, wrongBytes(described.shape, bytes, to - from));
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

/** Nested arrays of numbers, each of a depth as long as the others, as a tensor. */
function nestedTensor(value, where) {
    const shape = [];
    for (let at = value; Array.isArray(at) && shape.length < 8; at = at[0]) shape.push(at.length);
    const unequal = () => fail(where, "has lists of unequal length; expected [[number, ...], ...]");
    const count = countOf(shape, where);
    const numbers = new Float32Array(count <= MAX_HEADER ? count : unequal());
    let next = 0;
    const write = (part, depth) => {
        if (depth === shape.length) {
            if (!Number.isFinite(part)) fail(where, "holds something that is no finite number");
            numbers[next++] = part;
        } else if (!Array.isArray(part) || part.length !== shape[depth]) unequal();
        else for (const inner of part) write(inner, depth + 1);
    };
    write(value, 0);
    return { data: numbers, shape, datatype: "FP32" };
}

/** An object {"shape", "data"}. */
function flatTensor({ shape, data }, name) {
    if (countOf(shape, name) !== data.length)
        fail(name, `shape ${shown(shape)} is not that of ${data.length} numbers`);
    if (!data.every(Number.isFinite)) fail(name, "holds something that is no finite number");
    return { data: Float32Array.from(data), shape, datatype: "FP32" };
}

/** An object of nested arrays by name, and `tokens`: lists of texts are metadata. */
function openNamed(object, name) {
    const opened = { name, entries: [], metadata: {} };
    for (const [key, value] of Object.entries(object)) {
        if (!Array.isArray(value) || value.length === 0) continue;
        if (value.every((text) => typeof text === "string"))
            opened.metadata[key] = JSON.stringify(value);
        else opened.entries.push(entryOfTensor(key, nestedTensor(value, `${name}: ${key}`)));
    }
    if (opened.entries.length > 0) return opened;
    return fail(name, 'expected nested arrays, or an object {"shape": [T, E], "data": [...]}');
}

async function openJson(blob, name) {
    if (blob.size > MAX_HEADER) fail(name, "JSON above 64 MiB; save the numbers as .npy");
    let value;
    try {
        value = JSON.parse(await blob.text());
    } catch (/** @type {any} */ error) {
        fail(name, `is no JSON (${error.message})`);
    }
    if (!Array.isArray(value) && !Array.isArray(value.data)) return openNamed(value, name);
    const tensor = Array.isArray(value) ? nestedTensor(value, name) : flatTensor(value, name);
    return { name, entries: [entryOfTensor(name, tensor)], metadata: {} };
}

// ---- What a file is -----------------------------------------------------------------------------

/**
 * Opens a file by what its first bytes say, whatever its name is.
 * @param {Blob & {name?: string}} blob
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
    const begin = String.fromCharCode(...bytes);
    if (begin.startsWith("PK\x03\x04")) return openZip(blob, name);
    if (begin.startsWith("\x80\x02\x8a\x0a"))
        fail(name, "is of torch.save in the form before 1.6: load it with torch and save it again");
    if (/^\s*[[{]/.test(begin)) return openJson(blob, name);
    return fail(name, "is no .npy, .npz, .pt, safetensors or JSON file");
}

const MAX_DIGESTED = 256e6; // bytes of a file whose digest is taken

/** @returns {Promise<string>} the first digits of a file's SHA-256, as `sha256sum` prints it; "" where
 *     the browser has none (a page without TLS from another machine) or the file is large */
export async function digestOf(blob) {
    if (!globalThis.crypto?.subtle || blob.size > MAX_DIGESTED) return "";
    return (await sha256(await blob.arrayBuffer())).slice(0, 16);
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

/** @returns {Promise<string[]>} a text file of one token a line */
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
