"""Cycles computed on the device give the host's events, copy back once, and can be captured in a CUDA graph."""

from __future__ import annotations

import random
from functools import cache
from itertools import pairwise

import pytest
import torch
from msgspec.structs import replace
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from d2sd import METHODS, DecodeConfig, Engine
from d2sd.decoding import drafters as drafting
from d2sd.decoding.cost_aware import Controller, Experience
from d2sd.decoding.device_cycle import DeviceCycle
from d2sd.decoding.drafters import CachedDrafters, slots
from d2sd.decoding.generation import HostCycle
from d2sd.decoding.verifier import Verifier
from d2sd.nets.models import Models
from d2sd.nets.packed import PackedLayers
from d2sd.nets.passes import Passes, PassRecorder
from d2sd.trace.events import StageSeconds
from tests.nets import CHEAP_DRAFTS, VOCABULARY, make_drafter, make_eagle3, make_target, turns
from tests.pretended_gpu import capture

ON_DEVICE = [m.id for m in METHODS.values() if m.on_device]
SETTINGS = [
    {"num_branches": 3},
    {"num_branches": 3, "inspect": False},
    {"block_size": 6, "second_block_size": 11, "num_branches": 4},
    {"num_branches": 2, "temperature": 0.9, "top_k": 40, "top_p": 0.9, "seed": 5},
]


@pytest.fixture(autouse=True, scope="module")
def same_layers():
    """Turns packed layers off, so that both engines round alike: random networks often have near ties."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PackedLayers, "possible", lambda *_: False)
        yield


def small_engine(tokenizer, kind="qwen3", layers=3):
    target = make_target(tokenizer, kind, layers=layers)
    first, second = (make_drafter(target, layers=layers - 1, seed=seed) for seed in (1, 2))
    return Engine(Models(target, first, second, eagle3=make_eagle3(target)))


@pytest.fixture(scope="module")
def host_and_padded(tokenizer):
    """Cached function: an engine with eager and one with padded passes, by target type."""

    @cache
    def made(kind):
        host = small_engine(tokenizer, kind)
        return host, Engine(host.models, "padded")

    return made


def untimed(trace):
    """What a run recorded except times; probabilities have a tolerance for rounding."""
    out = []
    for step in trace.steps:
        step = replace(step, seconds=StageSeconds(0, 0, 0, 0, 0), elapsed=0)
        nodes = [(n.parent, n.token, n.candidates, n.proposer, n.state, n.target_rank) for n in step.nodes]
        floats = [*step.boundary_posterior, *(n.drafter_probability or 0 for n in step.nodes)]
        floats += [confidence for row in step.tempered for confidence in row]
        floats += [n.target_probability or 0 for n in step.nodes] + [c.probability or 0 for c in step.choices]
        drafts = [(d.drafter, d.prefix, d.ids) for d in (step.first_draft, *step.branches) if d]
        rest = (step.anchor, step.selected_prefixes, step.accepted, step.committed, step.actual_boundary)
        out.append(((nodes, drafts, rest), pytest.approx(floats, abs=2e-5)))
    return out


@pytest.mark.parametrize("turn", turns(2 * len(SETTINGS)))
@pytest.mark.parametrize("method", ON_DEVICE)
def test_device_cycle_events_equal_host_events(host_and_padded, method, turn, monkeypatch):
    number = turn + ON_DEVICE.index(method)
    settings = SETTINGS[number % len(SETTINGS)]
    engine, padded = host_and_padded(("qwen3", "llama")[(number + number // len(SETTINGS)) % 2])
    settings = {k: v for k, v in settings.items() if k in METHODS[method].settings or "_" not in k or "top" in k}
    config = DecodeConfig(method, 10, **settings)
    prompt = ("the cat sat", [7])[number % 2]
    expected = engine.generate(prompt, config)
    monkeypatch.setattr(HostCycle, "verify", None)  # the host runs no cycle
    trace = padded.generate(prompt, config)
    assert trace.token_ids == expected.token_ids
    for one, other in zip(untimed(trace), untimed(expected), strict=True):
        assert one[0] == other[0]
        assert one[1].expected == other[1]


@pytest.mark.parametrize(("method", "longer"), [("d2sd", None), ("dflash_twice", 16)])
def test_device_cycle_selects_no_prefix_after_drafted_end(tokenizer, method, longer):
    models = small_engine(tokenizer).models
    models.target.model.generation_config.eos_token_id = list(range(0, VOCABULARY, 9))  # in most drafts
    host, device = (Engine(models, passes=mode) for mode in ("eager", "padded"))
    left_out = 0
    for prompt in ("the cat sat", "on the mat to the"):
        config = DecodeConfig(method, 12, block_size=12, second_block_size=longer, num_branches=6, temperature=1)
        expected = host.generate(prompt, config)
        for one, other in zip(untimed(device.generate(prompt, config)), untimed(expected), strict=True):
            assert one[0] == other[0]
        for step in expected.steps:
            ends = [i for i, token in enumerate(step.first_draft.ids) if token in models.target.end_ids]
            assert all(not ends or branch.prefix <= ends[0] for branch in step.branches)
            left_out += len(step.selected_prefixes) < 6
    assert left_out


def random_controller(seed, few=False):
    """Controller with random decisions. ``few``: either no draft or the longest one."""
    rng = random.Random(seed)

    class RandomController(Controller):
        def begin(self):
            if self.experience is None:
                return super().begin()
            super().begin()
            self.next_redrafts = rng.randrange(4)
            return self.take(rng.choice([0, len(self.lengths)] if few else range(1 + len(self.lengths))))

    return RandomController


def plans(trace):
    """Set of (γ, number of re-drafts) in the steps' decisions, after a check that each step followed its decision."""
    taken = [step.decision.options[step.decision.taken] for step in trace.steps]
    for step, option in zip(trace.steps, taken, strict=True):
        assert bool(step.first_draft) == (option.block_size > 0)
        assert len(step.branches) == option.branches
    return {(option.block_size, option.branches) for option in taken}


PLANNED = ["dflash", "d2sd", "dflash_twice", "random_prefix"]


@pytest.mark.parametrize("method", PLANNED)
def test_cost_aware_device_cycles_keep_plain_text(host_and_padded, method, monkeypatch):
    """Random plans keep the text, and the host verifies no step. Targets and block settings alternate by method."""
    turn, seen = PLANNED.index(method), set()
    engine, padded = host_and_padded(("qwen3", "llama")[turn % 2])
    noises = ({}, {"temperature": 0.9, "seed": 4})
    plain = [engine.generate("the cat sat on", DecodeConfig("autoregressive", 28, **noise)) for noise in noises]
    monkeypatch.setattr(HostCycle, "verify", None)
    monkeypatch.setattr(Engine, "costs", lambda *_: CHEAP_DRAFTS)
    blocks = ({"num_branches": 3}, {"block_size": 6, "second_block_size": 9, "num_branches": 4})
    monkeypatch.setattr(drafting, "Controller", random_controller(turn))
    settings = blocks[turn // 2]
    if METHODS[method].second_drafter == "none":
        settings = {k: v for k, v in settings.items() if k == "block_size"}
    for noise, expected in zip(noises, plain, strict=True):
        trace = padded.generate("the cat sat on", DecodeConfig(method, 28, cost_aware=True, **settings, **noise))
        assert trace.token_ids == expected.token_ids
        seen |= plans(trace)
    assert len(seen) > (3 if METHODS[method].second_drafter == "none" else 5)


def test_device_drafts_after_plain_cycles_equal_fresh_drafts(host_and_padded, monkeypatch):
    """A draft after plain cycles equals the first draft of a run that begins there."""
    engine, padded = host_and_padded("llama")
    monkeypatch.setattr(Engine, "costs", lambda *_: CHEAP_DRAFTS)
    monkeypatch.setattr(drafting, "Controller", random_controller(2, few=True))
    ids = list(padded.encode("the cat sat on", DecodeConfig("dflash", 28)))
    trace = padded.generate(ids, DecodeConfig("dflash", 28, block_size=8, cost_aware=True))
    whole, checked = [*ids, *trace.token_ids], 0
    for before, step in pairwise(trace.steps):
        if step.first_draft and not before.first_draft:
            begun = engine.generate(whole[: step.anchor_position], DecodeConfig("dflash", 2, block_size=8)).steps[0]
            assert (begun.anchor, begun.first_draft.ids) == (step.anchor, step.first_draft.ids)
            checked += 1
    assert checked > 2


class OnMeta(TorchDispatchMode):
    """Fails if a tensor is created on another device, or if a number is assigned to a single element.

    For GPU tensors, torch copies such a number from a host tensor, which a CUDA graph cannot contain."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert not (function is torch.ops.aten.copy_.default and args[0].ndim == 0), "assigned to one element"
        out = function(*args, **(kwargs or {}))
        assert all(t.is_meta for t in tree_leaves(out) if isinstance(t, torch.Tensor)), function
        return out


@pytest.mark.parametrize("method", ON_DEVICE)
@pytest.mark.parametrize("cost_aware", [False, True])
@torch.inference_mode()
def test_device_cycle_queues_without_reading_tensors(tokenizer, method, cost_aware, monkeypatch):
    """Tensors on torch's meta device hold no values, so reading one fails. Other settings alternate by method."""
    engine = small_engine(tokenizer, layers=2)
    turn = (ON_DEVICE.index(method) + cost_aware) % 2
    inspect, dtype, backend = ((True, torch.float32, "dense"), (False, torch.bfloat16, "cascade"))[turn]
    target = engine.models.target
    config = engine.resolve(DecodeConfig(method, 20, inspect=inspect, cost_aware=cost_aware))
    for model in (target.model, engine.models.first, engine.models.second):
        model.to("meta", dtype)
    passes = Passes("padded", backend, slots(config, 300), torch.device("meta"))
    experience = Experience(CHEAP_DRAFTS) if cost_aware else None
    drafters, verifier = CachedDrafters(engine.models, config, passes, experience), Verifier(target, passes)
    for held in (verifier.cache, *(d.cache for d in drafters.block_drafters)):
        held.length = 280
    cycle, ids = DeviceCycle(config, drafters, verifier), list(range(281))
    assert DeviceCycle.possible(config, drafters)
    sent = []

    def send(_, numbers):
        sent.extend(numbers)
        return torch.zeros(len(numbers), dtype=torch.int64, device="meta")

    monkeypatch.setattr(DeviceCycle, "_send", send)
    with OnMeta():
        assert cycle.queue(ids)[1].ndim == 1
    assert sent[:2] == [ids[-1], 280]
    assert len(sent) == 2 + (config.block_size - 1 if method == "random_prefix" and not cost_aware else 0)
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        cycle.propose(ids)


@pytest.fixture(scope="module")
def small(tokenizer):
    """Few layers, since recorded operations take long to replay."""
    return small_engine(tokenizer, layers=2)


@pytest.fixture
def frozen(small, monkeypatch):
    """The same engine with its passes "captured" on the CPU."""

    monkeypatch.setattr(PassRecorder, "capture", capture)
    other = Engine(small.models, "padded")
    other.mode = "captured"
    return other


NOISY = {"temperature": 2.0, "seed": 5}
CHANGES = [{"inspect": False}, NOISY, NOISY | {"top_k": 2}, NOISY | {"top_p": 0.2}, NOISY | {"temperature": 0.5}]


@pytest.mark.parametrize("method", [*ON_DEVICE, "d2sd_tree", "eagle3"])
def test_captured_passes_keep_texts_and_trees(small, frozen, method):
    """Passes are captured again for other settings."""
    changes = [*CHANGES, {"block_size": 6}, {"num_branches": 2}] if method == "d2sd" else [{}]
    for prompt, settings in (("the cat sat", {}), *(("a dog ran to", change) for change in changes)):
        config = DecodeConfig(method, 8, **{"num_branches": 3} | settings)
        one, other = frozen.generate(prompt, config), small.generate(prompt, config)
        assert one.token_ids == other.token_ids
        # a wrong tree would cost speed without changing the text
        assert [[n.token for n in s.nodes] for s in one.steps] == [[n.token for n in s.nodes] for s in other.steps]
    (passes,) = (lent for _, lent in frozen._free)
    assert passes.mode == "captured"
    assert passes._captured


def test_generation_continues_when_a_capture_fails(small, frozen, monkeypatch):
    captures = []

    def fails_once(*args):
        captures.append(args)
        if len(captures) == 2:
            raise RuntimeError("operation not permitted when stream is capturing")
        return capture(*args)

    monkeypatch.setattr(PassRecorder, "capture", fails_once)
    config = DecodeConfig("dflash", 8)
    assert frozen.generate("the cat sat", config).token_ids == small.generate("the cat sat", config).token_ids
    assert len(captures) == 2
