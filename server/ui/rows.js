/**
 * rows.js: rows and targets that come from token texts.
 *
 * Random rows let anybody look at a layer without a model around it: one row N(0,1) for each
 * distinct token, so that equal tokens have equal rows.  A row depends on token, seed and width, on
 * nothing else.  Patterns over such rows are not those of real text, and the page says so.
 */
import { InputError, MAX_TOKENS } from "./files.js";

const MAX_FP32_BYTES = 4e6; // rows above that are kept as BF16: half the bytes of every request

/** @returns {string[]} the words of a text, split at blanks */
export function tokensOf(text) {
    const tokens = text.split(/\s+/).filter((token) => token !== "");
    if (tokens.length > MAX_TOKENS)
        throw new InputError(`the text has ${tokens.length} tokens; ${MAX_TOKENS} at most`);
    return tokens;
}

/** A number of 32 bits that depends on every character of `text`. */
function hash(text) {
    let state = 0x811c9dc5;
    for (let i = 0; i < text.length; i++) state = Math.imul(state ^ text.charCodeAt(i), 0x01000193);
    return state;
}

/** @returns {() => number} uniform numbers within (0, 1), by a counter that is mixed */
function uniform(seed) {
    let counter = seed;
    return () => {
        counter = (counter + 0x9e3779b9) | 0;
        let mixed = Math.imul(counter ^ (counter >>> 16), 0x21f0aaad);
        mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
        return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32 + 2 ** -33;
    };
}

/** @returns {Float32Array} the row of a token: normal numbers by the method of Box and Muller */
export function randomRow(token, seed, width) {
    const next = uniform(hash(`${seed}\n${token}`)),
        row = new Float32Array(width);
    for (let i = 0; i < width; i += 2) {
        const radius = Math.sqrt(-2 * Math.log(next())),
            angle = 2 * Math.PI * next();
        row[i] = radius * Math.cos(angle);
        if (i + 1 < width) row[i + 1] = radius * Math.sin(angle);
    }
    return row;
}

/** @returns {import("./tensors.js").Tensor} rows [T,width]; large ones are BF16 */
export function randomRows(tokens, seed, width) {
    const half = 4 * tokens.length * width > MAX_FP32_BYTES;
    const data = new (half ? Uint16Array : Float32Array)(tokens.length * width),
        rows = new Map();
    tokens.forEach((token, t) => {
        if (!rows.has(token)) {
            const row = randomRow(token, seed, width);
            rows.set(token, half ? new Uint32Array(row.buffer).map((bits) => bits >>> 16) : row);
        }
        data.set(rows.get(token), t * width);
    });
    return { data, shape: [tokens.length, width], datatype: half ? "BF16" : "FP32" };
}

// ---- Targets ------------------------------------------------------------------------------------

/** A token's own text: without the marks that tokenizers put for blanks and continued words. */
export const bare = (token) => token.replace(/^(Ġ|▁|##|\s)+|(<\/w>|\s)+$/g, "") || token;

const delimiters = new Set([".", ",", ";", ":", "!", "?", "[SEP]", "</s>", "<|endoftext|>"]);

const groups = {
    delimiters: (tokens) => positions(tokens, (token) => delimiters.has(token)),
    rare: (tokens) => {
        const counts = new Map();
        for (const token of tokens) counts.set(bare(token), (counts.get(bare(token)) ?? 0) + 1);
        return positions(tokens, (token) => counts.get(token) === 1);
    },
    first: (tokens) => (tokens.length > 0 ? [0] : []),
};

function positions(tokens, wanted) {
    return [...tokens.keys()].filter((t) => wanted(bare(tokens[t])));
}

/**
 * Key positions of a group of tokens.
 * @param {string} name delimiters, rare (what occurs once here), first, or positions: "0,3,5"
 * @param {string[]} tokens texts of the keys, "" where unknown
 * @returns {number[]} in ascending order, without those that do not exist
 */
export function groupOf(name, tokens) {
    if (Object.hasOwn(groups, name)) return groups[name](tokens);
    const given = name
        .split(",")
        .map((part) => part.trim())
        .filter((part) => /^\d+$/.test(part));
    const within = given.map(Number).filter((position) => position < tokens.length);
    return [...new Set(within)].sort((a, b) => a - b);
}

/** For each token within brackets, and for the closing one, the innermost that is open; else -1. */
export function brackets(tokens) {
    const open = [];
    return tokens.map((token, t) => {
        const text = bare(token);
        const target = open.at(-1) ?? -1;
        if ("([{".includes(text)) open.push(t);
        if (")]}".includes(text)) open.pop();
        return target;
    });
}

/**
 * For each token the position after its last earlier occurrence, which is what an induction head
 * looks at; -1 for a token that is new.
 */
export function successors(tokens) {
    const last = new Map();
    return tokens.map((token, t) => {
        const target = token !== "" && last.has(token) ? last.get(token) + 1 : -1;
        last.set(token, t);
        return target;
    });
}
