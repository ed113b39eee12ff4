"""Texts of tokens, also for characters split over several tokens; progress as plain lines without a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from d2sd.trace import text as module
from d2sd.trace.text import BROKEN, WINDOW, Detokenizer, TokenTexts, aligned, progress

SPLIT = "a cat 😀 naïve 日本語 👩‍👩‍👧 — é" * 6


def fed(tokenizer, ids):
    pieces = Detokenizer(tokenizer)
    return [pieces.feed(token) for token in ids]


@examples(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters=BROKEN), max_size=80))
def test_detokenizer_pieces_join_to_text(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert "".join(fed(tokenizer, ids)) == tokenizer.decode(ids) == text


def test_detokenizer_emits_split_character_once_complete(tokenizer):
    ids = tokenizer.encode(SPLIT, add_special_tokens=False)
    assert len(ids) > 4 * WINDOW
    assert any(BROKEN in tokenizer.decode([token]) for token in ids)
    pieces = fed(tokenizer, ids)
    assert "".join(pieces) == SPLIT
    assert not any(BROKEN in piece for piece in pieces)
    emoji = tokenizer.encode("😀", add_special_tokens=False)
    assert len(emoji) > 1
    assert fed(tokenizer, emoji) == [*[""] * (len(emoji) - 1), "😀"]


def test_detokenizer_releases_incomplete_character(tokenizer):
    half = tokenizer.encode("😀", add_special_tokens=False)[0]
    pieces = fed(tokenizer, [half] * (3 * WINDOW) + tokenizer.encode(" the cat", add_special_tokens=False))
    assert any(pieces[: 2 * WINDOW])
    assert "".join(pieces).endswith(" the cat")


def test_token_texts_label_partial_characters(tokenizer):
    texts = TokenTexts(tokenizer)
    for token in tokenizer.encode("😀", add_special_tokens=False):
        assert texts[token]
        assert BROKEN not in texts[token]
    assert texts[10**6] == "<1000000>"  # not in the vocabulary


def test_progress_prints_lines_without_terminal(capsys, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.0)
    bar = progress(range(3), desc="texts", unit="text")
    for number in bar:
        bar.set_postfix({"loss": number}, refresh=False)
    bar.close()
    out, err = capsys.readouterr()
    assert out == ""
    assert "\r" not in err
    lines = err.splitlines()
    assert [line.partition(",")[0] for line in lines[:4]] == [f"texts: {n} of 3" for n in range(4)]
    assert lines[2].endswith("loss=0") or lines[2].endswith("loss=1")
    list(progress(range(2), desc="doctor", bar_format="{desc}: {n_fmt}/{total_fmt}"))
    assert capsys.readouterr().err.splitlines()[0] == "doctor: 0/2"


def test_aligned_pads_columns_to_their_longest_cell():
    rows = [("log", "α", "step"), ("vllm, m", "2.50", "9")]
    assert aligned(rows) == ["log      α     step", "vllm, m  2.50  9"]
    assert aligned(rows, str.rjust) == ["log         α  step", "vllm, m  2.50     9"]
