"""Measures the page on this machine: ``python -m tools.page_bench`` starts the page and drives it in headless Chromium.

Prints the times of first paint, scrubbing and animation, and by how much an open page slows the engine down.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from playwright.sync_api import Browser, Page, expect, sync_playwright

import d2sd
from app import presets
from tests.chromium import launch
from tests.e2e.driving import choose_method, opened, set_number, upload, view

STEPS = 500
NODES = 80
VISITS, ROUNDS = 5, 15
TOKENS = 200
PROMPT = next(iter(presets.EXAMPLES.values()))
WATCH_FIRST_TREE = """
const look = () => document.querySelector("#tree g.node") ? (window.firstTree = performance.now()) : requestAnimationFrame(look);
look();"""
WATCH_LONG_TASKS = """
window.longTasks = [];
new PerformanceObserver((all) => window.longTasks.push(...all.getEntries().map((e) => e.duration))).observe({ type: "longtask" });"""
FRAMES = """async () => {
  const key = () => document.body.dispatchEvent(new KeyboardEvent("keydown", { key: " ", bubbles: true }));
  const next = () => new Promise((painted) => requestAnimationFrame(painted));
  const root = document.querySelector("#explorer .explorer");
  key();
  const times = [];
  for (let before = await next(), begun = false; !begun || root.dataset.stage; ) {
    const now = await next();
    times.push(now - before);
    before = now;
    begun ||= Boolean(root.dataset.stage);
  }
  return times;
}"""
SCRUB = """async (steps) => {
  const times = [];
  for (let i = 0; i < steps; i += 1) {
    const began = performance.now();
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
    await new Promise((painted) => requestAnimationFrame(() => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = painted;
      port2.postMessage(0);
    }));
    times.push(performance.now() - began);
  }
  return times;
}"""


def long_trace(steps: int) -> str:
    """Returns an unfinished trace of ``steps`` steps: the steps of the recorded run, repeated under new numbers."""
    lines = presets.opening().lines()
    recorded = [step for step in map(json.loads, lines) if step["event"] == "StepDone"]
    out, elapsed = lines[:2], 0.0
    before = None
    for number in range(steps):
        step = json.loads(json.dumps(recorded[number % len(recorded)]))
        if before:
            last = before["committed"][-1]
            step["anchor"] = step["nodes"][0]["token"] = last["token"]
            step["anchor_text"] = step["nodes"][0]["text"] = last["text"]
            step["anchor_position"] = before["anchor_position"] + len(before["committed"])
        elapsed += sum(step["seconds"].values())
        step |= {"step": number, "elapsed": elapsed}
        out.append(json.dumps(step))
        before = step
    return "\n".join([*out, ""])


def wide_step(nodes: int) -> str:
    """Returns an unfinished trace: the recorded run up to its largest tree, which is extended to ``nodes`` nodes."""
    lines = presets.opening().lines()
    header, *records = map(json.loads, lines)
    step = max((r for r in records if r["event"] == "StepDone"), key=lambda r: len(r["nodes"]))
    before = lines[1 : 1 + records.index(step)]
    depth = max(node["depth"] for node in step["nodes"])
    while len(step["nodes"]) < nodes:  # append branches that start at the anchor
        last = step["nodes"][-1]
        parent = 0 if last["depth"] == depth else last["id"]
        more = {"id": len(step["nodes"]), "parent": parent, "depth": 1 if parent == 0 else last["depth"] + 1}
        step["nodes"].append(last | more | {"candidates": [], "state": "unreached"})
    return "\n".join([json.dumps(header | {"run": "wide"}), *before, json.dumps(step), ""])


def play(browser: Browser, address: str) -> list[float]:
    """Returns the milliseconds between the frames of an animated step while every core is busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        with window(browser) as page:
            opened(page, address)
            upload(page, "wide.jsonl", wide_step(NODES).encode())
            expect(view(page)).to_have_attribute("data-run", "wide")
            page.keyboard.press("End")
            times: list[float] = page.evaluate(FRAMES)
            return times
    finally:
        for process in busy:
            process.kill()


@contextmanager
def window(browser: Browser, *scripts: str) -> Iterator[Page]:
    """Context of a page in a new browser context, in which nothing is cached.

    scripts: JavaScript that runs before the page's own scripts.
    """
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    for script in scripts:
        context.add_init_script(script)
    try:
        yield context.new_page()
    finally:
        context.close()


def first_tree(browser: Browser, address: str) -> list[float]:
    """Returns, for each visit, the milliseconds from navigation to the first node of the tree."""
    milliseconds = []
    for _ in range(VISITS):
        with window(browser, WATCH_FIRST_TREE) as page:
            opened(page, address)
            milliseconds.append(page.evaluate("window.firstTree"))
    return milliseconds


def scrub(browser: Browser, address: str) -> list[float]:
    """Returns, for each step, the milliseconds from key press to painted frame."""
    with window(browser) as page:
        opened(page, address)
        upload(page, "long.jsonl", long_trace(STEPS).encode())
        expect(view(page)).to_have_attribute("data-steps", str(STEPS))
        page.keyboard.press("Home")
        expect(view(page)).to_have_attribute("data-step", "0")
        times = page.evaluate(SCRUB, STEPS - 1)
        expect(view(page)).to_have_attribute("data-step", str(STEPS - 1))
    return times


class Server:
    """The page in a separate process (``tools.page_server``), so that the measuring process does not slow down its engine."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tools.page_server", str(TOKENS)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
        self.address = self._answer()

    def alone(self, method: str) -> float:
        """Returns the tokens per second of a run that the page does not show."""
        return self._ask(f"alone {method} {PROMPT}")

    def shown(self) -> float:
        """Waits until the next run of the page ends. Returns its tokens per second."""
        return self._ask("next")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    def _ask(self, line: str) -> float:
        assert self.process.stdin
        print(line, file=self.process.stdin, flush=True)
        return float(self._answer())

    def _answer(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()


def watched(browser: Browser, server: Server, method: str) -> tuple[list[float], list[float], list[float]]:
    """Compares runs that the page shows with runs without the page, in turn.

    Returns the tokens per second of both kinds of runs (first without the page), and the milliseconds of the page's long tasks.
    """
    alone, seen, tasks = [], [], []
    with window(browser, WATCH_LONG_TASKS) as page:
        opened(page, f"{server.address}?model=tiny")  # the server times this model's engine
        choose_method(page, method)
        page.locator("#prompt textarea").fill(PROMPT)
        set_number(page, "max-tokens", TOKENS)
        for _ in range(ROUNDS + 1):  # the first round warms up
            alone.append(server.alone(method))
            page.evaluate("window.longTasks.length = 0")
            page.locator("#run").click()
            seen.append(server.shown())
            page.wait_for_timeout(700)  # the page finishes drawing before the next turn
            tasks.append(page.evaluate("window.longTasks"))
    return alone[1:], seen[1:], [t for each in tasks[1:] for t in each]


def read(server: Server, method: str) -> tuple[list[float], list[float]]:
    """Compares runs that a process reads without drawing them (``tools.page_reader``) with runs that nobody reads, in turn.

    Returns the tokens per second of both kinds of runs, first those that nobody reads.
    """
    alone, seen = [], []
    command = [sys.executable, "-m", "tools.page_reader", server.address, str(TOKENS), method]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as reader:
        assert reader.stdin
        assert reader.stdout
        for _ in range(ROUNDS + 1):  # the first round warms up
            alone.append(server.alone(method))
            print("run", file=reader.stdin, flush=True)
            seen.append(server.shown())
            reader.stdout.readline()
        reader.stdin.close()
    return alone[1:], seen[1:]


def slower(alone: list[float], seen: list[float]) -> str:
    """Returns, as text, the median slowdown over the pairs of measurements."""
    return f"{1 - statistics.median(b / a for a, b in zip(alone, seen, strict=True)):+.1%} slower"


def main() -> None:
    middle = statistics.median
    server = Server()
    print(f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}; headless Chromium")
    try:
        with sync_playwright() as playwright:
            browser = launch(playwright)
            began = time.perf_counter()
            d2sd.load("tiny")
            print(f"bundled models loaded: {time.perf_counter() - began:.2f} s")
            times = first_tree(browser, server.address)
            print(
                f"tree on screen after navigation: median {middle(times):.0f} ms, slowest {max(times):.0f} of {VISITS}"
            )
            times = scrub(browser, server.address)
            print(
                f"scrubbing {STEPS} steps, key to painted frame: median {middle(times):.1f} ms, 99% within {statistics.quantiles(times, n=100)[98]:.1f}, "
                f"slowest {max(times):.1f}"
            )
            times = play(browser, server.address)
            slow = sum(t > 50 for t in times)
            print(
                f"animation of a step of {NODES} nodes, every core busy: {len(times)} frames, median "
                f"{middle(times):.1f} ms, {slow / len(times):.1%} over 50 ms, slowest {max(times):.0f}"
            )
            for method in ("d2sd", "autoregressive"):
                alone, seen = read(server, method)
                print(
                    f"{method}: {middle(alone):.1f} tokens/s alone, {middle(seen):.1f} read by a process that draws "
                    f"nothing ({slower(alone, seen)})"
                )
                alone, seen, tasks = watched(browser, server, method)
                print(
                    f"{method}: {middle(alone):.1f} tokens/s alone, {middle(seen):.1f} watched in this browser "
                    f"({slower(alone, seen)}, median of {ROUNDS} pairs); "
                    f"longest main-thread task {f'{max(tasks):.0f} ms' if tasks else 'below 50 ms'}"
                )
            browser.close()
    finally:
        server.close()


if __name__ == "__main__":
    main()
