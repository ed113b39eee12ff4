"""Outputs of commands: each is declared by ``add_output``, then checked and locked while its command runs.

A lock is a file in the user's cache, named by the output's path. The operating system releases it when the process ends, even if the
process is killed. A second file beside it says who holds the lock, since Windows cannot read a locked file.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from tempfile import gettempdir
from time import sleep
from typing import Any

from d2sd.errors import InputError, require
from d2sd.trace.files import is_device, make_folder, writing


def add_output(
    parser: argparse._ActionsContainer, *flags: str, folder: bool = False, markers: Sequence[str] = (), **options: Any
) -> None:
    """Adds an option that names a file or folder to write. If ``markers`` is empty, also adds the option ``--force``.

    folder: whether the output is a folder. If ``markers`` is empty, the command itself must check the folder with ``check_folder``.
    markers: for commands that can resume an earlier run: suffixes such as ``/pair.json``. If the file output + suffix exists, the
        output is that of an earlier run and may be continued. Other existing content is rejected.
    options: arguments of ``add_argument``.
    """
    action = parser.add_argument(*flags, **options)
    outputs = parser.get_default("outputs") or {}
    parser.set_defaults(outputs={**outputs, action.dest: (folder, tuple(markers))})
    if not markers and "--force" not in parser._option_string_actions:
        parser.add_argument("--force", action="store_true", help="replace existing files")


@contextmanager
def held(arguments: argparse.Namespace) -> Iterator[None]:
    """Context of a command's run, in which no other command can write its outputs.

    Raises ``InputError`` if another command is writing an output, if an output cannot be written, or if it exists and ``--force`` is
    not given.
    """
    outputs: list[Path] = []
    with ExitStack() as arguments.locks:
        for dest, (folder, markers) in getattr(arguments, "outputs", {}).items():
            value = getattr(arguments, dest)
            if value is None or str(value) == "-" or is_device(path := Path(value)):
                continue
            if any(path.resolve() == other.resolve() for other in outputs):
                raise InputError(f"{path} is named for two outputs; give them different names")
            outputs.append(path)
            lock_output(arguments, path)
            if markers:
                _check_resumable(arguments, path, folder, markers)
            elif not folder:
                check_output(arguments, path)
            _check_writable(path)
        yield


def lock_output(arguments: argparse.Namespace, path: Path) -> None:
    """Locks an output until the command ends. Raises ``InputError`` if another command is writing it.

    ``held`` calls this function for all outputs that the arguments name. Other outputs must be locked before they are checked or
    created.
    """
    from filelock import FileLock, Timeout  # imported here, since commands that only read need neither

    from d2sd.folders.store import home

    digest = sha256(os.fsencode(os.path.normcase(os.path.realpath(path)))).hexdigest()
    command, now = " ".join(arguments.argv[:2]), datetime.now().isoformat(" ", "seconds")
    user = getattr(os, "getuid", int)()  # 0 on Windows, which has no user ids
    # the second folder is used if the first cannot be written; if neither can, the command runs without a lock
    for folder in (home() / "locks", Path(gettempdir()) / "d2sd-locks"):
        note = folder / f"{digest}.txt"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid == user:  # files in the folder of another user could be links
                # the lock's file is never removed, since two processes could then lock different files of the same name
                arguments.locks.enter_context(FileLock(note.with_suffix(".lock"), timeout=0))
                arguments.locks.enter_context(_noted(note, f"d2sd {command}, process {os.getpid()}, since {now}"))
                return
        except Timeout:
            raise InputError(f"{path} is being written by another command{_holder(note)}; wait until it ends, or name another output") from None  # fmt: skip
        except OSError:
            continue


@contextmanager
def _noted(note: Path, holder: str) -> Iterator[None]:
    """Context in which a file says who holds a lock."""
    note.write_text(holder, encoding="utf-8")
    try:
        yield
    finally:
        with suppress(OSError):  # Windows cannot remove a file that another process is reading
            note.unlink()


def _holder(note: Path) -> str:
    """Returns who holds a lock, in brackets; empty if this is unknown. Waits for up to a second if the lock was taken just now."""
    for _ in range(20):
        with suppress(OSError):
            if holder := note.read_text(encoding="utf-8", errors="replace"):
                return f" ({holder})"
        sleep(0.05)
    return ""


def _check_writable(path: Path) -> None:
    """Raises ``InputError`` if no file can be created where an output will be. Permissions alone do not show this."""
    real = Path(os.path.realpath(path))
    folder = next((place for place in (real, *real.parents) if place.is_dir()), real.parent)
    part = folder / f".{os.getpid()}.part"
    with writing(path):
        part.touch()
        part.unlink()


def check_output(arguments: argparse.Namespace, path: Path) -> None:
    """Raises ``InputError`` if a file cannot be written, is an input of the command, or exists and ``--force`` is not given."""
    if is_device(path):
        return
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder")
    require(path.parent.is_dir(), f"cannot write {path}: there is no folder {path.parent}")
    if not path.exists():
        return
    if any(path.samefile(other) for other in _input_files(arguments)):
        raise InputError(f"{path} is an input of this command; name another output file")
    require(arguments.force, f"{path} already exists; name another file, or replace it with --force")


def check_folder(folder: Path) -> None:
    """Creates a folder for the outputs of a command. Raises ``InputError`` if that fails or if the folder is not empty."""
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"the folder {folder} is not empty; name another folder")
    make_folder(folder)


def _check_resumable(arguments: argparse.Namespace, path: Path, folder: bool, markers: Sequence[str]) -> None:
    """Raises ``InputError`` if an output is an input of the command, or has content that the command did not write.

    folder, markers: as for ``add_output``.
    """
    if not path.exists():
        return
    if any(path.samefile(other) for other in _named_paths(arguments)):
        raise InputError(f"{path} is an input of this command; name another output")
    require(folder == path.is_dir(), f"{path} is {'not a' if folder else 'a'} folder; name another output")
    full = any(path.iterdir()) if folder else path.stat().st_size
    if full and not any(Path(f"{path}{ending}").exists() for ending in markers):
        raise InputError(
            f"{path} contains something that this command did not write; name another {'folder' if folder else 'file'}"
        )


def _named_paths(arguments: argparse.Namespace) -> Iterator[Path]:
    """Yields the existing files and folders that the arguments name, except outputs."""
    for name, value in vars(arguments).items():
        if name in ("argv", "command", "outputs", *arguments.outputs):
            continue
        for item in value if isinstance(value, (list, tuple)) else [value]:
            with suppress(OSError, ValueError):  # raised for values that cannot be paths
                if isinstance(item, (str, Path)) and str(item) and Path(item).exists():
                    yield Path(item)


def _input_files(arguments: argparse.Namespace) -> Iterator[Path]:
    """Yields the files that the arguments name, except outputs, and the files directly inside the folders that they name."""
    for path in _named_paths(arguments):
        yield from (p for p in (path.iterdir() if path.is_dir() else (path,)) if p.is_file())
