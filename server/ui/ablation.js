/**
 * ablation.js: what a layer's output loses without heads: those switched off, and each alone.
 *
 * The change is the Frobenius norm of the difference of two outputs, with and without head_mask,
 * over that of the output; the importance of each head comes from the daemon's `ablate`.
 */
import { integers, settings } from "./address.js";
import { relativeChange } from "./difference.js";
import { el, fill, numberText } from "./dom.js";
import { MOST_BYTES } from "./picture.js";
import { run } from "./status.js";

const percent = (share) => `${numberText(100 * share, 3)} %`;

async function changeOf(source, layer, fields, off, signal) {
    const { head_mask: mask, ...others } = fields;
    const spec = source.spec(layer);
    const ask = (more) => source.call(layer, { ...others, ...more, plain: true }, signal);
    if (4 * source.queries * spec.hidden_size <= MOST_BYTES) {
        const before = await ask({ outputs: ["output"] });
        const after = await ask({ outputs: ["output"], head_mask: mask });
        return relativeChange(before.output.data, after.output.data);
    }
    if (off.length > 1) return null;
    const reply = await ask({ outputs: ["head_stats"], ablate: true, heads: off });
    return reply.head_stats.flat()[0].ablation;
}

/** Writes into `host` how far the output changes by the heads that are off. */
export async function showChange(host, source, layer, fields) {
    const off = integers(settings().off);
    if (off.length === 0 || !fields.head_mask || source.lacks?.includes("ablation")) {
        host.textContent = "";
        return;
    }
    host.textContent = "…";
    const share = await run("change", "Output without heads", (signal) =>
        changeOf(source, layer, fields, off, signal),
    );
    if (share === undefined) return;
    host.dataset.value = share ?? "";
    host.textContent =
        share === null
            ? "The outputs are too large to compare; switch one head off at a time."
            : `Without ${off.length > 1 ? "heads" : "head"} ${off.join(", ")} the layer's output ` +
              `changes by ${percent(share)} of its Frobenius norm.`;
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
