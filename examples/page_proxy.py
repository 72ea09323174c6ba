"""page_proxy.py: attnd's page beside one local file, under one origin of this machine.

    with PageProxy("http://127.0.0.1:8080", "/capture.safetensors", path) as proxy:
        print(proxy.url)                # http://127.0.0.1:PORT, of the kernel's choice
        proxy.serve_forever()

The page's policy lets it read its own origin alone.  One path is the file; every other request goes
to attnd and every reply comes back as it is, in pieces of 64 KiB.  Host and Origin are rewritten to
attnd's, where Origin is the proxy's own: another page's stays as it is, and attnd decides about it.
Only loopback is listened on, and only names of loopback are answered.  A request whose browser has
left is closed towards attnd too, which then drops it.  API keys are not added: the page asks.
"""
from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import select
import socket
import sys
import threading
import urllib.parse
from email.message import Message
from typing import Any, List, Optional, Tuple

PIECE = 65536  # bytes held of a body that passes through
CONNECTIONS = 64  # at a time; a browser opens 6
IDLE_S, REPLY_S = 75, 600
NAMES = ("127.0.0.1", "localhost", "::1")
# Fields of one connection, which end here (RFC 9110, 7.6.1), and those that are rewritten.
OWN = {"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "te", "trailer",
       "transfer-encoding", "upgrade", "proxy-authorization", "expect", "host", "origin"}


class Refusal(Exception):
    """A request that does not go to attnd: status, code, message."""


def host_name(host: str) -> Optional[str]:
    """The name of a Host field without its port, or None."""
    try:
        return urllib.parse.urlsplit("//" + host).hostname
    except ValueError:
        return None


def passed_on(headers: Message) -> List[Tuple[str, str]]:
    """[(name, value)] of the fields that go from one side to the other."""
    listed = ",".join(headers.get_all("Connection", [])).lower()
    ended = OWN | {name.strip() for name in listed.split(",")}
    return [(name, value) for name, value in headers.items() if name.lower() not in ended]


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection of a browser."""

    server: PageProxy
    protocol_version = "HTTP/1.1"
    timeout = IDLE_S
    disable_nagle_algorithm = True  # head and body are written one after the other

    def log_message(self, format: str, *arguments: Any) -> None:  # pylint: disable=W0622
        """Nothing: the terminal is the program's."""

    def answer(self) -> None:
        """Answers one request, whatever its method."""
        self.left = 0  # bytes of the body that have not been read
        try:
            self._check()
            if self.path.partition("?")[0] == self.server.path:
                self._send_file()
            else:
                self._relay()
        except Refusal as refusal:
            self._refuse(*refusal.args)
        except (OSError, http.client.HTTPException):
            self.close_connection = True  # either side is gone, and the reply has begun
        with contextlib.suppress(OSError):
            self._discard()

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = answer

    def _check(self) -> None:
        """Raises Refusal for a head that is not a browser's on this machine."""
        hosts: List[str] = self.headers.get_all("Host", [])
        lengths: List[str] = self.headers.get_all("Content-Length", [])
        if "Transfer-Encoding" in self.headers or len(lengths) > 1:
            raise Refusal(411, "length_required", "a body needs one Content-Length")
        if lengths and not (lengths[0].isascii() and lengths[0].isdecimal() and
                            len(lengths[0]) < 20):
            raise Refusal(400, "malformed_request", "Content-Length is no number")
        self.left = int(lengths[0]) if lengths else 0
        if len(hosts) != 1 or host_name(hosts[0]) not in NAMES:
            raise Refusal(403, "host_not_allowed", "only names of loopback are answered")
        if not self.path.startswith("/"):
            raise Refusal(400, "malformed_request", "the target is no path")

    def _refuse(self, status: int, code: str, message: str) -> None:
        body = json.dumps({"error": {"code": code, "message": f"capture.py: {message}",
                                     "retryable": status == 502}}).encode()
        self.close_connection = True
        self._send_head(status, [("Content-Type", "application/json"),
                                 ("Content-Length", str(len(body)))])
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send_head(self, status: int, fields: List[Tuple[str, str]],
                   reason: Optional[str] = None) -> None:
        self.send_response_only(status, reason)
        for name, value in fields:
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def _send_file(self) -> None:
        if self.command not in ("GET", "HEAD"):
            raise Refusal(405, "method_not_allowed", f"{self.server.path} takes GET and HEAD")
        try:
            stream = open(self.server.file, "rb")  # pylint: disable=consider-using-with
        except OSError as error:
            raise Refusal(404, "not_found", f"{error.strerror}: {self.server.file}") from error
        with stream:
            left = os.fstat(stream.fileno()).st_size
            self._send_head(200, [
                ("Content-Type", "application/octet-stream"), ("Content-Length", str(left)),
                ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"),
                ("Cross-Origin-Resource-Policy", "same-origin")])
            while left and self.command == "GET":
                piece = stream.read(min(left, PIECE))
                if not piece:
                    raise ConnectionError("the file has become shorter")
                self.wfile.write(piece)
                left -= len(piece)

    def _relay(self) -> None:
        upstream = self.server.connect()
        try:
            self._send_request(upstream)
            reply = upstream.getresponse() if self._reply_comes(upstream) else None
        except (OSError, http.client.HTTPException) as error:
            raise Refusal(502, "bad_gateway", f"attnd does not answer: {error}") from error
        else:
            self.close_connection |= reply is None
            if reply is not None:
                self._send_reply(reply)
        finally:
            upstream.close()

    def _send_request(self, upstream: http.client.HTTPConnection) -> None:
        target = self.server.target
        try:
            upstream.putrequest(self.command, target.path.rstrip("/") + self.path, skip_host=True,
                                skip_accept_encoding=True)
        except (ValueError, http.client.InvalidURL) as error:
            raise Refusal(400, "malformed_request", f"the target is malformed: {error}") from error
        host = target.netloc.rpartition("@")[2]
        upstream.putheader("Host", host)
        for origin in self.headers.get_all("Origin", []):
            own = origin == "http://" + self.headers["Host"]
            upstream.putheader("Origin", f"{target.scheme}://{host}" if own else origin)
        for name, value in passed_on(self.headers):
            upstream.putheader(name, value)
        upstream.endheaders()
        with contextlib.suppress(ConnectionError):  # a refusal may stand before the reset
            while self.left and not select.select([upstream.sock], [], [], 0)[0]:
                upstream.send(self._read_piece())

    def _read_piece(self) -> bytes:
        """The next bytes of the body, at least one."""
        piece: bytes = self.rfile.read1(min(self.left, PIECE))  # type: ignore[attr-defined]
        if not piece:
            raise ConnectionError("the browser has left")
        self.left -= len(piece)
        return piece

    def _reply_comes(self, upstream: http.client.HTTPConnection) -> bool:
        """Whether attnd's reply begins, before the browser leaves."""
        watched = [upstream.sock, self.connection]
        while True:
            ready, _, _ = select.select(watched, [], [], REPLY_S)
            if not ready:
                raise TimeoutError(f"no reply for {REPLY_S} s")
            if upstream.sock in ready:
                return True
            if not self.connection.recv(1, socket.MSG_PEEK):
                return False
            watched = [upstream.sock]  # the next request, already

    def _send_reply(self, reply: http.client.HTTPResponse) -> None:
        bodiless = self.command == "HEAD" or reply.status in (204, 304)
        if reply.getheader("Content-Length") is None and not bodiless:
            self.close_connection = True  # the end of the connection is that of the body
        self._send_head(reply.status, passed_on(reply.headers), reply.reason)
        left = reply.length
        while piece := reply.read1(PIECE):
            self.wfile.write(piece)
            left = left and left - len(piece)
        if left and not bodiless:
            raise ConnectionError("attnd's reply ends early")

    def _discard(self) -> None:
        """Reads what is left of the body, so that the reply is not lost in a reset."""
        if self.left:
            self.close_connection = True
        self.wfile.flush()
        while self.left:
            self._read_piece()


class PageProxy(http.server.ThreadingHTTPServer):
    """Serves the file `file` at `path`, and attnd at `url` everywhere else; port 0: any."""

    daemon_threads = True
    request_queue_size = CONNECTIONS

    def __init__(self, url: str, path: str, file: str | os.PathLike[str], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.target, self.path, self.file = urllib.parse.urlsplit(url), path, file
        self.places = threading.BoundedSemaphore(CONNECTIONS)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def connect(self) -> http.client.HTTPConnection:
        """A connection to attnd, not opened yet."""
        host, port = self.target.hostname or "", self.target.port
        if self.target.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=REPLY_S)
        return http.client.HTTPConnection(host, port, timeout=REPLY_S)

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for the connection, or none where too many are open."""
        if self.places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The connection, from its first request to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says what was not foreseen; a connection that broke is no such thing."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)
