"""Models of published shapes with random weights: the duration of a stage does not depend on weight values."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, Qwen3Config

from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.models.numbers import DTYPES
from d2sd.nets.drafter import DFlashDraftModel, drafter_config
from d2sd.nets.models import Models
from d2sd.nets.target import Target


@dataclass(frozen=True, slots=True)
class Shape:
    """A target's shape, from its published config.json, and its drafters."""

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


def random_engine(name: str, dtype: str, device: str, passes: str, positions: int) -> Engine:
    """Returns an engine of a shape of ``SHAPES`` with target and two drafters, for at most ``positions`` tokens.

    Its texts are the numbers of its tokens. Raises ``InputError`` on an unknown shape or where memory runs out.
    """
    if name not in SHAPES:
        raise InputError(f"unknown shape {name!r}; choose one of: {', '.join(SHAPES)}")
    if dtype not in DTYPES:
        raise InputError(f"unknown dtype {dtype!r}; choose one of: {', '.join(DTYPES)}")
    s = SHAPES[name]
    config = (Qwen3Config if s.kind == "qwen3" else LlamaConfig)(
        vocab_size=s.vocabulary, hidden_size=s.hidden, intermediate_size=s.intermediate, num_hidden_layers=s.layers,
        num_attention_heads=s.heads, num_key_value_heads=s.kv_heads, head_dim=s.head_dim, tie_word_embeddings=s.tied,
        max_position_embeddings=positions, bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    try:
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(config, dtype=DTYPES[dtype])
            target = Target(model, _numbering(s.vocabulary), f"random {name}")
            settings = {"layers": s.drafter_layers, "block_size": s.block_size, "mask_token_id": s.vocabulary - 1}
            drafters = [DFlashDraftModel(drafter_config(config, **settings)) for _ in range(2)]  # type: ignore[arg-type]
        for drafter in drafters:
            drafter.to(dtype=DTYPES[dtype]).eval().requires_grad_(False)  # type: ignore[call-arg]
        first, second = drafters
        return Engine(Models(target, first, second, name=target.name), passes)
    except torch.OutOfMemoryError as error:
        raise InputError(f"models of shape {name} do not fit into the memory of {device}") from error


def _numbering(vocabulary: int) -> PreTrainedTokenizerFast:
    """A tokenizer whose words are the ids."""
    words = {str(number): number for number in range(vocabulary)}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words)))
