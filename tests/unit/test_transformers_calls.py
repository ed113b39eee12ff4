"""Calls by transformers with unknown arguments are refused with an error that names its version."""

from __future__ import annotations

import pytest
import torch
import transformers
from transformers import AttentionInterface

from d2sd import InputError
from d2sd.nets.caches import CacheWindow, KeyValueCache
from d2sd.nets.lean import TORCH
from d2sd.nets.transformers_calls import cache_argument, refuse_unknown
from d2sd.nets.tree_attention import ATTENTION
from tests.target_nets import make_typed

SENTENCE = rf"transformers {transformers.__version__} calls .*, which this version of d2sd-explorer does not know; install transformers<{transformers.__version__}"  # fmt: skip


def test_transformers_calls_refuse_unknown_arguments(tokenizer):
    rows = torch.zeros(1, 2, 3, 4)
    cache = KeyValueCache.uniform(1, 2, 4, 8, torch.float32, torch.device("cpu"))
    linear = make_typed(tokenizer, "qwen3_5_text").base.layers[0].linear_attn
    attention = AttentionInterface()[ATTENTION]
    calls = {
        "attention": lambda **new: attention(linear, rows, rows, rows, None, **new),
        "linear layers": lambda **new: linear(torch.zeros(1, 3, 32), **new),
        "caches": lambda **new: cache.update(rows, rows, 0, **new),
        "windows": lambda **new: CacheWindow(cache, 8, torch.arange(3), TORCH.writer(torch.arange(3), 8)).update(
            rows, rows, 0, **new
        ),
    }
    for function, call in calls.items():
        call()
        with pytest.raises(InputError, match=SENTENCE) as refusal:
            call(segment_ids=None, use_cache=True)
        assert "with segment_ids, which" in str(refusal.value), function


def test_transformers_calls_refuse_attention_mask(tokenizer):
    target, rows = make_typed(tokenizer, "qwen3_5_text"), torch.zeros(1, 2, 3, 4)
    linear, mask = target.base.layers[0].linear_attn, torch.ones(1, 8)
    with pytest.raises(InputError, match="calls attention with attention_mask"):
        AttentionInterface()[ATTENTION](linear, rows, rows, rows, mask)
    cache = target.new_cache(16)
    target.read(torch.arange(2, 8)[None], cache)
    cache.commit(range(6))
    given = {cache_argument(type(linear).forward): cache, "attention_mask": mask}
    with pytest.raises(InputError, match="calls linear layers with attention_mask"):
        linear(torch.zeros(1, 2, 32), **given)


def test_cache_argument_finds_parameter_name():
    assert cache_argument(lambda input_ids, past_key_values: None) == "past_key_values"
    assert cache_argument(lambda hidden_states, cache_params, attention_mask: None) == "cache_params"
    assert cache_argument(lambda past_key_values, cache: None) == "cache"
    with pytest.raises(
        InputError, match=rf"no cache argument with a known name; install transformers<{transformers.__version__}"
    ):
        cache_argument(lambda input_ids, memory: None)
    refuse_unknown("attention", {"dropout": 0.0, "position_ids": None})


@pytest.mark.parametrize("kind", [FutureWarning, DeprecationWarning])
def test_deprecation_warnings_raise_errors(kind):
    call = "import warnings\nwarnings.warn('`past_key_values` is deprecated', kind)"
    with pytest.raises(kind):
        exec(call, {"__name__": "transformers.utils.deprecation", "kind": kind})
