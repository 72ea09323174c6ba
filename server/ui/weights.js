/**
 * weights.js: attention weights of a file, as a source: layers of heads [queries, keys].
 *
 * Files have them in several forms: a tensor of all layers, a tensor for each layer, with or
 * without a batch of one. Tensors whose names differ in their numbers alone belong together, in
 * the order of these numbers. All weights are read once, so that what cannot be weights is told
 * before anything is shown; then a head is read when it is looked at.
 */
import { metadataTokens } from "./files.js";
import { LocalSource } from "./local_source.js";
import { paddingOf } from "./source.js";
import { InputError, MAX_TOKENS, fail, numbersOf, shown } from "./tensors.js";

/** @typedef {import("./source.js").Source} Source */
/** @typedef {import("./tensors.js").Opened} Opened */
/** @typedef {import("./tensors.js").Entry} Entry */

const MAX_CELLS = 2 ** 26; // of a map: 8,192 x 8,192
const MAX_NUMBERS = 2 ** 30; // of a file
const SUM_OFF = 0.01; // rounding to bfloat16 changes the sum of a row by less

/** @returns {{layers: number, heads: number, map: number[]}|null} how a tensor holds weights */
function formOf({ shape }) {
    const map = shape.slice(-2);
    const [layers, heads] =
        {
            2: () => [1, 1],
            3: () => [1, shape[0]],
            4: () => [shape[0], shape[1]],
            5: () => (shape[1] === 1 ? [shape[0], shape[2]] : []),
        }[shape.length]?.() ?? [];
    const fits = layers >= 1 && heads >= 1 && map.every((size) => size >= 1 && size <= MAX_TOKENS);
    return fits ? { layers, heads, map } : null;
}

const inOrder = new Intl.Collator("en", { numeric: true }).compare;

/**
 * Tensors of a file that can be attention weights.
 * @param {Opened} opened
 * @returns {Map<string, Entry[]>} by their name, in which # stands for a number that differs;
 *     those with a dimension of heads come first
 */
export function weightGroups({ entries }) {
    const groups = new Map();
    for (const entry of entries.filter(formOf)) {
        const name = entry.name.replace(/\d+/g, "#");
        groups.set(name, [...(groups.get(name) ?? []), entry]);
    }
    for (const group of groups.values()) group.sort((a, b) => inOrder(a.name, b.name));
    const flat = ([, group]) => Number(group[0].shape.length < 3);
    return new Map([...groups].sort((a, b) => flat(a) - flat(b)));
}

/** @returns {[string, Entry[]]} the group of that name, else the first */
export function groupNamed(opened, name) {
    const groups = weightGroups(opened);
    if (groups.size === 0)
        fail(
            opened.name,
            "has no tensor [heads, tokens, tokens] of weights, or [layers, heads, " +
                "tokens, tokens]",
        );
    return groups.has(name) ? [name, groups.get(name)] : [...groups][0];
}

/** The layers of tensors that belong together: [{entry, begin, heads}], begin in numbers. */
function layersOf(group, file) {
    const { map } = formOf(group[0]);
    const size = map[0] * map[1];
    const layers = [];
    for (const entry of group) {
        const form = formOf(entry);
        const where = `${file}: ${entry.name}`;
        if (String(form.map) !== String(map))
            fail(
                where,
                `is ${shown(entry.shape)}, ${group[0].name} is ${shown(group[0].shape)}: ` +
                    "the maps of all layers have one size",
            );
        if (form.layers > 1 && group.length > 1)
            fail(
                where,
                `is ${shown(entry.shape)}, a batch of ${form.layers}; save one of them: x[0]`,
            );
        for (let i = 0; i < form.layers; i++)
            layers.push({ entry, begin: i * form.heads * size, heads: form.heads });
    }
    const numbers = layers.reduce((sum, { heads }) => sum + heads * size, 0);
    if (size > MAX_CELLS) fail(file, `maps of ${shown(map)} have above ${MAX_CELLS} cells`);
    if (numbers > MAX_NUMBERS) fail(file, `has ${numbers} weights, above ${MAX_NUMBERS}`);
    return layers;
}

/** Texts of queries and keys: `tokens` are those of the side, or sides, of as many tokens. */
function labelsOf(opened, labels, /** @type {number[]} */ [queries, keys]) {
    const tokens = labels ?? metadataTokens(opened) ?? [];
    const others = metadataTokens(opened, "encoder_tokens") ?? tokens;
    if (tokens.length > 0 && tokens.length !== queries && tokens.length !== keys)
        fail(
            opened.name,
            `there are ${tokens.length} tokens for ${queries} queries and ${keys} keys`,
        );
    const fitted = (texts, count) => (texts.length === count ? texts : new Array(count).fill(""));
    return { queryLabels: fitted(tokens, queries), keyLabels: fitted(others, keys) };
}

class WeightsSource extends LocalSource {
    /** @type {{key?: string, map?: any}} that was read last: a large one is asked for row by row */
    last = {};

    constructor({ places, ...facts }) {
        super(facts);
        this.places = places;
    }

    async map(layer, head) {
        const key = `${layer}.${head}`;
        if (this.last.key === key) return this.last.map;
        const { entry, begin } = this.places[layer];
        const size = this.queries * this.keys;
        const map = numbersOf(await entry.part(begin + head * size, size));
        this.last = { key, map };
        return map;
    }
}

/** What the model of a file is: its shape, and the mask that its weights show. */
function modelOf(places, isCausal) {
    const [{ heads }] = places;
    const differing = places.map((place, layer) => ({ layer, num_attention_heads: place.heads }));
    return {
        name: "weights",
        family: isCausal ? "of a file, causal" : "of a file",
        mask: isCausal ? "causal" : "none",
        is_causal: isCausal,
        sliding_window: null,
        attention_chunk_size: null,
        sinks: false,
        bias_kv: false,
        add_zero_attn: false,
        num_attention_heads: heads,
        resident_layers: [...places.keys()],
        differing_layers: differing.filter((layer) => layer.num_attention_heads !== heads),
    };
}

// ---- What cannot be weights -------------------------------------------------------------------

/** Looks at a map: throws where it holds no weights, and counts what is unusual. */
function look(map, place, found) {
    const { queries, keys } = found;
    for (let t = 0; t < queries; t++) {
        let sum = 0;
        for (let j = 0; j < keys; j++) {
            const weight = map[t * keys + j];
            if (!(weight >= 0 && weight < Infinity))
                fail(found.name, `${place}, row ${t}, key ${j} holds ${reasonOf(weight)}`);
            sum += weight;
            if (weight !== 0 && j > keys - queries + t) found.isCausal = false;
        }
        if (Math.abs(sum - 1) <= SUM_OFF) continue;
        found.first ??= `${place}, row ${t} sums to ${Number(sum.toPrecision(4))}`;
        found.off++;
    }
}

function reasonOf(weight) {
    if (weight < 0) return `${weight}, and weights are not negative: of scores, save the softmax`;
    return weight > 0
        ? "infinity, which is no weight"
        : "what is no number (not a number, by IEEE 754)";
}

/** Reads all weights once. */
async function lookAtAll(source, { name }, signal, progress) {
    const { queries, keys } = source;
    const found = { name, queries, keys, isCausal: true, off: 0, first: null };
    for (const [layer, { heads }] of source.places.entries()) {
        for (let head = 0; head < heads; head++) {
            look(await source.map(layer, head), `layer ${layer}, head ${head}`, found);
            signal.throwIfAborted();
        }
        progress(layer + 1, source.places.length);
    }
    return found;
}

/**
 * The attention weights of a file.
 * @param {Opened} opened
 * @param {Entry[]} group of weightGroups
 * @param {string[]|null} labels texts of the tokens, instead of the file's
 * @returns {Promise<Source>}
 */
export async function weightsSource(opened, group, labels, signal, progress) {
    const places = layersOf(group, opened.name);
    const sides = formOf(group[0]).map;
    const source = new WeightsSource({
        title: opened.name,
        places,
        layers: [...places.keys()],
        ...labelsOf(opened, labels, sides),
    });
    const { isCausal, off, first } = await lookAtAll(source, opened, signal, progress);
    const rows = places.reduce((sum, { heads }) => sum + heads * sides[0], 0);
    if (off > 0) source.mark = `rows that do not sum to 1: ${off} of ${rows}; ${first}`;
    source.model = modelOf(places, isCausal);
    return source;
}

/** @returns {Source} the same, of some layers and with what is padding now */
export function shownWeights(source, wanted) {
    const layers = wanted.filter((layer) => source.places[layer]);
    if (wanted.length > 0 && layers.length === 0)
        throw new InputError(`${source.title} has the layers 0 to ${source.places.length - 1}`);
    const { places, title, mark, model, queryLabels, keyLabels } = source;
    return new WeightsSource({
        places,
        title,
        mark,
        model,
        queryLabels,
        keyLabels,
        layers: layers.length > 0 ? layers : source.layers,
        padding: paddingOf(keyLabels),
    });
}
