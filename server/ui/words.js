/**
 * words.js: what the words of the page mean: a sentence for each control and statistic, and a list.
 *
 * A control is found by its data-testid, a word by data-term. Its sentence stands in a box while the
 * pointer or the keyboard's focus is on it; a word opens the list, which has pictures of patterns.
 */
import { dialogOf } from "./dialog.js";
import { byId, el } from "./dom.js";
import { elementOf, svg } from "./svg.js";

const LATE_MS = 350; // of a pointer that rests

/** Patterns: what stands in the map, and a weight for query `t` on key `j` of a small one.
 *  @type {Object<string, [string, (t: number, j: number) => number]>} */
export const patterns = {
    previous: [
        "most weight lies on the token before the query: a line just below the diagonal",
        (t, j) => Number(j === t - 1),
    ],
    self: [
        "most weight lies on the query's own token: the diagonal itself",
        (t, j) => Number(j === t),
    ],
    sink: [
        "most weight lies on the first token, which takes what a head has no use for: a column at " +
            "the left",
        (t, j) => (j === 0 ? 1 : 0.1),
    ],
    positional: [
        "the strongest key is at one distance in most rows, such as 4 tokens before, whatever " +
            "the tokens are: a line further below the diagonal",
        (t, j) => Number(j === t - 4),
    ],
    local: [
        "most weight lies within 4 tokens of the query: a band along the diagonal",
        (t, j) => Math.max(0, 1 - (t - j) / 4),
    ],
    focused: [
        "each query has one strong key, and neither place nor distance says which: single cells",
        (t, j) => Number(j === (t * 7) % (t + 1)),
    ],
    global: [
        "the weight is spread over many keys: the map has no bright cells",
        (t) => 1 / (t + 2),
    ],
    induction: [
        "where a token occurs again, the weight lies on what followed it the last time: a line " +
            "that begins with the repetition",
        (t, j) => Number(t > 4 ? j === t - 4 : j === 0),
    ],
    bracket: [
        "within brackets each token looks at the innermost one that is open: short columns that " +
            "begin at a bracket",
        (t, j) => Number(t < 2 ? j === 0 : j === (t > 4 && t < 8 ? 4 : 1)),
    ],
};

/** Sentences: of controls by data-testid, of statistics and other words by data-term. */
export const sentences = {
    attention:
        "For each query, how much of each key's value it takes: a row of weights that sum to 1.",
    query: "A query is the token that looks: one row of the map.",
    key: "A key is a token that is looked at: one column of the map.",
    head: "A head is one of several attentions that a layer computes beside one another.",
    pattern: "A word for what the head does here, from its statistics; open the list for pictures.",
    entropy:
        "How spread a row is: 0 nats where one key has all the weight, log n where n keys share it.",
    mean_distance: "How many tokens lie between a query and its keys, weighed by the weights.",
    self: "The share of the weight that queries give to their own token.",
    previous: "The share of the weight on the token just before the query.",
    first: "The share of the weight on the first token that is not padding.",
    local: "The share of the weight within 4 tokens of the query.",
    largest: "The largest weight of a row, on average over the queries.",
    rows: "How many queries see a key: those that the statistics are means over.",
    ablation:
        "How much the layer's output changes without this head: the Frobenius norm of the " +
        "difference over that of the output.",
    target: "The weight on the target of each row that has one, on average.",
    target_hits: "In how many of these rows the target is the strongest key.",
    group_share: "The share of the weight on the keys of the group.",
    group_hits: "In how many rows the strongest key is of the group.",
    kind:
        "Weights are what is used, after the softmax; scores are the products of queries and keys " +
        "before it.",
    stage: "Scores as they are computed: scaled products, soft-capped ones, and those with the mask.",
    scale:
        "How numbers become colours: in proportion, by powers of ten, or by the share of smaller " +
        "cells.",
    colors: "The colours of the map; white to black is for print.",
    "overview-heads": "One map for each head, or one for each layer: a mean, or attention rollout.",
    "overview-sort": "The order of the heads: by layer, or by a statistic, the largest first.",
    "overview-color": "Colours the heads' names by a statistic.",
    "overview-filter": "Shows only the heads of one pattern.",
    "overview-scale": "How the weights of all maps become colours; that of the open head too.",
    "overview-pool":
        "What a cell of a small map stands for: the largest or the mean weight of its block.",
    "overview-targets":
        "Asks how much weight heads put on certain tokens, so that they can be sorted by " +
        "it; induction is what followed the last occurrence.",
    "overview-positions": "Key positions that are the group, such as 0,3,5.",
    "overview-ablate":
        "Computes each layer once more without each head, and says how much its output " +
        "changes.",
    "off-this": "Computes the layer without this head, and shows how its output changes.",
    "window-left": "How many keys before its own place a query may see.",
    "window-right": "How many keys after its own place a query may see.",
    softcap: "Bounds scores smoothly to plus and minus this number before the softmax.",
    causal: "Causal: no query sees a key that comes after it.",
    importance: "How much the layer's output changes without each of its heads.",
    "input-model": "The model whose layers are looked at, of those that this attnd serves.",
    "input-layers": "The layers that are shown, such as 0,5,11; empty: all.",
    "input-padding": "Positions of keys that are padding, such as 0-3; no query sees them.",
    "input-seed": "Another seed, other random rows.",
    "input-session": "A session keeps keys and values of tokens that came before.",
    "input-step": "A session keeps no queries: say what stands for one.",
    "input-tensor": "The tensor of the file that is rows of tokens.",
    "input-encoder-tensor": "The tensor of the file that gives keys and values.",
    "input-group": "The tensors of the file that are shown.",
    "compare-with": "The head whose map stands beside the open one.",
    "compare-model": "The model, or the file, of the second head.",
    paper: "How wide an SVG is on paper: 85 mm or 178 mm, with text of 8 points.",
    "overview-smaller": "Smaller maps, so that more heads are seen at once.",
    "overview-larger": "Larger maps.",
    theme: "Light or dark; system follows your computer.",
};

/** Where a word stands in the documentation. */
const documents = [
    ["docs/VIEWER.md", "this page"],
    ["docs/NUMERICS.md, “Head statistics”", "how statistics and patterns are computed"],
    ["docs/API.md", "the requests behind all of it"],
];

/** A word with its sentence: shown at the pointer or focus, and opening the list. */
export function term(name, text) {
    const open = () => openGlossary(name);
    return el(
        "span",
        {
            class: "term",
            role: "button",
            tabindex: 0,
            data: { term: name },
            onclick: open,
            onkeydown: (event) => event.key === "Enter" && open(),
        },
        text,
    );
}

function pictureOf(weight) {
    const count = 10;
    const cells = [];
    for (let t = 0; t < count; t++)
        for (let j = 0; j <= t; j++)
            cells.push(
                svg("rect", {
                    x: j,
                    y: t,
                    width: 1,
                    height: 1,
                    fill: "currentColor",
                    "fill-opacity": 0.08 + 0.92 * weight(t, j),
                    ...(t === j ? { stroke: "currentColor", "stroke-width": 0.12 } : {}),
                }),
            );
    return elementOf(
        svg(
            "svg",
            {
                class: "pattern-picture",
                viewBox: `-0.1 -0.1 ${count + 0.2} ${count + 0.2}`,
                width: 60,
                height: 60,
                "shape-rendering": "crispEdges",
                "aria-hidden": "true",
            },
            cells,
        ),
    );
}

const parts = { dialog: null };

function glossary() {
    const entry = (name, sentence, picture) =>
        el(
            "div",
            { class: "word", id: `word-${name}` },
            picture,
            el("dt", {}, name.replaceAll("_", " ")),
            el("dd", {}, sentence),
        );
    const words = [
        "attention",
        "query",
        "key",
        "head",
        "entropy",
        "mean_distance",
        "largest",
        "ablation",
        "target",
    ];
    const place = (/** @type {string[]} */ [where, what]) =>
        el("li", {}, el("code", {}, where), `: ${what}`);
    const link = el("a", { href: "openapi.json" }, "openapi.json");
    return dialogOf(
        "words-dialog",
        "Words",
        el(
            "dl",
            {},
            words.map((name) => entry(name, sentences[name])),
        ),
        el("h3", {}, "Patterns, as they look in a map"),
        el(
            "dl",
            { class: "patterns" },
            Object.entries(patterns).map(([name, [text, weight]]) =>
                entry(name, `${text[0].toUpperCase()}${text.slice(1)}.`, pictureOf(weight)),
            ),
        ),
        el("h3", {}, "More"),
        el("ul", {}, documents.map(place), el("li", {}, link, ": the API of this attnd")),
    );
}

/** Opens the list of words, at one of them. */
function openGlossary(name) {
    parts.dialog ??= glossary();
    if (!parts.dialog.open) parts.dialog.showModal();
    byId("hint").hidden = true;
    document.getElementById(`word-${name}`)?.scrollIntoView({ block: "center" });
}

// ---- Sentences beside what they explain ---------------------------------------------------------

const named = (target) => target.closest?.("[data-term], [data-testid]");

function sentenceOf(element) {
    const { term: word, testid, pattern } = element?.dataset ?? {};
    const known = patterns[pattern]?.[0];
    return known ? `${pattern}: ${known}.` : sentences[word ?? testid?.replace(/-slider$/, "")];
}

function show(hint, element) {
    hint.textContent = sentenceOf(element);
    hint.hidden = false;
    element.setAttribute("aria-describedby", "hint");
    const place = element.getBoundingClientRect();
    const { width, height } = hint.getBoundingClientRect();
    const below = place.bottom + 6 + height <= innerHeight;
    hint.style.left = `${Math.max(4, Math.min(place.left, innerWidth - width - 4))}px`;
    hint.style.top = `${below ? place.bottom + 6 : Math.max(4, place.top - 6 - height)}px`;
}

/** Shows sentences from now on. @returns {HTMLElement} the button that opens the list */
export function startWords() {
    const hint = el("div", { id: "hint", role: "tooltip", hidden: true, data: { testid: "hint" } });
    document.body.append(hint);
    let timer = 0;
    let shown = null;
    const hide = () => {
        clearTimeout(timer);
        hint.hidden = true;
        shown?.removeAttribute("aria-describedby");
        shown = null;
    };
    const point = (target, wait) => {
        const element = named(target);
        if (element === shown) return;
        hide();
        if (!element || !sentenceOf(element)) return;
        timer = setTimeout(() => {
            shown = element;
            show(hint, element);
        }, wait);
    };
    addEventListener(
        "pointermove",
        ({ target, pointerType }) => pointerType !== "touch" && point(target, LATE_MS),
    );
    addEventListener("focusin", (/** @type {any} */ { target }) =>
        target.matches?.(":focus-visible") ? point(target, 0) : hide(),
    );
    addEventListener("focusout", hide);
    addEventListener("pointerdown", hide);
    addEventListener("keydown", ({ key }) => key === "Escape" && hide());
    const follow = () => (shown === document.activeElement ? show(hint, shown) : hide());
    addEventListener("scroll", () => shown && follow(), true);
    return el(
        "button",
        { type: "button", onclick: () => openGlossary(), data: { testid: "words" } },
        "Words",
    );
}
