#!/usr/bin/env python3
"""test_table.py: table.py over records made up here; make check-bench."""
import json
import unittest

import table

SKYLAKE = "Intel(R) Xeon(R) (6/85/4), 2 CPUs, 33.0 MiB L3"
ZEN5 = "AMD EPYC (26/2/1), 2 CPUs, 32.0 MiB L3"


def result(ms, gemm="auto", **more):
    return {"shape": "A512b1", "dtype": "f32", "gemm": gemm, "machine": SKYLAKE, "threads": 2,
            "level": "avx512", "ms": ms, "fraction": 10 / ms, "fraction_l1": 12 / ms,
            "fraction_l2": 11 / ms, "bound": "flops", "steady": True, "memory_gbs": 20.0,
            "peak_fp32_gflops": 280.0, "peak_fp32_l1_gflops": 200.0, "peak_fp32_l2_gflops": 190.0,
            "peak_bf16_gflops": None, "peak_int8_gflops": None, **more}


def made_of(results):
    with open(table.PEERS, encoding="utf-8") as known:
        peers = json.load(known)
    rows, kind = table.read(json.dumps(r) for r in results)
    return table.table(rows, kind, table.peers_of(kind[0], peers))


def cells(text):
    return [c.strip() for c in text.splitlines()[-1].strip("|").split("|")]


class Table(unittest.TestCase):
    def test_a_row_has_the_median_of_sweeps_openblas_and_the_peer_of_this_kind_of_cpu(self):
        text = made_of([result(20.5), result(30, "openblas"), result(20), result(40, "openblas"),
                        result(19.5), result(35, "openblas")])
        self.assertEqual(cells(text), ["A512b1", "f32", "20", "19.5 20 20.5", "flops", "0.50",
                                       "0.60", "0.55", "35", "1.75", "20.5 ONNX Runtime", "1.02"])
        self.assertIn("3 sweeps", text)

    def test_a_row_whose_sweeps_differ_is_not_steady_though_each_sweep_was(self):
        text = made_of([result(ms) for ms in (22.8, 16.9, 16.6, 9.6)])
        self.assertEqual(cells(text)[5][0], "~")

    def test_a_row_of_which_most_sweeps_were_not_steady_is_not(self):
        text = made_of([result(20), result(20, steady=False), result(20, steady=False)])
        self.assertEqual(cells(text)[5][0], "~")

    def test_openblas_faster_in_a_row_is_named_beside_what_auto_is(self):
        self.assertIn("more in 1 of 1 rows: A512b1 f32 (0.50)",
                      made_of([result(20), result(10, "openblas")]))
        for openblas in (30, 19.9):
            self.assertIn("auto` is right to be packed",
                          made_of([result(20), result(openblas, "openblas")]))

    def test_peers_are_those_of_the_kind_of_cpu_or_none(self):
        self.assertEqual(cells(made_of([result(8, machine=ZEN5)]))[10], "8.1 ONNX Runtime")
        cascade_lake = "Intel(R) Xeon(R) (6/85/7), 2 CPUs, 33.0 MiB L3"
        text = made_of([result(8, machine=cascade_lake)])
        self.assertEqual(cells(text)[10], "")
        self.assertIn("none was measured on this kind of CPU", text)

    def test_a_record_of_two_machines_is_refused(self):
        with self.assertRaises(SystemExit):
            made_of([result(20), result(20, machine=ZEN5)])


if __name__ == "__main__":
    unittest.main()
