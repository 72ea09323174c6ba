#!/usr/bin/env python3
"""attn_client: a client of attnd in one file, of the standard library alone.

    from attn_client import Client

    with Client("http://127.0.0.1:8080", api_key=None) as client:
        reply = client.attend([[1, 0, 0, 0]], outputs=["output", "attention_weights"])
        print(reply["output"].shape, reply["attention_weights"].shape)

        with client.session(model="tiny") as session:       # ended with the block
            session.prefill(rows)                           # rows [n,E] of layer 0
            output = session.decode(row)["output"]          # row [E]

Tensors go in as numpy arrays, as objects with the buffer protocol, or as nested lists (None stands
for minus infinity).  Tensors come back as float32 arrays of numpy where numpy can be imported,
otherwise as memoryviews of format 'f', which have `shape` and `tolist()`.  Tensors travel as bytes
(docs/API.md, "Binary form"); with `Client(binary=False)` as JSON.  Maps that were asked for with
map_datatype="FP16" come as float16 of numpy, otherwise widened; those of "UINT8" as the float32
numbers that their bytes stand for.

A request that got no answer, or an error that is `retryable`, is sent again for `retry_s` seconds,
unless that could apply it twice.  Steps of a Session carry `position` and `epoch`: a step whose
answer was lost is answered again, and not appended again.

Python 3.9 or later.  Any number of threads may use one Client: each call takes a kept connection
or opens one.  A Session lets one call through at a time.
"""
from __future__ import annotations

import argparse
import array
import asyncio
import concurrent.futures
import contextlib
import functools
import http.client
import json
import math
import numbers
import random
import select
import ssl
import struct
import sys
import threading
import time
import urllib.parse
import uuid

try:
    import numpy
except ImportError:
    numpy = None

__all__ = ["Client", "AsyncClient", "Session", "AsyncSession", "Reply", "AttnError",
           "InvalidRequest", "Unauthorized", "NotFound", "Conflict", "SessionLost", "Busy",
           "Unavailable", "ConnectionLost"]


# ---- Errors ------------------------------------------------------------------------------------

class AttnError(Exception):
    """A request that failed.  Decide by `code` (docs/API.md, "Errors"); `message` is for people.

    status       HTTP status; 0 without an answer, and for an item of a list
    param        the field at fault, or None
    retryable    whether the same request may succeed later
    length       with `position_conflict` and `position_gap` the true length of the layer, else None
    lowest_length  with `position_forgotten` the least length, beside 0, to which the session can be
                   truncated or forked, else None; with `position_conflict` where there is one
    request_id   the request in attnd's log, or None
    retry_after  seconds that the reply asked to wait, or None
    owner        with `wrong_instance` the shard that the session's id names, else None
    """

    def __init__(self, code, message, **facts):
        self.code, self.message = code, message
        self.status, self.param = facts.get("status", 0), facts.get("param")
        self.retryable, self.length = bool(facts.get("retryable")), facts.get("length")
        self.lowest_length = facts.get("lowest_length")
        self.request_id, self.retry_after = facts.get("request_id"), facts.get("retry_after")
        self.owner = facts.get("owner")
        super().__init__(f"{code}: {message}" +
                         (f" (request {self.request_id})" if self.request_id else ""))


class InvalidRequest(AttnError):
    """400, 405 to 422, 431, where no other class says it: the request is wrong, and would be wrong
    again."""


class Unauthorized(AttnError):
    """401, 403: no API key, an unknown one, or one without the scope of the route."""


class NotFound(AttnError):
    """404: no such route, model, layer or session."""


class Conflict(AttnError):
    """409: the session is not as the caller believes; see `code` and `length`."""


class SessionLost(AttnError):
    """410: the session was there before its shard lost its volume.  Its tokens are to be sent
    again, to a new session: the caller decides, since outputs of the old one may be in use."""


class Busy(AttnError):
    """429: a queue, a session or a limit of the API key is full."""


class Unavailable(AttnError):
    """5xx: attnd is loading, draining or without room, or has a defect; or 421 wrong_instance: the
    shard of the session is not reached."""


class ConnectionLost(AttnError):
    """No answer: refused, reset or timed out; or, of code `bad_reply`, one that cannot be read.  A
    request that was `sent` may have been applied."""

    def __init__(self, reason, sent, code="connection_lost"):
        lost = code == "connection_lost" and not isinstance(reason, ssl.SSLCertVerificationError)
        super().__init__(code, str(reason) or type(reason).__name__, retryable=lost)
        self.sent = sent


_CLASSES = {0: AttnError, 401: Unauthorized, 403: Unauthorized, 404: NotFound, 409: Conflict,
            410: SessionLost, 429: Busy}
_MOVING = ("wrong_instance", "draining")  # errors of a session that is on its way


def _error_of(body, status, headers=None):
    """The exception of a reply's JSON, which a proxy may have written."""
    headers, facts = headers or {}, body.get("error") if isinstance(body, dict) else None
    ours = isinstance(facts, dict) and "code" in facts
    facts = dict(facts) if ours else {"retryable": status in (502, 503, 504)}
    after = headers.get("Retry-After") or ""
    facts.update(status=status, retry_after=float(after) if after.isdecimal() else None)
    facts.setdefault("request_id", headers.get("X-Request-Id"))
    code, message = facts.pop("code", f"http_{status}"), facts.pop("message", "not from attnd")
    kind = _CLASSES.get(status) or \
        (Unavailable if status >= 500 or code in _MOVING else InvalidRequest)
    error = kind(code, message, **facts)
    # config/haproxy/haproxy.cfg has errors of this form; with these two a request may have been applied.
    error.ours = ours and (status not in (502, 504) or code == "deadline_exceeded")
    return error


# ---- Tensors -----------------------------------------------------------------------------------

# Fields that hold tensors, with the datatype that they are sent in.
_TENSORS = {
    "hidden_states": "FP32", "encoder_hidden_states": "FP32", "key_hidden_states": "FP32",
    "value_hidden_states": "FP32", "query": "FP32", "key": "FP32", "value": "FP32",
    "past_key": "FP32", "past_value": "FP32", "attention_bias": "FP32", "head_mask": "FP32",
    "position_ids": "INT64", "query_offset": "INT64", "sliding_window": "INT64", "heads": "INT64",
    "rows": "INT64", "pool": "INT64", "targets": "INT64", "padding_mask": "BOOL",
    "attention_mask": "BOOL", "encoder_padding_mask": "BOOL"}
# Members of a reply that are tensors; `index` and `weight` are those of `top_k`.
_OUTPUTS = {"output": "FP32", "attention_weights": "FP32", "attention_scores": "FP32",
            "lse": "FP32", "key": "FP32", "value": "FP32", "query": "FP32", "head_output": "FP32",
            "concat": "FP32", "index": "UINT32", "weight": "FP32"}
_FORMATS = {"FP32": "f", "FP16": "e", "INT64": "q", "INT32": "i", "UINT32": "I", "BOOL": "?",
            "UINT8": "B"}
_SAME = {"FP32": ("FP32", "FP16"), "INT64": ("INT64", "INT32"), "BOOL": ("BOOL",),
         "UINT32": ("UINT32",)}
_KINDS = {"FP32": "fiub", "INT64": "iu", "UINT32": "iu", "BOOL": "biu"}
_ALIGNMENT = 64  # of the first tensor within a body


def _layout(datatype, data):
    """The format, for `struct`, of little-endian bytes."""
    return f"<{len(data) // struct.calcsize('=' + _FORMATS[datatype])}{_FORMATS[datatype]}"


def _shape_of(value):
    if not isinstance(value, (list, tuple)):
        return []
    return [len(value)] + (_shape_of(value[0]) if value else [])


def _flat(value, shape):
    """The numbers of nested lists in row-major order."""
    if isinstance(value, (list, tuple)) != bool(shape) or shape and len(value) != shape[0]:
        raise ValueError("nested lists of unequal length")
    if not shape:
        return [-math.inf if value is None else value]
    return [number for item in value for number in _flat(item, shape[1:])]


def _pack(value, datatype):
    """(datatype, shape, little-endian bytes) of a tensor; FP16 and INT32 stay what they are."""
    if numpy is not None and not isinstance(value, (list, tuple)):
        value = numpy.asarray(value)
        if value.dtype.kind not in _KINDS[datatype]:
            raise TypeError(f"{value.dtype} where {datatype} is wanted")
        for name in _SAME[datatype]:
            if value.dtype == numpy.dtype(_FORMATS[name]):
                datatype = name
        if datatype == "BOOL" and value.dtype != bool and ((value != 0) & (value != 1)).any():
            raise ValueError("a mask holds 1 (may attend) and 0, nothing else")
        wanted = numpy.dtype(_FORMATS[datatype]).newbyteorder("<")
        return datatype, list(value.shape), value.astype(wanted, copy=False).tobytes()
    if not isinstance(value, (list, tuple)):
        view = memoryview(value)
        for name in _SAME[datatype]:
            if view.format == _FORMATS[name] and sys.byteorder == "little":
                return name, list(view.shape), view.tobytes()
        value = view.tolist()
    shape = _shape_of(value)
    numbers = _flat(value, shape)
    if datatype == "BOOL" and any(number not in (0, 1) for number in numbers):
        raise ValueError("a mask holds 1 (may attend) and 0, nothing else")
    return datatype, shape, struct.pack(f"<{len(numbers)}{_FORMATS[datatype]}", *numbers)


def _unpack(datatype, shape, data):
    """A tensor of the bytes `data`: an array of numpy, or a memoryview.  Without numpy halves are
    widened to float32, as a memoryview has none."""
    if numpy is None and datatype == "FP16":
        data = array.array("f", struct.unpack(_layout(datatype, data), data)).tobytes()
        return memoryview(data).cast("f", shape)
    if numpy is not None:
        order = numpy.dtype(_FORMATS[datatype]).newbyteorder("<")
        tensor = numpy.frombuffer(data, order).reshape(shape)
        return tensor if tensor.flags.aligned else tensor.copy()
    if sys.byteorder == "big":
        layout = _layout(datatype, data)
        data = struct.pack("=" + layout[1:], *struct.unpack(layout, data))
    return memoryview(data).cast(_FORMATS[datatype], shape)


def _widen(entry, data):
    """The float32 numbers that the bytes of maps stand for, of which each map has a range."""
    shape = entry["shape"]
    size, ranges = math.prod(shape[-2:]), [entry["minimum"], entry["maximum"]]
    least, most = (_flat(ends, _shape_of(ends)) for ends in ranges)
    if numpy is not None:
        maps = numpy.frombuffer(data, numpy.uint8).reshape(len(least), size)
        least, most = (numpy.array(ends)[:, None] for ends in (least, most))
        return (least + (most - least) * maps / 255).astype(numpy.float32).reshape(shape)
    numbers = array.array("f", (low + (high - low) * byte / 255
                                for low, high, first in zip(least, most, range(0, len(data), size))
                                for byte in data[first:first + size]))
    return memoryview(numbers.tobytes()).cast("f", shape)


def _numbers(datatype, data):
    """The numbers of packed bytes for JSON, in which null is minus infinity."""
    return [None if value == -math.inf else value
            for value in struct.unpack(_layout(datatype, data), data)]


def _body_of(fields, binary):
    """(body, length of its JSON) of a call.  Masks come last, so that all FP32 stays aligned."""
    tensors = []

    def document(fields):
        made = {}
        for name in sorted(fields, key=lambda name: _TENSORS.get(name) == "BOOL"):
            value = fields[name]
            if name == "sequences":
                made[name] = [document(item) for item in value]
            elif name not in _TENSORS or isinstance(value, numbers.Number):
                made.update({name: value} if value is not None else {})
            elif value is not None:
                datatype, shape, data = _pack(value, _TENSORS[name])
                made[name] = {"shape": shape, "datatype": datatype}
                if binary:
                    made[name]["binary_data_size"] = len(data)
                    tensors.append(data)
                else:
                    made[name]["data"] = _numbers(datatype, data)
        return made

    head = json.dumps(document(fields), default=lambda value: value.tolist()).encode()
    if tensors:
        head += b" " * (-len(head) % _ALIGNMENT)
    return b"".join([head, *tensors]), len(head)


class Reply(dict):
    """The members of a reply, tensors as arrays.

    request_id  names the request in attnd's log
    timing      milliseconds by stage, as `Server-Timing` has them: parse, queue, compute, write
    """
    request_id, timing = None, {}


def _reply_of(headers, data):
    """The Reply of a body in JSON or in binary form."""
    size = headers.get("Inference-Header-Content-Length")
    length = int(size) if size else len(data)
    view, offset = memoryview(data), length

    def member(name, value):
        nonlocal offset
        if isinstance(value, dict) and "binary_data_size" in value:
            width = struct.calcsize("=" + _FORMATS[value["datatype"]])
            begin = offset + (length - offset) % width
            offset = begin + value["binary_data_size"]
            if offset > len(view):
                raise ConnectionLost("the reply is shorter than its tensors", True, "bad_reply")
            if "minimum" in value:
                return _widen(value, view[begin:offset])
            return _unpack(value["datatype"], value["shape"], view[begin:offset])
        if isinstance(value, dict):
            return {key: member(key, inner) for key, inner in value.items()}
        if name == "sequences":
            return [Reply(member("", item)) for item in value]
        if name in _OUTPUTS and isinstance(value, list):
            return _unpack(*_pack(value, _OUTPUTS[name]))
        return value

    try:
        made = json.loads(bytes(view[:length])) if length else {}
    except ValueError as error:
        raise ConnectionLost("the reply is not JSON", True, "bad_reply") from error
    reply = Reply(member("", made))
    reply.request_id = headers.get("X-Request-Id")
    stages = (part.split(";dur=") for part in (headers.get("Server-Timing") or "").split(", "))
    reply.timing = {stage[0]: float(stage[1]) for stage in stages if len(stage) == 2}
    return reply


# ---- Client ------------------------------------------------------------------------------------

def _quoted(name):
    """A name as part of a path; an id that is none finds nothing, instead of another path."""
    return urllib.parse.quote(name, safe="")


def _naming(session_id):
    """The header by which a proxy finds the shard of a session; none for None and what is no id."""
    is_id = session_id is not None and _quoted(session_id) == session_id
    return {"X-Session-Id": session_id} if is_id else {}


def _shard(session_id):
    """The name of the shard that an id begins with; "" for an id that names none."""
    return session_id.partition(".")[0] if "." in session_id else ""


def _code_of(reply):
    """The code of an item's error; None of other replies."""
    return reply.get("error", {}).get("code") if isinstance(reply, dict) else None


def _was_closed(sock):
    """Whether a kept connection has bytes or an end to read, of which no request is the cause."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([sock], [], [], 0)[0])


class Client:
    """Calls of one attnd; connections are kept.  Threads may share it.

    url          http:// or https://, host, port, and the path before attnd's, if a proxy adds one
    api_key      of docs/OPERATIONS.md, "API keys"
    timeout      seconds that a connection may stay silent
    retry_s      seconds for which a request is repeated; 0: sent once.  Until a first answer has
                 come, a refused connection is an error at once: see `wait_until_ready`
    binary       False: tensors travel as JSON
    deadline_ms  after which attnd no longer computes an answer; a reply that is late is not retried
    cafile       certificates to trust instead of the system's; `context`: an ssl.SSLContext
    """

    def __init__(self, url="http://127.0.0.1:8080", *, api_key=None, timeout=60.0, retry_s=30.0,
                 binary=True, deadline_ms=None, cafile=None, context=None):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"no http:// or https:// URL: {url}")
        self._base, self.binary, self.retry_s = parts.path.rstrip("/"), binary, retry_s
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        if deadline_ms is not None:
            self._headers["X-Deadline-Ms"] = str(deadline_ms)
        self._connect = functools.partial(http.client.HTTPConnection, parts.hostname,
                                          parts.port or 80, timeout=timeout)
        if parts.scheme == "https":
            context = context or ssl.create_default_context(cafile=cafile)
            self._connect = functools.partial(http.client.HTTPSConnection, parts.hostname,
                                              parts.port or 443, timeout=timeout, context=context)
        self._idle, self._lock = [], threading.Lock()
        self._sharded = False  # a list goes to each shard apart, once one was in the wrong place
        self._answered = False  # a server that was never reached is not waited for

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Closes the kept connections.  Sessions stay."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self):
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connect()
            if not _was_closed(connection.sock):
                return connection
            connection.close()

    def _exchange(self, method, path, headers, body):
        connection, sent = self._take(), False
        try:
            if connection.sock is None:
                connection.connect()
            sent = True
            # A refusal may be there to read, though the body was not taken.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, self._base + path, body, headers)
            response = connection.getresponse()
            data = bytearray(response.length or 0)
            if data and response.readinto(data) < len(data):  # read() misses an end before any byte
                raise http.client.IncompleteRead(b"", len(data))
            data += response.read()  # the rest of a reply without a length; else its end is noted
        except (OSError, http.client.HTTPException) as reason:
            connection.close()
            raise ConnectionLost(reason, sent) from reason
        except BaseException:
            connection.close()
            raise
        self._answered = True
        if response.will_close:
            connection.close()
        else:
            with self._lock:
                self._idle.append(connection)
        return response.status, response.headers, data

    def request(self, method, path, body=b"", headers=None, *, again=True, retry_s=None):
        """(headers, body) of a reply below 400; raises AttnError.  `again`: whether sending the
        request a second time has no other effect than sending it once."""
        retry_s = self.retry_s if retry_s is None else retry_s
        headers = {**self._headers, **(headers or {})}
        until, wait = time.monotonic() + retry_s, 0.05
        while True:
            try:
                status, received, data = self._exchange(method, path, headers, body or None)
                if status < 400:
                    return received, data
                try:
                    error = _error_of(json.loads(data), status, received)
                except ValueError:
                    error = _error_of(None, status, received)
                late = "X-Deadline-Ms" in headers and error.code == "deadline_exceeded"
                repeat = error.retryable and (again or error.ours) and not late
            except ConnectionLost as lost:
                error, repeat = lost, lost.retryable and self._answered and (again or not lost.sent)
            pause = max(wait * random.uniform(0.5, 1), error.retry_after or 0)
            if not repeat or time.monotonic() + pause > until:
                raise error
            time.sleep(pause)
            wait = min(2 * wait, 2.0)

    def _call(self, path, fields, lead=None):
        """`lead`: of a list, one of its sessions."""
        body, length = _body_of({**fields, "binary_output": self.binary}, self.binary)
        session_id = fields.get("session_id")
        placed = fields.get("position") is not None and not fields.get("start")
        headers = {"Content-Type": "application/json"}
        if self.binary:
            headers = {"Content-Type": "application/octet-stream",
                       "Inference-Header-Content-Length": str(length)}
        headers.update(_naming(session_id if session_id is not None else lead))
        # A start over encoder rows that is sent again goes to the session that it has made.
        again = session_id is None or placed or fields.get("encoder_hidden_states") is not None
        return _reply_of(*self.request("POST", path, body, headers, again=again))

    def _post(self, path, fields, once=False, session_id=None):
        body, length = _body_of(fields, self.binary)
        headers = {"Content-Type": "application/json"}
        if length < len(body):
            headers = {"Content-Type": "application/octet-stream",
                       "Inference-Header-Content-Length": str(length)}
        if once:
            headers["Idempotency-Key"] = uuid.uuid4().hex
        headers.update(_naming(session_id))
        return _reply_of(*self.request("POST", path, body, headers))

    def get(self, path, session_id=None):
        """The JSON of a GET; `session_id`: of the session in the path."""
        return _reply_of(*self.request("GET", path, headers=_naming(session_id)))

    def attend(self, hidden_states=None, **fields):
        """Attention over given rows; no session.  Returns a Reply of the named `outputs`.

        hidden_states  [T,E] or [B,T,E], for `model` and `layer`; or instead of it
        query, key, value  [H,T,D], [G,S,D], [G,S,Dv], each with or without [B], without a model
        outputs        names out of output [B,T,E], attention_weights and attention_scores
                       [B,H,T,S], lse [B,H,T], key and value [B,G,S,D], head_stats,
                       query [B,H,T,D], head_output [B,H,T,Dv], concat [B,T,H*Dv]

        Every other field of docs/API.md, "Fields", is taken under its name: attention_mask,
        padding_mask, attention_bias, is_causal, heads, rows, top_k, ...
        """
        return self._call("/attend", {"hidden_states": hidden_states, **fields})

    def step_many(self, steps, layer=0, **fields):
        """One step of each of several sessions in one request.

        steps  pairs of a Session and its rows ([E] or [n,E]), or a dict of fields: query, key and
               value for a session without weights, or hidden_states, and whatever else is its own.
               The sessions are distinct, and of one model or of none.  `fields` stand in every
               item that does not have them.
        Returns as many Replies or AttnErrors, in the same order.  Where sessions are on several
        shards, each of these gets a request, and an error of one stands for each of its steps.
        """
        sessions = [session for session, _ in steps]
        if len({session.session_id for session in sessions}) != len(sessions):
            raise ValueError("a session stands twice among the steps")
        with contextlib.ExitStack() as locks:
            for session in sorted(sessions, key=lambda session: session.session_id):
                locks.enter_context(session.lock)
            items = [{**session.place(layer), **fields,
                      **(rows if isinstance(rows, dict) else {"hidden_states": rows})}
                     for session, rows in steps]
            replies = self._steps(items, layer)
            return [reply if isinstance(reply, AttnError) else session.took(layer, reply)
                    for session, reply in zip(sessions, replies)]

    def _lists(self, items, numbers):
        """The numbers of items by request: all in one, until an item turns out to be elsewhere."""
        lists = {}
        for number in numbers:
            shard = _shard(items[number]["session_id"]) if self._sharded else ""
            lists.setdefault(shard, []).append(number)
        return list(lists.values())

    def _steps(self, items, layer):
        """Replies to items, or the AttnError of their request where it is one of several; those of
        sessions that are on their way are asked for again."""
        until, wait = time.monotonic() + self.retry_s, 0.05
        replies, asked = [None] * len(items), range(len(items))
        while True:
            lists = self._lists(items, asked)
            for numbers in lists:
                fields = {"layer": layer, "sequences": [items[number] for number in numbers]}
                try:
                    made = self._call("/decode", fields, fields["sequences"][0]["session_id"])
                except AttnError as error:
                    if len(numbers) == len(items):
                        raise
                    made = {"sequences": [error] * len(numbers)}
                for number, reply in zip(numbers, made["sequences"]):
                    replies[number] = reply
            asked = [number for number in asked if _code_of(replies[number]) in _MOVING]
            if not asked or time.monotonic() + wait > until:
                return replies
            if not self._sharded and "wrong_instance" in map(_code_of, replies):
                self._sharded = True
                continue
            time.sleep(wait * random.uniform(0.5, 1))
            wait = min(2 * wait, 2.0)

    def session(self, session_id=None, **fields):
        """A new Session.  fields: model, max_length, ttl_s, shared; for one of cross-attention
        encoder_hidden_states [S,Ek] and encoder_padding_mask [S]; or, for one without weights,
        num_attention_heads, head_dim and what else docs/API.md has of its shape."""
        fields["session_id"] = session_id
        return Session(self, self._post("/sessions", fields, True, session_id))

    def start(self, encoder_hidden_states, hidden_states, layer=0, session_id=None, **fields):
        """A new Session of a model of cross-attention, over an encoder's rows [S,Ek].

        hidden_states  the rows of the first step, in `layer`; its Reply is the session's `first`
        session_id     None: attnd makes the id, which a proxy of several shards can route
        fields         model, encoder_padding_mask [S], outputs, ... of that step

        The encoder's rows are projected here, in all layers.  `decode` and `prefill` then attend to
        them and append nothing.
        """
        if session_id is None:
            made = {name: fields.pop(name) for name in ("model", "encoder_padding_mask")
                    if name in fields}
            session = self.session(encoder_hidden_states=encoder_hidden_states, **made)
            try:
                session.first = session.decode(hidden_states, layer, **fields)
            except BaseException as error:  # nobody else knows the id
                session.__exit__(type(error))
                raise
            return session
        fields = {"session_id": session_id, "start": True, "layer": layer,
                  "encoder_hidden_states": encoder_hidden_states, "hidden_states": hidden_states,
                  **fields}
        first = self._call("/decode", fields)
        session = self.open(session_id)
        session.first = first
        return session

    def open(self, session_id):
        """A Session that is there.  Leaving its `with` block ends it, unless `keep` is set."""
        return Session(self, self.get(f"/sessions/{_quoted(session_id)}", session_id))

    def restore(self, session_id, state):
        """A Session of the bytes that Session.export gave; not sent again if the answer is lost."""
        headers = {"Content-Type": "application/octet-stream", **_naming(session_id)}
        return Session(self, _reply_of(*self.request(
            "PUT", f"/sessions/{_quoted(session_id)}/state", state, headers, again=False)))

    def sessions(self, limit=100):
        """Iterates over all sessions, `limit` to a request."""
        after = ""
        while after is not None:
            page = self.get(f"/sessions?limit={limit}" +
                            (f"&after={_quoted(after)}" if after else ""))
            yield from page["sessions"]
            after = page["next"]

    def models(self):
        """The models, as GET /models has them."""
        return self.get("/models")["models"]

    def model(self, name):
        """One model, as GET /models/{name} has it."""
        return self.get(f"/models/{_quoted(name)}")

    def ready(self):
        """Whether requests are served now; asks once."""
        try:
            self.request("GET", "/readyz", retry_s=0)
        except (ConnectionLost, Unavailable):
            return False
        return True

    def wait_until_ready(self, seconds=60):
        """Returns once requests are served; raises what hindered that after `seconds`."""
        until = time.monotonic() + seconds
        while True:
            try:
                self.request("GET", "/readyz", retry_s=0)
                return
            except (ConnectionLost, Unavailable):
                if time.monotonic() > until:
                    raise
            time.sleep(0.1)


class Session:
    """Keys and values of one sequence in every layer of one model; a context manager that ends it.
    A session without weights takes query, key and value in place of hidden_states.

    session_id, model, epoch  as GET /sessions/{id} has them; model None: without weights
    lengths  {layer: tokens}, as far as answers have told
    keep     True: leaving the `with` block does not end the session
    first    the Reply to the step that Client.start has made; else None
    """

    def __init__(self, client, facts):
        self.client, self.lock, self.keep = client, threading.RLock(), False
        self.session_id, self.model = facts["session_id"], facts["model"]
        self.epoch, self.first = facts["epoch"], None
        self.lengths = {item["layer"]: item["length"] for item in facts["lengths"]}

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.keep:
            return
        if kind is None:
            self.end()
        else:  # another error is on its way, which this one must not hide or delay
            with contextlib.suppress(AttnError):
                self.end(retry_s=0)

    def place(self, layer):
        """The members of a step that say where it goes."""
        return {"session_id": self.session_id, "position": self.lengths.get(layer, 0),
                "epoch": self.epoch}

    def took(self, layer, reply):
        """Notes the length after a step; an error of an item becomes an AttnError."""
        if "error" in reply:
            return _error_of(reply, 0)
        self.lengths[layer] = reply["length"]
        return reply

    def _step(self, path, rows, layer, fields):
        with self.lock:
            fields = {**self.place(layer), "layer": layer, "hidden_states": rows, **fields}
            return self.took(layer, self.client._call(path, fields))

    def prefill(self, hidden_states=None, layer=0, **fields):
        """Appends rows [n,E] to a layer and attends over all it has.  Returns a Reply with
        `output` [n,E] or the named `outputs`, `position` and `length`.  Without weights: query
        [H,n,D], key [G,n,D] and value [G,n,Dv] for `output` [H,n,Dv]."""
        return self._step("/attend", hidden_states, layer, fields)

    def decode(self, hidden_states=None, layer=0, **fields):
        """The same for one row [E] (its `output` is [E] too) or a few [n,E], batched by attnd with
        steps of other sessions.  Without weights one row is query [H,D], key [G,D], value [G,Dv].
        `commit=False` appends nothing."""
        return self._step("/decode", hidden_states, layer, fields)

    def refresh(self):
        """Reads `lengths` again, after a Conflict; returns what GET /sessions/{id} does."""
        with self.lock:
            facts = self.client.get(f"/sessions/{self.session_id}", self.session_id)
            if facts["epoch"] != self.epoch:
                raise Conflict("epoch_mismatch", "the session was deleted and remade", status=409)
            self.lengths = {item["layer"]: item["length"] for item in facts["lengths"]}
            return facts

    def fork(self, session_id=None, length=None):
        """A Session with the first `length` tokens of each layer, or all; nothing is copied."""
        with self.lock:
            fields = {"session_id": session_id, "length": length, "epoch": self.epoch}
            return Session(self.client, self.client._post(
                f"/sessions/{self.session_id}/fork", fields, once=True, session_id=self.session_id))

    def truncate(self, length):
        """Forgets all but the first `length` tokens of each layer."""
        with self.lock:
            facts = self.client._post(
                f"/sessions/{self.session_id}/truncate", {"length": length, "epoch": self.epoch},
                session_id=self.session_id)
            self.lengths = {item["layer"]: item["length"] for item in facts["lengths"]}

    def export(self):
        """The session as the bytes of a safetensors file, for Client.restore."""
        headers = {"Accept": "application/octet-stream", **_naming(self.session_id)}
        return self.client.request("GET", f"/sessions/{self.session_id}/state", headers=headers)[1]

    def end(self, retry_s=None):
        """Ends the session; one that is gone already is no error."""
        with self.lock, contextlib.suppress(NotFound, SessionLost):
            self.client.request("DELETE", f"/sessions/{self.session_id}",
                                headers=_naming(self.session_id), retry_s=retry_s)


# ---- asyncio -----------------------------------------------------------------------------------

class _Asynchronous:
    """Runs methods of `inner` in threads, of which there are as many as calls may be under way."""

    def __init__(self, inner, threads):
        vars(self).update(inner=inner, _threads=threads)

    async def _run(self, method, *arguments, **fields):
        call = functools.partial(getattr(self.inner, method), *arguments, **fields)
        made = await asyncio.get_running_loop().run_in_executor(self._threads, call)
        return AsyncSession(made, self._threads) if isinstance(made, Session) else made

    def __getattr__(self, name):
        value = getattr(self.inner, name)
        return functools.partial(self._run, name) if callable(value) else value

    def __setattr__(self, name, value):
        setattr(self.inner, name, value)  # as `keep` of a session

    async def __aenter__(self):
        return self


class AsyncClient(_Asynchronous):
    """Client for asyncio: every method is awaited, `sessions` excepted, which is `list_sessions`.

    connections  calls that may be under way at once, each in a thread
    The rest is as in Client.  Cancelling a call does not take back what was sent.
    """

    def __init__(self, *arguments, connections=16, **options):
        threads = concurrent.futures.ThreadPoolExecutor(connections, "attn_client")
        super().__init__(Client(*arguments, **options), threads)

    async def list_sessions(self):
        """The list of all sessions."""
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: list(self.inner.sessions()))

    async def step_many(self, steps, layer=0, **fields):
        """As Client.step_many."""
        return await self._run("step_many", [(session.inner, rows) for session, rows in steps],
                               layer, **fields)

    async def __aexit__(self, *_):
        self.inner.close()
        self._threads.shutdown(wait=False)


class AsyncSession(_Asynchronous):
    """Session for asyncio: `async with await client.session() as session`."""

    async def __aexit__(self, *error):
        await self._run("__exit__", *error)


# ---- Command line ------------------------------------------------------------------------------

def main(arguments=None):
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Asks attnd, and prints its reply.")
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--api-key", help="API key")
    parser.add_argument("--cafile", help="certificates to trust")
    what = parser.add_subparsers(dest="what", required=True)
    what.add_parser("ready", help="exit status 0 if requests are served")
    what.add_parser("models", help="the models")
    what.add_parser("sessions", help="the sessions")
    what.add_parser("get", help="GET any path").add_argument("path")
    what.add_parser("attend", help="POST /attend").add_argument("body", help="JSON; -: stdin")
    chosen = parser.parse_args(arguments)
    with Client(chosen.url, api_key=chosen.api_key, cafile=chosen.cafile, retry_s=2) as client:
        try:
            if chosen.what == "ready":
                return 0 if client.ready() else 1
            if chosen.what == "attend":
                body = sys.stdin.read() if chosen.body == "-" else chosen.body
                headers = {"Content-Type": "application/json"}
                print(client.request("POST", "/attend", body.encode(), headers)[1].decode())
            else:
                path = chosen.path if chosen.what == "get" else f"/{chosen.what}"
                print(client.request("GET", path)[1].decode())
        except AttnError as error:
            print(f"attn_client: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
