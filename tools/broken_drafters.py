"""Breaks the bundled drafters and their target in known ways, and checks what the doctor reports.

``python -m tools.broken_drafters`` prints the main finding for each way, and the number of wrong findings. A finding is wrong if
the doctor reports a cause that is not among the way's causes, or if the mended drafter does not reach the intact one's α. With
``--reference``, the intact drafter is the reference, and a finding is right if the doctor names the parts that lower α.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from d2sd.bench.prompts import read_prompts
from d2sd.doctor.asked import Asked
from d2sd.doctor.diagnosis import MOST_PARTS
from d2sd.doctor.examination import Examination
from d2sd.doctor.exchange import RESTORED
from d2sd.doctor.findings import Findings
from d2sd.folders.loading import load_alone
from d2sd.replay.recorded import Text
from tools.breaking import TINY, Broken
from tools.broken_ways import KEPT_OUT, SOUND, WAYS
from tools.doctor_faults import written
from tools.outside_ways import OUTSIDE, OUTSIDE_SOUND


class Examiner:
    """Examines broken folders with the same prompts. It caches the bundled target's texts and their features."""

    def __init__(self, prompts: int):
        self.prompts = [p.text for p in read_prompts("heldout", prompts)]
        self.target = load_alone("tiny").target
        self._texts: list[Text] = []
        self._intact: dict[str, float] = {}

    def examine(self, way: Broken, folder: Path, reference: bool) -> tuple[Findings, float | None]:
        """Returns the findings, and the α of the drafter that ``--mend`` writes; None if ``--mend`` writes no drafter.

        reference: whether the intact drafter is given as reference.
        """
        good = str(self._good(way, folder)) if reference else None
        drafter, target, texts = str(way.drafter(folder / "drafter")), self.target, self._written()
        if way.target is not None:
            target, texts = load_alone(str(way.target(folder / "target"))).target, []
        examination = Examination(
            Asked(drafter, self.prompts, way.chat, False, way.visible, None, good), target, None, texts
        )
        findings, mended = examination.run(), folder / "mended"
        examination.mend(mended)
        if not mended.exists():
            return findings, None
        return findings, self._alpha(mended, way)

    def intact(self, way: Broken, folder: Path) -> float:
        """Returns the α of the drafter that was broken."""
        name = way.part + ("" if way.intact is None else " changed")
        if name not in self._intact:
            self._intact[name] = self._alpha(self._good(way, folder), way)
        return self._intact[name]

    def _good(self, way: Broken, folder: Path) -> Path:
        out = folder / "intact"
        return TINY / way.part if way.intact is None else out if out.exists() else way.intact(out)

    def _alpha(self, drafter: Path, way: Broken) -> float:
        """Returns the α of a drafter over the cached texts. The drafter is its own reference, so that the examination tries no
        changes.
        """
        asked = Asked(str(drafter), self.prompts, visible=way.visible, reference=str(drafter))
        run = Examination(asked, self.target, None, self._written()).run().run
        return 0.0 if run is None else run.alpha

    def _written(self) -> list[Text]:
        if not self._texts:
            self._texts = written(self.target, self.prompts)
        return list(self._texts)


def judged(findings: Findings, way: Broken, mended: float | None, intact: float) -> str:
    """Returns "right", "not named" or "WRONG".

    It is "WRONG" if the reported cause is not among the way's causes, or if the mended drafter is worse than the intact one.

    mended, intact: α of the mended drafter (None if there is none) and of the intact one.
    """
    diagnosis = findings.diagnosis
    assert diagnosis is not None
    if mended is not None and mended < RESTORED * intact:
        return "WRONG"
    if not diagnosis.names_fault or diagnosis.cause == "below":
        return "not named"
    return "right" if diagnosis.cause in ("exchange", *way.causes.split()) else "WRONG"


def located(findings: Findings, mark: str) -> str:
    """Returns the mark for an examination with a reference.

    mark: result of ``judged``. "not named" becomes "right" in two cases: drafter and reference draft equally well, or more than
        half of all parts would have to be exchanged, so that no single part is at fault.
    """
    reference = findings.reference
    swap = reference and reference.exchange
    alike = reference is not None and not reference.better
    return "right" if mark == "not named" and (alike or (swap is not None and swap.share > MOST_PARTS)) else mark


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=20, help="number of prompts")
    parser.add_argument("--only", default="", help="only these ways: their names, separated by semicolons")
    parser.add_argument("--reference", action="store_true", help="use the intact drafter as reference")
    parser.add_argument("--outside", action="store_true", help="only the ways made without knowledge of the doctor")
    parser.add_argument("--part", default="", metavar="I/N", help="only every Nth way, from number I (0 is the first)")
    arguments = parser.parse_args()
    examiner = Examiner(arguments.prompts)
    every = {**OUTSIDE_SOUND, **OUTSIDE}
    if not arguments.outside:
        every = {**SOUND, **WAYS, **KEPT_OUT, **every}
    ways = {k: w for k, w in every.items() if not arguments.only or k in arguments.only.split(";")}
    if arguments.part:
        first, step = map(int, arguments.part.split("/"))
        ways = dict(list(ways.items())[first::step])
    counts: Counter[str] = Counter()
    for name, way in ways.items():
        began = time.process_time()
        with TemporaryDirectory() as folder:
            findings, mended = examiner.examine(way, Path(folder), arguments.reference)
            intact = 0.0 if way.target else examiner.intact(way, Path(folder))
        mark = judged(findings, way, mended, intact)
        mark = located(findings, mark) if arguments.reference else mark
        counts[mark] += 1
        assert findings.diagnosis is not None
        after = f"\n  α {mended:.2f} after mending" if mended is not None else ""
        print(
            f"{name}: {mark}, {time.process_time() - began:.0f} s of CPU\n  {findings.diagnosis.sentence}{after}",
            flush=True,
        )
    print(f"{counts['right']} right, {counts['not named']} not named, {counts['WRONG']} wrong of {len(ways)}")


if __name__ == "__main__":
    main()
