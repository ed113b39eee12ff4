"""Generate text. Colours show who proposed each token: the first drafter (blue), the second drafter (yellow) or the target (green)."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from d2sd.cli.common import (
    add_decode_arguments,
    add_flag,
    add_model_arguments,
    decode_config,
    ended_at_once,
    load_engine,
    print_json,
    read_text,
    tell_of_template,
)
from d2sd.cli.outputs import add_output
from d2sd.config import check_prompt
from d2sd.methods import METHODS
from d2sd.trace.events import Event, Finished, PrefillDone, StepDone
from d2sd.trace.text import printable
from d2sd.trace.trace import Trace, TraceFile

if TYPE_CHECKING:  # imports torch, which takes seconds and is not needed for --help
    from d2sd.engine import Engine

COLOURS = {"first": "\033[34m", "second": "\033[33m", "target": "\033[32m"}
RESET = "\033[0m"
# The totals that ``--json`` prints.
TOTALS = (
    "steps", "mean_acceptance_length", "nodes_per_step", "boundary_hit_rate", "repaired_rate", "tokens_per_redraft",
    "tokens_per_second", "seconds",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--prompt", metavar="TEXT", help="text to continue or, with --chat, question to answer")
    source.add_argument("--prompt-file", metavar="FILE", help="UTF-8 file with the prompt")
    methods = "; ".join(f"{m.id}: {m.sentence[:-1]}" for m in METHODS.values())
    parser.add_argument("--method", default="d2sd", metavar="ID", help=f"decoding method (default: d2sd). {methods}")
    add_model_arguments(parser)
    add_decode_arguments(parser)
    add_output(parser, "--trace", metavar="OUT.jsonl", help="record every step to this file while running")
    add_flag(parser, "--json")


def run(arguments: argparse.Namespace) -> None:
    """Streams the text to the terminal, or prints one JSON object."""
    config = decode_config(arguments, arguments.method, inspect=arguments.trace is not None)
    prompt = arguments.prompt if arguments.prompt_file is None else read_text(arguments.prompt_file)
    check_prompt(prompt)
    engine = load_engine(arguments, config)
    request = engine.request(prompt, config)
    if wait := engine.first_use(request.config.backend):
        print(wait, file=sys.stderr)
    tell_of_template(engine, config)
    header = engine.header(request)
    events: list[Event] = []
    with ExitStack() as stack:
        file = stack.enter_context(TraceFile(arguments.trace)) if arguments.trace else None
        if file:
            file.write(header)
        for event in engine.run(request):
            events.append(event)
            if file:
                file.write(event)
            if not arguments.json and not isinstance(event, Finished):
                _show(event)
    trace = Trace.of(header, events)
    if arguments.json:
        print_json(summary(engine, trace))
        return
    totals = trace.totals
    if trace.token_ids[0] in engine.models.target.end_ids:
        print(ended_at_once(1, 1, config.chat), file=sys.stderr)
    on_cpu = engine.models.target.device.type == "cpu"
    quicker = (
        "; on a CPU --cost-aware may be quicker"
        if on_cpu and METHODS[config.method].drafts and not config.cost_aware
        else ""
    )
    print(f"\n\n{totals.tokens} tokens in {totals.steps} steps, mean acceptance length {totals.mean_acceptance_length:.2f}, "
          f"{totals.tokens_per_second:.0f} tokens/s{quicker}", file=sys.stderr)  # fmt: skip


def _show(event: PrefillDone | StepDone) -> None:
    colour = sys.stdout.isatty()
    for token in event.committed:
        text = printable(token.text)
        sys.stdout.write(f"{COLOURS[token.proposer]}{text}{RESET}" if colour else text)
    sys.stdout.flush()


def summary(engine: Engine, trace: Trace) -> dict[str, object]:
    """Returns the object that ``--json`` prints."""
    assert trace.prefill is not None
    assert isinstance(trace.finished, Finished)
    totals = trace.totals
    return {
        "method": trace.header["method"],
        "model": engine.models.name,
        "text": trace.finished.text,
        "prompt_token_ids": trace.prefill.prompt_token_ids,
        "token_ids": trace.finished.token_ids,
        "stop_reason": trace.finished.stop_reason,
        **{name: getattr(totals, name) for name in TOTALS},
        "stage_seconds": {"prefill": trace.finished.prefill_seconds, **totals.stage_seconds},
        "config": trace.header["config"],
        "versions": trace.header["versions"],
    }
