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

from generate import AttnError, Client, forward, numpy, read_decoder  # first: says what is missing
from bpe import read_tokenizer
from page_proxy import PageProxy

FORMAT = "attn-capture-1"
PATH = "/capture.safetensors"  # of the file, for the page
CHUNK = 512  # tokens of one step
START_S, STOP_S, REPLY_S = 600, 40, 600


# ---- File --------------------------------------------------------------------------------------

def write_safetensors(path, tensors, metadata):
    """A safetensors file of float32 or float16 arrays and of texts; there at once or not at all."""
    header, offset = {"__metadata__": metadata}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": {4: "F32", 2: "F16"}[array.itemsize], "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    part = os.fspath(path) + ".part"
    with open(part, "wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            stream.write(numpy.ascontiguousarray(array, f"<f{array.itemsize}"))
    os.replace(part, path)


def write_capture(path, layers, tokens, model=None, dtype="f32"):
    """A capture: rows [T,E] of {layer: rows}, T texts, and the model's name in attnd."""
    kind = {"f32": numpy.float32, "f16": numpy.float16}[dtype]
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

def capture(decoder, session, ids, progress=lambda count: None):
    """{layer: rows [T,E]} that attention takes of tokens; `session` is a new one of the model."""
    pieces = {layer: [] for layer in range(decoder.layers)}

    def attend(rows, layer):
        pieces[layer].append(rows)
        return session.prefill(rows, layer=layer)["output"]

    for begin in range(0, len(ids), CHUNK):
        end = min(begin + CHUNK, len(ids))
        forward(decoder, ids[begin:end], range(begin, end), attend)
        progress(end)
    return {layer: numpy.concatenate(rows) for layer, rows in pieces.items()}


def tokens_of(chosen):
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


def checked(ids, decoder, limit):
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

def program():
    """The attnd to start."""
    beside = pathlib.Path(__file__).resolve().parent.parent / "build" / "attnd"
    found = os.environ.get("ATTND") or (str(beside) if beside.exists() else shutil.which("attnd"))
    if not found:
        raise ValueError("no attnd on PATH, nor build/attnd: name one by --url or ATTND")
    return found


def end_with_parent():
    """In a child: SIGTERM when this program ends, however it ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


@contextlib.contextmanager
def own_daemon(directory, name):
    """The URL of an attnd that serves the directory as `name`, and that ends with the block."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ATTN_")}
    with subprocess.Popen(
            [program(), "--model", f"{name}={directory}", "--port", "0", "--log", "error",
             "--lame-duck-s", "0"],
            stdout=subprocess.PIPE, env=environment, start_new_session=True,
            preexec_fn=end_with_parent) as process:
        try:
            ready, _, _ = select.select([process.stdout], [], [], START_S)
            line = process.stdout.readline().decode() if ready else ""
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


def model_name(client, chosen):
    """The name that attnd has for the model; raises ValueError where that is not clear."""
    names = [model["name"] for model in client.models()]
    name = chosen.name or (names[0] if len(names) == 1 else None)
    if name not in names:
        raise ValueError(f"--name: which of the models of {chosen.url} is {chosen.model}? "
                         f"{', '.join(names) or 'there is none'}")
    return name


# ---- Command line ------------------------------------------------------------------------------

def options(arguments):
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
    parser.add_argument("--tokens", type=int, metavar="N", help="only the first N tokens")
    parser.add_argument("-o", "--output", type=pathlib.Path, metavar="FILE",
                        default=pathlib.Path("capture.safetensors"), help="[%(default)s]")
    parser.add_argument("--dtype", choices=("f32", "f16"), default="f32", help="[%(default)s]")
    parser.add_argument("--url", help="of a running attnd [one is started]")
    parser.add_argument("--name", help="the model's name in attnd [the only one, or DIR's]")
    parser.add_argument("--api-key", default=os.environ.get("API_KEY"),
                        help="API key of attnd [the variable API_KEY]")
    parser.add_argument("--view", action="store_true", help="open the page on it, until Ctrl-C")
    parser.add_argument("--no-browser", action="store_true", help="print the page's address only")
    return parser.parse_args(arguments)


def make(url, chosen):
    """Writes the capture; prints one line."""
    decoder = read_decoder(chosen.model)
    ids, texts = tokens_of(chosen)
    ids = checked(ids, decoder, chosen.tokens)

    def progress(count):
        if len(ids) > CHUNK:
            print(f"\rcapture: {count} of {len(ids)} tokens", end="", file=sys.stderr, flush=True)

    with Client(url, api_key=chosen.api_key, timeout=REPLY_S) as client:
        if not chosen.url:
            client.wait_until_ready(START_S)
        name = model_name(client, chosen)
        with client.session(model=name) as session:
            layers = capture(decoder, session, ids, progress)
    if len(ids) > CHUNK:
        print(file=sys.stderr)
    write_capture(chosen.output, layers, texts[:len(ids)], name, chosen.dtype)
    print(f"{chosen.output}: {len(layers)} layers, {len(ids)} tokens, width "
          f"{layers[0].shape[1]}, {chosen.dtype}", flush=True)


def view(url, chosen):
    """Serves the page on the capture until Ctrl-C."""
    with PageProxy(url, PATH, chosen.output) as proxy:
        address = f"{proxy.url}/#capture={PATH[1:]}"
        print(f"{address} (Ctrl-C ends it)", flush=True)
        if chosen.api_key:
            print("the page asks for the API key", flush=True)
        display = any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
        if (display or sys.platform != "linux") and not chosen.no_browser:
            webbrowser.open(address)
        proxy.serve_forever()


def run(chosen):
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


def main(arguments=None):
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
