"""The bundled drafters of SmolLM2-135M-Instruct, from nothing: the public commands of ``d2sd train`` in a row.

Copy it for a model of your own: ``docs/train-your-own.md`` says what to change. Every command goes on where it stopped
when it is run again, so the whole does too. It is meant for a GPU: on two CPU cores it takes about a day. What the bundled run
did and reached: ``assets/models/smollm2/README.md``.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# What a question begins with, taken in turn; the empty ones leave all to the model.
FIRST_WORDS = ["", "", "", "", "Why ", "How do I ", "What is ", "Write a short story about ", "Explain ", "I need advice on ",
               "Write a Python function that ", "", "Calculate ", "Tell me about ", "What are the ", "Can you write ", "If ",
               "How does ", "Tell me a story about ", "What is the sum of ", "A ", "Write a function to ", "How can I ", "Give me ",
               "Describe ", "Write a poem about ", "Who ", "What should I ", "My ", "Summarize ", "What happens ", "Solve "]  # fmt: skip


def commands(target: str, prompts: Sequence[Path], out: Path) -> list[list[str]]:
    """The commands, each without ``d2sd train``.

    target: folder or name.
    prompts: JSONL files of further questions (field ``prompt``).
    out: where everything is written.
    """
    questions, responses = out / "questions.jsonl", out / "responses.jsonl"
    learn = ["--target", target, "--responses", str(responses)]
    # Two layers, and the target's rows of the 16,384 commonest tokens as LM head: most of a draft's time is the head. A Markov head
    # tells each row the token before it.
    block = [*learn, "--objective", "survival", "--batch-size", "128", "--anchors", "24", "--warmup", "100", "--learning-rate", "2e-3",
             "--layers", "2", "--block-size", "8", "--target-layers", "1", "7", "14", "20", "26", "--mask-token", "<empty_output>",
             "--draft-vocab-size", "16384", "--markov-rank", "32"]  # fmt: skip
    return [
        # A chat model's own questions, then its greedy answers to them in its template.
        ["questions", "--target", target, "--out", str(questions), "--count", "86016", "--batch-size", "4096",
         "--max-new-tokens", "64", "--first-words", *FIRST_WORDS],
        ["regenerate", "--target", target, "--chat", "--prompts", str(questions), *map(str, prompts), "--out", str(responses),
         "--batch-size", "4096", "--max-new-tokens", "192", "--greedy-share", "1"],
        ["dflash", *block, "--out", str(out / "dflash"), "--steps", "963"],
        # Trained beside the first one, from the target's layers too.
        ["vp", *block, "--out", str(out / "vp"), "--beta", "0.75", "--steps", "1096"],
        # Drafts the 4,096 commonest tokens alone, which keeps its file small.
        ["eagle3", *learn, "--out", str(out / "eagle3"), "--target-layers", "1", "14", "26", "--draft-vocab-size", "4096",
         "--batch-size", "12", "--rows", "24", "--unrolled", "5", "--steps", "260", "--warmup", "30",
         "--learning-rate", "2e-3"],
    ]  # fmt: skip


def run(target: str, prompts: Sequence[Path], out: Path) -> None:
    """Run all commands, one process each; stops at the first that fails, with its exit code."""
    for command in commands(target, prompts, out):
        print("d2sd train " + shlex.join(command), file=sys.stderr)
        done = subprocess.run([sys.executable, "-m", "d2sd", "train", *command], check=False)
        if done.returncode:
            sys.exit(done.returncode)
