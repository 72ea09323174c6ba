"""test_generate.py: examples/generate.py against the logits and tokens of Hugging Face's models.

tests/clients/golden holds two whole models with the logits of their own forward and 64 greedy
tokens each; tests/clients/tokenizers texts with the tokens that other code gives them.
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy

from daemon import TOP, Daemon, Relay, wait_for

sys.path.insert(1, str(TOP / "examples"))
sys.path.insert(1, str(TOP / "tests" / "quantized"))
import bpe  # noqa: E402
import generate  # noqa: E402
import make  # noqa: E402
import stored  # noqa: E402

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


def write_gguf(path, config, tensors):
    """A Llama of Hugging Face as llama.cpp writes it, in float32: rows of queries and keys in the
    order of pairs."""
    heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
    facts = {"embedding_length": config["hidden_size"], "block_count": config["num_hidden_layers"],
             "attention.head_count": heads["q"], "attention.head_count_kv": heads["k"],
             "context_length": config["max_position_embeddings"],
             "feed_forward_length": config["intermediate_size"]}

    def text(words):
        return struct.pack("<Q", len(words.encode())) + words.encode()

    keys = [text("general.architecture") + struct.pack("<I", 8) + text("llama"),
            text("general.tags") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b"),
            text("tokenizer.ggml.scores") + struct.pack("<IIQ3f", 9, 6, 3, 1, 2, 3),
            text("llama.attention.layer_norm_rms_epsilon") +
            struct.pack("<If", 6, config["rms_norm_eps"]),
            text("llama.rope.freq_base") + struct.pack("<If", 6, config["rope_theta"])]
    keys += [text(f"llama.{name}") + struct.pack("<II", 4, value) for name, value in facts.items()]
    short = {name.split(".")[-1]: own for own, name in stored.LLAMA_NAMES.items()}
    entries, data = [], b""
    for name, array in tensors.items():
        module = name.split(".")[-2]
        layer = "".join(part for part in name.split(".") if part.isdigit())
        own = short.get(module) or f"attn_{module[0]}"
        if module[:2] in ("q_", "k_"):
            count = heads[module[0]]
            array = array.reshape(count, 2, -1, array.shape[1]).swapaxes(1, 2)
            array = array.reshape(-1, array.shape[3])
        entries.append(text(f"blk.{layer}.{own}.weight" if layer else f"{own}.weight") +
                       struct.pack(f"<I{array.ndim}QIQ", array.ndim, *array.shape[::-1], 0,
                                   len(data)))
        data += array.tobytes() + bytes(-array.nbytes % 32)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(entries), len(keys)) + b"".join(keys + entries)
    path.write_bytes(head + bytes(-len(head) % 32) + data)


class Stored(unittest.TestCase):
    """Llama with its weights in other forms."""

    CASES, TENSORS = folder("llama")

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.top = pathlib.Path(cls.directory.name)
        cls.config, cls.tensors = generate.read_checkpoint(GOLDEN / "llama_lm" / "model")

    def logits(self, paths):
        """{name: logits}; {name: path} are the models of a daemon."""
        daemon = Daemon(self.directory.name, [{"name": name, "path": str(path)}
                                              for name, path in paths.items()])
        made = {}
        try:
            ids = self.TENSORS["logits.input_ids"][0].tolist()
            with generate.Client(daemon.url) as client:
                for name, path in paths.items():
                    decoder = generate.read_decoder(path)
                    generate.check_model(client, name, decoder)
                    with client.session(model=name) as session:
                        made[name] = generate.Generator(decoder, session).feed(ids)
                    done = subprocess.run(
                        [sys.executable, TOP / "examples" / "generate.py", path, "--model", name,
                         "--url", daemon.url, "--ids", ",".join(map(str, ids)), "--tokens", "3",
                         "--ignore-eos"], capture_output=True, text=True, timeout=300, check=False)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(int(done.stdout.split()[0]), made[name][-1].argmax())
        finally:
            daemon.stop()
        return made

    def test_codes_give_the_logits_of_the_numbers_that_they_stand_for(self):
        forms = {
            "block": (make.said("fp8", weight_block_size=[20, 12]),
                      lambda *size: make.fp8(*size, (20, 12), ".weight_scale_inv")),
            "tensor": (make.said("fp8"), make.fp8),
            "inverse": (make.said("fp8", weight_block_size=None),
                        lambda *size: make.fp8(*size, None, ".weight_scale_inv",
                                               ".activation_scale")),
            "channel": (make.compressed("float-quantized", {
                "num_bits": 8, "strategy": "channel", "symmetric": True}),
                lambda out, size: make.fp8(out, size, (1, size))),
            "blocks": (make.compressed("float-quantized", {
                "num_bits": 8, "strategy": "block", "block_structure": [12, 20],
                "symmetric": True}),
                lambda *size: make.fp8(*size, (12, 20))),
            "gptq": (make.said("gptq", bits=4, group_size=16, desc_act=False), make.gptq),
            "gptq8": (make.said("gptq", bits=8, group_size=16, desc_act=True,
                                checkpoint_format="gptq_v2"),
                      lambda *size: make.gptq(*size, 8, 16, 0, True))}
        paths = {}
        for form, (settings, code) in forms.items():
            written = {"stored": {}, "plain": {}}
            for name, array in self.tensors.items():
                if "_proj" not in name:
                    written["stored"][name] = written["plain"][name] = array
                    continue
                parts, written["plain"][name] = code(*array.shape)
                base = name.removesuffix(".weight")
                written["stored"].update({base + end: part for end, part in parts.items()})
            for kind, tensors in written.items():
                path = paths[f"{form}-{kind}"] = self.top / f"{form}-{kind}"
                path.mkdir()
                make.write(path / "model.safetensors", tensors)
                own = {**self.config, **(settings if kind == "stored" else {})}
                (path / "config.json").write_text(json.dumps(own), "utf-8")
        logits = self.logits(paths)
        for form in forms:
            plain = logits[f"{form}-plain"]
            self.assertGreater(plain.std(), 0.01, form)
            difference = numpy.abs(logits[f"{form}-stored"] - plain).max()
            difference /= max(1, numpy.abs(plain).max())
            self.assertTrue(difference <= TOLERANCE, f"{form}: {difference} off")

    def test_blocks_of_fp8_have_128_rows_and_columns_where_nothing_says_it(self):
        top = ATTENTION.parent / "quantized" / "fp8_usual_blocks"
        (_, made), (_, plain) = (stored.read_directory(top / form) for form in ("stored", "plain"))
        self.assertEqual(made.keys(), plain.keys())
        for name, array in plain.items():
            numpy.testing.assert_array_equal(made[name], array, name)

    def test_a_gguf_file_gives_the_logits_of_its_model(self):
        path = self.top / "llama.gguf"
        write_gguf(path, self.config, self.tensors)
        logits = self.logits({"file": path, "directory": self.top})
        for made in logits.values():
            difference = numpy.abs(made - self.TENSORS["logits.logits"][0]).max()
            self.assertTrue(difference <= TOLERANCE, f"{difference} off")

    def test_a_directory_holds_one_gguf_model_beside_files_that_are_none(self):
        with tempfile.TemporaryDirectory() as directory:
            top = pathlib.Path(directory) / "Llama[v2]"
            top.mkdir()
            path = top / "qwen3[a].gguf"
            write_gguf(path, self.config, self.tensors)
            for name in ("imatrix.gguf", "a.imatrix.gguf", "mmproj-F16.gguf", "b-mmproj-F16.gguf",
                         "c-00002-of-00002.gguf"):
                (top / name).write_bytes(b"")
            for at in (path, top):
                tensors = generate.read_checkpoint(at)[1]
                self.assertTrue((tensors["model.norm.weight"] ==
                                 self.tensors["model.norm.weight"]).all())
            (top / "z.gguf").write_bytes(b"")
            with self.assertRaisesRegex(ValueError, r"holds qwen3\[a\]\.gguf and z\.gguf: name"):
                generate.read_checkpoint(top)

    def test_all_parts_of_a_split_model_are_read(self):
        with tempfile.TemporaryDirectory() as directory:
            top, names = pathlib.Path(directory), list(self.tensors)
            for part in range(2):
                write_gguf(top / f"a[b]-0000{part + 1}-of-00002.gguf", self.config,
                           {name: self.tensors[name] for name in names[part::2]})
            self.assertEqual(generate.read_checkpoint(top)[1].keys(), stored.read_gguf(
                sorted(top.iterdir()))[1].keys())
            (top / "a[b]-00002-of-00002.gguf").unlink()
            with self.assertRaisesRegex(FileNotFoundError, "00002-of-00002"):
                generate.read_checkpoint(top)

    def test_a_path_without_a_file_is_named(self):
        for name in ("none", "none.gguf", "none[1].gguf"):
            with self.assertRaises(FileNotFoundError) as raised:
                generate.read_checkpoint(self.top / name)
            self.assertEqual(raised.exception.filename, str(self.top / name))

    def test_a_file_that_is_cut_is_refused_with_a_sentence(self):
        path = self.top / "whole.gguf.part"
        write_gguf(path, self.config, self.tensors)
        whole = path.read_bytes()
        header = whole.index(b"token_embd.weight")
        for size in (0, 3, 20, 24, 60, header - 4, header + 5, header + 20):
            path.write_bytes(whole[:size])
            with self.assertRaisesRegex(ValueError, "whole.gguf.part ends within its header$"):
                generate.read_checkpoint(path)
        path.write_bytes(whole[:-32])
        with self.assertRaisesRegex(ValueError, r"part ends within \w+\S*\.weight$"):
            generate.read_checkpoint(path)
        first = whole.index(b"general.architecture") + len("general.architecture")
        for kind, count, what in ((9, 1 << 62, "ends within its header"), (13, 0, "type 13")):
            path.write_bytes(whole[:first] + struct.pack("<IIQ", kind, 10, count) + whole[first:])
            with self.assertRaisesRegex(ValueError, what):
                generate.read_checkpoint(path)

    def test_blocks_of_ggml_have_ggmls_numbers(self):
        data = (TOP / "tests" / "ggml" / "blocks.safetensors").read_bytes()
        size = int.from_bytes(data[:8], "little")
        head = json.loads(data[8:8 + size])
        self.assertEqual({name.split(".")[0] for name in head if name != "__metadata__"},
                         {name for name, *_ in stored.GGML.values()})
        for name, _, length, numbers_of in stored.GGML.values():
            blocks, numbers = (
                numpy.frombuffer(data, "u1", end - begin, 8 + size + begin) for begin, end in
                (head[f"{name}.{part}"]["data_offsets"] for part in ("blocks", "numbers")))
            made = numbers_of(blocks.reshape(-1, length)).astype(numpy.float32)
            self.assertEqual(made.tobytes(), numbers.tobytes(), name)

    def test_what_is_not_known_is_refused(self):
        for name, what in (("awq_g128_llama", "awq"), ("bnb_nf4_llama", "bitsandbytes"),
                           ("ct_w4a16_g128_llama", "pack-quantized")):
            with self.assertRaisesRegex(ValueError, what):
                generate.read_decoder(ATTENTION / name / "model")
        groups = make.compressed("float-quantized", {"block_structure": [12, 20]}, {})
        with self.assertRaisesRegex(ValueError, "different block_structure"):
            stored.decode(self.config, groups["quantization_config"], {})
        for alignment in ("zero", "3"):
            broken = ATTENTION.parent / "broken" / f"gguf_alignment_{alignment}"
            with self.assertRaisesRegex(ValueError, "alignment is .*, wanted is a power of two"):
                generate.read_decoder(broken / "model")
        path = self.top / "no.gguf"
        path.write_bytes(b"GGML" + bytes(60))
        with self.assertRaisesRegex(ValueError, "no GGUF file"):
            generate.read_decoder(path)


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
            tensors = stored.read_safetensors(path)
            self.assertEqual((tensors["a"].tolist(), tensors["b"].tolist()), ([1, -2.5], [[1]]))

    def test_what_cannot_be_read_of_safetensors_is_named(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "x.safetensors"
            for dtype in ("F64", "F8_E5M2"):
                make.write(path, {"a": (dtype, numpy.zeros(8, "u1"), (1,))})
                with self.assertRaisesRegex(ValueError, f"a is of dtype {dtype}"):
                    stored.read_safetensors(path)
            make.write(path, {"a": numpy.zeros(2, "f4"), "mask": numpy.zeros(2, "i8")})
            whole = path.read_bytes()
            self.assertEqual(list(stored.read_safetensors(path)), ["a"])
            for size, what in ((0, "its header"), (7, "its header"), (40, "its header"),
                               (len(whole) - 17, "a")):
                path.write_bytes(whole[:size])
                with self.assertRaisesRegex(ValueError, f"x.safetensors ends within {what}$"):
                    stored.read_safetensors(path)

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
