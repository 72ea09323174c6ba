/**
 * compare.js: two heads, or one head of two inputs, side by side with their difference.
 *
 * The maps share scale, area and selected cell. Both are fetched by the rules of picture.js; where
 * they are pooled, so is the difference. Of inputs of unequal length the common part is compared.
 */
import { mapNamed, scaleOf } from "./colors.js";
import { integers, set, settings } from "./address.js";
import { Difference } from "./difference.js";
import { el, fill, labelled, numberText } from "./dom.js";
import { captureOf, open, rowsShape } from "./files.js";
import { Heatmap } from "./heatmap.js";
import { showLegend } from "./legend.js";
import { Picture } from "./picture.js";
import { tokensOf } from "./rows.js";
import { captureSupply, rowsSource, tensorSupply, tokenSupply } from "./source.js";
import { run, showError } from "./status.js";

/** @returns {Promise<import("./source.js").Source>} `model` over the rows of a file */
async function sourceOfFile(model, layer, file) {
    const opened = await open(file, file.name);
    const capture = captureOf(opened);
    if (capture) return rowsSource(model, captureSupply(file.name, capture), null, [layer]);
    const width = model.hidden_size;
    const entry = opened.entries.find((one) => rowsShape(one)?.[1] === width);
    if (!entry) throw new Error(`${file.name}: there is no tensor [tokens, ${width}]`);
    return rowsSource(model, tensorSupply(file.name, entry), null, [layer]);
}

export class CompareView {
    constructor(host, panel) {
        Object.assign(this, { host, panel, other: null, maps: [], pictures: [] });
        this.with = el("select", {
            data: { testid: "compare-with" },
            onchange: () => {
                this.other = null;
                set({ with: this.with.value });
            },
        });
        this.text = el("input", {
            type: "text",
            data: { testid: "compare-text" },
            onchange: () => this.takeText(),
        });
        this.file = el("input", {
            type: "file",
            data: { testid: "compare-file" },
            onchange: () => this.takeFile(),
        });
        this.hosts = [0, 1, 2].map(() => el("div", { class: "compare-map" }));
        this.titles = [0, 1, 2].map(() => el("h3", {}));
        this.legends = [0, 1, 2].map(() => el("div", { class: "legend" }));
        this.note = el("p", { class: "cell", data: { testid: "compare-note" } });
        this.element = el("div", { class: "compare", data: { testid: "compare" } }, [
            el("div", { class: "toolbar" }, [
                labelled("Compare with head", this.with),
                labelled("or the same head over a text", this.text),
                labelled("or over a file", this.file),
            ]),
            this.note,
            el(
                "div",
                { class: "compare-maps" },
                this.hosts.map((map, i) => el("div", {}, this.titles[i], map, this.legends[i])),
            ),
        ]);
    }

    /** Drops what is not shown. */
    hide() {
        this.element.remove();
        for (const map of this.maps) map.close();
        this.maps = [];
        this.pictures = [];
    }

    moved() {
        const cell = this.panel.map.selected;
        for (const map of this.maps)
            if (map.picture) map.select(within(cell, map), { quiet: true });
        this.describe(cell);
        this.fetchRows(cell);
    }

    /** Fetches the exact rows of the selected cell, where the maps are pooled. */
    async fetchRows(cell) {
        const pictures = this.pictures.slice(0, 2).filter((picture) => cell?.row < picture.rows);
        if (pictures.every((picture) => picture.rowValues(cell.row))) return;
        const done = await run("cell", `Row ${cell.row}`, async (signal) => {
            for (const picture of pictures) await picture.fetchRow(cell.row, signal);
            return true;
        });
        if (!done || this.pictures[0] !== pictures[0]) return;
        this.describe(this.panel.map.selected);
        for (const map of this.maps) map.draw();
    }

    // ---- The second input ----

    async take(make) {
        try {
            this.other = await make(this.panel.what.source.model, this.panel.what.layer);
            await this.show();
        } catch (error) {
            showError("compare", error);
        }
    }

    takeText() {
        const tokens = this.text.value;
        if (tokens.trim() !== "")
            this.take((model, layer) => {
                const supply = tokenSupply(tokensOf(tokens), settings().seed);
                return rowsSource(model, supply, null, [layer]);
            });
    }

    takeFile() {
        const [file] = this.file.files;
        if (file) this.take((model, layer) => sourceOfFile(model, layer, file));
    }

    // ---- What is compared ----

    /** What the second map is of. */
    second() {
        const { what } = this.panel;
        if (this.other) return { ...what, source: this.other };
        const [layer, head] = integers(settings().with);
        const known = head !== undefined && what.source.layers.includes(layer);
        const heads = known ? what.source.spec(layer).num_attention_heads : 0;
        const chosen = known && head >= 0 && head < heads ? { layer, head } : this.next();
        const fields = what.source.modifiers(chosen.layer);
        return { ...what, ...chosen, fields };
    }

    next() {
        const { layer, head, source } = this.panel.what;
        return { layer, head: (head + 1) % source.spec(layer).num_attention_heads };
    }

    list(second) {
        const { source } = this.panel.what;
        fill(
            this.with,
            source.layers.map((layer) =>
                el(
                    "optgroup",
                    { label: `Layer ${layer}` },
                    Array.from({ length: source.spec(layer).num_attention_heads }, (_, head) =>
                        el(
                            "option",
                            {
                                value: `${layer},${head}`,
                                selected: layer === second.layer && head === second.head,
                            },
                            `layer ${layer}, head ${head}`,
                        ),
                    ),
                ),
            ),
        );
    }

    async show() {
        const { source, layer } = this.panel.what;
        this.text.disabled = this.file.disabled = source.spec(layer).hidden_size === undefined;
        const { panel } = this;
        const { picture, what } = panel;
        if (!this.element.isConnected) this.host.append(this.element);
        const second = this.second();
        this.list(second);
        const other = await this.fetch(second, picture);
        if (!other || panel.picture !== picture || !this.element.isConnected) return;
        this.pictures = [picture, other, new Difference(picture, other)];
        const name = ({ layer, head, source }) => `Layer ${layer}, head ${head}, ${source.title}`;
        const titles = [name(what), name(second), "Difference, first less second"];
        titles.forEach((title, i) => (this.titles[i].textContent = title));
        this.paint(titles);
        this.describe(panel.map.selected);
    }

    /** The second picture; the one that is there where only colours or scale have changed. */
    async fetch(second, picture) {
        const there = this.pictures[1];
        const same = (name) => there?.[name] === second[name];
        const unchanged = ["source", "layer", "head", "kind", "stage"].every(same);
        if (unchanged && this.pictures[0] === picture) return there;
        const side = Math.round((this.host.clientWidth / 3) * devicePixelRatio);
        const pixels = picture.whole ? [side, side] : [picture.map.rows, picture.map.columns];
        return run("compare", `Layer ${second.layer}, head ${second.head}`, (signal) =>
            new Picture(second.source, second).fetch(pixels, signal),
        );
    }

    paint(titles) {
        const now = settings();
        const [first, second, difference] = this.pictures;
        const diverging = first.kind === "scores";
        const colors = mapNamed(now.colors, diverging);
        const values = new Float32Array(first.map.values.length + second.map.values.length);
        values.set(first.map.values);
        values.set(second.map.values, first.map.values.length);
        const shared = { scale: scaleOf(now.scale, values, { diverging }), colors };
        const kind = now.scale === "rank" ? "linear" : now.scale;
        const scale = scaleOf(kind, difference.map.values, { diverging: true });
        const looks = [shared, shared, { scale, colors: mapNamed("", true) }];
        this.pictures.forEach((picture, i) => {
            this.maps[i] ??= new Heatmap(this.hosts[i], {
                testid: `map-${["first", "second", "difference"][i]}`,
                onselect: (cell) => this.choose(cell),
                onhover: (cell) => this.point(cell, i),
                onarea: (area) => this.link(area, i),
            });
            this.maps[i].show(picture, looks[i].scale, looks[i].colors, titles[i]);
            showLegend(this.legends[i], looks[i], picture);
            this.maps[i].select(within(this.panel.map.selected, this.maps[i]), { quiet: true });
        });
        this.link(this.panel.map.area, -1);
    }

    /** Every map shows the area that one of them shows. */
    link(area, from) {
        this.maps.forEach((map, i) => i !== from && map.picture && map.setArea(area, true));
        if (from >= 0) this.panel.map.setArea(area);
    }

    point(cell, from) {
        this.maps.forEach((map, i) => {
            if (i === from) return;
            map.hovered = cell && within(cell, map);
            map.draw();
        });
        this.describe(cell ?? this.panel.map.selected);
    }

    choose(cell) {
        this.panel.map.select(cell && within(cell, this.panel.map));
        this.moved();
    }

    /** The numbers of a cell in both, or the largest difference. */
    describe(cell) {
        const [first, second, difference] = this.pictures;
        if (!difference) return;
        const { largest, whole } = difference;
        const at = whole
            ? `query ${largest.row} “${first.rowLabel(largest.row)}”, ` +
              `key ${largest.column} “${first.columnLabel(largest.column)}”`
            : "a pooled cell";
        const most = difference.comparable
            ? `Largest difference ${numberText(largest.value, 4)} at ${at}.`
            : "Pooled maps of inputs that differ in length have no difference.";
        const unequal =
            difference.comparable &&
            (first.rows !== second.rows || first.columns !== second.columns)
                ? " The inputs differ in length: the common part is compared."
                : "";
        const value = (picture) => {
            const there = cell && cell.row < picture.rows && cell.column < picture.columns;
            const number = there ? picture.valueAt(cell.row, cell.column) : undefined;
            return number === undefined ? "…" : numberText(number, 5);
        };
        const here = cell
            ? ` Query ${cell.row}, key ${cell.column}: ${value(first)} and ${value(second)}, ` +
              `difference ${value(difference)}.`
            : "";
        this.note.textContent = `${most}${here}${unequal}`;
    }
}

/** The cell, or the last one of the map that it has. */
function within(cell, { picture }) {
    if (!cell || cell.row >= picture.rows || cell.column >= picture.columns) return null;
    return cell;
}
