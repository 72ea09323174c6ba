"""dry_run.py: `kubectl create --dry-run=client` without a cluster.

Before it builds an object, kubectl asks the server which kinds there are.  A server of this file's own
answers that with the kinds that occur, on a loopback port, and nothing else.
"""
import http.server
import json
import subprocess
import tempfile
import threading

import yaml


def answers(items):
    """Paths of discovery, and what they answer."""
    versions = {item["apiVersion"] for item in items} | {"v1"}
    groups = sorted(version for version in versions if "/" in version)
    found = {"/api": {"kind": "APIVersions", "versions": ["v1"]},
             "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [
                 {"name": group.split("/")[0],
                  "versions": [{"groupVersion": group, "version": group.split("/")[1]}],
                  "preferredVersion": {"groupVersion": group, "version": group.split("/")[1]}}
                 for group in groups]}}
    for version in versions:
        kinds = sorted({item["kind"] for item in items if item["apiVersion"] == version})
        found[f"/apis/{version}" if "/" in version else f"/api/{version}"] = {
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [
                {"name": kind.lower() + "s", "singularName": kind.lower(), "namespaced": True,
                 "kind": kind, "verbs": ["create", "get"]} for kind in kinds]}
    return found


def create(items):
    """What kubectl says of the objects."""
    found = answers(items)

    class Discovery(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps(found.get(self.path.split("?")[0], {"kind": "Status"})).encode()
            self.send_response(200 if self.path.split("?")[0] in found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Discovery)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(["kubectl", "--server", f"http://127.0.0.1:{server.server_port}",
                               "create", "--dry-run=client", "--validate=false", "-f", "-"],
                              input=yaml.safe_dump_all(items), capture_output=True, text=True,
                              env={"HOME": home, "PATH": "/usr/bin:/bin"}, timeout=60, check=False)
    server.shutdown()
    server.server_close()
    return done.stdout + done.stderr
