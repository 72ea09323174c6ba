/**
 * tensors.js: tensors of files: their shapes checked, their numbers read when they are wanted.
 *
 * A tensor is { data, shape, datatype }; FP16 and BF16 keep their bits (Uint16Array), so that they
 * are sent as they are. An entry is a tensor of a file that has not been read yet, whole or in part.
 */
import { numbersOfHalves } from "./attn-client.mjs";

/** @typedef {{data: Float32Array|Uint16Array, shape: number[], datatype: string}} Tensor */
/**
 * @typedef {{name: string, shape: number[], datatype: string, read: () => Promise<Tensor>,
 *     part: (begin: number, count: number) => Promise<Tensor>}} Entry
 *     part: `count` numbers from `begin` on, as a tensor of one dimension
 * @typedef {{name: string, entries: Entry[], metadata: Object<string, string>,
 *     digest?: string}} Opened
 *     digest: the first digits of the SHA-256 of the file
 */

export const MAX_HEADER = 64 * 2 ** 20; // bytes of a header, and of a JSON or text file
export const MAX_TOKENS = 131072;
const MAX_DIMENSION = 2 ** 31;

const widths = { FP64: 8, FP32: 4, FP16: 2, BF16: 2 };

/** What the user can put right: its text says how. */
export class InputError extends Error {
    code = "input";
}

/** @returns {never} */
export function fail(name, text) {
    throw new InputError(`${name}: ${text}`);
}

export const shown = (shape) => `[${shape.join(", ")}]`;

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
export function countOf(shape, name) {
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

/** @returns {number} the bytes that a tensor takes */
export const bytesOf = (shape, datatype, name) => countOf(shape, name) * widths[datatype];

export const wrongBytes = (shape, bytes, there) =>
    `shape ${shown(shape)} makes ${bytes} bytes, ${there} are there`;

/** @returns {Entry} a tensor whose bytes are at `begin` of `blob` */
export function entryOf(blob, name, shape, datatype, begin) {
    const width = widths[datatype];
    const count = countOf(shape, name);
    const cut = async (first, length, as) => {
        const from = begin + first * width;
        const bytes = await blob.slice(from, from + length * width).arrayBuffer();
        return tensorOf(bytes, as, datatype);
    };
    const read = () => cut(0, count, shape);
    return { name, shape, datatype, read, part: (first, length) => cut(first, length, [length]) };
}

/** @returns {Entry} a tensor that is in the page already */
export function entryOfTensor(name, tensor) {
    const part = async (begin, count) => {
        const data = tensor.data.slice(begin, begin + count);
        return { ...tensor, data, shape: [count] };
    };
    return { name, shape: tensor.shape, datatype: tensor.datatype, read: async () => tensor, part };
}
