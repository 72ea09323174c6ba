/**
 * app.js: the start of the page: theme, tabs, API key, help; then the models, then the panels.
 */
import { listen, set, settings } from "./address.js";
import { apiKey, keepKey, onKeyWanted, readModels } from "./client.js";
import { dialogOf } from "./dialog.js";
import { byId, el, fill, select } from "./dom.js";
import * as head from "./head.js";
import * as input from "./input.js";
import * as live from "./live.js";
import * as overview from "./overview.js";
import * as sessions from "./sessions.js";
import { run } from "./status.js";
import { startWords } from "./words.js";
import { part } from "./store.js";

const panels = [input, overview, head, sessions, live];
const state = part("app", { started: false }); // the panels, once

// ---- Theme ------------------------------------------------------------------------------------

const themes = [
    ["system", "System"],
    ["light", "Light"],
    ["dark", "Dark"],
];

function showTheme() {
    const { theme } = settings();
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
}

/** Paper is white, whatever the theme: maps are drawn anew for it, and then as before. */
function startPrint() {
    addEventListener("beforeprint", () => (document.documentElement.dataset.theme = "light"));
    addEventListener("afterprint", showTheme);
}

function themeSwitch() {
    const list = select(themes, settings().theme, (theme) => set({ theme }), {
        "aria-label": "Theme",
        data: { testid: "theme" },
    });
    listen(({ theme }) => (list.value = theme));
    return list;
}

// ---- Tabs -------------------------------------------------------------------------------------

const tabs = ["attention", "sessions"];

function showTab() {
    const shown = tabs.includes(settings().tab) ? settings().tab : tabs[0];
    for (const name of tabs) {
        const tab = byId(`tab-${name}`);
        tab.setAttribute("aria-selected", String(name === shown));
        tab.tabIndex = name === shown ? 0 : -1;
        byId(name).hidden = name !== shown;
    }
}

function moveTab(event) {
    const at = tabs.findIndex((name) => event.target.id === `tab-${name}`);
    const last = tabs.length - 1;
    const next = {
        ArrowRight: at < last ? at + 1 : 0,
        ArrowLeft: at > 0 ? at - 1 : last,
        Home: 0,
        End: last,
    }[event.key];
    if (at < 0 || next === undefined) return;
    event.preventDefault();
    set({ tab: tabs[next] });
    byId(`tab-${tabs[next]}`).focus();
}

function startTabs() {
    for (const name of tabs) {
        const tab = byId(`tab-${name}`);
        tab.dataset.testid = `tab-${name}`;
        tab.addEventListener("click", () => set({ tab: name }, { step: true }));
    }
    byId("tabs").addEventListener("keydown", moveTab);
    listen((_, changed) => changed.has("tab") && showTab());
    showTab();
}

/** The link past the controls moves the focus only: what follows # in the address are settings. */
function startSkip() {
    document.querySelector(".skip").addEventListener("click", (event) => {
        event.preventDefault();
        set({ tab: "attention" });
        byId(byId("view").hidden ? "overview" : "view").focus();
    });
}

// ---- Dialogs ----------------------------------------------------------------------------------

function keyDialog() {
    const explained =
        "Where attnd has API keys, its calls need one. The key stays in this tab and goes with it.";
    const reason = el("p", { role: "status" });
    const field = el("input", {
        type: "password",
        id: "key-field",
        autocomplete: "off",
        spellcheck: "false",
        data: { testid: "key-input" },
    });
    const button = (type, testid, text) => el("button", { type, data: { testid } }, text);
    const forget = button("button", "key-forget", "Forget the key");
    const save = button("submit", "key-save", "Use this key");
    save.className = "primary";
    const form = el(
        "form",
        {},
        el("label", { class: "field" }, el("span", {}, "API key"), field),
        el("div", { class: "toolbar" }, save, forget),
    );
    const dialog = dialogOf("key-dialog", "API key", reason, form);
    return { dialog, field, forget, form, reason, explained };
}

/** Makes the key's button; a refused call opens the same dialog. */
function startKey() {
    const parts = keyDialog();
    const button = el("button", { type: "button", data: { testid: "key" } }, "Key");
    let given = null; // tells a call that waits for a key whether there is one
    const show = () => {
        button.setAttribute("aria-label", apiKey() ? "API key: one is in use" : "API key: none");
        button.dataset.held = String(apiKey() !== "");
        parts.forget.disabled = apiKey() === "";
    };
    const open = (text) => {
        parts.reason.textContent = text;
        parts.field.value = "";
        show();
        if (!parts.dialog.open) parts.dialog.showModal();
        parts.field.focus();
    };
    parts.form.addEventListener("submit", (event) => {
        event.preventDefault();
        const key = parts.field.value.trim();
        if (key === "") return;
        keepKey(key);
        if (given) given(true);
        else if (!state.started) start();
        parts.dialog.close();
    });
    parts.forget.addEventListener("click", () => {
        keepKey("");
        parts.dialog.close();
    });
    parts.dialog.addEventListener("close", () => {
        parts.field.value = "";
        given?.(false);
        given = null;
        show();
    });
    button.addEventListener("click", () => open(parts.explained));
    onKeyWanted((wrong) => {
        open(wrong ? `attnd does not know this key. ${parts.explained}` : parts.explained);
        return new Promise((resolve) => (given = resolve));
    });
    show();
    return button;
}

const keys = [
    ["Everywhere", ["Tab", "the next control"], ["?", "this list"], ["Escape", "close, or back"]],
    ["Tabs", ["← →", "the other tab"]],
    [
        "All heads",
        ["← → ↑ ↓", "another head"],
        ["Home End", "first and last"],
        ["Enter", "open it"],
    ],
    [
        "One head",
        ["← → ↑ ↓", "another cell"],
        ["Home End", "first and last cell of the row"],
        ["Page Up, Page Down", "a screen up or down"],
        ["Shift + ← → ↑ ↓", "move the picture"],
        ["+ −", "zoom in and out"],
        ["0", "the whole map"],
        ["[ ]", "previous and next head"],
        ["Escape", "back to all heads"],
    ],
];

function keyRows(/** @type {any[]} */ [place, ...rows]) {
    return [
        el("tr", {}, el("th", { colspan: "2", scope: "colgroup" }, place)),
        rows.map(([key, does]) =>
            el("tr", {}, el("td", {}, el("kbd", {}, key)), el("td", {}, does)),
        ),
    ].flat();
}

function startHelp() {
    const dialog = dialogOf(
        "help-dialog",
        "Keys",
        el("table", { class: "keys" }, el("tbody", {}, keys.flatMap(keyRows))),
    );
    const open = () => dialog.open || dialog.showModal();
    addEventListener("keydown", (event) => {
        const typing = /** @type {Element} */ (event.target).closest?.(
            "input, textarea, select, dialog",
        );
        if (event.key !== "?" || typing || event.ctrlKey || event.metaKey) return;
        event.preventDefault();
        open();
    });
    const name = { "aria-label": "Help: keys", data: { testid: "help" } };
    return el("button", { type: "button", onclick: open, ...name }, "?");
}

// ---- Start ------------------------------------------------------------------------------------

/** Until the models are known, says why not, with a button that tries again. */
async function start() {
    const box = byId("starting");
    const say = (...children) => {
        fill(box, ...children);
        box.hidden = children.length === 0;
    };
    say();
    const found = await run("models", "Asking attnd for its models", (signal) =>
        readModels(signal, () =>
            say(
                el("span", { class: "spinner", "aria-hidden": "true" }),
                el("span", {}, "attnd is loading its models. This page goes on by itself."),
            ),
        ),
    );
    if (!found) {
        const again = { type: "button", onclick: start, data: { testid: "retry" } };
        say(
            el("span", {}, "The page does not know the models of attnd yet."),
            el("button", again, "Try again"),
        );
        return;
    }
    say();
    state.started = true;
    sessions.onLook(input.lookAt);
    for (const panel of panels) panel.start();
}

listen((_, changed) => changed.has("theme") && showTheme());
showTheme();
startPrint();
startTabs();
startSkip();
fill(byId("header-tools"), themeSwitch(), startWords(), startKey(), startHelp());
start();
