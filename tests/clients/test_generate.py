"""test_generate.py: examples/generate.py against the logits and tokens of Hugging Face's models.

tests/clients/golden holds two whole models with the logits of their own forward and 64 greedy
tokens each; tests/clients/tokenizers texts with the tokens that other code gives them.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy

from daemon import TOP, Daemon, Relay, wait_for

sys.path.insert(1, str(TOP / "examples"))
import bpe  # noqa: E402
import generate  # noqa: E402

GOLDEN = TOP / "tests" / "clients" / "golden"
ATTENTION = TOP / "tests" / "golden"
FAMILIES = ("gpt2", "llama")
TOLERANCE = 5e-5  # that of both folders
KILLS = (1, 17, 40) if os.environ.get("QUICK") else range(1, 64, 4)


def folder(family):
    """({case: its facts}, {name: array}) of a golden folder; integers are read here."""
    path = GOLDEN / f"{family}_lm" / "cases.safetensors"
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    kinds = {"F32": "<f4", "I64": "<i8", "BOOL": "?"}
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            array = numpy.frombuffer(data[begin:end], kinds[entry["dtype"]])
            tensors[name] = array.reshape(entry["shape"])
    facts = json.loads((GOLDEN / f"{family}_lm" / "cases.json").read_text("utf-8"))
    assert facts["tolerance"]["abs"] == TOLERANCE
    return {case["id"]: case for case in facts["cases"]}, tensors


class Whole(unittest.TestCase):
    """Both models in one daemon with a journal."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        models = [{"name": family, "path": str(GOLDEN / f"{family}_lm" / "model")}
                  for family in FAMILIES]
        cls.daemon = Daemon(cls.directory.name, models, durability="journal",
                            state_dir=cls.directory.name + "/state")
        cls.addClassCleanup(cls.daemon.stop)
        cls.relay = Relay(lambda: cls.daemon.url)
        cls.addClassCleanup(cls.relay.close)
        cls.client = generate.Client(cls.relay.url)
        cls.addClassCleanup(cls.client.close)
        cls.client.wait_until_ready()
        cls.families = {family: (generate.read_decoder(GOLDEN / f"{family}_lm" / "model"),
                                 *folder(family)) for family in FAMILIES}

    def assert_close(self, logits, expected, what):
        """Within the tolerance; a NaN is not."""
        difference = numpy.abs(logits - expected).max()
        self.assertTrue(difference <= TOLERANCE, f"{what}: {difference} off")

    def test_logits_of_a_prefill_and_of_single_tokens(self):
        for family, (decoder, _, tensors) in self.families.items():
            ids, expected = tensors["logits.input_ids"][0], tensors["logits.logits"][0]
            for pieces in ([len(ids)], [1] * len(ids), [7, 1, 1, 11]):
                with self.client.session(model=family) as session:
                    made, begin = generate.Generator(decoder, session), 0
                    for count in pieces:
                        logits = made.feed(ids[begin:begin + count].tolist())
                        self.assert_close(logits, expected[begin:begin + count], (family, pieces))
                        begin += count

    def test_logits_of_a_padded_batch(self):
        for family, (decoder, _, tensors) in self.families.items():
            mask = tensors["logits_leftpad.padding_mask"]
            positions = tensors["logits_leftpad.position_ids"]

            def attend(rows, layer, family=family, mask=mask, positions=positions):
                return self.client.attend(rows, model=family, layer=layer, padding_mask=mask,
                                          position_ids=positions)["output"]

            rows = generate.forward(decoder, tensors["logits_leftpad.input_ids"], positions, attend)
            compared = tensors["logits_leftpad.compare_rows"]
            self.assertGreater(compared.sum(), 9)
            self.assert_close(decoder.logits(rows)[compared],
                              tensors["logits_leftpad.logits"][compared], family)

    def greedy(self, family, case, before_step=lambda step: None):
        """Makes the 64 tokens of a case, and compares them and their logits."""
        decoder, cases, tensors = self.families[family]
        self.assertEqual(cases[case]["steps"], 64)
        expected = tensors[f"{case}.tokens"][0].tolist()
        logits = tensors.get(f"{case}.logits")
        ids, tokens = tensors[f"{case}.input_ids"][0].tolist(), []
        with self.client.session(model=family) as session:
            made = generate.Generator(decoder, session)
            for step in range(64):
                before_step(step)
                last = made.feed(ids)[-1]
                if logits is not None:
                    self.assert_close(last, logits[0, step], (family, case, step))
                ids = [int(last.argmax())]
                tokens += ids
        self.assertEqual(tokens, expected)

    def test_64_greedy_tokens(self):
        for family in FAMILIES:
            self.greedy(family, "greedy")
            self.greedy(family, "greedy2")

    def test_64_greedy_tokens_while_the_daemon_is_killed(self):
        for family in FAMILIES:
            kills = []

            def kill(step, kills=kills):
                if step in KILLS:
                    self.daemon.kill()
                    threading.Timer(0.1, self.daemon.start).start()
                    kills.append(step)

            self.greedy(family, "greedy", kill)
            self.assertEqual(kills, list(KILLS))

    def test_the_program_goes_on_where_a_kill_interrupts_a_layer(self):
        for family, (_, _, tensors) in self.families.items():
            seen = []

            def verdict(number, head, seen=seen):
                # The step that dies has been computed and journaled; its answer never arrives.
                seen.append(head)
                if len(seen) == 60:
                    threading.Thread(target=restart).start()
                    return "lose"
                return "pass"

            def restart():
                wait_for(lambda: len(seen) >= 61)
                self.daemon.kill()
                self.daemon.start()

            relay = Relay(lambda: self.daemon.url, verdict)
            self.addCleanup(relay.close)
            ids = ",".join(map(str, tensors["greedy2.input_ids"][0]))
            done = subprocess.run(
                [sys.executable, TOP / "examples" / "generate.py",
                 GOLDEN / f"{family}_lm" / "model", "--model", family, "--url", relay.url,
                 "--ids", ids, "--ignore-eos", "--timing"],
                capture_output=True, text=True, timeout=300, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([int(token) for token in done.stdout.split()],
                             tensors["greedy2.tokens"][0].tolist())
            self.assertEqual(done.stderr.count("[") + 1, len(done.stderr.splitlines()))
            self.assertEqual(relay.counts["lose"], 1)
        self.assertEqual(list(self.client.sessions()), [])


class Files(unittest.TestCase):
    """What is read of a directory."""

    def test_numbers_of_half_width_and_shards(self):
        shards = generate.read_checkpoint(ATTENTION / "llama3_rope_sharded" / "model")[1]
        index = json.loads((ATTENTION / "llama3_rope_sharded" / "model" /
                            "model.safetensors.index.json").read_text("utf-8"))
        self.assertEqual(shards.keys(), index["weight_map"].keys())
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "x.safetensors"
            head = json.dumps({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
                               "b": {"dtype": "F16", "shape": [1, 1], "data_offsets": [4, 6]}})
            path.write_bytes(len(head).to_bytes(8, "little") + head.encode() +
                             bytes([0x80, 0x3f, 0x20, 0xc0, 0x00, 0x3c]))
            tensors = generate.read_safetensors(path)
            self.assertEqual((tensors["a"].tolist(), tensors["b"].tolist()), ([1, -2.5], [[1]]))

    def test_an_unknown_family_is_named(self):
        with self.assertRaisesRegex(ValueError, "bert"):
            generate.read_decoder(ATTENTION / "bert" / "model")


class Tokenizers(unittest.TestCase):
    """Texts and the tokens that Hugging Face's tokenizers give them."""

    def test_texts(self):
        folders = sorted((TOP / "tests" / "clients" / "tokenizers").glob("*/cases.json"))
        self.assertGreaterEqual(len(folders), 6)
        for path in folders:
            tokenizer = bpe.read_tokenizer(path.parent)
            for case in json.loads(path.read_text("utf-8")):
                ids = tokenizer.encode(case["text"])
                self.assertEqual(ids, case["ids"], (path.parent.name, case["text"]))
                back = "".join(map(tokenizer.stream(), ids))
                # SentencePiece opens a text with a blank, which a continuation needs.
                back = back if tokenizer.of_bytes or back[:1] != " " else back[1:]
                self.assertEqual(back, case["back"], path.parent.name)

    def test_what_is_not_known_is_refused(self):
        model = {"type": "BPE", "vocab": {"a": 0}, "merges": []}
        for facts in ({"model": {"type": "Unigram"}},
                      {"model": model, "normalizer": {"type": "Lowercase"}},
                      {"model": model, "pre_tokenizer": {"type": "Whitespace"}}):
            with self.assertRaises(ValueError):
                bpe.tokenizer_of(facts)


if __name__ == "__main__":
    unittest.main()
