"""A target whose results would differ from transformers is refused when it is loaded."""

from __future__ import annotations

import pytest
import torch
import transformers
from transformers import AttentionInterface

from d2sd import InputError
from d2sd.folders.loading import load_target
from d2sd.nets import linear_attention as delta_net
from d2sd.nets import self_check
from d2sd.nets.caches import LinearState
from d2sd.nets.self_check import check_passes
from d2sd.nets.tree_attention import ATTENTION, attention
from tests.target_nets import TARGETS, WINDOW, make_typed

VERSION = transformers.__version__
WRONG = rf"would write wrong text with transformers {VERSION}: .* differ .* by \d+%; install transformers<{VERSION}"


@pytest.fixture(autouse=True)
def nothing_checked(monkeypatch):
    monkeypatch.setattr(self_check, "_agreed", set())


def no_state(monkeypatch):
    """Loses the state, as if transformers renamed the cache argument and the layer accepted any argument."""
    monkeypatch.setattr(
        delta_net,
        "_forward",
        lambda net, stock, name, hidden_states, **_: stock(hidden_states, **{name: None}),
    )


def another_row(monkeypatch):
    commit = LinearState.commit
    monkeypatch.setattr(LinearState, "commit", lambda state, last: commit(state, max(0, last - 1)))


def without(argument):
    """Loses an argument of attention, as if transformers stored it somewhere else."""

    def break_it(monkeypatch):
        monkeypatch.setitem(
            AttentionInterface._global_mapping,
            ATTENTION,
            lambda *rows, **given: attention(*rows, **{k: v for k, v in given.items() if k != argument}),
        )

    return break_it


BREAKS = {
    "no state": ("qwen3_5_text", no_state),
    "the state of another row": ("qwen3_5_text", another_row),
    "no window": ("olmo3", without("sliding_window")),
    "no sinks": ("gpt_oss", without("s_aux")),
    "no tree": ("ministral", without("attend")),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", BREAKS)
def test_check_passes_finds_broken_pass_in_every_dtype(tokenizer, monkeypatch, name, dtype):
    kind, break_it = BREAKS[name]
    break_it(monkeypatch)
    target = make_typed(tokenizer, kind)
    target.model.to(dtype)
    with pytest.raises(InputError, match=WRONG):
        check_passes(target)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_check_passes_accepts_and_restores_every_type(tokenizer, dtype):
    for kind in TARGETS:
        target = make_typed(tokenizer, kind)
        target.model.to(dtype)
        windows = [getattr(module, "sliding_window", None) for module in target.base.modules()]
        check_passes(target)
        assert len(target.base.layers) == 4
        assert target.model.config._attn_implementation == ATTENTION
        assert getattr(target.config, "sliding_window", None) in (None, WINDOW)
        assert windows == [getattr(module, "sliding_window", None) for module in target.base.modules()]


def test_check_passes_compares_type_once_per_dtype(tokenizer, monkeypatch):
    compared, real = [], self_check._difference
    monkeypatch.setattr(
        self_check, "_difference", lambda t: compared.append((t.config.model_type, t.numbers)) or real(t)
    )
    for kind in ("qwen3_5_text", "qwen3_5_text", "gpt_oss", "granite", "qwen3_moe"):
        check_passes(make_typed(tokenizer, kind))
    half = make_typed(tokenizer, "gpt_oss")
    half.model.to(torch.bfloat16)
    check_passes(half)
    assert compared == [("qwen3_5_text", "float32"), ("gpt_oss", "float32"), ("gpt_oss", "bfloat16")]


def test_load_target_self_check_error_names_version(tokenizer, tmp_path, monkeypatch):
    make_typed(tokenizer, "qwen3_5_text").model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    load_target(str(tmp_path), "float32", "cpu")
    self_check._agreed.clear()
    with monkeypatch.context() as patch:
        no_state(patch)
        with pytest.raises(InputError, match=rf"cannot load the target .*: targets of type qwen3_5_text {WRONG}"):
            load_target(str(tmp_path), "float32", "cpu")
    monkeypatch.delattr("d2sd.nets.caches.LayerCache.update_conv_state")
    with pytest.raises(InputError, match=rf"do not run with transformers {VERSION} \(.*update_conv_state.*; install"):
        load_target(str(tmp_path), "float32", "cpu")
