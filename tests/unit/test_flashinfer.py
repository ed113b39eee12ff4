"""Our side of the flashinfer backend, as far as it can be checked without a GPU: plans, layouts, obstacles."""

from __future__ import annotations

import ast
import inspect
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2sd import DecodeConfig, InputError
from d2sd.nets import flashinfer
from d2sd.nets.attention import attend_dense as dense
from d2sd.nets.attention import choose
from d2sd.nets.flashinfer import block_level, pack_mask, prefix_level
from tests.unit import reference_flashinfer
from tests.unit.drafts import merge_candidates
from tests.unit.test_attention import inputs

GPU, HALF = torch.device("cuda"), torch.bfloat16


@pytest.fixture
def documented(monkeypatch):
    """flashinfer's documented behaviour in its place."""
    monkeypatch.setattr(flashinfer, "_library", lambda: reference_flashinfer)


@pytest.fixture
def equipped(monkeypatch):
    """A machine that has everything flashinfer needs."""
    monkeypatch.setattr(flashinfer, "find_spec", lambda _: True)
    monkeypatch.setattr(flashinfer.shutil, "which", lambda name, **_: f"/usr/bin/{name}")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=n, max_size=n)
    )
)
def test_packed_bits_are_the_mask_row_by_row(rows):
    mask = np.array(rows)
    assert np.array_equal(pack_mask(torch.from_numpy(mask)).numpy(), np.packbits(mask, bitorder="little"))
    both = np.kron(np.eye(2, dtype=bool), mask)  # two branches
    assert np.array_equal(pack_mask(torch.from_numpy(mask), 2).numpy(), np.packbits(both, bitorder="little"))


def test_branches_share_one_prefix_request_and_have_a_block_request_each():
    assert prefix_level(4, 16, 100) == ([0, 64], [0, 100])
    assert block_level(3, 16, masked=False) == ([0, 16, 32, 48], [0, 16, 32, 48])
    assert block_level(1, 16, masked=True) == ([0, 16], [0, 16])


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("context", [0, 1, 33])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (8, 2), (8, 1)])
@pytest.mark.parametrize("fixed", [False, True])
def test_what_we_ask_for_is_the_attention(documented, heads, kv_heads, context, batch, fixed):
    tree = merge_candidates(0, [[1, 2, 3], [1, 4], [5, 2, 3]])
    mask = torch.from_numpy(tree.ancestor_mask())
    query, prefix, block = inputs(batch, heads, kv_heads, len(tree), context, 16)
    backend = flashinfer.FlashInfer(fixed)
    for shown in (mask, None):
        out = backend(query, prefix, block, shown, 0.25)
        torch.testing.assert_close(out, dense(query, prefix, block, shown, 0.25), atol=1e-5, rtol=1e-5)


def test_a_fixed_pass_reads_as_much_of_its_window_as_was_planned(documented):
    query, prefix, block = inputs(1, 4, 2, 8, 40, 16)
    window = tuple(torch.cat([p, torch.full_like(p, 9.0)], 2) for p in prefix)
    mask, backend = torch.eye(8, dtype=torch.bool), flashinfer.FlashInfer(fixed=True)
    backend.plan(query, 2, 40, True, 0.25)
    other = torch.ones(8, 8, dtype=torch.bool).tril()
    for shown in (mask, other):  # another tree needs no other plan
        backend.show(shown)
        out = backend(query, window, block, shown, 0.25, None, torch.arange(80) < 40)
        torch.testing.assert_close(out, dense(query, prefix, block, shown, 0.25), atol=1e-5, rtol=1e-5)
    backend.plan(query, 2, 41, True, 0.25)
    (stage,) = backend._stages.values()
    assert (stage.prefix.plans, stage.block.plans) == (2, 1)


def test_layers_of_a_pass_share_one_plan(documented):
    query, prefix, block = inputs(1, 4, 2, 5, 9, 16)
    mask, backend = torch.eye(5, dtype=torch.bool), flashinfer.FlashInfer()
    for _ in range(3):
        backend(query, prefix, block, mask, 0.25)
    (stage,) = backend._stages.values()
    assert stage.prefix.plans == stage.block.plans == 1
    backend(query, prefix, block, mask.clone(), 0.25)  # another tree
    assert stage.block.plans == 2


@pytest.mark.parametrize("passes", ["eager", "padded"])
def test_a_whole_run_through_it_gives_the_same_text(documented, engine, passes, monkeypatch):
    from d2sd import Engine

    other = Engine(engine.models, passes)
    monkeypatch.setattr("d2sd.engine.choose", lambda name, *_: name)
    for method in ("autoregressive", "d2sd", "ddtree"):
        expected = engine.generate("the cat", DecodeConfig(method, 12, backend="dense"))
        assert other.generate("the cat", DecodeConfig(method, 12, backend="flashinfer")).token_ids == expected.token_ids


def test_it_is_chosen_where_everything_is_there(equipped):
    assert flashinfer.obstacle(GPU, HALF, 128) is None
    assert choose("auto", GPU, HALF, 128) == "flashinfer"
    assert choose("auto", torch.device("cpu"), HALF, 128) == "dense"


def without(monkeypatch, name):
    monkeypatch.setattr(flashinfer.shutil, "which", lambda n, **_: None if n == name else f"/usr/bin/{n}")


@pytest.mark.parametrize(
    ("change", "device", "dtype", "head_dim", "reason"),
    [
        (lambda m: None, torch.device("cpu"), HALF, 128, "needs a CUDA GPU, and these models are on the cpu"),
        (lambda m: m.setattr(flashinfer, "find_spec", lambda _: None), GPU, HALF, 128, "package flashinfer-python"),
        (lambda m: without(m, "nvcc"), GPU, HALF, 128, "nvcc, which is not on this machine"),
        (lambda m: without(m, "ninja"), GPU, HALF, 128, "ninja, which is not on this machine"),
        (lambda m: m.setenv("SPACES_ZERO_GPU", "1"), GPU, HALF, 128, "ZeroGPU lends a GPU"),
        (lambda m: m.setattr(torch.cuda, "get_device_capability", lambda _: (7, 0)), GPU, HALF, 128, "capability 7.5"),
        (lambda m: None, GPU, torch.float32, 128, "not in float32"),
        (lambda m: None, GPU, HALF, 16, "no kernels for heads of 16"),
    ],
)
def test_what_is_missing_is_named_and_auto_does_without(equipped, monkeypatch, change, device, dtype, head_dim, reason):
    change(monkeypatch)
    with pytest.raises(InputError, match=rf"the attention backend flashinfer .*{reason}.*; use cascade, or auto"):
        choose("flashinfer", device, dtype, head_dim)
    assert choose("auto", device, dtype, head_dim) in ("cascade", "dense")


def test_ninja_is_found_beside_python(equipped, monkeypatch):
    beside = flashinfer.SCRIPTS
    monkeypatch.setattr(
        flashinfer.shutil, "which", lambda name, path=None: None if name == "ninja" and path != beside else f"/x/{name}"
    )
    assert flashinfer.obstacle(GPU, HALF, 128) is None


def test_asking_for_it_on_a_cpu_is_refused_before_anything_runs(engine):
    with pytest.raises(InputError, match="flashinfer needs a CUDA GPU"):
        engine.stream("the cat", DecodeConfig("d2sd", 8, backend="flashinfer"))
    assert engine.resolve(DecodeConfig("d2sd", 8)).backend == "dense"
    assert engine.first_use("dense") is None


def test_the_first_compilation_is_announced_once(engine, monkeypatch, tmp_path):
    monkeypatch.setenv("FLASHINFER_WORKSPACE_BASE", str(tmp_path))
    assert "compiles its kernels" in engine.first_use("flashinfer")
    (tmp_path / ".cache" / "flashinfer" / "0.7").mkdir(parents=True)
    (tmp_path / ".cache" / "flashinfer" / "0.7" / "kernel.so").touch()
    assert engine.first_use("flashinfer") is None


def test_a_row_that_is_in_the_prefix_takes_one_level(documented):
    query, prefix, _ = inputs(1, 8, 2, 1, 40, 16)
    backend = flashinfer.FlashInfer(fixed=True)
    for context in (1, 17, 40):
        backend.plan(query, 2, context, None, 0.25)
        out = backend(query, prefix, None, None, 0.25, None, torch.arange(40) < context)
        seen = tuple(part[:, :, :context] for part in prefix)
        wanted = torch.nn.functional.scaled_dot_product_attention(query, *seen, scale=0.25, enable_gqa=True)
        torch.testing.assert_close(out, wanted, atol=1e-5, rtol=1e-5)
    (stage,) = backend._stages.values()
    assert stage.block is None
    assert stage.prefix.plans == 3


def signatures(source):
    """The last definition of every function and method of a source, by name."""
    found = {}
    for node in ast.parse(source).body:
        for inner in [node, *getattr(node, "body", [])] if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(inner, ast.FunctionDef):
                for argument in ast.walk(inner.args):
                    if isinstance(argument, ast.arg):
                        argument.annotation = None
                place = f"{node.name}.{inner.name}" if inner is not node else inner.name
                found[place] = ast.unparse(inner.args)
    return found


SIGNATURES = Path(__file__).with_name("flashinfer_signatures.txt").read_text()
FILES = ("norm/__init__.py", "activation.py", "rope.py", "page.py", "cascade.py", "prefill.py")


def test_the_signatures_are_those_of_the_installed_flashinfer():
    if (spec := find_spec("flashinfer")) is None:
        pytest.skip("flashinfer is not installed")
    (folder,) = spec.submodule_search_locations
    installed = {}
    for name in FILES:
        installed |= signatures((Path(folder) / name).read_text())
    ours = signatures(SIGNATURES)
    assert len(ours) == 9
    assert {name: installed[name] for name in ours} == ours


def test_the_reference_has_these_signatures():
    """As far as it takes their arguments: positional ones at the same place, with the same defaults."""
    named = {name: ast.parse(f"def f({text}): ...").body[0].args for name, text in signatures(SIGNATURES).items()}
    seen = 0
    for name, args in named.items():
        owner, _, function = name.rpartition(".")
        home = getattr(reference_flashinfer, owner) if owner else reference_flashinfer
        if not hasattr(home, function):
            continue
        order = [a.arg for a in (*args.args, *args.kwonlyargs)]
        for at, own in enumerate(inspect.signature(getattr(home, function)).parameters.values()):
            if own.kind is not own.VAR_KEYWORD:
                assert own.name in order, (name, own.name)
                assert own.kind is own.KEYWORD_ONLY or own.name == "return_lse" or order[at] == own.name, (
                    name,
                    own.name,
                )
        seen += 1
    assert seen == 9


def tensors(rows=5, heads=6, size=16):
    return torch.randn(rows, heads, size, generator=torch.Generator().manual_seed(0))


HIDDEN, WEIGHT, ROTARY = tensors(8, 1, 64)[:, 0], torch.ones(64), torch.zeros(20, 16)
INDEX = torch.arange(5, dtype=torch.int32)
PAGES = torch.zeros(1, 2, 20, 16), torch.zeros(1, 2, 20, 16)
PAGE = {
    "append_key": tensors()[:, :2], "append_value": tensors()[:, 2:4], "batch_indices": torch.zeros_like(INDEX),
    "positions": INDEX, "paged_kv_cache": PAGES, "kv_indices": INDEX[:1], "kv_indptr": INDEX[:2],
    "kv_last_page_len": INDEX[:1] + 20, "kv_layout": "HND",
}  # fmt: skip
ROPE = {
    "positions": INDEX, "query": tensors()[:, :4].flatten(1), "key": tensors()[:, 4:].flatten(1), "head_size": 16,
    "cos_sin_cache": ROTARY,
}  # fmt: skip
ADD = {"input": HIDDEN, "residual": HIDDEN.clone(), "weight": WEIGHT}
RULES = {
    "rmsnorm": ({"input": HIDDEN, "weight": WEIGHT}, [
        {"input": HIDDEN[None, None]}, {"weight": WEIGHT.half()}, {"weight": WEIGHT[:32]}, {"input": torch.ones(64, 8).T},
    ]),
    "fused_add_rmsnorm": (ADD, [
        {"input": HIDDEN[None]}, {"residual": HIDDEN}, {"residual": HIDDEN.half()}, {"weight": WEIGHT.double()},
        {"residual": HIDDEN[:4]},
    ]),
    "silu_and_mul": ({"input": HIDDEN}, [{"input": HIDDEN[:, :32]}, {"input": HIDDEN[:, :33].contiguous()}]),
    "apply_rope_with_cos_sin_cache_inplace": (ROPE, [
        {"cos_sin_cache": ROTARY.half()}, {"positions": INDEX.float()}, {"positions": INDEX + 16}, {"positions": INDEX[:4]},
        {"query": tensors()[:, :4]}, {"key": ROPE["key"].half()}, {"cos_sin_cache": torch.zeros(16, 20).T},
    ]),
    "append_paged_kv_cache": (PAGE, [
        {"positions": INDEX.long()}, {"kv_indptr": INDEX[:2].long()}, {"kv_layout": "NHD"}, {"append_key": tensors()[:, :1]},
        {"append_value": tensors()[:, :2].half()}, {"positions": INDEX + 16}, {"append_key": torch.randn(5, 16, 2).mT},
        {"paged_kv_cache": (PAGES[0], torch.zeros(1, 20, 2, 16).transpose(1, 2))},
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_the_reference_refuses_what_the_kernels_would_read_wrongly(name):
    good, changes = RULES[name]

    def call(change):
        copied = {
            k: v.clone(memory_format=torch.preserve_format) if isinstance(v, torch.Tensor) else v
            for k, v in good.items()
        }
        if change.get("residual") is HIDDEN:
            copied["input"] = HIDDEN
        getattr(reference_flashinfer, name)(**copied | change)

    call({})
    for change in changes:
        with pytest.raises(AssertionError):
            call(change)


def test_reading_the_backend_does_not_import_flashinfer():
    assert "flashinfer" not in sys.modules
