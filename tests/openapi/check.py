#!/usr/bin/python3
"""check.py: what attnd says of its interface is what it does.

    tests/openapi/check.py ATTND EXCHANGES DOCUMENT

Starts ATTND with a small model, fetches /openapi.json, which is kept as DOCUMENT, and checks in this order: that the document
is OpenAPI 3.1; that each exchange of the file EXCHANGES, a line each as the HTTP suite records it,
is as documented, request and reply; that faults planted in such exchanges are found; that the
daemon and the schemas of requests agree about every pair of fields.  The last line has the figures.
"""
import http.client
import json
import subprocess
import sys
import tempfile
import urllib.parse

import document as structure
import pairs
from exchanges import Checker, Description, planted

SHOWN = 20         # faults that are printed
LEAST = 200        # exchanges, else something was not recorded
LINE_MAX = 4 << 20
START_S = 60
NESTING = 20000    # calls within calls, for requests that are nested too deeply for attnd

CONFIG = {"models": [{"name": "tiny", "random": {
    "hidden_size": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1,
    "seed": 7}}]}


class Report:
    def __init__(self):
        self.wrong = 0

    def fault(self, text):
        self.wrong += 1
        if self.wrong <= SHOWN:
            print("check-openapi: " + text)


class Daemon:
    """attnd on a free port of the loopback interface, ended with the block."""

    def __init__(self, attnd):
        self.attnd = attnd

    def __enter__(self):
        self.file = tempfile.NamedTemporaryFile("w", suffix=".json")
        json.dump(CONFIG, self.file)
        self.file.flush()
        self.process = subprocess.Popen(
            [self.attnd, "--config", self.file.name, "--port", "0", "--host", "127.0.0.1",
             "--threads", "1", "--log", "error", "--instance", "openapi"],
            stdout=subprocess.PIPE, text=True, env={"ATTN_LAME_DUCK_S": "0"})
        line = self.process.stdout.readline()
        if "ready on " not in line:
            self.__exit__()
            sys.exit("check-openapi: attnd did not start")
        url = urllib.parse.urlparse(line.split()[-1])
        return http.client.HTTPConnection(url.hostname, url.port, timeout=START_S)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=START_S)
        self.process.stdout.close()
        self.file.close()


def fetch(connection):
    connection.request("GET", "/openapi.json")
    reply = connection.getresponse()
    text = reply.read()
    if reply.status != 200:
        sys.exit(f"check-openapi: GET /openapi.json: {reply.status}")
    return json.loads(text)


def check_exchanges(checker, path, report):
    """Returns the number of exchanges, and some good ones of different operations."""
    count, good = 0, {}
    with open(path, encoding="utf-8") as lines:
        while line := lines.readline(LINE_MAX):
            exchange = json.loads(line)
            count += 1
            faults = checker.faults(exchange)
            for fault in faults:
                report.fault(f"{exchange['method']} {exchange['path']} {exchange['status']}: {fault}"
                             f"\n    {line[:300].rstrip()}")
            if not faults and exchange["method"] not in (None, "HEAD", "OPTIONS") and \
                    exchange["status"] < 300:
                key = exchange["method"] + exchange["path"].split("/")[1].split("?")[0]
                good.setdefault(key, exchange)
    return count, list(good.values())


def check_planted(description, good, report):
    """Returns the number of planted faults; each must be found."""
    count = 0
    for exchange in good:
        for what, other in planted(description, exchange):
            count += 1
            if not Checker(description).faults(other):
                report.fault(f"planted in {exchange['method']} {exchange['path']} and not found: "
                             + what)
    return count


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    report = Report()
    sys.setrecursionlimit(NESTING)
    with Daemon(sys.argv[1]) as connection:
        document = fetch(connection)
        with open(sys.argv[3], "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
        for fault in structure.faults(document):
            report.fault(fault)
        description = Description(document)
        sent = pairs.check(description, connection, report)
    checker = Checker(description)
    count, good = check_exchanges(checker, sys.argv[2], report)
    if count < LEAST:
        report.fault(f"{sys.argv[2]} has {count} exchanges, fewer than {LEAST}")
    plants = check_planted(description, good, report)
    for name in sorted(checker.counts):
        print(f"  {checker.counts[name]:8}  {name}")
    operations = sum(len(item) for item in document["paths"].values())
    print(f"check-openapi: {count} exchanges of {len(checker.counts)} kinds ({operations} operations) "
          f"validated, {checker.bodies} bodies of different form, {checker.foreseen} refusals "
          f"foreseen by the schema; {sent} pairs of fields; {plants} planted faults; "
          f"{report.wrong} wrong" + ("" if report.wrong else ": ok"))
    sys.exit(report.wrong != 0)


if __name__ == "__main__":
    main()
