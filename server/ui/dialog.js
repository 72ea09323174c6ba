/**
 * dialog.js: windows above the page: one with a title, and one that asks before something is done.
 */
import { el, labelled } from "./dom.js";

/**
 * A dialog with a title; Escape, its button and `dialog.close()` close it.
 * @param {string} id
 * @param {string} title
 * @param {...Node} children
 * @returns {HTMLDialogElement} which is part of the page, closed
 */
export function dialogOf(id, title, ...children) {
    const dialog = el("dialog", { id, "aria-labelledby": `${id}-title` });
    const close = { type: "button", "aria-label": "Close", onclick: () => dialog.close() };
    const heading = el("h2", { id: `${id}-title` }, title);
    dialog.append(el("div", { class: "title" }, heading, el("button", close, "×")), ...children);
    document.body.append(dialog);
    return dialog;
}

/**
 * Asks the user.
 * @param {string} title
 * @param {string} text what will happen
 * @param {string} action text of the button that says yes
 * @param {{fields?: Array<{name: string, label: string, type?: string, value?: any, min?: number,
 *     max?: number, pattern?: string, required?: boolean}>, danger?: boolean}} [what]
 * @returns {Promise<Object<string, string> | null>} the fields' texts; null: the user said no
 */
export function ask(title, text, action, { fields = [], danger = false } = {}) {
    const controls = fields.map(({ name, label, ...rest }) => {
        const data = { testid: `ask-${name}` };
        const control = el("input", { name, autocomplete: "off", data, ...rest });
        return { name, control, field: labelled(label, control) };
    });
    const yes = el(
        "button",
        { type: "submit", class: danger ? "danger" : "primary", data: { testid: "ask-yes" } },
        action,
    );
    const no = { type: "button", data: { testid: "ask-no" }, onclick: () => dialog.close() };
    const form = el(
        "form",
        {},
        el("p", {}, text),
        controls.map(({ field }) => field),
        el("div", { class: "toolbar end" }, el("button", no, "Cancel"), yes),
    );
    const dialog = dialogOf("ask-dialog", title, form);
    return new Promise((resolve) => {
        let answer = null;
        form.addEventListener("submit", (event) => {
            event.preventDefault();
            answer = {};
            for (const { name, control } of controls) answer[name] = control.value.trim();
            dialog.close();
        });
        dialog.addEventListener("close", () => {
            dialog.remove();
            resolve(answer);
        });
        dialog.showModal();
        (controls[0]?.control ?? yes).focus();
    });
}
