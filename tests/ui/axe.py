"""axe.py: what axe-core finds in a page."""
import functools
import os
import pathlib

AXE = os.environ.get("AXE")
GRAVE = ("serious", "critical")
RUN = """async () => {
    const found = await axe.run(document, { preload: false, resultTypes: ["violations"] });
    return found.violations.map(({ id, impact, nodes }) => ({ id, impact, nodes: nodes.map(
        ({ target, failureSummary }) => `${target} ${failureSummary.replaceAll("\\n", " ")}`) }));
}"""


@functools.cache
def source():
    """The text of axe-core."""
    return pathlib.Path(AXE).read_text("utf-8")


def findings(page):
    """Serious and critical findings, as texts."""
    page.evaluate(source() + "; 1")
    return [f"{found['id']} ({found['impact']}): {' | '.join(found['nodes'][:5])}"
            for found in page.evaluate(f"({RUN})()") if found["impact"] in GRAVE]
