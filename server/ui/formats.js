/**
 * formats.js: numbers and requests as text and files: CSV, .npy, a curl command, a Python program.
 *
 * Node can import the module.
 */

/** @returns {string} the shortest decimal that reads back as the same float32 */
export function shortest(value) {
    if (!Number.isFinite(value)) return value > 0 ? "Infinity" : "-Infinity";
    for (let digits = 1; digits < 9; digits++) {
        const text = Number(value.toPrecision(digits));
        if (Math.fround(text) === Math.fround(value)) return String(text);
    }
    return String(Number(value.toPrecision(9)));
}

/** @returns {Promise<string>} the SHA-256 of bytes, in the digits that `sha256sum` prints */
export async function sha256(bytes) {
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const quoted = (text) => `"${text.replaceAll('"', '""')}"`;

/**
 * A map as CSV: a line of key labels, then of each query its label and its numbers.
 * @param {string[]} rowLabels
 * @param {string[]} columnLabels
 * @param {ArrayLike<number>} values row-major
 * @returns {string} by RFC 4180; a label that a spreadsheet would compute has an apostrophe
 */
export function csvOf(rowLabels, columnLabels, values) {
    const label = (text) => quoted(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text);
    const lines = [["", ...columnLabels].map(label).join(",")];
    rowLabels.forEach((text, row) => {
        const numbers = columnLabels.map((_, i) => shortest(values[row * columnLabels.length + i]));
        lines.push([label(text), ...numbers].join(","));
    });
    return `${lines.join("\r\n")}\r\n`;
}

/** @returns {Uint8Array<ArrayBuffer>} a .npy file, version 1.0, of float32 */
export function npyOf(values, shape) {
    const tuple = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
    const header = `{'descr': '<f4', 'fortran_order': False, 'shape': (${tuple}), }`;
    const length = Math.ceil((10 + header.length + 1) / 64) * 64 - 10;
    const bytes = new Uint8Array(10 + length + 4 * values.length);
    const view = new DataView(bytes.buffer);
    bytes.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0]); // \x93NUMPY 1.0
    view.setUint16(8, length, true);
    bytes.set(new TextEncoder().encode(`${header.padEnd(length - 1)}\n`), 10);
    for (let i = 0; i < values.length; i++) view.setFloat32(10 + length + 4 * i, values[i], true);
    return bytes;
}

// ---- Requests ---------------------------------------------------------------------------------

const isTensor = (value) => ArrayBuffer.isView(value?.data);

/** A tensor as JSON: nested lists, minus infinity as null. */
function nestedText({ data, shape }, literal) {
    const write = (depth, begin, count) => {
        const size = shape[depth];
        const each = count / size;
        const parts = Array.from({ length: size }, (_, i) =>
            depth === shape.length - 1
                ? literal(data[begin + i])
                : write(depth + 1, begin + i * each, each),
        );
        return `[${parts.join(",")}]`;
    };
    return write(0, 0, data.length);
}

const number = (value) => (value === -Infinity ? "null" : shortest(Number(value)));

/** @returns {string} the fields of a request as JSON */
export function jsonOf(fields) {
    const members = Object.entries(fields).filter(([, value]) => value !== undefined);
    const written = members.map(([name, value]) => {
        if (isTensor(value)) return `${JSON.stringify(name)}:${nestedText(value, number)}`;
        return `${JSON.stringify(name)}:${JSON.stringify(value)}`;
    });
    return `{${written.join(",\n ")}}`;
}

/** @returns {string} text as one word of a POSIX shell */
export function shellWord(text) {
    return `'${text.replaceAll("'", "'\\''")}'`;
}

const KEY_LINE = `-H "Authorization: Bearer $ATTND_KEY"`;

/**
 * A curl command that makes the request.
 * @param {{base: string, path: string, fields: object, keyed: boolean, file: string|null}}
 *     request
 *     keyed: the daemon wants a key, which the shell has in ATTND_KEY; file: the body is there
 */
export function curlOf({ base, path, fields, keyed, file }) {
    const body = file ? `@${file}` : jsonOf(fields);
    const parts = ["curl", "-sS", shellWord(base + path)];
    if (keyed) parts.push(KEY_LINE);
    parts.push("--json", shellWord(body));
    return `${parts.join(" ")}\n`;
}

/** @returns {string} a value of a request as Python writes it */
function pythonText(value) {
    if (value === null) return "None";
    if (value === true || value === false) return value ? "True" : "False";
    if (Array.isArray(value)) return `[${value.map(pythonText).join(", ")}]`;
    if (typeof value === "object")
        return `{${Object.entries(value)
            .map(([name, inner]) => `${JSON.stringify(name)}: ${pythonText(inner)}`)
            .join(", ")}}`;
    return JSON.stringify(value);
}

const pythonNumber = (value) => (value === -Infinity ? "None" : shortest(Number(value)));

/**
 * A Python program that makes the request with clients/python/attn_client.py.
 * @param {{base: string, path: string, fields: object, keyed: boolean, file: string|null}}
 *     request
 *     file: JSON whose tensors are read by the program
 */
export function pythonOf({ base, path, fields, keyed, file }) {
    const plain = Object.entries(fields).filter(
        ([name, value]) => value !== undefined && !isTensor(value) && name !== "hidden_states",
    );
    const tensors = Object.entries(fields).filter(([, value]) => isTensor(value));
    const lines = [
        "# attn_client.py is clients/python/attn_client.py of attnd",
        ...(file ? ["import json"] : []),
        ...(keyed ? ["import os"] : []),
        "from attn_client import Client",
        "",
        ...(file ? [`sent = json.load(open(${JSON.stringify(file)}))`] : []),
    ];
    const argument = ([name, value]) =>
        file ? `sent[${JSON.stringify(name)}]` : nestedText(value, pythonNumber);
    const given = [
        ...tensors.map((entry) => `    ${JSON.stringify(entry[0])}: ${argument(entry)},`),
        ...plain.map(([name, value]) => `    ${JSON.stringify(name)}: ${pythonText(value)},`),
    ];
    const key = keyed ? `, api_key=os.environ["ATTND_KEY"]` : "";
    const output = fields.outputs[0];
    lines.push("fields = {", ...given, "}", `client = Client(${JSON.stringify(base)}${key})`);
    lines.push(...callLines(path, fields), `print(reply[${JSON.stringify(output)}].tolist())`);
    return `${lines.join("\n")}\n`;
}

/** A step goes to the session it names, everything else to attend. */
function callLines(path, fields) {
    if (fields.session_id === undefined) return [`reply = client.attend(**fields)`];
    const name = path === "/decode" ? "decode" : "prefill";
    return [
        `session = client.open(fields.pop("session_id"))`,
        `rows = fields.pop("hidden_states")`,
        `reply = session.${name}(rows, **fields)`,
    ];
}
