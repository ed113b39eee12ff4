"""The tour of one step: nine stops, each with a text, an equation and the numbers of that step.

All statements of a stop are computed from the recorded step. Equations are lists of (kind, text) pieces, kind one
of "", "sub", "sup" and "var", so that the page builds them without reading markup.
"""

from __future__ import annotations

from dataclasses import replace

from app.learn.stops import Lesson, Stop, by_branches, cost_of_a_pass, decimal, hat, milliseconds, odds, quoted, visits
from d2sd import StepDone, Trace
from d2sd.trace.metrics import boundary_hit, closed_from

# Frequent questions about each stop of the tour, with answers, by the stop's id.


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


MAX_LISTED = 5


def tokens_of(step: StepDone) -> tuple[int, int]:
    """Returns the accepted tokens of the first draft, and those that other drafts added."""
    by_first = sum(0 in step.nodes[n].candidates for n in step.accepted)
    return by_first, len(step.accepted) - by_first


def lessons(trace: Trace, plain: float | None = None) -> list[Lesson]:
    """Returns the tour of every step. ``plain``: tokens per second of plain decoding on the recording machine, if timed."""
    alpha = trace.totals.mean_acceptance_length  # goes through the whole run, so once
    return [_lesson(trace, step, alpha, plain) for step in trace.steps]


def _lesson(trace: Trace, step: StepDone, alpha: float, plain: float | None) -> Lesson:
    stops = (
        _anchor(step),
        _draft(step),
        _confidence(step),
        _boundary(trace, step),
        _branches(step),
        _verify(trace, step),
        _commit(trace, step, alpha),
        cost_of_a_pass(step, plain),
        _temperature(trace, step),
    )
    return Lesson(tuple(replace(stop, asked=ASKED.get(stop.id, ())) for stop in stops), by_branches(step))


def _anchor(step: StepDone) -> Stop:
    return Stop(
        "anchor",
        "Start from the anchor",
        (
            "A language model writes one token, a word or a piece of one, per pass, and each pass of a large model is slow. "
            "So a small drafter guesses ahead, and the large model, the target, checks many guesses in one pass.",
            f"Every step begins at the anchor: the last token that is certain, here {quoted(step.anchor_text)}."
            + (" The dashed boxes after it are the places to be guessed." if step.first_draft else ""),
        ),
        (("var", "x"), ("sub", "1"), ("", " "), ("var", "x"), ("sub", "2"), ("", " … "), ("var", "x"), ("sub", "n"), ("", "    anchor = "), ("var", "x"), ("sub", "n")),
        (("anchor", quoted(step.anchor_text)), ("tokens before it", str(step.anchor_position))),
    )  # fmt: skip


def _draft(step: StepDone) -> Stop:
    draft = step.first_draft
    if draft is None:
        return _skipped("draft", "Draft a whole block at once", "This method drafted nothing in this step.")
    first = " ".join(quoted(t) for t in draft.texts[:MAX_LISTED])
    return Stop(
        "draft",
        "Draft a whole block at once",
        (
            f"The first drafter sees the text and {len(draft.ids)} empty places, and fills all of them in one pass: it does "
            "not write from left to right.",
            "That is fast, but no place knows what was put into the others, so the guesses get worse the further they are "
            "from the anchor.",
        ),
        (("", "( "), *hat("1"), ("", ", "), *hat("2"), ("", ", … , "), *hat("γ−1"), ("", " )    γ = "), ("", str(len(draft.ids) + 1))),
        (("guessed", f"{first}{' …' if len(draft.texts) > MAX_LISTED else ''}"), ("places", str(len(draft.ids))), ("time", milliseconds(step.seconds.first_draft))),
    )  # fmt: skip


def _confidence(step: StepDone) -> Stop:
    draft = step.first_draft
    if draft is None or not draft.confidence:
        return _skipped("confidence", "Ask how sure it is", "No confidence was recorded in this step.")
    shown = draft.confidence[:MAX_LISTED]
    weakest = min(range(len(draft.confidence)), key=draft.confidence.__getitem__)
    return Stop(
        "confidence",
        "Ask how sure it is",
        (
            "With every token the drafter gives the probability that it puts on its own guess: its confidence. The bars under "
            "the tree show it.",
            "Whether a drafter’s confidence deserves trust is what the Calibrate tab measures.",
        ),
        (("var", "c"), ("sub", "k"), ("", " = "), ("var", "q"), ("sub", "k"), ("", "( "), *hat("k"), ("", " )")),
        (
            *((f"c({k}) of {quoted(draft.texts[k - 1])}", decimal(c)) for k, c in enumerate(shown, 1)),
            ("least sure", f"{decimal(draft.confidence[weakest])} at place {weakest + 1}"),
        ),
    )  # fmt: skip


def _boundary(trace: Trace, step: StepDone) -> Stop:
    title = "Guess where it will break"
    r = step.boundary_posterior
    if step.first_draft is None or not step.first_draft.confidence or not r:
        return _skipped("boundary", title, "This method does not estimate where its draft will be rejected.")
    c = step.first_draft.confidence
    best = max(range(len(r)), key=r.__getitem__)
    broke = step.actual_boundary
    # a flag may also stand behind the whole draft, where nothing is left to break
    example = broke if broke in step.selected_prefixes and broke is not None and broke < len(r) else best
    factors = [decimal(x) for x in c[:example]] + [f"(1 − {decimal(c[example])})"]
    closed = closed_from(step, str(trace.header.get("method")))
    left_out = (
        ()
        if closed is None
        else (
            "The draft ends the text, so the places behind that end get no flag, however likely they are: nothing can follow it.",
        )
    )
    picks = tuple(
        (f"flag {n}: break after {i}", decimal(r[i]))
        if i < len(r)
        else (f"flag {n}: all {i} accepted", decimal(step.full_acceptance))
        for n, i in enumerate(step.selected_prefixes, 1)
    )
    return Stop(
        "boundary",
        title,
        (
            "The target will accept the draft up to some place and reject the next token; everything after that is lost. "
            "To break after i tokens, the first i must be right and the next one wrong.",
            f"If the confidences are right, they give a probability for every i. The {len(picks)} likeliest get a flag."
            if picks
            else "If the confidences are right, they give a probability for every i.",
            *left_out,
        ),
        (("var", "r"), ("", "("), ("var", "i"), ("", ") = "), ("var", "c"), ("sub", "1"), ("", " · … · "), ("var", "c"), ("sub", "i"), ("", " · (1 − "), ("var", "c"), ("sub", "i+1"), ("", ")")),
        ((f"r({example}) = {' · '.join(factors)}", decimal(r[example])), *picks),
    )  # fmt: skip


def _branches(step: StepDone) -> Stop:
    title = "Prepare alternatives"
    if not step.branches:
        return _skipped("branches", title, "This method drafts no further candidates in this step.")
    second = step.branches[0].drafter == "second"
    candidates = 1 + len(step.branches)
    tokens = (len(step.first_draft.ids) if step.first_draft else 0) + sum(b.prefix + len(b.ids) for b in step.branches)
    from_where = ", ".join(str(b.prefix) for b in step.branches)
    return Stop(
        "branches",
        title,
        (
            f"A {'second' if second else 'further'} draft starts at every flag: it keeps the tokens before the flag and writes the "
            "rest of the block anew, this time knowing what stands before. All of them are drafted in one batch.",
            "If the first draft breaks where it was expected to, a better continuation is already there.",
        ),
        (("", "branch("), ("var", "i"), ("", ") = "), *hat("1"), ("", " … "), *hat("i"), ("", " + new tokens")),
        (
            ("K, re-drafts", str(len(step.branches))),
            ("kept tokens", from_where),
            *_leaving(step),
            ("time", milliseconds(step.seconds.second_draft)),
            (f"{candidates} drafts, merged into a tree", f"{tokens} tokens → {len(step.nodes)} nodes with the anchor"),
        ),
    )  # fmt: skip


def _leaving(step: StepDone) -> tuple[tuple[str, str], ...]:
    """Returns a figure about re-drafts that repeat tokens of the first draft: they diverge from it later than at their prefix."""
    trunk = {n.depth: n for n in step.nodes if 0 in n.candidates}
    late = []
    for number, branch in enumerate(step.branches, 1):
        shared = max((d for d, n in trunk.items() if number in n.candidates), default=0)
        if branch.base == 0 and branch.drafter == "second" and shared > branch.prefix:
            late.append(f"from {branch.prefix}: the same up to {shared}")
    return (("wrote the first draft’s tokens again", ", ".join(late)),) if late else ()


def _verify(trace: Trace, step: StepDone) -> Stop:
    by_first, added = tokens_of(step)
    numbers = [("nodes in one pass, the anchor too", str(len(step.nodes))), ("time", milliseconds(step.seconds.verify))]
    if step.first_draft is not None:
        numbers.append(("right in the first draft", str(by_first)))
        wrong = step.actual_boundary
        if wrong is not None and wrong < len(step.first_draft.texts) and wrong < len(step.committed):
            numbers.append(("its next guess", quoted(step.first_draft.texts[wrong])))
            numbers.append(("the target wanted", quoted(step.committed[wrong].text)))
        hit = boundary_hit(step)
        if hit is not None and wrong is not None:
            rank = f"yes: flag {step.selected_prefixes.index(wrong) + 1}" if hit else "no: there was no flag"
            numbers.append(("was the break expected", rank))
            if hit:
                numbers.append(("was it repaired", "yes" if added else "no: the re-draft was wrong at once"))
    if step.branches:
        numbers.append(("added by re-drafts", str(added)))
    rule = "argmax" if _greedy(trace) else "a sample of"
    return Stop(
        "verify",
        "Check everything in one pass",
        (
            "The target reads the whole tree in a single pass; every node sees only the nodes before it on its own branch.",
            "Then we walk from the anchor. At each node the target says which token it wants. If a child carries it, we go there "
            "and the token is accepted; if none does, the walk ends.",
        ),
        (("var", "x"), ("sub", "next"), ("", f" = {rule} "), ("var", "p"), ("", "( · | text, path )")),
        tuple(numbers),
        visits(step),
    )  # fmt: skip


def _commit(trace: Trace, step: StepDone, alpha: float) -> Stop:
    by_first, added = tokens_of(step)
    ended = not step.committed or step.committed[-1].node is not None
    same = (
        "is exactly what the target would have written alone"
        if _greedy(trace)
        else "is drawn exactly as the target alone would draw it"
    )
    bonus = "none: the text ends here" if ended else quoted(step.committed[-1].text)
    return Stop(
        "commit",
        "Keep what was right, plus one token",
        (
            "The accepted tokens go into the text. Where the walk ends, the target’s own token is known already: it comes for "
            "free, and is the anchor of the next step.",
            f"The text {same}, only in fewer passes.",
            "EAGLE-3, the kind of most published drafters, verifies in the same way but drafts differently: one token after the "
            "other, with a separate pass for each level of its tree. Race compares their times.",
        ),
        (("", "new tokens = accepted + 1 = "), ("", f"{by_first} + {added} + {0 if ended else 1} = {len(step.committed)}")),
        (
            ("written in this step", " ".join(quoted(c.text) for c in step.committed)),
            ("bonus token", bonus),
            ("tokens in this step", str(len(step.committed))),
            (f"tokens per step, all {len(trace.steps)} steps (α)", f"{alpha:.2f}"),
        ),
    )  # fmt: skip


def _temperature(trace: Trace, step: StepDone) -> Stop:
    here = odds(step)
    what = "the chance of a drafted token to be accepted is the target’s own probability of it"
    numbers = [
        (f"p of {quoted(o.text)}, {'drafted' if o.drafted else 'not drafted'}", decimal(o.probability)) for o in here
    ]
    chance = sum(o.probability for o in here if o.drafted)
    return Stop(
        "temperature",
        "Draw instead of taking the favourite",
        (
            f"{'This run took' if _greedy(trace) else 'At temperature 0 the target takes'} the target’s favourite token at every "
            "node: temperature 0. At a higher temperature it draws one, so another run writes another text.",
            "The draw comes first, as if nothing had been drafted; only then we look whether a node carries the token that came "
            f"up. So {what}, and the draft has no say in what is written: the text is drawn exactly as the target alone would "
            "draw it.",
            "A rejected token was therefore not wrong: it only did not come up.",
        ),
        (("var", "x"), ("", " ~ "), ("var", "p"), ("", "( · | text, path )    accepted ⇔ "), ("var", "x"), ("", " was drafted")),
        (*numbers, *((("one of the drafted tokens comes up", decimal(min(1.0, chance))),) if here else ())),
        odds=here,
    )  # fmt: skip


def _greedy(trace: Trace) -> bool:
    config = trace.header.get("config")
    return not isinstance(config, dict) or config.get("temperature", 0) == 0


def _skipped(stop: str, title: str, sentence: str) -> Stop:
    return Stop(stop, title, (sentence,), (), ())
