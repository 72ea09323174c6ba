#!/usr/bin/env python3
"""run.py: the page in Chromium against daemons, for `make check-ui`.

    ATTND=build/attnd [QUICK=1] [AXE=build/axe/axe.min.js] tests/ui/run.py [NAME...]

NAME is that of a module, class or test, as unittest has it (test_watch.Watch).  Without names all
modules of tests run one after another in one browser, and beside them those of the page's modules
that need no browser, in Node.  The last line has the figures.
"""
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

import case  # noqa: E402


def node_tests():
    """node --test on the modules that need no browser; None where there are none."""
    files = sorted(HERE.glob("test_*.mjs"))
    return files and subprocess.Popen(["node", "--test", *files], text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def main(names):
    """Runs the named tests, or all; returns the exit status."""
    begin = time.monotonic()
    node = None if names else node_tests()
    loader = unittest.defaultTestLoader
    names = names or sorted(path.stem for path in HERE.glob("test_*.py"))
    runner = unittest.TextTestRunner(stream=sys.stdout, buffer=True, verbosity=0)
    result = runner.run(loader.loadTestsFromNames(names))
    wrong = case.end()
    if node:
        output = node.communicate(timeout=120)[0]
        if node.returncode != 0:
            wrong.append(output)
    for text in wrong:
        print(text)
    good = result.wasSuccessful() and result.testsRun > 0 and not wrong
    axe = "with" if os.environ.get("AXE") else "without"
    print(f"check-ui: {result.testsRun} tests {axe} axe-core, {case.OPENED['pages']} pages with "
          f"{case.OPENED['requests']} requests, in {time.monotonic() - begin:.0f} s: "
          f"{'ok' if good else 'FAILED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
