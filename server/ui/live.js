/**
 * live.js: the load of the daemon: /metrics once a second while this tab is shown.
 *
 * Rates and latencies are differences between two readings, those of latencies over the last ten
 * seconds.  The requests that this panel makes are not counted.
 */
import { listen, settings } from "./address.js";
import { Chart, seriesColor } from "./chart.js";
import { text } from "./client.js";
import { byId, bytesText, el, fill } from "./dom.js";
import { between, parse, quantile, total } from "./prometheus.js";
import { clearError, showError } from "./status.js";
import { part } from "./store.js";

const PERIOD_MS = 1000;
const POINTS = 120; // of a chart
const WINDOW = 10; // readings back that latencies are taken over
const STAGES = ["parse", "queue", "compute", "write"];

const state = part("live", {
    readings: [], // {at, metrics}, the latest last
    polling: null, // the AbortController of the loop that runs
});
const parts = { cards: [], note: null, grid: null }; // elements

const perSecond = (now, before, name, chosen) =>
    (total(now.metrics, name, chosen) - total(before.metrics, name, chosen)) / (now.at - before.at);

function msText(seconds) {
    if (seconds === null) return "–";
    if (seconds >= 1) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
    const ms = 1000 * seconds,
        digits = ms < 0.1 ? 1 : ms < 100 ? 2 : 3;
    return ms === 0 ? "0 ms" : `${ms.toPrecision(digits)} ms`;
}

const rateText = (value) => `${value < 10 ? Number(value.toFixed(1)) : Math.round(value)}/s`;
const countText = (value) => (Number.isInteger(value) ? String(value) : value.toFixed(1));

// ---- What is shown ----------------------------------------------------------------------------

/**
 * A card: `read(now, before, past)` gives {lines, rows}: a value for each line of the chart, and
 * the rows of its table, whose first cell names a line.
 */
const kinds = [
    {
        testid: "live-latency",
        title: "Latency by stage, 99th percentile",
        head: ["Stage", "median", "99th percentile"],
        lines: STAGES.length,
        text: msText,
        least: 0.001,
        read(now, before, past) {
            const spans = STAGES.map((stage) =>
                between(past.metrics, now.metrics, "attnd_stage_seconds", (l) => l.stage === stage),
            );
            const medians = spans.map((span) => quantile(span, 0.5)),
                tails = spans.map((span) => quantile(span, 0.99));
            const rows = STAGES.map((stage, i) => [stage, msText(medians[i]), msText(tails[i])]);
            return { lines: tails, rows };
        },
    },
    {
        testid: "live-requests",
        title: "Requests",
        head: ["", "now"],
        lines: 2,
        text: rateText,
        least: 10,
        read(now, before) {
            const other = ({ route }) => route !== "/metrics";
            const requests = perSecond(now, before, "attnd_requests_total", other);
            const rows = perSecond(now, before, "attnd_decode_rows_total");
            return {
                lines: [requests, rows],
                rows: [
                    ["requests", rateText(requests)],
                    ["decoded rows", rateText(rows)],
                ],
            };
        },
    },
    {
        testid: "live-batch",
        title: "Steps of a batch",
        head: ["", "mean", "99th percentile"],
        lines: 1,
        text: countText,
        least: 2,
        read(now, before, past) {
            const last = between(before.metrics, now.metrics, "attnd_decode_batch_size");
            const span = between(past.metrics, now.metrics, "attnd_decode_batch_size");
            const mean = last.count > 0 ? last.sum / last.count : null;
            const all = span.count > 0 ? span.sum / span.count : null;
            const shown = (value) => (value === null ? "–" : value.toFixed(1));
            return { lines: [mean], rows: [["steps", shown(all), shown(quantile(span, 0.99))]] };
        },
    },
    {
        testid: "live-queue",
        title: "Queue",
        head: ["", "now", "together at most"],
        lines: 2,
        text: countText,
        least: 2,
        read({ metrics }) {
            const waiting = total(metrics, "attnd_requests_waiting"),
                running = total(metrics, "attnd_requests_running"),
                limit = total(metrics, "attnd_queue_limit");
            return {
                lines: [waiting, running],
                rows: [
                    ["waiting", String(waiting), String(limit)],
                    ["running", String(running), String(limit)],
                ],
            };
        },
    },
    {
        testid: "live-pool",
        title: "Pool of keys and values",
        head: ["", "now", "at most"],
        lines: 1,
        text: bytesText,
        least: 1000,
        read({ metrics }) {
            const used = total(metrics, "attnd_cache_used_bytes"),
                budget = total(metrics, "attnd_cache_budget_bytes"),
                sessions = total(metrics, "attnd_sessions");
            const share = budget > 0 ? ((100 * used) / budget).toFixed(1) : "0";
            return {
                lines: [used],
                rows: [
                    ["used", `${bytesText(used)} (${share} %)`, bytesText(budget)],
                    ["sessions", String(sessions), String(total(metrics, "attnd_sessions_limit"))],
                ],
            };
        },
    },
];

function cardOf(kind) {
    const { lines, text: shown, least } = kind;
    const chart = new Chart({ points: POINTS, series: lines, text: shown, least });
    const body = el("tbody");
    const head = kind.head.map((name, i) =>
        el("th", { scope: "col", class: i > 0 && "number" }, name),
    );
    const table = el("table", {}, el("thead", {}, el("tr", {}, head)), body);
    const card = el(
        "div",
        { class: "card", role: "group", "aria-label": kind.title, data: { testid: kind.testid } },
        el("h3", {}, kind.title),
        chart.canvas,
        table,
    );
    return { kind, chart, body, card };
}

/** The mark of a line of the chart, before the name of its row. */
function nameCell(name, i, lines) {
    const key = i < lines && el("span", { class: `key key-${i + 1}`, "aria-hidden": "true" });
    if (key) key.style.borderTopColor = seriesColor(i);
    return el("th", { scope: "row" }, key || null, name);
}

function show() {
    const now = state.readings.at(-1),
        before = state.readings.at(-2),
        past = state.readings.at(-1 - WINDOW) ?? state.readings[0];
    if (!before) return;
    for (const { kind, chart, body } of parts.cards) {
        const { lines, rows } = kind.read(now, before, past);
        chart.add(lines);
        fill(
            body,
            rows.map(([name, ...values], i) =>
                el(
                    "tr",
                    {},
                    nameCell(name, i, kind.lines),
                    values.map((value) => el("td", { class: "number" }, value)),
                ),
            ),
        );
    }
}

// ---- Reading ----------------------------------------------------------------------------------

/** Says why nothing is read; true where the panel itself can say it. */
function refused(error) {
    if (error.code !== "forbidden") return false;
    parts.note.textContent =
        "This key may not read metrics: that takes the scope metrics or admin.";
    parts.note.hidden = false;
    parts.grid.hidden = true;
    return true;
}

async function poll({ signal }) {
    while (!signal.aborted) {
        const begun = performance.now();
        const metrics = parse(await text("/metrics", signal));
        clearError("live");
        parts.note.hidden = true;
        parts.grid.hidden = false;
        state.readings.push({ at: begun / 1000, metrics });
        state.readings = state.readings.slice(-1 - WINDOW);
        show();
        const rest = begun + PERIOD_MS - performance.now();
        await new Promise((resolve) => setTimeout(resolve, Math.max(0, rest)));
    }
}

/** Reads while the tab is shown and the window is seen. */
function follow() {
    const wanted = settings().tab === "sessions" && document.visibilityState === "visible";
    if (wanted === (state.polling !== null)) return;
    state.polling?.abort();
    state.polling = null;
    if (!wanted) return;
    state.readings = []; // what lies between is no second
    const own = (state.polling = new AbortController());
    poll(own).catch((error) => {
        if (state.polling === own) state.polling = null;
        if (own.signal.aborted || refused(error)) return;
        showError("live", error, (again) => again && follow());
    });
}

/** Makes the panel. */
export function start() {
    parts.cards = kinds.map(cardOf);
    parts.note = el("p", { class: "muted", hidden: true, data: { testid: "live-note" } });
    parts.grid = el(
        "div",
        { class: "cards" },
        parts.cards.map(({ card }) => card),
    );
    fill(byId("live"), el("div", { class: "stack" }, el("h2", {}, "Load"), parts.note, parts.grid));
    const draw = () => parts.cards.forEach(({ chart }) => chart.draw()); // in the colours of the theme
    listen((_, changed) => changed.has("theme") && draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    listen((_, changed) => changed.has("tab") && follow());
    document.addEventListener("visibilitychange", follow);
    follow();
}
