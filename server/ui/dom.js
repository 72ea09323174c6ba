/**
 * dom.js: elements of the page, and what several modules do with them.
 *
 * Text reaches the page as text nodes only: token texts, model names and session ids come from
 * files and from other callers, and none of them is ever read as HTML.
 */

/** The children of an element out of lists of lists, in which null and undefined are left out. */
function nodesOf(/** @type {any[]} */ children) {
    return children.flat(Infinity).filter((child) => child !== null && child !== undefined);
}

/**
 * Makes an element: el("button", { type: "button", onclick: f, "aria-label": "Zoom in" }, "+").
 * A property whose name begins with `on` is an event listener, `data` an object of data-* values;
 * all others are attributes, where false, null and undefined leave the attribute out and true makes
 * it empty.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any>|null} [properties]
 * @param {...any} children nodes, texts, numbers, null, and lists of these
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function el(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties ?? {})) {
        if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
        else if (name === "data") Object.assign(element.dataset, value);
        else if (value === true) element.setAttribute(name, "");
        else if (value !== false && value !== null && value !== undefined)
            element.setAttribute(name, String(value));
    }
    element.append(...nodesOf(children));
    return element;
}

/** Replaces all that `element` holds. */
export function fill(element, ...children) {
    element.replaceChildren(...nodesOf(children));
    return element;
}

/** @returns {HTMLElement} the element of index.html with that id; a page without it is a defect */
export function byId(id) {
    const element = document.getElementById(id);
    if (!element) throw new Error(`index.html has no #${id}`);
    return element;
}

/** A control with its label: labelled("Scale", select). */
export function labelled(text, control, properties = {}) {
    return el("label", { class: "field", ...properties }, el("span", {}, text), control);
}

/** A <select> of [value, text] pairs. */
export function select(options, value, onchange, properties = {}) {
    const list = el(
        "select",
        { ...properties, onchange: () => onchange(list.value) },
        options.map(([name, text]) =>
            el("option", { value: name, selected: name === value }, text),
        ),
    );
    return list;
}

/** A number as the page shows it: `digits` significant digits, minus infinity by its sign. */
export function numberText(value, digits = 4) {
    if (value === null || value === -Infinity) return "−∞";
    if (value === 0) return "0";
    const small = Math.abs(value) < 1e-4;
    const text = small ? value.toExponential(digits - 1) : value.toPrecision(digits);
    return text.replaceAll("-", "−");
}

/** @returns {string} a tick's number, short */
export function tickText(value) {
    if (value === 0) return "0";
    const size = Math.abs(value);
    const text =
        size < 1e-3 || size >= 1e5
            ? Number(value.toPrecision(2)).toExponential().replace("e+", "e")
            : String(Number(value.toPrecision(3)));
    return text.replaceAll("-", "−");
}

/** A number with as many of three digits as `room` has place for; null where it has for none. */
export function fittedNumber(value, room, measure) {
    const texts = [3, 2, 1].map((digits) => numberText(value, digits));
    return texts.find((text) => measure(text) <= room) ?? null;
}

/** Bytes as people read them. */
export function bytesText(bytes) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let i = 0;
    for (; bytes >= 1000 && i < units.length - 1; i++) bytes /= 1000;
    return `${i === 0 ? bytes : bytes.toPrecision(3)} ${units[i]}`;
}

/** Calls `work` once per animation frame at most, with the latest arguments. */
export function perFrame(work) {
    let waiting = null;
    return (...args) => {
        if (waiting === null)
            requestAnimationFrame(() => {
                const latest = waiting;
                waiting = null;
                work(...latest);
            });
        waiting = args;
    };
}

/** Calls `work` `ms` after the last call. */
export function afterPause(work, ms) {
    let timer = 0;
    return (...args) => {
        clearTimeout(timer);
        timer = setTimeout(() => work(...args), ms);
    };
}

/** Offers `data` as a file for download. */
export function download(name, data, type) {
    const url = URL.createObjectURL(new Blob([data], { type }));
    const link = el("a", { href: url, download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** Puts a box beside an element where it lies over `map` (or null) least. */
export function putBeside(box, element, map) {
    const { width, height } = box.getBoundingClientRect();
    const place = element.getBoundingClientRect();
    const kept = map?.getBoundingClientRect();
    const within = (at, size, most) => Math.max(4, Math.min(at, most - size - 4));
    const overlap = (/** @type {number[]} */ [left, top]) => {
        const share = (from, size, begin, end) =>
            Math.max(0, Math.min(from + size, end) - Math.max(from, begin));
        const over = (other) =>
            share(left, width, other.left, other.right) *
            share(top, height, other.top, other.bottom);
        return (kept ? over(kept) : 0) + 4 * over(place);
    };
    const places = [
        [place.right + 8, place.top],
        [place.left - 8 - width, place.top],
        [place.left, place.bottom + 8],
        [place.left, place.top - 8 - height],
        [place.right - width, place.bottom + 8],
        [place.right - width, place.top - 8 - height],
    ];
    const [left, top] = places
        .map(([x, y]) => [within(x, width, innerWidth), within(y, height, innerHeight)])
        .reduce((best, one) => (overlap(one) < overlap(best) ? one : best));
    Object.assign(box.style, { left: `${left}px`, top: `${top}px` });
}
