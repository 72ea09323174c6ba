/**
 * axes.js: labels along the sides of a map: which are drawn, and how much of each.
 *
 * Labels are thinned to round steps so that they never overlap, and cut with an ellipsis where they
 * are longer than their place. The module needs no page: Node can import it.
 */

/** @returns {string} a token as it can be seen: blanks, ends of lines and bytes have marks */
export function shownText(text) {
    return text
        .replace(/^[ \u0120\u2581]+|^ +| +$/g, (blanks) => "\u00b7".repeat(blanks.length))
        .replace(/[\n\u010a]/g, "\u23ce")
        .replace(/\t/g, "\u21e5")
        .replace(/[\u0000-\u001f\u007f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
}

/** @returns {string} the label of place `index`: its text, or its position where it has none */
export function labelOf(texts, index, offset = 0) {
    const text = texts?.[index];
    return text ? shownText(text) : String(index + offset);
}

/**
 * @param {string} text
 * @param {number} width that the text may have
 * @param {(text: string) => number} measure
 * @returns {string} text, or its begin and an ellipsis
 */
export function fitted(text, width, measure) {
    if (measure(text) <= width) return text;
    const letters = [...text];
    let low = 0;
    let high = letters.length - 1;
    while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (measure(`${letters.slice(0, middle).join("")}…`) <= width) low = middle;
        else high = middle - 1;
    }
    return `${letters.slice(0, low).join("")}…`;
}

/** @returns {number} 1, 2, 5, 10, 20, 50, ...: places between labels that need `spacing` each */
export function labelStep(placeSize, spacing) {
    for (let power = 1; ; power *= 10)
        for (const round of [1, 2, 5])
            if (round * power * placeSize >= spacing) return round * power;
}

/**
 * Which labels are drawn of the places [begin, end), which may be fractions.
 * @param {number} placeSize pixels of a place
 * @param {number} spacing pixels that a label needs
 * @param {number} count of all places
 * @returns {number[]}
 */
export function labelPlaces(begin, end, placeSize, spacing, count) {
    const step = labelStep(placeSize, spacing);
    const places = [];
    const last = Math.min(count, Math.ceil(end));
    for (let i = Math.ceil(Math.floor(begin) / step) * step; i < last; i += step)
        if (i + 0.5 >= begin && i + 0.5 <= end) places.push(i);
    return places;
}

/**
 * Leaves out labels that touch one before them in the list.
 * @template {{at: number}} Label
 * @param {Label[]} labels at: the middle of each, in pixels
 * @param {number} spacing pixels between two middles
 */
export function apart(labels, spacing) {
    const kept = [];
    for (const label of labels)
        if (kept.every((other) => Math.abs(other.at - label.at) >= spacing)) kept.push(label);
    return kept;
}

/**
 * The largest of `values` under each of `pixels` columns of a strip that shows [begin, end).
 * @param {ArrayLike<number>} values of equal parts of [0, count)
 * @returns {Float32Array} not a number where the strip goes beyond the values
 */
export function profileOf(values, count, begin, end, pixels) {
    const perPart = values.length / count;
    return Float32Array.from({ length: pixels }, (_, x) => {
        const from = Math.floor((begin + ((end - begin) * x) / pixels) * perPart);
        const to = Math.max(
            from + 1,
            Math.ceil((begin + ((end - begin) * (x + 1)) / pixels) * perPart - 1e-9),
        );
        let most = NaN;
        for (let i = Math.max(0, from); i < Math.min(values.length, to); i++)
            if (!(values[i] <= most) && values[i] > -Infinity) most = values[i];
        return most;
    });
}

/** @returns {[number, number]} the places around `centre`, `most` of `count` */
export function around(centre, count, most = 64) {
    const begin = Math.max(0, Math.min(count - most, centre - (most >> 1)));
    return [begin, Math.min(count, begin + most)];
}
