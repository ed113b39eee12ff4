"""Breaks the bundled drafters and their target in known ways, and checks the doctor's diagnoses and mended drafters.

``python -m tools.broken_drafters`` prints the diagnosis of each way, and the number of right and wrong diagnoses.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from d2sd.bench.prompts import read_prompts
from d2sd.cli.examination import write_mended
from d2sd.decoding.replay import Text
from d2sd.doctor.examination import stream_findings
from d2sd.doctor.findings import Asked, Diagnosis, Findings
from d2sd.folders.loading import load_models
from d2sd.nets.models import Models
from tools.breaking import Broken
from tools.broken_ways import KEPT_OUT, SOUND, WAYS
from tools.doctor_faults import written


class Examiner:
    """Examines broken folders with the same prompts. It caches the bundled target's texts and their features."""

    def __init__(self, prompts: int):
        self.prompts = [p.text for p in read_prompts("heldout", prompts)]
        self.models = Models(load_models("tiny").target)
        self._texts: list[Text] = []

    def examine(self, way: Broken, folder: Path) -> tuple[Findings, float | None]:
        """Returns the findings, and the α of the drafter that ``--mend`` writes, or None if ``--mend`` writes no drafter."""
        asked = Asked(str(way.drafter(folder / "drafter")), self.prompts, chat=way.chat, visible=way.visible)
        models, texts = self.models, self._written()
        if way.target is not None:
            models, texts = Models(load_models(target=str(way.target(folder / "target"))).target), []
        found = list(stream_findings(asked, models, None, texts))[-1].found
        mended = folder / "mended"
        write_mended(found, mended)
        if not mended.exists():
            return found, None
        again = stream_findings(replace(asked, drafter=str(mended)), models, None, texts)
        return found, next((step.found.run.alpha for step in again if step.found.run), 0.0)

    def _written(self) -> list[Text]:
        if not self._texts:
            self._texts = written(self.models.target, self.prompts)
        return self._texts


def judged(diagnosis: Diagnosis, way: Broken) -> str:
    """Returns "right" for an expected cause, or for a sound drafter without fault; "WRONG" for another fault; else "not named"."""
    if diagnosis.cause in way.causes.split() or (way.causes == "none" and not diagnosis.names_fault):
        return "right"
    return "WRONG" if diagnosis.names_fault else "not named"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=20, help="number of prompts")
    parser.add_argument("--only", default="", help="only these ways: their names, separated by semicolons")
    parser.add_argument("--trained", type=Path, help="folder of a drafter trained for 50 steps")
    parser.add_argument("--part", default="", metavar="I/N", help="only every Nth way, from number I (0 is the first)")
    arguments = parser.parse_args()
    ways = {**SOUND, **WAYS, **KEPT_OUT}
    if arguments.trained:
        ways["50 steps"] = Broken("training", lambda out: arguments.trained)
    examiner = Examiner(arguments.prompts)
    ways = {k: w for k, w in ways.items() if not arguments.only or k in arguments.only.split(";")}
    if arguments.part:
        first, step = map(int, arguments.part.split("/"))
        ways = dict(list(ways.items())[first::step])
    counts: Counter[str] = Counter()
    for name, way in ways.items():
        began = time.process_time()
        with TemporaryDirectory() as folder:
            found, mended = examiner.examine(way, Path(folder))
        diagnosis = found.diagnosis
        assert diagnosis is not None
        mark = judged(diagnosis, way)
        counts[mark] += 1
        print(
            f"{name}: {diagnosis.cause} ({mark}{'' if mark == 'right' else f', expected {way.causes}'}), {time.process_time() - began:.0f} s of CPU\n"
            f"  {diagnosis.sentence}\n  {diagnosis.fix}\n  α {found.run.alpha if found.run else 0:.2f}"
            + (f" → {mended:.2f} after mending" if mended is not None else ""),
            flush=True,
        )
    print(f"{counts['right']} right, {counts['not named']} not named, {counts['WRONG']} wrong of {len(ways)}")


if __name__ == "__main__":
    main()
