"""Trees that the methods build from hand-made drafts."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from math import exp, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d2sd.methods import METHODS, Drafters, Proposal
from d2sd.methods.base import WIDEST
from d2sd.methods.trees import FIRST, SECOND, agreed, grow, offers
from d2sd.tree.block import Block
from d2sd.tree.tree import chains, merge_drafts
from tests.unit.drafts import block


def distributions(rows: list[list[float]], prefix: int = 0, base: int = 0, drafter="first") -> Block:
    """A draft whose token t has probability rows[position][t], tokens sorted by probability."""
    order = [sorted(range(len(r)), key=lambda t, r=r: (-r[t], t)) for r in rows]
    sizes = [[r[t] for t in o] for r, o in zip(rows, order, strict=True)]
    ids, confidence = tuple(o[0] for o in order), tuple(s[0] for s in sizes)
    return Block(drafter, prefix, ids, confidence, order, sizes, base)


@st.composite
def drafts(draw, positions=3, vocabulary=3):
    weights = st.lists(st.integers(1, 40), min_size=vocabulary, max_size=vocabulary)
    rows = [draw(weights) for _ in range(positions)]
    return distributions([[w / sum(r) for w in r] for r in rows])


def brute_force(draft: Block, budget: int) -> float:
    """Largest total path probability of all trees with ``budget`` nodes. A tree is a prefix-closed set of paths."""
    by_token = [dict(zip(t, p, strict=True)) for t, p in zip(draft.tokens, draft.probabilities, strict=True)]

    def likelihood(path):
        out = 1.0
        for row, token in zip(by_token, path, strict=False):
            out *= row[token]
        return out

    paths = [p for n in range(1, len(by_token) + 1) for p in itertools.product(*map(sorted, by_token[:n]))]
    best = 0.0
    for chosen in itertools.combinations(paths, budget):
        if all(len(p) == 1 or p[:-1] in chosen for p in chosen):
            best = max(best, sum(map(likelihood, chosen)))
    return best


@given(drafts(positions=2, vocabulary=3), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_grow_builds_tree_of_largest_mass(draft, budget):
    tree = grow(9, [draft], [offers(draft, 0)], budget)
    assert len(tree) == budget + 1
    assert sum(tree.reach()[1:]) == pytest.approx(brute_force(draft, budget))


def test_grow_continues_from_draft_with_longest_prefix():
    first = distributions([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1]])
    second = distributions([[0.2, 0.8], [0.3, 0.7]], prefix=1, drafter="second")
    tree = grow(9, [first, second], [offers(first, 0), offers(second, 1)], 14)
    children = tree.children()
    trunk, off = children[0, 0], children[0, 1]

    def below(node):
        return {token: n for (parent, token), n in children.items() if parent == node}

    assert tree.blocks[trunk] == 0
    assert {t: tree.probabilities[n] for t, n in below(trunk).items()} == {0: 0.2, 1: 0.8}
    assert all(tree.blocks[n] == 1 for n in below(trunk).values())
    # a path that leaves the prefix continues with the first draft
    assert {t: tree.probabilities[n] for t, n in below(off).items()} == {0: 0.9, 1: 0.1}


def test_agreed_mixes_both_drafters_after_prefix():
    first = distributions([[0.9, 0.1], [0.7, 0.3]])
    second = distributions([[0.2, 0.8], [0.6, 0.4]], prefix=1, drafter="second")
    here, beyond = agreed(first, second, 1)
    assert sum(here.probabilities) == pytest.approx(1)
    odds = (0.8 / 0.2) ** SECOND * (0.3 / 0.7) ** FIRST
    assert here.probabilities[0] / here.probabilities[1] == pytest.approx(odds)
    shares = dict(zip(here.tokens, here.owners, strict=True))
    assert shares == {0: 0, 1: 1}
    assert beyond.tokens == [0, 1]
    assert beyond.probabilities == [0.6, 0.4]


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), min_size=1, max_size=5), st.integers(1, 8))
def test_tree_keep_retains_connected_likeliest_nodes(candidates, budget):
    rng = random.Random(len(candidates))
    tree = merge_drafts(9, [block(c, [rng.random() for _ in c]) for c in candidates])
    cut = tree.keep(budget)
    assert len(cut) == min(len(tree), budget + 1)
    assert all(0 <= p < n for n, p in enumerate(cut.parents) if n)
    assert all(cut.depths[n] == cut.depths[p] + 1 for n, p in enumerate(cut.parents) if n)
    assert sorted(cut.reach(), reverse=True) == pytest.approx(sorted(tree.reach(), reverse=True)[: len(cut)])


class Scripted(Drafters):
    """Drafters that answer from fixed tables and record the prefixes of re-drafts."""

    def __init__(self, confidence, longer=0, branches=2, budget=0, end_ids=()):
        self.anchor, self.num_branches, self.extension, self.budget, self.end_ids = 1, branches, longer, budget, end_ids
        self.prefixes: list[tuple[tuple[int, ...], ...]] = []
        self.first = block(range(10, 10 + len(confidence)), confidence)
        self.length = len(confidence) + longer

    def first_block(self, top=1):
        return self.first

    def second_blocks(self, prefixes, top=1):
        self.prefixes.append(tuple(map(tuple, prefixes)))
        out = []
        for p in prefixes:
            ids = range(100 + 20 * len(p), 100 + 20 * len(p) + self.length - len(p))
            out.append(Block("second", len(p), tuple(ids), (0.5,) * len(ids), [[i] for i in ids], [[0.5]] * len(ids)))
        return out

    def samples(self, count):
        return [block([10, 50 + j], [0.9, 0.1]) for j in range(count)]

    def chain(self):
        return self.first

    def levels(self):
        return []

    def rng(self):
        return random.Random(0)


def propose(name, drafters):
    """The proposal of one step of this method."""
    method = METHODS[name]
    draft = method.draft(drafters)
    prefixes = method.select(drafters, draft)
    redrafts = method.redraft(drafters, draft, prefixes)
    return Proposal.of(method.merge(drafters, draft, redrafts), draft, prefixes, redrafts)


@pytest.mark.parametrize("method", ["d2sd", "dflash_twice", "random_prefix", "d2sd_tree", "d2sd_three_level"])
@pytest.mark.parametrize("longer", [0, 2])
def test_methods_do_not_redraft_after_end_token(method, longer):
    # the first draft is 10 11 12 13 14: with end token 12, only prefixes of up to two tokens can continue
    script = Scripted((0.9, 0.9, 0.9, 0.9, 0.9), longer, branches=4, budget=9, end_ids={12})
    proposal = propose(method, script)
    assert sorted(proposal.selected) == [0, 1, 2]
    assert sorted(len(prefix) for prefix in script.prefixes[0]) == [0, 1, 2]
    assert not any(12 in prefix for batch in script.prefixes for prefix in batch)


def test_dflash_resample_keeps_greedy_chain_unlike_specdiff2_select():
    script = Scripted((0.9, 0.8), branches=3)
    resampled = propose("dflash_resample", script)
    assert [b.ids for b in resampled.blocks] == [(10, 11), (10, 50), (10, 51), (10, 52)]
    selected = propose("specdiff2_select", script)
    assert [b.ids for b in selected.blocks] == [(10, 50), (10, 51), (10, 52)]


def test_grow_orders_paths_with_underflowed_probabilities():
    """If logits are far apart, all probabilities but the first underflow to 0; their logarithms stay finite."""
    logs = [[0.0, -2000.0, -3000.0], [0.0, -900.0, -5000.0]]
    draft = Block(
        "first", 0, (1, 5), (1.0, 1.0), [[1, 2, 3], [5, 6, 7]], [[exp(s) for s in row] for row in logs], logs=logs
    )  # fmt: skip
    tree = grow(9, [draft], [offers(draft, 0)], 6)
    paths = [tuple(tree.tokens[n] for n in tree.path(node)) for node in range(1, len(tree))]
    assert paths == [(1,), (1, 5), (1, 6), (2,), (2, 5), (2, 6)]


@given(drafts(positions=3, vocabulary=12), st.floats(0.02, 0.5))
@settings(max_examples=40, deadline=None)
def test_ddtree_fetches_only_useful_tokens(draft, least):
    """``ddtree`` builds the same tree from the fetched tokens as from all tokens of a position."""
    fetched = []

    def first_block(top=1):
        fetched.append(top)
        tokens, probabilities = ([row[:top] for row in rows] for rows in (draft.tokens, draft.probabilities))
        return replace(draft, tokens=tokens, probabilities=probabilities)

    script = Scripted((0.5,), budget=30)
    script.first_block = first_block
    script.min_log_probability = log(least)
    tree = propose("ddtree", script).tree
    whole = grow(1, [draft], [offers(draft, 0)], 30, log(least))
    assert (tree.tokens, tree.parents) == (whole.tokens, whole.parents)
    assert fetched == [min(30, WIDEST, int(exp(-log(least))))]


def test_d2sd_redrafts_from_the_likeliest_boundaries():
    script = Scripted((0.95, 0.84, 0.62, 0.70, 0.42))
    proposal = propose("d2sd", script)
    assert proposal.selected == (2, 4)
    assert script.prefixes == [((10, 11), (10, 11, 12, 13))]
    script = Scripted((0.9, 0.9), longer=2, branches=1)  # a longer second block adds a branch after the first block
    proposal = propose("d2sd", script)
    assert script.prefixes[0][-1] == (10, 11)
    assert max(proposal.tree.depths) == 4
    assert (len(proposal.selected), len(proposal.branches)) == (1, 2)


def test_d2sd_three_level_redrafts_from_branches():
    script = Scripted((0.5, 0.5, 0.5), branches=2)
    proposal = propose("d2sd_three_level", script)
    assert len(script.prefixes) == 2
    whole = chains(proposal.blocks)
    assert 2 < len(proposal.branches) <= 4
    for number, extra in enumerate(proposal.branches[2:], 3):
        assert extra.base in (1, 2)
        assert whole[number][: extra.prefix] == whole[extra.base][: extra.prefix]
        assert extra.prefix > proposal.branches[extra.base - 1].prefix
    script = Scripted((0.5, 0.5, 0.5), branches=2, end_ids={100})  # the first token of the re-draft from prefix 0
    propose("d2sd_three_level", script)
    assert all(100 not in prefix for prefix in script.prefixes[1])
