/**
 * statistics.js: the statistics of a head by name, in what order they put heads, and pooling.
 *
 * Numbers are those of `head_stats` (docs/API.md); nothing is computed here but the pooled form of
 * maps that are in the page already.
 */

import { brackets, successors } from "./rows.js";

/** Statistics: title, and how to read it from an object of `head_stats`. */
export const statistics = {
    entropy: { title: "entropy", unit: "nats" },
    mean_distance: { title: "mean distance", unit: "tokens" },
    self: { title: "weight on itself" },
    previous: { title: "weight on the previous token" },
    first: { title: "weight on the first token" },
    local: { title: "weight near by" },
    largest: { title: "largest weight" },
    ablation: { title: "importance", of: "ablation" },
    target: { title: "weight on the target", of: "target" },
    target_hits: { title: "target hits", of: "target" },
    group_share: { title: "weight on the group", of: "group", read: (s) => s.groups?.[0].share },
    group_hits: { title: "group hits", of: "group", read: (s) => s.groups?.[0].hits },
};

const LIFT = 0.5; // share of the weight from which a head has a pattern
export const MOST_TOLD = 96; // rows and columns of a map whose cells tell a pattern
const FEWEST = 4; // rows with a target, or the text says nothing

/** @returns {number} the mean weight of a map [rows, columns] on the targets of its rows */
function onTargets({ values, rows, columns }, targets) {
    const asked = [...targets.keys()].filter((row) => targets[row] >= 0 && row < rows);
    if (asked.length < FEWEST) return 0;
    return asked.reduce((sum, row) => sum + values[row * columns + targets[row]], 0) / asked.length;
}

/**
 * What a head does: the daemon's pattern; induction or bracket, which tokens tell; or self, which is
 * the distance 0 of `positional`.
 * @param {{pattern: string, self?: number}} stats
 * @param {{values: ArrayLike<number>, rows: number, columns: number}|null} map of single weights
 * @param {{encoder?: object, keyLabels: string[]}} source whose queries and keys are the same tokens,
 *     unless they are an encoder's
 */
export function patternOf(stats, map, { encoder, keyLabels: labels }) {
    if (!stats || encoder || ["previous", "sink"].includes(stats.pattern)) return stats?.pattern;
    if (stats.pattern === "positional" && stats.self >= LIFT) return "self";
    const exact = map?.values && map.rows === labels.length && map.columns >= labels.length;
    if (!exact || map.rows > MOST_TOLD) return stats.pattern;
    if (onTargets(map, successors(labels)) >= LIFT) return "induction";
    return onTargets(map, brackets(labels)) >= LIFT ? "bracket" : stats.pattern;
}

/** @returns {number|undefined} a statistic of a head; undefined where it was not asked for */
export function valueOf(stats, name) {
    if (!stats || !Object.hasOwn(statistics, name)) return undefined;
    const value = statistics[name].read ? statistics[name].read(stats) : stats[name];
    return typeof value === "number" ? value : undefined;
}

/** Whether a statistic tells something: of other tokens than its own a query's place says nothing. */
export function tells(source, name) {
    return !source.encoder || !["self", "previous", "local", "mean_distance"].includes(name);
}

/** @returns {string[]} statistics to show where `asked` are: "ablation", "target", "group" */
export function available(asked) {
    return Object.keys(statistics).filter((name) => {
        const { of } = statistics[name];
        return of === undefined || asked.includes(of);
    });
}

/**
 * Heads in the order of a statistic, the largest first; heads without it come last. Equal ones keep
 * the order of layers and heads.
 * @template {{layer: number, head: number, stats: object}} Head
 * @param {Head[]} heads @param {string} name a statistic, or "layer"
 * @returns {Head[]}
 */
export function sorted(heads, name) {
    const place = (head) => [head.layer, head.head];
    const value = (head) => valueOf(head.stats, name) ?? -Infinity;
    return [...heads].sort((a, b) => {
        const [va, vb] = name === "layer" ? [0, 0] : [value(a), value(b)];
        if (va !== vb) return va < vb ? 1 : -1;
        const [pa, pb] = [place(a), place(b)];
        return pa[0] - pb[0] || pa[1] - pb[1];
    });
}

/** @returns {[number, number]} smallest and largest of a statistic; [0, 0] where no head has it */
export function rangeOf(heads, name) {
    const values = heads.map(({ stats }) => valueOf(stats, name)).filter((v) => v !== undefined);
    return values.length > 0 ? [Math.min(...values), Math.max(...values)] : [0, 0];
}

/**
 * A map [rows, columns] pooled to at most [R, C]: cell (r, c) covers rows floor(r rows / R) to
 * ceil((r + 1) rows / R) - 1, and columns likewise.
 * @param {Float32Array} values
 * @param {"max"|"mean"} type
 * @returns {{values: Float32Array, rows: number, columns: number}}
 */
export function pooled(values, rows, columns, [most_rows, most_columns], type = "max") {
    const R = Math.min(most_rows, rows),
        C = Math.min(most_columns, columns),
        made = new Float32Array(R * C);
    if (R === rows && C === columns) return { values, rows, columns };
    const block = (i, of, size) => [Math.floor((i * size) / of), Math.ceil(((i + 1) * size) / of)];
    for (let r = 0; r < R; r++)
        for (let c = 0; c < C; c++) {
            const [top, bottom] = block(r, R, rows),
                [left, right] = block(c, C, columns);
            let largest = -Infinity,
                sum = 0;
            for (let i = top; i < bottom; i++)
                for (let j = left; j < right; j++) {
                    const value = values[i * columns + j];
                    sum += value;
                    if (value > largest) largest = value;
                }
            made[r * C + c] = type === "max" ? largest : sum / ((bottom - top) * (right - left));
        }
    return { values: made, rows: R, columns: C };
}
