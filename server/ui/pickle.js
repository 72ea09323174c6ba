/**
 * pickle.js: the tensors that torch.save has written, without running anything.
 *
 * A pickle is a program for a machine with a stack. This one knows the instructions that lists,
 * tuples, dicts, texts, numbers and tensors take, and the names of torch that stand for tensors and
 * their numbers; any other name is refused, and none is looked up. An instruction pushes one value
 * at most, so that the values are no more than the bytes.
 */
import { bytesOf, countOf, entryOf, fail, shown } from "./tensors.js";

/** @typedef {import("./tensors.js").Opened} Opened */

const MAX_BYTES = 16 * 2 ** 20; // of data.pkl
const MAX_VALUES = 65536; // that are looked at for tensors
const MAX_DEPTH = 4; // of lists in lists

const datatypes = { Float: "FP32", Double: "FP64", Half: "FP16", BFloat16: "BF16" };
const MARK = Symbol("mark");

/** A name that the file refers to. */
class Global {
    constructor(module, name) {
        this.path = `${module}.${name}`;
    }
}

/** A tensor: which storage it is in, and how. */
class Stored {
    constructor(/** @type {any[]} */ [storage, offset, shape, strides]) {
        this.storage = storage;
        this.offset = offset;
        this.shape = shape;
        this.strides = strides;
    }
}

class Machine {
    stack = [];
    memo = new Map();
    at = 0;

    constructor(bytes, name) {
        this.bytes = bytes;
        this.name = name;
        this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    }

    fail(text) {
        fail(this.name, text);
    }

    /** The next `count` bytes' place. */
    take(count) {
        const at = this.at;
        if (!(count >= 0) || at + count > this.bytes.length) this.fail("its pickle is cut short");
        this.at += count;
        return at;
    }

    text(count) {
        const at = this.take(count);
        return new TextDecoder().decode(this.bytes.subarray(at, at + count));
    }

    line() {
        const end = this.bytes.indexOf(10, this.at);
        if (end < 0) this.fail("its pickle is cut short");
        const line = this.text(end - this.at);
        this.at++;
        return line;
    }

    u1 = () => this.bytes[this.take(1)];
    u4 = () => this.view.getUint32(this.take(4), true);
    u8 = () => Number(this.view.getBigUint64(this.take(8), true));

    /** An integer of up to 8 bytes, the highest bit of which is its sign. */
    long(count) {
        if (count > 8) this.fail("has an integer of more than 64 bits");
        let value = 0n;
        for (let i = 0; i < count; i++) value |= BigInt(this.u1()) << BigInt(8 * i);
        return count === 0 ? 0 : Number(BigInt.asIntN(8 * count, value));
    }

    pop() {
        if (this.stack.length === 0) this.fail("its pickle is damaged");
        return this.stack.pop();
    }

    /** What stands above the last mark. */
    marked() {
        const at = this.stack.lastIndexOf(MARK);
        if (at < 0) this.fail("its pickle is damaged");
        const items = this.stack.splice(at);
        return items.slice(1);
    }

    tuple(count) {
        if (this.stack.length < count) this.fail("its pickle is damaged");
        this.stack.push(this.stack.splice(this.stack.length - count));
    }

    append(items) {
        const list = this.stack.at(-1);
        if (!Array.isArray(list)) this.fail("its pickle is damaged");
        for (const item of items) list.push(item);
    }

    put(items) {
        const dict = this.stack.at(-1);
        if (!(dict instanceof Map)) this.fail("its pickle is damaged");
        for (let i = 0; i + 1 < items.length; i += 2) dict.set(items[i], items[i + 1]);
    }

    recall(key) {
        if (!this.memo.has(key)) this.fail("its pickle is damaged");
        this.stack.push(this.memo.get(key));
    }

    /** Calls one of the two functions that there are. */
    reduce() {
        const given = this.pop();
        const { path } = this.pop() ?? {};
        if (path === "collections.OrderedDict") this.stack.push(new Map());
        else if (path === "torch._utils._rebuild_tensor_v2" && Array.isArray(given))
            this.stack.push(new Stored(given));
        else if (path === "torch._utils._rebuild_parameter" && Array.isArray(given))
            this.stack.push(given[0]);
        else
            this.fail(
                `holds ${path ?? "something"}, which is no tensor; save the attentions alone: ` +
                    'torch.save(out.attentions, "attentions.pt")',
            );
    }

    /** @returns {any} the value that the pickle stands for */
    run() {
        for (;;) {
            const code = this.u1();
            if (code === 0x2e) return this.pop();
            const instruction = INSTRUCTIONS[code];
            if (!instruction)
                this.fail(`holds something that is no tensor (pickle instruction ${code})`);
            instruction(this);
        }
    }
}

const push = (value) => (m) => m.stack.push(value(m));
const remember = (key) => (m) => m.memo.set(key(m), m.stack.at(-1));

/** By code: what pickletools names in the comment. */
const INSTRUCTIONS = {
    0x80: (m) => m.take(1), // PROTO
    0x95: (m) => m.take(8), // FRAME
    0x28: push(() => MARK),
    0x4e: push(() => null), // NONE
    0x88: push(() => true), // NEWTRUE
    0x89: push(() => false), // NEWFALSE
    0x4b: push((m) => m.u1()), // BININT1
    0x4d: push((m) => m.view.getUint16(m.take(2), true)), // BININT2
    0x4a: push((m) => m.view.getInt32(m.take(4), true)), // BININT
    0x8a: push((m) => m.long(m.u1())), // LONG1
    0x47: push((m) => m.view.getFloat64(m.take(8))), // BINFLOAT
    0x58: push((m) => m.text(m.u4())), // BINUNICODE
    0x8c: push((m) => m.text(m.u1())), // SHORT_BINUNICODE
    0x29: push(() => []), // EMPTY_TUPLE
    0x5d: push(() => []), // EMPTY_LIST
    0x7d: push(() => new Map()), // EMPTY_DICT
    0x74: (m) => m.stack.push(m.marked()), // TUPLE
    0x85: (m) => m.tuple(1), // TUPLE1
    0x86: (m) => m.tuple(2), // TUPLE2
    0x87: (m) => m.tuple(3), // TUPLE3
    0x61: (m) => m.append([m.pop()]), // APPEND
    0x65: (m) => m.append(m.marked()), // APPENDS
    0x73: (m) => m.put([m.pop(), m.pop()].reverse()), // SETITEM
    0x75: (m) => m.put(m.marked()), // SETITEMS
    0x71: remember((m) => m.u1()), // BINPUT
    0x72: remember((m) => m.u4()), // LONG_BINPUT
    0x94: remember((m) => m.memo.size), // MEMOIZE
    0x68: (m) => m.recall(m.u1()), // BINGET
    0x6a: (m) => m.recall(m.u4()), // LONG_BINGET
    0x63: push((m) => new Global(m.line(), m.line())), // GLOBAL
    0x93: push((m) => new Global(...[m.pop(), m.pop()].reverse())), // STACK_GLOBAL
    0x51: (m) => m.stack.push({ storage: m.pop() }), // BINPERSID
    0x52: (m) => m.reduce(), // REDUCE
    0x81: (m) => m.reduce(), // NEWOBJ, which makes no tensor: it is refused by its name
};

// ---- Tensors ----------------------------------------------------------------------------------

/** Whether the numbers stand one after another, the last dimension fastest. */
function isDense(shape, strides) {
    let step = 1;
    for (let i = shape.length - 1; i >= 0; i--) {
        if (shape[i] !== 1 && strides[i] !== step) return false;
        step *= shape[i];
    }
    return true;
}

/** The entry of a tensor; null where its numbers are of no use here (integers, flags). */
function entryOfStored(found, key, { name, storages }) {
    const where = `${name}: ${key}`;
    const { storage, offset, shape, strides } = found;
    const [, type, at] = Array.isArray(storage?.storage) ? storage.storage : [];
    const kind = /^torch\.(\w+)Storage$/.exec(type?.path)?.[1];
    const count = countOf(shape, where);
    const blob = storages(String(at));
    if (!kind || !blob) fail(where, "its numbers are not in the file");
    if (!Object.hasOwn(datatypes, kind)) return null;
    if (!Array.isArray(strides) || strides.length !== shape.length || !isDense(shape, strides))
        fail(where, `is a view of shape ${shown(shape)}; save tensor.contiguous()`);
    const datatype = datatypes[kind];
    const begin = bytesOf([offset], datatype, where);
    if (begin + bytesOf([count], datatype, where) > blob.size)
        fail(where, `shape ${shown(shape)} lies beyond the ${blob.size} bytes of its storage`);
    return entryOf(blob, key, shape, datatype, begin);
}

/**
 * The tensors of a file of torch.save.
 * @param {Map<string, Blob>} members of the archive @param {string} name for errors
 * @returns {Promise<Opened>} tensors of lists by their places: "0", "1", of dicts by their keys
 */
export async function openTorch(members, name) {
    const path = [...members.keys()].find((one) => /(^|\/)data\.pkl$/.test(one));
    const folder = path.slice(0, -"data.pkl".length);
    const order = await members.get(`${folder}byteorder`)?.text();
    if (order === "big") fail(name, "its numbers are big-endian");
    if (members.get(path).size > MAX_BYTES) fail(name, "its pickle is above 16 MiB");
    const bytes = new Uint8Array(await members.get(path).arrayBuffer());
    const opened = { name, entries: [], metadata: {} };
    const storages = (key) => members.get(`${folder}data/${key}`);
    let values = 0;
    const gather = (value, keys) => {
        const key = keys.join(".") || "tensor";
        if (++values > MAX_VALUES) fail(name, "has too many values; save the attentions alone");
        if (value instanceof Stored) {
            const entry = entryOfStored(value, key, { name, storages });
            if (entry) opened.entries.push(entry);
        } else if (Array.isArray(value) && value.every((item) => typeof item === "string")) {
            if (value.length > 0) opened.metadata[key] = JSON.stringify(value);
        } else if ((Array.isArray(value) || value instanceof Map) && keys.length < MAX_DEPTH) {
            for (const [inner, item] of value.entries()) gather(item, [...keys, inner]);
        }
    };
    gather(new Machine(bytes, name).run(), []);
    return opened;
}
