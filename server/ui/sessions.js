/**
 * sessions.js: the sessions of the daemon: a list, and what can be done with each.
 *
 * Where the API key may not list sessions, the list has those whose id was typed or that this page
 * made.  Ids and names come from other callers: they are text, and nothing else.
 */
import { listen, set, settings } from "./address.js";
import { base, client } from "./client.js";
import { ask } from "./dialog.js";
import { byId, bytesText, download, el, fill, labelled } from "./dom.js";
import { announce, run, showError } from "./status.js";
import { part } from "./store.js";

const PAGE = 25; // sessions of a page
const STORED = "attnd-sessions"; // ids that this tab knows
const MOST_KNOWN = 100;
const MOST_EXPORTED = 256e6; // bytes of a session whose file the page holds in memory
const ID = "[A-Za-z0-9][A-Za-z0-9_.\\-]{0,63}";

const parts = {}; // elements of the panel by name
const state = part("sessions", {
    starts: [""], // `after` of each page up to the one that is shown
    next: null, // `after` of the next page, null at the end
    listed: true, // whether this key may list
    /** @type {(id: string) => Promise<any>} shows a session in the first tab */
    lookAt: async () => {},
});

const pathOf = (
    /** @type {{session_id: string, owner?: string}} */ { session_id, owner },
    rest = "",
) =>
    `/sessions/${encodeURIComponent(session_id)}${rest}` +
    (owner !== undefined && rest === "" ? `?owner=${encodeURIComponent(owner)}` : "");

/** The path that ends this session and none that begins later under its id. */
const endOf = (session) =>
    `${pathOf(session)}${session.owner !== undefined ? "&" : "?"}epoch=${session.epoch}`;

// ---- Ids that this tab knows ------------------------------------------------------------------

function known() {
    return JSON.parse(sessionStorage.getItem(STORED) ?? "[]");
}

const keep = (ids) => sessionStorage.setItem(STORED, JSON.stringify(ids.slice(0, MOST_KNOWN)));

/** Adds a session to those that are listed for a key that may not list. */
export function remember(id) {
    keep([id, ...known().filter((other) => other !== id)]);
}

function forget(id) {
    keep(known().filter((other) => other !== id));
}

async function readKnown(signal) {
    const found = [];
    for (const id of known()) {
        try {
            found.push(await client(signal).get(pathOf({ session_id: id })));
        } catch (/** @type {any} */ error) {
            if (error.kind !== "not_found") throw error;
            forget(id);
        }
    }
    return { sessions: found, next: null };
}

// ---- Reading ----------------------------------------------------------------------------------

async function readPage(signal) {
    const after = state.starts[state.starts.length - 1];
    const query = `details=1&limit=${PAGE}${after ? `&after=${encodeURIComponent(after)}` : ""}`;
    try {
        const page = await client(signal).get(`/sessions?${query}`);
        state.listed = true;
        return page;
    } catch (/** @type {any} */ error) {
        if (error.code !== "forbidden") throw error;
        state.listed = false;
        return readKnown(signal);
    }
}

async function refresh() {
    parts.table.setAttribute("aria-busy", "true");
    const page = await run("session", "Reading sessions", readPage);
    parts.table.setAttribute("aria-busy", "false");
    if (page === undefined) return;
    state.next = page.next;
    show(page.sessions);
}

function turn(forward) {
    if (forward) state.starts.push(state.next);
    else state.starts.pop();
    refresh();
}

// ---- What can be done -------------------------------------------------------------------------

const longest = ({ lengths }) => Math.max(0, ...lengths.map(({ length }) => length));

/** Runs `work(client)`, says so, and reads the list again. */
async function change(label, said, work) {
    const done = await run("session", label, async (signal) => {
        await work(client(signal));
        return true;
    });
    if (!done) return;
    announce(said);
    await refresh();
}

async function fork(session) {
    const text = `A new session that goes on from ${session.session_id}.`,
        most = longest(session);
    const asked = await ask("Fork", text, "Fork", {
        fields: [
            { name: "id", label: "Id of the new session (empty: attnd makes one)", pattern: ID },
            { name: "length", label: "Tokens (empty: all)", type: "number", min: 0, max: most },
        ],
    });
    if (!asked) return;
    const fields = { epoch: session.epoch, revision: session.revision };
    if (asked.id) fields.session_id = asked.id;
    if (asked.length) fields.length = Number(asked.length);
    await change("Forking", "Forked", async (caller) =>
        remember((await caller.post(pathOf(session, "/fork"), fields)).session_id),
    );
}

async function truncate(session) {
    const most = longest(session);
    const text = `Session ${session.session_id} forgets all but the first tokens of every layer.`;
    const field = { name: "length", label: `Tokens to keep, 0 to ${most}`, value: most };
    const asked = await ask("Truncate", text, "Truncate", {
        fields: [{ ...field, type: "number", min: 0, max: most, required: true }],
        danger: true,
    });
    if (!asked) return;
    const { epoch, revision } = session,
        fields = { length: Number(asked.length), epoch, revision };
    await change("Truncating", "Truncated", (caller) =>
        caller.post(pathOf(session, "/truncate"), fields),
    );
}

async function remove(session) {
    const text = `Session ${session.session_id} ends, and its ${longest(session)} tokens are gone.`;
    if (!(await ask("Delete", text, "Delete", { danger: true }))) return;
    await change("Deleting", "Deleted", async (caller) => {
        await caller.request("DELETE", endOf(session));
        forget(session.session_id);
    });
}

async function exportState(session) {
    const state = await run("session", "Exporting", async (signal) => {
        if (session.bytes > MOST_EXPORTED)
            throw new Error(
                `${session.session_id} has ${bytesText(session.bytes)}, too many for a page: ` +
                    `curl ${base.slice(0, -1)}${pathOf(session, "/state")} -o FILE`,
            );
        const headers = { Accept: "application/octet-stream" };
        return client(signal).request("GET", pathOf(session, "/state"), { headers });
    });
    const name = `${session.session_id}.safetensors`;
    if (state) download(name, state.buffer, "application/octet-stream");
}

/** @param {(id: string) => Promise<void>} shower shows the last key of a session in the first tab */
export function onLook(shower) {
    state.lookAt = shower;
}

/** Opens the session in the first tab. */
function look({ session_id }) {
    set({ tab: "attention" }, { step: true });
    return state.lookAt(session_id);
}

const actions = [
    { name: "look", text: "Look", does: look, wants: longest },
    { name: "fork", text: "Fork", does: fork },
    { name: "truncate", text: "Truncate", does: truncate, wants: longest },
    { name: "export", text: "Export", does: exportState },
    { name: "delete", text: "Delete", does: remove, danger: true },
];

function buttons(session) {
    return actions.map(({ name, text, does, wants, danger }) =>
        el(
            "button",
            {
                type: "button",
                class: danger ? "danger" : null,
                disabled: wants !== undefined && !wants(session),
                "aria-label": `${text} ${session.session_id}`,
                data: { testid: name },
                onclick: () => does(session),
            },
            text,
        ),
    );
}

// ---- The table --------------------------------------------------------------------------------

function secondsText(seconds) {
    if (seconds < 100) return `${Math.round(seconds)} s`;
    return seconds < 6000 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

/** "128 of 4096", or "4 to 128 of 4096" with a list of all layers where they differ. */
function lengthsOf({ lengths, max_length }) {
    const all = lengths.map(({ length }) => length);
    const least = Math.min(...all),
        most = Math.max(...all);
    if (least === most) return el("span", {}, `${most} of ${max_length}`);
    return el(
        "details",
        {},
        el("summary", {}, `${least} to ${most} of ${max_length}`),
        el(
            "ul",
            { class: "lengths" },
            lengths.map(({ layer, length }) => el("li", {}, `layer ${layer}: ${length}`)),
        ),
    );
}

function rowOf(session, owners) {
    const { session_id, model, bytes, idle_s, ttl_s, owner } = session;
    const cells = [
        ["Session", el("code", {}, session_id)],
        ...(owners ? [["Owner", owner ?? ""]] : []),
        ["Model", model ?? "without weights"],
        ["Tokens", lengthsOf(session)],
        ["Bytes", bytesText(bytes), "number"],
        ["Idle", `${secondsText(idle_s)} of ${secondsText(ttl_s)}`, "number"],
        ["Actions", el("div", { class: "toolbar" }, buttons(session))],
    ];
    return el(
        "tr",
        { data: { testid: `session-row-${session_id}` } },
        cells.map(([name, value, kind]) => el("td", { class: kind, data: { name } }, value)),
    );
}

function show(sessions) {
    const owners = sessions.some(({ owner }) => owner !== undefined);
    const columns = ["Session", "Owner", "Model", "Tokens", "Bytes", "Idle", "Actions"];
    const names = columns.filter((name) => owners || name !== "Owner");
    const kindOf = (name) => (name === "Bytes" || name === "Idle" ? "number" : null);
    fill(
        parts.table,
        el("caption", { class: "visually-hidden" }, "Sessions"),
        el(
            "thead",
            {},
            el(
                "tr",
                {},
                names.map((name) => el("th", { scope: "col", class: kindOf(name) }, name)),
            ),
        ),
        el(
            "tbody",
            {},
            sessions.map((session) => rowOf(session, owners)),
        ),
    );
    parts.table.hidden = sessions.length === 0;
    parts.none.hidden = sessions.length > 0;
    parts.none.textContent = state.listed
        ? "There is no session."
        : "This tab knows of no session.";
    parts.byId.hidden = state.listed;
    parts.pages.hidden = !state.listed || (state.starts.length === 1 && state.next === null);
    parts.previous.disabled = state.starts.length === 1;
    parts.next.disabled = state.next === null;
    parts.place.textContent = `Page ${state.starts.length}`;
}

/** For a key that may not list: a session by its id. */
function openById() {
    const field = el("input", { pattern: ID, required: true, data: { testid: "session-id" } });
    return el(
        "form",
        {
            class: "toolbar",
            onsubmit: async (event) => {
                event.preventDefault();
                const id = field.value.trim();
                remember(id);
                field.value = "";
                await refresh();
                if (!known().includes(id))
                    showError("session", new Error(`This key sees no session ${id}.`));
            },
        },
        el("p", { class: "muted" }, "This key may not list sessions: that takes the scope admin."),
        labelled("Id of a session", field),
        el("button", { type: "submit", data: { testid: "session-open" } }, "Show it"),
    );
}

/** Makes the panel. */
export function start() {
    const button = (testid, text, onclick) =>
        el("button", { type: "button", data: { testid }, onclick }, text);
    parts.table = el("table", { class: "sessions" });
    parts.none = el("p", { class: "muted", hidden: true });
    parts.byId = openById();
    parts.byId.hidden = true;
    parts.previous = button("previous-page", "Previous", () => turn(false));
    parts.next = button("next-page", "Next", () => turn(true));
    parts.place = el("span", { class: "muted" });
    parts.pages = el("div", { class: "toolbar pages", hidden: true });
    parts.pages.append(parts.previous, parts.place, parts.next);
    const again = button("refresh", "Refresh", refresh);
    fill(
        byId("session-list"),
        el(
            "div",
            { class: "stack" },
            el("div", { class: "title" }, el("h2", {}, "Sessions"), again),
            parts.byId,
            parts.none,
            el("div", { class: "scroll" }, parts.table),
            parts.pages,
        ),
    );
    listen(({ tab }, changed) => changed.has("tab") && tab === "sessions" && refresh());
    if (settings().tab === "sessions") refresh();
}
