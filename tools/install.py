"""Installs packages in this Python's environment: ``python -m tools.install`` with arguments of ``pip install``.

Three ways are tried, in this order:

1. uv with torch's own package index, which has a build without CUDA for machines without NVIDIA GPU. ``TORCH=cpu`` or
   ``TORCH=cuda`` chooses the build; otherwise uv looks for a GPU.
2. uv with pip's package indexes.
3. pip.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from ast import literal_eval

BACKENDS = {"auto": "auto", "cpu": "cpu", "cuda": "cu130"}  # cu130: the build on the Python package index
VARIABLES = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS"}
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
UV = (sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable)
# A missing answer of torch's index ends the test of the first way, so it must not take minutes.
QUICK = {"UV_HTTP_RETRIES": "1", "UV_HTTP_TIMEOUT": "10"}


def indexes() -> dict[str, str]:
    """Returns pip's configured package indexes as variables of uv, which does not read pip's configuration."""
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, encoding="utf-8", errors="replace").stdout
    values = {}
    for line in sorted(listed.splitlines(), reverse=True):  # variables of the environment, ":env:", overrule files
        name, _, value = line.partition("=")
        if variable := VARIABLES.get(name.rpartition(".")[2]):
            values[variable] = ("," if variable == "UV_FIND_LINKS" else " ").join(literal_eval(value).split())
    return values


def install(arguments: list[str]) -> int:
    """Installs packages and returns the exit code of the last program that tried.

    arguments: those of ``pip install``.
    """
    build = os.environ.get("TORCH") or "auto"
    if build not in BACKENDS:
        sys.exit(f"TORCH must be one of {', '.join(BACKENDS)}, not {build!r}")
    if not subprocess.run([*PIP, "install", "--only-binary", ":all:", "uv"], capture_output=True).returncode:
        own = [*UV, *arguments, "--torch-backend", BACKENDS[build]]
        environment = {"UV_INDEX_STRATEGY": "unsafe-best-match", **indexes(), **os.environ}  # as in pip
        tried = subprocess.run(
            [*own, "--dry-run"], env=environment | QUICK, capture_output=True, encoding="utf-8", errors="replace"
        )
        if tried.returncode:
            reason = tried.stderr.strip().rpartition("\n")[2].strip()
            print(f"torch's own index cannot be used ({reason}): torch comes from pip's indexes", file=sys.stderr)
        if not subprocess.run([*UV, *arguments] if tried.returncode else own, env=environment).returncode:
            return 0
    print("uv cannot install the packages here: pip installs them", file=sys.stderr)
    return subprocess.run([*PIP, "install", "--no-compile", *arguments]).returncode


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback
    sys.exit(install(sys.argv[1:]))
