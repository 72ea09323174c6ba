/**
 * demo_model.js: all of the demonstration model (examples/demo) but its attention: embeddings, norms,
 * MLPs and the output, of a Qwen2.  The attention of each layer is attnd's.
 *
 * No document and no network: for a worker, and for node.
 */
import { open } from "./files.js";
import { numbersOf } from "./tensors.js";

export const MAX_TOKENS = 128; // max_position_embeddings of its config.json
const EPSILON = 1e-6; // rms_norm_eps

/** @returns {Float32Array} rows [n,width] over their root mean square, times the weight [width] */
function normed(rows, weight) {
    const width = weight.length;
    const made = new Float32Array(rows.length);
    for (let begin = 0; begin < rows.length; begin += width) {
        let sum = 0;
        for (let i = 0; i < width; i++) sum += rows[begin + i] ** 2;
        const scale = 1 / Math.sqrt(sum / width + EPSILON);
        for (let i = 0; i < width; i++) made[begin + i] = rows[begin + i] * scale * weight[i];
    }
    return made;
}

/** @returns {Float32Array} rows [n,columns] times the transpose of a matrix [outputs,columns] */
function times(rows, matrix, columns) {
    const count = rows.length / columns;
    const outputs = matrix.length / columns;
    const made = new Float32Array(count * outputs);
    for (let row = 0; row < count; row++)
        for (let output = 0; output < outputs; output++) {
            let sum = 0;
            for (let i = 0; i < columns; i++)
                sum += rows[row * columns + i] * matrix[output * columns + i];
            made[row * outputs + output] = sum;
        }
    return made;
}

const plus = (a, b) => a.map((number, place) => number + b[place]);
const silu = (z) => z / (1 + Math.exp(-z));

/** @returns {{id: number, probability: number}[]} the likeliest tokens, the likeliest first */
export function likeliest(logits, count) {
    const most = logits.reduce((a, b) => Math.max(a, b));
    const sum = logits.reduce((all, logit) => all + Math.exp(logit - most), 0);
    return Array.from(logits, (logit, id) => ({ id, probability: Math.exp(logit - most) / sum }))
        .sort((a, b) => b.probability - a.probability)
        .slice(0, count);
}

class Model {
    /** @param {Map<string, Float32Array>} tensors by the names of Hugging Face */
    constructor(tensors) {
        this.tensors = tensors;
        this.width = tensors.get("model.norm.weight").length;
        this.vocabulary = this._of("embed_tokens").length / this.width;
        this.layers = [...tensors.keys()].filter((name) =>
            name.endsWith("gate_proj.weight"),
        ).length;
    }

    _of(name) {
        return this.tensors.get(`model.${name}.weight`);
    }

    /** @returns {Float32Array} rows [tokens,width] */
    embed(ids) {
        const rows = new Float32Array(ids.length * this.width);
        const table = this._of("embed_tokens");
        ids.forEach((id, place) =>
            rows.set(table.subarray(id * this.width, (id + 1) * this.width), place * this.width),
        );
        return rows;
    }

    /** @returns {Float32Array} what a layer's attention takes of the residual stream */
    before(rows, layer) {
        return normed(rows, this._of(`layers.${layer}.input_layernorm`));
    }

    /** @returns {Float32Array} the residual stream after a layer whose attention is given */
    after(rows, attention, layer) {
        const sum = plus(rows, attention);
        const name = `layers.${layer}.`;
        const taken = normed(sum, this._of(`${name}post_attention_layernorm`));
        const gate = times(taken, this._of(`${name}mlp.gate_proj`), this.width);
        const inner = times(taken, this._of(`${name}mlp.up_proj`), this.width);
        for (let i = 0; i < inner.length; i++) inner[i] *= silu(gate[i]);
        const down = this._of(`${name}mlp.down_proj`);
        return plus(sum, times(inner, down, down.length / this.width));
    }

    /** @returns {Float32Array} logits [vocabulary] of what follows one row of the last layer */
    logits(rows, row) {
        const last = rows.subarray(row * this.width, (row + 1) * this.width);
        return times(normed(last, this._of("norm")), this._of("embed_tokens"), this.width);
    }

    /**
     * @param {(rows: Float32Array, layer: number) => Promise<Float32Array>} attend one layer
     * @returns {Promise<{rows: Float32Array, taken: Float32Array[]}>} those of the last layer, and
     *     what each layer's attention took
     */
    async run(ids, attend) {
        let rows = this.embed(ids);
        const taken = [];
        for (let layer = 0; layer < this.layers; layer++) {
            taken.push(this.before(rows, layer));
            rows = this.after(rows, await attend(taken[layer], layer), layer);
        }
        return { rows, taken };
    }
}

/** @returns {Promise<Model>} of the bytes of model.safetensors */
export async function modelOf(blob) {
    const { entries } = await open(blob, "demo.safetensors");
    const tensors = new Map();
    for (const entry of entries) tensors.set(entry.name, numbersOf(await entry.read()));
    return new Model(tensors);
}
