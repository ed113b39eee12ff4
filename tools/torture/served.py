"""Campaigns with separate processes: direct calls and uploads, a browser that detects injected scripts, killed writers."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Page, expect, sync_playwright

from app import presets
from d2sd.errors import InputError
from d2sd.figures.viewer import standalone_page
from d2sd.trace.checks import read_event
from d2sd.trace.events import EVENTS, Record
from d2sd.trace.run import RecordedRun
from tests.chromium import launch
from tests.hands import SIZES, OfflineHands
from tests.page_client import PageClient, Window
from tools.torture import material

Cases = Iterator[str | None]
ROOT = Path(__file__).parents[2]
FILE = {"_type": "gradio.FileData"}


class Server:
    """The page in a separate process, its log, and its use of memory and files."""

    def __init__(self) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        command = [sys.executable, "-m", "tools.page_server", "16"]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, encoding="utf-8")  # fmt: skip
        assert self.process.stdout
        self.address = self.process.stdout.readline().strip()

    def tracebacks(self) -> int:
        self.log.seek(0)
        return self.log.read().count(b"Traceback")

    def megabytes(self) -> float:
        """Returns the resident memory of the process in MB."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0

    def files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()


@contextmanager
def serving() -> Iterator[Server]:
    """Yields a running page and stops it at the end."""
    server = Server()
    try:
        yield server
    finally:
        server.close()


def calls(rng: random.Random) -> Cases:
    """Calls all functions of the page with values and events of every type. Each must answer or report an error, without a traceback."""
    with serving() as server:
        page, seen = PageClient(server.address), 0
        quick = [c for c in page.calls if c["backend_fn"]]
        while True:
            call, window = rng.choice(quick), Window(page)
            values: Any = page.values(call)
            if values and rng.random() < 0.8:
                values[rng.randrange(len(values))] = material.value(rng)
            event = material.value(rng) if rng.random() < 0.5 else None
            if rng.random() < 0.05:
                values = material.value(rng)
            if call["queue"] and rng.random() < 0.8:
                continue  # these calls would run models if all values happened to be valid
            if call["queue"]:
                *_, done = list(window.queued(call, values, event)) or [{}]
                fault = None if done.get("msg") in ("process_completed", "refused", "close_stream") else str(done)[:200]
            else:
                status, answer = window.at_once(call, values, event)
                said = str(answer.get("error") or answer.get("detail") or answer.get("data") or "")
                fault = None if status < 500 or (said and "Traceback" not in said) else f"{status}: {str(answer)[:200]}"
            now = server.tracebacks()
            if now > seen:
                fault, seen = f"a traceback in the log: call {call['id']}, {values!r:.150}, event {event!r:.80}", now
            yield fault


def files(rng: random.Random) -> Cases:
    """Uploads whole, truncated and binary files with odd names. Answers must not contain a path of the server."""
    whole = "\n".join([*presets.opening().lines(), ""]).encode()
    with serving() as server:
        page, seen = PageClient(server.address), 0
        call = page.call("open-trace", "upload")
        while True:
            window = Window(page)
            content = rng.choice((whole, whole[: rng.randrange(len(whole))], gzip.compress(whole), rng.randbytes(2000), b"", bytes(10**6), material.text(rng).encode()))  # fmt: skip
            name = rng.choice(("x.jsonl", "x.gz", "x", "x.exe", "../x.jsonl", "x" * 300 + ".jsonl", "a\u202eb.jsonl", f"{material.text(rng)[:40]}.jsonl"))  # fmt: skip
            name = name.replace('"', "").replace("\r", "").replace("\n", "").replace("\x00", "") or "x"
            status, there = page.upload(name, content)
            if status != 200:
                yield None if 400 <= status < 500 else f"upload answered {status} for {name!r}"
                continue
            file: Any = {"path": there, "orig_name": name, "meta": FILE}
            if rng.random() < 0.2:
                file = rng.choice(
                    (
                        {**file, "path": rng.choice(("/etc/passwd", there + "x", "http://127.0.0.1:9/", "..", ""))},
                        [file],
                        {},
                        there,
                    )
                )
            done = [m for m in window.queued(call, page.values(call, open_trace=file)) if m.get("output")]
            text = json.dumps(done[-1]["output"]) if done else ""
            fault = None if done else "no answer"
            if "root:" in text or str(ROOT) in text:
                fault = f"the answer contains data of the server: {text[:200]}"
            now = server.tracebacks()
            if now > seen:
                fault, seen = f"a traceback in the log: {name!r}, {content[:60]!r}", now
            yield fault


def browser(rng: random.Random) -> Cases:
    """Opens hostile links, prompts and traces in Chromium: in the page, the standalone file and the SVG. No script may run."""
    with serving() as server, sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        engine = launch(playwright)
        kinds: tuple[Callable[..., None], ...] = (_link, _prompt, _trace, _alone)
        try:
            while True:
                context = engine.new_context(viewport={"width": 1440, "height": 900})
                context.add_init_script(material.TRAP)
                page, faults = context.new_page(), list[str]()
                page.on("dialog", lambda d, f=faults: f.append(f"dialog {d.message}"))
                page.on("pageerror", lambda e, f=faults: f.append(f"error {e}"))
                allowed = (server.address, "data:", "blob:", "file:", "about:")
                page.on(
                    "request",
                    lambda r, f=faults, a=allowed: None if r.url.startswith(a) else f.append(f"request {r.url}"),
                )
                kind = rng.choice(kinds)
                try:
                    kind(rng, page, server.address, Path(folder))
                    faults += [str(s) for s in page.evaluate("window.__sprung")]
                except Exception as error:
                    faults.append(f"{type(error).__name__}: {str(error)[:200]}")
                context.close()
                yield f"{kind.__name__}: {faults[:3]}" if faults else None
        finally:
            engine.close()


def _link(rng: random.Random, page: Page, address: str, _: Path) -> None:
    names = ("prompt", "model", "method", "step", "node", "seed", "temperature", material.text(rng)[:10])
    page.goto(f"{address}?{urlencode({n: material.text(rng)[:500] for n in names}, errors='replace')}")
    expect(page.locator("#tree g.node").first).to_be_visible(timeout=60_000)


def _prompt(rng: random.Random, page: Page, address: str, _: Path) -> None:
    page.goto(address)
    expect(page.locator("#tree g.node").first).to_be_visible(timeout=60_000)
    before = page.locator("#explorer [data-run]").get_attribute("data-run") or ""
    page.locator("#prompt textarea").fill(f"One day {rng.choice(material.SCRIPTS)} {material.text(rng)[:300]}")
    page.locator("#fold button").click()
    page.locator("#max-tokens input[type=number]").fill("8")
    page.locator("#drawer .close-fold").click()
    page.locator("#run").click()
    expect(page.locator("#explorer [data-run]")).not_to_have_attribute("data-run", before, timeout=60_000)
    page.wait_for_timeout(500)


def _hostile_trace(rng: random.Random) -> list[str]:
    lines = [json.loads(line) for line in presets.opening().lines()[:8]]

    def spoil(data: Any) -> Any:
        if isinstance(data, dict):
            return {k: v if k in ("event", "run") else spoil(v) for k, v in data.items()}
        if isinstance(data, list):
            return [spoil(v) for v in data]
        fixed = ("first", "second", "target", "root", "accepted", "rejected", "unreached")
        return (
            rng.choice(material.SCRIPTS) if isinstance(data, str) and data not in fixed and rng.random() < 0.7 else data
        )

    return [json.dumps(spoil(line)) for line in lines]


def _trace(rng: random.Random, page: Page, address: str, _: Path) -> None:
    page.goto(address)
    expect(page.locator("#tree g.node").first).to_be_visible(timeout=60_000)
    content = "\n".join([*_hostile_trace(rng), ""]).encode()
    file = {
        "name": f"{rng.choice(material.SCRIPTS)[:60]}.jsonl".replace("/", ""),
        "mimeType": "text/plain",
        "buffer": content,
    }
    page.locator("#last input[type=file]").set_input_files(file)
    expect(page.locator("#explorer [data-run]")).to_have_attribute("data-steps", "6", timeout=60_000)
    page.keyboard.press("Home")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
    with page.expect_download(timeout=60_000) as started:
        page.locator(".sharing .share").click()
        page.get_by_role("menuitem", name="SVG").click()
    page.goto("about:blank")
    page.set_content(started.value.path().read_text(encoding="utf-8"))
    page.wait_for_timeout(200)


def _record(line: str) -> Record:
    """Returns a line as an event if it is a valid one, otherwise as a dict."""
    content: dict[str, Any] = json.loads(line)
    try:
        return read_event(line.encode("utf-8", "replace")) if content["event"] in EVENTS else content
    except InputError:
        return content


def _alone(rng: random.Random, page: Page, _: str, folder: Path) -> None:
    path = folder / "alone.html"
    path.write_text(
        standalone_page(RecordedRun.of(map(_record, _hostile_trace(rng))), rng.choice(material.SCRIPTS)),
        encoding="utf-8",
    )
    page.goto(path.as_uri())
    expect(page.locator("#tree g.node").first).to_be_visible(timeout=60_000)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")


def killed(rng: random.Random) -> Cases:
    """Kills ``generate --trace`` at a random moment. All steps that were completely written must be readable."""
    from d2sd import load_trace

    with tempfile.TemporaryDirectory() as folder:
        for number in range(10**6):
            path = Path(folder) / f"{number}.jsonl"
            command = [
                sys.executable,
                "-m",
                "d2sd",
                "generate",
                "--prompt",
                "One day",
                "--max-new-tokens",
                "400",
                "--trace",
            ]
            with subprocess.Popen(
                [*command, str(path)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            ) as run:
                assert run.stdout
                run.stdout.read(1)  # wait until it writes
                run.stdout.read(rng.randrange(200))
                before = path.read_bytes().count(b"\n")
                run.kill()
            try:
                steps = len(load_trace(path).steps)
                yield None if steps >= before - 3 else f"{before} lines were written, {steps} steps are readable"
            except Exception as error:
                yield f"{type(error).__name__}: {error}"


def hands(rng: random.Random) -> Cases:
    """Presses, drags and types at random in HTML files. After each action the view must look as on a page on which nothing was pressed."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.html"
        path.write_text(standalone_page(presets.opening(), "run"), encoding="utf-8")
        engine = launch(playwright)
        pages = [OfflineHands(engine, path, size) for size in SIZES]
        try:
            while True:
                yield rng.choice(pages).check(rng.randrange(10**9), 10) or None
        finally:
            engine.close()


SERVED = {"calls": calls, "uploads": files, "browser": browser, "hands": hands, "killed writers": killed}
