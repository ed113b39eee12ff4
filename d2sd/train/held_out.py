"""Acceptance of a drafter on held-out prompts, by the greedy walk of decoding, over texts written once by the target."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from d2sd.config import DecodeConfig
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.nets.models import Models
from d2sd.nets.target import Target
from d2sd.train.text import read_jsonl
from d2sd.whatif import Replay

TOKENS = 128  # of every text, at most


class HeldOut:
    """Texts of the target for prompts that no drafter learns from."""

    def __init__(self, model: Any, tokenizer: Any, path: Path, chat: bool):
        """model: the frozen target, of which a twin with the same weights is kept, so that training goes on as it would
        without; path: JSON lines with ``prompt``; chat: whether prompts stand in the chat template."""
        if not path.is_file():
            raise InputError(f"there is no prompt file {path}")
        weights = {id(w): w for w in (*model.parameters(), *model.buffers())}
        self._target = Target(copy.deepcopy(model, weights), tokenizer, "target")
        engine = Engine(Models(self._target), passes="eager")
        config = DecodeConfig("autoregressive", TOKENS, chat=chat, inspect=False)
        prompts = [row["prompt"] for row in read_jsonl(path, "prompt")]
        texts = [engine.generate(prompt, config) for prompt in prompts]
        self._texts = [t for t in texts if len(t.token_ids) > 1]
        if not self._texts:
            raise InputError(f"the target's answers to all prompts of {path} are empty; a chat model needs --chat")
        if short := len(texts) - len(self._texts):
            print(f"Held-out prompts: {short} of {len(texts)} answers are empty and not counted.", file=sys.stderr)

    def measure(self, drafter: Any, method: str) -> dict[str, float]:
        """Figures of a drafter in training, with its weights as they would be saved; method: ``dflash`` or ``eagle3``.

        ``held_out_acceptance_length`` is α, committed tokens a step. Of the steps before each text's last one,
        ``held_out_draft_length`` is the mean number of accepted drafted tokens, ``held_out_first_right`` the share with any.
        """
        saved = copy.deepcopy(drafter).bfloat16().float().eval().requires_grad_(False)
        roles = (
            ("eagle3",) if method == "eagle3" else ("first", "second")
        )  # a VP-Drafter is measured as a first one too
        engine = Engine(Models(self._target, **dict.fromkeys(roles, saved)), passes="eager")
        config = engine.resolve(DecodeConfig(method, TOKENS, inspect=False))
        steps = [next(Replay(engine, text).run([config])).committed for text in self._texts]
        accepted = [count - 1 for text in steps for count in text[:-1]]
        return {
            "held_out_acceptance_length": sum(map(sum, steps)) / sum(map(len, steps)),
            "held_out_draft_length": _mean(accepted),
            "held_out_first_right": _mean([count > 0 for count in accepted]),
        }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))
