"""At temperature > 0 committed sequences follow the target's own distribution exactly."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import cache

import pytest
import torch
from scipy.stats import chisquare

from d2sd import METHODS, DecodeConfig, Engine
from d2sd.decoding.verifier import generator_seed, gumbel_noise, restrict
from d2sd.nets.models import Models
from tests.nets import make_drafter, make_eagle3, make_target, stock_pass

VOCABULARY, LENGTH, RUNS = 4, 3, 2000
SEEDS = 16  # per method; each text must equal the text sampled by definition
PROMPT = [1, 2]
SETTINGS = [{"temperature": 1.0}, {"temperature": 0.4, "top_k": 3, "top_p": 0.95}]


@pytest.fixture(scope="module")
def tiny(tokenizer):
    # one layer each, for speed: thousands of texts are sampled
    target = make_target(tokenizer, vocabulary=VOCABULARY, seed=3, layers=1)
    target.model.lm_head.weight.mul_(0.25)  # spread the distribution over all tokens
    target.model.generation_config.eos_token_id = None
    target.model.config.eos_token_id = VOCABULARY + 9  # never sampled: all sequences have the same length
    small = make_target(tokenizer, vocabulary=VOCABULARY, seed=6, layers=1)
    drafters = (make_drafter(target, 4, layers=1, seed=seed) for seed in (1, 2))
    return Engine(Models(target, *drafters, small, eagle3=make_eagle3(target)))


def enumerate_sequences(engine, temperature, top_k=0, top_p=1.0):
    """Probability of every sequence of LENGTH tokens, from one plain batched pass."""
    sequences = list(itertools.product(range(VOCABULARY), repeat=LENGTH))
    ids = torch.tensor([[*PROMPT, *s] for s in sequences])
    logits = stock_pass(engine.models.target.model, ids).logits
    out = torch.ones(len(sequences), dtype=torch.float64)
    for place in range(LENGTH):
        row = restrict(logits[:, len(PROMPT) - 1 + place] / temperature, top_k, top_p).double().softmax(-1)
        out *= row.gather(1, ids[:, len(PROMPT) + place, None])[:, 0]
    return dict(zip(sequences, out.tolist(), strict=True))


@pytest.mark.parametrize("temperature", [1e-38, 5e-324])
def test_temperature_near_zero_samples_greedy_text(engine, temperature):
    plain = engine.generate("the cat", DecodeConfig("autoregressive", 8))
    sampled = engine.generate("the cat", DecodeConfig("d2sd", 8, temperature=temperature))
    assert sampled.token_ids == plain.token_ids


@cache
def sampled_by_definition(engine, temperature, top_k=0, top_p=1.0):
    """Texts of ``RUNS`` seeds by the Gumbel-max rule, from transformers' logits of one batch."""
    ids = torch.tensor([PROMPT] * RUNS)
    for position in range(len(PROMPT), len(PROMPT) + LENGTH):
        noise = [gumbel_noise(seed, [position], VOCABULARY, torch.device("cpu")) for seed in range(RUNS)]
        scores = restrict(stock_pass(engine.models.target.model, ids).logits[:, -1] / temperature, top_k, top_p)
        ids = torch.cat([ids, (scores + torch.cat(noise)).argmax(-1, keepdim=True)], 1)
    return [tuple(row) for row in ids[:, len(PROMPT) :].tolist()]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_gumbel_max_texts_match_exact_distribution(tiny, settings):
    expected = enumerate_sequences(tiny, **settings)
    assert sum(expected.values()) == pytest.approx(1)
    seen = Counter(sampled_by_definition(tiny, **settings))
    assert all(expected[s] > 0 for s in seen)
    # cells with fewer than five expected samples are pooled, as the chi-square test requires
    cells = [(seen[s], RUNS * p) for s, p in expected.items() if RUNS * p >= 5]
    rest = RUNS - sum(c for c, _ in cells), RUNS - sum(e for _, e in cells)
    if rest[1] > 1e-6:
        cells.append(rest)
    observed, wanted = zip(*cells, strict=True)
    assert chisquare(observed, wanted).pvalue > 1e-3


CASES = [(m, SETTINGS[n % 2]) for n, m in enumerate(METHODS)]
CASES += [(m, s) for m in ("autoregressive", "dflash", "d2sd") for s in SETTINGS if (m, s) not in CASES]
CASES += [(m, SETTINGS[0] | {"cost_aware": True}) for m in ("dflash", "d2sd", "d2sd_tree")]


@pytest.mark.parametrize(("method", "settings"), CASES, ids=str)
def test_sampled_text_equals_gumbel_max_definition(tiny, method, settings):
    """Texts are equal for each seed, so they have the distribution that the test above verifies."""
    wanted = sampled_by_definition(tiny, **{k: v for k, v in settings.items() if k != "cost_aware"})
    for seed in range(SEEDS):
        config = DecodeConfig(method, LENGTH, seed=seed, inspect=False, block_size=4, num_branches=2, **settings)
        assert tuple(tiny.generate(PROMPT, config).token_ids) == wanted[seed], seed


def test_restrict_keeps_smallest_sufficient_set():
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    for top_k, top_p, kept in ((0, 0.8, 2), (0, 0.81, 3), (1, 1.0, 1), (0, 0.01, 1)):
        assert restrict(logits, top_k, top_p).isfinite().tolist() == [[n < kept for n in range(4)]]


def test_gumbel_noise_depends_on_all_bits_of_the_seed_and_on_the_position():
    device = torch.device("cpu")
    a, b = gumbel_noise(3, [7, 9], 50, device), gumbel_noise(3, [9], 50, device)
    assert torch.equal(a[1:], b)
    assert not torch.equal(a[0], a[1])
    seeds = [3, *(3 ^ 1 << bit for bit in range(63))]
    assert len({tuple(gumbel_noise(seed, [9], 8, device)[0].tolist()) for seed in seeds}) == len(seeds)
    assert generator_seed(2**32 - 1, 9) == (2**32 - 1) * 1_000_003 + 9  # stable, so that traces can be repeated
