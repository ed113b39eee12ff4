"""GGUF files as targets: read by transformers, their weights widened to floating point at loading."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import transformers

from d2sd.errors import InputError

ARCHITECTURES = ("llama", "qwen3")
VERSIONS = (2, 3)
MAX_ENTRIES = 1 << 20  # of each table in the header


def is_gguf(source: str) -> bool:
    """Whether a source of weights is meant as a GGUF file."""
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
    """The option by which transformers hands out a GGUF file's weights as floating-point numbers; early versions always do."""
    config = getattr(transformers, "GgufConfig", None)
    return {} if config is None else {"quantization_config": config(dequantize=True)}


def check_gguf(path: Path) -> None:
    """Hold a file's header against its size and against what is supported; raises ``InputError``."""
    with path.open("rb") as file:
        head = file.read(24)
    if head[:4] != b"GGUF":
        raise InputError("it is no GGUF file")
    if len(head) < 24:
        raise InputError(_CUT)
    version, tensors, entries = struct.unpack("<IQQ", head[4:])
    if version not in VERSIONS:
        raise InputError(f"it is of GGUF version {version}; versions {' and '.join(map(str, VERSIONS))} are read")
    if max(tensors, entries) > MAX_ENTRIES:
        raise InputError(_CUT)
    from gguf import GGUFReader  # only who reads such files waits for it

    try:
        reader = GGUFReader(path)
        field = reader.get_field("general.architecture")
        kind = "" if field is None else str(field.contents())
        end = max((int(t.data_offset) + int(t.n_bytes) for t in reader.tensors), default=0)
    except Exception as error:  # a reader of files that are as they should be: anything may go wrong in it
        raise InputError(_CUT) from error
    if kind not in ARCHITECTURES:
        raise InputError(f"GGUF files of type {kind[:40]!r} are not supported; choose {' or '.join(ARCHITECTURES)}")
    if end > path.stat().st_size:
        raise InputError(_CUT)


_CUT = "the GGUF file is cut short or damaged; get it again"
