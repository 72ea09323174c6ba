/**
 * input.js: the panel that says what is looked at: a model, its layers, and where rows come from.
 *
 * A button shows the fields of a way of input, and using them chooses it. What can be written into
 * an address (text, seed, a capture by path, a session) is a setting; files are not, and stay in
 * `files`. Whatever changes, `apply` makes a Source of it all, or shows why there is none.
 */
import { listen, set, settings, integers } from "./address.js";
import { apiKey, client, models } from "./client.js";
import { combined } from "./combined.js";
import * as demos from "./demo.js";
import { afterPause, byId, el, fill } from "./dom.js";
import {
    captureOf,
    digestOf,
    fetchFile,
    InputError,
    metadataTokens,
    open,
    readLabels,
    rowsShape,
} from "./files.js";
import {
    controls,
    encoderFields,
    makePanes,
    modelFields,
    pane,
    panes,
    showPane,
} from "./input_panes.js";
import * as live from "./live_session.js";
import { tokensOf } from "./rows.js";
import * as sources from "./source.js";
import { run, showError } from "./status.js";
import { groupNamed, shownWeights, weightGroups, weightsSource } from "./weights.js";
import { part } from "./store.js";

const EXAMPLE = "the cat sat on the mat , and the dog sat on the rug .";
const narrow = matchMedia("(width < 900px)"); // there the panel closes for every source
const stacked = matchMedia("(width < 1600px)"); // there it closes for what is shown at the start
const SMALL = 256e6; // bytes of weights up to which the example is shown unasked
const NO_MODEL = "This attnd serves no model: start it with --model NAME=DIR";
const MAX_ADDRESS = 8000; // characters of a text that an address keeps

const state = part("input", {
    kind: null, // way of input
    text: "", // that is shown; its field may have another by now
    settled: false, // what the address says, or the example, has been shown
    quiet: false, // settings are changed whose change this panel has seen already
    uncombined: null, // the source of what was chosen, before its heads are combined
    looked: null, // at weights: {opened, name, labels, source}
    files: { capture: null, rows: null, weights: null, encoder: null, labels: null },
});
const { files } = state;
const FILE_SETTINGS = {
    capture: "capture_file",
    rows: "rows_file",
    weights: "weights_file",
    encoder: "encoder_file",
};

// ---- Supplies ---------------------------------------------------------------------------------

const chosenEntry = (file, list) =>
    file.entries.find((entry) => entry.name === list.value) ?? file.entries[0];

const notCapture = ({ name }) =>
    new InputError(`${name}: is no capture; its tensors are not named layer.N`);

function textSupply(text) {
    return sources.tokenSupply(tokensOf(text), settings().seed);
}

/** Rows of the file that was chosen last, of the kind that is asked for. */
function fileSupply(which) {
    const opened = files[which];
    if (!opened) throw new InputError("Choose a file first");
    const { name } = opened,
        capture = captureOf(opened),
        labels = files.labels?.lines ?? null;
    if (capture) return sources.captureSupply(name, capture, { labels });
    const known = labels ?? metadataTokens(opened);
    return sources.tensorSupply(name, chosenEntry(opened, controls.tensor), known);
}

/** Rows that keys and values come from; null for self-attention. */
function encoderSupply() {
    const { name } = files.encoder ?? {},
        capture = files.encoder && captureOf(files.encoder);
    if (capture) return sources.captureSupply(name, capture, { encoder: capture.encoder.size > 0 });
    if (files.encoder)
        return sources.tensorSupply(name, chosenEntry(files.encoder, controls["encoder-tensor"]));
    if (settings().encoder !== "") return textSupply(settings().encoder);
    if (state.kind !== "capture" || !files.capture) return null;
    return sources.captureSupply(files.capture.name, captureOf(files.capture), { encoder: true });
}

function supplyOf(which) {
    return which === "text" ? textSupply(state.text || controls.text.value) : fileSupply(which);
}

// ---- Sources ----------------------------------------------------------------------------------

/** The model of the setting, else that of the capture, else the first that takes the rows. */
function modelFor(supply, encoder) {
    if (models().length === 0) throw new InputError(NO_MODEL);
    const named = (name) => models().find((model) => model.name === name);
    const names = models().map(({ name }) => name);
    if (settings().model !== "" && !named(settings().model))
        throw new InputError(
            `attnd serves no model ${settings().model}; it serves ${names.join(", ")}`,
        );
    const ofCapture = state.kind === "capture" && files.capture?.metadata.model;
    const given = named(settings().model) ?? (ofCapture ? named(ofCapture) : undefined);
    if (given || !supply) return given ?? models()[0];
    return models().find((model) => sources.takesRows(model, supply, encoder)) ?? models()[0];
}

/** What a session's step is made of: the rows of another group, or its own keys. */
async function sessionSource() {
    const id = controls["session-id"].value.trim() || controls.session.value;
    if (!id) throw new InputError("Choose a session, or type its id.");
    const session = await client().get(`/sessions/${encodeURIComponent(id)}`);
    const model =
        models().find(({ name }) => name === session.model) ?? sources.weightlessModel(session);
    if (session.model !== null) showModel(model);
    else controls.about.textContent = "A session without weights: its model is its caller's.";
    const step = controls.step.value;
    if (step === "key") return sources.lastKeySource(model, session);
    const supply = supplyOf(files.rows ? "rows" : files.capture ? "capture" : "text");
    const count = Number(controls.count.value) || supply.length;
    const source = sources.stepSource(model, session, supply, { count, peek: step === "peek" });
    await source.call(source.layers[0], { outputs: ["lse"], plain: true }); // or says what is wrong
    return source;
}

function rowsSource() {
    const supply = supplyOf(state.kind),
        encoder = encoderSupply(),
        model = modelFor(supply, encoder);
    showModel(model);
    const source = sources.rowsSource(model, supply, encoder, integers(settings().layers));
    const of = state.kind === "capture" ? files.capture.metadata.model : undefined;
    if (of !== undefined && of !== model.name)
        source.mark = `rows of another model: captured from ${of}, weights of ${model.name}`;
    return source;
}

/** Attention weights of a file, all of which are read once. */
async function fileWeights(signal, progress) {
    const opened = files.weights,
        [name, group] = groupNamed(opened, controls.group.value),
        labels = files.labels?.lines ?? null;
    if (
        state.looked?.opened !== opened ||
        state.looked.name !== name ||
        state.looked.labels !== labels
    ) {
        const source = await weightsSource(opened, group, labels, signal, progress);
        state.looked = { opened, name, labels, source };
    }
    controls.about.textContent = "The weights of the file, as they are: attnd computes nothing.";
    return shownWeights(state.looked.source, integers(settings().layers));
}

/** The demonstration model over a sentence, whose rows the page computes with it. */
async function sentenceSource(signal) {
    const source = await demos.sentenceSource(settings().sentence, signal);
    showModel(source.model);
    return source;
}

const makers = {
    sentence: sentenceSource,
    session: sessionSource,
    weights: fileWeights,
    text: rowsSource,
    rows: rowsSource,
    capture: rowsSource,
};

/** The group whose file the address names and this page does not have, as after a reload. */
function missing() {
    const lacks = (which) => {
        const name = settings()[FILE_SETTINGS[which]];
        return name !== "" && name !== files[which]?.name;
    };
    return Object.keys(FILE_SETTINGS).find(lacks);
}

/** Asks for a file again; nothing else is shown in its place. */
function askAgain(which) {
    const name = settings()[FILE_SETTINGS[which]];
    showPane(which === "encoder" ? (state.kind ?? "text") : which);
    if (which === "encoder") controls.second.open = true;
    controls.details.open = true;
    const note = { class: "mark", role: "status", data: { testid: "input-missing" } };
    const { digest } = settings();
    fill(
        controls.looked,
        el("span", note, `${name} was on your disk: choose it again`),
        digest &&
            el("span", { data: { testid: "input-digest" } }, `its SHA-256 begins with ${digest}`),
    );
    if (sources.current()) sources.use(null);
}

/** Makes the source of all settings and files, shows it, and returns it. */
async function apply() {
    const lost = missing();
    if (lost) return askAgain(lost);
    if (state.kind === null) return undefined;
    showPane(state.kind);
    const source = await run("input", "Reading the input", async (signal, progress) => {
        state.uncombined = await makers[state.kind](signal, progress);
        return combined(state.uncombined, settings().heads);
    });
    if (source) sources.use(source);
    return source;
}

/** Closes the panel over rows that are shown, where it stands above them. */
function close(source) {
    if (!["rows", "weights"].includes(source?.kind) || !controls.details.open) return;
    const { details } = controls,
        focused = details.contains(document.activeElement);
    details.open = false;
    if (focused) details.querySelector("summary").focus();
}

// ---- What the user does -----------------------------------------------------------------------

/** Chooses a way of input; settings of the others leave the address. */
async function choose(next, changes = {}) {
    state.kind = next;
    const others = {
        digest: files[next]?.digest ?? "",
        sentence: "",
        text: "",
        capture: "",
        session: "",
        capture_file: "",
        rows_file: "",
        weights_file: "",
    };
    if (FILE_SETTINGS[next]) others[FILE_SETTINGS[next]] = files[next].name;
    if (state.kind === "text") state.text = controls.text.value;
    if (state.kind === "text" && state.text.length <= MAX_ADDRESS) others.text = state.text;
    if (state.kind === "sentence") others.sentence = controls.sentence.value;
    if (state.kind === "session")
        others.session = controls["session-id"].value || controls.session.value;
    quietly({ ...others, ...changes });
    const source = await apply();
    if (stacked.matches) close(source);
}

/** Changes settings whose change this panel has seen already. */
function quietly(changes) {
    state.quiet = true;
    set(changes);
    state.quiet = false;
}

/** Offers tensors that can be rows, those that fit a layer first. */
function offerTensors(list, opened) {
    const widths = new Set(
        models().flatMap((model) =>
            model.resident_layers.flatMap((layer) => {
                const spec = sources.specOf(model, layer);
                return [spec.hidden_size, spec.key_size];
            }),
        ),
    );
    const fits = (entry) => (widths.has(rowsShape(entry)[1]) ? 0 : 1);
    const entries = opened.entries.filter(rowsShape).sort((a, b) => fits(a) - fits(b));
    if (entries.length === 0)
        throw new InputError(`${opened.name}: has no tensor of numbers [tokens, width]`);
    const text = ({ name, shape }) => `${name} [${shape.join(", ")}]`;
    fill(
        list,
        entries.map((entry) => el("option", { value: entry.name }, text(entry))),
    );
    list.closest("label").hidden = entries.length < 2;
}

/** Offers the tensors that belong together, where a file has several such groups. */
function offerGroups(opened) {
    const groups = weightGroups(opened);
    const text = (/** @type {any} */ [name, [{ shape }]]) => `${name} [${shape.join(", ")}]`;
    fill(
        controls.group,
        [...groups].map((group) => el("option", { value: group[0] }, text(group))),
    );
    controls.group.closest("label").hidden = groups.size < 2;
}

/** Whether a file has attention weights, and nothing that could be rows. */
function isOfWeights(opened) {
    return weightGroups(opened).size > 0 && !captureOf(opened) && !opened.entries.some(rowsShape);
}

/** Says where a file is another one than that of the link, whose name it has. */
function tellOther(which, /** @type {import("./tensors.js").Opened} */ { name, digest }) {
    const wanted = settings();
    if (name !== wanted[FILE_SETTINGS[which]] || !digest || !wanted.digest) return;
    if (digest !== wanted.digest && missing() === which)
        showError(
            "digest",
            new Error(
                `${name}: is another file than that of the link, whose SHA-256 ` +
                    `begins with ${wanted.digest}; this one's begins with ${digest}`,
            ),
        );
}

/** Takes a file into a group: rows, capture, weights, encoder or labels.  Weights that are given
 *  as rows are looked at as weights. */
async function take(group, file) {
    let which = group;
    const done = await run("input", `Reading ${file.name}`, async () => {
        if (which === "labels") {
            files.labels = { name: file.name, lines: await readLabels(file) };
            return true;
        }
        const opened = await open(file);
        const capture = captureOf(opened);
        if (which === "rows" && isOfWeights(opened)) which = "weights";
        if (which === "capture" && !capture) throw notCapture(opened);
        if (which === "weights") offerGroups(opened);
        else if (!capture && which !== "capture")
            offerTensors(controls[which === "rows" ? "tensor" : "encoder-tensor"], opened);
        if (which !== "encoder") opened.digest = await digestOf(file);
        tellOther(which, opened);
        files[which] = opened;
        if (which !== "encoder") {
            files.labels = null; // those of the file before
            controls.labels.value = controls["weights-labels"].value = "";
        }
        return true;
    });
    if (!done) return;
    if (which === "encoder") quietly({ encoder_file: file.name });
    if (which === "labels" || which === "encoder") await apply();
    else await choose(which);
}

/** Without a second input. */
function clearEncoder() {
    files.encoder = null;
    quietly({ encoder: "", encoder_file: "" });
    for (const name of ["encoder", "encoder-text"]) controls[name].value = "";
    apply();
}

/** Files that were dropped: a text file has labels. */
async function dropped(list) {
    const isText = (file) => /\.(txt|tokens)$/i.test(file.name);
    for (const file of list.filter((file) => !isText(file))) {
        const opened = await run("input", `Reading ${file.name}`, () => open(file));
        const otherwise = state.kind === "weights" ? "weights" : "rows";
        if (opened) await take(captureOf(opened) ? "capture" : otherwise, file);
    }
    for (const file of list.filter(isText)) await take("labels", file);
}

/** Shows what an address says; also when Back or a link changes the settings `names` of it. */
async function fromSettings(names = new Set(watched)) {
    const given = settings();
    for (const name of ["seed", "layers", "padding"]) controls[name].value = given[name];
    controls["encoder-text"].value = given.encoder;
    if (names.has("text") && given.text !== "") controls.text.value = state.text = given.text;
    if (names.has("sentence") && given.sentence !== "") controls.sentence.value = given.sentence;
    if (names.has("session")) controls["session-id"].value = given.session;
    if (names.has("capture") && given.capture !== "") {
        const opened = await run("input", "Fetching the capture", async (signal) => {
            const fetched = await fetchFile(given.capture, signal);
            if (!captureOf(fetched)) throw notCapture(fetched);
            return fetched;
        });
        if (!opened) return undefined;
        files.capture = opened;
    }
    state.kind =
        ["sentence", "capture", "session", "text"].find((name) => given[name] !== "") ??
        ["capture", "rows", "weights"].find((name) => given[FILE_SETTINGS[name]] !== "") ??
        state.kind;
    return apply();
}

/** Shows the last key of a session, which the address then names. */
export function lookAt(id) {
    controls["session-id"].value = id;
    controls.step.value = "key";
    return choose("session");
}

// ---- What is shown ----------------------------------------------------------------------------

function showModel(model) {
    controls.model.value = model.name;
    const cross = model.is_cross ? ", keys from a second input" : "";
    const note = model.random ? "Random weights: patterns mean nothing. " : "";
    controls.about.textContent =
        `${note}${model.family}, ${sources.counted(model.resident_layers.length, "layer")}, ` +
        `${sources.counted(model.num_attention_heads, "head")}, rows of ${model.hidden_size}, ` +
        `${sources.masksOf(model)}${cross}`;
    controls.layers.placeholder = `all: ${model.resident_layers.join(",")}`;
}

/** One line that says what is looked at. */
function showSummary(source) {
    if (!source) return;
    const { mark, next } = source;
    fill(
        controls.looked,
        sources.factsOf(source),
        mark && el("span", { class: "mark" }, mark),
        next && demos.expected(next),
    );
}

/** The line with the sentence: it stands above the panel, since it is what the page opens with. */
function sentenceLine() {
    const typed = afterPause(
        () => controls.sentence.value.trim() !== "" && choose("sentence", { cell: "", area: "" }),
        200,
    );
    const another = async () => {
        const shown = await run("input", "Reading the examples", demos.demo);
        if (!shown) return;
        controls.sentence.value = demos.nextExample(shown);
        choose("sentence", firstHead(shown));
    };
    const button = (text, testid, onclick) =>
        el("button", { type: "button", data: { testid }, onclick }, text);
    controls.sentence = el("textarea", {
        rows: 1,
        spellcheck: "false",
        maxlength: demos.LONGEST,
        "aria-label": "Sentence",
        data: { testid: "input-sentence" },
        oninput: typed,
        onkeydown: (event) => event.key === "Enter" && event.preventDefault(),
    }); // one line, that wraps
    controls.demo = el(
        "div",
        { class: "demo", hidden: true },
        controls.sentence,
        button("Try another sentence", "another", another),
        button("Your own model", "own-model", demos.ownModelDialog),
        button("Your own numbers", "own-numbers", () => {
            controls.details.open = true;
            showPane("weights");
        }),
    );
    pane(
        "sentence",
        "Sentence",
        el(
            "p",
            { class: "muted" },
            "The small model demo reads the sentence above: attnd computes its attention, this page the rest.",
        ),
    );
    return controls.demo;
}

/** The head that an example is opened with. */
const firstHead = ({ heads: [first] }) => ({
    layer: first.layer,
    head: first.head,
    cell: "",
    area: "",
});

function build() {
    const line = sentenceLine();
    makePanes({ choose, apply, take, has: (name) => files[name], clearEncoder, listSessions });
    pane("live", "Live", ...live.panel(() => state.uncombined));
    const ways = Object.values(panes);
    controls.looked = el("span", { class: "looked" });
    controls.about = el("p", { class: "muted" });
    const details = el(
        "details",
        { open: true, data: { testid: "input-panel" } },
        el(
            "summary",
            { data: { testid: "input-summary" } },
            el("h2", {}, "Input"),
            controls.looked,
            el("span", { class: "change" }, "Change"),
        ),
        el(
            "div",
            { class: "stack" },
            el(
                "div",
                { class: "toolbar" },
                modelFields(),
                el(
                    "div",
                    { class: "field", role: "group", "aria-label": "What is looked at" },
                    el("span", {}, "Rows from"),
                    el(
                        "div",
                        { class: "segments" },
                        ways.map(({ button }) => button),
                    ),
                ),
            ),
            controls.about,
            ways.map((way) => way.pane),
            encoderFields(),
        ),
    );
    controls.details = details;
    sources.onSource((source) => {
        showSummary(source);
        const first = !state.settled && stacked.matches;
        if (first || narrow.matches) close(source);
    });
    fill(byId("input"), line, details);
    panes.sentence.button.hidden = !demos.servedDemo();
    showPane("text");
}

/** Offers the sessions that the daemon lists; to a key that may not list them: none. */
async function listSessions() {
    const { sessions } = await client()
        .get("/sessions?limit=100")
        .catch(() => ({ sessions: [] }));
    const { value } = controls.session;
    const option = ({ session_id: id, model }) =>
        el(
            "option",
            { value: id, selected: id === value },
            `${id} (${model ?? "without weights"})`,
        );
    fill(controls.session, el("option", { value: "" }, "choose …"), sessions.map(option));
}

/** What a first visitor sees: an example at once where it costs little, else a button. */
async function offerExample() {
    const shown = await demos.demo().catch(() => null);
    if (shown && settings().model === "") {
        controls.sentence.value = shown.examples[0];
        return choose("sentence", settings().head === "" ? firstHead(shown) : {});
    }
    const model = models().find(({ name }) => name === settings().model) ?? models()[0];
    const small = model.weight_bytes <= SMALL;
    const show = () => {
        controls.text.value = EXAMPLE;
        const first = sources.specOf(model, model.resident_layers[0]);
        const open = settings().head === "" ? { layer: model.resident_layers[0], head: 0 } : {};
        return choose("text", sources.attendsItself(first) ? open : { encoder: EXAMPLE, ...open });
    };
    if (small) return show();
    const button = el(
        "button",
        { type: "button", data: { testid: "example" }, onclick: show },
        `Show the heads of ${model.name} over an example sentence`,
    );
    const offer = el(
        "div",
        { class: "panel" },
        button,
        el("p", { class: "muted" }, "Its rows are random, one for each distinct token."),
    );
    byId("overview").append(offer);
    const end = sources.onSource(() => {
        offer.remove();
        end();
    });
    return undefined;
}

function takeDrops() {
    const files = (event) => event.dataTransfer.types.includes("Files"); // text goes where it may
    addEventListener("dragover", (event) => files(event) && event.preventDefault());
    addEventListener("drop", (event) => {
        if (!files(event)) return;
        event.preventDefault();
        dropped([...event.dataTransfer.files]);
    });
}

const watched = [
    "model",
    "layers",
    "sentence",
    "text",
    "seed",
    "encoder",
    "capture",
    "session",
    "heads",
    "padding",
    ...Object.values(FILE_SETTINGS),
];

/** Makes the panel in #input, and shows what the address says, or an example. */
export async function start() {
    build();
    takeDrops();
    listen((_, names) => {
        if (!state.quiet && watched.some((name) => names.has(name))) fromSettings(names);
    });
    const first = models().find(({ name }) => name === settings().model) ?? models()[0];
    if (first) showModel(first);
    else controls.about.textContent = NO_MODEL;
    await fromSettings();
    const { capture, session } = settings();
    if (first && state.kind === null && capture === "" && session === "" && !missing())
        await offerExample();
    state.settled = true;
    if (apiKey() === "") listSessions(); // with a key only when asked for: it may not be allowed
}
