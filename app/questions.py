"""Frequent questions about each stop of the tour, with answers, by the stop's id."""

from __future__ import annotations

# The last two of "verify" and "branches" after D²SD (arXiv 2606.04446), tables 2 and 3.
ASKED: dict[str, tuple[tuple[str, str], ...]] = {
    "anchor": (
        (
            "Why does the first token of a text belong to no step?",
            "To read the prompt is a pass of the target already, and it ends with the target’s first token. That token is the "
            "first anchor, and the steps begin after it.",
        ),
    ),
    "draft": (
        (
            "Why are γ places only γ − 1 guesses?",
            "A block is the anchor and the places after it. The anchor is known, so one place of γ is never guessed.",
        ),
    ),
    "boundary": (
        (
            "Can a re-draft win if it did not start at the true boundary?",
            "Yes. A re-draft may repeat the next tokens of the first draft and differ from it later. The longest path that the "
            "target accepts wins, wherever it was drafted from.",
        ),
    ),
    "branches": (
        (
            "Why a second drafter, and not the first one twice?",
            "The first one learned to guess a whole block from the anchor alone. The second one was trained with the beginning of "
            "the block given, so it makes use of it: in the paper 9.2 tokens a step on GSM8K, against 8.0 with the first one twice.",
        ),
    ),
    "verify": (
        (
            "Why does a pass over a whole tree cost about as much as one token? When does it not?",
            "A large model on a GPU waits until its weights are read from memory, and some dozens of nodes are computed in that "
            "time. On a CPU, with a small model or with many texts at once, computing is what takes the time: there every node costs.",
        ),
    ),
    "temperature": (
        (
            "Where is the min(1, p/q) of the textbooks?",
            "There a drawn guess is accepted with that chance, p the target’s probability and q the drafter’s. Here a drafter "
            "always offers its favourite, so q is 1 and the chance is p: the probability that the target draws the guess itself.",
        ),
    ),
}
