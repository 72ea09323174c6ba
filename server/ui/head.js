/**
 * head.js: one head: fetches what is shown of it, and puts the views, controls and texts together.
 *
 * The settings of the address say what is shown: layer, head, kind, what is changed, area, cell.
 * The panel fetches again when one of those that change the numbers changes, paints again when
 * scale or colours change, and else only moves what is there.
 */
import { integers, listen, set, settings } from "./address.js";
import { afterPause, byId, el, fill } from "./dom.js";
import { Parts, viewsOf } from "./head_parts.js";
import { Rows } from "./head_rows.js";
import { Told } from "./head_told.js";
import { Heatmap, looksOf, showLegend } from "./heatmap.js";
import { Picture } from "./picture.js";
import { current, onSource } from "./source.js";
import { cancel, run } from "./status.js";

// Work that goes with the head that is open.
const FOLLOWING = [
    "statistics",
    "sums",
    "detail",
    "cell",
    "ahead",
    "neurons",
    "compare",
    "change",
    "before",
];
const STALE_MS = 300; // after which the map of the head before is hidden while the next one comes
const NUMBERS = ["layer", "head", "kind", "stage", "off", "window", "softcap", "causal"];

class HeadPanel {
    constructor(section) {
        this.section = section;
        this.what = null; // { source, layer, head, kind, stage, fields }
        this.picture = null;
        this.parts = new Parts(this);
        this.told = new Told(this);
        this.rows = new Rows(this);
        this.build();
        this.map = new Heatmap(this.mapHost, {
            onselect: (cell) => this.select(cell),
            onhover: () => this.told.describe(),
            onresize: () => this.picture && showLegend(this.legend, this.looks, this.picture),
            onarea: (area) => this.moved(area),
        });
        this.views = viewsOf(this.viewHost, this);
        section.addEventListener("keydown", (event) => this.key(event));
        this.keepArea = afterPause((area) => this.note({ area }), 250);
        onSource(() => this.load());
        listen((now, changed) => this.changed(changed));
        this.load();
    }

    build() {
        const { told, parts } = this;
        this.mark = el("span", { class: "mark" });
        this.mapHost = el("div", { class: "map-host" });
        this.legend = el("div", { class: "legend" });
        this.viewHost = el("div", { class: "view-host" });
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
            told.story,
            parts.controls.element,
            el("div", { class: "head-columns" }, [
                el("div", { class: "head-main" }, [
                    told.cell,
                    this.mapHost,
                    this.viewHost,
                    this.legend,
                ]),
                el("div", { class: "head-side" }, [
                    parts.layer.element,
                    parts.export.element,
                    told.stats,
                ]),
            ]),
        ]);
        const previous = step(-1, "head-previous", "‹", "Previous head");
        const next = step(1, "head-next", "›", "Next head");
        fill(
            this.section,
            el(
                "div",
                { class: "toolbar head-line" },
                told.title,
                previous,
                next,
                this.mark,
                parts.controls.views,
            ),
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
        this.parts.fresh(source, fresh);
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
        this.parts.compute(what);
        if (!picture.whole) {
            await run("sums", "What each key receives", (signal) => picture.fetchSums(signal));
            if (this.picture !== picture) return;
            this.paint(); // sinks take a place of their own, and may be the largest
        }
        await run("statistics", "Statistics", (signal) => picture.fetchStats(signal));
        if (this.picture !== picture) return;
        this.told.showStats();
        this.told.choose();
        this.told.tell();
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
        this.section.hidden = what === null; // all heads take its place
        this.mark.hidden = !what?.source.mark;
        this.mark.textContent = what?.source.mark?.split(":")[0] ?? "";
        this.mark.title = what?.source.mark ?? "";
        if (!what?.source.told) this.told.story.hidden = true;
        this.told.title.textContent = what ? this.headName : "One head";
        this.parts.show(what);
    }

    /** Paints the picture with scale and colours, into the view that is shown. */
    paint() {
        const { picture } = this;
        const { scale, colors } = looksOf(picture, settings());
        const { view } = settings();
        this.section.dataset.view = view;
        this.looks = { scale, colors };
        this.mapHost.hidden = view !== "map";
        this.viewHost.hidden = view === "map";
        this.legend.hidden = view !== "map";
        this.told.showStats();
        this.map.show(picture, scale, colors, this.told.name());
        this.place();
        for (const [name, other] of Object.entries(this.views)) if (name !== view) other.hide();
        this.views[view]?.show();
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
        this.told.describe();
        this.rows.fetchDetail();
    }

    changed(changed) {
        const has = (...names) => names.some((name) => changed.has(name));
        if (has(...NUMBERS)) {
            if (has("layer", "head", "kind")) this.showFrame();
            this.load();
            return;
        }
        this.parts.controls.show(this.what?.source.local);
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
        this.told.tell();
        this.note({ cell: cell ? `${cell.row},${cell.column}` : "" });
        this.told.describe();
        if (cell) this.told.say();
    }

    moved(area) {
        const whole = !this.map.zoomed;
        const edges = [area.row0, area.row1, area.column0, area.column1];
        this.keepArea(whole ? "" : edges.map((edge) => Number(edge.toFixed(2))).join(","));
        this.rows.fetchDetail();
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
            const name = `[data-testid="head-${layer}-${head}"]`;
            /** @type {HTMLElement} */
            const tile = byId("overview").querySelector(name);
            (tile ?? byId("overview")).focus();
        } else return;
        event.preventDefault();
    }
}

/** Makes the panel in `section`. */
export function start(section = byId("view")) {
    return new HeadPanel(section);
}
