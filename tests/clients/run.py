#!/usr/bin/env python3
"""run.py: clients and examples against daemons, for `make check-clients`.

    ATTND=build/attnd [QUICK=1] tests/clients/run.py [NAME...]

NAME is that of a module, class or test, as unittest has it (test_client.Losses).  Without names all
modules run, beside each other, and the Python client once more without numpy.  The last line has
the figures.
"""
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
QUICK = bool(os.environ.get("QUICK"))
JOBS = [
    (["test_client"], {}),
    (["test_generate"], {}),
    (["test_client.Calls" if QUICK else "test_client"], {"ATTN_NO_NUMPY": "1"}),
]


def begun(names, variables):
    """A process that runs the named tests."""
    environment = {**os.environ, **variables, "PYTHONDONTWRITEBYTECODE": "1",
                   "ATTND": os.path.abspath(os.environ.get("ATTND", "build/attnd"))}
    return subprocess.Popen([sys.executable, "-m", "unittest", "-b", *names], cwd=HERE, text=True,
                            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def main(names):
    """Runs the named tests, or all; returns the exit status."""
    begin, tests, failed = time.monotonic(), 0, 0
    processes = [begun(*job) for job in ([(names, {})] if names else JOBS)]
    for process in processes:
        output, _ = process.communicate()
        ran = re.search(r"^Ran (\d+) test", output, re.M)
        tests += int(ran.group(1)) if ran else 0
        if process.returncode != 0 or not ran or ran.group(1) == "0":
            failed += 1
            print(output)
    seconds = time.monotonic() - begin
    print(f"check-clients: {tests} tests of clients and examples in {seconds:.0f} s, "
          f"{failed} of {len(processes)} runs failed: {'FAILED' if failed else 'ok'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
