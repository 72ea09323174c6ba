"""case.py: what every test of the page stands on: one browser, daemons, and pages that are judged.

The browser and each daemon are started when a test first asks for them, and ended by `end()`.  A
page that `Case.page` opened is judged when its test ends: no console error, no violation of the
Content-Security-Policy and no foreign request may have been.
"""
import functools
import os
import pathlib
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent
sys.path[1:1] = [str(TOP / "tests" / "clients"), str(TOP / "clients" / "python"),
                 str(TOP / "examples")]

from attn_client import Client  # noqa: E402
from daemon import Daemon, TINY  # noqa: E402
from devtools import Browser  # noqa: E402
from page import Page  # noqa: E402

QUICK = bool(os.environ.get("QUICK"))
whole = unittest.skipIf(QUICK, "part of the whole form")
GOLDEN = TOP / "tests" / "golden"
OPENED = {"pages": 0, "requests": 0}
_ends = []


def directory():
    """A new directory, removed at the end."""
    made = tempfile.TemporaryDirectory(prefix="attn-ui-")
    _ends.append(made.cleanup)
    return pathlib.Path(made.name)


@functools.cache
def browser():
    """The browser of all tests."""
    started = Browser("--ignore-certificate-errors")
    _ends.append(started.close)
    return started


def golden(name, **more):
    """The entry of `models` of a golden checkpoint."""
    return {"name": name, "path": str(GOLDEN / name / "model"), **more}


def start(models, **options):
    """A daemon, ended with the tests."""
    started = Daemon(directory(), models, **options)
    _ends.append(lambda: started.process.poll() is None and started.stop())
    return started


@functools.cache
def daemon():
    """The daemon of most tests: without API keys, with small models of several kinds."""
    return start([golden("llama_gqa"), TINY])


def end():
    """Ends browser and daemons, the last first; returns what went wrong there."""
    wrong = []
    while _ends:
        try:
            _ends.pop()()
        except (RuntimeError, OSError) as error:
            wrong.append(str(error))
    return wrong


class Case(unittest.TestCase):
    """A test of the page."""

    def page(self, url=None, judged=True, **how):
        """A new tab at `url`, judged and closed when the test ends."""
        page = Page(browser(), **how)
        self.addCleanup(self._leave, page, judged)
        if url:
            page.open(url)
        return page

    def _leave(self, page, judged):
        faults = page.faults() if judged else []
        OPENED["pages"] += 1
        OPENED["requests"] += len(page.requests)
        page.close()
        self.assertEqual(faults, [])

    def client(self, started=None, **how):
        """A client of a daemon, which asks what the page is compared with."""
        client = Client((started or daemon()).url, retry_s=0, **how)
        self.addCleanup(client.close)
        return client
