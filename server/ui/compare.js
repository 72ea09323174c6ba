/**
 * compare.js: two heads, of one model or of two, or one head of two inputs, side by side with their
 * difference.
 *
 * The maps share scale, area and selected cell. Both are fetched by the rules of picture.js; where
 * they are pooled, so is the difference. Of inputs of unequal length the common part is compared.
 */
import { models } from "./client.js";
import { combined } from "./combined.js";
import { mapNamed, scaleOf } from "./colors.js";
import { integers, set, settings } from "./address.js";
import { Difference } from "./difference.js";
import { el, fill, labelled, numberText } from "./dom.js";
import { captureOf, open, rowsShape } from "./files.js";
import { Heatmap, showLegend } from "./heatmap.js";
import { Picture } from "./picture.js";
import { tokensOf } from "./rows.js";
import { captureSupply, rowsSource, takesRows, tensorSupply, tokenSupply } from "./source.js";
import { run, showError } from "./status.js";
import { groupNamed, weightsSource } from "./weights.js";

/** @typedef {import("./source.js").Source} Source */

/** @returns {Promise<import("./source.js").Source>} `model` over the rows of a file */
async function sourceOfFile(model, layers, file) {
    const opened = await open(file, file.name);
    const capture = captureOf(opened);
    if (capture) return rowsSource(model, captureSupply(file.name, capture), null, layers);
    const width = model.hidden_size;
    const entry = opened.entries.find((one) => rowsShape(one)?.[1] === width);
    if (!entry) throw new Error(`${file.name}: there is no tensor [tokens, ${width}]`);
    return rowsSource(model, tensorSupply(file.name, entry), null, layers);
}

/** @returns {Promise<Source>} weights of a file; undefined where it has none, which is told */
function weightsOfFile(file) {
    return run("comparison", `Reading ${file.name}`, async (signal, progress) => {
        const opened = await open(file, file.name);
        return weightsSource(opened, groupNamed(opened)[1], null, signal, progress);
    });
}

export class CompareView {
    constructor(host, panel) {
        this.host = host;
        this.panel = panel;
        this.other = null;
        this.maps = [];
        this.pictures = [];
        this.made = {}; // the source of another model: {base, name, source}
        this.paired = {}; // the other source, its heads combined as those of the first
        this.model = el("select", {
            data: { testid: "compare-model" },
            onchange: () => {
                this.other = null;
                set({ with: "", with_model: this.base.local ? "" : this.model.value });
                if (this.base.local) this.show();
            },
        });
        this.with = el("select", {
            data: { testid: "compare-with" },
            onchange: () => {
                if (!this.other?.local) this.other = null;
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
                labelled("of", this.model),
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

    /** What is looked at, before its heads are combined. */
    get base() {
        const { source } = this.panel.what;
        return source.way ? source.base : source;
    }

    async take(make) {
        try {
            const made = await make(this.base.model, this.panel.what.layer);
            if (!made) return;
            this.other = made;
            await this.show();
        } catch (/** @type {any} */ error) {
            showError("compare", error);
        }
    }

    takeText() {
        const tokens = this.text.value;
        if (tokens.trim() !== "")
            this.take((model, layer) => {
                const supply = tokenSupply(tokensOf(tokens), settings().seed);
                return rowsSource(model, supply, null, this.layersUpTo(layer));
            });
    }

    takeFile() {
        const [file] = this.file.files;
        if (file && this.base.local) this.take(() => weightsOfFile(file));
        else if (file)
            this.take((model, layer) => sourceOfFile(model, this.layersUpTo(layer), file));
    }

    /** The layers that another input needs: combined ones are made of several. */
    layersUpTo(layer) {
        const { source } = this.panel.what;
        return source.way ? source.layers : [layer];
    }

    /** The same rows in another model, where the settings name one. */
    ofModel() {
        const { base, made } = this;
        const name = settings().with_model;
        const model = models().find((one) => one.name === name);
        if (!model || model === base.model || !base.supply || base.kind !== "rows") return null;
        if (made.base !== base || made.name !== name) {
            const source = rowsSource(model, base.supply, base.encoder);
            this.made = { base, name, source };
        }
        return this.made.source;
    }

    /** The models that take the same rows. */
    fitting() {
        const { model: own, supply, encoder, kind } = this.base;
        if (kind !== "rows") return [own];
        return models().filter((one) => one === own || takesRows(one, supply, encoder));
    }

    // ---- What is compared ----

    /** Another source, its heads combined as those of the first. */
    inWay(other) {
        const way = this.panel.what.source.way ?? "";
        if (this.paired.other !== other || this.paired.way !== way)
            this.paired = { other, way, source: combined(other, way) };
        return this.paired.source;
    }

    /** What the second map is of. */
    second() {
        const { what } = this.panel;
        const other = this.other ?? this.ofModel();
        const source = other ? this.inWay(other) : what.source;
        if (other === this.other && other && !other.local)
            return { ...what, ...this.same(source), source };
        if (!other && settings().with === "model") return { ...what, fields: {}, asModel: true };
        const [layer, head] = integers(settings().with);
        const there = head >= 0 && source.layers.includes(layer);
        const known = there && head < source.spec(layer).num_attention_heads;
        const otherwise = other ? this.same(source) : this.next();
        const chosen = known ? { layer, head } : otherwise;
        const fields = other ? {} : source.modifiers(chosen.layer);
        return { ...what, ...chosen, source, fields };
    }

    /** The head of another source that is at the place of the open one, or nearest to it. */
    same(source) {
        const { layer, head } = this.panel.what;
        const nearest = source.layers.includes(layer) ? layer : source.layers.at(-1);
        return {
            layer: nearest,
            head: Math.min(head, source.spec(nearest).num_attention_heads - 1),
        };
    }

    /** The next head of the layer; of the next layer, where it has one. */
    next() {
        const { layer, head, source } = this.panel.what;
        const heads = source.spec(layer).num_attention_heads;
        if (heads > 1) return { layer, head: (head + 1) % heads };
        return {
            layer: source.layers[(source.layers.indexOf(layer) + 1) % source.layers.length],
            head,
        };
    }

    /** Offers the models, or the files, that the second map may be of, and their heads. */
    list(second) {
        const { source } = second;
        const { base, other } = this;
        const chosen = settings().with_model || base.model.name;
        const options = base.local
            ? [base, other].filter(Boolean).map(({ title }) => [title, title === other?.title])
            : this.fitting().map(({ name }) => [name, name === chosen]);
        fill(
            this.model,
            options.map(([value, selected]) => el("option", { value, selected }, value)),
        );
        this.model.closest("label").hidden = options.length < 2;
        this.text.closest("label").hidden = Boolean(base.local);
        const itself = { value: "model", selected: second.asModel };
        fill(
            this.with,
            other || base.local ? null : el("option", itself, "itself, as the model has it"),
            source.layers.map((layer) =>
                el(
                    "optgroup",
                    { label: `Layer ${layer}` },
                    Array.from({ length: source.spec(layer).num_attention_heads }, (_, head) =>
                        el(
                            "option",
                            {
                                value: `${layer},${head}`,
                                selected:
                                    !second.asModel &&
                                    layer === second.layer &&
                                    head === second.head,
                            },
                            source.headName(layer, head).toLowerCase(),
                        ),
                    ),
                ),
            ),
        );
    }

    async show() {
        const { layer } = this.panel.what;
        const isWeightless = this.base.spec(layer).hidden_size === undefined;
        this.text.disabled = isWeightless;
        this.file.disabled = isWeightless && !this.base.local;
        const { panel } = this;
        const { picture, what } = panel;
        if (!this.element.isConnected) this.host.append(this.element);
        let second;
        try {
            second = this.second();
        } catch (/** @type {any} */ error) {
            set({ with_model: "" }); // which shows the model's own heads again
            showError("compare", error);
            return;
        }
        this.list(second);
        const other = await this.fetch(second, picture);
        if (!other || panel.picture !== picture || !this.element.isConnected) return;
        this.pictures = [picture, other, new Difference(picture, other)];
        const isOther = second.source.model.name !== what.source.model.name;
        const name = ({ layer, head, source, asModel }) =>
            `${isOther ? `${source.model.name}: ` : ""}${source.headName(layer, head)}, ` +
            (asModel ? "as the model has it" : source.title);
        const titles = [name(what), name(second), "Difference, first less second"];
        titles.forEach((title, i) => (this.titles[i].textContent = title));
        this.paint(titles);
        this.describe(panel.map.selected);
    }

    /** The second picture; the one that is there where only colours or scale have changed. */
    async fetch(second, picture) {
        const there = this.pictures[1];
        const same = (name) => there?.[name] === second[name];
        const unchanged =
            ["source", "layer", "head", "kind", "stage"].every(same) &&
            JSON.stringify(there.fields) === JSON.stringify(second.fields);
        if (unchanged && this.pictures[0] === picture) return there;
        const side = Math.round((this.host.clientWidth / 3) * devicePixelRatio);
        const pixels = picture.whole ? [side, side] : [picture.map.rows, picture.map.columns];
        return run("compare", second.source.headName(second.layer, second.head), (signal) =>
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
