#!/usr/bin/env python3
"""capture.py: what every attention layer of a decoder takes of a text, as one file; and its page.

    examples/capture.py --model llama-3.2-1b "The cat sat on the mat"         # capture.safetensors
    examples/capture.py --model llama-3.2-1b "The cat sat on the mat" --view  # and the page on it
    examples/capture.py --model gpt2 --file story.txt --dtype f16 -o story.safetensors

The file (docs/CLIENTS.md, "Captures") has for each layer the rows [T,E] that its attention takes,
the texts of the tokens, and the model's name in attnd.  The decoder is that of generate.py: numpy
computes all but attention, attnd every attention layer.  Without --url this program starts an attnd
of its own (the variable ATTND, build/attnd of this tree, or attnd on PATH) and ends it with itself.

Needs numpy, and attn_client.py (found beside this tree, or anywhere on PYTHONPATH).
"""
from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import webbrowser
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple,
                    Union)

# First: it says what is missing.
from generate import Decoder, check_model, forward, positive, read_decoder
import numpy
from attn_client import AttnError, Client, Session
from bpe import read_tokenizer
from page_proxy import PageProxy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Path = Union[str, os.PathLike[str]]

FORMAT = "attn-capture-1"
PATH = "/capture.safetensors"  # of the file, for the page
CHUNK = 512  # tokens of one step
START_S, STOP_S, REPLY_S = 600, 40, 600


# ---- File --------------------------------------------------------------------------------------

def write_safetensors(path: Path, tensors: Dict[str, Array], metadata: Dict[str, str]) -> None:
    """A safetensors file of float32 or float16 arrays and of texts; there at once or not at all."""
    header: Dict[str, Any] = {"__metadata__": metadata}
    offset = 0
    for name, array in tensors.items():
        header[name] = {"dtype": {4: "F32", 2: "F16"}[array.itemsize], "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    part = f"{os.fspath(path)}.part"
    with open(part, "wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            stream.write(numpy.ascontiguousarray(array, f"<f{array.itemsize}").data)
    os.replace(part, path)


def write_capture(path: Path, layers: Dict[int, Array], tokens: Sequence[str],
                  model: Optional[str] = None, dtype: str = "f32") -> None:
    """A capture: rows [T,E] of {layer: rows}, T texts, and the model's name in attnd."""
    kind: Any = {"f32": numpy.float32, "f16": numpy.float16}[dtype]
    with numpy.errstate(over="ignore"):
        tensors = {f"layer.{layer}": numpy.asarray(rows).astype(kind, copy=False)
                   for layer, rows in layers.items()}
    for name, rows in tensors.items():
        if rows.ndim != 2 or len(rows) != len(tokens) or not numpy.isfinite(rows).all():
            raise ValueError(f"{name} {rows.shape} is not a finite {dtype} row for each of "
                             f"{len(tokens)} tokens")
    metadata = {"format": FORMAT, "tokens": json.dumps(tokens, ensure_ascii=False)}
    write_safetensors(path, tensors, {**metadata, "model": model} if model else metadata)


# ---- Rows --------------------------------------------------------------------------------------

def capture(decoder: Decoder, session: Session, ids: List[int],
            progress: Callable[[int], None] = lambda count: None) -> Dict[int, Array]:
    """{layer: rows [T,E]} that attention takes of tokens; `session` is a new one of the model."""
    pieces: Dict[int, List[Array]] = {layer: [] for layer in range(decoder.layers)}

    def attend(rows: Array, layer: int) -> Array:
        pieces[layer].append(rows)
        return session.prefill(rows, layer=layer)["output"]

    for begin in range(0, len(ids), CHUNK):
        end = min(begin + CHUNK, len(ids))
        forward(decoder, ids[begin:end], range(begin, end), attend)
        progress(end)
    return {layer: numpy.concatenate(rows) for layer, rows in pieces.items()}


def tokens_of(chosen: argparse.Namespace) -> Tuple[List[int], List[str]]:
    """(ids, their texts) of the command line's text or numbers."""
    if chosen.ids is not None:
        ids = [int(number) for number in chosen.ids.split(",")]
        return ids, [str(number) for number in ids]
    text = chosen.text
    if chosen.file is not None:
        text = sys.stdin.read() if chosen.file == "-" else \
            pathlib.Path(chosen.file).read_text("utf-8")
    tokenizer = read_tokenizer(chosen.model)
    ids = tokenizer.encode(text)
    return ids, [tokenizer.label(number) for number in ids]


def checked(ids: List[int], decoder: Decoder, limit: Optional[int]) -> List[int]:
    """The ids that are captured; raises ValueError where there is no row for one."""
    ids = ids[:limit]
    if not ids:
        raise ValueError("the text has no token")
    if decoder.positions is not None and len(ids) > decoder.positions:
        raise ValueError(f"{len(ids)} tokens are more than the model's {decoder.positions} "
                         "positions: --tokens takes the first of them")
    if not 0 <= min(ids) <= max(ids) < len(decoder.head):
        raise ValueError(f"tokens are 0 to {len(decoder.head) - 1}")
    return ids


# ---- attnd -------------------------------------------------------------------------------------

def program() -> str:
    """The attnd to start."""
    beside = pathlib.Path(__file__).resolve().parent.parent / "build" / "attnd"
    found = os.environ.get("ATTND") or (str(beside) if beside.exists() else shutil.which("attnd"))
    if not found:
        raise ValueError("no attnd on PATH, nor build/attnd: name one by --url or ATTND")
    return found


def end_with_parent() -> None:
    """In a child: SIGTERM when this program ends, however it ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


@contextlib.contextmanager
def own_daemon(directory: pathlib.Path, name: str) -> Iterator[str]:
    """The URL of an attnd that serves the directory as `name`, and that ends with the block."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ATTN_")}
    with subprocess.Popen(
            [program(), "--model", f"{name}={directory}", "--port", "0", "--log", "error",
             "--lame-duck-s", "0"],
            stdout=subprocess.PIPE, env=environment, start_new_session=True,
            preexec_fn=end_with_parent) as process:
        try:
            told: Any = process.stdout
            ready, _, _ = select.select([told], [], [], START_S)
            line = told.readline().decode() if ready else ""
            found = re.search(r" on (http://\S+)", line)
            if not found:
                raise ValueError(f"attnd did not start: {line.strip() or 'see above'}")
            yield found.group(1)
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def model_name(client: Client, chosen: argparse.Namespace) -> str:
    """The name that attnd has for the model; raises ValueError where that is not clear."""
    names = [model["name"] for model in client.models()]
    name: str = chosen.name or (names[0] if len(names) == 1 else "")
    if name not in names:
        raise ValueError(f"--name: which of the models of {chosen.url} is {chosen.model}? "
                         f"{', '.join(names) or 'there is none'}")
    return name


# ---- Command line ------------------------------------------------------------------------------

def port(text: str) -> int:
    """A port of the command line."""
    if not 0 < int(text) < 65536:
        raise ValueError(text)
    return int(text)


def options(arguments: Optional[Sequence[str]]) -> argparse.Namespace:
    """The parsed command line."""
    opening, _, examples = __doc__.partition("\n\n")
    examples, _, _ = examples.partition("\n\nThe file")
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter, epilog="examples:\n" + examples,
        description=opening.partition(": ")[2].capitalize())
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("text", nargs="?", help="text to capture")
    what.add_argument("--file", metavar="TEXT", help="file of the text; - is standard input")
    what.add_argument("--ids", help="tokens instead of a text: 1,2,3")
    parser.add_argument("--model", type=pathlib.Path, required=True, metavar="DIR",
                        help="checkpoint, as Hugging Face has it")
    parser.add_argument("--tokens", type=positive, metavar="N", help="only the first N tokens")
    parser.add_argument("-o", "--output", type=pathlib.Path, metavar="FILE",
                        default=pathlib.Path("capture.safetensors"), help="[%(default)s]")
    parser.add_argument("--dtype", choices=("f32", "f16"), default="f32", help="[%(default)s]")
    parser.add_argument("--url", help="of a running attnd [one is started]")
    parser.add_argument("--name", help="the model's name in attnd [the only one, or DIR's]")
    parser.add_argument("--api-key", default=os.environ.get("API_KEY"),
                        help="API key of attnd [the variable API_KEY]")
    parser.add_argument("--view", action="store_true", help="open the page on it, until Ctrl-C")
    parser.add_argument("--port", type=port, default=0, help="of the page [any that is free]")
    parser.add_argument("--no-browser", action="store_true", help="print the page's address only")
    return parser.parse_args(arguments)


def make(url: str, chosen: argparse.Namespace) -> None:
    """Writes the capture; prints one line."""
    decoder = read_decoder(chosen.model)
    ids, texts = tokens_of(chosen)
    ids = checked(ids, decoder, chosen.tokens)

    def progress(count: int) -> None:
        if len(ids) > CHUNK:
            print(f"\rcapture: {count} of {len(ids)} tokens", end="", file=sys.stderr, flush=True)

    with Client(url, api_key=chosen.api_key, timeout=REPLY_S) as client:
        if not chosen.url:
            client.wait_until_ready(START_S)
        name = model_name(client, chosen)
        check_model(client, name, decoder)
        with client.session(model=name) as session:
            layers = capture(decoder, session, ids, progress)
    if len(ids) > CHUNK:
        print(file=sys.stderr)
    write_capture(chosen.output, layers, texts[:len(ids)], name, chosen.dtype)
    print(f"{chosen.output}: {len(layers)} layers, {len(ids)} tokens, width "
          f"{layers[0].shape[1]}, {chosen.dtype}", flush=True)


def view(url: str, chosen: argparse.Namespace) -> None:
    """Serves the page on the capture until Ctrl-C."""
    with PageProxy(url, PATH, chosen.output, chosen.port) as proxy:
        address = f"{proxy.url}/#capture={PATH[1:]}"
        print(f"{address} (Ctrl-C ends it)", flush=True)
        if chosen.api_key:
            print("the page asks for the API key", flush=True)
        display = any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
        if (display or sys.platform != "linux") and not chosen.no_browser:
            webbrowser.open(address)
        proxy.serve_forever()


def run(chosen: argparse.Namespace) -> None:
    """The whole program, with an attnd of its own where none is named."""
    with contextlib.ExitStack() as stack:
        url = chosen.url
        if not url:
            directory = chosen.model.resolve()
            known = re.sub(r"[^\w.-]", "_", directory.name, flags=re.ASCII).lstrip("_.-")[:64]
            chosen.name = chosen.name or known or "model"
            url = stack.enter_context(own_daemon(directory, chosen.name))
        make(url, chosen)
        if chosen.view:
            with contextlib.suppress(KeyboardInterrupt):
                view(url, chosen)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; returns the exit status."""
    for number in (signal.SIGINT, signal.SIGTERM):  # SIGINT too: a shell's `&` has it ignored
        signal.signal(number, signal.default_int_handler)
    try:
        run(options(arguments))
    except (AttnError, OSError, ValueError, KeyError) as error:
        print(f"capture: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
