/**
 * heatmap.js: a map of cells on a canvas, from all of it down to a single cell.
 *
 * Cells are painted into bitmaps once per change of numbers, scale or colours; a frame draws the
 * part that is shown from there. Beside the map stand labels, the profile of the selected row and
 * what each key receives (below), the selected column and the sinks (right). The class shows a
 * Picture (picture.js), and tells its owner what is pointed at; what is fetched is the owner's.
 */
import { imageOf, largestOf, mapNamed, scaleOf } from "./colors.js";
import { byId, el, fill, numberText, perFrame } from "./dom.js";
import { FONT, GAP, STRIP, drawMap } from "./drawing.js";
import { follow } from "./gestures.js";
import { elementOf, legend, svg } from "./svg.js";

/** A span of at least 1 and at most `count`, moved into [0, count]. */
function within(begin, end, count) {
    const span = Math.min(count, Math.max(1, end - begin));
    const first = Math.min(count - span, Math.max(0, begin));
    return [first, first + span];
}

/** Halves the rows, the columns or both; a part keeps its cell of the largest magnitude. */
function halved({ values, rows, columns }, byRow, byColumn) {
    const less = { rows: Math.ceil(rows / byRow), columns: Math.ceil(columns / byColumn) };
    const kept = new Float32Array(less.rows * less.columns).fill(-Infinity);
    for (let r = 0; r < rows; r++) {
        const to = Math.floor(r / byRow) * less.columns;
        for (let c = 0; c < columns; c++) {
            const value = values[r * columns + c];
            const at = to + Math.floor(c / byColumn);
            if (value !== -Infinity && !(Math.abs(value) <= Math.abs(kept[at]))) kept[at] = value;
            else if (kept[at] === -Infinity) kept[at] = value;
        }
    }
    return { values: kept, ...less };
}

function canvasOf(width, height) {
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width, height });
    return canvas;
}

/** Bitmaps of one grid of cells: the grid's own, and coarser ones made when they are needed. */
class Bitmaps {
    #levels;
    constructor(grid, scale, colors) {
        this.#levels = [{ ...grid, across: 1, down: 1, bitmap: null }];
        this.scale = scale;
        this.colors = colors;
    }

    /** @returns {object} the level whose cells have a pixel or more, with its bitmap */
    at(cellWidth, cellHeight) {
        let level = this.#levels[0];
        for (let i = 0; ; i++) {
            level = this.#levels[i];
            const byColumn = cellWidth * level.across < 0.7 && level.columns > 1 ? 2 : 1;
            const byRow = cellHeight * level.down < 0.7 && level.rows > 1 ? 2 : 1;
            if (byColumn * byRow === 1) break;
            this.#levels[i + 1] ??= {
                ...halved(level, byRow, byColumn),
                across: level.across * byColumn,
                down: level.down * byRow,
            };
        }
        if (!level.bitmap) {
            level.bitmap = canvasOf(level.columns, level.rows);
            const image = imageOf(level.values, level.rows, level.columns, this.scale, this.colors);
            level.bitmap.getContext("2d").putImageData(image, 0, 0);
        }
        return level;
    }
}

export class Heatmap {
    /**
     * @param {HTMLElement} host takes the canvas, and gives it its width
     * @param {{onselect?: Function, onhover?: Function, onarea?: Function, onresize?: Function,
     *     testid?: string}} owner told of {row, column} or null, of {row0, row1, column0, column1},
     *     and that the canvas has another size
     */
    constructor(host, owner = {}) {
        this.owner = owner;
        this.canvas = el("canvas", {
            class: "map",
            tabindex: 0,
            role: "application",
            "aria-roledescription": "attention map",
            data: { testid: owner.testid ?? "map" },
        });
        host.append(this.canvas);
        this.host = host;
        this.draw = perFrame(() => drawMap(this));
        this.picture = null;
        this.selected = null;
        this.hovered = null;
        this.area = null;
        follow(this);
        this.observer = new ResizeObserver(() => this.resize());
        this.observer.observe(host);
        this.observer.observe(byId("input")); // which leaves the map more or less of the window
        this.themes = new MutationObserver(() => this.draw());
        this.themes.observe(document.documentElement, { attributeFilter: ["data-theme"] });
        this.dark = matchMedia("(prefers-color-scheme: dark)");
        this.dark.addEventListener("change", this.draw);
        this.print = () => this.picture && drawMap(this); // no frame comes before the page is printed
        addEventListener("beforeprint", this.print);
    }

    close() {
        this.observer.disconnect();
        this.themes.disconnect();
        this.dark.removeEventListener("change", this.draw);
        removeEventListener("beforeprint", this.print);
        this.canvas.remove();
    }

    /**
     * Shows a picture with a scale and colours; the area stays where the picture has the same size.
     * @param {import("./picture.js").Picture} picture
     */
    show(picture, scale, colors, name) {
        const before = this.picture;
        const same = before?.rows === picture.rows && before?.columns === picture.columns;
        this.picture = picture;
        this.scale = scale;
        this.colors = colors;
        this.bitmaps = new Bitmaps(picture.map, scale, colors);
        this.detail = null;
        if (!same || !this.area) {
            this.area = { row0: 0, row1: picture.rows, column0: 0, column1: picture.columns };
            this.hovered = null;
        }
        if (
            this.selected &&
            (this.selected.row >= picture.rows || this.selected.column >= picture.columns)
        )
            this.selected = null;
        this.canvas.setAttribute("aria-label", name);
        this.resize();
    }

    /** Takes exact rows that the picture has fetched since. */
    refresh() {
        const { detail, columns } = this.picture;
        const { column0, column1 } = this.area;
        const there = this.detail;
        const inView = there && there.first <= column0 && there.end >= Math.min(columns, column1);
        if (detail && (there?.of !== detail || !inView)) {
            const spare = Math.ceil((column1 - column0) / 2);
            const first = Math.max(0, Math.floor(column0) - spare);
            const end = Math.min(columns, Math.ceil(column1) + spare, first + 8192);
            const cut = new Float32Array(detail.rows * (end - first));
            for (let r = 0; r < detail.rows; r++) {
                const row = detail.values.subarray(r * columns + first, r * columns + end);
                cut.set(row, r * (end - first));
            }
            const grid = { values: cut, rows: detail.rows, columns: end - first };
            const bitmaps = new Bitmaps(grid, this.scale, this.colors);
            this.detail = { of: detail, first, end, bitmaps };
        }
        this.draw();
    }

    // ---- Places ----

    /** Sizes the canvas by its host: cells are square where that fits. */
    resize() {
        const { picture, host, canvas } = this;
        const width = Math.floor(host.clientWidth);
        if (!picture || width < 60) return;
        const context = canvas.getContext("2d");
        context.font = `bold ${FONT}`;
        const widest = (label, count, most, extra = []) => {
            let widest = 48; // of the names of axes and profiles
            for (let i = 0; i < count; i += Math.ceil(count / 600))
                widest = Math.max(widest, context.measureText(label(i)).width);
            for (const text of extra) widest = Math.max(widest, context.measureText(text).width);
            return Math.min(most, Math.ceil(widest));
        };
        const appended = ["column"];
        if (picture.columns - picture.keys > 1) appended.push("appended");
        for (let i = picture.keys; i < picture.columns; i++) appended.push(picture.columnLabel(i));
        const narrow = width < 480;
        const left = widest((i) => picture.rowLabel(i), picture.rows, narrow ? 72 : 120) + GAP;
        const top = widest((i) => picture.columnLabel(i), picture.keys, 84, appended) + GAP;
        const sinks = picture.sinks ? 18 + GAP : 0;
        const side = narrow ? 0 : STRIP + GAP; // of the selected column
        const right = sinks + side + 2;
        const strips = (picture.kind === "weights" ? 2 : 1) * (STRIP + GAP);
        const above = Math.min(host.getBoundingClientRect().top + scrollY, 0.42 * innerHeight);
        const most = Math.max(
            narrow ? 260 : 220,
            Math.min(innerHeight - above - 58, 1600) - top - strips,
        );
        let across = Math.max(40, width - left - right);
        let down = (across * picture.rows) / picture.columns;
        if (down > most) {
            down = most;
            across = Math.min(across, Math.max(220, (most * picture.columns) / picture.rows));
        }
        down = Math.round(Math.max(down, Math.min(most, picture.rows * 24, 180)));
        this.plot = { x: left, y: top, width: Math.floor(across), height: down };
        this.sinkAt = this.plot.x + this.plot.width + GAP;
        this.sideAt = this.sinkAt + sinks;
        this.size = { width, height: top + down + strips + 4, side };
        const ratio = devicePixelRatio || 1;
        this.ratio = ratio;
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(this.size.height * ratio);
        canvas.style.width = `${width}px`;
        canvas.style.height = `${this.size.height}px`;
        drawMap(this);
        this.owner.onresize?.();
    }

    get cell() {
        const { area, plot } = this;
        return {
            width: plot.width / (area.column1 - area.column0),
            height: plot.height / (area.row1 - area.row0),
        };
    }

    /** @returns {{row: number, column: number}|null} the cell at a point of the canvas */
    cellAt(x, y) {
        const { plot, area, cell, picture } = this;
        if (!picture || x < plot.x || y < plot.y) return null;
        if (x >= plot.x + plot.width || y >= plot.y + plot.height) return null;
        const row = Math.floor(area.row0 + (y - plot.y) / cell.height);
        const column = Math.floor(area.column0 + (x - plot.x) / cell.width);
        return row < picture.rows && column < picture.columns ? { row, column } : null;
    }

    xOf = (column) => this.plot.x + (column - this.area.column0) * this.cell.width;
    yOf = (row) => this.plot.y + (row - this.area.row0) * this.cell.height;

    // ---- Area and selection ----

    get zoomed() {
        const { area, picture } = this;
        return (
            Boolean(picture) &&
            (area.row1 - area.row0 < picture.rows || area.column1 - area.column0 < picture.columns)
        );
    }

    /** Shows an area; `quiet`: the owner is not told, since the change is its own. */
    setArea({ row0, row1, column0, column1 }, quiet = false) {
        const [begin0, end0] = within(row0, row1, this.picture.rows);
        const [begin1, end1] = within(column0, column1, this.picture.columns);
        this.area = { row0: begin0, row1: end0, column0: begin1, column1: end1 };
        this.canvas.style.touchAction = this.zoomed ? "none" : "pan-y";
        if (!quiet) this.owner.onarea?.(this.area);
        this.draw();
    }

    /** Zooms by `factor`, below 1 closer, around a point of the canvas, or the selected cell. */
    zoom(factor, point) {
        const { area, plot, cell } = this;
        const at = point ?? this.#centre();
        const shareX = Math.min(1, Math.max(0, (at.x - plot.x) / plot.width));
        const shareY = Math.min(1, Math.max(0, (at.y - plot.y) / plot.height));
        const column = area.column0 + (shareX * plot.width) / cell.width;
        const row = area.row0 + (shareY * plot.height) / cell.height;
        const across = Math.max(1, (area.column1 - area.column0) * factor);
        const down = Math.max(1, (area.row1 - area.row0) * factor);
        this.setArea({
            row0: row - shareY * down,
            row1: row + (1 - shareY) * down,
            column0: column - shareX * across,
            column1: column + (1 - shareX) * across,
        });
        if (!point) this.#reveal(this.#shown(this.selected) ? this.selected : null);
    }

    /** Whether some of a cell is in the area. */
    #shown(cell) {
        const { row0, row1, column0, column1 } = this.area;
        const down = cell && cell.row + 1 > row0 && cell.row < row1;
        return down && cell.column + 1 > column0 && cell.column < column1;
    }

    /** Moves the area so that all of a cell is in it. */
    #reveal(cell) {
        if (!cell) return;
        const move = (at, begin, end) => Math.min(0, at - begin) || Math.max(0, at + 1 - end);
        const { row0, row1, column0, column1 } = this.area;
        const down = move(cell.row, row0, row1);
        const across = move(cell.column, column0, column1);
        if (down !== 0 || across !== 0) this.pan(across * this.cell.width, down * this.cell.height);
    }

    #centre() {
        const { plot, selected } = this;
        if (!this.#shown(selected))
            return { x: plot.x + plot.width / 2, y: plot.y + plot.height / 2 };
        return { x: this.xOf(selected.column + 0.5), y: this.yOf(selected.row + 0.5) };
    }

    /** Moves the area by pixels. */
    pan(x, y) {
        const { area, cell } = this;
        const columns = x / cell.width;
        const rows = y / cell.height;
        this.setArea({
            row0: area.row0 + rows,
            row1: area.row1 + rows,
            column0: area.column0 + columns,
            column1: area.column1 + columns,
        });
    }

    all() {
        const { rows, columns } = this.picture;
        this.setArea({ row0: 0, row1: rows, column0: 0, column1: columns });
    }

    /** Selects a cell; `reveal`: moves the area so that the cell is in it. */
    select(cell, { quiet = false, reveal = false } = {}) {
        this.selected = cell && {
            row: Math.min(this.picture.rows - 1, Math.max(0, cell.row)),
            column: Math.min(this.picture.columns - 1, Math.max(0, cell.column)),
        };
        if (reveal) this.#reveal(this.selected);
        if (!quiet) this.owner.onselect?.(this.selected);
        this.draw();
    }

    hover(cell) {
        if (cell?.row === this.hovered?.row && cell?.column === this.hovered?.column) return;
        this.hovered = cell;
        this.owner.onhover?.(cell);
        this.draw();
    }
}

// ---- Legend -----------------------------------------------------------------------------------

/** Scale and colours of a picture by the settings `now`; what a sink takes is on the scale too. */
export function looksOf(picture, now) {
    const diverging = picture.kind === "scores";
    const { values } = picture.map;
    let scale = scaleOf(now.scale, values, { diverging });
    const high = largestOf(picture.sinks ?? []);
    if (high > scale.high && !scale.clipped)
        scale = scaleOf(now.scale, values, { diverging, high });
    return { scale, colors: mapNamed(now.colors, diverging) };
}

/** Shows the legend of a picture's scale and colours in `host`. */
export function showLegend(host, { scale, colors }, picture) {
    const width = Math.max(180, Math.min(360, 0.36 * (host.clientWidth || 800)));
    const meant =
        picture.kind === "weights"
            ? "weight"
            : picture.stage === "difference"
              ? "difference"
              : "score";
    const most = scale.kind === "linear" ? ` to ${numberText(scale.high, 3)}` : "";
    const note = `${meant}, ${scale.kind}${most}${scale.note && `; ${scale.note}`}`;
    const { map } = picture;
    const block = [picture.rows / map.rows, picture.columns / map.columns].map(Math.ceil);
    const pooled = picture.whole ? "" : `largest of ${block.join(" × ")} cells, exact when near`;
    const marks = scale.ticks.map((tick) => numberText(tick.value, 3)).join(", ");
    const name = `Colours: ${note}; marks at ${marks}`;
    const size = { width, height: 34, viewBox: `0 0 ${width} 34` };
    const tree = svg("svg", { ...size, role: "img", "aria-label": name }, [
        legend(scale, colors, width, "currentColor"),
    ]);
    const hatched = el("span", { class: "hatched", "aria-hidden": "true" });
    fill(
        host,
        elementOf(tree),
        el(
            "span",
            { class: "meant" },
            el("span", {}, note),
            pooled && el("span", {}, pooled),
            picture.masked ? el("span", {}, hatched, " cannot be attended") : null,
        ),
    );
}
