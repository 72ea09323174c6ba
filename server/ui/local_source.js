/**
 * local_source.js: sources whose weights are in the page, so that no call of the daemon is made.
 *
 * A LocalSource has map(layer, head): the weights [queries, keys] of a head. From these it replies
 * to the calls of the views as /attend would: maps of heads and rows, pooled or averaged, and
 * statistics. There is nothing else: no scores, vectors or outputs, and nothing can be changed.
 */
import { headStats } from "./head_stats.js";
import { spansOf } from "./mask.js";
import { Source } from "./source.js";
import { pooled } from "./statistics.js";

export class LocalSource extends Source {
    kind = "weights";
    path = null;
    local = true;
    lacks = ["attention_scores", "query", "key", "value", "head_output", "concat", "ablation"];

    modifiers() {
        return {};
    }

    /** @returns {Promise<Float32Array>} the weights [queries, keys] of a head */
    async map(layer, head) {
        throw new Error("of a kind of source");
    }

    /** The mean of the maps of a layer's heads. */
    async mean(layer, signal) {
        const heads = this.spec(layer).num_attention_heads;
        const sum = new Float64Array(this.queries * this.keys);
        for (let head = 0; head < heads; head++) {
            signal?.throwIfAborted();
            (await this.map(layer, head)).forEach((weight, i) => (sum[i] += weight));
        }
        return Float32Array.from(sum, (weight) => weight / heads);
    }

    /** The weights [rows, keys] that a call asks for, pooled as it says. */
    cut(map, { rows, pool, pool_type }) {
        const { keys } = this;
        const shown = new Float32Array(rows ? rows.length * keys : map);
        rows?.forEach((t, at) => shown.set(map.subarray(t * keys, (t + 1) * keys), at * keys));
        const count = rows?.length ?? this.queries;
        return pooled(shown, count, keys, pool ?? [count, keys], pool_type);
    }

    mask(layer) {
        const first = Math.max(0, this.padding?.indexOf(1) ?? 0);
        const spans = spansOf(this.spec(layer), {}, this.queries, this.keys, first);
        return { spans, padding: this.padding };
    }

    /** @returns {Promise<object>} the outputs attention_weights and head_stats of a call */
    async call(layer, fields, signal) {
        const { outputs, average_heads, heads } = fields;
        const maps = [];
        const head_stats = [];
        const take = (map) =>
            outputs.includes("attention_weights") && maps.push(this.cut(map, fields));
        if (average_heads) take(await this.mean(layer, signal));
        else
            for (const head of heads ?? Array(this.spec(layer).num_attention_heads).keys()) {
                const map = await this.map(layer, head);
                signal?.throwIfAborted();
                take(map);
                if (!outputs.includes("head_stats")) continue;
                const stats = headStats(map, this.keys, this.mask(layer), fields);
                head_stats.push({ head, ...stats });
            }
        if (maps.length === 0) return { head_stats };
        const [{ rows, columns }] = maps;
        const data = new Float32Array(maps.length * rows * columns);
        maps.forEach(({ values }, i) => data.set(values, i * rows * columns));
        const shape = average_heads ? [rows, columns] : [maps.length, rows, columns];
        return { head_stats, attention_weights: { data, shape } };
    }
}
