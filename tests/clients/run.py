#!/usr/bin/env python3
"""run.py: clients and examples against daemons, for `make check-clients`.

    ATTND=build/attnd [QUICK=1] tests/clients/run.py [NAME...]

NAME is that of a module, class or test, as unittest has it (test_client.Losses).  Without names all
classes run, several beside each other, and the Python client once more without numpy.  The last
line has the figures.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
MODULES = ["test_refusals", "test_delays", "test_examples", "test_client", "test_misuse",
           "test_generate", "test_capture", "test_demo"]  # the longest first
WITHOUT_NUMPY = ["test_client.Calls"] if os.environ.get("QUICK") else ["test_client", "test_misuse"]
AT_ONCE = 5  # they wait more than they compute


def classes():
    """The names of all classes of tests."""
    names = []
    for module in MODULES:
        for suite in unittest.defaultTestLoader.loadTestsFromName(module):
            names += {f"{module}.{type(test).__name__}" for test in suite}
    return names


def run(name, variables):
    """(exit status, output) of the named tests in a process of their own."""
    environment = {**os.environ, **variables, "PYTHONDONTWRITEBYTECODE": "1",
                   "ATTND": os.path.abspath(os.environ.get("ATTND", "build/attnd"))}
    done = subprocess.run([sys.executable, "-m", "unittest", "-b", name], cwd=HERE, text=True,
                          env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    return done.returncode, done.stdout


def main(names):
    """Runs the named tests, or all; returns the exit status."""
    begin, tests, failed = time.monotonic(), 0, []
    jobs = [(name, {}) for name in names or classes()]
    jobs += [] if names else [(name, {"ATTN_NO_NUMPY": "1"}) for name in WITHOUT_NUMPY]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for (name, _), (status, output) in zip(jobs, pool.map(lambda job: run(*job), jobs)):
            ran = re.search(r"^Ran (\d+) test", output, re.M)
            tests += int(ran.group(1)) if ran else 0
            for line in re.findall(r"^delays: .*", output, re.M):
                print(line)
            if status != 0 or not ran or ran.group(1) == "0":
                failed.append(name)
                print(output)
    seconds = time.monotonic() - begin
    print(f"check-clients: {tests} tests of clients and examples in {seconds:.0f} s, "
          f"{len(failed)} of {len(jobs)} classes failed: "
          f"{'FAILED: ' + ', '.join(failed) if failed else 'ok'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
