/**
 * figure.js: all heads as one figure for a paper: the maps as they stand in the page, each with its
 * name, with titles of rows and columns and what the colours mean.
 *
 * A map is a picture of its cells in whole pixels, so that no program blurs them; all text is text.
 */
import { imageOf } from "./colors.js";
import { download } from "./dom.js";
import { pngOfSvg } from "./export.js";
import { InputError } from "./tensors.js";
import { legend, printedSize, svg, textOf, wrapped } from "./svg.js";

const SIDE = 96; // of a map, in units of the figure
const ACROSS = 12; // maps of a row, where rows are no layers
const CAPTION = 26; // two lines below a map
const LEFT = 64; // titles of rows
const TOP = 44; // the figure's title, and titles of columns
const PIXELS = 192; // of a map's side at least
const MOST = 4096; // heads

/** The cells of a map as a picture, in whole pixels. */
function pictureOf({ values, rows, columns }, scale, colors) {
    const cells = new OffscreenCanvas(columns, rows);
    cells.getContext("2d").putImageData(imageOf(values, rows, columns, scale, colors), 0, 0);
    const fine = Math.ceil(PIXELS / Math.max(rows, columns));
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width: fine * columns, height: fine * rows });
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(cells, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL("image/png");
}

/** One map with its name, and what else is said of it, below. */
function cellOf({ map, name, note, scale }, colors, x, y) {
    const longer = Math.max(map.rows, map.columns);
    const [width, height] = [(SIDE * map.columns) / longer, (SIDE * map.rows) / longer];
    const at = { x: x + (SIDE - width) / 2, y: y + (SIDE - height) / 2, width, height };
    const text = (line, words) =>
        svg("text", { x: x + SIDE / 2, y: y + SIDE + line, "text-anchor": "middle" }, words);
    return svg("g", {}, [
        svg("image", { ...at, href: pictureOf(map, scale, colors), preserveAspectRatio: "none" }),
        svg("rect", { ...at, fill: "none", stroke: "#808080", "stroke-width": 0.5 }),
        text(10, name),
        text(20, note),
    ]);
}

/**
 * @param {{title: string, note: string, caption: string, columns: string[], colors: string,
 *     paper: string,
 *     rows: Array<{name: string, cells: object[]}>}} figure
 *     a cell: {map: {values, rows, columns}, name, note, scale}; columns: their titles, or none
 * @returns {string} an SVG file
 */
export function figureSvg({ title, note, caption = "", columns, colors, rows, paper }) {
    const across = Math.max(...rows.map(({ cells }) => cells.length));
    const width = Math.max(480, LEFT + across * (SIDE + 8) + 8);
    const down = SIDE + CAPTION;
    const lines = wrapped(caption, width - LEFT - 8, (text) => 5.2 * [...text].length);
    const height = TOP + rows.length * down + 60 + 12 * lines.length;
    const middle = (i) => LEFT + i * (SIDE + 8) + SIDE / 2;
    const foot = TOP + rows.length * down + 8;
    const tree = svg(
        "svg",
        {
            xmlns: "http://www.w3.org/2000/svg",
            ...printedSize(paper, width, height),
            viewBox: `0 0 ${width} ${height}`,
            "font-family": "sans-serif",
            "font-size": 9,
        },
        svg("title", {}, title),
        svg("rect", { width, height, fill: "#ffffff" }),
        svg("text", { x: 8, y: 16, "font-size": 12 }, title),
        columns.map((name, i) =>
            svg("text", { x: middle(i), y: TOP - 6, "text-anchor": "middle" }, name),
        ),
        rows
            .map(({ name, cells }, r) => [
                svg("text", { x: 8, y: TOP + r * down + SIDE / 2 }, name),
                ...cells.map((cell, i) =>
                    cellOf(cell, colors, middle(i) - SIDE / 2, TOP + r * down),
                ),
            ])
            .flat(),
        svg(
            "g",
            { transform: `translate(${LEFT - 14} ${foot})` },
            legend({ ticks: [] }, colors, 228, "#000000"),
        ), // each map has marks of its own
        svg("text", { x: LEFT, y: foot + 26 }, note),
        lines.map((line, i) => svg("text", { x: LEFT, y: foot + 38 + 12 * i }, line)),
    );
    return `<?xml version="1.0" encoding="UTF-8"?>\n${textOf(tree)}\n`;
}

/**
 * Offers the figure as a file.
 * @param {"png"|"svg"} form @param {object} figure of figureSvg; `rows` of any length where there
 *     are no `columns`
 */
export async function downloadFigure(form, figure) {
    const cells = figure.rows.flatMap((row) => row.cells);
    if (cells.length === 0 || cells.some(({ map }) => !map.values))
        throw new InputError("Not all maps are there yet: wait for them");
    if (cells.length > MOST)
        throw new InputError(`A figure has ${MOST} heads at most: name fewer layers`);
    const rows =
        figure.columns.length > 0
            ? figure.rows
            : Array.from({ length: Math.ceil(cells.length / ACROSS) }, (_, r) => ({
                  name: "",
                  cells: cells.slice(r * ACROSS, (r + 1) * ACROSS),
              }));
    const text = figureSvg({ ...figure, rows });
    if (form === "svg") download("heads.svg", text, "image/svg+xml");
    else download("heads.png", await pngOfSvg(text), "image/png");
}
