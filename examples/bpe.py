"""bpe.py: byte pair encoding with the vocabulary of a Hugging Face directory.

    tokenizer = read_tokenizer(directory)     # tokenizer.json, or vocab.json and merges.txt
    ids = tokenizer.encode("Once upon a time")
    text = tokenizer.stream()                 # text(id): what a token adds to the text before it

Two kinds are read: byte-level (GPT-2, Llama 3, Qwen) and the kind of SentencePiece (Llama 2,
Mistral), whose blanks are U+2581 and whose unknown characters are spelt in bytes.  Any other
setting of tokenizer.json that would change tokens is refused, and not ignored.
"""
from __future__ import annotations

import codecs
import functools
import heapq
import json
import pathlib
import re
import sys
import unicodedata
from typing import Any, Callable, Dict, Iterable, List, Optional, Pattern, Sequence, Tuple

Pair = Tuple[str, str]
Pieces = Callable[[str, bool], List[str]]  # of a text; and whether that opens the whole
BLANK = "\u2581"
GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SPACES = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


# ---- Patterns ----------------------------------------------------------------------------------

@functools.lru_cache(maxsize=None)
def category_ranges() -> Dict[str, str]:
    """{category: ranges for a character class}, for one letter (L) and for two (Lu)."""
    ranges: Dict[str, List[List[int]]] = {}
    for code in range(sys.maxunicode + 1):
        category = unicodedata.category(chr(code))
        for name in (category[0], category):
            spans = ranges.setdefault(name, [])
            if spans and spans[-1][1] == code - 1:
                spans[-1][1] = code
            else:
                spans.append([code, code])
    return {name: "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in spans)
            for name, spans in ranges.items()}


def compiled(pattern: str) -> Pattern[str]:
    """A pattern of Unicode's properties, of which `re` knows none, for `re`."""
    parts, inside = [], False
    for part in re.findall(r"\\[pP]\{\w+\}|\\.|.", pattern, re.DOTALL):
        negated = part[:2] in ("\\P", "\\S")
        if part[:2].lower() in ("\\p", "\\s"):
            ranges = SPACES if part[1] in "sS" else category_ranges()[part[3:-1]]
            if inside and negated:
                raise ValueError(f"tokenizer: a negated class within brackets: {pattern}")
            part = ranges if inside else f"[{'^' if negated else ''}{ranges}]"
        elif part in "[]":
            inside = part == "["
        parts.append(part)
    return re.compile("".join(parts))


@functools.lru_cache(maxsize=None)
def byte_letters() -> Dict[int, str]:
    """The character that stands for each byte in byte-level vocabularies: itself where it can be
    seen, else one of those from U+0100 on."""
    seen = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    hidden = [byte for byte in range(256) if byte not in seen]
    letters = {byte: chr(byte) for byte in seen}
    letters.update({byte: chr(0x100 + place) for place, byte in enumerate(hidden)})
    return letters


@functools.lru_cache(maxsize=None)
def letter_bytes() -> Dict[str, int]:
    """The byte that each of those characters stands for."""
    return {letter: byte for byte, letter in byte_letters().items()}


# ---- Merging -----------------------------------------------------------------------------------

def merged(spelt: Iterable[str], ranks: Dict[Pair, int]) -> List[str]:
    """Symbols after all merges: the pair of the lowest rank first, of equal ones the leftmost."""
    symbols: List[Optional[str]] = list(spelt)
    after: List[Optional[int]] = [*range(1, len(symbols)), None]
    before: List[Optional[int]] = [None, *range(len(symbols) - 1)]
    heap: List[Tuple[int, int, Pair]] = []

    def consider(left: Optional[int]) -> None:
        right = None if left is None else after[left]
        if left is not None and right is not None:
            pair = (symbols[left] or "", symbols[right] or "")
            if pair in ranks:
                heapq.heappush(heap, (ranks[pair], left, pair))

    for place in range(len(symbols)):
        consider(place)
    while heap:
        _, left, pair = heapq.heappop(heap)
        right = after[left]
        if right is None or (symbols[left], symbols[right]) != pair:
            continue  # one of the two has become part of another
        symbols[left], symbols[right] = pair[0] + pair[1], None
        following = after[left] = after[right]
        if following is not None:
            before[following] = left
        after[right] = None
        consider(left)
        consider(before[left])
    return [symbol for symbol in symbols if symbol is not None]


class Tokenizer:
    """A vocabulary and its merges.

    model     {"vocab": {token: id}, "merges": [...]} and its settings, as in tokenizer.json
    pieces    text -> pieces, each of which is merged by itself; `first`: whether it opens the text
    of_bytes  whether tokens are bytes in the characters of byte_letters()
    """

    def __init__(self, model: Dict[str, Any], pieces: Pieces, of_bytes: bool,
                 added: Sequence[Dict[str, Any]] = (), before: Iterable[int] = ()) -> None:
        self.vocabulary: Dict[str, int] = dict(model["vocab"])
        self.pieces, self.of_bytes = pieces, of_bytes
        pairs = (pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"])
        self.ranks = {(pair[0], pair[1]): rank for rank, pair in enumerate(pairs)}
        self.unknown, self.whole = model.get("unk_token"), model.get("ignore_merges", False)
        self.before = list(before)  # tokens that open every text
        self.special = {entry["id"] for entry in added if entry.get("special")}
        self.added = {entry["content"]: entry["id"] for entry in added}
        self.tokens = {number: token for token, number in self.vocabulary.items()}
        self.tokens.update({number: token for token, number in self.added.items()})
        longest = sorted(self.added, key=len, reverse=True)
        self.cut = re.compile(f"({'|'.join(map(re.escape, longest))})" if longest else "(?!)()")

    def _spelt(self, character: str) -> List[str]:
        """Tokens of one character."""
        spelling = [f"<0x{byte:02X}>" for byte in character.encode("utf-8")]
        if character in self.vocabulary:
            return [character]
        if not self.of_bytes and all(token in self.vocabulary for token in spelling):
            return spelling
        if self.unknown is None:
            raise ValueError(f"tokenizer: no token for {character!r}")
        return [self.unknown]

    def _piece(self, piece: str) -> List[int]:
        if self.of_bytes:
            piece = "".join(byte_letters()[byte] for byte in piece.encode("utf-8"))
        if self.whole and piece in self.vocabulary:
            return [self.vocabulary[piece]]
        symbols = [token for character in piece for token in self._spelt(character)]
        return [self.vocabulary[token] for token in merged(symbols, self.ranks)]

    def encode(self, text: str) -> List[int]:
        """The tokens of a text, with those that open every text."""
        ids = list(self.before)
        for place, part in enumerate(self.cut.split(text)):
            if part in self.added:
                ids.append(self.added[part])
            elif part:
                for piece in self.pieces(part, place == 0):
                    ids.extend(self._piece(piece))
        return ids

    def _bytes(self, number: int) -> bytes:
        token = self.tokens.get(number, "")
        if number in self.special:
            return b""
        if self.of_bytes and token not in self.added:
            return bytes(letter_bytes()[letter] for letter in token)
        if re.fullmatch(r"<0x[0-9A-F]{2}>", token):
            return bytes([int(token[3:5], 16)])
        return token.replace(BLANK, " ").encode("utf-8")

    def label(self, number: int) -> str:
        """What names one token: its text; a special token itself; bytes of a part of a character
        as <0xE2>."""
        if number in self.special:
            return self.tokens[number]
        data = self._bytes(number)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return "".join(f"<0x{byte:02X}>" for byte in data)

    def stream(self) -> Callable[[int], str]:
        """A function from each token in turn to its text; a character waits for its last byte."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return lambda number: decoder.decode(self._bytes(number))


# ---- Files -------------------------------------------------------------------------------------

def parts_of(entry: Any, key: str) -> List[Any]:
    """The members of a Sequence, or the one entry, or none."""
    if entry is None:
        return []
    return list(entry[key]) if entry["type"] == "Sequence" else [entry]


def split_by_bytes(steps: List[Dict[str, Any]]) -> Pieces:
    """pieces() of a byte-level tokenizer, of the steps of its `pre_tokenizer`."""
    level, patterns = steps[-1], [step["pattern"]["Regex"] for step in steps[:-1]]
    if level.get("use_regex", True):
        patterns.append(GPT2_PATTERN)
    if len(patterns) != 1:
        raise ValueError("tokenizer: one pattern is expected before ByteLevel")
    pattern, prefix = compiled(patterns[0]), level.get("add_prefix_space", False)

    def pieces(text: str, _first: bool) -> List[str]:
        if prefix and not text.startswith(" "):
            text = " " + text
        return [match.group() for match in pattern.finditer(text)]

    return pieces


def split_by_blanks(normal: List[Dict[str, Any]], steps: List[Dict[str, Any]]) -> Pieces:
    """pieces() of the kind of SentencePiece: by its `normalizer`, or by Metaspace."""
    if [step["type"] for step in normal] == ["Prepend", "Replace"] and not steps:
        return lambda text, _first: [BLANK + text.replace(" ", BLANK)]
    if [step["type"] for step in steps] != ["Metaspace"] or normal:
        raise ValueError("tokenizer: its normalizer and pre_tokenizer are not known here")
    older = "always" if steps[0].get("add_prefix_space") else "never"
    scheme, split = steps[0].get("prepend_scheme", older), steps[0].get("split", True)

    def pieces(text: str, first: bool) -> List[str]:
        text = text.replace(" ", BLANK)
        if (scheme == "always" or scheme == "first" and first) and not text.startswith(BLANK):
            text = BLANK + text
        return re.findall(f"{BLANK}[^{BLANK}]*|[^{BLANK}]+", text) if split else [text]

    return pieces


def opening_of(processor: Any) -> List[int]:
    """Ids that a TemplateProcessing sets before every text."""
    ids: List[int] = []
    for step in parts_of(processor, "processors"):
        for item in step["single"] if step["type"] == "TemplateProcessing" else []:
            if "Sequence" in item:
                break
            ids += step["special_tokens"][item["SpecialToken"]["id"]]["ids"]
    return ids


def tokenizer_of(facts: Dict[str, Any]) -> Tokenizer:
    """The Tokenizer of a tokenizer.json."""
    if facts["model"].get("type", "BPE") != "BPE":
        raise ValueError(f"tokenizer: {facts['model']['type']} is not BPE")
    normal = parts_of(facts.get("normalizer"), "normalizers")
    steps = parts_of(facts.get("pre_tokenizer"), "pretokenizers")
    of_bytes = bool(steps) and steps[-1]["type"] == "ByteLevel"
    if of_bytes and any(step["type"] not in ("NFC",) for step in normal):
        raise ValueError("tokenizer: its normalizer is not known here")
    pieces = split_by_bytes(steps) if of_bytes else split_by_blanks(normal, steps)
    if of_bytes and normal:
        plain, pieces = pieces, lambda text, first: plain(unicodedata.normalize("NFC", text), first)
    return Tokenizer(facts["model"], pieces, of_bytes, facts.get("added_tokens", []),
                     opening_of(facts.get("post_processor")))


def read_tokenizer(directory: pathlib.Path) -> Tokenizer:
    """The Tokenizer of a directory: tokenizer.json, or else vocab.json and merges.txt."""
    if (directory / "tokenizer.json").exists():
        return tokenizer_of(json.loads((directory / "tokenizer.json").read_text("utf-8")))
    lines = (directory / "merges.txt").read_text("utf-8").split("\n")
    model = {"vocab": json.loads((directory / "vocab.json").read_text("utf-8")),
             "merges": [line for line in lines if line and not line.startswith("#version")]}
    return Tokenizer(model, split_by_bytes([{"type": "ByteLevel"}]), True)
