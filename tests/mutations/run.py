#!/usr/bin/env python3
"""run.py: plants each mistake of tests/mutations/*.patch alone, in a copy of the tree, and sees that
the suite which the patch names fails.

    tests/mutations/run.py [--match] [NAME...]

NAME is that of a patch without `.patch`.  --match looks only whether each patch has its place and
its suite, which takes a second.  What a suite printed is in build/mutations/NAME.log.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[1]
OUT = TOP / "build/mutations"
TREE = OUT / "tree"
LIMIT = 300  # seconds, after which a suite has failed
CCACHE = "/usr/lib/ccache"



def is_file(form):
    """Whether the file that has the suite exists."""
    return lambda name: (TOP / form.format(name.split(".")[0])).is_file()


def is_target(name):
    """Whether the Makefile has the target."""
    return re.search(rf"^{re.escape(name)}:", (TOP / "Makefile").read_text("utf-8"), re.M)


# What a word of `Suite:` builds, what it runs with {} for the name, and whether the name exists.
KINDS = {
    "unit": ("build/unit", "CK_RUN_SUITE={} build/unit", is_file("tests/unit/test_{}.c")),
    "http": ("build/attnd build/attnd_no_ui build/http_suite",
             "ATTND=build/attnd CK_RUN_SUITE={} build/http_suite", is_file("tests/http/test_{}.c")),
    "ui": ("build/attnd", "ATTND=build/attnd /usr/bin/python3 tests/ui/run.py {}",
           is_file("tests/ui/{}.py")),
    "node": ("", "node --test {}", lambda name: (TOP / name).is_file()),
    "clients": ("build/attnd", "QUICK=1 ATTND=build/attnd /usr/bin/python3 tests/clients/run.py {}",
                is_file("tests/clients/{}.py")),
    "make": ("build/attnd", "make --no-print-directory QUICK=1 {}", is_target),
}


class Wrong(Exception):
    """A mistake that cannot be tried, or a suite that cannot judge it."""


class Mistake:
    """A patch: `what` is wrong, the `suite` to notice it, and edits: [file, old text, new text]."""

    def __init__(self, path):
        self.name, self.edits, head = path.stem, [], {}
        for line in path.read_text("utf-8").splitlines(keepends=True):
            if line.startswith(("What: ", "Suite: ")):
                head[line.split(":")[0]] = line.split(" ", 1)[1].strip()
            elif line.startswith("+++ b/"):
                file = line[6:].strip()
            elif line.startswith("@@"):
                self.edits.append([file, "", ""])
            elif self.edits and not line.startswith("--- "):
                for kind, at in ((" -", 1), (" +", 2)):
                    self.edits[-1][at] += line[1:] if line[0] in kind else ""
        self.what, self.suite = head.get("What"), head.get("Suite", "")
        if not self.what or not self.edits:
            raise Wrong(f"{self.name}: needs a line What: and a change")
        kind, _, name = self.suite.partition(" ")
        if kind not in KINDS or not KINDS[kind][2](name):
            raise Wrong(f"{self.name}: no suite is named {self.suite}")
        for file, old, _ in self.edits:
            if (TOP / file).read_text("utf-8").count(old) != 1:
                raise Wrong(f"{self.name}: does not apply: what it changes is not in {file} "
                            "exactly once")

    def plant(self):
        """Changes the copy; returns {file: what it was}."""
        before = {TREE / file: (TREE / file).read_text("utf-8") for file, _, _ in self.edits}
        for file, old, new in self.edits:
            copy = TREE / file
            copy.write_text(copy.read_text("utf-8").replace(old, new), "utf-8")
        return before


def bring_up_to_date():
    """Makes the copy the tracked files of this tree; writes only what differs."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=TOP, stdout=subprocess.PIPE, check=True)
    names = {name for name in listed.stdout.decode().split("\0") if name and (TOP / name).is_file()}
    for path in [path for path in TREE.rglob("*") if path.is_file()]:
        name = path.relative_to(TREE)
        if name.parts[0] != "build" and str(name) not in names:
            path.unlink()
    for name in names:
        source, copy = TOP / name, TREE / name
        if not copy.exists() or copy.read_bytes() != source.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.unlink(missing_ok=True)
            shutil.copy(source, copy, follow_symlinks=False)
    (TREE / "build").mkdir(exist_ok=True)
    for name in ("deps", "axe", "prometheus"):  # what is installed once
        if (TOP / "build" / name).exists() and not (TREE / "build" / name).exists():
            (TREE / "build" / name).symlink_to(TOP / "build" / name)


def run(command, log):
    """Whether a command succeeds in the copy, within the limit."""
    path = CCACHE + ":" * os.path.isdir(CCACHE) + os.environ["PATH"]
    environment = {**os.environ, "PATH": path, "CCACHE_NOHASHDIR": "1"}
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
        environment.pop(name, None)
    with open(log, "w", encoding="utf-8") as output:
        process = subprocess.Popen(command, shell=True, cwd=TREE, env=environment, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            return process.wait(LIMIT) == 0
        except subprocess.TimeoutExpired:
            output.write(f"no end within {LIMIT} s\n")
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return False


def build(suite, files=()):
    """Whether all that a suite needs builds; scripts are only read."""
    targets = KINDS[suite.split()[0]][0]
    commands = [f"make --no-print-directory -j{os.cpu_count()} {targets}"] if targets else []
    for file in files:
        if file.suffix == ".py":
            commands.append(f"/usr/bin/python3 -m py_compile {file}")
        elif file.suffix in (".js", ".mjs"):
            commands.append(f"cp {file} build/read.mjs && node --check build/read.mjs")
    return run(" && ".join(commands) or "true", OUT / "build.log")


def passes(suite, log):
    """(whether a suite passes, its seconds)."""
    kind, _, name = suite.partition(" ")
    begin = time.monotonic()
    return run(KINDS[kind][1].format(name), log), time.monotonic() - begin


def judge_suite(suite):
    """Nothing that a suite says counts unless it passes on the unchanged tree."""
    if not build(suite):
        raise Wrong(f"{suite}: the unchanged tree does not build: build/mutations/build.log")
    if not passes(suite, OUT / "unchanged.log")[0]:
        raise Wrong(f"{suite}: fails on the unchanged tree: build/mutations/unchanged.log")
    return suite


def judge(mistake):
    """Prints a line for a mistake that its suite notices."""
    before = mistake.plant()
    try:
        if not build(mistake.suite, before):
            raise Wrong(f"{mistake.name}: does not build: build/mutations/build.log")
        passed, seconds = passes(mistake.suite, OUT / f"{mistake.name}.log")
    finally:
        for file, text in before.items():
            file.write_text(text, "utf-8")
    line = f"NOTICED {mistake.name} {mistake.suite} {seconds:.0f} s"
    if passed:
        raise Wrong(f"NOT {line}: {mistake.what}")
    print(line, flush=True)


def attempt(action, items):
    """What an action makes of each item, without those that are wrong, of which it prints why."""
    done = []
    for item in items:
        try:
            done.append(action(item))
        except (Wrong, OSError) as error:
            print(error, flush=True)
    return done


def main(names):
    """Tries the named mistakes, or all; returns the exit status."""
    begin, match = time.monotonic(), "--match" in names
    paths = [HERE / f"{name}.patch" for name in names if name != "--match"]
    paths = paths or sorted(HERE.glob("*.patch"))
    good, word = attempt(Mistake, paths), "have their places"
    if not match:
        bring_up_to_date()
        sound = attempt(judge_suite, sorted({mistake.suite for mistake in good}))
        good, word = attempt(judge, [one for one in good if one.suite in sound]), "noticed"
    right = len(good) == len(paths) > 0
    print(f"check-mutations: {len(paths)} mistakes, {len(good)} {word}, "
          f"in {time.monotonic() - begin:.0f} s: {'ok' if right else 'FAILED'}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
