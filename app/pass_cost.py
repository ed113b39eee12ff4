"""The tour's stop about the cost of a pass over many tokens."""

from __future__ import annotations

from app.learn.stops import Stop, Verified
from app.wording import milliseconds
from d2sd import StepDone
from d2sd.costs.machines import BYTES, HARDWARE, TARGET

CARD, LAPTOP = HARDWARE["h100"], HARDWARE["laptop-cpu"]


def cost_of_a_pass(step: StepDone, plain: float | None) -> Stop:
    """Returns the stop. ``plain``: tokens per second of plain decoding on the machine where the run was recorded."""
    nodes = len(step.nodes)
    gigabytes = BYTES * TARGET.weights / 1e9
    reading = BYTES * TARGET.weights / CARD.bandwidth
    sum_of_one = 2 * TARGET.weights / CARD.peak
    seconds = 1 / plain if plain else None
    here = f"{milliseconds(step.seconds.verify)}" + (f", a plain step {milliseconds(seconds)}" if seconds else "")
    return Stop(
        "cost",
        f"Why a pass over {nodes} tokens may cost as much as one" if nodes > 1 else "What a pass costs",
        (
            f"To compute one token, a model with 8 billion weights reads all of them from memory: {gigabytes:.0f} GB. It reads "
            "them once for a whole pass, however many tokens are in it.",
            f"An {CARD.name} reads them in {milliseconds(reading)} and needs {1e3 * sum_of_one:.3f} ms of arithmetic for each "
            f"token. While it waits for the weights it can compute {CARD.ridge:.0f} tokens: up to there they cost nothing more.",
            f"A laptop’s processor reads slowly too, but computes so much slower that its limit is {LAPTOP.ridge:.0f} tokens. "
            "Beyond it every token costs, and that is why drafting may lose there what it wins on a large card.",
        ),
        (("var", "t"), ("", "("), ("var", "n"), ("", ") = max( bytes of weights ÷ bandwidth,  "), ("var", "n"), ("", " · 2 · weights ÷ peak )")),
        (("this pass over " + (f"{nodes} tokens" if nodes > 1 else "one token") + ", where it was recorded", here),),
        verified=Verified(nodes, step.seconds.verify, seconds),
    )  # fmt: skip
