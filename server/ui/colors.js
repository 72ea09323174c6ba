/**
 * colors.js: numbers as colours: colour maps, scales, and cells painted with both.
 *
 * A colour map is a path through Oklab, whose lightness moves in equal steps, so that equal
 * differences of numbers look equal, also to eyes that do not tell red from green. A scale takes a
 * number to [0, 1]: sequential for weights, diverging around 0 for scores. Minus infinity is a cell
 * that cannot be attended: no colour at all. The module needs no page: Node can import it.
 */
import { tickText } from "./dom.js";

const STEPS = 256;

/** Paths: anchors [lightness, chroma, hue in degrees] at equal distances. */
const MAPS = {
    violet: {
        title: "violet to yellow",
        path: [
            [0.24, 0.09, 305],
            [0.41, 0.12, 277],
            [0.58, 0.095, 215],
            [0.75, 0.15, 155],
            [0.92, 0.18, 108],
        ],
    },
    cividis: {
        title: "blue to yellow",
        path: [
            [0.26, 0.08, 262],
            [0.425, 0.045, 266],
            [0.59, 0.0, 266],
            [0.59, 0.0, 100],
            [0.755, 0.075, 98],
            [0.92, 0.15, 101],
        ],
        at: [0, 0.25, 0.5, 0.5, 0.75, 1],
    },
    paper: {
        title: "white to blue (print)",
        path: [
            [0.99, 0.0, 240],
            [0.8, 0.09, 240],
            [0.6, 0.14, 252],
            [0.42, 0.14, 262],
            [0.25, 0.09, 268],
        ],
    },
    grey: {
        title: "white to black (print)",
        path: [
            [1, 0.0, 0],
            [0.15, 0.0, 0],
        ],
    },
    bluered: {
        title: "blue, white, red",
        diverging: true,
        path: [
            [0.36, 0.13, 258],
            [0.66, 0.12, 250],
            [0.96, 0.0, 250],
            [0.96, 0.0, 40],
            [0.66, 0.14, 40],
            [0.36, 0.13, 28],
        ],
        at: [0, 0.25, 0.5, 0.5, 0.75, 1],
    },
    bluegold: {
        title: "blue, black, gold",
        diverging: true,
        path: [
            [0.86, 0.09, 215],
            [0.54, 0.12, 245],
            [0.2, 0.0, 245],
            [0.2, 0.0, 80],
            [0.54, 0.11, 72],
            [0.86, 0.15, 88],
        ],
        at: [0, 0.25, 0.5, 0.5, 0.75, 1],
    },
};

/** @returns {Array<[string, string]>} names and titles of the maps of that kind */
export function mapsOf(diverging) {
    return Object.entries(MAPS)
        .filter(([, map]) => Boolean(map.diverging) === diverging)
        .map(([name, map]) => [name, map.title]);
}

/** @returns {string} `name` where it is a map of that kind, else the kind's first */
export function mapNamed(name, diverging) {
    const names = mapsOf(diverging).map(([known]) => known);
    return names.includes(name) ? name : names[0];
}

function srgbOf([lightness, chroma, hue]) {
    const a = chroma * Math.cos((hue * Math.PI) / 180);
    const b = chroma * Math.sin((hue * Math.PI) / 180);
    const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
    const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
    const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
    return [
        4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
        -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
        -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
    ].map((light) => {
        const x = Math.min(1, Math.max(0, light));
        return Math.round(255 * (x <= 0.0031308 ? 12.92 * x : 1.055 * x ** (1 / 2.4) - 0.055));
    });
}

function colorAt({ path, at }, unit) {
    const place = at ?? path.map((_, i) => i / (path.length - 1));
    let i = 0;
    while (i < path.length - 2 && unit > place[i + 1]) i++;
    const share = place[i + 1] > place[i] ? (unit - place[i]) / (place[i + 1] - place[i]) : 0;
    return srgbOf(path[i].map((begin, part) => begin + share * (path[i + 1][part] - begin)));
}

const tables = new Map();

/** @returns {Array<[number, number, number]>} the 256 colours of a map */
export function tableOf(name) {
    if (!tables.has(name))
        tables.set(
            name,
            Array.from({ length: STEPS }, (_, i) => colorAt(MAPS[name], i / (STEPS - 1))),
        );
    return tables.get(name);
}

const indexOf = (unit) => (unit >= 1 ? STEPS - 1 : Math.floor(unit * STEPS));

/** @returns {[number, number, number]} the colour of `unit` in [0, 1], each part 0 to 255 */
export function rgbOf(name, unit) {
    return tableOf(name)[indexOf(Math.max(0, unit))];
}

/** @returns {string} the same as CSS and SVG write it: "#3b528b" */
export function hexOf(name, unit) {
    return `#${rgbOf(name, unit)
        .map((part) => part.toString(16).padStart(2, "0"))
        .join("")}`;
}

/** @returns {string} black or white, whichever reads better on that colour */
export function inkOn([red, green, blue]) {
    const linear = (part) => (part / 255) ** 2.2;
    const light = 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
    return light > 0.179 ? "#000000" : "#ffffff";
}

// ---- Scales -----------------------------------------------------------------------------------

/** @returns {number} the largest finite magnitude, 0 where there is none */
export function largestOf(values) {
    let largest = 0;
    for (let i = 0; i < values.length; i++) {
        const size = Math.abs(values[i]);
        if (size > largest && size < Infinity) largest = size;
    }
    return largest;
}

const QUANTILES = 2048;

/** Quantiles of the magnitudes of at most 65536 finite cells at equal distances, in order. */
function sampleOf(values) {
    const step = Math.max(1, Math.ceil(values.length / 65536));
    const sample = new Float32Array(Math.ceil(values.length / step));
    let count = 0;
    for (let i = 0; i < values.length; i += step)
        if (Number.isFinite(values[i])) sample[count++] = Math.abs(values[i]);
    const sorted = sample.subarray(0, count).sort();
    if (count <= QUANTILES) return sorted;
    return Float32Array.from(
        { length: QUANTILES },
        (_, i) => sorted[Math.round((i / (QUANTILES - 1)) * (count - 1))],
    );
}

/** The share of a sorted sample that is below `size`, ties counting half. */
function rankIn(sample, size) {
    const bound = (above) => {
        let low = 0;
        let high = sample.length;
        while (low < high) {
            const middle = (low + high) >> 1;
            if (sample[middle] < size || (above && sample[middle] === size)) low = middle + 1;
            else high = middle;
        }
        return low;
    };
    const begin = bound(false);
    const end = sample[begin] === size ? bound(true) : begin;
    return sample.length > 0 ? (begin + end) / 2 / sample.length : 0;
}

const OUTLIER = 4; // times the usual end of a linear scale: such cells do not decide it

/** What 999 of 1000 cells of a large map do not exceed; of a small one, or one of zeros, all. */
function usualEnd(values) {
    const sample = sampleOf(values);
    const usual = sample[Math.round(0.999 * (sample.length - 1))];
    return sample.length === QUANTILES && usual > 0 ? usual : largestOf(values);
}

const DECADES = { false: 5, true: 3 }; // shown by a logarithmic scale, by diverging

/** Each kind: of magnitudes, to [0, 1], with the magnitudes at which a legend has marks. */
const KINDS = {
    linear: ({ high }) => ({
        unit: (size) => size / high,
        marks: evenTicks(0, high, 4),
        note: "",
    }),
    log: ({ high, diverging }) => {
        const last = Math.ceil(Math.log10(high) - 1e-6);
        const floor = Number(`1e${last - DECADES[diverging]}`);
        const span = Math.log(high / floor);
        const marks = [];
        for (let i = last - DECADES[diverging]; i <= last; i++) marks.push(Number(`1e${i}`));
        return {
            unit: (size) => (size <= floor ? 0 : Math.log(size / floor) / span),
            marks: marks.filter((mark) => mark <= high * (1 + 1e-6)),
            floor,
            note: `${tickText(floor)} and less in one colour`,
        };
    },
    rank: ({ values }) => {
        const sample = sampleOf(values);
        const at = (share) => sample[Math.round(share * (sample.length - 1))] ?? 0;
        return {
            unit: (size) => rankIn(sample, size),
            marks: [0, 0.25, 0.5, 0.75, 1].map(at),
            note: "marks at each quarter of the cells",
        };
    },
};

/**
 * A scale of `values`.
 * @param {string} kind linear, log, rank
 * @param {ArrayLike<number>} values minus infinity where a cell cannot be attended
 * @param {{diverging?: boolean, high?: number}} [how] high: the end of the scale, instead of the
 *     largest magnitude of values; without it a few cells that are far larger than all others do
 *     not decide the end of a linear sequential scale (`clipped`)
 * @returns {{kind: string, diverging: boolean, high: number, floor?: number, note: string,
 *     clipped: boolean,
 *     unit: (value: number) => number, ticks: Array<{unit: number, value: number}>}}
 */
export function scaleOf(kind, values, { diverging = false, high } = {}) {
    const largest = high ?? largestOf(values);
    const usual = kind === "linear" && !diverging && !high ? usualEnd(values) : largest;
    const clipped = largest > OUTLIER * usual;
    const end = clipped ? usual : largest;
    const { unit, marks, floor, note } = (KINDS[kind] ?? KINDS.linear)({
        values,
        diverging,
        high: end > 0 ? end : 1,
    });
    const of = diverging
        ? (value) => 0.5 + 0.5 * Math.sign(value) * Math.min(1, unit(Math.abs(value)))
        : (value) => Math.min(1, Math.max(0, unit(value)));
    const upper = marks.slice(1); // the first is the middle of a diverging scale
    const signed = diverging ? [...upper.map((mark) => -mark).reverse(), 0, ...upper] : marks;
    const ticks = signed.map((value, i) => ({
        value,
        unit: kind === "rank" && !diverging ? i / (marks.length - 1) : of(value),
    }));
    return {
        kind,
        diverging,
        high: end > 0 ? end : 1,
        floor,
        note: clipped ? "larger ones in its last colour" : note,
        clipped,
        unit: of,
        ticks: ticks.filter((tick, i) => i === 0 || tick.value !== ticks[i - 1].value),
    };
}

/** @returns {number[]} round numbers from low to high, about `count` steps of them */
export function evenTicks(low, high, count) {
    const rough = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((round) => round * power >= rough * 0.75);
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-9); i++)
        ticks.push(Number((i * step).toPrecision(12)));
    return ticks;
}

// ---- Painting ---------------------------------------------------------------------------------

/**
 * The pixels of cells, one each.
 * @param {ArrayLike<number>} values minus infinity: transparent
 * @returns {Uint8ClampedArray<ArrayBuffer>} red, green, blue, alpha of each
 */
export function paint(values, scale, name) {
    const table = Uint32Array.from(
        tableOf(name),
        ([red, green, blue]) => new Uint32Array(Uint8Array.of(red, green, blue, 255).buffer)[0],
    );
    const pixels = new Uint32Array(values.length);
    const { unit } = scale;
    for (let i = 0; i < values.length; i++) {
        const value = values[i];
        if (value !== -Infinity) pixels[i] = table[indexOf(unit(value))];
    }
    return new Uint8ClampedArray(pixels.buffer);
}

/** @returns {ImageData} cells [rows, columns] as a picture of one pixel each */
export function imageOf(values, rows, columns, scale, name) {
    return new ImageData(paint(values, scale, name), columns, rows);
}
