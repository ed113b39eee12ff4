"""Examines bundled drafters with random faults in their weights. The doctor must write a report on each of them.

``python -m tools.doctor_faults --count 200`` prints a table by kind of fault. Faults are numbered from 0. The number selects the
kind and the drafter and is the random seed, so fault n is the same in every run.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from d2sd.bench.prompts import read_prompts
from d2sd.config import DecodeConfig
from d2sd.doctor import examination
from d2sd.doctor.asked import Asked
from d2sd.doctor.examination import Examination
from d2sd.doctor.findings import Findings
from d2sd.doctor.report import doctor_report
from d2sd.engine import Engine
from d2sd.folders.loading import load_alone
from d2sd.nets.models import Models
from d2sd.nets.target import Target
from d2sd.replay.recorded import Text, with_features
from d2sd.trace.text import progress
from tools.breaking import Weights, copied

PARTS = ("dflash", "dspark", "eagle3", "vp")
MOST_TENSORS = 3  # maximum number of changed tensors per fault
FP8_LARGEST = 448.0  # largest value in e4m3


def _draw(w: Tensor, generator: torch.Generator, count: int) -> Tensor:
    return torch.randint(w.numel(), (count,), generator=generator)


def _at(w: Tensor, generator: torch.Generator, value: float) -> Tensor:
    """Returns the tensor with ``value`` at one to five random indices."""
    changed = w.flatten().clone()
    changed[_draw(w, generator, 1 + int(torch.randint(5, (1,), generator=generator)))] = value
    return changed.view_as(w)


def _scaled(w: Tensor, generator: torch.Generator) -> Tensor:
    exponent = float(torch.rand(1, generator=generator)) * 40 - 20
    return (w.float() * 2.0**exponent).to(w.dtype)


def _permuted(w: Tensor, generator: torch.Generator) -> Tensor:
    side = int(torch.randint(w.dim(), (1,), generator=generator))
    return w.index_select(side, torch.randperm(w.shape[side], generator=generator))


def _rolled(w: Tensor, generator: torch.Generator) -> Tensor:
    side = int(torch.randint(w.dim(), (1,), generator=generator))
    return w.roll(1 + int(torch.randint(w.shape[side], (1,), generator=generator)), side)


def _flipped(w: Tensor, generator: torch.Generator) -> Tensor:
    """Returns the tensor with one bit of some entries flipped, as faulty memory does."""
    bits = w.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[w.element_size()])
    changed = bits.flatten().clone()
    for place in _draw(w, generator, 20):
        changed[place] ^= 1 << int(torch.randint(8 * w.element_size() - 1, (1,), generator=generator))
    return changed.view_as(bits).view(w.dtype)


FAULTS: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "zeros": lambda w, generator: torch.zeros_like(w),
    "scaled": _scaled,
    "permuted": _permuted,
    "rolled": _rolled,
    "NaN": lambda w, generator: _at(w, generator, torch.nan),
    "infinity": lambda w, generator: _at(w, generator, torch.inf),
    "448": lambda w, generator: (w.float() / w.float().abs().max() * FP8_LARGEST).to(w.dtype),
    "bits flipped": _flipped,
    "negated": lambda w, generator: -w,
    "cut": lambda w, generator: w[: int(torch.randint(len(w), (1,), generator=generator))],
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    kind: key of ``FAULTS``.
    part: folder of the bundled drafter that gets the fault.
    change: function that returns the drafter's changed weights.
    """

    kind: str
    part: str
    change: Callable[[Weights], Weights]


def random_fault(number: int) -> Fault:
    """Returns the fault with this number, counted from 0.

    The number selects the kind of fault and the drafter, and is the seed with which the damaged tensors are chosen: the same number
    always gives the same fault.
    """
    kind = list(FAULTS)[number % len(FAULTS)]
    part = PARTS[number // len(FAULTS) % len(PARTS)]

    def change(weights: Weights) -> Weights:
        generator = torch.Generator().manual_seed(number)
        names = sorted(name for name, w in weights.items() if w.is_floating_point())
        count = 1 + int(torch.randint(MOST_TENSORS, (1,), generator=generator))
        chosen = [names[n] for n in torch.randperm(len(names), generator=generator)[:count]]
        return weights | {name: FAULTS[kind](weights[name], generator).contiguous() for name in chosen}

    return Fault(kind, part, change)


def written(target: Target, prompts: Sequence[str]) -> list[Text]:
    """Returns the texts that the target writes for the prompts, with the features of all its layers."""
    engine, config = Engine(Models(target)), DecodeConfig("autoregressive", examination.TOKENS)
    texts = examination.generate_texts(target, [engine.encode(p, config) for p in prompts], examination.TOKENS)
    return [with_features(target, text, range(target.config.num_hidden_layers)) for text in texts]


class Prober:
    """Examines faulty drafters with the same few texts of the bundled target."""

    def __init__(self, target: Target, prompts: int):
        self.target, self.prompts = target, [p.text for p in read_prompts("heldout", prompts)]
        self.texts = written(target, self.prompts)

    def report(self, fault: Fault, folder: Path) -> Findings:
        """Examines a faulty drafter, writes the report, and mends the drafter if possible. Returns the findings. Any exception is a
        bug of the doctor.

        folder: empty folder for the drafters.
        """
        drafter = copied(folder / "drafter", weights=fault.change, part=fault.part)
        asked = Asked(str(drafter), self.prompts, visible=2 if fault.part == "vp" else 0)
        examination = Examination(asked, self.target, None, self.texts)
        findings = examination.run()
        doctor_report([findings])
        examination.mend(folder / "mended")
        return findings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="number of faults")
    parser.add_argument("--prompts", type=int, default=5, help="number of prompts")
    parser.add_argument("--tokens", type=int, default=16, help="tokens per text")
    arguments = parser.parse_args()
    examination.TOKENS = arguments.tokens
    prober, began = Prober(load_alone("tiny").target, arguments.prompts), time.monotonic()
    table: dict[str, Counter[str]] = {kind: Counter() for kind in FAULTS}
    for number in progress(range(arguments.count), desc="faults"):
        fault = random_fault(number)
        counts = table[fault.kind]
        counts["faults"] += 1
        with TemporaryDirectory() as folder:
            try:
                findings = prober.report(fault, Path(folder))
            except Exception:
                counts["tracebacks"] += 1
                print(f"fault {number}, {fault.kind} in {fault.part}:\n{traceback.format_exc()}", flush=True)
                continue
        counts["named"] += findings.diagnosis is not None and findings.diagnosis.names_fault
        failures = [f"{f.part} ({f.reason})" for f in findings.failures]
        failures += [f"{t.variant.description} ({t.failure})" for t in findings.trials if t.failure]
        counts["with failed parts"] += bool(failures)
        if failures:
            print(f"fault {number}, {fault.kind} in {fault.part}: failed: {'; '.join(failures)}", flush=True)
    columns = ("faults", "named", "with failed parts", "tracebacks")
    print(f"| kind | {' | '.join(columns)} |\n| --- |{' --- |' * len(columns)}")
    table["all"] = sum(table.values(), Counter())
    for kind, counts in table.items():
        print(f"| {kind} | {' | '.join(str(counts[c]) for c in columns)} |")
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
