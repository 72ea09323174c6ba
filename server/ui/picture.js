/**
 * picture.js: the numbers of one map: what is fetched of it, and what is kept.
 *
 * A map of at most 8 MB is fetched whole, as FP32. Of a larger one the page fetches a pooled map of
 * the screen's resolution, then exact rows: the one that is pointed at, and those in view once they
 * fit. Cells that cannot be attended are minus infinity here, so that they differ from weight 0.
 */
import { labelOf } from "./axes.js";
import { hide, spansOf, viewersOf } from "./mask.js";
import { MOST_TOLD, patternOf } from "./statistics.js";

export const MOST_BYTES = 8e6; // of a reply
const MOST_SIDE = 8192; // of a bitmap
const MOST_POOLED = 1024;
const KEPT_BYTES = 24e6; // of rows
const PIECE_BYTES = 1e6; // of rows fetched at once: whatever they are, a call projects all tokens

/** @returns {number} columns that the weights have beside the keys */
export function appendedOf(spec, kind) {
    return kind === "weights" ? Number(spec.bias_kv) + Number(spec.add_zero_attn) : 0;
}

/** What is computed of a layer: weightless calls leave out what is not in keys and values. */
function computedSpec(source, layer) {
    const spec = source.spec(layer);
    if (source.local || !source.lacks?.includes("query")) return spec;
    return { ...spec, is_causal: false, sinks: false, bias_kv: false, add_zero_attn: false };
}

/** @returns {object} the fields that ask for a map of that kind */
export function mapFields(kind, stage, head) {
    const what = kind === "weights" ? "attention_weights" : "attention_scores";
    return { outputs: [what], heads: [head], ...(kind === "scores" ? { stage } : {}) };
}

export const tensorOf = (reply, kind) =>
    kind === "weights" ? reply.attention_weights : reply.attention_scores;

/** The cells of a grid under the column that is at `share` of its width. */
export function columnOf({ values, rows, columns }, share, count) {
    const at = Math.floor(share * columns + 1e-9);
    const cells = Float32Array.from({ length: rows }, (_, r) => values[r * columns + at]);
    return { values: cells, first: 0, rows: count };
}

/** One map [rows, columns] of one head. */
export class Picture {
    #pieces = []; // {first, end, values} of exact rows, the piece used last at the end
    #coming = null; // {first, end, done} of the piece that is read ahead
    #refused = false; // reading ahead has failed once; rows are then fetched as they are asked for

    /**
     * @param {import("./source.js").Source} source
     * @param {{layer: number, head: number, kind: string, stage: string, fields: object}} what
     *     fields: modifiers that are sent with each call
     */
    constructor(source, what) {
        this.source = source;
        this.layer = what.layer;
        this.head = what.head;
        this.kind = what.kind;
        this.stage = what.stage;
        this.fields = what.fields;
        this.spec = computedSpec(source, what.layer);
        this.rows = source.queries;
        this.keys = source.keys;
        this.columns = source.keys + appendedOf(this.spec, what.kind);
        this.padding = source.padding ?? null;
        const real = Math.max(0, this.padding?.indexOf(1) ?? 0); // the first token
        this.spans = spansOf(this.spec, what.fields, this.rows, this.keys, real);
        const blind = this.spans.end.some((end, t) => end - this.spans.first[t] < this.keys);
        this.masked = blind || Boolean(this.padding?.includes(0)); // some pairs are not attended
        this.offset = source.kind === "session" ? this.keys - this.rows : 0;
        const bytes = 4 * this.rows * this.columns;
        this.whole = bytes <= MOST_BYTES && Math.max(this.rows, this.columns) <= MOST_SIDE;
        /** @type {{values: Float32Array, rows: number, columns: number}} */
        this.map = null; // the cells that are painted
        this.detail = null; // { row0, rows, values }: exact rows in view
        this.means = null; // of each key, or of equal parts of the keys
        this.stats = null; // head_stats of the head
        this.sinks = null; // of each row: 1 less the sum of its weights
    }

    rowLabel = (row) => labelOf(this.source.queryLabels, row, this.offset);

    columnLabel(column) {
        if (column < this.keys) return labelOf(this.source.keyLabels, column);
        return this.spec.bias_kv && column === this.keys ? "bias_kv" : "zero key";
    }

    /** What the head does, once its statistics are there. */
    get pattern() {
        return patternOf(this.stats, this.weights, this.source);
    }

    /** Whether a pair cannot be attended, by causality, window or padding; given weights that are
     *  not 0 were attended all the same. */
    isHidden(row, column) {
        if (!this.hides || column >= this.keys) return false;
        const { first, end } = this.spans;
        const seen = column >= first[row] && column < end[row] && this.padding?.[column] !== 0;
        return !seen && !(this.source.local && this.valueAt(row, column) > 0);
    }

    /** Raw and capped scores exist for each pair, seen or not. */
    get hides() {
        return this.kind === "weights" || this.stage === "masked";
    }

    #hide(values, rows, columns, firstRow, lastRow) {
        if (!this.hides) return values;
        const whole = { queries: this.rows, width: this.columns, keys: this.keys };
        const given = this.source.local ? values.slice() : null;
        hide(values, rows, columns, this.spans, whole, this.padding, firstRow, lastRow);
        given?.forEach((weight, i) => weight !== 0 && (values[i] = weight));
        return values;
    }

    async #ask(fields, signal) {
        const { layer, kind, stage, head } = this;
        const all = { ...this.fields, ...mapFields(kind, stage, head), ...fields, plain: true };
        const tensor = tensorOf(await this.source.call(layer, all, signal), kind);
        const [rows, columns] = fields.pool ?? [fields.rows?.length ?? this.rows, this.columns];
        if (tensor.data.length !== rows * columns)
            throw new Error(`the map has shape [${tensor.shape}], not [1, ${rows}, ${columns}]`);
        return tensor;
    }

    /** Fetches the head's statistics, for which the daemon computes all heads, unless they are there,
     *  and a small map's weights, which tell its pattern; a head that is off has both all the same. */
    async fetchStats(signal) {
        const { rows, columns, head } = this;
        const { head_mask, ...fields } = this.fields;
        const isSmall = Math.max(rows, columns) <= MOST_TOLD;
        const known = this.source.stats?.get(this.layer);
        if (!isSmall && known?.queries === rows && Object.keys(fields).length === 0)
            return (this.stats = known.heads[head]);
        const outputs = isSmall ? ["head_stats", "attention_weights"] : ["head_stats"];
        const asked = { ...fields, outputs, heads: [head], plain: true };
        const reply = await this.source.call(this.layer, asked, signal);
        const values = reply.attention_weights?.data;
        this.weights = values ? { values, rows, columns: values.length / rows } : null;
        this.stats = reply.head_stats.flat()[0];
        return this.stats;
    }

    /** Fetches what is painted. @param {number[]} pixels rows and columns of the screen */
    async fetch(pixels, signal) {
        if (this.whole) {
            const { data } = await this.#ask({}, signal);
            const values = this.#hide(data, this.rows, this.columns);
            this.map = { values, rows: this.rows, columns: this.columns };
        } else {
            const pool = [this.rows, this.columns].map((size, i) =>
                Math.min(size, MOST_POOLED, Math.max(64, pixels[i])),
            );
            const { data } = await this.#ask({ pool, map_datatype: "FP16" }, signal);
            const values = this.#hide(data, pool[0], pool[1]);
            this.map = { values, rows: pool[0], columns: pool[1] };
        }
        if (this.whole && this.kind === "weights") this.#sum(this.map.values);
        return this;
    }

    /** Sums of rows and of columns of a whole map. */
    #sum(values) {
        const sums = new Float64Array(this.rows);
        const columns = new Float64Array(this.columns);
        for (let r = 0, i = 0; r < this.rows; r++)
            for (let c = 0; c < this.columns; c++, i++) {
                if (values[i] === -Infinity) continue;
                sums[r] += values[i];
                columns[c] += values[i];
            }
        this.#takeSums(sums, columns);
    }

    #takeSums(sums, columns) {
        const viewers = viewersOf(this.spans, this.keys);
        if (columns.length === this.columns)
            this.means = columns.map((sum, c) => {
                const count = c < this.keys ? viewers[c] : this.rows;
                return count > 0 ? sum / count : 0;
            });
        else this.means = columns.map((sum) => sum / this.rows);
        if (this.#hasSinks) this.sinks = sums.map((sum) => Math.max(0, 1 - sum));
    }

    /** Of a head that is off, or weighed by head_mask, the sums say nothing about its sink. */
    get #hasSinks() {
        return this.spec.sinks && (this.fields.head_mask?.[this.head] ?? 1) === 1;
    }

    /** Fetches the sums of a map that is not whole: two small calls. */
    async fetchSums(signal) {
        if (this.whole || this.kind !== "weights") return;
        const most = (size) => Math.min(size, 4096);
        const mean = async (pool) => (await this.#ask({ pool, pool_type: "mean" }, signal)).data;
        const columns = await mean([1, most(this.columns)]);
        const sums = this.#hasSinks ? await mean([most(this.rows), 1]) : [];
        this.#takeSums(
            Float64Array.from(sums, (value) => value * this.columns),
            Float64Array.from(columns, (value) => value * this.rows),
        );
    }

    // ---- Exact numbers ----

    /** @returns {Float32Array|undefined} the row's numbers, minus infinity where hidden */
    rowValues(row) {
        const { map, detail } = this;
        const from = (values, r) => values.subarray(r * this.columns, (r + 1) * this.columns);
        if (this.whole) return map ? from(map.values, row) : undefined;
        if (detail && row >= detail.row0 && row < detail.row0 + detail.rows)
            return from(detail.values, row - detail.row0);
        const piece = this.#pieceOf(row);
        return piece && from(piece.values, row - piece.first);
    }

    /** @returns {number|undefined} as the API gives it: a hidden weight is 0 */
    valueAt(row, column) {
        const value = this.rowValues(row)?.[column];
        return value === -Infinity && this.kind === "weights" ? 0 : value;
    }

    /**
     * A column's numbers in the rows [row0, row1): exact where they are there, else pooled cells.
     * @returns {{values: Float32Array, first: number, rows: number}} of the rows from first on
     */
    columnValues(column, { row0, row1 }) {
        const { detail, map } = this;
        const first = Math.floor(row0);
        const rows = Math.min(this.rows, Math.ceil(row1)) - first;
        const inDetail =
            detail && first >= detail.row0 && first + rows <= detail.row0 + detail.rows;
        if (!this.whole && !inDetail) return columnOf(map, column / this.columns, this.rows);
        const values = Float32Array.from({ length: rows }, (_, r) => {
            return this.rowValues(first + r)[column];
        });
        return { values, first, rows };
    }

    #pieceOf(row) {
        return this.#pieces.find(({ first, end }) => row >= first && row < end);
    }

    /** Puts the piece with a row at the end, where there is one. */
    #use(row) {
        const piece = this.#pieceOf(row);
        if (piece) this.#pieces.push(...this.#pieces.splice(this.#pieces.indexOf(piece), 1));
    }

    /** Fetches the rows [first, end), but for those beyond the map; the pieces used longest ago are
     *  dropped. */
    async #fetchPiece(first, end, signal) {
        const [begin, last] = [Math.max(0, first), Math.min(this.rows, end)];
        const values = await this.#fetchRows(begin, last - begin, signal);
        this.#pieces.push({ first: begin, end: last, values });
        let bytes = 0;
        const from = this.#pieces.findLastIndex(
            ({ values: { byteLength } }) => (bytes += byteLength) > KEPT_BYTES,
        );
        this.#pieces.splice(0, Math.min(from + 1, this.#pieces.length - 1));
    }

    #rowsIn(bytes) {
        return Math.floor(bytes / (4 * this.columns));
    }

    /** Fetches one exact row, with its neighbours: about `bytes` of them, 0 where that is not known. */
    async fetchRow(row, signal, bytes = 0) {
        if (row >= this.#coming?.first && row < this.#coming.end) await this.#coming.done;
        this.#use(row);
        if (this.rowValues(row)) return;
        const spare = this.#rowsIn(Math.min(bytes || PIECE_BYTES, MOST_BYTES)) >> 1;
        await this.#fetchPiece(row - spare, row + Math.max(1, spare), signal);
    }

    /** Reads rows ahead of a pointer that is in `row`, upwards (`by` -1) or downwards (1), where
     *  they are not there up to a piece away. */
    async fetchAhead(row, by, signal) {
        this.#use(row);
        const count = this.#rowsIn(MOST_BYTES);
        const missing = Array.from({ length: count }, (_, i) => row + by * (i + 1)).find(
            (next) => next >= 0 && next < this.rows && !this.rowValues(next),
        );
        if (missing === undefined || this.#refused) return;
        const first = by > 0 ? missing : missing - count + 1;
        const done = this.#fetchPiece(first, first + count, signal).catch(
            () => (this.#refused = true),
        );
        this.#coming = { first, end: first + count, done };
        await done;
        this.#coming = null;
    }

    async #fetchRows(first, count, signal) {
        const end = Math.min(this.rows, first + count);
        const list = Array.from({ length: end - first }, (_, i) => first + i);
        const { data } = await this.#ask({ rows: list }, signal);
        return this.#hide(data, list.length, this.columns, first, end);
    }

    /** @returns {{row0: number, rows: number}|null} exact rows that an area wants fetched */
    wanted({ row0, row1, column0, column1 }) {
        if (this.whole || !this.map || column1 - column0 > MOST_SIDE) return null;
        const first = Math.floor(row0);
        const end = Math.min(this.rows, Math.ceil(row1));
        const most = Math.min(MOST_SIDE, Math.floor(MOST_BYTES / (4 * this.columns)));
        if (end - first > most) return null;
        const { detail } = this;
        const there = detail && detail.row0 <= first && detail.row0 + detail.rows >= end;
        if (there) return null;
        const free = Math.max(0, (most >> 1) - (end - first)); // so that what is kept stays small
        const spare = Math.min(end - first, free) >> 1;
        const begin = Math.max(0, first - spare);
        return { row0: begin, rows: Math.min(this.rows, end + spare) - begin };
    }

    async fetchDetail({ row0, rows }, signal) {
        this.detail = { row0, rows, values: await this.#fetchRows(row0, rows, signal) };
    }
}
