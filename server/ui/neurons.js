/**
 * neurons.js: why a query scores a key: the product of their vectors, component by component.
 *
 * For the selected query: its vector, the vector of each key and their products as colours; the sum
 * of the products times the layer's scale is the raw score, and is compared with the API's.
 */
import { around } from "./axes.js";
import { imageOf, scaleOf } from "./colors.js";
import { productsOf } from "./difference.js";
import { el, fill, numberText } from "./dom.js";
import { MOST_BYTES } from "./picture.js";
import { run } from "./status.js";

const MOST_DIFFERENCE = 1e-5;

/** Numbers as a bar of colours, one for each component. */
function colorBar(values, scale, name, describe) {
    const canvas = el("canvas", { class: "bar", role: "img", "aria-label": name });
    canvas.width = values.length;
    canvas.height = 1;
    const image = imageOf(values, 1, values.length, scale, "bluered");
    canvas.getContext("2d").putImageData(image, 0, 0);
    canvas.addEventListener("pointermove", (event) => {
        const box = canvas.getBoundingClientRect();
        const at = Math.floor(((event.clientX - box.left) / box.width) * values.length);
        describe(Math.min(values.length - 1, Math.max(0, at)));
    });
    return canvas;
}

export class NeuronView {
    constructor(host, panel) {
        this.host = host;
        this.panel = panel;
        this.element = el("div", { class: "neurons", data: { testid: "neurons" } });
    }

    hide() {
        this.element.remove();
    }

    moved() {
        this.show();
    }

    say(text) {
        fill(this.element, el("p", { class: "muted" }, text));
    }

    /** Fetches the query's vector, the keys' and their raw scores, and shows them. */
    async show() {
        const { panel, host } = this;
        const { what, picture } = panel;
        if (!this.element.isConnected) host.append(this.element);
        const { source, layer, head, fields } = what;
        if (source.lacks?.includes("query")) {
            this.say("This source has no query vectors: choose rows, or a step of a session.");
            return;
        }
        const spec = source.spec(layer);
        const bytes = 4 * spec.num_key_value_heads * source.keys * spec.head_dim;
        if (bytes > MOST_BYTES) {
            this.say(
                `The keys of this layer are ${(bytes / 1e6).toFixed(1)} MB, above the 8 MB that ` +
                    "this page fetches at once: look at fewer tokens.",
            );
            return;
        }
        const row = panel.map.selected?.row ?? picture.rows - 1;
        const reply = await run("neurons", `Components of query ${row}`, (signal) =>
            source.call(
                layer,
                {
                    ...fields,
                    outputs: ["query", "key", "attention_scores"],
                    heads: [head],
                    rows: [row],
                    stage: "raw",
                    plain: true,
                },
                signal,
            ),
        );
        if (reply && panel.what === what) this.draw(reply, row, spec);
    }

    draw(reply, row, spec) {
        const { picture, what } = this.panel;
        const { data: query } = reply.query;
        const width = query.length;
        const group = Math.floor((what.head * spec.num_key_value_heads) / spec.num_attention_heads);
        const at = (key) => (group * picture.keys + key) * width;
        const column = this.panel.map.selected?.column ?? picture.keys - 1;
        const [begin, end] = around(Math.min(column, picture.keys - 1), picture.keys);
        const keys = [];
        for (let key = begin; key < end; key++) {
            const vector = reply.key.data.subarray(at(key), at(key) + width);
            const score = reply.attention_scores.data[key];
            keys.push({ key, vector, score, ...productsOf(query, vector, spec.scale) });
        }
        const all = (name) => keys.flatMap((entry) => [...entry[name]]);
        const scales = {
            query: scaleOf("linear", query, { diverging: true }),
            key: scaleOf("linear", all("vector"), { diverging: true }),
            products: scaleOf("linear", all("products"), { diverging: true }),
        };
        const note = el(
            "p",
            { class: "cell", data: { testid: "component" } },
            "Blue is below 0, red above: point at a component for its numbers.",
        );
        fill(this.element, [
            el("p", { class: "muted" }, this.caption(row, keys, spec)),
            note,
            this.table(row, query, keys, scales, note),
        ]);
    }

    caption(row, keys, spec) {
        const { picture } = this.panel;
        const worst = Math.max(...keys.map(({ sum, score }) => Math.abs(sum - score)));
        const off =
            worst > MOST_DIFFERENCE
                ? ` The sums differ from the API's raw scores by up to ${numberText(worst, 3)}.`
                : "";
        const some =
            keys.length < picture.keys
                ? ` Shown are keys ${keys[0].key} to ${keys.at(-1).key} of ${picture.keys}.`
                : "";
        const scale = numberText(spec.scale);
        return (
            `Query ${row} “${picture.rowLabel(row)}”: score = ${scale} × the sum ` +
            `of query × key over ${keys[0].vector.length} components.${some}${off}`
        );
    }

    table(row, query, keys, scales, note) {
        const { picture } = this.panel;
        const show =
            ({ key, vector, products }) =>
            (i) => {
                note.textContent =
                    `component ${i}: query ${numberText(query[i])} × key ${key} ` +
                    `${numberText(vector[i])} = ${numberText(products[i])}`;
            };
        const alone = (i) => {
            note.textContent = `component ${i}: query ${numberText(query[i])}`;
        };
        const line = (entry) => {
            const { key, vector, products, sum, score } = entry;
            const name = `key ${key} ${picture.columnLabel(key)}`;
            const hidden = picture.kind === "weights" && picture.isHidden(row, key);
            return el("tr", { class: hidden ? "muted" : null }, [
                el("th", { scope: "row" }, picture.columnLabel(key)),
                el("td", {}, colorBar(vector, scales.key, `vector of ${name}`, show(entry))),
                el(
                    "td",
                    {},
                    colorBar(products, scales.products, `products with ${name}`, show(entry)),
                ),
                el("td", { data: { value: sum } }, numberText(sum, 5)),
                el("td", { data: { value: score } }, numberText(score, 5)),
            ]);
        };
        const title = (text) => el("th", { scope: "col" }, text);
        return el("table", { class: "neuron-table" }, [
            el("thead", {}, [
                el("tr", {}, [
                    el("th", { scope: "row" }, "query"),
                    el("td", {}, colorBar(query, scales.query, "vector of the query", alone)),
                    el("td", {}),
                    el("td", {}),
                    el("td", {}),
                ]),
                el("tr", {}, ["key", "its vector", "query × key", "sum", "raw score"].map(title)),
            ]),
            el("tbody", {}, keys.map(line)),
        ]);
    }
}
