"""Measures α of drafters during training, by letting them draft again over the target's answers to held-out prompts."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from d2sd.config import DecodeConfig
from d2sd.engine import Engine
from d2sd.errors import InputError, require
from d2sd.nets.models import Models
from d2sd.nets.target import Target
from d2sd.replay.recorded import Replay, Text
from d2sd.train.files import read_jsonl
from d2sd.train.settings import RegenerateConfig
from d2sd.train.text import respond_to

HELD_OUT_TOKENS = 128  # maximum tokens of an answer


class HeldOut:
    """The target's greedy answers to held-out prompts. During training, drafters are measured by replaying them over these answers.

    lengths: number of tokens of each answer.
    """

    def __init__(self, target: Target, texts: Iterable[tuple[Sequence[int], Sequence[int]]]):
        """texts: token ids of each prompt and of the target's answer.

        An answer is left out if it has no token to draft. It is also left out if the target would write another one without
        batching, since batched passes round differently.
        """
        self._target = target
        # not flashinfer: compiling its kernels takes a minute of the training time
        self._backend = "cascade" if target.device.type == "cuda" else "auto"
        engine, given = Engine(Models(target), passes="eager"), [Text((*p, *answer), len(p)) for p, answer in texts]
        self._texts: list[Text] = []
        for text in given:
            with suppress(InputError):
                Replay(engine, text)
                self._texts.append(text)
        self.lengths = [len(text.ids) - text.start for text in self._texts]
        if left_out := len(given) - len(self._texts):
            print(
                f"Held-out prompts: {left_out} of {len(given)} answers cannot be used: empty, or different without batching.",
                file=sys.stderr,
            )

    @classmethod
    def read(cls, target: Target, path: Path, chat: bool) -> HeldOut:
        """Lets the target answer held-out prompts. Returns the answers.

        path: file of prompts, JSON lines with ``prompt``.
        chat: whether to put prompts into the chat template.

        Raises ``InputError`` if the file cannot be read, or if no answer can be used.
        """
        engine, config = Engine(Models(target)), DecodeConfig("autoregressive", HELD_OUT_TOKENS, chat=chat)
        prompts = [engine.encode(row["prompt"], config) for row in read_jsonl(path, "prompt")]
        answers = respond_to(target, prompts, RegenerateConfig(max_new_tokens=HELD_OUT_TOKENS))
        held_out = cls(target, zip(prompts, answers, strict=True))
        require(
            held_out.lengths,
            "none of the target's answers to the held-out prompts can be used: they are empty, or different without batching; "
            "a chat model needs --chat",
        )
        return held_out

    def measure(
        self, method: str, first: Any, second: Any = None, most: int | None = None, tokens: int | None = None
    ) -> dict[str, float]:
        """Measures drafters during training, with their weights rounded to bfloat16 as in saved drafters. Returns these figures:

        held_out_acceptance_length: α, the number of committed tokens per step.
        held_out_draft_length: mean number of accepted drafted tokens per step, without the last step of each text.
        held_out_first_right: share of steps with an accepted drafted token, without the last step of each text.

        method: ``eagle3``, ``dflash`` (also for a VP-Drafter that drafts alone), or a method with two drafters.
        first, second: the drafters; only ``first`` if the method has one drafter.
        most: measure only the first ``most`` texts; None: all texts.
        tokens: maximum tokens of each text; None: whole texts.
        """
        saved = [
            copy.deepcopy(d).bfloat16().to(self._target.dtype).eval().requires_grad_(False)
            for d in (first, second or first)
        ]
        roles = {"eagle3": saved[0]} if method == "eagle3" else {"first": saved[0], "second": saved[1]}
        engine = Engine(Models(self._target, **roles), passes="eager")
        config = DecodeConfig(method, HELD_OUT_TOKENS, inspect=False, backend=self._backend)
        if method == "d2sd":  # a short block has fewer prefixes to re-draft from
            config = replace(config, num_branches=min(config.num_branches, first.block_size - 1))
        config = engine.resolve(config)
        steps = [Replay(engine, text, tokens).run(config).committed for text in self._texts[:most]]
        accepted = [count - 1 for text in steps for count in text[:-1]]
        return {
            "held_out_acceptance_length": sum(map(sum, steps)) / sum(map(len, steps)),
            "held_out_draft_length": sum(accepted) / max(1, len(accepted)),
            "held_out_first_right": sum(count > 0 for count in accepted) / max(1, len(accepted)),
        }
