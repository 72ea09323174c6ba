#!/usr/bin/env python3
"""heads.py: how well the demonstration model predicts, and what each of its heads does, by attnd.

    examples/demo/heads.py                # prints the tables of README.md
    examples/demo/heads.py --request      # prints sentence.json, a request of POST /attend

The texts are of the grammar's, but not among those of training.  Statistics are `head_stats` of
attnd with `targets`; a head is taken out by `head_mask`.  An attnd of its own serves this directory.

Needs numpy, and an attnd as examples/capture.py does.
"""
import json
import pathlib
import random
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent))
import capture  # noqa: E402  first: says what is missing
import numpy  # noqa: E402
from bpe import read_tokenizer  # noqa: E402
from generate import Client, forward, read_decoder  # noqa: E402

import grammar  # noqa: E402

TOKENS, TEXTS = 128, 24
PERIOD = 32  # of random tokens that occur again
FORMS = [[grammar.number(word, many, verb=True) for word in grammar.SEE + grammar.SLEEP]
         for many in (False, True)]
NOUNS = {grammar.number(word, many) for word in grammar.ANIMATE for many in (False, True)}
CLOSING = {closing: opening for opening, closing in grammar.BRACKETS}

LOSSES = {"induction": "this model, of random tokens that occur again",
          "bracket": "this model, of a bracket that closes",
          "subject": "this model, whether a verb that is apart from its subject is singular or plural",
          "keyword": "this model, of the rare word that is asked for"}


# ---- Texts, and where a query has to look --------------------------------------------------------

def texts_of(tokenizer, count, seed):
    """Tokens [count,TOKENS + 1] of texts of the grammar."""
    chance = random.Random(seed)
    return numpy.array([tokenizer.encode(grammar.text_of(chance, 6 * TOKENS))[:TOKENS + 1]
                        for _ in range(count)])


def repeated(tokenizer, count, seed):
    """Tokens [count,TOKENS + 1]: random ones, the same again after PERIOD."""
    chance, begin = numpy.random.default_rng(seed), tokenizer.before[0]
    segments = chance.integers(0, begin, (count, PERIOD))
    again = numpy.tile(segments, TOKENS // PERIOD)
    return numpy.concatenate([numpy.full((count, 1), begin), again], axis=1)


def brackets(words):
    """(query, key): each token within brackets, and the innermost that is open."""
    open_at = []
    for place, word in enumerate(words):
        if word in CLOSING.values():
            open_at.append(place)
        elif word in CLOSING and open_at:
            open_at.pop()
        if open_at and open_at[-1] < place:
            yield place, open_at[-1]


def agreements(words):
    """(query, key): the token before a verb that stands apart from its subject, and the subject."""
    subject, depth, skipped = None, 0, False
    for place, word in enumerate(words):
        depth += (word in CLOSING.values()) - (word in CLOSING)
        if word == ".":
            subject, skipped = None, False
        elif subject is None:
            subject = place if word in NOUNS else -1 if word in FORMS[0] + FORMS[1] else None
        elif word == "that":
            skipped = True
        elif depth == 0 and (word in FORMS[0] or word in FORMS[1]):
            if skipped:
                skipped = False
            elif 0 <= subject < place - 1:
                yield place - 1, subject
                subject = -1
        elif depth == 0 and word in (*grammar.PAST, *grammar.JOINED):
            subject = -1


def keywords(words):
    """(query, key): what stands before the keyword that is asked for, and where it was said."""
    said = None
    for place, word in enumerate(words):
        if word == "Remember":
            said = place + 1
        if said and words[place - 2:place + 1] == ["The", "word", "was"]:
            yield place, said


def targets_of(rule, texts, tokenizer):
    """Targets [count,TOKENS] of a rule over words."""
    made = numpy.full((len(texts), TOKENS), -1)
    for row, ids in enumerate(texts):
        words = [tokenizer.label(number).strip() for number in ids[:TOKENS]]
        for query, key in rule(words):
            made[row, query] = key
    return made


# ---- The model through attnd ---------------------------------------------------------------------

def log_softmax(logits):
    """Logarithms of probabilities."""
    rest = logits - logits.max(-1, keepdims=True)
    return rest - numpy.log(numpy.exp(rest).sum(-1, keepdims=True))


class Model:
    """The decoder in numpy, its attention in attnd."""

    def __init__(self, client, name="demo"):
        self.client, self.name = client, name
        self.decoder, self.tokenizer = read_decoder(HERE), read_tokenizer(HERE)
        self.heads = self.decoder.facts["num_attention_heads"]

    def attend(self, rows, layer, output="output", **fields):
        """One output of a layer."""
        return self.client.attend(rows, model=self.name, layer=layer, outputs=[output],
                                  **fields)[output]

    def taken(self, ids):
        """What the attention of each layer takes, [layer][count,T,E]."""
        made = []

        def attend(rows, layer):
            made.append(rows)
            return self.attend(rows, layer)

        forward(self.decoder, ids, range(ids.shape[1]), attend)
        return made

    def predicted(self, ids, off=None):
        """Logarithms of the probabilities [count,T,vocabulary]; without the head (layer, head)."""
        def attend(rows, layer):
            mask = [float((layer, head) != off) for head in range(self.heads)]
            return self.attend(rows, layer, head_mask=mask)

        rows = forward(self.decoder, ids, range(ids.shape[1]), attend)
        return log_softmax(self.decoder.logits(rows))


def share(model, taken, targets):
    """Mean weight on the targets, {(layer, head): weight}."""
    made = {}
    for layer, rows in enumerate(taken):
        stats = model.attend(rows, layer, "head_stats", targets=targets.tolist())
        for head in range(model.heads):
            cells = [text[head] for text in stats]
            rows_of = [cell["target_rows"] for cell in cells]
            made[layer, head] = numpy.average([cell["target"] or 0 for cell in cells],
                                              weights=rows_of)
    return made


# ---- What is measured ----------------------------------------------------------------------------

class Measures:
    """Texts of the grammar and repeated ones, and what the model makes of them.

    targets  {pattern: (texts, targets [count,TOKENS])}: where a head of that pattern looks
    """

    def __init__(self, model, count=TEXTS):
        self.model, tokenizer = model, model.tokenizer
        self.texts, self.random = texts_of(tokenizer, count, "told"), repeated(tokenizer, 8, 7)
        places = numpy.arange(TOKENS)
        again = numpy.where(places > PERIOD, places - PERIOD + 1, -1)
        self.targets = {
            "previous": (self.texts, numpy.tile(places - 1, (count, 1))),
            "first": (self.texts, numpy.tile(numpy.where(places, 0, -1), (count, 1))),
            "induction": (self.random, numpy.tile(again, (len(self.random), 1))),
            **{name: (self.texts, targets_of(rule, self.texts, tokenizer)) for name, rule in
               (("bracket", brackets), ("subject", agreements), ("keyword", keywords))}}
        self.verbs = [[tokenizer.encode(form)[1] for form in forms] for forms in FORMS]
        closing = [tokenizer.encode("x" + mark)[-1] for mark in CLOSING]
        self.closes = numpy.isin(self.texts[:, 1:], closing)

    def shares(self):
        """{pattern: {(layer, head): mean weight on its targets}}."""
        taken = {id(texts): self.model.taken(texts[:, :-1]) for texts in (self.texts, self.random)}
        return {name: share(self.model, taken[id(texts)], targets)
                for name, (texts, targets) in self.targets.items()}

    def losses(self, off=None):
        """{what: mean of -log p, in nats}; without the head (layer, head)."""
        told = self.model.predicted(self.texts[:, :-1], off)
        right = numpy.take_along_axis(told, self.texts[:, 1:, None], -1)[..., 0]
        again = self.model.predicted(self.random[:, :-1], off)
        copied = numpy.take_along_axis(again, self.random[:, 1:, None], -1)[..., 0]
        return {"all": -right.mean(), "right": (told.argmax(-1) == self.texts[:, 1:]).mean(),
                "induction": -copied[:, PERIOD:].mean(), "bracket": -right[self.closes].mean(),
                "subject": self._number(told), "keyword": -right[self.targets["keyword"][1] >= 0].mean()}

    def _number(self, told):
        """The loss of a verb's number alone, whichever verb it is."""
        wanted = self.targets["subject"][1] >= 0
        one, many = (numpy.exp(told[wanted][:, forms]).sum(-1) for forms in self.verbs)
        plural = numpy.isin(self.texts[:, 1:][wanted], self.verbs[1])
        return -numpy.log(numpy.where(plural, many, one) / (one + many)).mean()


def bigram(tokenizer, texts, count=400):
    """(loss, accuracy) of a table of which token follows which, made of `count` texts of training."""
    table = numpy.full((len(tokenizer.tokens),) * 2, 0.01)
    for ids in texts_of(tokenizer, count, 1):
        numpy.add.at(table, (ids[:-1], ids[1:]), 1)
    told = log_softmax(numpy.log(table))[texts[:, :-1]]
    right = numpy.take_along_axis(told, texts[:, 1:, None], -1)
    return -right.mean(), (told.argmax(-1) == texts[:, 1:]).mean()


def tables(model):
    """The tables, as lines of Markdown."""
    measures = Measures(model)
    losses, shares = measures.losses(), measures.shares()
    plain = bigram(model.tokenizer, measures.texts)
    yield "| | loss, nats | right |\n|---|---|---|"
    yield f"| this model | {losses['all']:.2f} | {losses['right']:.0%} |"
    yield f"| a table of which token follows which | {plain[0]:.2f} | {plain[1]:.0%} |"
    for name, what in LOSSES.items():
        yield f"| {what} | {losses[name]:.2f} | |"
    kinds = [name for name in losses if name != "right"]
    columns = ["head", "pattern", "entropy", *shares, *(f"+{name}" for name in kinds)]
    yield f"\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|"
    for layer, rows in enumerate(model.taken(measures.texts[:, :-1])):
        stats = model.attend(rows, layer, "head_stats")
        for head in range(model.heads):
            patterns = [text[head]["pattern"] for text in stats]
            entropy = numpy.mean([text[head]["entropy"] for text in stats])
            without = measures.losses((layer, head))
            cells = [entropy, *(told[layer, head] for told in shares.values()),
                     *(without[name] - losses[name] for name in kinds)]
            yield (f"| {layer}.{head} | `{max(set(patterns), key=patterns.count)}` | " +
                   " | ".join(f"{round(cell, 2) + 0:.2f}" for cell in cells) + " |")


def request(model):
    """POST /attend of the first text of demo.json for its first head, as a dict: how much of its
    weight is on what followed the token the last time."""
    notes = json.loads((HERE / "demo.json").read_text("utf-8"))
    ids, note = model.tokenizer.encode(notes["examples"][0]), notes["heads"][0]
    last = [max((at for at in range(place) if ids[at] == ids[place]), default=-2)
            for place in range(len(ids))]
    rows = model.taken(numpy.array([ids]))[note["layer"]][0]
    return {"model": model.name, "layer": note["layer"], "heads": [note["head"]],
            "outputs": ["head_stats"], "targets": [place + 1 for place in last],
            "hidden_states": rows.astype(float).round(4).tolist()}


def main():
    """Prints the tables, or the request."""
    with capture.own_daemon(HERE, "demo") as url, Client(url) as client:
        client.wait_until_ready()
        if sys.argv[1:] == ["--request"]:
            print(re.sub(r"(\d\],|\[) \[", r"\1\n [", json.dumps(request(Model(client)))))
        else:
            for line in tables(Model(client)):
                print(line, flush=True)


if __name__ == "__main__":
    main()
