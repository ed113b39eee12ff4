"""What two sets of runs were made with is told apart by weights, names and settings."""

from __future__ import annotations

from d2sd import DecodeConfig, Engine
from d2sd.nets.models import Models
from d2sd.trace.differences import weights_of, what_differs
from d2sd.trace.schema import read_header
from d2sd.trace.writer import to_line
from tests.nets import make_drafter, make_target


def headers(tokenizer, seed, **settings):
    target = make_target(tokenizer)
    engine = Engine(Models(target, make_drafter(target, block_size=6, seed=seed)))
    return engine.header(engine.request("the cat", DecodeConfig("dflash", 4, **settings)))


def test_a_header_names_its_parts_and_can_be_read(tokenizer):
    header = headers(tokenizer, 1)
    assert read_header(to_line(header).encode())["parts"] == header["parts"]
    drafter = header["parts"]["first_drafter"]
    assert (drafter["block_size"], drafter["mask_token_id"], drafter["dtype"]) == (6, 1, "float32")
    assert drafter["weights"] != header["parts"]["target"]["weights"]


def test_what_differs_is_said_of_two_checkpoints_of_one_name_and_of_settings(tokenizer):
    a, b, fewer = headers(tokenizer, 1), headers(tokenizer, 2), headers(tokenizer, 1, block_size=4)
    assert what_differs([a], [a]) == "What differs: no model, method or setting that the runs name."
    assert what_differs([a], [b, b]) == "What differs: first drafter (other weights)."
    assert what_differs([a], [fewer]) == "What differs: γ (6 → 4), γ₂ (6 → 4)."


def test_headers_of_other_engines_are_compared_by_what_they_say():
    older = {"models": {"target": "x", "first_drafter": "a/b"}, "config": {"num_branches": 4}, "parts": 3}
    newer = {"models": {"target": "x", "first_drafter": "c\x1b/d"}, "config": {"num_branches": 8}}
    said = what_differs([older], [newer, {"models": 3}])
    assert said.startswith("What differs: first drafter (a/b → c")
    assert "\x1b" not in said
    assert said.endswith("K (4 → 8).")
    assert what_differs([], []).startswith("What differs: no model")


def test_a_network_is_known_by_its_weights_whatever_it_is_called():
    named = [
        {"parts": {"first_drafter": {"name": name, "weights": weights}}}
        for name, weights in (("a", "1"), ("b", "1"), ("a", "2"))
    ]
    assert weights_of(named[:2], "first_drafter") == "1"
    assert weights_of(named, "first_drafter") == ""
    assert weights_of([*named[:2], {}], "first_drafter") == ""
    assert weights_of([], "first_drafter") == ""
