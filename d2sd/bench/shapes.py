"""Shapes of models with random weights, and kinds of layers, whose times ``bench gpu`` measures."""

from __future__ import annotations

from typing import NamedTuple

# fused: layers with merged weights and few kernels; plain: the layers as transformers runs them
LAYERS = ("fused", "plain")


class Shape(NamedTuple):
    """Shape of a target and of its drafters, with the values and names of the target's published config.json.

    kind: type of the model in transformers.
    drafter_layers: number of layers of each drafter.
    """

    kind: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    tie_word_embeddings: bool
    drafter_layers: int = 5


SHAPES = {
    "qwen3-8b": Shape("qwen3", 4096, 12288, 36, 32, 8, 128, 151936, False),
    "qwen3-4b": Shape("qwen3", 2560, 9728, 36, 32, 8, 128, 151936, True),
    "llama-3.1-8b": Shape("llama", 4096, 14336, 32, 32, 8, 128, 128256, False),
    "tiny": Shape("qwen3", 64, 96, 4, 4, 2, 16, 300, False, drafter_layers=2),
}
