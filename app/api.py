"""The page's API: ``generate``, ``step``, ``calibrate``, for gradio_client and as MCP tools.

The page's other endpoints serve the page's controls and are not listed.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

import gradio as gr

from app import presets, settings
from app.gradio_internals import leave_out
from app.jobs import MODEL, TURNS, failure_sentence
from app.models import model_set
from app.session import History
from app.streaming import RunRequest, get_ready, never, prepare_run, stream
from d2sd import InputError, Trace
from d2sd.calibration import RunStatistics, read_report
from d2sd.errors import require
from d2sd.trace.description import describe_step
from d2sd.trace.events import to_line
from d2sd.trace.run import RecordedRun
from d2sd.trace.text import escaped

MAX_RUNS = 200
NEEDS_MCP = "MCP=1 needs the package mcp: install it with pip install 'gradio[mcp]', or start the page without MCP=1"

RUNS = History(MAX_RUNS)  # the latest runs of all callers


def recorded(key: object) -> Trace:
    """Returns the run with this key. Raises ``InputError`` if it is not among the latest runs."""
    recording = RUNS.find(key)
    if recording is None:
        raise InputError(
            f"there is no run {str(key)[:40]!r}; use the name that generate returned (only the latest runs are kept)"
        )
    return recording.run.trace()


def generate(
    prompt: str,
    model: str = presets.BUNDLED,
    method: str = "d2sd",
    max_new_tokens: int = 128,
    num_branches: int = 4,
    temperature: float = 0,
    seed: int = 0,
    chat: bool = False,
) -> dict[str, Any]:
    """Continue a prompt by speculative decoding, and return the text that each step wrote.

    Args:
        prompt: the text to continue
        model: tiny, or another model that the page offers
        method: d2sd, dflash, ddtree, autoregressive or another method of the page
        max_new_tokens: maximum number of generated tokens
        num_branches: K, the number of likely rejection boundaries to re-draft from
        temperature: 0 for greedy decoding, above 0 for sampling
        seed: seed of the sampling
        chat: whether to put the prompt into the model's chat template

    Returns:
        run (the name of the run, for step and calibrate), text, steps (the text written by each step), stop_reason, and totals:
        mean_acceptance_length (α), tokens_per_second and others
    """
    for name, text in (("prompt", prompt), ("model", model), ("method", method)):
        require(isinstance(text, str), f"{name} must be a string, not {escaped(str(text)[:40])}")
    values = {
        "max_new_tokens": max_new_tokens,
        "num_branches": num_branches,
        "temperature": temperature,
        "seed": seed,
        "chat": chat,
    }
    request = RunRequest(prompt, model_set(model), method, values, compare=False)
    run = prepare_run(request.models, prompt, request.config())
    try:
        with TURNS.turn(run):
            for _ in get_ready(run, never):
                pass
            trace = run.trace([*stream(run, never)])
    except Exception as error:
        raise InputError(failure_sentence(error).rstrip(".")) from None
    committed = [trace.prefill.committed if trace.prefill else (), *(s.committed for s in trace.steps)]
    step_texts = ["".join(c.text for c in tokens) for tokens in committed]
    return {
        "run": RUNS.keep(RecordedRun.of(trace.records()), "API").key,
        "text": "".join(step_texts),
        "steps": step_texts[1:],
        "totals": asdict(trace.totals),
        "stop_reason": trace.finished.stop_reason if trace.finished else None,
    }


def step(run: str, number: int = 1) -> dict[str, Any]:
    """Return one step of a run: its drafts, confidences, token tree, and the accepted tokens.

    Args:
        run: name of the run, as generate returned it
        number: number of the step, from 1; -1 is the last

    Returns:
        words (lines of text that describe the step) and step (all its fields, as in a trace)
    """
    steps = recorded(run).steps
    wanted = settings.whole(number, "number")
    require(wanted and -len(steps) <= wanted <= len(steps), f"there is no step {wanted}; the run has {len(steps)}")
    chosen = steps[wanted - 1 if wanted > 0 else wanted]
    return {"words": list(describe_step(chosen, len(steps))), "step": json.loads(to_line(chosen))}


def calibrate(runs: list[str]) -> dict[str, Any]:
    """Measure how well the first drafter's confidence predicts acceptance in some runs.

    Args:
        runs: names of runs, as generate returned them; more runs give narrower intervals

    Returns:
        sentences (a summary) and figures (each with its 95% interval, if there are enough runs)
    """
    require(isinstance(runs, list) and runs, "runs must be a list of run names that generate returned")
    report = RunStatistics(recorded(run) for run in dict.fromkeys(map(str, runs))).report()
    return {"sentences": [s.text for s in read_report(report)], "figures": report.to_dict()}


def publish(page: gr.Blocks) -> None:
    """Add the endpoints to a page, and hide all its other endpoints. Call it in the page's context, after wiring all events."""
    endpoints_of_controls = list(page.fns)
    gr.api(generate, api_name="generate", concurrency_id=MODEL, concurrency_limit=1)
    gr.api(step, api_name="step")
    gr.api(calibrate, api_name="calibrate")
    leave_out(page, endpoints_of_controls)


def mcp() -> dict[str, bool]:
    """Returns the MCP argument of ``launch``. With ``MCP=1`` in the environment, the endpoints are also MCP tools.

    Raises ``InputError`` if the package ``mcp`` is missing.
    """
    if os.environ.get("MCP", "").strip() not in ("1", "true", "yes"):
        return {"mcp_server": False}
    require(find_spec("mcp"), NEEDS_MCP)
    return {"mcp_server": True}
