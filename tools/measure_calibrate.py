"""Measures how long Calibrate takes for 10,000 steps: ``python -m tools.measure_calibrate`` prints JSON.

The recorded run is repeated to get this number of steps. All times are in seconds; the first three are medians of ``ROUNDS``
measurements.

computed: figures and drawing data on the server.
shown: from the click in the browser to the painted charts; includes ``computed`` and the transfer.
chosen: from the click on a bar to the list of its steps.
first_figure: from the first result to its painted figure; includes loading plotly.js.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import replace
from typing import Any

import gradio as gr
from playwright.sync_api import sync_playwright

from app import presets
from app.calibrate.measure import calibration_drawing
from app.calibrate.tab import figures_view
from app.layout import launch_options
from app.runs.recordings import Recording
from d2sd import Trace
from d2sd.calibration.report import MeasuredRuns
from d2sd.trace.run import RecordedRun
from tests.chromium import launch

STEPS = 10_000
ROUNDS = 5
SHOWN = """async () => {
  const began = performance.now();
  document.querySelector('#go').click();
  const painted = () => new Promise((r) => requestAnimationFrame(() => setTimeout(r, 0)));
  const old = window.__told || '';
  const title = () => document.querySelector('#calibration .line .what').textContent;
  while (title() === old || !title()) await new Promise((r) => setTimeout(r, 4));
  await painted();
  window.__told = title();
  return (performance.now() - began) / 1000;
}"""
CHOSEN = """async () => {
  const marks = document.querySelectorAll('#calibration [data-figure=uniform] .numbers button');
  const began = performance.now();
  marks[marks.length - 1].click();
  await new Promise((r) => requestAnimationFrame(() => setTimeout(r, 0)));
  return (performance.now() - began) / 1000;
}"""
DRAWN = """async () => {
  const began = performance.now();
  while (!document.querySelector('#calibration .plot .main-svg')) await new Promise((r) => setTimeout(r, 4));
  await new Promise((r) => requestAnimationFrame(() => setTimeout(r, 0)));
  return (performance.now() - began) / 1000;
}"""


def repeated(count: int = STEPS) -> list[Trace]:
    """Returns as many copies of the recorded run as are needed for ``count`` steps. The last copy is cut."""
    trace = presets.opening().trace()
    whole, rest = divmod(count, len(trace.steps))
    return [*[trace] * whole, replace(trace, steps=trace.steps[:rest])]


def measure() -> dict[str, Any]:
    """Returns the measured values by name."""
    traces = repeated()
    labels = [f"run {n}" for n in range(len(traces))]
    computed: list[float] = []

    def compute() -> str:
        began = time.perf_counter()
        value = calibration_drawing(
            MeasuredRuns(traces),
            [Recording(name, RecordedRun.of([trace.header])) for name, trace in zip(labels, traces, strict=True)],
            f"round {len(computed)}",
        )
        computed.append(time.perf_counter() - began)
        return value

    with gr.Blocks() as demo:
        view = figures_view()
        gr.Button("go", elem_id="go").click(compute, None, view, show_progress="hidden")
    _, url, _ = demo.launch(**launch_options(), prevent_thread_lock=True, quiet=True)
    try:
        with sync_playwright() as playwright:
            browser = launch(playwright)
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(url)
            page.wait_for_selector("#calibration .empty")
            shown = [page.evaluate(SHOWN)]
            first_figure = page.evaluate(DRAWN)
            shown += [page.evaluate(SHOWN) for _ in range(ROUNDS - 1)]
            chosen = [page.evaluate(CHOSEN) for _ in range(ROUNDS)]
            browser.close()
    finally:
        demo.close(verbose=False)
    median = {name: round(statistics.median(v), 3) for name, v in (("computed", computed), ("shown", shown), ("chosen", chosen))}  # fmt: skip
    return {
        "steps": STEPS,
        "rounds": ROUNDS,
        **median,
        "first_shown": round(shown[0], 3),
        "first_figure": round(first_figure, 3),
        "bytes": len(compute()),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
