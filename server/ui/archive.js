/**
 * archive.js: the members of a ZIP file: those of .npz and of what torch.save writes.
 *
 * The directory at the file's end is read, and of each member the place of its bytes. Stored
 * members are parts of the file; deflated ones are expanded, to the size that the directory names
 * and no further. Every place is checked against the bytes that are there.
 */
import { MAX_HEADER, fail } from "./tensors.js";

const MAX_MEMBERS = 65536;
const MAX_EXPANDED = 2 ** 31; // bytes of all deflated members of a file
const TAIL = 22 + 65535 + 20; // the end's record, a comment, the place of the wide record

const viewOf = async (blob, begin, end) => new DataView(await blob.slice(begin, end).arrayBuffer());
const wide = (view, at) => Number(view.getBigUint64(at, true));
const isWide = (count, size, begin) =>
    count === 0xffff || size === 0xffffffff || begin === 0xffffffff;

/** Where the directory is: {count, size, begin}. */
async function findDirectory(blob, name) {
    const from = Math.max(0, blob.size - TAIL);
    const tail = await viewOf(blob, from, blob.size);
    let at = tail.byteLength - 22;
    const isEnd = () => tail.getUint32(at, true) === 0x06054b50;
    while (at >= 0 && !isEnd()) at--;
    if (at < 0) fail(name, "is a ZIP file without its directory: it is cut short");
    const [count, size, begin] = [
        tail.getUint16(at + 10, true),
        tail.getUint32(at + 12, true),
        tail.getUint32(at + 16, true),
    ];
    if (!isWide(count, size, begin)) return { count, size, begin };
    if (at < 20 || tail.getUint32(at - 20, true) !== 0x07064b50)
        fail(name, "is a ZIP file whose directory cannot be found");
    const there = wide(tail, at - 12);
    const record = await viewOf(blob, there, there + 56);
    if (record.byteLength < 56 || record.getUint32(0, true) !== 0x06064b50)
        fail(name, "is a ZIP file whose directory cannot be found");
    return { count: wide(record, 32), size: wide(record, 40), begin: wide(record, 48) };
}

/** The sizes and the place of a member that its entry may have in 64 bits (field 1). */
function widened(view, at, end, sizes) {
    const values = { ...sizes };
    while (at + 4 <= end) {
        const length = view.getUint16(at + 2, true);
        if (view.getUint16(at, true) === 1) {
            let next = at + 4;
            for (const key of ["size", "packed", "begin"])
                if (values[key] === 0xffffffff && next + 8 <= at + 4 + length) {
                    values[key] = wide(view, next);
                    next += 8;
                }
        }
        at += 4 + length;
    }
    return values;
}

/** The entries of the directory: {path, method, size, packed, begin}. */
async function readDirectory(blob, name) {
    const { count, size, begin } = await findDirectory(blob, name);
    if (count > MAX_MEMBERS || size > MAX_HEADER) fail(name, "has too many members");
    const view = await viewOf(blob, begin, begin + size);
    const entries = [];
    for (let at = 0; entries.length < count; ) {
        if (at + 46 > view.byteLength || view.getUint32(at, true) !== 0x02014b50)
            fail(name, "is a ZIP file whose directory is damaged");
        const lengths = [28, 30, 32].map((place) => view.getUint16(at + place, true));
        const extra = at + 46 + lengths[0];
        const end = extra + lengths[1] + lengths[2];
        if (end > view.byteLength) fail(name, "is a ZIP file whose directory is damaged");
        const path = new TextDecoder().decode(new Uint8Array(view.buffer, at + 46, lengths[0]));
        if (view.getUint16(at + 8, true) & 1) fail(name, `${path} is encrypted`);
        entries.push({
            path,
            method: view.getUint16(at + 10, true),
            ...widened(view, extra, extra + lengths[1], {
                packed: view.getUint32(at + 20, true),
                size: view.getUint32(at + 24, true),
                begin: view.getUint32(at + 42, true),
            }),
        });
        at = end;
    }
    return entries;
}

/** The bytes of a deflated member, as many as the directory says. */
async function expanded(part, size, where) {
    const reader = part.stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
    const pieces = [];
    let there = 0;
    try {
        for (;;) {
            const { done, value } = await reader.read();
            if (done) break;
            there += value.length;
            if (there > size) break;
            pieces.push(value);
        }
    } catch {
        fail(where, "its compressed bytes are damaged");
    }
    await reader.cancel().catch(() => {});
    if (there !== size) fail(where, `expands to other than the ${size} bytes that it should have`);
    return new Blob(pieces);
}

/**
 * The members of a ZIP file.
 * @param {Blob} blob @param {string} name for errors
 * @returns {Promise<Map<string, Blob>>} by their paths, in the order of the directory
 */
export async function membersOf(blob, name) {
    const members = new Map();
    let all = 0;
    for (const { path, method, size, packed, begin } of await readDirectory(blob, name)) {
        const where = `${name}: ${path}`;
        const head = await viewOf(blob, begin, begin + 30);
        if (head.byteLength < 30 || head.getUint32(0, true) !== 0x04034b50)
            fail(where, "is not where the directory says");
        const data = begin + 30 + head.getUint16(26, true) + head.getUint16(28, true);
        if (data + packed > blob.size) fail(where, "its bytes lie beyond the end of the file");
        const part = blob.slice(data, data + packed);
        if (method === 0 && packed === size) members.set(path, part);
        else if (method === 8) {
            all += size;
            if (all > MAX_EXPANDED) fail(name, "expands to more than 2 GiB; use numpy.savez");
            members.set(path, await expanded(part, size, where));
        } else fail(where, "is neither stored nor deflated");
    }
    return members;
}
