"""A machine whose stage times were measured with ``d2sd bench gpu`` (docs/gpu.md)."""

from __future__ import annotations

from d2sd.costs.machines import Curve, Machine


def _milliseconds(*points: tuple[int, float]) -> Curve:
    return Curve.through([(rows, time / 1e3) for rows, time in points])


# After 1,024 tokens. ``other`` is tree, commit and the host's part of a cycle; one node takes what plain decoding leaves of it.
H200 = Machine(
    first_draft=_milliseconds((1, 2.26), (16, 2.27)),
    second_draft=_milliseconds((16, 1.65), (32, 1.72), (64, 1.86), (128, 2.29)),
    verify=_milliseconds((1, 7.07), (10, 8.38), (16, 8.42), (31, 8.81), (45, 9.15), (70, 9.82), (108, 13.59)),
    other=1.19e-3,
    name="H200, measured",
    source="d2sd bench gpu, 2026-11-26: Qwen3-8B and five-layer drafters with random weights in bfloat16, one NVIDIA H200, "
    "captured passes, flashinfer 0.7.2, torch 2.11.",
    drafts={"eagle3": None, "draft_model": None},
)
