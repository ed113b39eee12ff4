"""Figures as text: numbers, sentences and tables."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

from d2sd.calibration.resampling import Estimate
from d2sd.trace.text import aligned, encodable, escaped

Item = TypeVar("Item")

# Numbers; "—" means unknown.

Write = Callable[[float | None], str]


def percent(share: float | None) -> str:
    """Returns a share as a whole percentage. A share that would wrongly round to 0% or 100% has one decimal."""
    if share is None:
        return "—"
    whole = f"{share:.0%}"
    if whole not in ("0%", "100%") or share in (0, 1):
        return whole
    return f"{share:.1%}" if 0.0005 <= share < 0.9995 else "<0.1%" if share < 0.5 else ">99.9%"


def digits(value: float | None, places: int = 3) -> str:
    return "—" if value is None else f"{value:.{places}f}".replace("-", "−")


decimal = partial(digits, places=2)


def change(value: float | None, places: int = 3) -> str:
    return "—" if value is None else f"{'−' if value < 0 else '+'}{abs(value):.{places}f}"


signed_decimal = partial(change, places=2)


def signed(share: float | None) -> str:
    """Returns a difference of shares in percentage points, with its sign."""
    return change(None if share is None else 100 * share, 1)


def with_interval(figure: Estimate, write: Write = percent, brackets: str = "()") -> str:
    """Returns a figure with its interval, if it has one.

    write: returns a number as text.
    brackets: the two characters around the interval.
    """
    if figure.low is None:
        return write(figure.value)
    return f"{write(figure.value)} {brackets[0]}{write(figure.low)} to {write(figure.high)}{brackets[1]}"


def count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def capitalized(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def cut(text: str, most: int = 40) -> str:
    """Returns untrusted text on one line, cut to ``most`` characters."""
    shown = escaped(text[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


# Sentences.

Tone = Literal["good", "bad", "mixed", "few", "note"]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence about figures.

    tone: how to display the sentence: "good", "mixed", "bad", "few" (too few observations) or "note".
    text: the sentence.
    chart: id of the chart that the sentence describes; empty if it describes none.
    places: indices of the chart's marks that the sentence describes.
    """

    tone: Tone
    text: str
    chart: str = ""
    places: tuple[int, ...] = ()


# Tables.

# A text, or a text and the index of a mark of the figure. On the page, a click on such a text lists the steps that the mark counts.
Cell = str | tuple[str, int]
Columns = dict[str, Callable[[Item], Cell]]  # for each heading, a function that returns the cell of an item


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts. The texts may come from models or files, so they are not trusted. The first cell of a row is its name.

    head: headings of the columns; all empty for a table without headings.
    rows: the cells of each row.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @classmethod
    def of(cls, columns: Columns[Item], items: Iterable[Item]) -> Table:
        """Returns a table with a row for each item."""
        return cls(tuple(columns), tuple(tuple(cell(item) for cell in columns.values()) for item in items))

    @property
    def texts(self) -> list[list[str]]:
        """The cells of each row without their marks."""
        return [[cell if isinstance(cell, str) else cell[0] for cell in row] for row in self.rows]

    def lines(self) -> list[str]:
        """Returns the lines of the table for a terminal."""
        return aligned([self.head, *self.texts])

    def markdown(self) -> str:
        rows = [map(markdown_text, row) for row in (self.head, ["---"] * len(self.head), *self.texts)]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def html(self) -> str:
        def row(cells: Sequence[str]) -> str:
            name, *others = map(html.escape, cells)
            return f"<tr><th scope=row>{name}</th>{''.join(f'<td>{cell}</td>' for cell in others)}</tr>"

        heads = "".join(f"<th scope=col>{html.escape(heading)}</th>" for heading in self.head)
        head = f"<thead><tr>{heads}</tr></thead>" if any(self.head) else ""
        return f"<table>{head}<tbody>{''.join(map(row, self.texts))}</tbody></table>"


def markdown_text(text: str) -> str:
    """Returns a text on one line, with ``|`` and ``<`` escaped for Markdown tables."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<")


def first_page(sentences: Sequence[str], table: Table) -> str:
    """Returns sentences, the main one first, and a table as HTML for a notebook."""
    main, *others = map(html.escape, sentences)
    rest = "".join(f"<li>{sentence}</li>" for sentence in others)
    return encodable(f'<div style="max-width:960px"><p><b>{main}</b></p><ul>{rest}</ul>{table.html()}</div>')
