/**
 * head_told.js: what is said of the open head: its name, the cell, three sentences, the statistics.
 */
import { fitted } from "./axes.js";
import { statisticsTable } from "./controls.js";
import { cellSentence, tellingCell } from "./demo.js";
import { afterPause, el, fill, numberText } from "./dom.js";
import { shortest } from "./formats.js";
import { successors } from "./rows.js";
import { announce } from "./status.js";
import { patterns } from "./words.js";

/** A place with its label, where that says more. */
function named(place, label) {
    if (label === String(place)) return label;
    return `${place} “${fitted(label, 60, (text) => [...text].length)}”`;
}

export class Told {
    /** @param {object} panel the HeadPanel, whose picture and map are described */
    constructor(panel) {
        this.panel = panel;
        this.title = el("h2", { data: { testid: "head-title" } });
        this.cell = el("p", { class: "cell", data: { testid: "cell" } });
        this.story = el("p", { class: "story", data: { testid: "story" }, hidden: true });
        this.stats = el("div", {});
        this.say = afterPause(() => announce(this.cell.textContent), 400);
    }

    /** Rings the cell that shows best what a head of the demonstration model does. */
    choose() {
        const {
            picture,
            map,
            what: { source },
        } = this.panel;
        if (source.told && !map.selected && picture.whole)
            map.select(tellingCell(picture, successors(source.keyLabels)));
    }

    /** Three sentences about a head of the demonstration model: what is seen, and where. */
    tell() {
        const { picture, what } = this.panel;
        const told = what?.source.told;
        const height = this.story.offsetHeight;
        const isModel = what?.kind === "weights" && Object.keys(what.fields).length === 0;
        this.story.hidden = !told || !picture?.stats || !isModel;
        if (!this.story.hidden) this.fillStory(told);
        if (this.story.offsetHeight !== height) this.panel.map.resize(); // to what the story leaves of the window
    }

    fillStory(told) {
        const {
            picture,
            map,
            what: { layer, head, source },
        } = this.panel;
        const heads = source.layers.length * source.spec(layer).num_attention_heads;
        const own = told.find((one) => one.layer === layer && one.head === head);
        const { pattern } = picture;
        const cell = map.selected;
        fill(
            this.story,
            el(
                "span",
                {},
                `One of ${heads} attention heads of a small language model: each row is a token ` +
                    "that looks (query), bright cells are the tokens it looks at (keys). ",
            ),
            el(
                "span",
                {},
                el("b", {}, own?.name ?? pattern),
                ": ",
                own?.text ?? `${patterns[pattern][0]}.`,
                " ",
            ),
            cell && picture.valueAt(cell.row, cell.column) !== undefined
                ? el("span", {}, cellSentence(picture, cell))
                : null,
        );
    }

    /** The statistics, once they are there, and the pattern in the title. */
    showStats() {
        const { picture, what, map, headName: name } = this.panel;
        this.title.textContent = picture.stats ? `${name}: ${picture.pattern}` : name;
        const shown = picture.stats && { ...picture.stats, pattern: picture.pattern };
        fill(this.stats, shown ? statisticsTable(shown, name, what.source) : []);
        map.canvas.setAttribute("aria-label", this.name());
    }

    /** What the map is, for screen readers. */
    name() {
        const { picture, what, headName } = this.panel;
        const kind = what.kind === "weights" ? "attention weights" : `${what.stage} scores`;
        const pattern = picture.stats ? `, pattern ${picture.pattern}` : "";
        return (
            `${headName}${pattern}: ${kind}, ` +
            `${picture.rows} queries by ${picture.columns} keys. ` +
            "Arrow keys move between cells, plus and minus zoom, question mark lists all keys."
        );
    }

    /** Writes the cell that is pointed at, else the selected one, with its exact number. */
    describe() {
        const { picture, map, rows } = this.panel;
        const cell = map.hovered ?? map.selected;
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
        if (value === undefined) rows.fetch(row);
        else if (!picture.whole) rows.fetchAhead(row);
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
}
