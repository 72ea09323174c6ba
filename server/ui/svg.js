/**
 * svg.js: pictures as SVG: trees of elements, the legend of a scale, a map for a paper.
 *
 * A tree is written out as a file (textOf) or made into elements of the page (elementOf). A file
 * has generic fonts, text as text, no script and no reference to anything outside. All but
 * elementOf works without a page: Node can import the module.
 */
import { fitted, labelPlaces } from "./axes.js";
import { hexOf, inkOn, rgbOf } from "./colors.js";
import { fittedNumber, tickText } from "./dom.js";

export const MOST_CELLS = 200; // rows or columns that are drawn as rectangles

/** A node of a tree: svg("rect", { x: 1 }), svg("text", {}, "cat"). */
export function svg(name, attributes = {}, ...children) {
    return { name, attributes, children: children.flat().filter((child) => child !== null) };
}

const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** @returns {string} text as XML may hold it: escaped, without the characters that XML forbids */
export function escaped(text) {
    return String(text)
        .replace(/\p{Surrogate}/gu, "\ufffd")
        .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd")
        .replace(/[&<>"]/g, (letter) => ENTITIES[letter]);
}

const rounded = (value) => (typeof value === "number" ? Number(value.toFixed(2)) : value);

/** @returns {string} a tree as XML */
export function textOf(tree) {
    if (typeof tree === "string") return escaped(tree);
    const { name, attributes, children } = tree;
    const written = Object.entries(attributes)
        .map(([key, value]) => ` ${key}="${escaped(rounded(value))}"`)
        .join("");
    if (children.length === 0) return `<${name}${written}/>`;
    return `<${name}${written}>${children.map(textOf).join("")}</${name}>`;
}

/** @returns {SVGElement|Text} a tree as elements of the page */
export function elementOf(tree) {
    if (typeof tree === "string") return document.createTextNode(tree);
    const element = document.createElementNS("http://www.w3.org/2000/svg", tree.name);
    for (const [key, value] of Object.entries(tree.attributes))
        element.setAttribute(key, String(rounded(value)));
    element.append(...tree.children.map(elementOf));
    return element;
}

// ---- Legend -----------------------------------------------------------------------------------

const PARTS = 64;
const WIDTHS = { ".": 0.32, "−": 0.84, "+": 0.84, "∞": 0.84 }; // of DejaVu Sans, in font sizes

/** How wide a number is at most, in whichever sans-serif font: that of the widest usual one. */
const widthOf = (text, size) =>
    [...text].reduce((sum, letter) => sum + size * (WIDTHS[letter] ?? 0.64), 0);

/** Which ticks have their number: all, every second or every third one ..., so that none touches
 *  another: from the middle of a diverging scale, the end of a logarithmic one, else the begin. */
function toldTicks(places, { diverging, kind }) {
    const last = places.length - 1;
    const from = diverging ? Math.round(last / 2) : kind === "log" ? last : 0;
    for (let step = 1; ; step++) {
        const told = (i) => (i - from) % step === 0;
        const shown = places.filter((_, i) => told(i));
        const touches = ({ x, half }, i) =>
            i > 0 && x - half < shown[i - 1].x + shown[i - 1].half + 6;
        if (!shown.some(touches)) return told;
    }
}

/**
 * The legend of a scale: colours with ticks and their numbers, of size [width, 34].
 * @param {object} scale of colors.js
 * @param {string} ink of its text
 * @returns {object} a tree, a group
 */
export function legend(scale, colors, width, ink) {
    const begin = 14;
    const span = width - 2 * begin;
    const parts = Array.from({ length: PARTS }, (_, i) =>
        svg("rect", {
            x: begin + (span * i) / PARTS,
            y: 0,
            width: span / PARTS + 0.6,
            height: 12,
            fill: hexOf(colors, i / (PARTS - 1)),
        }),
    );
    const places = scale.ticks.map(({ unit, value }) => {
        const at = begin + span * unit;
        const text = tickText(value);
        const half = widthOf(text, 11) / 2;
        return { at, text, half, x: Math.max(half, Math.min(width - half, at)) }; // within the picture
    });
    const told = toldTicks(places, scale);
    const ticks = places.map(({ at, text, x }, i) => [
        svg("path", { d: `M${rounded(at)} 12v4`, stroke: ink }),
        told(i) ? svg("text", { x, y: 28, "text-anchor": "middle", fill: ink }, text) : null,
    ]);
    return svg(
        "g",
        { "font-family": "sans-serif", "font-size": 11 },
        parts,
        ticks.flat().filter(Boolean),
    );
}

// ---- A map for a paper ------------------------------------------------------------------------

const averageWidth = (text) => 6.2 * [...text].length; // of sans-serif at 11 units

function cellsOf({ picture, area, scale, colors }, size) {
    const cells = [];
    const measure = (text) => widthOf(text, 10);
    for (let row = area.row0; row < area.row1; row++)
        for (let column = area.column0; column < area.column1; column++) {
            const value = picture.valueAt(row, column);
            if (value === undefined || picture.isHidden(row, column)) continue;
            const x = (column - area.column0) * size;
            const y = (row - area.row0) * size;
            const fill = hexOf(colors, scale.unit(value));
            cells.push(svg("rect", { x, y, width: size, height: size, fill }));
            const number = size < 14 ? null : fittedNumber(value, size - 3, measure);
            if (number !== null)
                cells.push(
                    svg(
                        "text",
                        {
                            x: x + size / 2,
                            y: y + size / 2 + 3.5,
                            "text-anchor": "middle",
                            "font-size": 10,
                            fill: inkOn(rgbOf(colors, scale.unit(value))),
                        },
                        number,
                    ),
                );
        }
    return svg("g", { "shape-rendering": "crispEdges" }, cells);
}

function sideLabels({ picture, area }, size, left, top) {
    const labels = [];
    const room = { rows: left - 8, columns: top - 8 };
    for (const row of labelPlaces(area.row0, area.row1, size, 13, picture.rows))
        labels.push(
            svg(
                "text",
                { x: -6, y: (row - area.row0 + 0.5) * size + 4, "text-anchor": "end" },
                fitted(picture.rowLabel(row), room.rows, averageWidth),
            ),
        );
    for (const column of labelPlaces(area.column0, area.column1, size, 13, picture.columns)) {
        const x = (column - area.column0 + 0.5) * size + 4;
        labels.push(
            svg(
                "text",
                { transform: `translate(${rounded(x)} -6) rotate(-90)` },
                fitted(picture.columnLabel(column), room.columns, averageWidth),
            ),
        );
    }
    return svg("g", { fill: "#000000" }, labels);
}

/** What the sink takes of each row, right of the map. */
function sinkColumn({ picture, area, scale, colors }, size, x) {
    if (picture.sinks?.length !== picture.rows) return [];
    const cells = [svg("text", { transform: `translate(${x + 11} -6) rotate(-90)` }, "sink")];
    for (let row = area.row0; row < area.row1; row++) {
        const fill = hexOf(colors, scale.unit(picture.sinks[row]));
        cells.push(svg("rect", { x, y: (row - area.row0) * size, width: 14, height: size, fill }));
    }
    return cells;
}

const longest = (label, begin, end) => {
    let longest = 2;
    for (let i = begin; i < end; i++) longest = Math.max(longest, [...label(i)].length);
    return Math.min(110, 6.2 * longest + 12);
};

/** @returns {string[]} text as lines of a width, of at most `most` lines */
export function wrapped(text, width, measure, most = 4) {
    const lines = [""];
    for (const word of text.split(/ +/)) {
        const longer = lines.at(-1) === "" ? word : `${lines.at(-1)} ${word}`;
        if (measure(longer) <= width || lines.at(-1) === "") lines[lines.length - 1] = longer;
        else lines.push(word);
    }
    const shown = lines.slice(0, most);
    if (lines.length > most) shown.push(`${shown.pop()} …`);
    return shown.map((line) => fitted(line, width, measure));
}

/** Widths of a figure in a paper: of the file, and in units of 1/96 inch, so that text has 8 points. */
const PAPERS = { one: ["85mm", 321], two: ["178mm", 673] };

/** @returns {{width: string, height: string}} of a figure of so many units, on paper */
export function printedSize(paper, width, height) {
    const [printed] = PAPERS[paper] ?? PAPERS.two;
    return { width: printed, height: `${((parseFloat(printed) * height) / width).toFixed(1)}mm` };
}

/**
 * A map as an SVG file: with titles of its axes, and a caption.
 * @param {object} shown picture, area (whole numbers), scale, colors, title; caption: text below;
 *     paper: of PAPERS; data: text that the file carries along
 * @param {string} [image] data address of a picture of the cells, instead of rectangles
 * @returns {string}
 */
export function mapSvg(shown, image) {
    const { picture, area, scale, colors, title, caption = "", paper = "two", data } = shown;
    const [, width] = PAPERS[paper] ?? PAPERS.two;
    const rows = area.row1 - area.row0;
    const columns = area.column1 - area.column0;
    const left = longest((i) => picture.rowLabel(i), area.row0, area.row1) + 14;
    const top = longest((i) => picture.columnLabel(i), area.column0, area.column1) + 14;
    const room = width - left - 8 - (picture.sinks ? 26 : 0);
    const size = Math.max(0.5, Math.min(36, room / columns, 640 / rows));
    const across = columns * size;
    const down = rows * size;
    const sinks = sinkColumn(shown, size, across + 8);
    const lines = [title, ...caption.split("\n")].flatMap((text) =>
        text === "" ? [] : wrapped(text, width - 16, averageWidth),
    );
    const height = top + down + 50 + 14 * lines.length;
    const cells = image
        ? svg("image", { width: across, height: down, preserveAspectRatio: "none", href: image })
        : cellsOf(shown, size);
    const middle = { "text-anchor": "middle", "font-weight": "bold" };
    return `<?xml version="1.0" encoding="UTF-8"?>\n${textOf(
        svg(
            "svg",
            {
                xmlns: "http://www.w3.org/2000/svg",
                ...printedSize(paper, width, height),
                viewBox: `0 0 ${rounded(width)} ${rounded(height)}`,
                "font-family": "sans-serif",
                "font-size": 11,
            },
            svg("title", {}, title),
            data ? svg("metadata", {}, data) : null,
            svg("rect", { width, height, fill: "#ffffff" }),
            lines.map((line, i) =>
                svg("text", { x: 8, y: height - 8 - 14 * (lines.length - 1 - i) }, line),
            ),
            svg(
                "g",
                { transform: `translate(${rounded(left)} ${rounded(top)})` },
                svg("text", { x: across / 2, y: 12 - top, ...middle }, "key"),
                svg(
                    "text",
                    {
                        transform: `translate(${rounded(12 - left)} ${rounded(down / 2)}) rotate(-90)`,
                        ...middle,
                    },
                    "query",
                ),
                svg("rect", { width: across, height: down, fill: "#e4e4e4" }),
                cells,
                svg("rect", { width: across, height: down, fill: "none", stroke: "#808080" }),
                svg("g", { "shape-rendering": "crispEdges" }, sinks),
                sideLabels(shown, size, left - 14, top - 14),
                svg(
                    "g",
                    { transform: `translate(-14 ${rounded(down + 10)})` },
                    legend(scale, colors, Math.min(348, Math.max(200, across + 28)), "#000000"),
                ),
            ),
        ),
    )}\n`;
}
