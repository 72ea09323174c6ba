/**
 * mask.js: which keys each query may attend to: causality, window, padding.
 *
 * The daemon's weights are 0 both where a key cannot be attended and where its weight is small; the
 * page tells them apart. Node can import the module.
 */

/** @returns {[number, number]} how many keys before and after a query it sees; -1: all */
export function windowOf(spec) {
    const reach = spec.sliding_window > 0 ? spec.sliding_window - 1 : -1;
    return [reach, reach < 0 || !spec.is_causal ? reach : 0];
}

/**
 * The keys [first, end) of each query, by causality, window and chunk; the last query stands at the
 * last key (docs/API.md, "Masks").
 * @param {{is_causal: boolean, sliding_window: number|null, attention_chunk_size?: number|null}}
 *     spec of the layer
 * @param {{is_causal?: boolean, sliding_window?: number|number[]}} fields of the request
 * @param {number} [firstToken] the first key that is not padding, where chunks begin
 * @returns {{first: Int32Array, end: Int32Array}}
 */
export function spansOf(spec, fields, queries, keys, firstToken = 0) {
    const causal = fields.is_causal ?? spec.is_causal;
    const window = fields.sliding_window ?? windowOf(spec);
    const [left, right] = Array.isArray(window) ? window : [window - 1, 0];
    const chunk = fields.sliding_window ? 0 : (spec.attention_chunk_size ?? 0);
    const first = new Int32Array(queries);
    const end = new Int32Array(queries);
    for (let t = 0; t < queries; t++) {
        const at = keys - queries + t;
        const last = Math.min(causal ? at : keys - 1, right < 0 ? keys - 1 : at + right);
        const start = chunk ? at - ((((at - firstToken) % chunk) + chunk) % chunk) : 0;
        end[t] = Math.max(0, Math.min(keys, last + 1, chunk ? start + chunk : keys));
        first[t] = Math.min(end[t], Math.max(0, start, left < 0 ? 0 : at - left));
    }
    return { first, end };
}

/** @returns {Float64Array} how many queries may attend to each of `keys` keys */
export function viewersOf({ first, end }, keys) {
    const change = new Float64Array(keys + 1);
    for (let t = 0; t < first.length; t++) {
        change[first[t]]++;
        change[end[t]]--;
    }
    for (let i = 1; i < keys; i++) change[i] += change[i - 1];
    return change.subarray(0, keys);
}

/**
 * Writes minus infinity into the cells of a pooled or whole map that hold nothing but pairs that
 * cannot be attended. Columns beyond `keys` are appended ones, which every query sees.
 * @param {Float32Array} values [rows, columns], changed in place
 * @param {{queries: number, width: number, keys: number}} whole the size of the whole map
 * @param {Uint8Array|null} padding [keys], 0: never attended
 * @param {number} [firstRow] of the queries that values cover
 * @param {number} [lastRow]
 */
export function hide(values, rows, columns, spans, whole, padding, firstRow = 0, lastRow) {
    const covered = (lastRow ?? whole.queries) - firstRow;
    const begin = (c) => Math.floor((c * whole.width) / columns);
    const stop = (c) => Math.ceil(((c + 1) * whole.width) / columns);
    const padded =
        padding &&
        Array.from({ length: columns }, (_, c) => {
            if (stop(c) > whole.keys) return false;
            return padding.subarray(begin(c), stop(c)).every((real) => !real);
        });
    for (let r = 0; r < rows; r++) {
        let first = whole.keys;
        let end = 0;
        const last = Math.ceil(((r + 1) * covered) / rows) + firstRow;
        for (let t = Math.floor((r * covered) / rows) + firstRow; t < last; t++) {
            first = Math.min(first, spans.first[t]);
            end = Math.max(end, spans.end[t]);
        }
        for (let c = 0; c < columns; c++) {
            const seen = stop(c) > whole.keys || (begin(c) < end && stop(c) > first);
            if (!seen || (padded && padded[c])) values[r * columns + c] = -Infinity;
        }
    }
    return values;
}
