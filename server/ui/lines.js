/**
 * lines.js: one head as lines from queries (left) to keys (right), opaque by weight.
 *
 * Up to 64 tokens of each side are shown; of more, those around the selected cell, and the view
 * says so. Pointing at a token, or reaching it with the arrow keys, leaves its lines alone.
 */
import { around, fitted } from "./axes.js";
import { hexOf } from "./colors.js";
import { el, fill, numberText } from "./dom.js";
import { announce, run } from "./status.js";
import { elementOf, svg } from "./svg.js";

const HEIGHT = 20; // of a token
const FAINTEST = 0.02; // a line below this opacity is left out

export class LinesView {
    constructor(host, panel) {
        this.host = host;
        this.panel = panel;
        this.rows = [0, 0];
        this.columns = [0, 0];
        this.wide = 0;
        this.element = el("div", { class: "lines", data: { testid: "lines" } });
    }

    hide() {
        this.element.remove();
    }

    async show() {
        const { panel, host } = this;
        const { picture } = panel;
        const cell = panel.map.selected ?? {
            row: picture.rows - 1,
            column: picture.keys - 1,
        };
        this.rows = around(cell.row, picture.rows);
        this.columns = around(cell.column, picture.keys);
        const area = {
            row0: this.rows[0],
            row1: this.rows[1],
            column0: this.columns[0],
            column1: this.columns[1],
        };
        const wanted = picture.wanted(area);
        if (wanted)
            await run("detail", "Rows of lines", (signal) => picture.fetchDetail(wanted, signal));
        if (panel.picture !== picture) return;
        if (!this.element.isConnected) host.append(this.element);
        this.draw();
    }

    /** The selected cell moved: the tokens shown move with it where it has left them. */
    moved() {
        const cell = this.panel.map.selected;
        if (!cell) return;
        const out = (place, /** @type {number[]} */ [begin, end]) => place < begin || place >= end;
        if (out(cell.row, this.rows) || out(cell.column, this.columns)) this.show();
    }

    /** @returns {object} the tree of the drawing, which is exported too */
    tree() {
        const { panel, rows, columns } = this;
        const { picture, looks } = panel;
        const width = Math.max(300, Math.min(720, this.host.clientWidth || 600));
        const side = Math.min(150, width / 3);
        const height = HEIGHT * Math.max(rows[1] - rows[0], columns[1] - columns[0]) + 8;
        const y = (place, /** @type {number[]} */ [begin]) => 4 + (place - begin + 0.5) * HEIGHT;
        const lines = [];
        const { scale } = looks;
        const ink = (value) =>
            picture.kind === "weights" ? "currentColor" : hexOf("bluered", value < 0 ? 0.12 : 0.88);
        for (let r = rows[0]; r < rows[1]; r++)
            for (let c = columns[0]; c < columns[1]; c++) {
                const value = picture.valueAt(r, c);
                if (value === undefined || picture.isHidden(r, c)) continue;
                const unit = scale.unit(value);
                const opacity = scale.diverging ? Math.abs(2 * unit - 1) : unit;
                if (!(opacity >= FAINTEST)) continue;
                lines.push(
                    svg("line", {
                        x1: side,
                        y1: y(r, rows),
                        x2: width - side,
                        y2: y(c, columns),
                        stroke: ink(value),
                        "stroke-width": 1.6,
                        "stroke-opacity": opacity,
                        class: `line q${r} k${c}`,
                    }),
                );
            }
        const attributes = { "font-family": "sans-serif", "font-size": 12, width, height };
        return svg("svg", { ...attributes, viewBox: `0 0 ${width} ${height}` }, [
            svg("g", { class: "line-group" }, lines),
            ...this.tokens("q", rows, side, (r) => picture.rowLabel(r), y),
            ...this.tokens("k", columns, side, (c) => picture.columnLabel(c), y, width),
        ]);
    }

    tokens(kind, places, side, label, y, width) {
        const tokens = [];
        for (let place = places[0]; place < places[1]; place++) {
            const [x, anchor] = kind === "q" ? [side - 6, "end"] : [width - side + 6, "start"];
            const text = fitted(label(place), side - 10, (letters) => 6.8 * [...letters].length);
            const at = y(place, places);
            tokens.push(
                svg("g", { class: "token", "data-side": kind, "data-place": place }, [
                    svg("rect", {
                        x: kind === "q" ? 0 : width - side,
                        y: at - HEIGHT / 2,
                        width: side,
                        height: HEIGHT,
                        fill: "transparent",
                    }),
                    svg(
                        "text",
                        { x, y: at + 4, "text-anchor": anchor, fill: "currentColor" },
                        text,
                    ),
                ]),
            );
        }
        return tokens;
    }

    draw() {
        const { picture, what } = this.panel;
        const drawing = /** @type {SVGElement} */ (elementOf(this.tree()));
        drawing.setAttribute("role", "group");
        drawing.setAttribute("aria-label", `Lines of layer ${what.layer}, head ${what.head}`);
        const part = (/** @type {number[]} */ [begin, end], count, name) =>
            end - begin < count ? `${name} ${begin} to ${end - 1} of ${count}` : "";
        const parts = [
            part(this.rows, picture.rows, "queries"),
            part(this.columns, picture.keys, "keys"),
        ].filter(Boolean);
        const note =
            parts.length > 0 ? `Shown are ${parts.join(" and ")}, around the selected cell. ` : "";
        const appended = picture.columns > picture.keys ? "Appended columns have no line. " : "";
        const sinks = picture.sinks ? "What the sink takes has no line. " : "";
        fill(this.element, [
            el(
                "p",
                { class: "muted" },
                `${note}${appended}${sinks}Queries left, keys right: the stronger a line, the larger its number.`,
            ),
            el("div", { class: "lines-sides" }, drawing),
        ]);
        this.follow(drawing);
    }

    /** Pointer and keys: one token's lines alone. */
    follow(drawing) {
        const tokens = [...drawing.querySelectorAll(".token")];
        const lines = [...drawing.querySelectorAll(".line")];
        const only = (token) => {
            const name = token && `${token.dataset.side}${token.dataset.place}`;
            drawing.classList.toggle("one", Boolean(token));
            for (const line of lines)
                line.classList.toggle("on", Boolean(name) && line.classList.contains(name));
            for (const other of tokens) other.classList.toggle("on", other === token);
        };
        tokens.forEach((token, i) => {
            token.setAttribute("tabindex", i === 0 ? "0" : "-1");
            token.setAttribute("role", "img");
            token.setAttribute("aria-label", this.tokenText(token));
            token.addEventListener("pointerenter", () => only(token));
            token.addEventListener("pointerleave", () => only(null));
            token.addEventListener("blur", () => only(null));
            token.addEventListener("focus", () => {
                only(token);
                announce(this.tokenText(token));
            });
            token.addEventListener("keydown", (event) => {
                const queries = this.rows[1] - this.rows[0];
                const across = i < queries ? i + queries : i - queries;
                const to = {
                    ArrowUp: i - 1,
                    ArrowDown: i + 1,
                    ArrowLeft: across,
                    ArrowRight: across,
                };
                const next = tokens[to[event.key]];
                if (!next) return;
                event.preventDefault();
                token.setAttribute("tabindex", "-1");
                next.setAttribute("tabindex", "0");
                next.focus();
            });
        });
    }

    /** A token and the strongest of its lines, as text. */
    tokenText({ dataset: { side, place } }) {
        const { picture } = this.panel;
        const isQuery = side === "q";
        const others = isQuery ? this.columns : this.rows;
        let best = null;
        for (let other = others[0]; other < others[1]; other++) {
            const [row, column] = isQuery ? [Number(place), other] : [other, Number(place)];
            const value = picture.valueAt(row, column);
            if (
                value !== undefined &&
                !picture.isHidden(row, column) &&
                (!best || value > best.value)
            )
                best = { value, other };
        }
        const own = isQuery ? picture.rowLabel(Number(place)) : picture.columnLabel(Number(place));
        const name = `${isQuery ? "query" : "key"} ${place} ${own}`;
        if (!best) return `${name}: nothing`;
        const far = isQuery ? picture.columnLabel(best.other) : picture.rowLabel(best.other);
        return (
            `${name}: most with ${isQuery ? "key" : "query"} ${best.other} ${far}, ` +
            numberText(best.value, 4)
        );
    }
}
