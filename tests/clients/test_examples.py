"""test_examples.py: programs of examples/ run as their first lines say, and fail where due."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from daemon import ATTND, TOP, TINY, Daemon, ask

EXAMPLES = TOP / "examples"
LLAMA, GPT2 = (TOP / "tests" / "clients" / "golden" / name / "model"
               for name in ("llama_lm", "gpt2_lm"))
T5 = TOP / "tests" / "reference" / "t5" / "model"
KEY = "k" * 40


class Case(unittest.TestCase):
    """One daemon with a small model, one with API keys, one without a model."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        keys = os.path.join(cls.directory.name, "keys.json")
        with open(keys, "w", encoding="utf-8") as stream:
            json.dump({"keys": [{"name": "one", "key": KEY, "scopes": ["infer"]}]}, stream)
        os.chmod(keys, 0o600)
        facts = json.loads((LLAMA / "config.json").read_text("utf-8"))
        alike = {name: facts[name] for name in (
            "hidden_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers")}
        models = [TINY, {"name": "llama", "path": str(LLAMA)}, {"name": "gpt2", "path": str(GPT2)},
                  {"name": "alike", "random": {**alike, "seed": 3, "rope_theta": 10000}}]
        cls.plain, cls.keyed, cls.empty = (
            cls.started(models=models), cls.started(api_keys=keys), cls.started(models=[]))

    @classmethod
    def started(cls, **options):
        """A daemon that the class stops."""
        daemon = Daemon(cls.directory.name, **options)
        cls.addClassCleanup(daemon.stop)
        return daemon

    def run_example(self, name, *arguments, **variables):
        """(exit status, output) of a program of examples/."""
        program = [sys.executable] if name.endswith(".py") else []
        done = subprocess.run([*program, EXAMPLES / name, *arguments], text=True, timeout=120,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              env={**os.environ, **variables})
        return done.returncode, done.stdout

    def assert_runs(self, *call, **variables):
        """The output of a program that must end with 0."""
        status, output = self.run_example(*call, **variables)
        self.assertEqual(status, 0, output)
        return output

    def assert_fails(self, *call, **variables):
        """The output of a program that must end with 1."""
        status, output = self.run_example(*call, **variables)
        self.assertEqual(status, 1, output)
        return output


class Curl(Case):
    """curl.sh."""

    def test_nothing_is_left_out(self):
        with open(__file__, encoding="utf-8") as stream:
            tests = stream.read()
        for path in EXAMPLES.iterdir():
            if os.access(path, os.X_OK) and path.is_file():
                self.assertIn(f'"{path.name}"', tests)

    def test_curl(self):
        for model in ([], ["llama"]):
            output = self.assert_runs("curl.sh", self.plain.url, *model)
            self.assertIn('"replayed":true', output)
            self.assertTrue(output.endswith("curl.sh: ok\n"))
        self.assert_runs("curl.sh", self.keyed.url, API_KEY=KEY)
        output = self.assert_fails("curl.sh", self.keyed.url)
        self.assertIn("unauthorized", output)
        self.assertEqual(output.count("== "), 1, "it went on after a refusal")
        self.assertIn("no model", self.assert_fails("curl.sh", self.empty.url))
        for daemon in (self.plain, self.empty):
            self.assertEqual(ask(daemon.url + "/sessions")[1]["sessions"], [])


class Load(Case):
    """wrk.sh and hey.sh."""

    def test_wrk(self):
        output = self.assert_runs("wrk.sh", self.plain.url, "llama", SECONDS_EACH="1",
                                  CONNECTIONS="2")
        self.assertRegex(output, r"[1-9]\d* requests/s, .* 0 refused, 0 socket errors")
        few = {"SECONDS_EACH": "1", "CONNECTIONS": "1"}
        self.assertIn("no model", self.assert_runs("wrk.sh", self.empty.url, **few))
        status, output = self.run_example("wrk.sh", self.keyed.url, **few)
        self.assertNotEqual(status, 0, output)

    def test_hey(self):
        output = self.assert_runs("hey.sh", self.empty.url, REQUESTS="200", CONNECTIONS="4")
        self.assertIn("hey.sh: 200 of 200 replies were 200", output)
        self.assertIn("hey.sh: 0 of 8", self.assert_fails("hey.sh", self.keyed.url, REQUESTS="8",
                                                          CONNECTIONS="4"))


class Numpy(Case):
    """block.py, generate.py, next_token.py, seq2seq.py and capture.py."""

    def test_seq2seq(self):
        stacks = [{"name": name, "path": str(T5), "stack": name} for name in ("decoder", "cross")]
        daemon = self.started(models=stacks)
        output = self.assert_runs("seq2seq.py", "--url", daemon.url, "--encoder-rows", "70")
        self.assertRegex(output, r"70 encoder rows in .*, 2 layers\n10 tokens, .* off by at most")
        self.assertEqual(ask(daemon.url + "/sessions")[1]["sessions"], [])
        self.assertIn("unauthorized", self.assert_fails("seq2seq.py", "--url", self.keyed.url))

    def test_capture(self):
        call = ["capture.py", "--model", LLAMA, "--ids", "1,2,3", "-o",
                os.path.join(self.directory.name, "capture.safetensors")]
        output = self.assert_runs(*call, "--url", self.plain.url, "--name", "llama")
        self.assertIn("2 layers, 3 tokens, width 32, f32", output)
        self.assertIn("2 layers", self.assert_runs(*call, ATTND=ATTND))
        self.assertIn("unauthorized", self.assert_fails(*call, "--url", self.keyed.url))
        output = self.assert_fails(*call, "--url", self.keyed.url, API_KEY=KEY)
        self.assertIn("hidden_size is 8 there, and 32 here", output)  # the key was taken
        self.assertIn("did not start", self.assert_fails(*call, ATTND="/bin/true"))
        self.assertIn("--model llama-3.2-1b", self.assert_runs("capture.py", "--help"))

    def test_next_token(self):
        demo = self.started(models=[{"name": "demo", "path": str(EXAMPLES / "demo")}])
        sentence = "Anna lives in Oslo. A bird sings. Anna lives in"
        output = self.assert_runs("next_token.py", sentence, "--url", demo.url, "--most", "1")
        lines = output.splitlines()
        self.assertEqual(lines[0], "13 tokens: <|begin|>| Anna| lives| in| Oslo|.| A| bird| sings|.| "
                                   "Anna| lives| in")
        self.assertEqual(lines[1:5], [f"layer {layer}: (13, 64) to attnd, (13, 64) back"
                                      for layer in range(4)])
        self.assertRegex("\n".join(lines[5:]), r"^0\.[5-9]\d+  Oslo$")
        for daemon, said in ((self.plain, "no model"), (self.keyed, "unauthorized")):
            self.assertIn(said, self.assert_fails("next_token.py", sentence, "--url", daemon.url))

    def test_block(self):
        for size in ([], ["--width", "48", "--heads", "3"]):
            output = self.assert_runs("block.py", "--url", self.empty.url, *size)
            self.assertEqual(output.count("off by at most"), 4)
        self.assertIn("unauthorized", self.assert_fails("block.py", "--url", self.keyed.url))

    def assert_refused(self, what, *call):
        """A program ends with one line that says what is wrong, and no traceback."""
        status, output = self.run_example(*call)
        self.assertIn(status, (1, 2), output)
        self.assertNotIn("Traceback", output)
        self.assertRegex(output.splitlines()[-1], what)
        if status == 1:
            self.assertEqual(output.count("\n"), 1, output)

    def test_mistakes_are_one_line(self):
        for model, directory in (("llama", LLAMA), ("gpt2", GPT2)):
            call = ["generate.py", directory, "--url", self.plain.url, "--model", model]
            for ids in ("1,999999", "-1"):
                self.assert_refused(r"tokens are 0 to \d+$", *call, f"--ids={ids}")
            self.assert_refused("--tokens", *call, "--ids=1", "--tokens=0")
            # Another model of the same width, and of the same shape.
            for other in ("alike", "gpt2" if model == "llama" else "llama"):
                self.assert_refused(f"attnd's {other} is another model", *call, "--ids=1",
                                    "--model", other)
                self.assert_refused(f"attnd's {other} is another model", "capture.py", "--ids=1",
                                    "--model", directory, "--name", other, "--url", self.plain.url,
                                    "-o", f"{self.directory.name}/none.safetensors")
        self.assert_refused("96 positions: after a prompt of 3 tokens --tokens is at most 94$",
                            *call, "--ids=1,2,3", "--tokens=95")
        host = self.plain.url.removeprefix("http://")
        for name, *rest in (("generate.py", LLAMA, "--ids=1", "--url"), ("block.py", "--url"),
                            ("own_projections.py",), ("seq2seq.py", "--url"),
                            ("capture.py", "--model", LLAMA, "--ids=1", "--url")):
            self.assert_refused("url: no http:// or https:// URL", name, *rest, host)
        self.assert_refused("--width", "block.py", "--width=10", "--heads=3")
        self.assert_refused("--port", "capture.py", "--model", LLAMA, "--ids=1", "--port=70000")
        self.assertEqual(ask(self.plain.url + "/sessions")[1]["sessions"], [])

    def test_own_projections(self):
        output = self.assert_runs("own_projections.py", self.empty.url)
        self.assertRegex(output, r"3 sequences, 3 layers, worst error \d\.\de-0[6-9]")
        self.assertIn("unauthorized", self.assert_fails("own_projections.py", self.keyed.url))

    def test_generate_from_text(self):
        with tempfile.TemporaryDirectory() as directory:
            shutil.copytree(LLAMA, directory, dirs_exist_ok=True)
            sys.path.insert(1, str(EXAMPLES))
            import bpe  # noqa: PLC0415 (needs no numpy)
            vocabulary = {letter: byte for byte, letter in bpe.byte_letters().items()}
            with open(directory + "/vocab.json", "w", encoding="utf-8") as stream:
                json.dump(vocabulary, stream)
            with open(directory + "/merges.txt", "w", encoding="utf-8") as stream:
                stream.write("#version: 0.2\n")
            call = ["generate.py", directory, "--url", self.plain.url, "--model", "llama",
                    "--tokens", "20", "--ignore-eos"]
            ids = ",".join(map(str, "Once é".encode()))
            numbers = self.assert_runs(*call, "--ids", ids).split("\n", 1)[0].split()
            self.assertEqual(len(numbers), 20)
            output = self.assert_runs(*call, "--prompt", "Once é")
            text = bytes(map(int, numbers)).decode("utf-8", "replace")
            self.assertTrue(output.startswith(text.rstrip("\ufffd")), (output, text))
            warm = [*call, "--ids", ids, "--temperature", "1", "--seed"]
            first, again, other = (self.assert_runs(*warm, seed).split("\n")[0] for seed in "112")
            self.assertEqual(first, again)
            self.assertNotEqual(first, other)
            self.assertIn("model_not_found", self.assert_fails(*call, "--model", "x", "--ids", "1"))
            self.assertIn("usage", self.assert_runs("generate.py", "--help"))


if __name__ == "__main__":
    unittest.main()
