/**
 * head_stats.js: the statistics of a head whose weights are in the page.
 *
 * The statistics are those of the daemon's `head_stats` (docs/API.md, docs/NUMERICS.md), computed as
 * lib/kernels/stats.c does: of each row, then means over the rows that see a key. Node can import it.
 */

const LIFT = 0.5; // (share - chance) / (1 - chance) from which a head has a pattern
const LIFT_ROOM = 0.01; // with less left beside chance a share says nothing
const POSITIONAL_ROWS = 2; // beside a majority
const NEAR = 4; // local_radius
const SUMS = ["entropy", "mean_distance", "self", "previous", "first", "local", "largest"];

/** The statistics of one row; `chance`: those of a row that is even over the keys it sees. */
function rowOf(weights, { sees, query, first }) {
    const row = { reached: 0, strongest: 0, entropy: 0, mean_distance: 0, local: 0, largest: 0 };
    let near = 0;
    for (let j = 0; j < weights.length; j++) {
        if (!sees(j)) continue;
        const weight = weights[j];
        const away = Math.abs(query - j);
        if (row.reached++ === 0 || weight > row.largest)
            Object.assign(row, { strongest: j, largest: weight });
        if (weight > 0) row.entropy -= weight * Math.log(weight);
        row.mean_distance += weight * away;
        if (away <= NEAR) {
            near++;
            row.local += weight;
        }
    }
    const even = row.reached > 0 ? 1 / row.reached : 0;
    row.chance = { local: near * even, largest: even };
    for (const [name, at] of [
        ["self", query],
        ["previous", query - 1],
        ["first", first],
    ]) {
        const there = at >= 0 && at < weights.length && sees(at);
        row[name] = there ? weights[at] : 0;
        row.chance[name] = there ? even : 0;
    }
    row.distance = query - row.strongest;
    return row;
}

/** Whether in most rows the strongest key is at the same distance. */
function isPositional(rows) {
    const counts = new Map();
    for (const { distance } of rows) counts.set(distance, (counts.get(distance) ?? 0) + 1);
    const most = Math.max(...counts.values());
    return most >= POSITIONAL_ROWS && 2 * most > rows.length;
}

/** @returns {string} a word for what the head does; a row of one key tells nothing */
function patternOf(rows) {
    const telling = rows.filter((row) => row.reached > 1);
    const lifted = (name) => {
        const mean = (read) => telling.reduce((sum, row) => sum + read(row), 0) / telling.length;
        const chance = mean((row) => row.chance[name]);
        const room = 1 - chance;
        return room >= LIFT_ROOM && (mean((row) => row[name]) - chance) / room >= LIFT;
    };
    if (telling.length === 0) return "global";
    if (lifted("previous")) return "previous";
    if (lifted("first")) return "sink";
    const sharp = lifted("largest");
    if (sharp && isPositional(telling)) return "positional";
    if (lifted("local")) return "local";
    return sharp ? "focused" : "global";
}

/** Means about targets [T] and groups of keys, as far as they are asked for. */
function aboutTokens(rows, maps, /** @type {any} */ { targets, target_groups }) {
    const about = {};
    const mean = (list, read) => list.reduce((sum, row) => sum + read(row), 0) / (list.length || 1);
    if (targets) {
        const asked = rows.filter((row) => targets[row.t] >= 0);
        about.target = mean(asked, (row) => maps[row.t][targets[row.t]]);
        about.target_hits = mean(asked, (row) => Number(row.strongest === targets[row.t]));
        about.target_rows = asked.length;
    }
    if (target_groups)
        about.groups = target_groups.map((group) => ({
            share: mean(rows, (row) => group.reduce((sum, key) => sum + maps[row.t][key], 0)),
            hits: mean(rows, (row) => Number(group.includes(row.strongest))),
        }));
    return about;
}

/**
 * @param {Float32Array} map [rows, keys] @param {number} keys
 * @param {{spans: {first: Int32Array, end: Int32Array}, padding: Uint8Array|null}} mask
 * @param {{targets?: number[], target_groups?: number[][]}} [asked]
 * @returns {object} members of `head_stats`, without `head` and `ablation`
 */
export function headStats(map, keys, { spans, padding }, asked = {}) {
    const count = spans.first.length;
    const maps = Array.from({ length: count }, (_, t) => map.subarray(t * keys, (t + 1) * keys));
    const first = padding ? padding.indexOf(1) : 0;
    const all = maps.map((weights, t) => {
        const sees = (j) => j >= spans.first[t] && j < spans.end[t] && (!padding || padding[j]);
        return { t, ...rowOf(weights, { sees, query: keys - count + t, first }) };
    });
    const rows = all.filter((row) => row.reached > 0);
    const stats = { pattern: patternOf(rows), rows: rows.length };
    for (const name of SUMS)
        stats[name] = rows.reduce((sum, row) => sum + row[name], 0) / (rows.length || 1);
    return { ...stats, ...aboutTokens(rows, maps, asked) };
}
