"""What an examination is asked: the drafter, the texts and the settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from d2sd.errors import InputError

PROMPTS = 30  # default number of prompts
VISIBLE = 2  # tokens after the anchor that a VP-Drafter is shown


@dataclass(frozen=True, slots=True)
class Asked:
    """The drafter to examine, and the settings of the examination. Raises ``InputError`` for invalid settings.

    drafter: folder or hub id.
    prompts: texts without a chat template.
    chat, thinking: as in ``DecodeConfig``.
    visible: number of tokens after the anchor that the drafter is shown: 0 for a first drafter, more for a second drafter.
    expected: α that the drafter should have, such as its published one; None if unknown.
    reference: folder or hub id of a good drafter to compare with; None: no comparison.
    dtype: dtype of the drafters, as for ``with_drafter``.
    name: the drafter's name in the report; None: the value of ``drafter``.
    first: if a second drafter is examined, folder or hub id of the first drafter; None if unknown.
    target: the target's folder, hub id, preset or GGUF file; None if unknown.
    """

    drafter: str
    prompts: Sequence[str] = ()
    chat: bool = False
    thinking: bool = False
    visible: int = 0
    expected: float | None = None
    reference: str | None = None
    dtype: str | None = None
    name: str | None = None
    first: str | None = None
    target: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.prompts, str):
            raise InputError("prompts must be a list of texts, not a single text")
        if self.expected is not None and not self.expected >= 1:
            raise InputError(f"the expected α is {self.expected:g}; α counts the bonus token, so it is at least 1")
