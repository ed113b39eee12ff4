"""Shapes of models with random weights, and kinds of layers, whose times ``bench gpu`` measures."""

from __future__ import annotations

from dataclasses import dataclass

# fused: layers with merged weights and few kernels; plain: the layers as transformers runs them
LAYERS = ("fused", "plain")


@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of a target and of its drafters, with the values of the target's published config.json.

    kind: type of the model in transformers.
    tied: whether the LM head is the embedding table.
    drafter_layers: number of layers of each drafter.
    block_size: γ of the drafters.
    """

    kind: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    drafter_layers: int = 5
    block_size: int = 16


SHAPES = {
    "qwen3-8b": Shape("qwen3", 4096, 12288, 36, 32, 8, 128, 151936, False),
    "qwen3-4b": Shape("qwen3", 2560, 9728, 36, 32, 8, 128, 151936, True),
    "llama-3.1-8b": Shape("llama", 4096, 14336, 32, 32, 8, 128, 128256, False),
    "tiny": Shape("qwen3", 64, 96, 4, 4, 2, 16, 300, False, drafter_layers=2),
}
