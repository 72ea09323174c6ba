#!/usr/bin/env python3
"""attn_client: a client of attnd in one file, of the standard library alone.

    from attn_client import Client

    with Client("http://127.0.0.1:8080", api_key=None) as client:
        reply = client.attend([[1, 0, 0, 0]], outputs=["output", "attention_weights"])
        print(reply["output"].shape, reply["attention_weights"].shape)

        with client.session(model="tiny") as session:       # ended with the block
            session.prefill(rows)                           # rows [n,E] of layer 0
            output = session.decode(row)["output"]          # row [E]

Tensors go in as numpy arrays, as objects with the buffer protocol, as nested lists (None stands for
minus infinity), as lists of arrays, or as the API has them: {"shape": [...], "data": [...]}, whose
data may be the bits of 16-bit numbers (uint16, with "datatype": "BF16" or "FP16").  Arrays of
bfloat16, of ml_dtypes or torch, are taken too.  Tensors come back as float32 arrays of numpy where
numpy can be imported, otherwise as memoryviews of format 'f', which have `shape` and `tolist()`.
Tensors travel as bytes (docs/API.md, "Binary form"); with `Client(binary=False)` as JSON.  Maps
that were asked for with map_datatype="FP16" come as float16 of numpy, otherwise widened; those of
"UINT8" as the float32 numbers that their bytes stand for.

A request that got no answer, or an error that is `retryable`, is sent again for `retry_s` seconds,
unless that could apply it twice; the logger "attn_client" says so at INFO.  Steps of a Session
carry `position`, `epoch` and `revision`: a step whose answer was lost is answered again, and not
appended again, and a step, truncation or end that arrives late changes nothing.

Python 3.9 or later.  Any number of threads may use one Client: each call takes a kept connection
or opens one.  A Session lets one call through at a time.  After fork() a Client has connections of
its own in each process.
"""
from __future__ import annotations

import argparse
import array
import asyncio
import base64
import collections.abc
import concurrent.futures
import contextlib
import functools
import http.client
import json
import logging
import math
import numbers
import os
import random
import select
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse
import uuid
import weakref
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, TypedDict

try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from types import TracebackType
    from typing import (AsyncIterator, Callable, Iterable, Iterator, Literal, Mapping, Sequence,
                        Type, Union, overload)

    from numpy.typing import NDArray

    TensorLike = Any  # what the opening of this file lists
    Step = Union[TensorLike, Dict[str, Any]]  # rows, or fields of an item
    Headers = Mapping[str, str]

__all__ = ["Client", "AsyncClient", "Session", "AsyncSession", "Reply", "ModelInfo", "SessionInfo",
           "AttnError", "InvalidRequest", "InvalidArgument", "Unauthorized", "NotFound", "Conflict",
           "SessionLost", "Busy", "Unavailable", "ConnectionLost"]

_log = logging.getLogger("attn_client")


# ---- Errors ------------------------------------------------------------------------------------

class AttnError(Exception):
    """A request that failed.  Decide by `code` (docs/API.md, "Errors"); `message` is for people.

    status       HTTP status; 0 without an answer, and for an item of a list
    param        the field at fault, or None
    retryable    whether the same request may succeed later
    length       with `position_conflict` and `position_gap` the true length of the layer, with
                 `revision_mismatch` that of the layer or of the longest, else None
    lowest_length  with `position_forgotten` the least length, beside 0, to which the session can be
                   truncated or forked, else None; with `position_conflict` where there is one
    epoch, revision  with `revision_mismatch` those that the session has, else None
    request_id   the request in attnd's log, or None
    retry_after  seconds that the reply asked to wait, or None
    owner        with `wrong_instance` the shard that the session's id names, else None
    """

    def __init__(self, code: str, message: str, **facts: Any) -> None:
        self.code, self.message = code, message
        self.status: int = facts.get("status", 0)
        self.param: Optional[str] = facts.get("param")
        self.retryable, self.ours = bool(facts.get("retryable")), False
        self.length: Optional[int] = facts.get("length")
        self.lowest_length: Optional[int] = facts.get("lowest_length")
        self.epoch: Optional[int] = facts.get("epoch")
        self.revision: Optional[int] = facts.get("revision")
        self.request_id: Optional[str] = facts.get("request_id")
        self.retry_after: Optional[float] = facts.get("retry_after")
        self.owner: Optional[str] = facts.get("owner")
        super().__init__(f"{code}: {message}" +
                         (f" (request {self.request_id})" if self.request_id else ""))

    def __reduce__(self) -> Tuple[Any, ...]:
        return _unpickled, (type(self), self.args, vars(self))


def _unpickled(kind: Type[AttnError], arguments: Tuple[Any, ...], facts: Any) -> AttnError:
    """An error that another process raised."""
    error = kind.__new__(kind, *arguments)
    vars(error).update(facts)
    return error


class InvalidRequest(AttnError):
    """3xx, 400, 405 to 422, 431, where no other class says it: the request is wrong, and would be
    wrong again."""


class InvalidArgument(InvalidRequest, ValueError):
    """What this client refuses to send, code `invalid_argument`; `param` names it."""

    def __init__(self, param: str, why: str) -> None:
        super().__init__("invalid_argument", f"{param}: {why}", param=param)


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
    """No answer: refused, reset or timed out; of code `bad_reply`, one that is not attnd's; of code
    `cancelled`, none is waited for.  A request that was `sent` may have been applied."""

    def __init__(self, reason: Union[str, BaseException], sent: bool,
                 code: str = "connection_lost") -> None:
        lost = code == "connection_lost" and not isinstance(reason, ssl.SSLCertVerificationError)
        super().__init__(code, str(reason) or type(reason).__name__, retryable=lost)
        self.sent = sent


_CLASSES = {0: AttnError, 401: Unauthorized, 403: Unauthorized, 404: NotFound, 409: Conflict,
            410: SessionLost, 429: Busy}
_MOVING = ("wrong_instance", "draining")  # errors of a session that is on its way
_GONE = ("session_not_found", "session_lost", "epoch_mismatch")  # of a session that is to end


def _bad_reply(why: str) -> ConnectionLost:
    return ConnectionLost(f"{why}: is this attnd?", True, "bad_reply")


def _error_of(body: Any, status: int, headers: Optional[Headers] = None) -> AttnError:
    """The exception of a reply's JSON, which a proxy may have written."""
    headers, told = headers or {}, body.get("error") if isinstance(body, dict) else None
    ours = isinstance(told, dict) and isinstance(told.get("code"), str)
    facts: Dict[str, Any] = dict(told or {}) if ours else {"retryable": status in (502, 503, 504)}
    after = headers.get("Retry-After") or ""
    facts.update(status=status, retry_after=float(after) if after.isdecimal() else None)
    facts.setdefault("request_id", headers.get("X-Request-Id"))
    code, message = facts.pop("code", f"http_{status}"), facts.pop("message", "not from attnd")
    if status < 400 and not ours and status != 0:
        place = (headers.get("Location") or "nowhere").partition("?")[0][:200]
        message = f"redirected to {place}, which is not followed: is this the URL of attnd?"
    kind = _CLASSES.get(status) or \
        (Unavailable if status >= 500 or code in _MOVING else InvalidRequest)
    error = kind(code, message, **facts)
    # config/haproxy/haproxy.cfg has errors of this form; with these two a request may have been applied.
    error.ours = ours and (status not in (502, 504) or code == "deadline_exceeded")
    return error


# ---- Replies -----------------------------------------------------------------------------------

class LayerLength(TypedDict):
    """Tokens of a layer."""
    layer: int
    length: int


class _SessionNamed(TypedDict):
    session_id: str


class SessionInfo(_SessionNamed, total=False):
    """A session, as GET /sessions/{id} has it; a list of sessions may have less of each."""
    model: Optional[str]
    epoch: int
    revision: int
    max_length: int
    ttl_s: int
    idle_s: float
    bytes: int
    lengths: List[LayerLength]
    lowest_length: int


class _ModelNamed(TypedDict):
    name: str
    hidden_size: int


class ModelInfo(_ModelNamed, total=False):
    """A model, as GET /models/{name} has it; docs/API.md, "Models", has more members."""
    family: str
    stack: Optional[str]
    random: bool
    num_layers: int
    resident_layers: List[int]
    max_position: int
    max_length: int
    dtype: str
    kv_dtype: str
    parameters: int
    fingerprint: str
    key_size: int
    value_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    value_head_dim: int
    is_causal: bool
    is_cross: bool
    differing_layers: List[Dict[str, Any]]


class Reply(Dict[str, Any]):
    """The members of a reply, tensors as arrays.

    request_id  names the request in attnd's log
    timing      milliseconds by stage, as `Server-Timing` has them: parse, queue, compute, write
    """
    request_id: Optional[str] = None
    timing: Dict[str, float] = {}

    if TYPE_CHECKING:
        @overload
        def __getitem__(self, name: Literal[
            "output", "attention_weights", "attention_scores", "lse", "key", "value", "query",
            "head_output", "concat"]) -> NDArray[Any]: ...

        @overload
        def __getitem__(self, name: Literal["position", "length", "epoch", "revision"]) -> int: ...

        @overload
        def __getitem__(self, name: Literal["session_id"]) -> str: ...

        @overload
        def __getitem__(self, name: str) -> Any: ...

        def __getitem__(self, name: str) -> Any: ...


# ---- Tensors -----------------------------------------------------------------------------------

# Fields that hold tensors, with the datatype that they are sent in.
_TENSORS = {
    "hidden_states": "FP32", "encoder_hidden_states": "FP32", "key_hidden_states": "FP32",
    "value_hidden_states": "FP32", "query": "FP32", "key": "FP32", "value": "FP32",
    "past_key": "FP32", "past_value": "FP32", "attention_bias": "FP32", "head_mask": "FP32",
    "position_ids": "INT64", "query_offset": "INT64", "sliding_window": "INT64", "heads": "INT64",
    "grid": "INT64", "rows": "INT64", "pool": "INT64", "targets": "INT64", "padding_mask": "BOOL",
    "attention_mask": "BOOL", "encoder_padding_mask": "BOOL"}
# Members of a reply that are tensors; `index` and `weight` are those of `top_k`.
_OUTPUTS = {"output": "FP32", "attention_weights": "FP32", "attention_scores": "FP32",
            "lse": "FP32", "key": "FP32", "value": "FP32", "query": "FP32", "head_output": "FP32",
            "concat": "FP32", "index": "UINT32", "weight": "FP32"}
_FORMATS = {"FP32": "f", "FP16": "e", "BF16": "H", "INT64": "q", "INT32": "i", "UINT32": "I",
            "BOOL": "?", "UINT8": "B"}
_SAME = {"FP32": ("FP32", "FP16"), "INT64": ("INT64", "INT32"), "BOOL": ("BOOL",),
         "UINT32": ("UINT32",)}
_KINDS = {"FP32": "fiu", "INT64": "iu", "UINT32": "iu", "BOOL": "biu"}
_ALIGNMENT = 64  # of the first tensor within a body
Packed = Tuple[str, List[int], bytes]  # datatype, shape, little-endian bytes


def _layout(datatype: str, data: Any) -> str:
    """The format, for `struct`, of little-endian bytes."""
    return f"<{len(data) // struct.calcsize('=' + _FORMATS[datatype])}{_FORMATS[datatype]}"


def _shape_of(value: Any) -> List[int]:
    if not isinstance(value, (list, tuple)):
        return []
    return [len(value)] + (_shape_of(value[0]) if value else [])


def _flat(value: Any, shape: List[int]) -> List[Any]:
    """The numbers of nested lists in row-major order."""
    if isinstance(value, (list, tuple)) != bool(shape) or shape and len(value) != shape[0]:
        raise ValueError("nested lists of unequal length")
    if not shape:
        return [-math.inf if value is None else value]
    return [number for item in value for number in _flat(item, shape[1:])]


def _plain(value: Any) -> Any:
    """The value as an array or as nested lists of numbers: arrays within lists are put together."""
    if isinstance(value, range):
        return list(value)
    if isinstance(value, (list, tuple)):
        if not value or value[0] is None or isinstance(value[0], numbers.Number):
            return value
        items = [_plain(item) for item in value]
        if numpy is None or all(isinstance(item, (list, tuple, numbers.Number)) for item in items):
            return [item.tolist() if isinstance(item, memoryview) else item for item in items]
        arrays = [numpy.asarray(item) for item in items]
        if len({item.dtype.kind == "b" for item in arrays}) > 1:
            raise TypeError("booleans among numbers")
        return numpy.stack(arrays)
    if callable(getattr(value, "detach", None)):  # a tensor of torch, which may be on a device
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    if numpy is None:
        return memoryview(value)
    if isinstance(value, numpy.ma.MaskedArray) and numpy.asarray(value.mask).any():
        raise TypeError("a masked array, whose mask attnd would not see: fill it, or give the mask "
                        "as attention_mask or padding_mask")
    return numpy.asarray(value)


def _stated(tensor: Dict[str, Any], datatype: str) -> Packed:
    """A tensor as the API has it; bits of 16-bit numbers where its datatype says so."""
    if not {"shape", "data"} <= tensor.keys() <= {"shape", "data", "datatype"}:
        raise TypeError("a dict is a tensor where it has shape and data")
    shape, data = [int(size) for size in tensor["shape"]], _plain(tensor["data"])
    kind = tensor.get("datatype")
    if datatype == "FP32" and kind in ("BF16", "FP16"):
        view = memoryview(data)
        if view.format != "H":
            raise TypeError(f"data of {kind} is its bits: uint16")
        packed = struct.pack(f"<{view.nbytes // 2}H", *view.cast("B").cast("H"))
    else:
        kind, _, packed = _pack(data, datatype)
    if math.prod(shape) * struct.calcsize("=" + _FORMATS[kind]) != len(packed):
        raise ValueError(f"data does not make the shape {shape}")
    return kind, shape, packed


def _pack(value: Any, datatype: str) -> Packed:
    """The tensor as it is sent; FP16, BF16 and INT32 stay what they are."""
    if isinstance(value, dict):
        return _stated(value, datatype)
    value = _plain(value)
    if numpy is not None and not isinstance(value, (list, tuple)):
        if datatype == "FP32" and value.dtype.name == "bfloat16":  # of ml_dtypes
            bits = numpy.ascontiguousarray(value).view(numpy.uint16)
            return "BF16", list(value.shape), bits.astype("<u2").tobytes()
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
        for name in _SAME[datatype]:
            if value.format == _FORMATS[name] and sys.byteorder == "little":
                return name, list(value.shape), value.tobytes()
        value = value.tolist()
    shape = _shape_of(value)
    flat = _flat(value, shape)
    if datatype == "BOOL" and any(number not in (0, 1) for number in flat):
        raise ValueError("a mask holds 1 (may attend) and 0, nothing else")
    if datatype != "BOOL" and any(isinstance(number, bool) for number in flat):
        raise TypeError(f"booleans where {datatype} is wanted")
    return datatype, shape, struct.pack(f"<{len(flat)}{_FORMATS[datatype]}", *flat)


def _unpack(datatype: str, shape: List[int], data: Any) -> Any:
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


def _widen(entry: Dict[str, Any], data: Any) -> Any:
    """The float32 numbers that the bytes of maps stand for, of which each map has a range."""
    shape = entry["shape"]
    size, ranges = math.prod(shape[-2:]), [entry["minimum"], entry["maximum"]]
    least, most = (_flat(ends, _shape_of(ends)) for ends in ranges)
    if numpy is not None:
        maps = numpy.frombuffer(data, numpy.uint8).reshape(len(least), size)
        low, high = (numpy.array(ends)[:, None] for ends in (least, most))
        return (low + (high - low) * maps / 255).astype(numpy.float32).reshape(shape)
    widened = array.array("f", (low + (high - low) * byte / 255
                                for low, high, first in zip(least, most, range(0, len(data), size))
                                for byte in data[first:first + size]))
    return memoryview(widened.tobytes()).cast("f", shape)


def _numbers(datatype: str, data: bytes) -> List[Any]:
    """The numbers of packed bytes for JSON, in which null is minus infinity."""
    if datatype == "BF16":  # the upper half of a float32
        data = b"".join(b"\0\0" + data[place:place + 2] for place in range(0, len(data), 2))
        datatype = "FP32"
    found = [None if value == -math.inf else value
             for value in struct.unpack(_layout(datatype, data), data)]
    if datatype in ("FP32", "FP16") and not all(value is None or math.isfinite(value)
                                                for value in found):
        raise ValueError("JSON has neither NaN nor infinity")
    return found


def _json_of(value: Any) -> Any:
    """What JSON has for a value of Python or numpy that json does not know."""
    if isinstance(value, collections.abc.Set):
        return sorted(value)
    if isinstance(value, range):
        return list(value)
    if callable(getattr(value, "tolist", None)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is nothing that JSON has")


def _document(fields: Mapping[str, Any], tensors: Optional[List[bytes]],
              where: str = "") -> Dict[str, Any]:
    """The JSON of fields.  Bytes of tensors are appended to `tensors`; None: they are in the JSON.
    Masks come last, so that all FP32 stays aligned."""
    made: Dict[str, Any] = {}
    for name in sorted(fields, key=lambda name: _TENSORS.get(name) == "BOOL"):
        value = fields[name]
        try:
            if value is None:
                continue
            if name == "sequences":
                made[name] = [_document(item, tensors, f"sequences[{number}].")
                              for number, item in enumerate(value)]
            elif name not in _TENSORS or isinstance(value, numbers.Number):
                json.dumps(value, default=_json_of, allow_nan=False)  # fails where `name` is known
                made[name] = value
            else:
                datatype, shape, data = _pack(value, _TENSORS[name])
                if tensors is None:
                    made[name] = {"shape": shape, "data": _numbers(datatype, data),
                                  "datatype": "FP32" if datatype == "BF16" else datatype}
                else:
                    made[name] = {"shape": shape, "datatype": datatype,
                                  "binary_data_size": len(data)}
                    tensors.append(data)
        except AttnError:
            raise
        except (TypeError, ValueError, OverflowError, AttributeError, RuntimeError,
                struct.error) as error:
            raise InvalidArgument(where + name, str(error)) from error
    return made


def _body_of(fields: Mapping[str, Any], binary: bool) -> Tuple[bytes, int]:
    """(body, length of its JSON) of a call."""
    tensors: Optional[List[bytes]] = [] if binary else None
    head = json.dumps(_document(fields, tensors), default=_json_of).encode()
    if tensors:
        head += b" " * (-len(head) % _ALIGNMENT)
    return b"".join([head, *(tensors or [])]), len(head)


def _reply_of(headers: Headers, data: Any) -> Reply:
    """The Reply of a body in JSON or in binary form; what is not attnd's is a `bad_reply`."""
    try:
        return _parsed(headers, data)
    except (ValueError, TypeError, KeyError, struct.error, RecursionError) as error:
        raise _bad_reply(f"the reply is not as attnd writes it ({error})") from error


def _parsed(headers: Headers, data: Any) -> Reply:
    size = headers.get("Inference-Header-Content-Length")
    length = int(size) if size else len(data)
    view, offset = memoryview(data), length

    def member(name: str, value: Any) -> Any:
        nonlocal offset
        if isinstance(value, dict) and "binary_data_size" in value:
            width = struct.calcsize("=" + _FORMATS[value["datatype"]])
            begin = offset + (length - offset) % width
            offset = begin + value["binary_data_size"]
            if offset > len(view):
                raise _bad_reply("the reply is shorter than its tensors")
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
        raise _bad_reply("the reply is not JSON") from error
    reply = Reply(member("", made))
    reply.request_id = headers.get("X-Request-Id")
    stages = (part.split(";dur=") for part in (headers.get("Server-Timing") or "").split(", "))
    reply.timing = {stage[0]: float(stage[1]) for stage in stages if len(stage) == 2}
    return reply


def _has(reply: Any, **members: Any) -> Any:
    """The reply, where its members are of these types."""
    for name, kind in members.items():
        if not isinstance(reply, dict) or not isinstance(reply.get(name), kind):
            raise _bad_reply(f"the reply has no `{name}`")
    return reply


# ---- Calls -------------------------------------------------------------------------------------

class _Stop:
    """Ends the call of one thread from another: wakes it up, and lets it send nothing more."""

    def __init__(self) -> None:
        self._event, self._lock = threading.Event(), threading.Lock()
        self._socket: Optional[socket.socket] = None

    def set(self) -> None:
        """Ends the call."""
        self._event.set()
        with self._lock:
            self._wake()

    def waits_for(self, sock: Optional[socket.socket]) -> None:
        """Notes what the call waits for from now on."""
        with self._lock:
            self._socket = sock
            if self._event.is_set():
                self._wake()

    def _wake(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.settimeout(1e-3)  # where it has not begun to wait
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # that of TLS would wait

    def pause(self, seconds: float) -> None:
        """Sleeps; raises where the call is to end."""
        if self._event.wait(seconds):
            raise ConnectionLost("the call was cancelled", False, "cancelled")


class _Calls(threading.local):
    """What the calls of this thread heed."""
    stop: Optional[_Stop] = None


_calls = _Calls()
_made: weakref.WeakSet[Any] = weakref.WeakSet()  # what a forked process must not share


class _Connection(http.client.HTTPConnection):
    """A connection whose opening ends with the call that waits for it."""

    def connect(self) -> None:
        """Opens it, to the first address that answers."""
        failure: Optional[OSError] = None
        for family, kind, protocol, _, address in socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM):
            if _calls.stop is not None:
                _calls.stop.pause(0)
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(self.timeout)
                if _calls.stop is not None:
                    _calls.stop.waits_for(sock)
                sock.connect(address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                sock.close()
                failure = error
            else:
                self.sock = sock
                return
        raise failure or OSError(f"{self.host} has no address")


class _SecureConnection(http.client.HTTPSConnection, _Connection):
    """The same with TLS."""


def _forked() -> None:
    for item in list(_made):
        item._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _pause(seconds: float) -> None:
    """Sleeps, unless the call of this thread is to end."""
    if _calls.stop is not None:
        _calls.stop.pause(seconds)
    else:
        time.sleep(seconds)


def _quoted(name: str, param: str = "session_id") -> str:
    """A name as part of a path; an id that is none finds nothing, instead of another path."""
    if not isinstance(name, str):
        raise InvalidArgument(param, f"{name!r} is no text")
    return urllib.parse.quote(name, safe="")


def _naming(session_id: Optional[str]) -> Dict[str, str]:
    """The header by which a proxy finds the shard of a session; none for None and what is no id."""
    if not isinstance(session_id, str) or _quoted(session_id) != session_id:
        return {}
    return {"X-Session-Id": session_id}


def _shard(session_id: str) -> str:
    """The name of the shard that an id begins with; "" for an id that names none."""
    return session_id.partition(".")[0] if "." in session_id else ""


def _error_in(item: Any) -> Optional[AttnError]:
    """The error of an item of a reply, or of its request; None of one that succeeded."""
    if isinstance(item, AttnError):
        return item
    if not isinstance(item, dict):
        raise _bad_reply("an item of the reply is no object")
    return _error_of(item, 0) if "error" in item else None


def _code_of(item: Any) -> Optional[str]:
    """The code of an item's error; None of other replies."""
    error = None if isinstance(item, AttnError) else _error_in(item)
    return None if error is None else error.code


def _was_closed(sock: socket.socket) -> bool:
    """Whether a kept connection has bytes or an end to read, of which no request is the cause."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([sock], [], [], 0)[0])


def _seconds(name: str, value: Any, least: float = 0.0) -> float:
    """A number of seconds; raises where it is none."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or \
            not least <= float(value) < threading.TIMEOUT_MAX:
        raise InvalidArgument(name, f"{value!r} is no number of seconds")
    return float(value)


def _authorization(parts: urllib.parse.SplitResult, api_key: Optional[str]) -> Dict[str, str]:
    """The header that says who calls: of an API key, or of the URL's user and password."""
    if api_key is not None:
        key = str(api_key).strip()  # of a file, which ends with a line break
        if not all("!" <= letter <= "~" for letter in key):
            raise InvalidArgument("api_key", "it holds a character that no header can")
        if parts.username is not None:
            raise InvalidArgument("url", "its user stands where api_key would: give one of them")
        return {"Authorization": f"Bearer {key}"} if key else {}
    if parts.username is None:
        return {}
    names = (urllib.parse.unquote(part or "") for part in (parts.username, parts.password))
    return {"Authorization": "Basic " + base64.b64encode(":".join(names).encode()).decode()}


def _connector(url: str, cafile: Optional[str], context: Optional[ssl.SSLContext]
               ) -> Tuple[urllib.parse.SplitResult, Callable[[], http.client.HTTPConnection]]:
    """The parts of a URL, and what makes a connection to it."""
    shown = url.rpartition("@")[2]  # without a password
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidArgument("url", f"{shown}: {error}") from None
    if parts.scheme not in ("http", "https") or not host or set(url) & set(" \t\r\n"):
        raise InvalidArgument("url", f"no http:// or https:// URL: {shown!r}")
    if parts.scheme == "http":
        return parts, functools.partial(_Connection, host, port or 80)
    try:
        context = context or ssl.create_default_context(cafile=cafile)
    except OSError as error:
        raise InvalidArgument("cafile", f"{cafile}: {error}") from error
    return parts, functools.partial(_SecureConnection, host, port or 443, context=context)


# ---- Client ------------------------------------------------------------------------------------

class Client:
    """Calls of one attnd; connections are kept.  Threads may share it, and processes that are
    forked: each has connections of its own.

    url          http:// or https://, host, port, and the path before attnd's, if a proxy adds one;
                 a user and password are sent as a proxy's login (Basic)
    api_key      of docs/OPERATIONS.md, "API keys"
    timeout      seconds that a connection may stay silent; None: for ever
    retry_s      seconds for which a request is repeated; 0: sent once.  Until a first answer has
                 come, a refused connection is an error at once: see `wait_until_ready`
    binary       False: tensors travel as JSON
    deadline_ms  after which attnd no longer computes an answer; a reply that is late is not retried
    cafile       certificates to trust instead of the system's; `context`: an ssl.SSLContext

    Most methods take `timeout=`: of this call, seconds after which it ends whatever is retried.
    A Client pickles, with its API key, unless it has a `context`.
    """

    def __init__(self, url: str = "http://127.0.0.1:8080", *, api_key: Optional[str] = None,
                 timeout: Optional[float] = 60.0, retry_s: float = 30.0, binary: bool = True,
                 deadline_ms: Optional[int] = None, cafile: Optional[str] = None,
                 context: Optional[ssl.SSLContext] = None) -> None:
        parts, self._connect = _connector(str(url), cafile, context)
        self._options = {"url": str(url), "api_key": api_key, "deadline_ms": deadline_ms,
                         "cafile": cafile}
        self._picklable = context is None
        self._base, self.binary = parts.path.rstrip("/"), binary
        self.retry_s = _seconds("retry_s", retry_s)
        self.timeout = None if timeout is None else _seconds("timeout", timeout, 1e-3)
        self._headers = _authorization(parts, api_key)
        if deadline_ms is not None:
            if isinstance(deadline_ms, bool) or not isinstance(deadline_ms, numbers.Integral):
                raise InvalidArgument("deadline_ms", f"{deadline_ms!r} is no whole number")
            self._headers["X-Deadline-Ms"] = str(deadline_ms)
        self._idle: List[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._sharded = False  # a list goes to each shard apart, once one was in the wrong place
        self._answered = False  # a server that was never reached is not waited for
        _made.add(self)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Tuple[Any, ...]:
        if not self._picklable:
            raise TypeError("a Client with a context does not pickle, since no ssl.SSLContext does:"
                            " give cafile instead, or make the Client where it is used")
        options: Dict[str, Any] = {**self._options, "binary": self.binary,
                                   "retry_s": self.retry_s, "timeout": self.timeout}
        return functools.partial(type(self), **options), ()

    def _forked(self) -> None:
        """In a forked process: the connections are the other process's."""
        self._lock = threading.Lock()  # which a thread of the other process may hold
        self.close()

    def close(self) -> None:
        """Closes the kept connections.  Sessions stay."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> http.client.HTTPConnection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connect()
            if connection.sock is not None and not _was_closed(connection.sock):
                return connection
            connection.close()

    def _exchange(self, method: str, path: str, headers: Headers, body: Optional[bytes],
                  timeout: Optional[float]) -> Tuple[int, Any, bytearray]:
        connection, sent, stop = self._take(), False, _calls.stop
        connection.timeout = timeout
        try:
            if connection.sock is None:
                connection.connect()
            sock: Any = connection.sock
            sock.settimeout(timeout)
            if stop is not None:
                stop.waits_for(sock)
            sent = True
            # A refusal may be there to read, though the body was not taken.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, self._base + path, body, headers)
            response = connection.getresponse()
            data = bytearray(response.length or 0)
            if data and response.readinto(data) < len(data):  # read() misses an end before any byte
                raise http.client.IncompleteRead(b"", len(data))
            data += response.read()  # the rest of a reply without a length; else its end is noted
        except (http.client.InvalidURL, UnicodeError) as error:
            connection.close()
            raise InvalidArgument("path", f"{path!r} is no path") from error
        except (OSError, http.client.HTTPException) as reason:
            connection.close()
            raise ConnectionLost(reason, sent) from reason
        except BaseException:
            connection.close()
            raise
        finally:
            if stop is not None:
                stop.waits_for(None)
        self._answered = True
        if response.will_close:
            connection.close()
        else:
            with self._lock:
                self._idle.append(connection)
        return response.status, response.headers, data

    def request(self, method: str, path: str, body: Optional[bytes] = None,
                headers: Optional[Headers] = None, *, again: bool = True,
                retry_s: Optional[float] = None, timeout: Optional[float] = None
                ) -> Tuple[Headers, bytearray]:
        """(headers, body) of a reply below 300; raises AttnError.  `again`: whether sending the
        request a second time has no other effect than sending it once."""
        retry_s = self.retry_s if retry_s is None else retry_s
        headers = {**self._headers, **(headers or {})}
        begin, wait = time.monotonic(), 0.05
        until, end = begin + retry_s, math.inf
        if timeout is not None:
            end = begin + _seconds("timeout", timeout, 1e-3)
            until = min(until, end)
        while True:
            if _calls.stop is not None:
                _calls.stop.pause(0)
            silence = self.timeout if timeout is None else max(end - time.monotonic(), 1e-3)
            error: AttnError
            try:
                status, received, data = self._exchange(method, path, headers, body or None,
                                                        silence)
                if status < 300:
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
            _log.info("%s %s is sent again in %.2f s: %s", method, path, pause, error)
            _pause(pause)
            wait = min(2 * wait, 2.0)

    def _call(self, path: str, fields: Dict[str, Any], lead: Optional[str] = None,
              timeout: Optional[float] = None) -> Reply:
        """`lead`: of a list, one of its sessions."""
        body, length = _body_of({**fields, "binary_output": self.binary}, self.binary)
        session_id = fields.get("session_id")
        headers = {"Content-Type": "application/json"}
        if self.binary:
            headers = {"Content-Type": "application/octet-stream",
                       "Inference-Header-Content-Length": str(length)}
        headers.update(_naming(session_id if session_id is not None else lead))
        # A start over encoder rows that is sent again goes to the session that it has made.
        again = all(item.get("session_id") is None or
                    item.get("position") is not None and not item.get("start") or
                    item.get("encoder_hidden_states") is not None
                    for item in fields.get("sequences") or [fields])
        return _reply_of(*self.request("POST", path, body, headers, again=again, timeout=timeout))

    def _post(self, path: str, fields: Dict[str, Any], once: bool = False,
              session_id: Optional[str] = None, timeout: Optional[float] = None) -> Reply:
        body, length = _body_of(fields, self.binary)
        headers = {"Content-Type": "application/json"}
        if length < len(body):
            headers = {"Content-Type": "application/octet-stream",
                       "Inference-Header-Content-Length": str(length)}
        if once:
            headers["Idempotency-Key"] = uuid.uuid4().hex
        headers.update(_naming(session_id))
        return _reply_of(*self.request("POST", path, body, headers, timeout=timeout))

    def get(self, path: str, session_id: Optional[str] = None, *,
            timeout: Optional[float] = None) -> Reply:
        """The JSON of a GET; `session_id`: of the session in the path."""
        return _reply_of(*self.request("GET", path, headers=_naming(session_id), timeout=timeout))

    def attend(self, hidden_states: TensorLike = None, *, timeout: Optional[float] = None,
               **fields: Any) -> Reply:
        """Attention over given rows; no session.  Returns a Reply of the named `outputs`.

        hidden_states  [T,E] or [B,T,E], for `model` and `layer`; or instead of it
        query, key, value  [H,T,D], [G,S,D], [G,S,Dv], each with or without [B], without a model
        outputs        names out of output [B,T,E], attention_weights and attention_scores
                       [B,H,T,S], lse [B,H,T], key and value [B,G,S,D], head_stats,
                       query [B,H,T,D], head_output [B,H,T,Dv], concat [B,T,H*Dv]

        Every other field of docs/API.md, "Fields", is taken under its name: attention_mask,
        padding_mask, attention_bias, is_causal, heads, rows, top_k, ...
        """
        reply = self._call("/attend", {"hidden_states": hidden_states, **fields}, timeout=timeout)
        for name in fields.get("outputs") or ("output",):
            if name not in reply:
                raise _bad_reply(f"the reply has no `{name}`")
        return reply

    def step_many(self, steps: Iterable[Tuple[Session, Step]], layer: int = 0, *,
                  timeout: Optional[float] = None, **fields: Any
                  ) -> List[Union[Reply, AttnError]]:
        """One step of each of several sessions in one request.

        steps  pairs of a Session and its rows ([E] or [n,E]), or a dict of fields: query, key and
               value for a session without weights, or hidden_states, and whatever else is its own.
               The sessions are distinct, and of one model or of none.  `fields` stand in every
               item that does not have them.
        Returns as many Replies or AttnErrors, in the same order.  Where sessions are on several
        shards, each of these gets a request, and an error of one stands for each of its steps.
        """
        steps = list(steps)
        sessions = [session for session, _ in steps]
        if len({session.session_id for session in sessions}) != len(sessions):
            raise InvalidArgument("steps", "a session stands twice")
        with _alone(sessions):
            items = [{**session.place(layer), **fields,
                      **(rows if isinstance(rows, dict) and not {"shape", "data"} <= rows.keys()
                         else {"hidden_states": rows})}
                     for session, rows in steps]

            def ask(places: List[int]) -> List[Any]:
                sent = {"layer": layer, "sequences": [items[place] for place in places]}
                made = self._call("/decode", sent, items[places[0]]["session_id"], timeout)
                return list(_has(made, sequences=list)["sequences"])

            replies = self._ask_shards([item["session_id"] for item in items], ask)
            return [session.took(layer, reply) for session, reply in zip(sessions, replies)]

    def batch(self, fork: Iterable[Union[Session, Tuple[Session, Dict[str, Any]]]] = (),
              end: Iterable[Session] = (), *, timeout: Optional[float] = None
              ) -> Tuple[List[Union[Session, AttnError]], List[Optional[AttnError]]]:
        """Forks and ends sessions, up to 64 of each, in one request: first all forks.

        fork  Sessions, or pairs of one and a dict of `session_id`, `length`, as of Session.fork
        end   Sessions; one that is gone already is no error
        Returns for each fork a Session or an AttnError, and for each end None or an AttnError, in
        the same order: one that fails does not stop the others.  Shards are as for `step_many`.
        """
        pairs = [item if isinstance(item, tuple) else (item, {}) for item in fork]
        ends = list(end)
        with _alone([session for session, _ in pairs] + ends):
            items: List[Dict[str, Any]] = [
                {**fields, "from": session.session_id, **session.claim()}
                for session, fields in pairs]
            items += [{"session_id": session.session_id, "epoch": session.epoch}
                      for session in ends]
            ids = [item.get("from") or item["session_id"] for item in items]

            def ask(places: List[int]) -> List[Any]:
                sent = {"fork": [items[place] for place in places if place < len(pairs)],
                        "delete": [items[place] for place in places if place >= len(pairs)]}
                made = self._post("/sessions/batch", {name: of for name, of in sent.items() if of},
                                  True, ids[places[0]], timeout)
                return [item for name, of in sent.items() if of
                        for item in _has(made, **{name: list})[name]]

            replies = self._ask_shards(ids, ask) if items else []
            errors = [_error_in(reply) for reply in replies]
            return ([error or Session(self, reply)
                     for error, reply in zip(errors[:len(pairs)], replies)],
                    [None if error is not None and error.code in _GONE else error
                     for error in errors[len(pairs):]])

    def _lists(self, ids: List[str], places: Iterable[int]) -> List[List[int]]:
        """The places of items by request: all in one, until an item turns out to be elsewhere."""
        lists: Dict[str, List[int]] = {}
        for place in places:
            lists.setdefault(_shard(ids[place]) if self._sharded else "", []).append(place)
        return list(lists.values())

    def _ask_shards(self, ids: List[str], ask: Callable[[List[int]], List[Any]]) -> List[Any]:
        """Replies to items of the sessions `ids`, or the AttnError of their request where it is one
        of several; those of sessions that are on their way are asked for again."""
        until, wait = time.monotonic() + self.retry_s, 0.05
        replies: List[Any] = [None] * len(ids)
        asked = list(range(len(ids)))
        while True:
            for places in self._lists(ids, asked):
                try:
                    made = ask(places)
                    if len(made) != len(places):
                        raise _bad_reply(f"the reply has {len(made)} items for {len(places)}")
                except AttnError as error:
                    if len(places) == len(ids):
                        raise
                    made = [error] * len(places)
                for place, reply in zip(places, made):
                    replies[place] = reply
            asked = [place for place in asked if _code_of(replies[place]) in _MOVING]
            if not asked or time.monotonic() + wait > until:
                return replies
            if not self._sharded and "wrong_instance" in map(_code_of, replies):
                self._sharded = True
                continue
            _log.info("%d of %d items are sent again: their sessions are on their way", len(asked),
                      len(ids))
            _pause(wait * random.uniform(0.5, 1))
            wait = min(2 * wait, 2.0)

    def session(self, session_id: Optional[str] = None, *, timeout: Optional[float] = None,
                **fields: Any) -> Session:
        """A new Session.  fields: model, max_length, ttl_s, shared; for one of cross-attention
        encoder_hidden_states [S,Ek] and encoder_padding_mask [S]; or, for one without weights,
        num_attention_heads, head_dim and what else docs/API.md has of its shape."""
        fields["session_id"] = session_id
        return Session(self, self._post("/sessions", fields, True, session_id, timeout))

    def start(self, encoder_hidden_states: TensorLike, hidden_states: TensorLike, layer: int = 0,
              session_id: Optional[str] = None, *, timeout: Optional[float] = None,
              **fields: Any) -> Session:
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
            session = self.session(encoder_hidden_states=encoder_hidden_states, timeout=timeout,
                                   **made)
            try:
                session.first = session.decode(hidden_states, layer, timeout=timeout, **fields)
            except BaseException as error:  # nobody else knows the id
                session.__exit__(type(error), error, None)
                raise
            return session
        fields = {"session_id": session_id, "start": True, "layer": layer,
                  "encoder_hidden_states": encoder_hidden_states, "hidden_states": hidden_states,
                  **fields}
        first = self._call("/decode", fields, timeout=timeout)
        session = self.open(session_id, timeout=timeout)
        session.first = first
        return session

    def open(self, session_id: str, *, timeout: Optional[float] = None) -> Session:
        """A Session that is there.  Leaving its `with` block ends it, unless `keep` is set."""
        return Session(self, self.get(f"/sessions/{_quoted(session_id)}", session_id,
                                      timeout=timeout))

    def restore(self, session_id: str, state: bytes, *, timeout: Optional[float] = None) -> Session:
        """A Session of the bytes that Session.export gave; not sent again if the answer is lost."""
        headers = {"Content-Type": "application/octet-stream", **_naming(session_id)}
        return Session(self, _reply_of(*self.request(
            "PUT", f"/sessions/{_quoted(session_id)}/state", state, headers, again=False,
            timeout=timeout)))

    def _page(self, limit: int, after: str) -> Tuple[List[SessionInfo], Optional[str]]:
        """A page of the list of sessions, and after which the next begins."""
        page = self.get(f"/sessions?limit={_quoted(str(limit))}" +
                        (f"&after={_quoted(after)}" if after else ""))
        _has(page, sessions=list, next=(str, type(None)))
        return page["sessions"], page["next"]

    def sessions(self, limit: int = 100) -> Iterator[SessionInfo]:
        """Iterates over all sessions, `limit` to a request."""
        after: Optional[str] = ""
        while after is not None:
            entries, after = self._page(limit, after)
            yield from entries

    def models(self, *, timeout: Optional[float] = None) -> List[ModelInfo]:
        """The models, as GET /models has them."""
        models: List[ModelInfo] = _has(self.get("/models", timeout=timeout), models=list)["models"]
        return models

    def model(self, name: str, *, timeout: Optional[float] = None) -> ModelInfo:
        """One model, as GET /models/{name} has it."""
        model: ModelInfo = _has(self.get(f"/models/{_quoted(name, 'name')}", timeout=timeout),
                                name=str)
        return model

    def ready(self) -> bool:
        """Whether requests are served now; asks once."""
        try:
            self.request("GET", "/readyz", retry_s=0)
        except (ConnectionLost, Unavailable):
            return False
        return True

    def wait_until_ready(self, seconds: float = 60) -> None:
        """Returns once requests are served; raises what hindered that after `seconds`."""
        until = time.monotonic() + seconds
        while True:
            try:
                self.request("GET", "/readyz", retry_s=0)
                return
            except (ConnectionLost, Unavailable):
                if time.monotonic() > until:
                    raise
            _pause(0.1)


@contextlib.contextmanager
def _alone(sessions: List[Session]) -> Iterator[None]:
    """No other call of these sessions meanwhile."""
    with contextlib.ExitStack() as locks:
        for session in sorted(sessions, key=lambda session: session.session_id):
            locks.enter_context(session.lock)
        yield


class Session:
    """Keys and values of one sequence in every layer of one model; a context manager that ends it.
    A session without weights takes query, key and value in place of hidden_states.

    session_id, model, epoch  as GET /sessions/{id} has them; model None: without weights
    revision  new at each truncation, as the last answer told it; None: of an attnd without them
    lengths  {layer: tokens}, as far as answers have told
    keep     True: leaving the `with` block does not end the session
    first    the Reply to the step that Client.start has made; else None

    A process that was forked within the block does not end the session by leaving it.
    """

    def __init__(self, client: Client, facts: Any) -> None:
        _has(facts, session_id=str, model=(str, type(None)), epoch=int, lengths=list)
        self.client, self.lock, self.keep = client, threading.RLock(), False
        self.session_id: str = facts["session_id"]
        self.model: Optional[str] = facts["model"]
        self.epoch: int = facts["epoch"]
        self.revision: Optional[int] = None
        self.first: Optional[Reply] = None
        self._process = os.getpid()
        self._note(facts)
        _made.add(self)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], *_: object) -> None:
        if self.keep or self._process != os.getpid():
            return
        if kind is None:
            self.end()
        else:  # another error is on its way, which this one must not hide or delay
            with contextlib.suppress(AttnError):
                self.end(retry_s=0)

    def __reduce__(self) -> Tuple[Any, ...]:
        raise TypeError("a Session does not pickle, since two processes would go on from one "
                        "length: hand over session_id, and take it up with Client.open")

    def _forked(self) -> None:
        self.lock = threading.RLock()  # which a thread of the other process may hold

    def _note(self, facts: Any) -> None:
        """Notes what an answer tells of the whole session."""
        _has(facts, lengths=list)
        self.revision = facts.get("revision")
        self.lengths: Dict[int, int] = {item["layer"]: item["length"] for item in facts["lengths"]}

    def claim(self) -> Dict[str, int]:
        """The members of a request that say which session the caller believes this to be."""
        known = {"revision": self.revision} if self.revision is not None else {}
        return {"epoch": self.epoch, **known}

    def place(self, layer: int) -> Dict[str, Any]:
        """The members of a step that say where it goes."""
        return {"session_id": self.session_id, "position": self.lengths.get(layer, 0),
                **self.claim()}

    def took(self, layer: int, reply: Any) -> Union[Reply, AttnError]:
        """Notes the length after a step; an error of an item becomes an AttnError."""
        error = _error_in(reply)
        if error is not None:
            return error
        self.lengths[layer] = _has(reply, length=int)["length"]
        self.revision = reply.get("revision", self.revision)
        return Reply(reply) if not isinstance(reply, Reply) else reply

    def _step(self, path: str, rows: TensorLike, layer: int, timeout: Optional[float],
              fields: Dict[str, Any]) -> Reply:
        with self.lock:
            fields = {**self.place(layer), "layer": layer, "hidden_states": rows, **fields}
            reply = self.took(layer, self.client._call(path, fields, timeout=timeout))
            if isinstance(reply, AttnError):
                raise reply
            return reply

    def prefill(self, hidden_states: TensorLike = None, layer: int = 0, *,
                timeout: Optional[float] = None, **fields: Any) -> Reply:
        """Appends rows [n,E] to a layer and attends over all it has.  Returns a Reply with
        `output` [n,E] or the named `outputs`, `position` and `length`.  Without weights: query
        [H,n,D], key [G,n,D] and value [G,n,Dv] for `output` [H,n,Dv]."""
        return self._step("/attend", hidden_states, layer, timeout, fields)

    def decode(self, hidden_states: TensorLike = None, layer: int = 0, *,
               timeout: Optional[float] = None, **fields: Any) -> Reply:
        """The same for one row [E] (its `output` is [E] too) or a few [n,E], batched by attnd with
        steps of other sessions.  Without weights one row is query [H,D], key [G,D], value [G,Dv].
        `commit=False` appends nothing."""
        return self._step("/decode", hidden_states, layer, timeout, fields)

    def refresh(self, *, timeout: Optional[float] = None) -> SessionInfo:
        """Reads `lengths` and `revision` again, after a Conflict; returns what GET /sessions/{id}
        does."""
        with self.lock:
            facts: Any = self.client.get(f"/sessions/{self.session_id}", self.session_id,
                                         timeout=timeout)
            if _has(facts, epoch=int)["epoch"] != self.epoch:
                raise Conflict("epoch_mismatch", "the session was deleted and remade", status=409)
            self._note(facts)
            told: SessionInfo = facts
            return told

    def fork(self, session_id: Optional[str] = None, length: Optional[int] = None, *,
             timeout: Optional[float] = None) -> Session:
        """A Session with the first `length` tokens of each layer, or all; nothing is copied."""
        with self.lock:
            fields = {"session_id": session_id, "length": length, **self.claim()}
            return Session(self.client, self.client._post(
                f"/sessions/{self.session_id}/fork", fields, True, self.session_id, timeout))

    def truncate(self, length: int, *, timeout: Optional[float] = None) -> None:
        """Forgets all but the first `length` tokens of each layer."""
        with self.lock:
            facts: Any = self.client._post(
                f"/sessions/{self.session_id}/truncate", {"length": length, **self.claim()},
                session_id=self.session_id, timeout=timeout)
            self._note(facts)
            longest = max(self.lengths.values(), default=0)
            if facts.get("replayed") and longest > length:
                raise Conflict("position_conflict", "another caller has appended since the "
                               "truncation", status=409, length=longest)

    def export(self, *, timeout: Optional[float] = None) -> bytearray:
        """The session as the bytes of a safetensors file, for Client.restore."""
        headers = {"Accept": "application/octet-stream", **_naming(self.session_id)}
        return self.client.request("GET", f"/sessions/{self.session_id}/state", headers=headers,
                                   timeout=timeout)[1]

    def end(self, retry_s: Optional[float] = None, *, timeout: Optional[float] = None) -> None:
        """Ends the session; one that is gone already is no error."""
        query = f"?epoch={self.epoch}" if self.revision is not None else ""
        with self.lock:
            try:
                self.client.request("DELETE", f"/sessions/{self.session_id}{query}",
                                    headers=_naming(self.session_id), retry_s=retry_s,
                                    timeout=timeout)
            except AttnError as error:
                if not isinstance(error, (NotFound, SessionLost)) and error.code not in _GONE:
                    raise


# ---- asyncio -----------------------------------------------------------------------------------

class _Threads:
    """The threads of an AsyncClient; a forked process has threads of its own."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._forked()
        _made.add(self)

    def _forked(self) -> None:
        self.pool = concurrent.futures.ThreadPoolExecutor(self._most, "attn_client")


class _Asynchronous:
    """Runs methods of `inner` in threads, of which there are as many as calls may be under way."""
    inner: Any
    _threads: _Threads

    def __init__(self, inner: Any, threads: _Threads) -> None:
        vars(self).update(inner=inner, _threads=threads)

    async def _run(self, method: str, *arguments: Any, **fields: Any) -> Any:
        stop = _Stop()

        def call() -> Any:
            _calls.stop = stop
            try:
                return getattr(self.inner, method)(*arguments, **fields)
            finally:
                _calls.stop = None

        loop = asyncio.get_running_loop()
        try:
            made = await loop.run_in_executor(self._threads.pool, call)
        except asyncio.CancelledError:
            stop.set()
            raise
        return self._wrapped(made)

    def _wrapped(self, made: Any) -> Any:
        return AsyncSession(made, self._threads) if isinstance(made, Session) else made

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        return functools.partial(self._run, name) if callable(value) else value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.inner, name, value)  # as `keep` of a session

    def __reduce__(self) -> Tuple[Any, ...]:
        raise TypeError(f"{type(self).__name__} does not pickle, since it has threads: make it "
                        "where it is used")


class AsyncClient(_Asynchronous):
    """Client for asyncio: every method is awaited, but for `async for entry in sessions()`.

    connections  calls that may be under way at once, each in a thread
    The rest is as in Client.  Cancelling a call frees its thread, and does not take back what was
    sent: `refresh` tells whether a step was applied.
    """

    def __init__(self, *arguments: Any, connections: int = 16, **options: Any) -> None:
        super().__init__(Client(*arguments, **options), _Threads(connections))

    async def sessions(self, limit: int = 100) -> AsyncIterator[SessionInfo]:
        """All sessions, `limit` to a request."""
        after: Optional[str] = ""
        while after is not None:
            entries, after = await self._run("_page", limit, after)
            for entry in entries:
                yield entry

    async def list_sessions(self, limit: int = 100) -> List[SessionInfo]:
        """The list of all sessions."""
        return [entry async for entry in self.sessions(limit)]

    async def step_many(self, steps: Iterable[Tuple[AsyncSession, Step]], layer: int = 0,
                        **fields: Any) -> List[Union[Reply, AttnError]]:
        """As Client.step_many."""
        made: List[Union[Reply, AttnError]] = await self._run(
            "step_many", [(session.inner, rows) for session, rows in steps], layer, **fields)
        return made

    async def batch(self, fork: Iterable[Union[AsyncSession, Tuple[AsyncSession, Dict[str, Any]]]]
                    = (), end: Iterable[AsyncSession] = (), *, timeout: Optional[float] = None
                    ) -> Tuple[List[Union[AsyncSession, AttnError]], List[Optional[AttnError]]]:
        """As Client.batch."""
        forks, ends = await self._run(
            "batch", [(item[0].inner, item[1]) if isinstance(item, tuple) else item.inner
                      for item in fork], [session.inner for session in end], timeout=timeout)
        return [self._wrapped(made) for made in forks], ends

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.inner.close()
        self._threads.pool.shutdown(wait=False)

    if TYPE_CHECKING:  # by __getattr__
        async def attend(self, hidden_states: TensorLike = None, **fields: Any) -> Reply: ...

        async def session(self, session_id: Optional[str] = None, **fields: Any
                          ) -> AsyncSession: ...

        async def start(self, encoder_hidden_states: TensorLike, hidden_states: TensorLike,
                        layer: int = 0, session_id: Optional[str] = None, **fields: Any
                        ) -> AsyncSession: ...

        async def open(self, session_id: str, *, timeout: Optional[float] = None
                       ) -> AsyncSession: ...

        async def restore(self, session_id: str, state: bytes, *, timeout: Optional[float] = None
                          ) -> AsyncSession: ...

        async def models(self, *, timeout: Optional[float] = None) -> List[ModelInfo]: ...

        async def model(self, name: str, *, timeout: Optional[float] = None) -> ModelInfo: ...

        async def ready(self) -> bool: ...

        async def wait_until_ready(self, seconds: float = 60) -> None: ...


class AsyncSession(_Asynchronous):
    """Session for asyncio: `async with await client.session() as session`."""

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._run("__exit__", *error)

    if TYPE_CHECKING:  # by __getattr__
        session_id: str
        model: Optional[str]
        epoch: int
        revision: Optional[int]
        lengths: Dict[int, int]
        keep: bool
        first: Optional[Reply]

        async def prefill(self, hidden_states: TensorLike = None, layer: int = 0, **fields: Any
                          ) -> Reply: ...

        async def decode(self, hidden_states: TensorLike = None, layer: int = 0, **fields: Any
                         ) -> Reply: ...

        async def refresh(self, *, timeout: Optional[float] = None) -> SessionInfo: ...

        async def fork(self, session_id: Optional[str] = None, length: Optional[int] = None, *,
                       timeout: Optional[float] = None) -> AsyncSession: ...

        async def truncate(self, length: int, *, timeout: Optional[float] = None) -> None: ...

        async def export(self, *, timeout: Optional[float] = None) -> bytearray: ...

        async def end(self, retry_s: Optional[float] = None, *, timeout: Optional[float] = None
                      ) -> None: ...


# ---- Command line ------------------------------------------------------------------------------

def _ask(client: Client, chosen: argparse.Namespace) -> int:
    """Carries out the command; returns the exit status."""
    if chosen.what == "ready":
        return 0 if client.ready() else 1
    if chosen.what == "attend":
        body = sys.stdin.read() if chosen.body == "-" else chosen.body
        headers = {"Content-Type": "application/json"}
        print(client.request("POST", "/attend", body.encode(), headers)[1].decode())
    else:
        path = chosen.path if chosen.what == "get" else f"/{chosen.what}"
        print(client.request("GET", path)[1].decode())
    return 0


def main(arguments: Optional[Sequence[str]] = None) -> int:
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
    try:
        with Client(chosen.url, api_key=chosen.api_key, cafile=chosen.cafile, retry_s=2) as client:
            return _ask(client, chosen)
    except AttnError as error:
        print(f"attn_client: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
