/**
 * status.js: work that takes time, and what went wrong.
 *
 * One line of the page says what is being computed, with a button that cancels it; errors of the
 * daemon are shown as text, with what to do about them, until the next work succeeds.
 */
import { byId, el, fill } from "./dom.js";

const running = new Map(); // slot -> { label, done, of, controller, shown }

function show() {
    const line = byId("progress");
    const works = [...running.values()].filter((work) => work.shown);
    line.hidden = works.length === 0;
    fill(
        line,
        works.map((work) => [
            el("span", { class: "spinner", "aria-hidden": "true" }),
            el("span", {}, work.of > 1 ? `${work.label}: ${work.done} of ${work.of}` : work.label),
        ]),
        el(
            "button",
            {
                type: "button",
                data: { testid: "cancel" },
                onclick: () => works.forEach((work) => work.controller.abort()),
            },
            "Cancel",
        ),
    );
}

/**
 * Runs `work(signal, progress)`.  Work of the same slot that still runs is cancelled first.
 * @param {string} slot what the work is for: "overview", "head", "cell", ...
 * @param {string} label what the line says
 * @param {(signal: AbortSignal, progress: (done: number, of: number) => void) => Promise<any>} work
 * @returns {Promise<any>} what work returns; undefined where it was cancelled or has failed, and
 *     then the page says why
 */
export async function run(slot, label, work) {
    cancel(slot);
    const entry = { label, done: 0, of: 1, controller: new AbortController(), shown: false };
    running.set(slot, entry);
    const timer = setTimeout(() => {
        entry.shown = true;
        show();
    }, 150); // short work shows nothing that would flicker
    try {
        const result = await work(entry.controller.signal, (done, of) => {
            Object.assign(entry, { done, of });
            if (entry.shown) show();
        });
        if (entry.controller.signal.aborted) return undefined;
        clearError(slot);
        return result;
    } catch (error) {
        if (!entry.controller.signal.aborted) showError(slot, error);
        return undefined;
    } finally {
        clearTimeout(timer);
        if (running.get(slot) === entry) running.delete(slot);
        show();
    }
}

/** Cancels the work of a slot, if some is running. */
export function cancel(slot) {
    running.get(slot)?.controller.abort();
}

// ---- Errors -----------------------------------------------------------------------------------

const remedies = {
    connection_lost: "Is attnd still running? Look at its log, then try again.",
    unauthorized: "Enter an API key with the button Key.",
    forbidden: "This key lacks the scope: use one that has it.",
    body_too_large: "Use fewer tokens or layers, or start attnd with a larger max_body_bytes.",
    reply_too_large: "Look at fewer heads or rows, or start attnd with a larger max_reply_bytes.",
    too_many_tokens: "Use fewer tokens, or start attnd with a larger max_tokens.",
    position_conflict: "These are not the rows of the session's last step: choose those.",
    queue_full: "The daemon is busy: try again in a moment.",
    draining: "The daemon is stopping: start it again, then reload.",
};

/** @returns {string} an error as the page shows it: what happened, then what to do */
export function errorText(error) {
    const hint = remedies[error.code];
    return hint ? `${error.message}. ${hint}` : error.message;
}

/** Shows an error until work of the slot succeeds or the user closes it. */
export function showError(slot, error) {
    if (!error.code) console.warn(error); // a defect of the page, or a file that is not as it says
    clearError(slot);
    const close = el("button", { type: "button", "aria-label": "Close this message" }, "×");
    const box = el("p", { class: "error", data: { slot, testid: "error" } }, errorText(error), close);
    close.addEventListener("click", () => box.remove());
    byId("errors").append(box);
}

export function clearError(slot) {
    for (const box of byId("errors").querySelectorAll(`[data-slot="${slot}"]`)) box.remove();
}

/** Says something to screen readers. */
export function announce(text) {
    byId("announcer").textContent = text;
}
