"""Training recipe of the bundled SmolLM2 drafters: ``train_pair``, then an EAGLE-3 drafter."""

from __future__ import annotations

from pathlib import Path

from d2sd.train.eagle3 import train_eagle3
from d2sd.train.pair import train_pair
from d2sd.train.settings import Eagle3Objective, Eagle3Training, LoopConfig, PairTraining

EAGLE3_SHARE, PARTS = 0.1, 1000  # EAGLE-3's share of the time; steps of EAGLE-3's time-based schedule


def train_recipe(target: str, out: Path, minutes: float, prompts: tuple[str, ...]) -> None:
    """Trains the drafters of SmolLM2-135M-Instruct. If an earlier run was interrupted, resumes it.

    target: folder, hub id, or a name known to ``d2sd get``.
    out: folder of the drafters.
    minutes: time for all drafters.
    prompts: questions in addition to those that the target writes.
    """
    train_pair(
        PairTraining(
            target=target, out=out, minutes=(1 - EAGLE3_SHARE) * minutes, prompts=prompts, layers=2, block_size=8,
            target_layer_ids=[1, 7, 14, 20, 26], mask_token="<empty_output>", draft_vocab_size=16_384, markov_rank=32,
        )
    )  # fmt: skip
    # a draft vocabulary of only 4,096 tokens keeps the file small
    train_eagle3(
        Eagle3Training(
            target=target, responses=out / "responses.jsonl", out=out / "eagle3", target_layer_ids=[1, 14, 26], draft_vocab_size=4096,
            objective=Eagle3Objective(5, rows=24), loop=LoopConfig(PARTS, batch_size=12, seconds=EAGLE3_SHARE * 60 * minutes),
        )
    )  # fmt: skip
