#!/usr/bin/env python3
"""run.py: the page in Chromium against daemons, for `make check-ui`.

    ATTND=build/attnd [QUICK=1] [LATENCY_MS=200] [AXE=build/axe/axe.min.js] tests/ui/run.py [NAME...]

NAME is that of a module, class or test, as unittest has it (test_watch.Watch).  Without names all
modules run, some beside each other, each with a browser and daemons of its own; those of the page's
modules that need no browser run in Node.  With LATENCY_MS each reply comes so much later: tests that
read what has not come yet fail.  The last line has the figures.
"""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
os.environ["ATTND"] = os.path.abspath(os.environ.get("ATTND", "build/attnd"))
sys.path.insert(0, str(HERE))
ORDER = ["test_input", "test_head", "test_export", "test_looks", "test_access"]  # the longest first
AT_ONCE = 3  # a browser computes while another waits
FIGURES = "figures: "


def modules():
    """The names of all modules of tests."""
    found = sorted(path.stem for path in HERE.glob("test_*.py"))
    return ORDER + [name for name in found if name not in ORDER]


def run_here(names):
    """Runs tests in this process; prints figures in a last line; returns the exit status."""
    import case  # browsers and daemons belong to the process that runs tests
    runner = unittest.TextTestRunner(stream=sys.stdout, buffer=True, verbosity=0)
    result = runner.run(unittest.defaultTestLoader.loadTestsFromNames(names))
    wrong = case.end()
    print(*wrong, sep="\n")
    good = result.wasSuccessful() and result.testsRun > 0 and not wrong
    ran = result.testsRun - len(result.skipped)
    print(FIGURES + json.dumps({"tests": ran, **case.OPENED}))
    return 0 if good else 1


def run_beside(command):
    """(exit status, output) of a process."""
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    return done.returncode, done.stdout


def main():
    """Runs all tests; returns the exit status."""
    begin, total, failed = time.monotonic(), {"tests": 0, "pages": 0, "requests": 0}, []
    jobs = [[sys.executable, __file__, name] for name in modules()]
    node = sorted(map(str, HERE.glob("test_*.mjs")))
    jobs += [["node", "--test", *node]] if node else []
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for job, (status, output) in zip(jobs, pool.map(run_beside, jobs)):
            if status != 0:
                failed.append(job[-1])
                print(output)
            for line in output.splitlines():
                if line.startswith(FIGURES):
                    for name, count in json.loads(line[len(FIGURES):]).items():
                        total[name] += count
    if total["tests"] == 0:
        failed.append("no test ran")
    axe = "with axe-core" if os.environ.get("AXE") else "without axe-core, which needs npm"
    print(f"check-ui: {total['tests']} tests on {total['pages']} pages with {total['requests']} "
          f"requests, {axe}, in {time.monotonic() - begin:.0f} s: "
          f"{'FAILED: ' + ', '.join(failed) if failed else 'ok'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run_here(sys.argv[1:]) if sys.argv[1:] else main())
