"""GGUF files as targets: read by transformers, their weights widened to floating point at loading."""

from __future__ import annotations

import struct
from math import prod
from pathlib import Path
from typing import IO, Any

from transformers import GgufConfig

from d2sd.errors import InputError

ARCHITECTURES = ("llama", "qwen3")
VERSIONS = (2, 3)
ALIGNMENT = 32  # bytes, of what follows the header
STRING, ARRAY = 8, 9
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
CUT = "the GGUF file is cut short or damaged; get it again"


def is_gguf(source: str) -> bool:
    """Returns whether a source of weights names a GGUF file."""
    return source.lower().endswith(".gguf")


def gguf_options(source: str) -> tuple[str, dict[str, Any]]:
    """The folder of a GGUF file and the options by which transformers reads its config and its tokenizer; a source of
    another kind as it is, and no options.

    Raises ``InputError`` where the file is missing, cut short, no GGUF file, or of an architecture that is not supported.
    """
    if not is_gguf(source):
        return source, {}
    path = Path(source)
    if not path.is_file():
        raise InputError("there is no such file")
    check_gguf(path)
    return str(path.resolve().parent), {"gguf_file": path.name}


def widened() -> dict[str, Any]:
    """The option by which transformers hands out a GGUF file's weights as floating-point numbers."""
    return {"quantization_config": GgufConfig(dequantize=True)}


def check_gguf(path: Path) -> None:
    """Check a file's header against its size and against what is supported; raises ``InputError``."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise InputError("it is no GGUF file")
        try:
            kind, rows = _read_header(_Header(file, size))
        except (struct.error, UnicodeDecodeError, OverflowError, KeyError) as error:
            raise InputError(CUT) from error
        start = -(-file.tell() // ALIGNMENT) * ALIGNMENT
    if kind not in ARCHITECTURES:
        raise InputError(f"GGUF files of type {kind[:40]!r} are not supported; choose {' or '.join(ARCHITECTURES)}")
    if max((start + offset + length for offset, length in rows), default=0) > size:
        raise InputError(CUT)


class _Header:
    """Reads little-endian values in sequence, bounded by the file size."""

    def __init__(self, file: IO[bytes], size: int):
        self.file, self.size = file, size

    def number(self, form: str) -> Any:
        width = struct.calcsize(form)
        return struct.unpack(f"<{form}", self.file.read(width))[0]

    def count(self) -> int:
        value = int(self.number("Q"))
        if value > self.size:
            raise OverflowError
        return value

    def text(self) -> str:
        length = self.count()
        raw = self.file.read(length)
        if len(raw) < length:
            raise OverflowError
        return raw.decode("utf-8")

    def value(self, kind: int) -> Any:
        """Returns a value of one of the header's types; of an array only the length."""
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            return self.number(NUMBERS[kind])
        inner, length = self.number("I"), self.count()
        if inner == STRING:
            for _ in range(length):
                self.text()
        else:
            self.file.seek(length * struct.calcsize(NUMBERS[inner]), 1)
        return length


def _read_header(header: _Header) -> tuple[str, list[tuple[int, int]]]:
    """Returns the architecture, and offset and length in bytes of every tensor after the header."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    version = header.number("I")
    if version not in VERSIONS:
        raise InputError(f"it is of GGUF version {version}; versions {' and '.join(map(str, VERSIONS))} are read")
    tensors, entries = header.count(), header.count()
    known: dict[str, Any] = {}
    for _ in range(entries):
        name = header.text()
        known[name] = header.value(header.number("I"))
    rows = []
    for _ in range(tensors):
        header.text()
        count = prod(header.count() for _ in range(header.number("I")))
        kind, offset = header.number("I"), header.count()
        try:
            block, width = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        except ValueError:
            raise InputError(f"its weights are of the unknown GGUF type {kind}") from None
        rows.append((offset, count // block * width))
    return str(known["general.architecture"]), rows
