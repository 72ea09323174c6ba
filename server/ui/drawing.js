/**
 * drawing.js: one frame of a map: cells, labels, profiles, sinks, the selected row and column.
 *
 * All that is drawn comes from the state of a Heatmap (heatmap.js); nothing is kept here but the
 * pattern of cells that cannot be attended.
 */
import { apart, fitted, labelPlaces, profileOf } from "./axes.js";
import { hexOf, inkOn, rgbOf } from "./colors.js";
import { fittedNumber, numberText } from "./dom.js";

export const FONT = "12px system-ui, sans-serif";
export const STRIP = 28; // of a profile
export const GAP = 8;
const SMALL = "11px system-ui, sans-serif";
const SPACING = 15; // of labels
const LEAST = 0.0005; // share of a linear scale below which numbers are faint
const CLOSE = 10; // of labels in SMALL, where each place then has one

/** The colours of the page. */
function inksOf({ canvas, styled }) {
    const style = getComputedStyle(styled ?? canvas);
    const ink = (name, otherwise) => style.getPropertyValue(name).trim() || otherwise;
    return {
        panel: ink("--panel", "#ffffff"),
        text: ink("--text", "#1a1a1a"),
        muted: ink("--muted", "#5a5a5a"),
        line: ink("--line", "#c8c8c8"),
        accent: ink("--accent", "#1d5fa8"),
        cross: ink("--focus", "#b45309"),
    };
}

/** What stands for cells that cannot be attended: diagonal lines on `ground`, or on their colours. */
function hatching(context, ink, ground) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const lines = tile.getContext("2d");
    if (ground) {
        lines.fillStyle = ground;
        lines.fillRect(0, 0, 8, 8);
    }
    lines.strokeStyle = ink;
    lines.lineWidth = 1.2;
    for (const x of [-8, 0, 8]) {
        lines.moveTo(x - 1, 9);
        lines.lineTo(x + 9, -1);
    }
    lines.stroke();
    return context.createPattern(tile, "repeat");
}

/** Draws the part of a grid [row0, row0 + rows) x [column0, ...) of the map that is shown. */
function drawGrid(map, context, bitmaps, place) {
    const { area, cell, plot } = map;
    const rowsEach = place.rows / place.gridRows; // of the map in a cell of the grid
    const columnsEach = place.columns / place.gridColumns;
    const level = bitmaps.at(cell.width * columnsEach, cell.height * rowsEach);
    const row0 = Math.max(area.row0, place.row0);
    const row1 = Math.min(area.row1, place.row0 + place.rows);
    const column0 = Math.max(area.column0, place.column0);
    const column1 = Math.min(area.column1, place.column0 + place.columns);
    if (row1 <= row0 || column1 <= column0) return;
    const down = rowsEach * level.down;
    const across = columnsEach * level.across;
    context.imageSmoothingEnabled = false;
    context.drawImage(
        level.bitmap,
        (column0 - place.column0) / across,
        (row0 - place.row0) / down,
        (column1 - column0) / across,
        (row1 - row0) / down,
        plot.x + (column0 - area.column0) * cell.width,
        plot.y + (row0 - area.row0) * cell.height,
        (column1 - column0) * cell.width,
        (row1 - row0) * cell.height,
    );
}

function drawCells(map, context, inks) {
    const { plot, picture, detail } = map;
    context.save();
    context.beginPath();
    context.rect(plot.x, plot.y, plot.width, plot.height);
    context.clip();
    const pattern = hatching(context, inks.line, inks.panel);
    const ground = (x, y, width, height) => {
        context.fillStyle = pattern;
        context.fillRect(x, y, width, height);
    };
    ground(plot.x, plot.y, plot.width, plot.height);
    const { map: grid } = picture;
    drawGrid(map, context, map.bitmaps, {
        row0: 0,
        column0: 0,
        rows: picture.rows,
        columns: picture.columns,
        gridRows: grid.rows,
        gridColumns: grid.columns,
    });
    if (detail && detail.of === picture.detail) {
        const { row0, rows } = detail.of;
        const columns = detail.end - detail.first;
        const width = columns * map.cell.width;
        ground(map.xOf(detail.first), map.yOf(row0), width, rows * map.cell.height);
        drawGrid(map, context, detail.bitmaps, {
            row0,
            column0: detail.first,
            rows,
            columns,
            gridRows: rows,
            gridColumns: columns,
        });
    }
    if (!picture.hides && picture.masked) drawUnattended(map, context, inks);
    drawNumbers(map, context);
    if (picture.columns > picture.keys) {
        context.fillStyle = inks.panel;
        context.fillRect(map.xOf(picture.keys) - 1.5, plot.y, 3, plot.height);
    }
    context.restore();
    context.strokeStyle = inks.line;
    context.strokeRect(plot.x - 0.5, plot.y - 0.5, plot.width + 1, plot.height + 1);
}

/** Lines over the scores of pairs that cannot be attended: those exist, and are not used. */
function drawUnattended(map, context, inks) {
    const { area, cell, picture } = map;
    const { first, end } = picture.spans;
    context.beginPath();
    for (let row = Math.floor(area.row0); row < Math.min(picture.rows, area.row1); row++)
        for (const [from, to] of [
            [0, first[row]],
            [end[row], picture.keys],
        ])
            if (to > from)
                context.rect(map.xOf(from), map.yOf(row), (to - from) * cell.width, cell.height);
    picture.padding?.forEach((real, column) => {
        if (!real) context.rect(map.xOf(column), map.plot.y, cell.width, map.plot.height);
    });
    context.fillStyle = hatching(context, inks.muted);
    context.fill();
}

/** The number of each cell that has room for it: no number leaves its cell or loses its exponent. */
export function drawNumbers(map, context) {
    const { area, cell, picture, scale, colors } = map;
    if (cell.width < 20 || cell.height < 15) return;
    context.font = SMALL;
    const widths = new Map([..."0123456789.e+−∞"].map((c) => [c, context.measureText(c).width]));
    const measure = (text) => [...text].reduce((sum, c) => sum + widths.get(c), 0);
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let row = Math.floor(area.row0); row < Math.min(picture.rows, area.row1); row++)
        for (let j = Math.floor(area.column0); j < Math.min(picture.columns, area.column1); j++) {
            const value = picture.valueAt(row, j);
            if (value === undefined || picture.isHidden(row, j)) continue;
            const text = fittedNumber(value, cell.width - 4, measure);
            if (text === null) continue;
            context.fillStyle = inkOn(rgbOf(colors, scale.unit(value)));
            context.globalAlpha =
                scale.kind === "linear" && Math.abs(value) < LEAST * scale.high ? 0.4 : 1;
            context.fillText(text, map.xOf(j + 0.5), map.yOf(row + 0.5));
        }
    context.globalAlpha = 1;
}

// ---- Labels -----------------------------------------------------------------------------------

/** Room of a label whose places have `size`: that of one place, where all have a label in SMALL. */
const spacingOf = (size) => (size >= CLOSE && size < SPACING ? size - 0.01 : SPACING);

/** The labels of one side, the one that is pointed at first, then appended columns. */
function labelsOf({ area, picture }, side, pointed) {
    const { begin, end, size, place, text, count, spacing } = side;
    const label = (index, weight) => ({ at: place(index + 0.5), text: text(index), weight });
    const regular = labelPlaces(begin, end, size, spacing, count).map((i) => label(i, "muted"));
    const extra = [];
    const appended = picture.columns - picture.keys;
    if (side.across && appended > 0 && picture.keys + 0.5 < area.column1) {
        if (size >= spacing || appended === 1)
            for (let i = picture.keys; i < picture.columns; i++) extra.push(label(i, "text"));
        else extra.push({ ...label(picture.keys, "text"), text: "appended" });
    }
    const there = pointed !== undefined && pointed + 1 > begin && pointed < end;
    const first = there ? [label(pointed, "bold")] : [];
    return apart([...first, ...extra, ...regular], spacing);
}

function rowLabels(map, context, inks) {
    const { area, cell, plot, picture, selected, hovered } = map;
    const side = {
        begin: area.row0,
        end: area.row1,
        size: cell.height,
        place: (row) => Math.min(plot.y + plot.height, Math.max(plot.y, map.yOf(row))),
        text: (row) => picture.rowLabel(row),
        count: picture.rows,
        spacing: spacingOf(cell.height),
    };
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const label of labelsOf(map, side, hovered?.row ?? selected?.row)) {
        inkOf(context, inks, label.weight, side.spacing);
        const measure = (text) => context.measureText(text).width;
        context.fillText(fitted(label.text, plot.x - GAP, measure), plot.x - GAP / 2, label.at);
    }
    context.font = FONT;
}

function inkOf(context, inks, weight, spacing) {
    const font = spacing < SPACING ? SMALL : FONT;
    context.font = weight === "bold" ? `bold ${font}` : font;
    context.fillStyle = weight === "muted" ? inks.muted : inks.text;
}

function columnLabels(map, context, inks) {
    const { area, cell, plot, picture, selected, hovered } = map;
    const flat = cell.width >= 46; // wide enough for text that is not turned
    const room = flat ? cell.width - 4 : plot.y - GAP;
    const side = {
        begin: area.column0,
        end: area.column1,
        size: cell.width,
        place: (column) => Math.min(plot.x + plot.width, Math.max(plot.x, map.xOf(column))),
        text: (column) => picture.columnLabel(column),
        count: picture.columns,
        spacing: flat ? cell.width - 1 : spacingOf(cell.width),
        across: true,
    };
    for (const label of labelsOf(map, side, hovered?.column ?? selected?.column)) {
        inkOf(context, inks, label.weight, side.spacing);
        const measure = (text) => context.measureText(text).width;
        context.save();
        context.translate(label.at, plot.y - GAP / 2);
        if (!flat) context.rotate(-Math.PI / 2);
        context.textAlign = flat ? "center" : "left";
        context.textBaseline = flat ? "bottom" : "middle";
        context.fillText(fitted(label.text, room, measure), 0, 0);
        context.restore();
    }
    context.font = FONT;
}

// ---- Beside the map ---------------------------------------------------------------------------

/** Bars of `values` along the map's columns or rows; the largest has the whole strip, negative ones
 * are fainter. */
function bars(context, values, place, ink) {
    const most = values.reduce((a, b) => (Math.abs(b) > a ? Math.abs(b) : a), 0) || 1;
    const { x, y, width, height, upright } = place;
    context.fillStyle = ink;
    for (let i = 0; i < values.length; i++) {
        const size = (Math.abs(values[i]) / most) * (upright ? height : width);
        if (!(size > 0)) continue;
        context.globalAlpha = values[i] < 0 ? 0.45 : 1;
        if (upright) context.fillRect(x + i, y + height - size, 1, size);
        else context.fillRect(x, y + i, size, 1);
    }
    context.globalAlpha = 1;
}

function drawStrip(map, context, inks, { values, count, at, ink, title }) {
    const { plot, area, size } = map;
    if (!values) return; // of no row: no box
    const y = plot.y + plot.height + GAP + at * (STRIP + GAP);
    context.strokeStyle = inks.line;
    context.strokeRect(plot.x - 0.5, y - 0.5, plot.width + 1, STRIP + 1);
    context.fillStyle = inks.muted;
    context.font = SMALL;
    context.textAlign = "right";
    context.textBaseline = "middle";
    const room = plot.x - GAP / 2;
    const measure = (text) => context.measureText(text).width;
    context.fillText(fitted(title, room, measure), plot.x - GAP / 2, y + STRIP / 2);
    const shown = profileOf(values, count, area.column0, area.column1, plot.width);
    bars(context, shown, { x: plot.x, y, width: plot.width, height: STRIP, upright: true }, ink);
    context.textAlign = "left";
    context.fillStyle = inks.muted;
    const end = numberText(
        shown.reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a), 0),
        2,
    );
    const fits = (text) => plot.x + plot.width + 4 + measure(text) <= size.width;
    const told = [`to ${end}`, end].find(fits);
    if (told) context.fillText(told, plot.x + plot.width + 4, y + 6);
    context.font = FONT;
}

function drawProfiles(map, context, inks) {
    const { picture, plot, area } = map;
    const cell = map.hovered ?? map.selected;
    const row = cell && picture.rowValues(cell.row);
    const strip = (values, at, ink, title) =>
        drawStrip(map, context, inks, { values, count: picture.columns, at, ink, title });
    if (picture.kind === "weights") strip(picture.means, 0, inks.muted, "mean row");
    strip(row, picture.kind === "weights" ? 1 : 0, inks.accent, "this row");
    const side = { x: map.sideAt, y: plot.y, width: STRIP, height: plot.height };
    const column = cell && map.size.side > 0 && picture.columnValues(cell.column, area);
    if (column) {
        context.strokeStyle = inks.line;
        context.strokeRect(side.x - 0.5, side.y - 0.5, side.width + 1, side.height + 1);
        turned(context, "column", side.x + side.width / 2, plot.y - GAP / 2, inks.muted);
        const pixels = Math.round(plot.height);
        const [begin, end] = [area.row0 - column.first, area.row1 - column.first];
        const shown = profileOf(column.values, column.rows, begin, end, pixels);
        bars(context, shown, { ...side, upright: false }, inks.accent);
    }
    if (picture.sinks) drawSinks(map, context, inks);
}

function turned(context, text, x, y, ink) {
    context.save();
    context.translate(x, y);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillStyle = ink;
    context.fillText(text, 0, 0);
    context.restore();
}

/** What the sink takes of each row, in the map's own colours. */
function drawSinks(map, context, inks) {
    const { picture, plot, area, scale, colors } = map;
    const pixels = Math.round(plot.height);
    const shown = profileOf(picture.sinks, picture.rows, area.row0, area.row1, pixels);
    for (let y = 0; y < pixels; y++) {
        if (!(shown[y] > -Infinity)) continue;
        context.fillStyle = hexOf(colors, scale.unit(shown[y]));
        context.fillRect(map.sinkAt, plot.y + y, 18, 1);
    }
    context.strokeStyle = inks.text;
    context.strokeRect(map.sinkAt - 0.5, plot.y - 0.5, 19, plot.height + 1);
    turned(context, "sink", map.sinkAt + 9, plot.y - GAP / 2, inks.text);
}

// ---- The selected cell ------------------------------------------------------------------------

/** The row and the column of a cell, and the cell itself, on a halo that stands out anywhere. */
function drawCross(map, context, cell, inks, dashed) {
    const { plot } = map;
    const width = Math.max(2, map.cell.width);
    const height = Math.max(2, map.cell.height);
    const x = map.xOf(cell.column + 0.5) - width / 2;
    const y = map.yOf(cell.row + 0.5) - height / 2;
    context.save();
    context.beginPath();
    context.rect(plot.x, plot.y, plot.width, plot.height);
    context.clip();
    for (const [ink, wider] of [
        [inks.panel, 2],
        [inks.cross, 0],
    ]) {
        context.strokeStyle = ink;
        context.lineWidth = 1 + wider;
        context.globalAlpha = wider > 0 ? 0.6 : 1;
        context.setLineDash(dashed && wider === 0 ? [3, 3] : []);
        for (const at of edges(y, height)) line(context, plot.x, at, plot.x + plot.width, at);
        for (const at of edges(x, width)) line(context, at, plot.y, at, plot.y + plot.height);
        context.setLineDash([]);
        context.lineWidth = 2 + wider;
        context.globalAlpha = 1;
        context.strokeRect(x - 1, y - 1, width + 2, height + 2);
    }
    context.restore();
}

/** Both edges of a row or column, or its middle where they would touch. */
const edges = (begin, size) => (size < 5 ? [begin + size / 2] : [begin, begin + size]);

function line(context, x0, y0, x1, y1) {
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
    context.stroke();
}

/** What rows and columns are, in the corner that labels leave free. */
function drawTitles({ plot }, context, inks) {
    context.font = `bold ${SMALL}`;
    context.fillStyle = inks.text;
    context.textAlign = "right";
    context.textBaseline = "alphabetic";
    context.fillText("key →", plot.x - GAP, 12);
    context.fillText("query ↓", plot.x - GAP, plot.y - GAP);
}

/** Draws a frame of `map`, a Heatmap. */
export function drawMap(map) {
    if (!map.picture || !map.plot) return;
    const context = map.canvas.getContext("2d");
    const inks = inksOf(map);
    context.setTransform(map.ratio, 0, 0, map.ratio, 0, 0);
    context.fillStyle = inks.panel;
    context.fillRect(0, 0, map.size.width, map.size.height);
    context.font = FONT;
    context.lineWidth = 1;
    drawCells(map, context, inks);
    rowLabels(map, context, inks);
    columnLabels(map, context, inks);
    drawTitles(map, context, inks);
    drawProfiles(map, context, inks);
    if (map.selected) drawCross(map, context, map.selected, inks, false);
    if (map.hovered) drawCross(map, context, map.hovered, inks, true);
}
