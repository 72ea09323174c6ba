/**
 * export.js: what is seen, as a file or a text that makes it again.
 *
 * PNG and SVG are the map as it is shown; CSV and .npy its exact numbers, of the area that is
 * shown; curl and Python the request itself; the link has all settings. Formats are in formats.js
 * and svg.js.
 */
import { apiKey, base } from "./client.js";
import { set, settings } from "./address.js";
import { shownText } from "./axes.js";
import { download, el, labelled, numberText, select } from "./dom.js";
import { FONT, drawMap } from "./drawing.js";
import { numbersOf } from "./files.js";
import { csvOf, curlOf, jsonOf, npyOf, pythonOf } from "./formats.js";
import { mapFields, tensorOf } from "./picture.js";
import { announce, run, showError } from "./status.js";
import { MOST_CELLS, legend, mapSvg, textOf, wrapped } from "./svg.js";

const MOST_INLINE = 16000; // characters of a body within a command
const MOST_CSV = 4e6; // cells
const MOST_NPY = 2 ** 25;
const MOST_SIDE = 16000; // pixels of a canvas
const PORTION = 2e6; // cells of a reply
const BODY_FILE = "attnd-request.json";

/** The whole cells that are shown. */
function wholeArea({ area, picture }) {
    return {
        row0: Math.floor(area.row0),
        row1: Math.min(picture.rows, Math.ceil(area.row1)),
        column0: Math.floor(area.column0),
        column1: Math.min(picture.columns, Math.ceil(area.column1)),
    };
}

const sizeOf = ({ row0, row1, column0, column1 }) => [row1 - row0, column1 - column0];

/** Exact numbers of the area that is shown; fetched in portions where they are not there. */
async function numbersOfArea(panel, most) {
    const { what, picture } = panel;
    const area = wholeArea(panel.map);
    const [rows, columns] = sizeOf(area);
    if (rows * columns > most)
        throw new Error(`${rows} × ${columns} numbers are too many for this file: zoom in first`);
    const values = new Float32Array(rows * columns);
    const ask = (list, signal) =>
        what.source.call(
            what.layer,
            {
                ...what.fields,
                ...mapFields(what.kind, what.stage, what.head),
                rows: list,
                plain: true,
            },
            signal,
        );
    const portion = Math.max(1, Math.floor(PORTION / picture.columns));
    const done = await run("export", "Exact numbers", async (signal, progress) => {
        for (let begin = 0; begin < rows; begin += portion) {
            const list = Array.from(
                { length: Math.min(portion, rows - begin) },
                (_, i) => area.row0 + begin + i,
            );
            const missing = list.some((row) => picture.valueAt(row, area.column0) === undefined);
            const { data } = missing ? tensorOf(await ask(list, signal), what.kind) : {};
            list.forEach((row, i) => {
                for (let c = 0; c < columns; c++)
                    values[(begin + i) * columns + c] = data
                        ? data[i * picture.columns + area.column0 + c]
                        : picture.valueAt(row, area.column0 + c);
            });
            progress(begin + list.length, rows);
        }
        return true;
    });
    return done ? { area, rows, columns, values } : null;
}

function nameOf({ what }, end) {
    const stage = what.kind === "scores" ? `-${what.stage}` : "";
    const { way } = what.source;
    const place = way ? `${way}-layer${what.layer}` : `layer${what.layer}-head${what.head}`;
    return `${place}-${what.kind}${stage}.${end}`;
}

function titleOf({ what }) {
    const kind = what.kind === "scores" ? `scores (${what.stage})` : "attention weights";
    const { model, title } = what.source;
    const name = what.source.headName(what.layer, what.head);
    return `${model.name} ${name.toLowerCase()}: ${kind}; ${title}`;
}

/** What stands below a figure: what colours and shades mean, what is changed, and the tokens. */
function captionOf({ picture, looks, parts: { layer } }) {
    const { scale } = looks;
    const pattern = picture.pattern ? `Pattern: ${picture.pattern}. ` : "";
    const note = scale.note ? `, ${scale.note}` : "";
    const changed = layer.modified.hidden ? "" : ` ${layer.modified.textContent}.`;
    const hidden = picture.hides && picture.masked ? " Grey or hatched: cannot be attended." : "";
    const tokens = (labels) => labels.map(shownText).join(" ");
    const { queryLabels, keyLabels } = picture.source;
    const texts = [...new Set([tokens(queryLabels), tokens(keyLabels)])];
    const colours = `Colours: ${scale.kind} to ${numberText(scale.high, 3)}${note}.`;
    return [
        `${pattern}${colours}${hidden}${changed}`,
        ...texts.map((text) => (text.trim() ? `Tokens: ${text}` : "")),
    ].join("\n");
}

// ---- Pictures ---------------------------------------------------------------------------------

/** A map as it is seen, `ratio` times as fine, without what is only pointed at. */
function mapCanvas(map, foot, ratio) {
    const canvas = document.createElement("canvas");
    canvas.width = ratio * map.size.width;
    canvas.height = ratio * (map.size.height + foot);
    const context = canvas.getContext("2d");
    context.fillStyle = inkOf("--panel", "#ffffff");
    context.fillRect(0, 0, canvas.width, canvas.height);
    const twin = Object.create(map, {
        canvas: { value: canvas },
        ratio: { value: ratio },
        hovered: { value: null },
        styled: { value: paper },
    });
    drawMap(twin);
    return { canvas, context };
}

const paper = el("div", { class: "paper", hidden: true }); // has the colours of the light theme
document.body.append(paper);

const inkOf = (name, otherwise) =>
    getComputedStyle(paper).getPropertyValue(name).trim() || otherwise;

const blobOf = (canvas) => new Promise((resolve) => canvas.toBlob(resolve, "image/png"));

/** What is seen, twice as fine: the map with title and legend, three maps, or lines. */
async function pngOf(panel) {
    const { map, looks } = panel;
    const { view } = settings();
    if (view === "lines") return pngOfSvg(await svgOf(panel));
    if (view === "compare" && panel.views.compare.pictures.length > 0)
        return pngOfMaps(panel.views.compare);
    if (view === "neurons") throw new Error("A picture is made of the map, lines or a comparison");
    const width = map.size.width - 16;
    const measured = document.createElement("canvas").getContext("2d");
    measured.font = FONT;
    const measure = (text) => measured.measureText(text).width;
    const lines = [titleOf(panel), ...captionOf(panel).split("\n")].flatMap((text) =>
        text === "" ? [] : wrapped(text, width, measure),
    );
    const { canvas, context } = mapCanvas(map, 48 + 16 * lines.length, 2);
    const ink = inkOf("--text", "#000000");
    context.font = FONT;
    context.textAlign = "left";
    context.textBaseline = "alphabetic";
    context.fillStyle = ink;
    lines.forEach((line, i) => context.fillText(line, 8, map.size.height + 16 * (i + 1), width));
    context.translate(8, map.size.height + 16 * lines.length + 10);
    drawTree(context, legend(looks.scale, looks.colors, Math.min(340, width), ink));
    return blobOf(canvas);
}

/** @returns {Promise<Blob>} an SVG file as a picture, twice as fine where a canvas can be so large */
export async function pngOfSvg(text) {
    const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    const image = new Image();
    image.src = url;
    await image.decode();
    URL.revokeObjectURL(url);
    const canvas = document.createElement("canvas");
    const [width, height] = /viewBox="0 0 ([\d.]+) ([\d.]+)"/.exec(text).slice(1).map(Number);
    const ratio = Math.min(2, MOST_SIDE / Math.max(width, height));
    canvas.width = Math.round(ratio * width);
    canvas.height = Math.round(ratio * height);
    const context = canvas.getContext("2d");
    context.fillStyle = "#ffffff";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return blobOf(canvas);
}

/** The two maps that are compared and their difference, side by side under their titles. */
function pngOfMaps({ maps, titles }) {
    const head = 24;
    const parts = maps.map((map) => mapCanvas(map, 0, 2).canvas);
    const canvas = document.createElement("canvas");
    canvas.width = parts.reduce((sum, part) => sum + part.width, 0);
    canvas.height = 2 * head + Math.max(...parts.map((part) => part.height));
    const context = canvas.getContext("2d");
    context.fillStyle = inkOf("--panel", "#ffffff");
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.fillStyle = inkOf("--text", "#000000");
    context.font = `24px ${FONT.split("px ")[1]}`;
    let x = 0;
    parts.forEach((part, i) => {
        context.fillText(titles[i].textContent, x + 16, 32, part.width - 32);
        context.drawImage(part, x, 2 * head);
        x += part.width;
    });
    return blobOf(canvas);
}

/** Draws the rectangles and texts of a tree of svg.js. */
function drawTree(context, { name, attributes, children }) {
    context.fillStyle = attributes.fill ?? context.fillStyle;
    if (name === "rect")
        context.fillRect(attributes.x, attributes.y, attributes.width, attributes.height);
    if (name === "text") {
        context.textAlign = attributes["text-anchor"] === "middle" ? "center" : "left";
        context.fillText(children[0], attributes.x, attributes.y);
    } else for (const child of children) drawTree(context, child);
}

/** The map for a paper: rectangles, or a picture where there are too many cells. */
async function svgOf(panel, data) {
    const { map, picture, looks } = panel;
    if (settings().view === "lines") {
        const tree = panel.views.lines.tree();
        tree.attributes.xmlns = "http://www.w3.org/2000/svg";
        tree.attributes.color = "#1f4e9c";
        return `${textOf(tree)}\n`;
    }
    const area = wholeArea(map);
    const shown = {
        picture,
        area,
        ...looks,
        title: titleOf(panel),
        caption: captionOf(panel),
        paper: settings().paper,
        data,
    };
    if (Math.max(...sizeOf(area)) <= MOST_CELLS) return mapSvg(shown);
    const level = map.bitmaps.at(1e9, 1e9); // the finest
    const [rows, columns] = sizeOf(area);
    const canvas = document.createElement("canvas");
    const perColumn = level.columns / picture.columns;
    const perRow = level.rows / picture.rows;
    canvas.width = Math.max(1, Math.round(columns * perColumn));
    canvas.height = Math.max(1, Math.round(rows * perRow));
    const [x, y] = [area.column0 * perColumn, area.row0 * perRow];
    const [across, down] = [columns * perColumn, rows * perRow];
    const context = canvas.getContext("2d");
    context.drawImage(level.bitmap, x, y, across, down, 0, 0, canvas.width, canvas.height);
    return mapSvg(shown, canvas.toDataURL("image/png"));
}

// ---- Requests ---------------------------------------------------------------------------------

/** The request whose reply is the map that is shown, with its tensors as float32. */
async function requestOf({ what, picture }) {
    const fields = { ...what.fields, ...mapFields(what.kind, what.stage, what.head), plain: true };
    if (!picture.whole) fields.pool = [picture.map.rows, picture.map.columns];
    const asked = await what.source.request(what.layer, fields);
    const sent = Object.entries(asked.fields).map(([name, value]) => {
        if (!ArrayBuffer.isView(value?.data)) return [name, value];
        return [name, { data: numbersOf(value), shape: value.shape }];
    });
    return { base: base.slice(0, -1), path: asked.path, fields: Object.fromEntries(sent) };
}

/** What a copied address is, and what it does not carry. */
function linkText() {
    const now = settings();
    const files = ["capture_file", "rows_file", "encoder_file", "weights_file"].map(
        (name) => now[name],
    );
    const missing = files.filter((name) => name !== "").join(" and ");
    return missing ? `the address; whoever opens it chooses ${missing} there` : "the address";
}

/** Shows a text, and puts it on the clipboard where the page may. */
async function offer(bar, text, what) {
    bar.text.value = text;
    bar.text.hidden = false;
    try {
        await navigator.clipboard.writeText(text);
        bar.note.textContent = `Copied: ${what}.`;
    } catch {
        bar.note.textContent = `Copy the text below: ${what}.`;
        bar.text.select();
    }
    announce(bar.note.textContent);
}

async function offerRequest(bar, panel, writer, what) {
    const request = { ...(await requestOf(panel)), keyed: Boolean(apiKey()) };
    const size = Object.values(request.fields).reduce(
        (sum, value) => sum + (value?.data?.length ?? 0),
        0,
    );
    const body = size * 4 > MOST_INLINE ? null : jsonOf(request.fields);
    const file = body === null || body.length > MOST_INLINE ? BODY_FILE : null;
    if (file) download(file, jsonOf(request.fields), "application/json");
    const beside = file ? `, with ${file} (downloaded) beside it` : "";
    await offer(bar, writer({ ...request, file }), `${what}${beside}`);
}

/** The exact numbers of the area that is shown, as CSV with labels. */
async function csvText(panel) {
    const part = await numbersOfArea(panel, MOST_CSV);
    if (!part) return null;
    const { picture } = panel;
    const labels = (count, label, begin) =>
        Array.from({ length: count }, (_, i) => label(begin + i));
    const rows = labels(part.rows, (row) => picture.rowLabel(row), part.area.row0);
    const columns = labels(part.columns, (at) => picture.columnLabel(at), part.area.column0);
    return csvOf(rows, columns, part.values);
}

// ---- The bar ----------------------------------------------------------------------------------

/** @type {Object<string, [string, Function]>} text and action of each button */
const ACTIONS = {
    png: ["PNG", async (panel) => download(nameOf(panel, "png"), await pngOf(panel), "image/png")],
    svg: [
        "SVG",
        async (panel) => download(nameOf(panel, "svg"), await svgOf(panel), "image/svg+xml"),
    ],
    csv: [
        "CSV",
        async (panel) => {
            const text = await csvText(panel);
            if (text) download(nameOf(panel, "csv"), text, "text/csv");
        },
    ],
    npy: [
        ".npy",
        async (panel) => {
            const part = await numbersOfArea(panel, MOST_NPY);
            if (!part) return;
            const bytes = npyOf(part.values, [part.rows, part.columns]);
            download(nameOf(panel, "npy"), bytes, "application/octet-stream");
        },
    ],
    curl: ["curl", (panel, bar) => offerRequest(bar, panel, curlOf, "a curl command")],
    python: ["Python", (panel, bar) => offerRequest(bar, panel, pythonOf, "a Python program")],
    bundle: [
        "figure with its data",
        async (panel, bar) => {
            const numbers = await csvText(panel);
            if (!numbers) return;
            const file = await svgOf(panel, `${location.href}\n\n${numbers}`);
            await offer(bar, file, "an SVG file that carries its numbers as CSV, and the address");
        },
    ],
    link: ["link", (panel, bar) => offer(bar, location.href, linkText())],
};

const FILES = ["png", "svg", "csv", "npy"]; // the rest is copied
const REQUESTS = ["curl", "python"]; // of weights that are in the page there is none

/** The buttons of all exports of a HeadPanel. */
export function exportBar(panel) {
    const bar = {
        note: el("span", { class: "muted", data: { testid: "export-note" } }),
        text: el("textarea", {
            class: "export-text",
            data: { testid: "export-text" },
            "aria-label": "Exported text",
            readonly: true,
            rows: 6,
            hidden: true,
            spellcheck: "false",
        }),
    };
    const buttons = Object.entries(ACTIONS).map(([name, [text, action]]) =>
        el(
            "button",
            {
                type: "button",
                "aria-label": FILES.includes(name) ? null : `Copy ${text}`,
                data: { testid: `export-${name}` },
                onclick: async () => {
                    bar.text.hidden = true;
                    bar.note.textContent = "";
                    if (!panel.picture) return;
                    try {
                        await action(panel, bar);
                    } catch (/** @type {any} */ error) {
                        showError("export", error);
                    }
                },
            },
            text,
        ),
    );
    const paperList = select(
        [
            ["one", "one column"],
            ["two", "two columns"],
        ],
        settings().paper,
        (value) => set({ paper: value }),
        { data: { testid: "paper" } },
    );
    bar.element = el("div", { class: "export" }, [
        el("h3", {}, "Export"),
        el(
            "div",
            { class: "toolbar", role: "group", "aria-label": "Export" },
            buttons.slice(0, FILES.length),
            labelled("SVG for", paperList),
        ),
        el(
            "div",
            { class: "toolbar", role: "group", "aria-label": "Copy" },
            el("span", { class: "muted" }, "Copy"),
            buttons.slice(FILES.length),
            bar.note,
        ),
        bar.text,
    ]);
    bar.show = (isLocal) =>
        Object.keys(ACTIONS).forEach((name, i) => {
            buttons[i].hidden = isLocal && REQUESTS.includes(name);
        });
    return bar;
}
