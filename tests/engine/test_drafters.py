"""Block drafters of every published layout and kind: drafts equal the definition, and texts do not depend on them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from d2sd import METHODS, DecodeConfig, Engine, InputError
from d2sd.calibration import calibrate
from d2sd.decoding import walked_drafter
from d2sd.decoding.verifier import Sampler, gumbel_noise
from d2sd.folders.loading import load_drafter
from d2sd.methods.trees import grow, offers
from d2sd.nets.models import Models
from d2sd.nets.passes import Passes
from d2sd.trace.trace import parse_trace as load_trace_text
from d2sd.tree.boundary import boundary_posterior
from tests.drafter_folders import FOLDERS, H, V, plan, write
from tests.nets import make_drafter, make_target
from tests.teaching import teach
from tests.unit.reference_drafters import Reference

CONTEXT, ANCHOR = 21, 7


@pytest.fixture(scope="module")
def target(tokenizer):
    return make_target(tokenizer)


@pytest.fixture(scope="module")
def taught(target):
    """Weights of a v1 drafter, some of whose drafts are accepted."""
    return teach(make_drafter(target, block_size=6), target).state_dict()


@pytest.fixture(scope="module")
def read(target, taught, tmp_path_factory):
    """Returns a cached function: drafter and reference by name."""
    made = {}

    def one(name, base=False):
        if (name, base) not in made:
            folder = tmp_path_factory.mktemp("drafter")
            weights = write(name, folder, target, taught if base else None)
            model = load_drafter(str(folder), torch.float32, "cpu", target)
            reference = Reference(plan(name), weights, target.embedding.weight, target.head.weight)
            made[name, base] = model, reference
        return made[name, base]

    return one


def drafter_of(model, target, temperature=0.0, mode="eager"):
    """Returns a drafter after ``CONTEXT`` tokens with random features, and these features."""
    passes = Passes(mode, "dense", 256, torch.device("cpu"))
    drafter = walked_drafter.drafter_class(model)("first", model, target, passes, Sampler(temperature, 0, 1.0, 3))
    features = torch.randn(1, CONTEXT, 2 * H, generator=torch.Generator().manual_seed(1))
    drafter.extend(features[:, :9], torch.arange(9))
    drafter.extend(features[:, 9:], torch.arange(9, CONTEXT))
    return drafter, features[0]


SAMPLED = [name for name, (_, own) in FOLDERS.items() if {"markov", "with_markov", "top"} & set(own)]


@pytest.mark.parametrize(
    ("name", "mode", "temperature"),
    [*((n, mode, 0.0) for n in FOLDERS for mode in ("eager", "padded")), *((n, "eager", 0.9) for n in SAMPLED)],
)
@torch.inference_mode()
def test_block_drafts_equal_reference_definition(read, target, name, mode, temperature):
    """Drafters that choose tokens one after the other sample with the target's noise."""
    model, reference = read(name)
    drafter, features = drafter_of(model, target, temperature, mode)
    size = model.block_size
    noise = gumbel_noise(3, list(range(CONTEXT + 1, CONTEXT + size)), V, torch.device("cpu")).double()
    prefixes = [()] if temperature else [(), (5,), (9, 4)]
    blocks = drafter.draft(ANCHOR, prefixes, size, 3)
    for block, prefix in zip(blocks, prefixes, strict=True):
        wanted = reference.draft(ANCHOR, features, prefix, *((temperature, noise) if temperature else ()))
        assert list(block.ids) == [token for token, _, _ in wanted]
        assert list(block.confidence) == pytest.approx([p for _, p, _ in wanted], abs=2e-5)
        trained = [t for _, _, t in wanted if t is not None]
        assert list(block.trained) == pytest.approx(trained, abs=2e-5)
    assert len(blocks[0].ids) == size - 1 == plan(name)["rows"] - (plan(name)["reads"] == "fill")


def test_taught_drafters_have_some_tokens_accepted(read, target):
    """Texts also equal plain decoding with each method."""
    methods = [m.id for m in METHODS.values() if m.first_drafter]
    for number, name in enumerate(("dflash", "speculators rnn", "dflash2", "jetspec", "swa")):
        model = read(name, True)[0]
        engine = Engine(Models(target, model, model), ("eager", "padded")[number % 2])
        runs = [engine.generate(prompt, DecodeConfig("dflash", 24)) for prompt in ("the cat", "a dog ran to", "x")]
        assert sum(len(s.accepted) for r in runs for s in r.steps) > 3, name
        settings = {"num_branches": 2, "temperature": (0.0, 0.8)[number % 2], "seed": 4}
        plain = engine.generate("the cat", DecodeConfig("autoregressive", 8, **settings)).token_ids
        for method in methods[number // 2 % 2 :: 2]:  # the methods alternate between drafters
            assert engine.generate("the cat", DecodeConfig(method, 8, **settings)).token_ids == plain, (name, method)


def test_confidence_head_is_recorded_and_selects_prefixes(read, target):
    model, _ = read("speculators rnn", True)
    engine = Engine(Models(target, model, model))
    config = DecodeConfig("d2sd", 12, num_branches=2)
    softmax, head = (engine.generate("the cat", replace(config, confidence=c)) for c in ("softmax", "head"))
    assert softmax.token_ids == head.token_ids
    for trace, source in ((softmax, lambda s: s.first_draft.confidence), (head, lambda s: s.trained[0])):
        for step in trace.steps:
            assert len(step.trained) == 1 + len(step.branches)
            assert step.boundary_posterior == boundary_posterior(source(step)).posterior
    assert load_trace_text("".join(head.lines()).encode()) == head
    report, squares = calibrate([head]), []
    for step in head.steps:
        for k, (said, drafted) in enumerate(zip(step.trained[0], step.first_draft.ids, strict=True)):
            if k == len(step.committed):
                break
            squares.append((said - (right := drafted == step.committed[k].token)) ** 2)
            if not right:
                break
    assert report.head.positions == report.positions == len(squares)
    assert report.head.brier.value == pytest.approx(np.mean(squares))
    assert (report.head.ranks.num_branches, report.ranks.num_branches) == (2, None)
    with pytest.raises(InputError, match="has no confidence head; set confidence to softmax"):
        Engine(Models(target, read("dflash")[0])).resolve(DecodeConfig("dflash", confidence="head"))


@torch.inference_mode()
def test_selector_tree_holds_most_probable_paths(read, target):
    model, reference = read("dflash2")
    drafter, features = drafter_of(model, target)
    (block,) = drafter.draft(ANCHOR, [()], 6, 20)
    hidden = reference.hidden(torch.tensor([ANCHOR, *[1] * 5]), features)

    def after(position, before):
        row = hidden[position + 1]
        scores, tokens = reference.select(reference.head @ row, row, before, torch.arange(V))
        return dict(zip(tokens.tolist(), scores.log_softmax(0).tolist(), strict=True))

    tree = grow(ANCHOR, [block], [offers(block, 0)], 20)
    paths = [0.0]
    for node in range(1, len(tree)):
        parent = tree.parents[node]
        paths.append(paths[parent] + after(tree.depths[parent], tree.tokens[parent])[tree.tokens[node]])
        assert math.log(tree.probabilities[node]) == pytest.approx(paths[node] - paths[parent], abs=1e-4)
    below, outside = set(zip(tree.parents[1:], tree.tokens[1:], strict=True)), []
    for node, log in enumerate(paths):
        if tree.depths[node] < 5:
            options = after(tree.depths[node], tree.tokens[node])
            outside += [log + p for token, p in options.items() if (node, token) not in below]
    assert len(tree) == 21
    assert min(paths) > max(outside)
