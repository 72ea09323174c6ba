/**
 * head.js: one head: fetches what is shown of it, and puts the views, controls and texts together.
 *
 * The settings of the address say what is shown: layer, head, kind, what is changed, area, cell.
 * The panel fetches again when one of those that change the numbers changes, paints again when
 * scale or colours change, and else only moves what is there.
 */
import { importance, showBefore, showChange } from "./ablation.js";
import { fitted } from "./axes.js";
import { listen, integers, set, settings } from "./address.js";
import { largestOf, mapNamed, scaleOf } from "./colors.js";
import { CompareView } from "./compare.js";
import { layerControls, pictureControls, statisticsTable } from "./controls.js";
import { cellSentence, tellingCell } from "./demo.js";
import { afterPause, byId, el, fill, numberText } from "./dom.js";
import { exportBar } from "./export.js";
import { shortest } from "./formats.js";
import { Heatmap, showLegend } from "./heatmap.js";
import { LinesView } from "./lines.js";
import { NeuronView } from "./neurons.js";
import { Picture } from "./picture.js";
import { successors } from "./rows.js";
import { current, onSource } from "./source.js";
import { announce, cancel, run } from "./status.js";
import { patterns } from "./words.js";

// Work that goes with the head that is open.
const FOLLOWING = ["statistics", "sums", "detail", "cell", "neurons", "compare", "change",
    "before"];
const STALE_MS = 300; // after which the map of the head before is hidden while the next one comes
const NUMBERS = ["layer", "head", "kind", "stage", "off", "window", "softcap", "causal"];

/** Scale and colours of a picture by the settings; what a sink takes is on the scale too. */
function looksOf(picture) {
    const now = settings();
    const diverging = picture.kind === "scores";
    const { values } = picture.map;
    let scale = scaleOf(now.scale, values, { diverging });
    const high = largestOf(picture.sinks ?? []);
    if (high > scale.high && !scale.clipped)
        scale = scaleOf(now.scale, values, { diverging, high });
    return { scale, colors: mapNamed(now.colors, diverging) };
}

/** A place with its label, where that says more. */
function named(place, label) {
    if (label === String(place)) return label;
    return `${place} “${fitted(label, 60, (text) => [...text].length)}”`;
}

/** Runs `work` for one call at a time; of the calls meanwhile the last one follows. */
function oneByOne(work) {
    let busy = false;
    let next = null;
    return async function call(...given) {
        next = given;
        while (next && !busy) {
            const latest = next;
            next = null;
            busy = true;
            await work(...latest).finally(() => (busy = false));
        }
    };
}

class HeadPanel {
    constructor(section) {
        this.section = section;
        this.what = null; // { source, layer, head, kind, stage, fields }
        this.picture = null;
        this.build();
        this.map = new Heatmap(this.mapHost, {
            onselect: (cell) => this.select(cell),
            onhover: () => this.describe(),
            onresize: () => this.picture && showLegend(this.legend, this.looks, this.picture),
            onarea: (area) => this.moved(area),
        });
        this.views = {
            lines: new LinesView(this.viewHost, this),
            neurons: new NeuronView(this.viewHost, this),
            compare: new CompareView(this.viewHost, this),
        };
        section.addEventListener("keydown", (event) => this.key(event));
        this.keepArea = afterPause((area) => this.note({ area }), 250);
        this.fetchRow = afterPause(
            oneByOne((row) => this.loadRow(row)),
            60,
        );
        this.fetchDetail = afterPause(
            oneByOne(() => this.loadDetail()),
            200,
        );
        this.say = afterPause((text) => announce(text), 400);
        onSource(() => this.load());
        listen((now, changed) => this.changed(changed));
        this.load();
    }

    build() {
        const zoom = {
            zoom: (factor) => this.picture && this.map.zoom(factor),
            all: () => this.picture && this.map.all(),
        };
        this.importance = importance(() => this.what);
        this.layer = layerControls(this.importance);
        this.controls = pictureControls(zoom, this.layer.modified);
        this.title = el("h2", { data: { testid: "head-title" } });
        this.mark = el("span", { class: "mark" });
        this.mapHost = el("div", { class: "map-host" });
        this.legend = el("div", { class: "legend" });
        this.viewHost = el("div", { class: "view-host" });
        this.cell = el("p", { class: "cell", data: { testid: "cell" } });
        this.story = el("p", { class: "story", data: { testid: "story" }, hidden: true });
        this.stats = el("div", {});
        this.export = exportBar(this);
        const step = (by, testid, text, name) =>
            el(
                "button",
                {
                    type: "button",
                    "aria-label": name,
                    data: { testid },
                    onclick: () => this.step(by),
                },
                text,
            );
        this.body = el("div", { class: "head-body" }, [
            this.story,
            this.controls.element,
            el("div", { class: "head-columns" }, [
                el("div", { class: "head-main" }, [
                    this.cell,
                    this.mapHost,
                    this.viewHost,
                    this.legend,
                ]),
                el("div", { class: "head-side" }, [
                    this.layer.element,
                    this.stats,
                    this.export.element,
                ]),
            ]),
        ]);
        this.empty = el("p", { class: "muted" }, "Open a head: choose one of the maps.");
        const previous = step(-1, "head-previous", "‹", "Previous head");
        const next = step(1, "head-next", "›", "Next head");
        fill(
            this.section,
            el(
                "div",
                { class: "toolbar head-line" },
                this.title,
                previous,
                next,
                this.mark,
                this.controls.views,
            ),
            this.empty,
            this.body,
        );
    }

    // ---- What is shown ----

    /** What the settings ask for; null where nothing is open, or the source does not have it. */
    asked() {
        const source = current();
        const now = settings();
        const layer = Number(now.layer);
        const head = source?.way ? 0 : Number(now.head); // there is one map where heads are combined
        if (!source || now.head === "" || now.layer === "" || !source.layers.includes(layer))
            return null;
        const spec = source.spec(layer);
        if (!(head >= 0 && head < spec.num_attention_heads && Number.isInteger(head))) return null;
        const kind = now.kind === "scores" && !source.local ? "scores" : "weights";
        const stage = ["softcap", "masked"].includes(now.stage) ? now.stage : "raw";
        return { source, layer, head, kind, stage, fields: source.modifiers(layer) };
    }

    /** Fetches what the settings ask for, and shows it. */
    async load() {
        const before = this.what;
        const what = this.asked();
        this.what = what;
        for (const slot of FOLLOWING) cancel(slot);
        this.showFrame();
        if (!what) {
            cancel("head");
            this.picture = null;
            return;
        }
        const changed = JSON.stringify(before?.fields) !== JSON.stringify(what.fields);
        const fresh = before?.source !== what.source || before?.layer !== what.layer || changed;
        const { source } = what;
        if (fresh) this.importance.clear();
        this.importance.button.disabled = source.lacks?.includes("ablation") ?? false;
        const focused = byId("overview").contains(document.activeElement);
        const pixels = [1, 1].map(() =>
            Math.round((this.section.clientWidth - 200) * (devicePixelRatio || 1)),
        );
        const picture = new Picture(what.source, what);
        this.picture = null; // nothing is exported or described of the head before
        this.map.canvas.setAttribute("aria-busy", "true");
        const late = setTimeout(() => this.body.classList.add("stale"), STALE_MS);
        const done = await run("head", source.headName(what.layer, what.head), (signal) =>
            picture.fetch(pixels, signal),
        );
        clearTimeout(late);
        if (this.what !== what) return;
        this.body.classList.remove("stale");
        this.picture = done ?? null;
        this.body.hidden = !done;
        if (done) this.paint();
        this.map.canvas.setAttribute("aria-busy", "false");
        if (!done) return;
        if (focused) (this.mapShown ? this.map.canvas : this.section).focus();
        this.afterwards(what);
    }

    /** What may come after the picture is there. */
    async afterwards(what) {
        const { picture } = this;
        showChange(this.layer.change, what.source, what.layer, what.fields);
        showBefore(this.layer.before, what);
        if (!picture.whole) {
            await run("sums", "What each key receives", (signal) => picture.fetchSums(signal));
            if (this.picture !== picture) return;
            this.paint(); // sinks take a place of their own, and may be the largest
        }
        await run("statistics", "Statistics", (signal) => picture.fetchStats(signal));
        if (this.picture !== picture) return;
        this.showStats();
        const { source } = what;
        if (source.told && !this.map.selected && picture.whole)
            this.map.select(tellingCell(picture, successors(source.keyLabels)));
        this.tell();
    }

    /** Three sentences about a head of the demonstration model: what is seen, and where. */
    tell() {
        const { picture, what } = this;
        const told = what?.source.told;
        const isModel = what?.kind === "weights" && Object.keys(what.fields).length === 0;
        this.story.hidden = !told || !picture?.stats || !isModel;
        this.map.resize(); // to what the story leaves of the window
        if (this.story.hidden) return;
        const { layer, head, source } = what;
        const heads = source.layers.length * source.spec(layer).num_attention_heads;
        const own = told.find((one) => one.layer === layer && one.head === head);
        const { pattern } = picture;
        const cell = this.map.selected;
        fill(this.story,
            el("span", {}, `One of ${heads} attention heads: rows are tokens that look (queries), columns ` +
                "those looked at (keys), bright cells large weights. "),
            el("span", {}, el("b", {}, own?.name ?? pattern), ": ", own?.text ?? `${patterns[pattern][0]}.`, " "),
            cell && picture.valueAt(cell.row, cell.column) !== undefined
                ? el("span", {}, cellSentence(picture, cell)) : null);
        this.map.resize();
    }

    get headName() {
        const { source, layer, head } = this.what;
        return source.headName(layer, head);
    }

    get mapShown() {
        return settings().view === "map";
    }

    /** Title, controls and which view is there. */
    showFrame() {
        const { what } = this;
        this.empty.hidden = what !== null;
        this.body.hidden = what === null;
        this.mark.hidden = !what?.source.mark;
        this.mark.textContent = what?.source.mark?.split(":")[0] ?? "";
        this.mark.title = what?.source.mark ?? "";
        this.controls.views.hidden = what === null;
        if (!what) this.layer.modified.hidden = true;
        if (!what?.source.told) this.story.hidden = true;
        this.title.textContent = what ? this.headName : "One head";
        const isLocal = what?.source.local ?? false;
        this.controls.show(isLocal);
        this.export.show(isLocal);
        this.layer.element.hidden = isLocal;
        if (isLocal) this.layer.modified.hidden = true;
        else if (what) this.layer.show(what.source.spec(what.layer), what.source.keys, what.head);
    }

    /** Paints the picture with scale and colours, into the view that is shown. */
    paint() {
        const { picture, what } = this;
        const { scale, colors } = looksOf(picture);
        const { view } = settings();
        this.section.dataset.view = view;
        this.looks = { scale, colors };
        this.mapHost.hidden = view !== "map";
        this.viewHost.hidden = view === "map";
        this.legend.hidden = view !== "map";
        this.showStats();
        this.map.show(picture, scale, colors, this.name());
        this.place();
        for (const [name, other] of Object.entries(this.views)) if (name !== view) other.hide();
        this.views[view]?.show();
    }

    /** The statistics, once they are there, and the pattern in the title. */
    showStats() {
        const { picture, headName: name } = this;
        const { source } = this.what;
        this.title.textContent = picture.stats ? `${name}: ${picture.pattern}` : name;
        const shown = picture.stats && { ...picture.stats, pattern: picture.pattern };
        fill(this.stats, shown ? statisticsTable(shown, name, source) : []);
        this.map.canvas.setAttribute("aria-label", this.name());
    }

    /** What the map is, for screen readers. */
    name() {
        const { picture, what } = this;
        const kind = what.kind === "weights" ? "attention weights" : `${what.stage} scores`;
        const pattern = picture.stats ? `, pattern ${picture.pattern}` : "";
        return (
            `${this.headName}${pattern}: ${kind}, ` +
            `${picture.rows} queries by ${picture.columns} keys. ` +
            "Arrow keys move between cells, plus and minus zoom, question mark lists all keys."
        );
    }

    /** Takes area and cell from the address. */
    place() {
        const now = settings();
        const [row, column] = integers(now.cell);
        const { map, picture } = this;
        const all = [0, picture.rows, 0, picture.columns];
        const given = now.area.split(",").map(Number);
        const fits =
            given.length === 4 && given.every((edge, i) => edge >= 0 && edge <= all[i | 1]);
        const [row0, row1, column0, column1] = fits ? given : all; // of a shorter map: all
        if (fits || map.zoomed) map.setArea({ row0, row1, column0, column1 }, true);
        const there = column !== undefined && row < picture.rows && column < picture.columns;
        map.select(there && row >= 0 && column >= 0 ? { row, column } : null, { quiet: true });
        this.describe();
        this.fetchDetail();
    }

    changed(changed) {
        const has = (...names) => names.some((name) => changed.has(name));
        if (has(...NUMBERS)) {
            if (has("layer", "head", "kind")) this.showFrame();
            this.load();
            return;
        }
        this.controls.show(this.what?.source.local);
        if (!this.picture) return;
        if (has("scale", "colors", "view", "with", "with_model")) this.paint();
        else if (!this.noting && has("area", "cell")) this.place();
        if (has("cell")) this.views[settings().view]?.moved?.();
    }

    /** Writes into the address what is shown already. */
    note(changes) {
        this.noting = true;
        set(changes);
        this.noting = false;
    }

    // ---- Cells ----

    select(cell) {
        this.tell();
        this.note({ cell: cell ? `${cell.row},${cell.column}` : "" });
        this.describe();
        if (cell) this.say(this.cell.textContent);
    }

    /** Writes the cell that is pointed at, else the selected one, with its exact number. */
    describe() {
        const { picture } = this;
        const cell = this.map.hovered ?? this.map.selected;
        if (!picture) return;
        for (const name of ["row", "column", "value"]) delete this.cell.dataset[name];
        this.cell.removeAttribute("title");
        if (!cell) {
            this.cell.textContent = "Point at a cell, or move with the arrow keys.";
            return;
        }
        const { row, column } = cell;
        Object.assign(this.cell.dataset, { row, column });
        const value = picture.valueAt(row, column);
        if (value === undefined) this.fetchRow(row);
        const query = `query ${named(row, picture.rowLabel(row))}`;
        const key =
            column < picture.keys
                ? `key ${named(column, picture.columnLabel(column))}`
                : `appended column ${picture.columnLabel(column)}`;
        const hidden = picture.isHidden(row, column) ? " (cannot be attended)" : "";
        const text = value === undefined ? "…" : numberText(value, 6);
        const sink =
            picture.sinks?.length === picture.rows
                ? `; sink of the row ${numberText(picture.sinks[row], 4)}`
                : "";
        this.cell.textContent = `${query} → ${key}: ${text}${hidden}${sink}`;
        if (value === undefined) return;
        this.cell.dataset.value = shortest(value);
        this.cell.title = `exactly ${shortest(value)}`;
    }

    async loadRow(row) {
        const { picture } = this;
        if (!picture || row >= picture.rows) return;
        const done = await run("cell", `Row ${row}`, async (signal) => {
            await picture.fetchRow(row, signal);
            return true;
        });
        if (!done || this.picture !== picture) return;
        this.describe();
        this.map.draw();
        if (this.map.selected?.row === row) this.say(this.cell.textContent);
    }

    moved(area) {
        const whole = !this.map.zoomed;
        const edges = [area.row0, area.row1, area.column0, area.column1];
        this.keepArea(whole ? "" : edges.map((edge) => Number(edge.toFixed(2))).join(","));
        this.fetchDetail();
    }

    /** Fetches the exact rows in view, once they are few enough. */
    async loadDetail() {
        const { picture, map } = this;
        const wanted = picture && map.area && picture.wanted(map.area);
        if (picture && !wanted && picture.detail) map.refresh();
        if (!wanted) return;
        const done = await run("detail", "Rows in view", async (signal) => {
            await picture.fetchDetail(wanted, signal);
            return true;
        });
        if (!done || this.picture !== picture) return;
        map.refresh();
        this.describe();
    }

    // ---- Keys ----

    /** Opens the head `by` places further, over all layers. */
    step(by) {
        const { what } = this;
        if (!what) return;
        const { layers } = what.source;
        const at = layers.indexOf(what.layer);
        const count = what.source.spec(what.layer).num_attention_heads;
        const head = what.head + by;
        if (head >= 0 && head < count) set({ head }, { step: true });
        else if (layers[at + by] !== undefined) {
            const other = layers[at + by];
            const last = what.source.spec(other).num_attention_heads - 1;
            set({ layer: other, head: by > 0 ? 0 : last, off: "" }, { step: true });
        }
    }

    key(event) {
        if (event.ctrlKey || event.altKey || event.metaKey) return;
        if (["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName)) return;
        if (event.key === "[") this.step(-1);
        else if (event.key === "]") this.step(1);
        else if (event.key === "Escape" && this.what) {
            const { layer, head } = this.what;
            const tile = byId("overview").querySelector(`[data-testid="head-${layer}-${head}"]`);
            (tile ?? byId("overview")).focus();
        } else return;
        event.preventDefault();
    }
}

/** Makes the panel in `section`. */
export function start(section = byId("view")) {
    return new HeadPanel(section);
}
