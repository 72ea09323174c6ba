/**
 * chart.js: small lines over time on a canvas.  The numbers stand in text beside each chart, which
 * its maker writes; the canvas is hidden from screen readers.
 */
import { el } from "./dom.js";

const HEIGHT = 96; // CSS pixels
const LEFT = 52; // room of the scale's numbers
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]]; // by series, so that colour is not all

/** The least 1, 2 or 5 times a power of ten that is not below `value`. */
export function roundUp(value) {
    if (!(value > 0)) return 1;
    const unit = 10 ** Math.floor(Math.log10(value));
    return [1, 2, 5, 10].map((times) => times * unit).find((bound) => bound >= value * (1 - 1e-9));
}

/** The colour of the i-th series, as CSS has it. */
export const seriesColor = (i) => `var(--series-${i + 1})`;

export class Chart {
    /**
     * @param {object} how
     * @param {number} how.points kept of each series
     * @param {number} how.series their number
     * @param {(value: number) => string} how.text of a number of the scale
     * @param {number} [how.least] that the top of the scale is at least
     */
    constructor({ points, series, text, least = 0 }) {
        this.points = points;
        this.text = text;
        this.least = least;
        this.values = Array.from({ length: series }, () => []);
        this.canvas = el("canvas", { class: "chart", "aria-hidden": "true" });
        new ResizeObserver(() => this.draw()).observe(this.canvas);
    }

    /** Adds one value for each series; null is a gap. */
    add(values) {
        values.forEach((value, i) => {
            this.values[i].push(value);
            if (this.values[i].length > this.points) this.values[i].shift();
        });
        this.draw();
    }

    draw() {
        const width = this.canvas.clientWidth,
            ratio = devicePixelRatio;
        if (width === 0) return;
        this.canvas.width = Math.round(width * ratio);
        this.canvas.height = Math.round(HEIGHT * ratio);
        const context = this.canvas.getContext("2d"),
            style = getComputedStyle(this.canvas),
            top = roundUp(Math.max(this.least, ...this.values.flat().filter((v) => v !== null)));
        context.scale(ratio, ratio);
        this.#drawScale(context, style, width, top);
        this.values.forEach((values, i) => {
            context.strokeStyle = style.getPropertyValue(`--series-${i + 1}`);
            context.setLineDash(DASHES[i % DASHES.length]);
            this.#drawLine(context, values, width, top);
        });
    }

    #drawScale(context, style, width, top) {
        context.fillStyle = style.getPropertyValue("--muted");
        context.strokeStyle = style.getPropertyValue("--line");
        context.font = `11px ${style.fontFamily}`;
        context.textAlign = "right";
        context.textBaseline = "middle";
        for (const share of [0, 0.5, 1]) {
            const y = this.#y(share);
            context.fillText(this.text(top * share), LEFT - 6, y);
            context.beginPath();
            context.moveTo(LEFT, Math.round(y) + 0.5);
            context.lineTo(width, Math.round(y) + 0.5);
            context.stroke();
        }
    }

    #y(share) {
        return HEIGHT - 8 - share * (HEIGHT - 16);
    }

    #drawLine(context, values, width, top) {
        const step = (width - LEFT) / (this.points - 1),
            first = this.points - values.length;
        let pen = false;
        context.lineWidth = 1.75;
        context.beginPath();
        values.forEach((value, i) => {
            const x = LEFT + (first + i) * step,
                y = this.#y(value / top);
            if (value !== null && !pen) context.moveTo(x - 1, y); // a value alone is a dot
            if (value !== null) context.lineTo(x, y);
            pen = value !== null;
        });
        context.stroke();
        context.setLineDash([]);
    }
}
