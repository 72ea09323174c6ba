/**
 * status.js: work that takes time, and what went wrong.
 *
 * One line of the page says what is being computed, with a button that cancels it; errors of the
 * daemon are shown as text, with what to do about them, until the next work succeeds.
 */
import { byId, el, fill } from "./dom.js";
import { part } from "./store.js";

const running = part("status", new Map()); // slot -> { label, done, of, controller, shown }

const shown = () => [...running.values()].filter((work) => work.shown);

const texts = el("span", { class: "works" });
const button = el(
    "button",
    {
        type: "button",
        data: { testid: "cancel" },
        onclick: () => shown().forEach((work) => work.controller.abort()),
    },
    "Cancel",
);

function show() {
    const line = byId("progress"),
        works = shown();
    if (!line.contains(button)) line.append(texts, button);
    line.hidden = works.length === 0;
    fill(
        texts,
        works.map(({ label, done, of }) => [
            el("span", { class: "spinner", "aria-hidden": "true" }),
            el("span", {}, of > 1 ? `${label}: ${done} of ${of}` : label),
        ]),
    );
}

/** Runs `work` once: {result}, or {error}. */
async function attempt(entry, work) {
    const timer =
        entry.label &&
        setTimeout(() => {
            entry.shown = true;
            show();
        }, 150); // short work shows nothing that would flicker
    try {
        return {
            result: await work(entry.controller.signal, (done, of) => {
                Object.assign(entry, { done, of });
                if (entry.shown) show();
            }),
        };
    } catch (error) {
        return { error };
    } finally {
        clearTimeout(timer);
        entry.shown = false;
        show();
    }
}

/**
 * Runs `work(signal, progress)`.  Work of the same slot that still runs is cancelled first.  Where
 * the daemon was not reached, or may answer another time, the user can have the work run again.
 * @param {string} slot what the work is for: "overview", "head", "cell", ...
 * @param {string} label what the line says; "": nothing is said of this work
 * @param {(signal: AbortSignal, progress: (done: number, of: number) => void) => Promise<any>} work
 * @returns {Promise<any>} what work returns; undefined where it was cancelled or has failed, and
 *     then the page says why
 */
export async function run(slot, label, work) {
    cancel(slot);
    const entry = { label, done: 0, of: 1, controller: new AbortController(), shown: false };
    const { signal } = entry.controller;
    running.set(slot, entry);
    for (;;) {
        const { result, error } = await attempt(entry, work);
        const again = error && !signal.aborted && (await isWantedAgain(slot, error, signal));
        if (again) continue;
        if (running.get(slot) === entry) running.delete(slot);
        if (error || signal.aborted) return undefined;
        clearError(slot);
        return result;
    }
}

/** Cancels the work of a slot, if some is running. */
export function cancel(slot) {
    running.get(slot)?.controller.abort();
}

// ---- Errors -----------------------------------------------------------------------------------

const remedies = {
    connection_lost: "Look whether attnd is still running and at its log, then try again.",
    unauthorized: "Enter an API key with the button Key.",
    forbidden: "This key lacks the scope: use one that has it.",
    body_too_large: "Use fewer tokens or layers, or start attnd with a larger max_body_bytes.",
    reply_too_large: "Look at fewer heads or rows, or start attnd with a larger max_reply_bytes.",
    too_many_tokens: "Use fewer tokens, or start attnd with a larger max_tokens.",
    position_conflict: "These are not the rows of the session's last step: choose those.",
    queue_full: "The daemon is busy: try again in a moment.",
    http_302: "Where a login stands before attnd it may have ended: reload the page.",
    draining: "The daemon is stopping: start it again, then reload.",
};

/** @returns {string} an error as the page shows it: what happened, then what to do */
export function errorText(error) {
    const hint = remedies[error.code];
    const said = error.code === "connection_lost" ? "attnd was not reached" : error.message;
    return hint ? `${said}. ${hint}` : said;
}

/**
 * Shows an error until work of the slot succeeds or the user closes it.
 * @param {string} slot
 * @param {Error & {code?: string}} error
 * @param {(again: boolean) => void} [decide] called when the user closes it or wants to try again
 */
export function showError(slot, error, decide) {
    if (!error.code && error.constructor !== Error) console.warn(error); // a defect of the page
    clearError(slot);
    const close = (again) => () => {
        box.remove();
        decide?.(again);
    };
    const again = { type: "button", data: { testid: "again" }, onclick: close(true) };
    const leave = { type: "button", "aria-label": "Close this message", onclick: close(false) };
    const box = el(
        "p",
        { class: "error", data: { slot, testid: "error", code: error.code ?? "" } },
        el("span", {}, errorText(error)),
        decide && el("button", again, "Try again"),
        el("button", leave, "×"),
    );
    byId("errors").append(box);
}

/** Shows an error; whether the user then wants the work to run again. */
async function isWantedAgain(slot, error, signal) {
    if (error.code !== "connection_lost" && !error.retryable) {
        showError(slot, error);
        return false;
    }
    return new Promise((resolve) => {
        showError(slot, error, resolve);
        signal.addEventListener("abort", () => resolve(false), { once: true });
    });
}

export function clearError(slot) {
    for (const box of byId("errors").querySelectorAll(`[data-slot="${slot}"]`)) box.remove();
}

/** Says something to screen readers. */
export function announce(text) {
    byId("announcer").textContent = text;
}
