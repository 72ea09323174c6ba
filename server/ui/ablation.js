/**
 * ablation.js: what changes in a layer and a head by what is changed, and without each head.
 *
 * The change is the Frobenius norm of the difference of two outputs, as the model has it and as it is
 * changed, over that of the output; the importance of each head comes from the daemon's `ablate`.
 */
import { integers, settings } from "./address.js";
import { imageOf, largestOf, mapNamed, scaleOf } from "./colors.js";
import { relativeChange } from "./difference.js";
import { el, fill, numberText } from "./dom.js";
import { MOST_BYTES, mapFields, tensorOf } from "./picture.js";
import { run } from "./status.js";

const SIDE = 96; // cells of a small map

const percent = (share) => `${numberText(100 * share, 3)} %`;

async function changeOf(source, layer, fields, off, signal) {
    const spec = source.spec(layer);
    const ask = (more) => source.call(layer, { ...more, plain: true }, signal);
    if (4 * source.queries * spec.hidden_size <= MOST_BYTES) {
        const before = await ask({ outputs: ["output"] });
        const after = await ask({ ...fields, outputs: ["output"] });
        return relativeChange(before.output.data, after.output.data);
    }
    if (off.length !== 1 || Object.keys(fields).length > 1) return null;
    const reply = await ask({ outputs: ["head_stats"], ablate: true, heads: off });
    return reply.head_stats.flat()[0].ablation;
}

/** Writes into `host` how far the output changes by what is changed in the layer. */
export async function showChange(host, source, layer, fields) {
    const off = integers(settings().off);
    delete host.dataset.value;
    host.textContent = "";
    if (Object.keys(fields).length === 0 || source.lacks?.includes("ablation")) return;
    host.textContent = "…";
    const share = await run("change", "Output as it is changed", (signal) =>
        changeOf(source, layer, fields, off, signal),
    );
    if (share === undefined) return;
    host.dataset.value = share ?? "";
    const alone = fields.head_mask && Object.keys(fields).length === 1;
    const how = alone
        ? `Without ${off.length > 1 ? "heads" : "head"} ${off.join(", ")}`
        : "With this";
    host.textContent =
        share === null
            ? "The outputs are too large to compare; switch one head off at a time."
            : `${how} the layer's output changes by ${percent(share)} of its Frobenius norm.`;
}

/** Draws into `host` the map of a head as the model has it and as it is changed, on one scale. */
export async function showBefore(host, { source, layer, head, kind, stage, fields }) {
    const { scale: kindOfScale, colors } = settings();
    if (Object.keys(fields).length === 0) return void fill(host);
    const pool = [source.queries, source.keys].map((size) => Math.min(size, SIDE));
    const asked = { ...mapFields(kind, stage, head), pool, plain: true };
    const maps = await run("before", "Before and after", (signal) =>
        Promise.all([{}, fields].map((more) => source.call(layer, { ...asked, ...more }, signal))),
    );
    if (!maps) return;
    const values = maps.map((reply) => tensorOf(reply, kind).data);
    const diverging = kind === "scores";
    const high = Math.max(...values.map(largestOf));
    const scale = scaleOf(kindOfScale, values[0], { diverging, high });
    fill(
        host,
        ["before", "after"].map((name, i) => {
            const canvas = el("canvas", {
                width: pool[1],
                height: pool[0],
                role: "img",
                "aria-label": `Head ${head} ${name}`,
                data: { testid: `before-${i}` },
            });
            const image = imageOf(values[i], ...pool, scale, mapNamed(colors, diverging));
            canvas.getContext("2d").putImageData(image, 0, 0);
            return el("figure", {}, canvas, el("figcaption", {}, name));
        }),
    );
}

/** A button, and what it gives: the importance of each head of the layer, as bars with numbers. */
export function importance(shown) {
    const host = el("div", { data: { testid: "importance-list" } });
    const compute = async () => {
        const { source, layer, fields } = shown();
        const reply = await run("importance", `Importance of heads of layer ${layer}`, (signal) => {
            const asked = { ...fields, outputs: ["head_stats"], ablate: true, plain: true };
            return source.call(layer, asked, signal);
        });
        if (!reply) return;
        const heads = reply.head_stats.flat();
        const most = Math.max(...heads.map((head) => head.ablation)) || 1;
        fill(
            host,
            el("table", { class: "statistics" }, [
                el("caption", {}, `Layer ${layer}: change of the output without each head`),
                el(
                    "tbody",
                    {},
                    heads.map(({ head, ablation }) =>
                        el("tr", {}, [
                            el("th", { scope: "row" }, `head ${head}`),
                            el("td", {}, percent(ablation)),
                            el(
                                "td",
                                {},
                                el("meter", {
                                    min: 0,
                                    max: most,
                                    value: ablation,
                                    "aria-label": `head ${head}`,
                                }),
                            ),
                        ]),
                    ),
                ),
            ]),
        );
    };
    const button = el(
        "button",
        { type: "button", data: { testid: "importance" }, onclick: compute },
        "Importance of each head",
    );
    return { button, host, clear: () => fill(host) };
}
