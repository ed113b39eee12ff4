"""How quick is the page? ``python -m tests.page_bench`` starts it here, drives it in headless Chromium and prints
first paint, scrubbing, streaming, and what a watching page costs the engine. The figures belong to this machine."""

from __future__ import annotations

import json
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from playwright.sync_api import Browser, Page, expect, sync_playwright

from app import models, presets, streaming
from app.layout import build, launch_options
from app.models import Chosen
from app.threads import leave_a_core
from d2sd import DecodeConfig, Engine, Event, PrefillDone, StepDone
from tests.e2e.driving import PATIENCE, choose_method, opened, set_number, upload, view

STEPS = 500
VISITS, ROUNDS = 5, 9
TOKENS = 200
PROMPT = next(iter(presets.EXAMPLES.values()))
WATCH_FIRST_TREE = """
const look = () => document.querySelector("#tree g.node") ? (window.firstTree = performance.now()) : requestAnimationFrame(look);
look();"""
WATCH_LONG_TASKS = """
window.longTasks = [];
new PerformanceObserver((all) => window.longTasks.push(...all.getEntries().map((e) => e.duration))).observe({ type: "longtask" });"""
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
    """The recorded run, its steps over and over under new numbers, as an unfinished trace."""
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


@contextmanager
def window(browser: Browser, *scripts: str) -> Iterator[Page]:
    """A page in a context of its own, so that nothing is cached."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    for script in scripts:
        context.add_init_script(script)
    try:
        yield context.new_page()
    finally:
        context.close()


def first_tree(browser: Browser, address: str) -> list[float]:
    """Milliseconds from navigation to the first node of the tree, one per visit."""
    found = []
    for _ in range(VISITS):
        with window(browser, WATCH_FIRST_TREE) as page:
            opened(page, address)
            found.append(page.evaluate("window.firstTree"))
    return found


def scrub(browser: Browser, address: str) -> list[float]:
    """Milliseconds of every step from key to painted frame."""
    with window(browser) as page:
        opened(page, address)
        upload(page, "long.jsonl", long_trace(STEPS).encode())
        expect(view(page)).to_have_attribute("data-steps", str(STEPS), timeout=PATIENCE)
        page.keyboard.press("Home")
        expect(view(page)).to_have_attribute("data-step", "0")
        times = page.evaluate(SCRUB, STEPS - 1)
        expect(view(page)).to_have_attribute("data-step", str(STEPS - 1))
    return times


class Clock:
    """Tokens per second of all runs of an engine, by the wall clock of the thread that makes them, prefill left out."""

    def __init__(self, engine: Engine) -> None:
        self.speeds: list[float] = []
        real = engine.stream

        def stream(prompt: str, config: DecodeConfig, stop: Any = streaming.never) -> Iterator[Event]:
            began, tokens = 0.0, 0
            for event in real(prompt, config, stop):
                yield event
                if isinstance(event, PrefillDone):
                    began = time.perf_counter()
                elif isinstance(event, StepDone):
                    tokens += len(event.committed)
                elif config.max_new_tokens == TOKENS:  # not what warms up
                    self.speeds.append(tokens / (time.perf_counter() - began))

        engine.stream = stream  # type: ignore[assignment,method-assign]

    def close(self, engine: Engine) -> None:
        """Stop timing."""
        del engine.stream


def watched(browser: Browser, address: str, method: str) -> tuple[list[float], list[float], list[float]]:
    """Tokens per second alone and watched, taking turns, and the long tasks of the page while it watched (ms)."""
    engine = models.engine(Chosen("tiny"))
    clock = Clock(engine)
    config = DecodeConfig(method, TOKENS)
    try:
        with window(browser, WATCH_LONG_TASKS) as page:
            opened(page, address)
            choose_method(page, method)
            page.locator("#prompt textarea").fill(PROMPT)
            page.locator("#compare input").uncheck()
            set_number(page, "max-tokens", TOKENS)
            tasks = []
            for _ in range(ROUNDS + 1):  # the first round warms up
                list(streaming.stream(Chosen("tiny"), PROMPT, config, streaming.never))
                page.evaluate("window.longTasks.length = 0")
                run, done = view(page).get_attribute("data-run"), len(clock.speeds)
                page.locator("#run").click()
                expect(view(page)).not_to_have_attribute("data-run", run or "", timeout=PATIENCE)
                while len(clock.speeds) == done:
                    page.wait_for_timeout(100)
                page.wait_for_timeout(700)  # what was drawn last, and quiet for the next turn
                tasks.append(page.evaluate("window.longTasks"))
    finally:
        clock.close(engine)
    return clock.speeds[2::2], clock.speeds[3::2], [t for each in tasks[1:] for t in each]


def read(address: str) -> tuple[list[float], list[float]]:
    """Tokens per second of d2sd alone, and read by a process that draws nothing, taking turns."""
    engine = models.engine(Chosen("tiny"))
    clock = Clock(engine)
    command = [sys.executable, "-m", "tests.page_reader", address, str(TOKENS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdin
        assert reader.stdout
        for _ in range(ROUNDS + 1):  # the first round warms up
            list(streaming.stream(Chosen("tiny"), PROMPT, DecodeConfig("d2sd", TOKENS), streaming.never))
            print("run", file=reader.stdin, flush=True)
            reader.stdout.readline()
        reader.stdin.close()
    clock.close(engine)
    return clock.speeds[2::2], clock.speeds[3::2]


def main() -> None:
    """Measure and print."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    leave_a_core()
    demo = build()
    _, address, _ = demo.launch(**launch_options(), prevent_thread_lock=True, quiet=True)
    middle = statistics.median
    print(f"{platform.machine()}, torch {torch.__version__}, {torch.get_num_threads()} threads; headless Chromium")
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            times = first_tree(browser, address)
            print(
                f"tree on screen after navigation: median {middle(times):.0f} ms, slowest {max(times):.0f} of {VISITS}"
            )
            began = time.perf_counter()
            models.engine(Chosen("tiny"))
            print(f"bundled nets loaded: {time.perf_counter() - began:.2f} s")
            times = scrub(browser, address)
            print(
                f"scrubbing {STEPS} steps, key to painted frame: median {middle(times):.1f} ms, 99% within {statistics.quantiles(times, n=100)[98]:.1f}, "
                f"slowest {max(times):.1f}"
            )
            alone, seen = read(address)
            cost = 1 - middle(seen) / middle(alone)
            print(
                f"d2sd: {middle(alone):.1f} tokens/s alone, {middle(seen):.1f} read without drawing ({cost:+.1%} slower)"
            )
            for method in ("d2sd", "autoregressive"):
                alone, seen, tasks = watched(browser, address, method)
                cost = 1 - middle(seen) / middle(alone)
                print(
                    f"{method}: {middle(alone):.1f} tokens/s alone, {middle(seen):.1f} watched ({cost:+.1%} slower; "
                    f"medians of {ROUNDS}); longest main-thread task {f'{max(tasks):.0f} ms' if tasks else 'below 50 ms'}"
                )
            browser.close()
    finally:
        demo.close(verbose=False)


if __name__ == "__main__":
    main()
