"""test_client.py: attn_client.py against a daemon, beside plain requests, losses and a fake server.

Where ATTN_NO_NUMPY is set, numpy cannot be imported, and the client does without it.
"""
import array
import asyncio
import contextlib
import io
import json
import math
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

from daemon import CROSSED, TINY, TOP, Daemon, Relay, Router, Scripted, ask, wait_for

if os.environ.get("ATTN_NO_NUMPY"):
    sys.modules["numpy"] = None
sys.path.insert(1, str(TOP / "clients" / "python"))
import attn_client  # noqa: E402
from attn_client import (AsyncClient, Busy, Client, Conflict, ConnectionLost,  # noqa: E402
                         InvalidArgument, InvalidRequest, NotFound, SessionLost, Unauthorized,
                         Unavailable)

numpy = attn_client.numpy
ROWS = [[math.sin(8 * token + width) for width in range(8)] for token in range(40)]
MAPS = ["output", "attention_weights", "attention_scores", "lse", "key", "value", "head_stats",
        "query", "head_output", "concat"]
MADE = r"^[\w-]+\.[0-9a-z]{26}$"  # an id that attnd made: it names a shard


def lists(value):
    """A tensor, or what holds tensors, as JSON has it."""
    if isinstance(value, dict):
        return {name: lists(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [lists(inner) for inner in value]
    if hasattr(value, "tolist"):
        return lists(value.tolist())
    return None if value == -math.inf else value


class Case(unittest.TestCase):
    """Tests with a daemon of the class."""
    options = {}
    models = (TINY,)

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.daemon = Daemon(cls.directory.name, cls.models, **cls.options)
        cls.addClassCleanup(cls.daemon.stop)

    def client(self, url=None, **options):
        """A Client, closed at the end of the test."""
        client = Client(url or self.daemon.url, **options)
        self.addCleanup(client.close)
        return client

    def assert_same(self, first, second):
        """Equal but for float32's last digits, which JSON cuts, at any depth."""
        first, second = lists(first), lists(second)
        if isinstance(first, dict):
            self.assertEqual(first.keys(), second.keys())
            first, second = list(first.values()), [second[name] for name in first]
        if isinstance(first, list):
            self.assertEqual(len(first), len(second))
            for one, other in zip(first, second):
                self.assert_same(one, other)
        elif isinstance(first, float) and isinstance(second, (int, float)):
            self.assertTrue(abs(first - second) <= 1e-7 * max(1, abs(second)), (first, second))
        else:
            self.assertEqual(first, second)


class Calls(Case):
    """What is sent arrives, and what comes back is named and shaped as it should be."""
    options = {"max_body_bytes": 1 << 20}

    def compare(self, **fields):
        _, expected = ask(self.daemon.url + "/attend", lists(fields))
        for binary in (True, False):
            reply = self.client(binary=binary).attend(**fields)
            self.assert_same(reply, expected)
        return reply

    def test_every_output_is_what_a_plain_request_gets(self):
        reply = self.compare(hidden_states=ROWS[:5], outputs=MAPS, stage="masked")
        self.assertEqual(list(reply["attention_weights"].shape), [4, 5, 5])
        self.assertEqual(reply["output"].ndim, 2)
        self.assertRegex(reply.request_id, "^[0-9a-f]{16}$")
        self.assertIn("compute", reply.timing)

    def test_selected_maps_and_top_k(self):
        reply = self.compare(hidden_states=ROWS[:6], outputs=["attention_weights"], heads=[3, 1],
                             rows=[5, 0], top_k=2)
        self.assertEqual(list(reply["attention_weights"]["index"].shape), [2, 2, 2])

    def test_pooled_maps(self):
        for pool_type in ("max", "mean"):
            reply = self.compare(hidden_states=ROWS[:7], outputs=["attention_weights"],
                                 pool=[2, 3], pool_type=pool_type)
            self.assertEqual(list(reply["attention_weights"].shape), [4, 2, 3])

    def assert_near(self, first, second, step):
        """Nested lists whose numbers differ by `step`, or 2^-11 of the number, at most."""
        if isinstance(second, list):
            self.assertEqual(len(first), len(second))
            for one, other in zip(first, second):
                self.assert_near(one, other, step)
        elif first != second:
            self.assertLessEqual(abs(first - second), step + abs(second) * 2 ** -11)

    def test_maps_as_halves_and_bytes(self):
        client = self.client()
        calls = ({"hidden_states": ROWS[:5], "outputs": ["attention_weights", "lse"]},
                 {"hidden_states": [ROWS[:3], ROWS[3:6]], "outputs": ["attention_weights"]},
                 {"hidden_states": [ROWS[:3], ROWS[3:6]], "outputs": ["attention_weights"],
                  "average_heads": True},
                 {"hidden_states": ROWS[:3], "outputs": ["attention_weights"],
                  "average_heads": True},
                 {"hidden_states": ROWS[:3], "outputs": ["attention_weights"],
                  "head_mask": [1, -3, 0, 0.5]})
        for fields in calls:
            full = client.attend(**fields)
            for datatype, step in (("FP16", 2 ** -25), ("UINT8", 4 / 509)):
                reply = client.attend(**fields, map_datatype=datatype)
                self.assertEqual(list(reply["attention_weights"].shape),
                                 list(full["attention_weights"].shape))
                self.assert_near(reply["attention_weights"].tolist(),
                                 full["attention_weights"].tolist(), step)
                if "lse" in full:
                    self.assert_same(reply["lse"], full["lse"])
        scores = {"hidden_states": ROWS[:5], "outputs": ["attention_scores"], "stage": "masked"}
        self.assert_near(client.attend(**scores, map_datatype="FP16")["attention_scores"].tolist(),
                         client.attend(**scores)["attention_scores"].tolist(), 2 ** -25)

    def test_maps_of_several_steps_stand_where_their_elements_fit(self):
        client = self.client()
        fields = {"outputs": ["output", "attention_weights"], "heads": [2], "commit": False}
        with client.session() as first, client.session() as second:
            steps = [(first, ROWS[:3]), (second, ROWS[3:6])]
            full = client.step_many(steps, **fields)
            for datatype, step in (("FP16", 2 ** -25), ("UINT8", 1 / 509)):
                replies = client.step_many(steps, **fields, map_datatype=datatype)
                for reply, want in zip(replies, full):
                    self.assert_same(reply["output"], want["output"])
                    self.assert_near(reply["attention_weights"].tolist(),
                                     want["attention_weights"].tolist(), step)

    def test_batches_masks_biases_and_positions(self):
        self.compare(hidden_states=[ROWS[:3], ROWS[3:6]], padding_mask=[[1, 1, 1], [0, 1, 1]],
                     attention_mask=[[[True] * 3] * 3] * 2, position_ids=[[0, 1, 5], [2, 3, 4]],
                     attention_bias=[[[0, None, 0.5]] * 3] * 2, head_mask=[1, 0, 0.5, 1])

    def test_statistics_of_targets_groups_and_ablation(self):
        reply = self.compare(hidden_states=[ROWS[:3], ROWS[3:6]], outputs=["head_stats"],
                             targets=[[-1, 0, 1], [2, 2, 2]], target_groups=[[0], [1, 2]],
                             ablate=True)
        self.assertEqual(len(reply["head_stats"][1][3]["groups"]), 2)

    def test_weightless(self):
        head = [ROWS[:3], ROWS[3:6]]
        self.compare(query=head, key=head, value=head, outputs=["output", "lse"], is_causal=True)

    def test_weightless_over_keys_that_are_there(self):
        head = [ROWS[:3], ROWS[3:6]]
        reply = self.compare(query=head, key=head, value=head, past_key=[ROWS[9:12]] * 2,
                             past_value=[ROWS[12:15]] * 2, sliding_window=[2, 0], heads=[1],
                             outputs=["output", "attention_weights"])
        self.assertEqual(list(reply["attention_weights"].shape), [1, 3, 6])

    def test_tensors_are_the_fields_that_the_daemon_reads_as_such(self):
        _, document = ask(self.daemon.url + "/openapi.json")
        datatypes = {"FloatTensor": "FP32", "BiasTensor": "FP32", "IntegerTensor": "INT64",
                     "MaskTensor": "BOOL"}
        found = {}
        for schema in ("AttendRequest", "DecodeRequest", "StepRequest", "CreateRequest"):
            for name, field in document["components"]["schemas"][schema]["properties"].items():
                kinds = re.findall(r"#/components/schemas/(\w+Tensor)\b", json.dumps(field))
                found.update({name: datatypes[kind] for kind in kinds})
        self.assertEqual(attn_client._TENSORS, found)

    def test_buffers_are_taken(self):
        flat = memoryview(array.array("f", sum(ROWS[:2], []))).cast("B").cast("f", [2, 8])
        expected = self.client().attend(ROWS[:2])
        self.assert_same(self.client().attend(flat)["output"], expected["output"])
        doubles = memoryview(array.array("d", sum(ROWS[:2], []))).cast("B").cast("d", [2, 8])
        self.assert_same(self.client().attend(doubles)["output"], expected["output"])

    @unittest.skipIf(numpy is None, "numpy is not there")
    def test_arrays_of_other_dtypes_and_strides(self):
        rows = numpy.array(ROWS[:4])
        expected = self.client().attend(rows)["output"]
        self.assertEqual(expected.dtype, numpy.float32)
        self.assertTrue(expected.flags.aligned and expected.flags.writeable)
        strided = numpy.asfortranarray(rows)
        ids, mask = numpy.arange(4, dtype=numpy.int32), numpy.ones(4, numpy.uint8)
        for binary in (True, False):
            client = self.client(binary=binary)
            same = client.attend(strided, position_ids=ids, padding_mask=mask)
            self.assert_same(same["output"], expected)
            half = client.attend(rows.astype(numpy.float16))["output"]
            self.assertLess(abs(half - expected).max(), 1e-2)
            self.assertGreater(abs(half - expected).max(), 0)

    def test_wrong_tensors_are_refused_here(self):
        wrong = [{"padding_mask": [1, 2]}, {"hidden_states": [[1, 2], [3]]},
                 {"hidden_states": [[1, 2], 3]}, {"hidden_states": [1, [2]]},
                 {"position_ids": [0.5]}, {"attention_bias": [[True, False]]},
                 {"hidden_states": "rows"}, {"outputs": object()}, {"scale": math.nan},
                 {"query": {"shape": [3], "data": [1, 2]}}, {"query": {"dims": [1], "data": [1]}},
                 {"query": {"shape": [2], "data": [1, 2], "datatype": "BF16"}}]
        if numpy is not None:
            masked = numpy.ma.array(numpy.ones((2, 8)), mask=numpy.eye(2, 8))
            wrong += [{"position_ids": numpy.ones(2)}, {"padding_mask": numpy.ones(2)},
                      {"hidden_states": numpy.array(["a"])}, {"hidden_states": masked},
                      {"attention_bias": numpy.ones((2, 2), bool)},
                      {"hidden_states": [numpy.ones(3), numpy.ones(2)]},
                      {"attention_bias": [numpy.ones(2, bool), numpy.ones(2)]}]
        for binary in (True, False):
            client = self.client("http://127.0.0.1:9", binary=binary)
            for fields in wrong:
                with self.assertRaises(InvalidArgument) as caught:
                    client.attend(**fields)
                name, = fields
                self.assertEqual((caught.exception.param, caught.exception.code),
                                 (name, "invalid_argument"))
                self.assertIn(name, str(caught.exception))
                self.assertIsInstance(caught.exception, ValueError)
        with self.assertRaises(InvalidArgument) as caught:
            self.client("http://127.0.0.1:9", binary=False).attend([[math.inf]])
        with self.assertRaises(InvalidArgument) as caught:
            client.attend(sequences=[{"query": [1]}, {"query": [[1], 2]}])
        self.assertEqual(caught.exception.param, "sequences[1].query")

    def test_tensors_in_the_forms_that_programs_have_them(self):
        expected = self.client().attend(ROWS[:2], outputs=["output", "lse"])
        flat = sum(ROWS[:2], [])
        rows = [{"shape": [2, 8], "data": flat}, {"shape": [2, 8], "data": ROWS[:2]},
                {"shape": [2, 8], "data": array.array("d", flat), "datatype": "FP64"},
                [array.array("d", row) for row in ROWS[:2]]]
        if numpy is not None:
            rows += [[numpy.array(row) for row in ROWS[:2]], tuple(numpy.array(ROWS[:2])),
                     [ROWS[0], numpy.array(ROWS[1])], [[numpy.float64(x) for x in ROWS[0]], ROWS[1]],
                     numpy.ma.array(ROWS[:2])]
        for binary in (True, False):
            for given in rows:
                reply = self.client(binary=binary).attend(given, outputs={"lse", "output"})
                self.assert_same(reply, expected)

    @unittest.skipIf(numpy is None, "a tensor of torch gives an array of numpy")
    def test_tensors_with_the_interface_of_torch(self):
        class Tensor:
            """What torch's has: an array only once it is detached, on the CPU and no bfloat16."""

            def __init__(self, dtype, steps=()):
                self.dtype, self.steps = dtype, steps

            detach = property(lambda self: lambda: Tensor(self.dtype, (*self.steps, "detach")))
            cpu = property(lambda self: lambda: Tensor(self.dtype, (*self.steps, "cpu")))
            float = property(lambda self: lambda: Tensor("torch.float32", self.steps))

            def __array__(self, dtype=None):
                assert self.steps == ("detach", "cpu") and self.dtype != "torch.bfloat16"
                return numpy.array(ROWS[:2], numpy.float32)

        expected = self.client().attend(ROWS[:2])["output"]
        for dtype in ("torch.float32", "torch.bfloat16"):
            self.assert_same(self.client().attend(Tensor(dtype))["output"], expected)

    def test_numbers_of_16_bits_are_sent_as_the_bits_they_are(self):
        wide = attn_client.struct.pack("<16f", *sum(ROWS[:2], []))
        bits = array.array("H", [int.from_bytes(wide[place:place + 2], "little")
                                 for place in range(2, 64, 4)])
        cut = attn_client.struct.unpack("<16f", b"".join(
            b"\0\0" + wide[place:place + 2] for place in range(2, 64, 4)))
        expected = self.client().attend([list(cut[:8]), list(cut[8:])])["output"]
        one = self.client().attend([[1.0] * 8])["output"]
        for binary in (True, False):
            client = self.client(binary=binary)
            brain = client.attend({"shape": [2, 8], "data": bits, "datatype": "BF16"})
            half = client.attend({"shape": [1, 8], "data": array.array("H", [0x3c00] * 8),
                                  "datatype": "FP16"})
            self.assert_same(brain["output"], expected)
            self.assert_same(half["output"], one)

    def test_errors_have_types_and_facts(self):
        client = self.client()
        with self.assertRaises(InvalidRequest) as caught:
            client.attend([[1, 0]])
        error = caught.exception
        self.assertEqual((error.code, error.status, error.param, error.retryable),
                         ("shape_mismatch", 422, "hidden_states", False))
        self.assertRegex(error.request_id, "^[0-9a-f]{16}$")
        for path in ("/models/none", "/sessions/none", "/none"):
            with self.assertRaises(NotFound):
                client.get(path)
        with self.assertRaises(NotFound):
            client.open("none")
        for call in (lambda: client.session("日本"), lambda: client.restore("日本", b"12345678")):
            with self.assertRaises(InvalidRequest):
                call()

    def test_a_refused_body_is_an_error_of_attnd(self):
        with self.assertRaises(InvalidRequest) as caught:
            self.client().attend(memoryview(bytes(8 << 20)).cast("f", [1 << 18, 8]))
        self.assertEqual(caught.exception.code, "body_too_large")

    def test_threads_share_a_client(self):
        client = self.client()
        expected = [client.attend(ROWS[n:n + 2])["output"].tolist() for n in range(8)]
        wrong = []

        def work(number):
            for _ in range(20):
                if client.attend(ROWS[number:number + 2])["output"].tolist() != expected[number]:
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_command_line(self):
        def run(*arguments):
            return subprocess.run([sys.executable, TOP / "clients/python/attn_client.py", "--url",
                                   self.daemon.url, *arguments], capture_output=True, check=False)
        reply = json.loads(run("attend", json.dumps({"hidden_states": ROWS[:1]})).stdout)
        self.assert_same(reply["output"], self.client().attend(ROWS[:1])["output"])
        self.assertEqual(json.loads(run("get", "/models/tiny").stdout)["hidden_size"], 8)
        self.assertEqual(run("ready").returncode, 0)
        failed = run("attend", "{}")
        self.assertEqual(failed.returncode, 1)
        self.assertIn(b"missing_field", failed.stderr)
        failed = run("--url", "127.0.0.1:8080", "ready")
        self.assertEqual((failed.returncode, failed.stderr.count(b"\n")), (1, 1))


class Sessions(Case):
    """Sessions, by calls of threads and of asyncio."""

    def test_a_session_ends_with_its_block(self):
        client = self.client()
        with client.session(model="tiny", max_length=9) as session:
            whole = client.attend(ROWS[:4])["output"]
            first = session.prefill(ROWS[:3])["output"]
            last = session.decode(ROWS[3])
            self.assert_same(lists(first) + [lists(last["output"])], whole)
            self.assertEqual((session.lengths, last["position"]), ({0: 4, 1: 0}, 3))
            session.decode(ROWS[4], commit=False)
            self.assertEqual(session.lengths[0], 4)
        with self.assertRaises(NotFound):
            client.open(session.session_id)
        with self.assertRaises(RuntimeError), client.session() as session:
            raise RuntimeError
        with self.assertRaises(NotFound):
            client.open(session.session_id)
        with client.session() as session:
            session.keep = True
        with client.open(session.session_id):
            pass

    def test_fork_truncate_export_and_restore(self):
        client = self.client()
        with client.session() as session:
            session.prefill(ROWS[:6])
            with session.fork(length=4) as fork:
                self.assertEqual(fork.lengths[0], 4)
                self.assert_same(fork.decode(ROWS[4])["output"],
                                 lists(client.attend(ROWS[:5])["output"])[4])
            state = session.export()
            session.truncate(2)
            told = session.refresh()["lengths"][0]["length"]
            self.assertEqual((session.lengths[0], told), (2, 2))
            with client.restore("restored", state) as other:
                self.assertEqual(other.lengths[0], 6)
                self.assertIn("restored", [entry["session_id"] for entry in client.sessions(1)])

    def test_many_at_once_and_one_that_fails(self):
        client = self.client()
        with client.session() as one, client.session() as two, client.session(max_length=1) as full:
            full.prefill(ROWS[:1])
            replies = client.step_many([(one, ROWS[0]), (full, ROWS[1]), (two, ROWS[:2])])
            self.assert_same(replies[2]["output"], client.attend(ROWS[:2])["output"])
            self.assertEqual(replies[1].code, "session_full")
            self.assertEqual([one.lengths[0], two.lengths[0], full.lengths[0]], [1, 2, 1])
            with self.assertRaises(InvalidArgument):
                client.step_many([(one, ROWS[0]), (one, ROWS[1])])

    def test_fields_of_an_item_win_over_those_of_all(self):
        client = self.client()
        with client.session() as one, client.session() as two:
            own = {"hidden_states": ROWS[0], "outputs": ["lse"]}
            first, second = client.step_many([(one, own), (two, ROWS[0])], outputs=["output"])
            self.assertEqual(("lse" in first, "output" in first), (True, False))
            self.assertEqual(("lse" in second, "output" in second), (False, True))

    def test_a_session_that_another_took_over_is_a_conflict(self):
        client = self.client()
        with client.session("shared-id") as session:
            session.prefill(ROWS[:3])
            url = self.daemon.url + "/decode"
            status, _ = ask(url, {"session_id": "shared-id", "hidden_states": ROWS[3]})
            self.assertEqual(status, 200)
            with self.assertRaises(Conflict) as caught:
                session.decode(ROWS[5])
            self.assertEqual((caught.exception.code, caught.exception.length),
                             ("position_conflict", 4))
            session.refresh()
            session.decode(ROWS[5])
            session.end()
            with client.session("shared-id") as remade:
                with self.assertRaises(Conflict) as caught:
                    session.decode(ROWS[6])
                self.assertEqual(caught.exception.code, "epoch_mismatch")
                self.assertEqual(remade.lengths[0], 0)

    def test_asyncio(self):
        async def work():
            async with AsyncClient(self.daemon.url, connections=4) as client:
                async with await client.session(model="tiny") as session:
                    await session.prefill(ROWS[:3])
                    forks = await asyncio.gather(*(session.fork() for _ in range(6)))
                    outputs = await asyncio.gather(*(fork.decode(ROWS[3]) for fork in forks))
                    replies = await client.step_many([(fork, ROWS[4]) for fork in forks])
                    ids = [entry["session_id"] for entry in await client.list_sessions()]
                    self.assertEqual([entry["session_id"] async for entry in client.sessions(2)],
                                     ids)
                    for fork in forks:
                        await fork.end()
                with self.assertRaises(NotFound):
                    await client.open(session.session_id)
                async with await client.session() as session:
                    session.keep = True
                await (await client.open(session.session_id)).end()
                return outputs, replies, ids
        outputs, replies, ids = asyncio.run(work())
        whole = lists(self.client().attend(ROWS[:5])["output"])
        for step, reply in zip(outputs, replies):
            self.assert_same([step["output"], reply["output"]], whole[3:])
            self.assertIn(reply["session_id"], ids)


class Windows(Case):
    """Sessions whose windows forget."""

    def test_the_error_says_the_lowest_length(self):
        rows = [[[1.0, 0.0]] * 200]
        with self.client().session(num_attention_heads=1, head_dim=2, sliding_window=8) as session:
            session.decode(query=rows, key=rows, value=rows)
            with self.assertRaises(Conflict) as caught:
                session.truncate(10)
            self.assertEqual(caught.exception.code, "position_forgotten")
            lowest = caught.exception.lowest_length
            self.assertEqual(lowest, session.refresh()["lowest_length"])
            session.truncate(lowest)
            self.assertEqual(session.lengths, {0: lowest})
            with self.assertRaises(Conflict) as caught:
                session.truncate(lowest + 1)
            self.assertIsNone(caught.exception.lowest_length)


class Encoders(Case):
    """Sessions over an encoder's rows, through a relay that loses replies."""
    models = (CROSSED,)

    def test_steps_attend_to_the_rows_of_the_start(self):
        relay = Relay(lambda: self.daemon.url,
                      lambda number, head: "pass" if head.startswith(b"GET /models")
                      else ["lose", "twice"][number % 2])
        self.addCleanup(relay.close)
        encoder, mask = ROWS[:9], [1, 1, 0, 1, 1, 1, 1, 1, 0]
        for binary in (True, False):
            client = self.client(relay.url, binary=binary)
            client.models()
            with client.start(encoder, ROWS[10], encoder_padding_mask=mask) as session:
                self.assertRegex(session.session_id, MADE)
                self.assertEqual(session.lengths, {0: 7, 1: 7})
                replies = [(0, ROWS[10], session.first)]
                replies += [(layer, row, session.decode(row, layer=layer))
                            for row in ROWS[11:14] for layer in (0, 1)]
                for layer, row, reply in replies:
                    _, expected = ask(self.daemon.url + "/attend", {
                        "layer": layer, "hidden_states": [row], "encoder_hidden_states": encoder,
                        "padding_mask": mask})
                    near = zip(lists(reply["output"]), expected["output"][0])
                    self.assertLess(max(abs(one - other) for one, other in near), 1e-6)
                self.assertEqual(session.refresh()["lengths"][1]["length"], 7)
            with client.start(encoder, ROWS[10], 1, "mine", encoder_padding_mask=mask) as session:
                self.assertEqual((session.session_id, session.lengths), ("mine", {0: 7, 1: 7}))
                self.assert_same(session.decode(ROWS[10], layer=1)["output"],
                                 session.first["output"])
            with self.assertRaises(InvalidRequest):
                client.start(encoder, ROWS[10][1:])
        self.assertEqual(list(self.client().sessions()), [])

    def test_a_session_is_created_over_the_rows(self):
        relay = Relay(lambda: self.daemon.url,
                      lambda number, head: "pass" if head.startswith(b"GET /models")
                      else ["lose", "twice"][number % 2])
        self.addCleanup(relay.close)
        fields = {"encoder_padding_mask": [1, 0, 1, 1, 1], "ttl_s": 99, "max_length": 4}
        for binary in (True, False):
            client = self.client(relay.url, binary=binary)
            client.models()
            with client.start(ROWS[:5], ROWS[6],
                              encoder_padding_mask=fields["encoder_padding_mask"]) as started:
                with client.session(encoder_hidden_states=ROWS[:5], **fields) as session:
                    self.assertEqual(session.lengths, {0: 4, 1: 4})
                    self.assertEqual(session.refresh()["ttl_s"], 99)
                    self.assert_same(session.decode(ROWS[6])["output"], started.first["output"])
        self.assertEqual(list(self.client().sessions()), [])

    def test_asyncio(self):
        async def run():
            async with AsyncClient(self.daemon.url) as client:
                async with await client.start(ROWS[:5], ROWS[6]) as session:
                    return session.first, await session.decode(ROWS[6])
        first, second = asyncio.run(run())
        self.assert_same(first["output"], second["output"])


class Losses(Case):
    """Through a relay that loses replies, delivers requests twice, and refuses."""

    def relay(self, verdict):
        relay = Relay(lambda: self.daemon.url, verdict)
        self.addCleanup(relay.close)
        return relay

    def test_steps_are_applied_once_whatever_is_lost(self):
        verdicts = ["pass", "lose", "twice", "lose", "refuse", "pass", "refuse"]
        relay = self.relay(lambda number, head: verdicts[number % 7] if number else "pass")
        client = self.client(relay.url)
        whole = self.client().attend(ROWS)["output"]
        outputs, replayed = [], 0
        with client.session(model="tiny") as session:
            for token, row in enumerate(ROWS):
                reply = session.decode(row) if token % 3 else client.step_many([(session, row)])[0]
                outputs.append(lists(reply["output"]))
                replayed += reply.get("replayed", False)
            self.assertEqual(session.refresh()["lengths"][0]["length"], len(ROWS))
        self.assert_same(outputs, whole)
        self.assertGreater(replayed, 10)
        self.assertGreater(min(relay.counts[verdict] for verdict in verdicts), 5)

    def test_a_session_is_made_forked_and_ended_once(self):
        relay = self.relay(lambda number, head: ["lose", "twice"][number % 2] if number else "pass")
        client = self.client(relay.url)
        client.models()
        with client.session(model="tiny") as session:
            with session.fork() as fork:
                listed = [entry["session_id"] for entry in self.client().sessions()]
                self.assertEqual(sorted(listed), sorted([session.session_id, fork.session_id]))
        self.assertEqual(list(self.client().sessions()), [])

    def test_what_could_be_applied_twice_is_sent_once(self):
        with self.client().session() as session:
            session.prefill(ROWS[:2])
            state = session.export()
        relay = self.relay(lambda number, head: "lose" if number else "pass")
        client = self.client(relay.url)
        client.models()
        with self.assertRaises(ConnectionLost):
            client.restore("once", state)
        with self.assertRaises(ConnectionLost):
            client.attend(ROWS[:1], session_id="once")  # no position
        with self.assertRaises(ConnectionLost):  # again, it would find the session that it has made
            client.attend(ROWS[:1], model="tiny", session_id="begun", start=True, position=0)
        self.assertEqual(relay.counts["lose"], 3)
        with self.client().open("once") as session:
            self.assertEqual(session.lengths[0], 3)

    def test_a_reply_that_ends_with_its_head_is_lost(self):
        with self.client().session() as session:
            session.prefill(ROWS[:2])
            state = session.export()
            relay = self.relay(lambda number, head: "cut" if number % 2 else "pass")
            client = self.client(relay.url)
            other = client.open(session.session_id)
            self.assertEqual(other.export(), state)  # which is asked for twice
            client.models()
            client.retry_s = 0
            with self.assertRaises(ConnectionLost):
                other.export()
        self.assertEqual(relay.counts["cut"], 3)

    def test_connections_are_kept(self):
        relay = self.relay(lambda number, head: "pass")
        client = self.client(relay.url)
        for _ in range(20):
            client.attend(ROWS[:2])
        self.assertEqual(relay.connections, 1)

    def test_a_kept_connection_that_was_closed_is_not_used(self):
        with self.client().session() as session:
            session.prefill(ROWS[:2])
            state = session.export()
        relay = self.relay(lambda number, head: "drop")
        client = self.client(relay.url)
        for number in range(5):
            with client.restore(f"kept-{number}", state):  # which would not be sent again
                wait_for(lambda number=number: relay.ended == 2 * number + 1)
            wait_for(lambda number=number: relay.ended == 2 * number + 2)


class Restart(Case):
    """A daemon with a journal, killed and started again under a client."""
    options = {"durability": "journal"}

    @classmethod
    def setUpClass(cls):
        cls.state = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.state.cleanup)
        cls.options = {**cls.options, "state_dir": cls.state.name + "/state"}
        super().setUpClass()

    def test_a_session_goes_on_where_it_was(self):
        relay = Relay(lambda: self.daemon.url)
        self.addCleanup(relay.close)
        client = self.client(relay.url)
        whole = self.client().attend(ROWS)["output"]
        outputs = []
        with client.session(model="tiny") as session:
            for token, row in enumerate(ROWS):
                if token in (5, 23):
                    self.daemon.kill()
                    threading.Timer(0.3, self.daemon.start).start()
                outputs.append(lists(session.decode(row)["output"]))
        self.assert_same(outputs, whole)


class Shards(Case):
    """Two daemons with journals behind a proxy that routes by X-Session-Id."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.state_dirs = {name: f"{directory.name}/{name}" for name in "ab"}
        self.shards = {name: Daemon(directory.name, instance=name, durability="journal",
                                    state_dir=path) for name, path in self.state_dirs.items()}
        for shard in self.shards.values():
            self.addCleanup(shard.stop)

    def router(self, verdict=lambda number, head: "pass"):
        """A Router of the shards."""
        router = Router({name: lambda shard=shard: shard.url
                         for name, shard in self.shards.items()}, verdict)
        self.addCleanup(router.close)
        return router

    def sessions_of(self, client):
        """A new session of each shard, by the shard's name."""
        for name, shard in self.shards.items():
            made = self.client(shard.url).session(model="tiny")
            yield name, client.open(made.session_id)

    def assert_steps(self, client, whole, after=lambda token: None):
        """Decodes ROWS over a session of each shard, each row once."""
        for name, session in list(self.sessions_of(client)):  # all made before a shard goes away
            self.assertEqual(session.session_id.partition(".")[0], name)
            for token, row in enumerate(ROWS):
                after(token)
                self.assert_same(session.decode(row)["output"], whole[token])
            self.assertEqual(session.refresh()["lengths"][0]["length"], len(ROWS))
            session.end()

    def test_requests_that_go_astray_come_to_the_right_shard(self):
        router = self.router(lambda number, head: "astray" if number % 3 == 2 else "pass")
        whole = lists(self.client().attend(ROWS)["output"])
        self.assert_steps(self.client(router.url), whole)
        self.assertGreater(router.counts["astray"], len(ROWS) // 2)

    def test_a_shard_that_is_away_is_waited_for_and_no_row_is_lost(self):
        whole = lists(self.client().attend(ROWS)["output"])
        client = self.client(self.router().url)
        timers = []

        def stop_or_kill(token):
            if token in (7, 21):
                for shard in self.shards.values():
                    (shard.kill if token == 7 else shard.stop)()
                    timers.append(threading.Timer(1.0, shard.start))
                    timers[-1].start()
        self.assert_steps(client, whole, stop_or_kill)
        for timer in timers:
            timer.join()

    def test_a_lost_volume_and_a_wrong_shard_are_told_apart(self):
        client = self.client(self.router().url)
        session = dict(self.sessions_of(client))["b"]
        session.prefill(ROWS[:3])
        with self.assertRaises(Unavailable) as caught:
            self.client(self.shards["a"].url, retry_s=0).open(session.session_id)
        self.assertEqual((caught.exception.code, caught.exception.owner), ("wrong_instance", "b"))
        self.shards["b"].kill()
        shutil.rmtree(self.state_dirs["b"])
        self.shards["b"].start()
        for call in (lambda: session.decode(ROWS[3]), lambda: client.open(session.session_id)):
            with self.assertRaises(SessionLost) as caught:
                call()
            self.assertEqual(caught.exception.code, "session_lost")
        session.end()

    def test_a_list_goes_to_the_shards_of_its_sessions(self):
        router = self.router()
        client = self.client(router.url)
        whole = lists(self.client().attend(ROWS)["output"])
        sessions = [session for _ in range(2) for _, session in self.sessions_of(client)]
        for token, row in enumerate(ROWS[:6]):
            router.sent.clear()
            for reply in client.step_many([(session, row) for session in sessions]):
                self.assert_same(reply["output"], whole[token])
            self.assertEqual(router.sent, [("a", 2 if token else 4), ("b", 2)])
        self.shards["b"].kill()
        client.retry_s = 0.2
        replies = client.step_many([(session, ROWS[6]) for session in sessions])
        self.assertEqual([isinstance(reply, Unavailable) for reply in replies],
                         [False, True, False, True])
        self.shards["b"].start()
        client.retry_s = 30
        replies = client.step_many([(sessions[1], ROWS[6]), (sessions[0], ROWS[7])])
        self.assert_same([reply["output"] for reply in replies], whole[6:8])


class Secured(Case):
    """API keys, and HTTPS with a certificate of our own."""

    @classmethod
    def setUpClass(cls):
        cls.secret = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.secret.cleanup)
        name = cls.secret.name
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                "-nodes", "-days", "2", "-subj", "/CN=localhost",
                "-addext", "subjectAltName=IP:127.0.0.1",
                "-keyout", f"{name}/key.pem", "-out", f"{name}/cert.pem"]
        subprocess.run(made, check=True, capture_output=True)
        with open(f"{name}/keys.json", "w", encoding="utf-8") as stream:
            json.dump({"keys": [{"name": "one", "key": "k" * 32, "scopes": ["infer"]}]}, stream)
        os.chmod(f"{name}/keys.json", 0o600)
        cls.options = {"tls_cert": f"{name}/cert.pem", "tls_key": f"{name}/key.pem",
                       "api_keys": f"{name}/keys.json"}
        super().setUpClass()

    def test_key_and_certificate(self):
        trusted = {"cafile": self.secret.name + "/cert.pem"}
        with self.client(api_key="k" * 32, **trusted).session(model="tiny") as session:
            session.prefill(ROWS[:2])
        with self.assertRaises(Unauthorized) as caught:
            self.client(**trusted).models()
        self.assertEqual((caught.exception.code, caught.exception.status), ("unauthorized", 401))
        with self.assertRaises(Unauthorized) as caught:
            list(self.client(api_key="k" * 32, **trusted).sessions())
        self.assertEqual(caught.exception.code, "forbidden")

    def test_an_unknown_certificate_is_refused_at_once(self):
        with self.assertRaises(ConnectionLost) as caught:
            self.client(api_key="k" * 32, retry_s=5).models()
        self.assertFalse(caught.exception.retryable)
        self.assertIsInstance(caught.exception.__cause__, ssl.SSLCertVerificationError)


class Fake(unittest.TestCase):
    """Replies that a daemon gives seldom, from a server that gives what it is told."""

    def setUp(self):
        self.server = Scripted()
        self.addCleanup(self.server.close)
        self.url = self.server.url
        self.client = Client(self.url, api_key="secret")
        self.addCleanup(self.client.close)

    seen, bodies, paths = (property(lambda self, name=name: getattr(self.server, name))
                           for name in ("seen", "bodies", "paths"))

    @property
    def replies(self):
        """What the server answers next."""
        return self.server.replies

    @replies.setter
    def replies(self, replies):
        self.server.replies = replies

    def refusal(self, status, code, retryable, headers=None):
        body = {"error": {"code": code, "message": "m", "retryable": retryable}}
        return status, headers or {}, json.dumps(body).encode()

    def test_what_is_retryable_is_sent_again_after_the_time_it_names(self):
        self.replies = [self.refusal(503, "loading", True, {"Retry-After": "1"}),
                        self.refusal(429, "queue_full", True), (200, {}, b'{"models":[]}')]
        begin = attn_client.time.monotonic()
        self.assertEqual(self.client.models(), [])
        self.assertGreaterEqual(attn_client.time.monotonic() - begin, 1)
        self.assertEqual(len(self.seen), 3)

    def test_what_is_not_retryable_is_sent_once(self):
        self.replies = [self.refusal(500, "internal", False),
                        self.refusal(400, "bad_request", False)]
        with self.assertRaises(Unavailable):
            self.client.models()
        with self.assertRaises(InvalidRequest):
            self.client.models()

    def test_an_error_of_a_proxy_may_hide_that_a_request_was_applied(self):
        page = (502, {"Content-Type": "text/html"}, b"<html>bad gateway</html>")
        self.replies = [page, (200, {}, b'{"models":[]}'), page]
        self.assertEqual(self.client.models(), [])
        with self.assertRaises(Unavailable) as caught:
            self.client.restore("a", b"state")
        self.assertEqual((caught.exception.code, len(self.seen)), ("http_502", 3))

    def test_an_error_of_a_proxy_in_the_form_of_attnd_is_of_the_proxy(self):
        for status, code in ((502, "bad_gateway"), (504, "gateway_timeout")):
            for call in (lambda: self.client.restore("a.1", b"state"),
                         lambda: self.client.attend([[1.0]], session_id="a.1")):
                self.seen.clear()
                self.replies = [self.refusal(status, code, True), (200, {}, b'{"output":[[1]]}')]
                with self.assertRaises(Unavailable) as caught:
                    call()
                self.assertEqual((caught.exception.code, len(self.seen)), (code, 1))
        self.replies = [self.refusal(504, "deadline_exceeded", True),
                        (200, {}, b'{"output":[[1]],"length":1}')]
        self.assertEqual(self.client.attend([[1.0]], session_id="a.1")["length"], 1)

    def test_retrying_ends_with_its_time(self):
        self.client.retry_s = 0.3
        self.replies = [self.refusal(429, "session_busy", True) for _ in range(50)]
        with self.assertRaises(Busy):
            self.client.models()
        self.assertLess(len(self.seen), 20)
        self.client.retry_s, before = 30, len(self.seen)
        self.replies = [self.refusal(503, "draining", True, {"Retry-After": "60"})]
        with self.assertRaises(Unavailable) as caught:
            self.client.models()
        self.assertEqual((caught.exception.retry_after, len(self.seen) - before), (60.0, 1))

    def test_a_deadline_that_passed_is_not_begun_again(self):
        with Client(self.url, deadline_ms=50) as client:
            self.replies = [self.refusal(504, "deadline_exceeded", True)]
            with self.assertRaises(Unavailable):
                client.attend([[1.0]])
        self.assertEqual(self.seen[0]["X-Deadline-Ms"], "50")

    def test_headers_of_a_call(self):
        self.replies = [(200, {}, b'{"output":[[1]]}')]
        self.client.attend([[1.0]], session_id="a", position=0)
        head = self.seen[0]
        self.assertEqual((head["X-Session-Id"], head["Authorization"]), ("a", "Bearer secret"))
        self.assertEqual(int(head["Inference-Header-Content-Length"]) % 64, 0)
        self.assertEqual(head["Accept-Encoding"], "identity")

    def test_every_request_of_a_session_names_it_for_a_proxy(self):
        facts = json.dumps({"session_id": "a.1", "model": "m", "epoch": 5, "lengths": []}).encode()
        step = json.dumps({"length": 1}).encode()
        self.replies = [(200, {}, facts)] * 7 + [(200, {}, step)] * 2 + \
            [(200, {}, b'{"sequences":[%b]}' % step), (204, {}, b"")]
        with self.client.session("a.1") as session:
            self.client.open("a.1")
            self.client.restore("a.1", b"")
            session.refresh()
            session.fork()
            session.truncate(0)
            session.export()
            session.prefill([[1.0]])
            session.decode([1.0])
            self.client.step_many([(session, [1.0])])
        self.assertEqual([head["X-Session-Id"] for head in self.seen], ["a.1"] * 11)
        self.assertEqual(self.replies, [])

    def test_the_wrong_shard_is_asked_again_for_a_time_and_then_told(self):
        self.replies = [self.refusal(421, "wrong_instance", True)] * 2 + \
            [(200, {}, b'{"output":[[1]]}')]
        self.client.attend([[1.0]], session_id="b.1")  # without a position: nothing was applied
        self.assertEqual(len(self.seen), 3)
        body = {"error": {"code": "wrong_instance", "message": "m", "retryable": True,
                          "owner": "b"}}
        self.replies = [(421, {}, json.dumps(body).encode())] * 50
        self.client.retry_s = 0.3
        with self.assertRaises(Unavailable) as caught:
            self.client.attend([[1.0]], session_id="b.1", position=0)
        self.assertEqual((caught.exception.owner, caught.exception.status), ("b", 421))
        self.assertLess(len(self.seen), 20)

    def test_a_session_that_is_lost_is_no_session_that_is_not_found(self):
        self.replies = [self.refusal(410, "session_lost", False)]
        with self.assertRaises(SessionLost) as caught:
            self.client.open("a.1")
        self.assertNotIsInstance(caught.exception, NotFound)
        self.assertEqual(len(self.seen), 1)

    def test_masks_come_last_so_that_numbers_are_aligned(self):
        self.replies = [(200, {}, b'{"output":[[1]]}')]
        self.client.attend(padding_mask=[1, 0, 1], hidden_states=[[1.5, 2]])
        length = int(self.seen[0]["Inference-Header-Content-Length"])
        head = json.loads(self.bodies[0][:length])
        self.assertLess([*head].index("hidden_states"), [*head].index("padding_mask"))
        self.assertEqual(self.bodies[0][length:], attn_client.struct.pack("<2f3?", 1.5, 2, 1, 0, 1))

    def test_rows_of_a_session_without_weights_stand_in_each_item(self):
        facts = {"model": None, "epoch": 5, "lengths": [{"layer": 0, "length": 2}]}
        session = attn_client.Session(self.client, {"session_id": "s", **facts})
        self.replies = [(200, {}, b'{"sequences":[{"session_id":"s","length":3}]}')]
        rows = {"query": [[1.0]], "key": [[2.0]], "value": [[3.0]]}
        self.client.step_many([(session, rows)])
        self.assertIsNone(session.model)
        self.assertEqual(session.lengths, {0: 3})
        length = self.bodies[0].index(b"\x00")
        self.assertNotIn(b"hidden_states", self.bodies[0][:length])
        for name in rows:
            self.assertIn(b'"%s"' % name.encode(), self.bodies[0][:length])

    def test_an_id_cannot_lead_to_another_path(self):
        self.replies = [self.refusal(404, "session_not_found", False)]
        with self.assertRaises(NotFound):
            self.client.open("../models?a")
        self.assertEqual(self.paths, ["/sessions/..%2Fmodels%3Fa"])

    def test_tensors_of_a_padded_and_of_an_unpadded_reply(self):
        for blanks in range(5):
            text = b'{"output":{"shape":[2],"datatype":"FP32","binary_data_size":8}}'
            text += b" " * blanks
            body = text + attn_client.struct.pack("<2f", 1.5, -2)
            self.replies = [(200, {"Inference-Header-Content-Length": str(len(text))}, body)]
            output = self.client.attend([[1.0]])["output"]
            self.assertEqual(output.tolist(), [1.5, -2])
            self.assertTrue(numpy is None or output.flags.aligned)
        told = {"Inference-Header-Content-Length": str(len(text))}
        self.replies = [(200, told, body[:-1]), (200, {}, body), (200, {}, b"<html>")]
        for _ in range(3):
            with self.assertRaises(ConnectionLost) as caught:
                self.client.attend([[1.0]])
            self.assertEqual(caught.exception.code, "bad_reply")

    def test_nobody_there_is_told_at_once(self):
        begin = attn_client.time.monotonic()
        with self.assertRaises(ConnectionLost) as caught:
            Client("http://127.0.0.1:9", retry_s=20).models()
        self.assertLess(attn_client.time.monotonic() - begin, 15)
        self.assertFalse(caught.exception.sent)
        self.assertFalse(Client("http://127.0.0.1:9").ready())


class Javascript(Case):
    """attn-client.mjs, by its own tests."""

    def test_under_node(self):
        program = TOP / "tests" / "clients" / "test_client.mjs"
        crossed = Daemon(self.directory.name, (CROSSED,))
        self.addCleanup(crossed.stop)
        done = subprocess.run(["node", program, self.daemon.url, crossed.url], capture_output=True,
                              text=True, timeout=600, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"\nRan [34]\d tests$")
        print(re.search(r"^delays: .*", done.stdout, re.M)[0], file=sys.__stderr__, flush=True)


class Documented(Case):
    """Every block of Python and JavaScript in docs/CLIENTS.md runs as it stands, in its order, beside
    what README starts: a package without models, and config/attnd.json of `make run` and compose."""
    models = [{**model, "path": str(TOP / "config" / model["path"])} if "path" in model else model
              for model in json.loads((TOP / "config" / "attnd.json").read_text("utf-8"))["models"]]

    @staticmethod
    def blocks(language):
        """The blocks of a language."""
        text = (TOP / "docs" / "CLIENTS.md").read_text("utf-8")
        return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)

    @staticmethod
    def run_blocks(url, blocks):
        """What blocks of Python print."""
        names, printed = {}, io.StringIO()
        for block in blocks:
            block = block.replace("http://127.0.0.1:8080", url)
            with contextlib.redirect_stdout(printed):
                exec(block.replace('"clients/', f'"{TOP}/clients/'), names)
        names["client"].close()
        return printed.getvalue()

    @unittest.skipIf(numpy is None, "the page uses numpy")
    def test_blocks(self):
        self.assertGreater(len(self.blocks("python")), 3)
        with Daemon(self.directory.name, ()) as empty:
            self.assertIn("0.66976", self.run_blocks(empty.url, self.blocks("python")[:1]))
        self.run_blocks(self.daemon.url, self.blocks("python"))

    def test_blocks_of_javascript(self):
        code = "\n".join(self.blocks("js")).replace("http://127.0.0.1:8080", self.daemon.url)
        done = subprocess.run(["node", "--input-type=module", "-e", code], cwd=TOP, text=True,
                              capture_output=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?s)^\[ 3, 512 \].*\[ 8, 3 \]\n3 4\n$")


if __name__ == "__main__":
    unittest.main()
