/**
 * overview.js: all heads of all layers as thumbnails: sorted, coloured and filtered by statistics.
 *
 * Each layer is one call: maps pooled to 96 x 96 cells and `head_stats`. Replies are painted as
 * soon as they come. A thumbnail is one button with one small canvas; buttons that are out of sight
 * are not laid out (content-visibility). A pointer or the focus previews a head, a click opens it.
 */
import { listen, set, settings } from "./address.js";
import { shownText } from "./axes.js";
import { canCombine, ways } from "./combined.js";
import { hexOf, imageOf, inkOn, mapNamed, rgbOf, scaleOf } from "./colors.js";
import { byId, el, fill, labelled, numberText, putBeside, select } from "./dom.js";
import { downloadFigure } from "./figure.js";
import { groupOf, successors } from "./rows.js";
import { current, onSource } from "./source.js";
import { available, patternOf, rangeOf, sorted, statistics, tells, valueOf } from "./statistics.js";
import { run, showError } from "./status.js";
import { patterns } from "./words.js";
import { part } from "./store.js";

const SIDE = 96; // cells of a thumbnail
const AT_ONCE = 2; // calls in flight
const SIZES = [12, 20, 32, 48, 72, 112, 168, 240]; // pixels of a thumbnail
const MANY = 20; // heads of a layer, of which not each number has room
const SHORT = {
    previous: "prev.",
    global: "glob.",
    positional: "pos.",
    focused: "focus",
    induction: "ind.",
    bracket: "brkt.",
};

const state = part("overview", {
    heads: [], // {layer, head, values, rows, columns, stats, button, canvas, caption}
    asked: [], // statistics beyond the usual ones: "ablation", "target", "group"
    grid: [], // what stands in the grid: whether by layers, and the heads in order
    source: null,
    loads: 0,
    fine: false, // maps have been asked for as FP16, not as bytes
});
const parts = {}; // elements of this panel by name

// ---- What is asked for ------------------------------------------------------------------------

/** Targets of the setting for a source: {fields, asked, note}. */
function targetsOf(name) {
    const none = (note) => ({ fields: {}, asked: [], note });
    if (name === "") return none("");
    const before = state.source.keys - state.source.queries; // keys that stand before the first query
    if (name === "induction") {
        if (state.source.encoder) return none("Queries and keys are different sequences.");
        const targets = successors(state.source.keyLabels).slice(before),
            rows = targets.filter((target) => target >= 0).length;
        if (rows === 0) return none("No token is there a second time.");
        const note = `Target of ${rows} rows: what followed the token's last occurrence.`;
        return { fields: { targets }, asked: ["target"], note };
    }
    const group = groupOf(name, state.source.keyLabels);
    if (group.length === 0) return none("No token is in that group.");
    const note = `${group.length} of ${state.source.keys} keys are in the group.`;
    return { fields: { target_groups: [group] }, asked: ["group"], note };
}

/** The fields of a call for thumbnails, without the outputs. */
function statisticFields() {
    const { targets, ablate } = settings();
    const chosen = targetsOf(targets);
    const importance = ablate === "1" && !state.source.lacks.includes("ablation");
    parts.note.textContent = chosen.note;
    state.asked = [...chosen.asked, ...(importance ? ["ablation"] : [])];
    return { ...chosen.fields, ...(importance ? { ablate: true } : {}) };
}

/** Calls `work(item)` for all items, a few at once; after the first error no more are begun. */
async function each(items, work) {
    const waiting = [...items];
    const worker = async () => {
        while (waiting.length > 0) await work(waiting.shift());
    };
    try {
        await Promise.all(Array.from({ length: AT_ONCE }, worker));
    } finally {
        waiting.length = 0;
    }
}

/** Asks for the layers' statistics, and for their maps unless they are there. */
function load({ maps = true } = {}) {
    const from = state.source,
        number = ++state.loads,
        extra = statisticFields(),
        fields = { outputs: ["head_stats"], plain: true, ...extra };
    if (maps || state.heads.some(({ values }) => !values)) {
        fields.outputs.push("attention_weights");
        const { pool: pool_type } = settings();
        state.fine ||= settings().scale !== "linear"; // bytes would do as steps of one scale alone
        const map_datatype = state.fine ? "FP16" : "UINT8";
        Object.assign(fields, { pool: [SIDE, SIDE], pool_type, map_datatype });
    }
    parts.grid.setAttribute("aria-busy", "true");
    parts.unfinished.hidden = true;
    const work = run("overview", "Looking at all heads", async (signal, progress) => {
        let done = 0;
        await each(from.layers, async (layer) => {
            const reply = await from.call(layer, fields, signal);
            if (signal.aborted || from !== state.source) return;
            take(layer, reply);
            progress(++done, from.layers.length);
        });
        if (!signal.aborted) arrange();
        return true;
    });
    work.then((whole) => {
        if (number !== state.loads) return;
        parts.grid.setAttribute("aria-busy", "false");
        parts.unfinished.hidden = whole === true;
    });
}

/** Keeps and paints the reply of a layer. */
function take(layer, { attention_weights: maps, head_stats: stats }) {
    const [, rows, columns] = maps?.shape ?? [];
    state.source.stats.set(layer, { queries: state.source.queries, heads: stats });
    for (const entry of state.heads.filter((head) => head.layer === layer)) {
        entry.stats = stats[entry.head];
        if (maps) {
            const begin = entry.head * rows * columns;
            entry.values = maps.data.slice(begin, begin + rows * columns);
            Object.assign(entry, { rows, columns });
            paint(entry);
        }
        entry.pattern = patternOf(entry.stats, entry, state.source);
        describe(entry);
    }
}

// ---- Thumbnails ---------------------------------------------------------------------------------

/** The scale of a map of its own; ranks are those among cells that have some weight. */
function ownScale(values) {
    const { scale } = settings();
    return scaleOf(scale, scale === "rank" ? values.filter((value) => value > 0) : values);
}

function paint({ canvas, values, rows, columns }) {
    if (!values) return;
    Object.assign(canvas, { width: columns, height: rows });
    const colors = mapNamed(settings().colors, false);
    const image = imageOf(values, rows, columns, ownScale(values), colors);
    canvas.getContext("2d").putImageData(image, 0, 0);
}

const shownStatistic = () => {
    const { sort, color_by } = settings();
    return color_by !== "weights" ? color_by : sort !== "layer" ? sort : null;
};

const placeOf = ({ layer, head }) => (state.source.way ? String(layer) : `${layer}.${head}`);

/** Text of a thumbnail: its place, its pattern, and the statistic that heads are looked at by. */
function describe(entry) {
    const { layer, head, stats, button } = entry,
        name = shownStatistic(),
        value = name ? valueOf(stats, name) : undefined;
    const shown = value === undefined ? null : numberText(value, 3);
    const pattern = entry.pattern ?? "…";
    button.dataset.pattern = pattern;
    Object.assign(button.dataset, { statistic: shown ? name : "", value: shown ? value : "" });
    const heard = (text) => el("span", { class: "visually-hidden" }, text);
    fill(
        entry.caption,
        heard(
            `${state.source.way ? state.source.headName(layer) : `layer ${layer} head ${head}`}, `,
        ),
        el("span", { class: "place", "aria-hidden": "true" }, placeOf(entry)),
        el("span", { class: "pattern", data: { short: SHORT[pattern] ?? pattern } }, pattern),
        shown && [heard(`, ${statistics[name].title} `), el("span", { class: "value" }, shown)],
    );
}

function thumbnail(layer, head) {
    const entry = { layer, head };
    entry.canvas = el("canvas", { width: 1, height: 1, "aria-hidden": "true" });
    entry.caption = el("span", { class: "caption" });
    entry.button = el(
        "button",
        {
            type: "button",
            class: "thumbnail",
            tabindex: "-1",
            data: { testid: `head-${layer}-${head}` },
            onclick: () => openHead(entry),
            onfocus: () => focused(entry),
            onblur: hidePreview,
            onpointerenter: (event) => event.pointerType !== "touch" && preview(entry),
            onpointerleave: hidePreview,
        },
        entry.canvas,
        entry.caption,
    );
    describe(entry);
    return entry;
}

function openHead({ layer, head }) {
    const { layer: open } = settings();
    set({ layer, head, ...(open === String(layer) ? {} : { off: "" }) }, { step: true });
    hidePreview();
    (byId("view").querySelector("canvas") ?? byId("view")).focus(); // its map, where one is there
}

// ---- Order --------------------------------------------------------------------------------------

const passes = ({ pattern }) => settings().filter === "" || pattern === settings().filter;

/** A row of the grid: the heads of a layer, or all heads in the order of a statistic. */
function gridRow(name, entries) {
    const cells = entries.map(({ button }) => el("div", { role: "gridcell" }, button));
    const heard = el("span", { class: "visually-hidden" }, "Layer ");
    const title = name && el("div", { role: "rowheader", class: "layer" }, heard, name);
    return el("div", { role: "row", class: name ? "layer-row" : "flow-row" }, title, cells);
}

const columnName = (head) => (state.source.way ? "all" : String(head));

/** The row that names the columns; rows of another number of heads stand in the same columns. */
function columnNames(count) {
    const names = Array.from({ length: count }, (_, head) =>
        el("div", { role: "columnheader" }, columnName(head)),
    );
    return el(
        "div",
        { role: "row", class: "layer-row names" },
        el(
            "div",
            { role: "columnheader", class: "layer" },
            el("span", { class: "visually-hidden" }, "Head"),
        ),
        names,
    );
}

/** Fills the grid with thumbnails: by layers, or as one list. */
function place(order, byLayer) {
    const focusedButton = document.activeElement;
    const widest = Math.max(0, ...state.heads.map(({ head }) => head + 1));
    parts.grid.style.setProperty("--heads", String(widest));
    parts.grid.classList.toggle("many", widest > MANY);
    if (byLayer)
        fill(
            parts.grid,
            columnNames(widest),
            state.source?.layers.map((layer) =>
                gridRow(
                    String(layer),
                    order.filter((entry) => entry.layer === layer),
                ),
            ),
        );
    else fill(parts.grid, gridRow(null, order));
    if (parts.grid.contains(focusedButton)) /** @type {HTMLElement} */ (focusedButton).focus();
}

/** Places the thumbnails by the settings.  Those that stand in their places stay: one that is put
 *  anew while a button of the mouse is down on it would not be clicked. */
function arrange() {
    const shown = state.heads.filter(passes);
    const byLayer = settings().sort === "layer" && settings().filter === "";
    const order = byLayer ? shown : sorted(shown, settings().sort);
    const placed = [byLayer, ...order];
    if (placed.length !== state.grid.length || placed.some((entry, i) => entry !== state.grid[i])) {
        state.grid = placed;
        place(order, byLayer);
    }
    const all = `${state.heads.length} ${state.source?.way ? "maps" : "heads"}`;
    parts.count.textContent =
        shown.length === state.heads.length ? all : `${shown.length} of ${all}`;
    color();
    mark();
}

/** Colours the captions by a statistic, and shows what the colours mean. */
function color() {
    const name = settings().color_by,
        map = mapNamed(settings().colors, false),
        [low, high] = rangeOf(state.heads, name);
    for (const { stats, caption } of state.heads) {
        const value = valueOf(stats, name);
        const share = value === undefined ? null : high > low ? (value - low) / (high - low) : 1;
        caption.style.background = share === null ? "" : hexOf(map, share);
        caption.style.color = share === null ? "" : inkOn(rgbOf(map, share));
    }
    parts.legend.hidden = !state.heads.some(({ stats }) => valueOf(stats, name) !== undefined);
    if (parts.legend.hidden) return;
    const [begin, canvas, end] = parts.legend.children;
    begin.textContent = `${statistics[name].title} ${numberText(low, 3)}`;
    end.textContent = `${numberText(high, 3)} ${statistics[name].unit ?? ""}`;
    const steps = Float32Array.from({ length: 64 }, (_, i) => i / 63);
    const image = imageOf(steps, 1, 64, scaleOf("linear", steps, { high: 1 }), map);
    canvas.getContext("2d").putImageData(image, 0, 0);
}

/** Marks the head that is open, and which thumbnail the Tab key reaches. */
function mark() {
    const { layer, head } = settings();
    let reached = null;
    for (const entry of state.heads) {
        const isOpen = head !== "" && (state.source.way || `${entry.head}` === head);
        const open = `${entry.layer}` === layer && isOpen;
        if (open) entry.button.setAttribute("aria-current", "true");
        else entry.button.removeAttribute("aria-current");
        entry.button.tabIndex = -1;
        if (open && entry.button.isConnected) reached = entry.button;
    }
    reached ??= parts.grid.querySelector(".thumbnail");
    if (reached) reached.tabIndex = 0;
}

// ---- Keyboard -----------------------------------------------------------------------------------

function focused(entry) {
    for (const { button } of state.heads) button.tabIndex = button === entry.button ? 0 : -1;
    preview(entry);
}

/** The thumbnail in the next row of the screen, above (-1) or below (1), nearest to the middle. */
function beside(buttons, from, direction) {
    const place = from.getBoundingClientRect();
    let best = null,
        least = Infinity;
    for (const button of buttons) {
        const there = button.getBoundingClientRect(),
            down = (there.top - place.top) * direction;
        const distance = down * 1e4 + Math.abs(there.left - place.left);
        if (down > 4 && distance < least) [best, least] = [button, distance];
    }
    return best;
}

function onKey(event) {
    const buttons = [...parts.grid.querySelectorAll(".thumbnail")],
        at = buttons.indexOf(document.activeElement);
    if (at < 0) return;
    const found = {
        ArrowRight: () => buttons[at + 1],
        ArrowLeft: () => buttons[at - 1],
        ArrowDown: () => beside(buttons, buttons[at], 1),
        ArrowUp: () => beside(buttons, buttons[at], -1),
        Home: () => buttons[0],
        End: () => buttons.at(-1),
    }[event.key];
    if (event.key === "Escape") hidePreview();
    if (!found || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    found()?.focus();
}

// ---- Preview ------------------------------------------------------------------------------------

function preview(entry) {
    if (!entry.stats) return;
    const canvas = el("canvas", { width: 1, height: 1 });
    paint({ ...entry, canvas });
    const names = available(state.asked).filter(
        (name) => valueOf(entry.stats, name) !== undefined && tells(state.source, name),
    );
    const row = (title, text, data = {}) =>
        el("tr", {}, el("th", { scope: "row" }, title), el("td", { data }, text));
    fill(
        parts.preview,
        el("strong", {}, state.source.headName(entry.layer, entry.head)),
        canvas,
        el(
            "table",
            {},
            row("pattern", entry.pattern),
            names.map((name) => {
                const value = valueOf(entry.stats, name);
                const { title } = statistics[name];
                return row(title, numberText(value, 4), { statistic: name, value });
            }),
        ),
    );
    parts.preview.hidden = false;
    const map = byId("view").querySelector(".head-body:not([hidden])");
    putBeside(parts.preview, entry.button, map);
}

/** Thumbnails of the next size, or (0) as many beside one another as fit. */
function resize(by) {
    const width = parts.grid.querySelector(".thumbnail")?.getBoundingClientRect().width ?? 0;
    const next =
        by > 0
            ? SIZES.find((size) => size > width + 1)
            : SIZES.findLast((size) => size < width - 1);
    set({ size: by === 0 ? "" : (next ?? SIZES.at(by > 0 ? -1 : 0)) });
}

function showSize() {
    const { size } = settings();
    for (const name of ["--least", "--most"])
        if (size === "") parts.grid.style.removeProperty(name);
        else parts.grid.style.setProperty(name, `${Math.max(8, Number(size) || 8)}px`);
}

function hidePreview() {
    parts.preview.hidden = true;
}

// ---- As one figure ------------------------------------------------------------------------------

/** What stands in the grid, for a file. */
function figure() {
    const { scale, colors, pool, paper } = settings(),
        [byLayer, ...order] = state.grid,
        name = shownStatistic();
    const cell = (entry) => {
        const value = name ? valueOf(entry.stats, name) : undefined,
            note = value === undefined ? "" : ` ${numberText(value, 3)}`;
        return {
            map: entry,
            name: placeOf(entry),
            note: `${entry.pattern ?? ""}${note}`,
            scale: entry.values && ownScale(entry.values),
        };
    };
    const row = (layer) => ({
        name: `Layer ${layer}`,
        cells: order.filter((entry) => entry.layer === layer).map(cell),
    });
    const widest = Math.max(0, ...order.map(({ head }) => head + 1));
    const statistic = name ? `; below: ${statistics[name].title}` : "";
    return {
        title: `${state.source.model.name}: ${state.source.title}`,
        caption: `Rows are queries, columns keys. Tokens: ${state.source.keyLabels.map(shownText).join(" ")}`,
        paper,
        note: `0 to the largest weight of each map, ${scale}; cells: ${pool}${statistic}`,
        colors: mapNamed(colors, false),
        columns: byLayer ? Array.from({ length: widest }, (_, head) => columnName(head)) : [],
        rows: byLayer ? state.source.layers.map(row) : [{ name: "", cells: order.map(cell) }],
    };
}

/** The button that offers all heads as a file. */
function figureButton(form) {
    const onclick = () =>
        downloadFigure(form, figure()).catch((error) => showError("figure", error));
    return el(
        "button",
        {
            type: "button",
            onclick,
            data: { testid: `overview-${form}` },
            "aria-label": `All heads as ${form.toUpperCase()}`,
        },
        form.toUpperCase(),
    );
}

/** The buttons that make thumbnails larger and smaller. */
function sizeButtons() {
    const button = (text, name, testid, by) =>
        el(
            "button",
            { type: "button", "aria-label": name, data: { testid }, onclick: () => resize(by) },
            text,
        );
    return el(
        "span",
        { class: "segments", role: "group", "aria-label": "Size of the maps" },
        button("−", "Smaller maps", "overview-smaller", -1),
        button("+", "Larger maps", "overview-larger", 1),
        button("Fit", "Fit: all heads beside one another", "overview-fit", 0),
    );
}

// ---- Panel --------------------------------------------------------------------------------------

const targetNames = {
    "": "none",
    delimiters: "delimiters . , ; : …",
    rare: "rare: once here",
    first: "first token",
    induction: "induction",
    positions: "positions …",
};

function titles(names) {
    return names.map((name) => [name, statistics[name].title]);
}

/** The controls; those that need a statistic that was not asked for lack it. */
function controls() {
    const { sort, color_by, filter, pool, scale, targets, ablate } = settings(),
        names = titles(available(state.asked).filter((name) => tells(state.source, name))),
        focus = document.activeElement?.getAttribute("data-testid"),
        own = targets !== "" && !Object.hasOwn(targetNames, targets);
    const choice = (title, testid, options, value, change) =>
        labelled(title, select(options, value, change, { data: { testid } }));
    const combination = select(
        Object.entries(ways).map(([way, { title }]) => [way, title]),
        state.source.way ?? "",
        (value) => set({ heads: value }),
        { disabled: !canCombine(state.source), data: { testid: "overview-heads" } },
    );
    const open = parts.controls.querySelector("details")?.open ?? false;
    fill(
        parts.controls,
        choice("Sort by", "overview-sort", [["layer", "layer"], ...names], sort, (value) =>
            set({ sort: value }),
        ),
        choice(
            "Colour by",
            "overview-color",
            [["weights", "weights"], ...names],
            color_by,
            (value) => set({ color_by: value }),
        ),
        choice(
            "Targets",
            "overview-targets",
            Object.entries(targetNames),
            own ? "positions" : targets,
            (value) => set({ targets: value === "positions" ? "0" : value }),
        ),
        own
            ? labelled(
                  "Positions",
                  el("input", {
                      value: targets,
                      data: { testid: "overview-positions" },
                      onchange: (event) => set({ targets: event.target.value.trim() }),
                  }),
              )
            : null,
        el(
            "details",
            { open, class: "more" },
            el("summary", {}, "More"),
            el(
                "div",
                { class: "toolbar" },
                labelled("Heads", combination),
                choice(
                    "Pattern",
                    "overview-filter",
                    [["", "all"], ...Object.keys(patterns).map((name) => [name, name])],
                    filter,
                    (value) => set({ filter: value }),
                ),
                choice(
                    "Scale",
                    "overview-scale",
                    ["linear", "log", "rank"].map((name) => [name, name]),
                    scale,
                    (value) => set({ scale: value }),
                ),
                choice(
                    "Cells",
                    "overview-pool",
                    [
                        ["max", "maximum"],
                        ["mean", "mean"],
                    ],
                    pool,
                    (value) => set({ pool: value }),
                ),
                labelled(
                    "Importance of heads",
                    el("input", {
                        type: "checkbox",
                        checked: ablate === "1",
                        disabled: state.source.lacks.includes("ablation"),
                        data: { testid: "overview-ablate" },
                        onchange: (event) => set({ ablate: event.target.checked ? "1" : "" }),
                    }),
                ),
            ),
        ),
    );
    if (focus) parts.controls.querySelector(`[data-testid="${focus}"]`)?.focus();
}

function build() {
    hidePreview();
    state.fine = false;
    state.heads = state.source.layers.flatMap((layer) =>
        Array.from({ length: state.source.spec(layer).num_attention_heads }, (_, head) =>
            thumbnail(layer, head),
        ),
    );
    arrange();
}

/** Another source, or the same that has grown. */
function show(next) {
    const grown = next !== null && next === state.source;
    state.source = next;
    parts.body.hidden = state.source === null;
    const { told, title } = state.source ?? {};
    fill(
        parts.title,
        "All heads",
        state.source && el("span", { class: told ? "visually-hidden" : "how" }, ` of ${title}`),
        el(
            "span",
            { class: "how" },
            told ? " layers down, heads across: click one" : " · click one",
        ),
    ); // the field of a sentence says its title
    parts.mark.hidden = !state.source?.mark;
    parts.mark.textContent = state.source?.mark?.split("; ")[0] ?? "";
    if (state.source === null) return;
    fill(parts.left, state.source.leftOut);
    if (!grown) build();
    load();
    controls();
}

function changed(_, names) {
    if (!state.source) return;
    const has = (...list) => list.some((name) => names.has(name));
    if (has("pool") || (has("scale") && settings().scale !== "linear" && !state.fine)) load();
    else if (has("targets", "ablate")) load({ maps: false });
    if (has("scale", "colors")) state.heads.forEach(paint);
    if (has("sort", "color_by")) state.heads.forEach(describe);
    if (has("sort", "filter", "color_by", "colors")) arrange();
    if (has("layer", "head")) mark();
    if (has("size")) showSize();
    if (has("pool", "scale", "targets", "ablate", "sort", "filter", "color_by")) controls();
}

/** Makes the panel in #overview. */
export function start() {
    parts.controls = el("div", { class: "toolbar" });
    parts.note = el("p", { class: "muted", role: "status", data: { testid: "overview-note" } });
    parts.unfinished = el(
        "p",
        { class: "toolbar", role: "status", hidden: true },
        el("span", { class: "mark" }, "Not finished: heads may be missing or show what was before"),
        el(
            "button",
            { type: "button", onclick: () => load(), data: { testid: "overview-again" } },
            "Go on",
        ),
    );
    parts.count = el("span", { class: "muted", role: "status" });
    parts.legend = el(
        "span",
        { class: "range", hidden: true },
        el("span"),
        el("canvas", { width: 64, height: 1, "aria-hidden": "true" }),
        el("span"),
    );
    parts.grid = el("div", {
        class: "all-heads",
        role: "grid",
        "aria-label": "Heads",
        onkeydown: onKey,
    });
    parts.preview = el("div", {
        id: "preview",
        class: "panel",
        hidden: true,
        data: { testid: "overview-preview" },
    });
    parts.title = el("h2");
    parts.mark = el("span", { class: "mark", hidden: true });
    parts.left = el("p", { class: "muted", data: { testid: "left-out" } });
    parts.body = el(
        "div",
        { hidden: true },
        parts.left,
        parts.controls,
        parts.note,
        parts.unfinished,
        el(
            "p",
            { class: "toolbar overview-line" },
            parts.count,
            parts.legend,
            sizeButtons(),
            figureButton("svg"),
            figureButton("png"),
        ),
        parts.grid,
    );
    fill(
        byId("overview"),
        el("div", { class: "toolbar" }, parts.title, parts.mark),
        parts.body,
        parts.preview,
    );
    showSize();
    onSource(show);
    listen(changed);
    show(current());
}
