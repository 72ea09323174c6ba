/**
 * controls.js: what of a head is shown, and what is changed in its layer to see what happens.
 *
 * Every control writes a setting of the address and shows the one that stands there; nothing is
 * kept here. Beside those that change the computing stands what differs from the model.
 */
import { integers, listen, set, settings } from "./address.js";
import { mapNamed, mapsOf } from "./colors.js";
import { afterPause, el, fill, labelled, numberText, select } from "./dom.js";
import { windowOf } from "./mask.js";
import { tells } from "./statistics.js";
import { term } from "./words.js";

const VIEWS = { map: "Map", lines: "Lines", neurons: "Neurons", compare: "Compare" };
const HIGHEST_SOFTCAP = 100; // of the slider; the field takes more

const grouped = (value) => value.toLocaleString("en-US");

// ---- What is shown ----------------------------------------------------------------------------

function viewButtons() {
    const buttons = Object.entries(VIEWS).map(([view, text]) =>
        el(
            "button",
            {
                type: "button",
                data: { testid: `view-${view}` },
                onclick: () => set({ view }, { step: true }),
            },
            text,
        ),
    );
    const group = el("div", { class: "segments", role: "group", "aria-label": "View" }, buttons);
    const show = (/** @type {any} */ { view }) =>
        buttons.forEach((button, i) =>
            button.setAttribute("aria-pressed", String(Object.keys(VIEWS)[i] === view)),
        );
    return { group, show };
}

/**
 * The toolbar of one head.
 * @param {{zoom: (factor: number) => void, all: () => void}} map what the zoom buttons act on
 * @param {HTMLElement} note stands at its end
 * @returns {{element: HTMLElement, views: HTMLElement, show: (isLocal?: boolean) => void}}
 *     views: their buttons; isLocal: the source has weights alone
 */
export function pictureControls(map, note) {
    const views = viewButtons();
    const list = (options, name, testid = name) =>
        select(options, settings()[name], (value) => set({ [name]: value }), { data: { testid } });
    const kind = list(
        [
            ["weights", "weights"],
            ["scores", "scores"],
        ],
        "kind",
    );
    const stage = list(
        [
            ["raw", "scaled (raw)"],
            ["softcap", "soft-capped"],
            ["masked", "masked"],
        ],
        "stage",
    );
    const scale = list(
        [
            ["linear", "linear"],
            ["log", "logarithmic"],
            ["rank", "by rank"],
        ],
        "scale",
    );
    const colors = select([], "", (value) => set({ colors: value }), {
        data: { testid: "colors" },
    });
    const button = (testid, text, name, onclick) =>
        el("button", { type: "button", data: { testid }, "aria-label": name, onclick }, text);
    const stageField = labelled("Stage", stage);
    const zoom = el("div", { class: "field", role: "group", "aria-label": "Zoom" }, [
        el("span", { "aria-hidden": true }, "Zoom"),
        el("div", { class: "segments" }, [
            button("zoom-in", "+", "Zoom in", () => map.zoom(1 / 1.4)),
            button("zoom-out", "−", "Zoom out", () => map.zoom(1.4)),
            button("zoom-all", "All", "All of the map", () => map.all()),
        ]),
    ]);
    const element = el(
        "div",
        { class: "toolbar" },
        labelled("Show", kind),
        stageField,
        labelled("Scale", scale),
        labelled("Colours", colors),
        zoom,
        note,
    );
    const show = (isLocal = false) => {
        const now = settings();
        const diverging = now.kind === "scores" && !isLocal;
        views.show(now);
        for (const [name, control] of Object.entries({ kind, stage, scale }))
            control.value = now[name];
        kind.disabled = isLocal;
        if (isLocal) kind.value = "weights";
        stageField.hidden = !diverging;
        zoom.hidden = now.view === "lines" || now.view === "neurons";
        const chosen = mapNamed(now.colors, diverging);
        fill(
            colors,
            mapsOf(diverging).map(([name, title]) =>
                el("option", { value: name, selected: name === chosen }, title),
            ),
        );
    };
    return { element, views: views.group, show };
}

// ---- What is changed --------------------------------------------------------------------------

function windowText([left, right], isCausal) {
    const after = isCausal ? 0 : right;
    if (left < 0 && (right < 0 || isCausal)) return "none";
    if (after === 0 && left >= 0) return grouped(left + 1);
    const side = (count, where) => (count < 0 ? `all ${where}` : `${grouped(count)} ${where}`);
    return `${side(left, "before")}, ${side(right, "after")}`;
}

/** @returns {string[]} what differs from the model, as phrases */
export function differences(spec, now) {
    const phrases = [];
    const off = integers(now.off);
    const window = integers(now.window);
    const own = windowOf(spec);
    const causal = now.causal === "" ? spec.is_causal : now.causal === "1";
    if (off.length > 0) phrases.push(`${off.length > 1 ? "heads" : "head"} ${off.join(", ")} off`);
    if (window.length === 2 && String(window) !== String(own))
        phrases.push(`window ${windowText(window, causal)} instead of ${windowText(own, causal)}`);
    if (now.softcap !== "" && Number(now.softcap) !== (spec.softcap ?? 0))
        phrases.push(
            `softcap ${Number(now.softcap) || "none"} instead of ${spec.softcap ?? "none"}`,
        );
    if (causal !== spec.is_causal) phrases.push(causal ? "causal" : "not causal");
    return phrases;
}

/** A slider and a number field of one setting; an empty field is all, or none. */
function sliderField(title, testid, { empty, most, step = 1 }, onchange) {
    const later = afterPause(onchange, 150);
    const field = el("input", {
        type: "number",
        min: 0,
        step: step === 1 ? 1 : "any",
        placeholder: empty,
        data: { testid },
        "aria-label": `${title}, number`,
        oninput: () => {
            slider.value = field.value === "" ? slider.max : field.value;
            later(field.value);
        },
    });
    const slider = el("input", {
        type: "range",
        min: 0,
        max: most,
        step,
        data: { testid: `${testid}-slider` },
        "aria-label": `${title}, slider; its end is ${empty}`,
        oninput: () => {
            field.value = Number(slider.value) >= Number(slider.max) ? "" : slider.value;
            later(field.value);
        },
    });
    const element = el("div", { class: "field" }, [
        el("span", {}, title),
        el("div", { class: "slider" }, slider, field),
    ]);
    const show = (value, highest) => {
        slider.max = highest;
        if (document.activeElement !== field) field.value = value;
        if (document.activeElement !== slider) slider.value = value === "" ? highest : value;
    };
    return { element, show };
}

const sideOf = (text) => (text === "" ? -1 : Math.max(0, Math.floor(Number(text)) || 0));
const textOfSide = (count) => (count < 0 ? "" : String(count));

function windowControls(shown) {
    const sides = () => {
        const given = integers(settings().window);
        return given.length === 2 ? given : windowOf(shown.spec);
    };
    const change = (side) => (text) => {
        const window = sides();
        window[side] = sideOf(text);
        set({ window: String(window) === String(windowOf(shown.spec)) ? "" : String(window) });
    };
    const fields = [
        sliderField("Keys before", "window-left", { empty: "all", most: 1 }, change(0)),
        sliderField("Keys after", "window-right", { empty: "all", most: 1 }, change(1)),
    ];
    const show = () => sides().forEach((count, i) => fields[i].show(textOfSide(count), shown.keys));
    return { elements: fields.map((field) => field.element), show };
}

const setOff = (off) => set({ off: [...off].sort((a, b) => a - b).join(",") });

function switchOff(head, isOff) {
    const off = new Set(integers(settings().off));
    if (isOff) off.add(head);
    else off.delete(head);
    setOff(off);
}

function headBoxes(shown) {
    const host = el("div", { class: "heads", role: "group", "aria-label": "Heads that are off" });
    let drawn = -1;
    const draw = (count) => {
        const boxes = Array.from({ length: count }, (_, head) => {
            const box = el("input", {
                type: "checkbox",
                data: { testid: `off-${head}` },
                onchange: () => switchOff(head, box.checked),
            });
            return el("label", {}, box, String(head));
        });
        const button = (testid, text, off) =>
            el("button", { type: "button", data: { testid }, onclick: () => setOff(off()) }, text);
        fill(host, boxes, [
            button("off-all", "all", () => Array.from({ length: shown.heads }, (_, i) => i)),
            button("off-none", "none", () => []),
        ]);
        drawn = count;
    };
    const show = () => {
        if (drawn !== shown.heads) draw(shown.heads);
        const off = new Set(integers(settings().off));
        host.querySelectorAll("input").forEach((box, head) => (box.checked = off.has(head)));
    };
    return { host, show };
}

/**
 * The controls that change the layer: the open head's own stands first, the rest is folded.
 * @param {{button: HTMLElement, host: HTMLElement}} importance of each head, at the end
 * @returns {{element: HTMLElement, modified: HTMLElement, change: HTMLElement, before: HTMLElement,
 *     show: (spec: object, keys: number, head: number) => void}}
 */
export function layerControls(importance) {
    const shown = { spec: { sliding_window: null }, keys: 1, heads: 0, head: 0 };
    const boxes = headBoxes(shown);
    const window = windowControls(shown);
    const softcap = sliderField(
        "Softcap",
        "softcap",
        { empty: "none", most: HIGHEST_SOFTCAP, step: 0.5 },
        (text) => {
            const value = text === "" ? 0 : Math.max(0, Number(text));
            set({ softcap: value === (shown.spec.softcap ?? 0) ? "" : value });
        },
    );
    const box = (testid, onchange) => el("input", { type: "checkbox", data: { testid }, onchange });
    const causal = box("causal", () =>
        set({ causal: causal.checked === shown.spec.is_causal ? "" : Number(causal.checked) }),
    );
    const own = box("off-this", () => switchOff(shown.head, own.checked));
    const name = el("span");
    const modified = el("span", { class: "mark", data: { testid: "modified" } });
    const change = el("p", {
        class: "change-text",
        data: { testid: "change" },
        "aria-live": "polite",
    });
    const button = (testid, text, changes) =>
        el("button", { type: "button", data: { testid }, onclick: () => set(changes) }, text);
    const reset = button("reset", "As the model has it", {
        off: "",
        window: "",
        softcap: "",
        causal: "",
        with: "",
    });
    const compare = button("before-compare", "Compare both", { view: "compare", with: "model" });
    const before = el("div", { class: "before" });
    const both = el("div", { class: "toolbar" }, compare, reset);
    const element = el("div", { class: "what-if", role: "group", "aria-label": "What if" }, [
        el("h3", {}, "What if"),
        el("label", {}, own, name),
        change,
        before,
        both,
        el("details", {}, el("summary", {}, "Window, softcap, …"), [
            el("div", { class: "field" }, el("span", {}, "Heads off"), boxes.host),
            el("div", { class: "toolbar" }, window.elements, softcap.element, [
                el("label", { class: "field" }, el("span", {}, "Causal"), causal),
            ]),
            importance.button,
            importance.host,
        ]),
    ]);
    const show = (spec, keys, head) => {
        Object.assign(shown, { spec, keys, heads: spec.num_attention_heads, head });
        const now = settings();
        boxes.show();
        window.show();
        const cap = now.softcap === "" ? (spec.softcap ?? 0) : Number(now.softcap);
        softcap.show(cap > 0 ? String(cap) : "", Math.max(HIGHEST_SOFTCAP, spec.softcap ?? 0));
        causal.checked = now.causal === "" ? spec.is_causal : now.causal === "1";
        own.checked = integers(now.off).includes(head);
        name.textContent = own.checked
            ? `Head ${head} is off: its weights count as 0`
            : `Switch head ${head} off`;
        const phrases = differences(spec, now);
        modified.hidden = both.hidden = before.hidden = change.hidden = phrases.length === 0;
        modified.textContent = `Differs from the model: ${phrases.join("; ")}`;
    };
    return { element, modified, change, before, show };
}

// ---- Statistics -------------------------------------------------------------------------------

const STATISTICS = {
    pattern: "pattern",
    entropy: "entropy (nats)",
    mean_distance: "mean distance (tokens)",
    self: "on itself",
    previous: "on the one before",
    first: "on the first",
    local: "near by",
    largest: "largest of a row",
    ablation: "importance",
};

/** @returns {HTMLElement} the statistics of a head of a source as a small table */
export function statisticsTable(stats, caption, source) {
    const names = Object.keys(STATISTICS).filter(
        (name) => stats?.[name] !== undefined && tells(source, name),
    );
    const textOf = (value, name) => (typeof value === "number" ? numberText(value) : String(value));
    const row = (name) =>
        el(
            "tr",
            {},
            el("th", { scope: "row" }, term(name, STATISTICS[name])),
            el(
                "td",
                name === "pattern" ? { data: { pattern: stats.pattern, term: "pattern" } } : {},
                textOf(stats[name], name),
            ),
        );
    return el(
        "table",
        { class: "statistics", data: { testid: "statistics" } },
        el(
            "caption",
            {},
            el("span", {}, `${caption}, `),
            term("rows", `means over ${stats.rows} queries`),
        ),
        el("tbody", {}, names.map(row)),
    );
}

/** Calls show() after every change of a setting. */
export function follow(show) {
    show();
    return listen(show);
}
