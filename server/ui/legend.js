/**
 * legend.js: what the colours beside a map stand for, as a picture with its text.
 */
import { el, fill, numberText } from "./dom.js";
import { elementOf, legend, svg } from "./svg.js";

/** Shows the legend of a picture's scale and colours in `host`. */
export function showLegend(host, { scale, colors }, picture) {
    const width = Math.max(180, Math.min(360, 0.45 * (host.clientWidth || 800)));
    const note = `${scale.kind} to ${numberText(scale.high, 3)}${scale.note && `; ${scale.note}`}`;
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
        el("span", { class: "muted" }, note),
        pooled && el("span", { class: "muted" }, pooled),
        picture.masked
            ? el("span", { class: "muted" }, hatched, " cannot be attended")
            : null,
    );
}
