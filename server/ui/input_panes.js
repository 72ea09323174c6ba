/**
 * input_panes.js: the fields of the panel that says what is looked at, by way of input.
 *
 * Each way has a button and a pane. What using a field does is for input.js, which gives it to
 * `makePanes`.
 */
import { set, settings } from "./address.js";
import { models } from "./client.js";
import { el, labelled } from "./dom.js";

const does = {}; // what input.js does: choose, apply, take, has, clearEncoder, listSessions
export const controls = {}; // by data-testid without "input-"
export const panes = {}; // {pane, button} by way of input

/** Shows the fields of a way of input. */
export function showPane(name) {
    for (const [other, { pane, button }] of Object.entries(panes)) {
        pane.hidden = other !== name;
        button.setAttribute("aria-pressed", String(other === name));
    }
    controls.second.hidden = !["text", "capture", "rows"].includes(name);
    controls.demo.hidden = name !== "sentence";
}

/** A labelled control that stays in `controls`. */
export function field(title, name, tag, properties = {}, ...children) {
    controls[name] = el(tag, { data: { testid: `input-${name}` }, ...properties }, ...children);
    return labelled(title, controls[name]);
}

/** A control for a file of a group, which is its name unless two ways of input share the group. */
function fileField(title, name, accept, which = name) {
    const onchange = ({ target }) => target.files[0] && does.take(which, target.files[0]);
    return field(title, name, "input", { type: "file", accept, onchange });
}

/** A way of input: its button, and the fields that show when it is pressed. */
export function pane(name, title, ...children) {
    const onclick = () => {
        showPane(name);
        if (does.has(name) || (name === "sentence" && controls.sentence.value)) does.choose(name);
        if (name === "session") does.listSessions();
    };
    const data = { testid: `input-kind-${name}` };
    const button = el("button", { type: "button", onclick, data }, title);
    panes[name] = { button, pane: el("div", { class: "toolbar", hidden: true }, ...children) };
}

const TENSORS = ".npy,.npz,.safetensors,.json";

/** The fields of the model and its layers. */
export function modelFields() {
    return [
        field(
            "Model",
            "model",
            "select",
            { onchange: () => set({ model: controls.model.value }) },
            models().map(({ name }) => el("option", { value: name }, name)),
        ),
        field("Layers", "layers", "input", {
            size: 12,
            onchange: () => set({ layers: controls.layers.value.trim() }),
        }),
        field("Padding", "padding", "input", {
            size: 8,
            placeholder: "such as 0-3",
            title: "Positions of keys that are padding",
            onchange: () => set({ padding: controls.padding.value.trim() }),
        }),
    ];
}

function textPane() {
    pane(
        "text",
        "Text",
        field("Text, split at blanks: a random row for each token", "text", "textarea", {
            rows: 2,
            spellcheck: "false",
            onkeydown: ({ key, ctrlKey }) => key === "Enter" && ctrlKey && does.choose("text"),
        }),
        field("Seed", "seed", "input", {
            inputmode: "numeric",
            size: 6,
            onchange: () => set({ seed: controls.seed.value.trim() || "7" }),
        }),
        el(
            "button",
            {
                type: "button",
                class: "primary",
                data: { testid: "input-apply" },
                onclick: () => does.choose("text"),
            },
            "Show",
        ),
    );
}

function tensorField(name, which) {
    const onchange = () => (which === "rows" ? does.choose("rows") : does.apply());
    const made = field("Tensor", name, "select", { onchange });
    made.hidden = true;
    return made;
}

function filePanes() {
    pane(
        "capture",
        "Capture",
        fileField("A capture (examples/capture.py makes one)", "capture", ".safetensors"),
    );
    pane(
        "rows",
        "Rows",
        fileField("Rows: .npy, safetensors or JSON", "rows", TENSORS),
        tensorField("tensor", "rows"),
        fileField("Token labels, one a line", "labels", ".txt"),
    );
}

function weightsPane() {
    pane(
        "weights",
        "Weights",
        fileField(
            "Attention weights: .npy, .npz, .pt, safetensors or JSON",
            "weights",
            `${TENSORS},.pt,.pth,.bin`,
        ),
        field("Tensors", "group", "select", { onchange: () => does.choose("weights") }),
        fileField("Token labels, one a line", "weights-labels", ".txt", "labels"),
    );
    controls.group.closest("label").hidden = true;
}

function sessionPane() {
    const again = () => does.choose("session");
    const chosen = () => {
        controls["session-id"].value = "";
        again();
    };
    pane(
        "session",
        "Session",
        field("Session", "session", "select", { onchange: chosen }),
        field("or its id", "session-id", "input", { onchange: again, size: 16 }),
        field(
            "What is asked",
            "step",
            "select",
            { onchange: again },
            el("option", { value: "key" }, "its last key, as a query"),
            el("option", { value: "last" }, "its last step, with the rows of a file or text"),
            el("option", { value: "peek" }, "a step not kept, with the rows of a file or text"),
        ),
        field("Rows of that step", "count", "input", {
            inputmode: "numeric",
            placeholder: "all",
            size: 8,
            onchange: again,
        }),
    );
}

/** The fields of a second input. */
export function encoderFields() {
    controls.second = el(
        "details",
        { open: settings().encoder !== "" },
        el("summary", {}, "Cross-attention: keys and values of a second input"),
        el(
            "div",
            { class: "toolbar" },
            fileField("From a file", "encoder", TENSORS),
            tensorField("encoder-tensor", "encoder"),
            field("or random rows of a text", "encoder-text", "textarea", {
                rows: 1,
                onchange: () => set({ encoder: controls["encoder-text"].value.trim() }),
            }),
            el(
                "button",
                {
                    type: "button",
                    data: { testid: "input-encoder-clear" },
                    onclick: does.clearEncoder,
                },
                "No second input",
            ),
        ),
    );
    return controls.second;
}

/** Makes the panes of files, texts and sessions, whose fields call what `actions` has. */
export function makePanes(actions) {
    Object.assign(does, actions);
    textPane();
    filePanes();
    weightsPane();
    sessionPane();
}
