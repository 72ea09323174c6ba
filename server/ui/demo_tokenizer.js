/**
 * demo_tokenizer.js: the tokens of the demonstration model (examples/demo): byte-level BPE.
 *
 * No document and no network: for a worker, and for node.
 */
const PIECES = /'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;

/** @returns {string[]} the letter that stands for each byte, as GPT-2 has them */
function byteLetters() {
    const plain = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    let others = 256;
    return Array.from({ length: 256 }, (_, byte) =>
        String.fromCharCode(plain(byte) ? byte : others++),
    );
}

/** @returns {string[]} the symbols, with the pair of the least rank joined until there is none */
function merged(symbols, ranks) {
    const rank = (place) => ranks.get(`${symbols[place]} ${symbols[place + 1]}`) ?? Infinity;
    for (;;) {
        let best = 0;
        for (let place = 1; place + 1 < symbols.length; place++)
            if (rank(place) < rank(best)) best = place;
        if (rank(best) === Infinity) return symbols;
        symbols.splice(best, 2, symbols[best] + symbols[best + 1]);
    }
}

/**
 * @param {object} facts what tokenizer.json has
 * @returns {{begin: number, encode: (text: string) => number[], label: (id: number) => string}}
 *     encode: tokens, `begin` first; label: the text of a token, its blank before it
 */
export function tokenizerOf({ model, added_tokens: [begin] }) {
    const letters = byteLetters();
    const bytes = new Map(letters.map((letter, byte) => [letter, byte]));
    const ids = new Map(Object.entries(model.vocab));
    const ranks = new Map(model.merges.map((pair, rank) => [pair, rank]));
    const symbols = [];
    for (const [symbol, id] of ids) symbols[id] = symbol;
    const tokens = (piece) => {
        const spelt = Array.from(new TextEncoder().encode(piece), (byte) => letters[byte]);
        const whole = ids.get(spelt.join(""));
        return whole === undefined
            ? merged(spelt, ranks).map((symbol) => ids.get(symbol))
            : [whole];
    };
    return {
        begin: begin.id,
        encode(text) {
            if (text === "") return [begin.id];
            const pieces = (text.startsWith(" ") ? text : ` ${text}`).match(PIECES);
            return [begin.id, ...pieces.flatMap(tokens)];
        },
        label(id) {
            if (id === begin.id) return begin.content;
            const own = Uint8Array.from(symbols[id], (letter) => bytes.get(letter));
            const text = new TextDecoder().decode(own);
            if (!text.includes("\ufffd")) return text;
            return Array.from(own, (byte) => `<0x${byte.toString(16).toUpperCase()}>`).join("");
        },
    };
}
