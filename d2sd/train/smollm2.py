"""The bundled drafters of SmolLM2-135M-Instruct, from nothing: the public commands of ``d2sd train`` in a row.

Copy it for a model of your own: ``docs/train-your-own.md`` says what to change. Every command goes on where it stopped
when it is run again, so the whole does too. What the bundled run did and reached: ``assets/models/smollm2/README.md``.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# What a question begins with, taken in turn; the empty ones leave all to the model.
FIRST_WORDS = ["", "", "", "Why ", "How do I ", "What is ", "Write a short story about ", "Explain ", "I need advice on ",
               "Write a Python function that ", "", "Calculate ", "Tell me about ", "What are the ", "Can you write ", "If "]  # fmt: skip


def commands(target: str, prompts: Sequence[Path], out: Path) -> list[list[str]]:
    """The commands, each without ``d2sd train``.

    target: folder or name.
    prompts: JSONL files of further questions (field ``prompt``).
    out: where everything is written.
    """
    questions, responses = out / "questions.jsonl", out / "responses.jsonl"
    learn = ["--target", target, "--responses", str(responses), "--cache", str(out / "features")]
    block = [*learn, "--objective", "survival", "--batch-size", "16"]
    return [
        # A chat model's own questions, then its greedy answers to them in its template.
        ["questions", "--target", target, "--out", str(questions), "--count", "1344", "--batch-size", "96",
         "--first-words", *FIRST_WORDS],
        ["regenerate", "--target", target, "--chat", "--prompts", str(questions), *map(str, prompts), "--out", str(responses),
         "--batch-size", "96", "--max-new-tokens", "128", "--greedy-share", "1"],
        # The first drafter. Three quarters of a step would be the LM head over 49,152 tokens, so most steps have a loss over
        # the tokens that occur; the last ones are over all, so that confidence keeps its meaning.
        ["dflash", *block, "--out", str(out / "base"), "--layers", "2", "--target-layers", "1", "14", "26",
         "--block-size", "8", "--mask-token", "<empty_output>", "--own-tokens", "--anchors", "24",
         "--steps", "550", "--warmup", "40", "--learning-rate", "2e-3", "--save-every", "100"],
        ["dflash", *block, "--start", str(out / "base"), "--out", str(out / "dflash"), "--anchors", "16",
         "--steps", "120", "--warmup", "10", "--learning-rate", "6e-4", "--save-every", "40"],
        # The VP-Drafter goes on from the first one: a visible prefix is all that is new to it.
        ["vp", *block, "--start", str(out / "base"), "--out", str(out / "vp-own"), "--own-tokens", "--anchors", "24",
         "--beta", "0.75", "--steps", "300", "--warmup", "20", "--learning-rate", "1.4e-3", "--save-every", "50"],
        ["vp", *block, "--start", str(out / "vp-own"), "--out", str(out / "vp"), "--anchors", "16",
         "--beta", "0.75", "--steps", "80", "--warmup", "10", "--learning-rate", "4e-4", "--save-every", "40"],
        # Drafts the 4,096 commonest tokens alone, which keeps its file small.
        ["eagle3", *learn, "--out", str(out / "eagle3"), "--target-layers", "1", "14", "26", "--draft-vocab-size", "4096",
         "--batch-size", "12", "--rows", "24", "--unrolled", "5", "--steps", "260", "--warmup", "30",
         "--learning-rate", "2e-3", "--save-every", "50"],
    ]  # fmt: skip


def run(target: str, prompts: Sequence[Path], out: Path) -> None:
    """Run all commands, one process each; stops at the first that fails, with its exit code."""
    for command in commands(target, prompts, out):
        print("d2sd train " + shlex.join(command), file=sys.stderr)
        done = subprocess.run([sys.executable, "-m", "d2sd", "train", *command], check=False)
        if done.returncode:
            sys.exit(done.returncode)
