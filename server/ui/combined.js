/**
 * combined.js: one map of each layer instead of its heads: means, and attention rollout.
 *
 * `mean` is the mean of a layer's heads; `layers` the mean of these means over this layer and those
 * before it; `rollout` the product of 0.5 A + 0.5 I over the same layers, A being the mean of a
 * layer's heads and each row divided by its sum (Abnar & Zuidema 2020, "Quantifying Attention Flow
 * in Transformers"). The layers are those that are shown. Maps are made when they are asked for.
 */
import { LocalSource } from "./local_source.js";
import { InputError } from "./tensors.js";

/** @typedef {import("./source.js").Source} Source */

const MAX_CELLS = 2 ** 26; // of the maps of all layers
const MAX_ROLLOUT = 1024; // tokens: a product takes the cube of them

/** Name of a map, and of the way to make it. */
export const ways = {
    "": { title: "each head" },
    mean: { title: "mean of heads", name: (layer) => `Layer ${layer}, mean of heads` },
    layers: {
        title: "mean of heads and layers",
        name: (layer) => `Mean of heads, layers up to ${layer}`,
    },
    rollout: {
        title: "attention rollout",
        name: (layer) => `Attention rollout up to layer ${layer}`,
    },
};

/** @returns {Float32Array} 0.5 A + 0.5 I times `before`, each row of the first divided by its sum */
export function rolledOut(weights, before, count) {
    const product = new Float32Array(count * count);
    for (let i = 0; i < count; i++) {
        const row = weights.subarray(i * count, (i + 1) * count);
        const scale = 1 / (row.reduce((sum, weight) => sum + weight, 0) + 1);
        const sums = new Float64Array(count);
        for (let k = 0; k < count; k++) {
            const share = (row[k] + Number(k === i)) * scale;
            if (share === 0) continue;
            if (!before) sums[k] += share;
            else for (let j = 0; j < count; j++) sums[j] += share * before[k * count + j];
        }
        product.set(sums, i * count);
    }
    return product;
}

class CombinedSource extends LocalSource {
    maps = new Map(); // layer -> promise of its map

    constructor({ base, ...facts }) {
        super(facts);
        this.base = base;
    }

    headName(layer) {
        return ways[this.way].name(layer);
    }

    /** Of several layers no window remains: each may see what another does not. */
    spec(layer) {
        const { base, layers, way } = this;
        const own = base.spec(layer);
        const all = { sliding_window: null, attention_chunk_size: null };
        return {
            ...own,
            ...(way === "mean" ? {} : all),
            is_causal: way === "mean" ? own.is_causal : layers.every((l) => base.spec(l).is_causal),
            sinks: false,
            bias_kv: false,
            add_zero_attn: false,
            num_attention_heads: 1,
        };
    }

    /** The mean of a layer's heads. */
    async meanOf(layer) {
        const fields = { outputs: ["attention_weights"], average_heads: true, plain: true };
        const { data } = (await this.base.call(layer, fields)).attention_weights;
        if (data.length !== this.queries * this.keys)
            throw new InputError(`layer ${layer} has columns beside its keys: look at its heads`);
        return data;
    }

    /** The map of a layer from that of the one before it, which is null for the first. */
    async make(layer) {
        const mean = await this.meanOf(layer);
        const at = this.layers.indexOf(layer);
        if (this.way === "mean") return mean;
        const before = at > 0 ? await this.map(this.layers[at - 1]) : null;
        if (this.way === "rollout") return rolledOut(mean, before, this.keys);
        return mean.map((weight, i) => (weight + at * (before?.[i] ?? 0)) / (at + 1));
    }

    /** A map that is made once, for all who ask; where that fails, it is made anew. */
    map(layer) {
        if (!this.maps.has(layer)) {
            const made = this.make(layer);
            this.maps.set(layer, made);
            made.catch(() => this.maps.delete(layer));
        }
        return this.maps.get(layer);
    }
}

/** @returns {boolean} whether the heads of a source can be combined */
export const canCombine = (source) => source.kind !== "session";

/**
 * @param {Source} base @param {string} way one of `ways`
 * @returns {Source} the base itself for ""
 */
export function combined(base, way) {
    if (!Object.hasOwn(ways, way) || way === "" || !canCombine(base)) return base;
    const { queries, keys, layers, title, model } = base;
    if (layers.length * queries * keys > MAX_CELLS)
        throw new InputError(
            `${title}: maps of ${layers.length} layers of ${queries} × ${keys} ` +
                `are above ${MAX_CELLS} cells; name fewer layers`,
        );
    if (way === "rollout" && (queries !== keys || base.encoder))
        throw new InputError("attention rollout needs as many keys as queries: self-attention");
    if (way === "rollout" && keys > MAX_ROLLOUT)
        throw new InputError(`attention rollout is made of ${MAX_ROLLOUT} tokens at most`);
    const all = model.resident_layers.length;
    const part =
        way === "mean" || layers.length === all
            ? null
            : `made of ${layers.length} of ${all} layers: those that are shown`;
    const { queryLabels, keyLabels, padding, leftOut } = base;
    return new CombinedSource({
        way,
        base,
        title: `${ways[way].title}, ${title}`,
        mark: base.mark ?? part,
        model,
        layers,
        queryLabels,
        keyLabels,
        padding,
        leftOut,
    });
}
