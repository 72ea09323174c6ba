#!/usr/bin/env python3
"""screenshots.py: pictures of the page for README and docs/VIEWER.md, for `make screenshots`.

    ATTND=build/attnd tests/ui/screenshots.py [DIRECTORY]

The page shows the demonstration model as it opens on it, then the golden checkpoint `patterns` over
its capture, whose heads have patterns learnt from text.  Each scene is taken in both themes, 1280 wide
where its name does not say otherwise, as viewer-SCENE-THEME.png (the first one, without a name, is
README's), with a palette of pngquant's.
"""
import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
os.environ["ATTND"] = os.path.abspath(os.environ.get("ATTND", "build/attnd"))
sys.path.insert(0, str(HERE))

import case  # noqa: E402
import inputs  # noqa: E402
from page import Page  # noqa: E402
from view import View  # noqa: E402

MODEL = {"name": "patterns", "path": str(case.GOLDEN / "patterns")}
DEMO = {"name": "demo", "path": str(case.TOP / "examples" / "demo")}
SIZES = {"": (1280, 800), "360": (360, 1300), "1920": (1920, 1000), "2560": (2560, 1100)}
CAPTURE = case.GOLDEN / "patterns" / "capture.safetensors"
MOST_BYTES = 150000
SETTLE = """new Promise((done) => setTimeout(() => requestAnimationFrame(() =>
    requestAnimationFrame(done)), 1200))"""
# Scene: the head, settings, what is brought to the top of the window, and the window's height.
SCENES = {
    "overview": ((2, 3), {"color_by": "previous"}, "#overview", 860),
    "previous": ((2, 3), {"cell": "21,20"}, "#view", 800),
    "sink": ((3, 3), {"cell": "20,0"}, "#view", 800),
    "window": ((2, 0), {"cell": "30,24", "scale": "log"}, "#view", 800),
    "lines": ((3, 2), {"cell": "38,18", "view": "lines"}, "#view", 1120),
    "neurons": ((2, 3), {"view": "neurons", "cell": "21,20"}, "#view", 800),
    "compare": ((2, 3), {"view": "compare", "with": "3,3", "cell": "21,20"}, "#view", 860),
}


def shoot(page, scene, into):
    """Takes the scene in both themes; returns the files."""
    page.mouse("mouseMoved", 1, 1)
    files = []
    for theme in ("light", "dark"):
        page.theme(theme)
        page.evaluate(SETTLE)
        path = into / f"{'-'.join(filter(None, ('viewer', scene, theme)))}.png"
        page.screenshot(path)
        subprocess.run(["pngquant", "--force", "--skip-if-larger", "--strip", "--nofs", "--ext",
                        ".png", "32" if scene == "lines" else "128", str(path)], check=False)
        files.append(path)
    return files


def first(page, url, into):
    """The page as it opens, at several widths."""
    view, files = View(page, url), []
    for name, size in SIZES.items():
        page.size(*size)
        page.open("about:blank")
        view.open()
        page.wait_for("story", "(story) => /ringed cell/.test(story.textContent)", 60)
        view.wait_overview(16)
        files += shoot(page, name, into)
    return files


def heads(page, url, into):
    """The scenes of the first tab."""
    view, files = View(page, url), []
    for scene, ((layer, head), settings, top, height) in SCENES.items():
        page.size(1280, height)
        view.open(layer=layer, head=head).capture(CAPTURE)
        view.wait_source("capture.safetensors").wait_overview(16).wait_map(layer, head)
        page.on("input-panel", "(element) => { element.open = false; }")
        view.set(**settings)
        page.wait("document.querySelector('#progress').hidden", "the scene")
        page.on(top, """(element) => scrollTo({ behavior: "instant",
            top: scrollY + element.getBoundingClientRect().top - 60 })""")
        files += shoot(page, scene, into)
    return files


def sessions(page, daemon, into):
    """The second tab, with some sessions and some load."""
    client = case.Client(daemon.url)
    tokens = inputs.SENTENCE
    opened = [client.session(session_id=name, model="patterns")
              for name in ("chat-17", "essay", "notes-3")]
    for session in opened:
        for layer in range(4):
            session.prefill(inputs.rows_of(tokens, 64, layer)[:9 + len(session.session_id)],
                            layer=layer)
    page.size(1280, 800)
    page.open(daemon.url + "/#tab=sessions")
    page.wait_for("session-row-essay")
    rows = inputs.rows_of(tokens, 64)
    for second in range(30):  # the charts have a line for each second
        for step in range(60 + 40 * (second % 7)):
            opened[step % 3].decode(rows[step % 22])
        for session in opened:
            session.truncate(9 + len(session.session_id))
        page.evaluate("new Promise((done) => setTimeout(done, 800))")
    page.click("refresh")
    page.wait_for("session-row-essay", "(row) => /14 of/.test(row.textContent)")
    files = shoot(page, "sessions", into)
    for session in opened:
        session.end()
    client.close()
    return files


def main(into):
    """Takes all scenes; returns the exit status."""
    into.mkdir(parents=True, exist_ok=True)
    try:
        daemon = case.start([MODEL, DEMO])
        page = Page(case.browser(), width=1280, height=800)
        files = first(page, daemon.url, into) + heads(page, daemon.url, into) + sessions(page, daemon, into)
        faults = page.faults()
    finally:
        case.end()
    large = [path.name for path in files if path.stat().st_size > MOST_BYTES]
    print(*faults, sep="\n", end="")
    print(f"screenshots: {len(files)} in {into}, {sum(path.stat().st_size for path in files)} bytes"
          f"{', above 150 kB: ' + ', '.join(large) if large else ''}")
    return 1 if faults or large else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path((sys.argv[1:] or ["docs/images"])[0])))
