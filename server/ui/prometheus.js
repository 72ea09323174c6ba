/**
 * prometheus.js: the text form of metrics, and what can be said of a histogram between two moments.
 */

const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([^ ]+)$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"/g;

const numberOf = (text) => (text === "+Inf" ? Infinity : Number(text));

/**
 * @param {string} text
 * @returns {Map<string, Array<{labels: Object<string, string>, value: number}>>} samples by name
 */
export function parse(text) {
    const found = new Map();
    for (const line of text.split("\n")) {
        const sample = line.startsWith("#") ? null : SAMPLE.exec(line);
        if (!sample) continue;
        const labels = Object.fromEntries(
            [...(sample[2] ?? "").matchAll(LABEL)].map(([, name, value]) => [name, value]),
        );
        if (!found.has(sample[1])) found.set(sample[1], []);
        found.get(sample[1]).push({ labels, value: numberOf(sample[3]) });
    }
    return found;
}

/** The sum of a metric's samples whose labels pass `chosen`; 0 where there is none yet. */
export function total(metrics, name, chosen = (_labels) => true) {
    const samples = metrics.get(name) ?? [];
    return samples.reduce((sum, { labels, value }) => (chosen(labels) ? sum + value : sum), 0);
}

/**
 * The difference of a histogram between two readings.
 * @returns {{count: number, sum: number, buckets: Array<[number, number]>}} buckets: upper bound
 *     and how many were at most that
 */
export function between(before, after, name, chosen = (_labels) => true) {
    const counts = new Map();
    for (const [metrics, sign] of [
        [after, 1],
        [before, -1],
    ])
        for (const { labels, value } of metrics.get(`${name}_bucket`) ?? [])
            if (chosen(labels)) {
                const bound = numberOf(labels.le);
                counts.set(bound, (counts.get(bound) ?? 0) + sign * value);
            }
    const grown = (part) =>
        total(after, `${name}_${part}`, chosen) - total(before, `${name}_${part}`, chosen);
    const buckets = [...counts].sort(([a], [b]) => a - b);
    return { count: grown("count"), sum: grown("sum"), buckets };
}

/**
 * The value that the share `q` of what was measured does not pass, as near as the buckets tell:
 * even within a bucket; beyond the last bound it is that bound.
 * @returns {number | null} null where nothing was measured
 */
export function quantile({ count, buckets }, q) {
    if (!(count > 0)) return null;
    const wanted = q * count;
    let below = 0,
        low = 0;
    for (const [bound, upTo] of buckets) {
        if (upTo >= wanted) {
            if (bound === Infinity) return low;
            return low + (bound - low) * ((wanted - below) / (upTo - below || 1));
        }
        below = upTo;
        low = bound === Infinity ? low : bound;
    }
    return low;
}
