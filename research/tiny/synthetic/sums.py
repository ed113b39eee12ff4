"""Worded sums with worked answers; every number stays between 0 and 100."""

from __future__ import annotations

import random

from .grammar import capital, fill, fix_articles
from .names import BOYS, GIRLS
from .problems import ONE_STEP, THINGS, TWO_STEP

_TWO_STEP_SHARE = 0.4
_DIVIDE_WEIGHT = 0.5
_PRODUCTS = sorted({a * b for a in range(2, 11) for b in range(2, 11)})
_PEOPLE = [(name, "she", "her") for name in GIRLS] + [(name, "he", "his") for name in BOYS]

_ONE_FORMS = (
    "{Why}, so {eq}. {Fact}.",
    "{eq}, so {fact}.",
    "[We|You] {verb}: {eq}. [So|This means that] {fact}.",
    "{Why}. {eq}, so {fact}.",
    "{eq}. That means {fact}.",
    "To [solve|answer] this, {verb}. {eq}, so {fact}.",
)
_TWO_FORMS = (
    "First, {eq}, so {fact}. Then {eq2}, so {fact2}.",
    "{Why}, so {eq}. {Why2}, so {eq2}.",
    "[We {verb}: {eq}. Then we {verb2}|You {verb}: {eq}. Then you {verb2}]: {eq2}.",
    "{eq}, so {fact}. Next, {why2}, so {eq2}.",
    "{Why}: {eq}. After that, {eq2}, so {fact2}.",
)
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def _factors(product: int, rng: random.Random) -> tuple[int, int]:
    """Split a product of the times tables into two factors from 2 to 10."""
    return rng.choice([(a, product // a) for a in range(2, 11) if product % a == 0 and 2 <= product // a <= 10])


def _operands(operation: str, result: int, rng: random.Random) -> tuple[int, int] | None:
    """Choose the two numbers of an operation with this result, or None where there are none."""
    if operation == "add":
        return (left := rng.randint(2, result - 2), result - left) if result >= 4 else None
    if operation == "sub":
        return (result + (taken := rng.randint(2, 100 - result)), taken) if result <= 98 else None
    if operation == "mul":
        return _factors(result, rng) if result in _PRODUCTS else None
    if not 2 <= result <= 10:
        return None
    divisor = rng.randint(2, 10)
    return result * divisor, divisor


def _result(operation: str, rng: random.Random) -> int:
    """Draw a result, about uniformly over all that an operation can have."""
    if operation == "mul":
        return rng.choice(_PRODUCTS)
    if operation == "div":
        return rng.randint(2, 10)
    return rng.choice([0, *range(2, 99)]) if operation == "sub" else rng.randint(4, 100)


def _second(operation: str, first: int, rng: random.Random) -> tuple[int, int] | None:
    """Choose what a second step does to the first result: (operand, final result)."""
    if operation == "add":
        return (more := rng.randint(2, 100 - first), first + more) if first <= 98 else None
    if operation == "sub":
        taken = [number for number in range(2, first + 1) if first - number != 1]
        # Big totals leave room for every result.
        return (less := rng.choice(taken), first - less) if taken and rng.random() < first / 90 else None
    if operation == "mul":
        times = [number for number in range(2, 11) if first * number <= 100 and first <= 10]
        return (by := rng.choice(times), first * by) if times and first >= 2 else None
    parts = [number for number in range(2, 11) if first % number == 0 and 2 <= first // number <= 10]
    return (by := rng.choice(parts), first // by) if parts else None


def _steps(operations: list[str], rng: random.Random) -> list[tuple[int, int, int]]:
    """Draw (left, right, result) of one step, or of two that follow on."""
    while True:
        first = _result(operations[0], rng)
        pair = _operands(operations[0], first, rng)
        if pair is None:
            continue
        steps = [(*pair, first)]
        if len(operations) == 2:
            after = _second(operations[1], first, rng)
            if after is None:
                continue
            steps.append((first, *after))
        return steps


def _verbs(operation: str, left: int, right: int) -> str:
    """Say an operation in words."""
    return {
        "add": f"add {left} and {right}",
        "sub": f"take {right} away from {left}",
        "mul": f"multiply {left} by {right}",
        "div": f"divide {left} by {right}",
    }[operation]


def _equation(operation: str, left: int, right: int, result: int) -> str:
    """Write an operation with its result; two-digit additions and subtractions go over the tens."""
    sign = _SIGNS[operation]
    tens, ones = right - right % 10, right % 10
    if operation in ("mul", "div") or not tens or not ones:
        return f"{left} {sign} {right} = {result}"
    between = left + tens if operation == "add" else left - tens
    return f"{left} {sign} {right} = {left} {sign} {tens} {sign} {ones} = {between} {sign} {ones} = {result}"


def worded_sum(rng: random.Random) -> str:
    """Write a question, a worked answer, and the number it comes to."""
    two = rng.random() < _TWO_STEP_SHARE
    pool = TWO_STEP if two else ONE_STEP
    kinds = sorted(pool)
    # Sums that end in a division come to small numbers: draw fewer of them.
    kind = rng.choices(kinds, [_DIVIDE_WEIGHT if kind.endswith("div") else 1.0 for kind in kinds])[0]
    problem = rng.choice(pool[kind])
    operations = problem.operations.split()
    steps = _steps(operations, rng)

    (n, he, his), (m, mhe, mhis) = rng.sample(_PEOPLE, 2)
    it, other = rng.sample(THINGS, 2)
    slots = {"n": n, "he": he, "his": his, "He": capital(he), "m": m, "mhe": mhe, "mhis": mhis, "it": it, "it2": other}
    slots |= {"a": str(steps[0][0]), "b": str(steps[0][1]), "r": str(steps[0][2])}
    if two:
        slots |= {"c": str(steps[1][1]), "s": str(steps[1][2])}
    question = fill(problem.question, slots, rng)

    for suffix, operation, (left, right, result), why, fact in zip(
        ("", "2"), operations, steps, problem.whys, problem.facts, strict=False
    ):
        why, fact = fill(why, slots, rng), fill(fact, slots, rng)
        slots |= {
            f"eq{suffix}": _equation(operation, left, right, result),
            f"why{suffix}": why, f"Why{suffix}": capital(why), f"fact{suffix}": fact, f"Fact{suffix}": capital(fact),
            f"verb{suffix}": _verbs(operation, left, right),
        }  # fmt: skip
    answer = fill(rng.choice(_TWO_FORMS if two else _ONE_FORMS), slots, rng)
    return fix_articles(f"Question: {question}\nAnswer: {answer} So the answer is {steps[-1][2]}.")
