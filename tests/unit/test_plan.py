"""Plans of published pairs, made from their configs alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from d2sd.__main__ import main
from d2sd.cli.common import FAULT_NAMED
from d2sd.folders import store
from d2sd.folders.plan import markdown, plan, plan_verdict
from tests.drafter_folders import flat

PAIRS = {pair["target"]: pair for pair in json.loads(Path("tests/data/published_pairs.json").read_text())}
KNOWN = [name for name, pair in PAIRS.items() if pair["target_config"]]
DRAFTERS = {d["drafter"]: d for d in json.loads(Path("tests/data/published_drafters.json").read_text())}


def table(heading):
    """Rows of the table below a heading of the page."""
    section = Path("docs/targets.md").read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")]


def folders(pair, tmp_path):
    """A pair's configs as folders, without weights."""
    for part in ("target", "drafter"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "config.json").write_text(json.dumps(pair[f"{part}_config"]))
    return str(tmp_path / "target"), str(tmp_path / "drafter")


@pytest.mark.parametrize("name", PAIRS)
def test_targets_table_matches_plan_of_pairs(name, tmp_path):
    (row,) = (line for line in table("Pairs published by z-lab") if f"| {name} |" in line)
    if name not in KNOWN:
        assert "config not found" in row
        return
    found = plan(*folders(PAIRS[name], tmp_path))
    said = plan_verdict(found).partition(":")[0].partition(",")[0]
    assert f"| {said}" in row
    if found.refused is None:
        layers = ", ".join(f"{count} {kind}" for kind, count in found.layers.items())
        assert layers in row
        assert f"| {found.memory.target / 1e9:.0f} |" in row


@pytest.mark.parametrize("name", DRAFTERS)
def test_targets_table_matches_plan_of_other_drafters(name, tmp_path):
    drafter = DRAFTERS[name]
    star = "*" if drafter["assumed"] else ""
    (row,) = (
        line for line in table("EAGLE-3, DSpark and speculators drafters") if line.startswith(f"| {name}{star} |")
    )
    target, kind, taps, vocabulary, size, said = (cell.strip() for cell in row.split("|")[2:-1])
    assert target == drafter["target"]
    found = plan(*folders({"target_config": PAIRS.get(target, drafter).get("target_config"), **drafter}, tmp_path))
    assert said.partition(":")[0] == plan_verdict(found).partition(":")[0].partition(",")[0]
    assert said.partition(": ")[2] in (found.refused or found.eager or "")
    assert taps == " ".join(str(n) for n, _ in found.taps)
    assert size == str(found.block_size or "")
    if found.refused is None:
        assert (kind, vocabulary) == (found.kind, str(found.draft_vocabulary or "all"))


@pytest.mark.parametrize(
    ("name", "published", "others"),
    [  # bytes of the published files, and of their parts outside the network: token tables, an embedding and a head
        ("Tengyunw/qwen3_8b_eagle3", 799_493_246, 8 * 32000 + 151936),
        ("deepseek-ai/dspark_qwen3_8b_block7", 4_742_170_330, 2 * 2 * 151936 * 4096),
    ],
)
def test_plan_drafter_memory_matches_published_weights(name, published, others, tmp_path):
    pair = {**PAIRS["Qwen/Qwen3-8B"], "drafter_config": DRAFTERS[name]["drafter_config"]}
    found = plan(*folders(pair, tmp_path))
    assert found.memory.drafter == pytest.approx(published - others, abs=50_000)  # the file also has a header


def test_plan_report_describes_eagle3_drafter(tmp_path):
    pair = {**PAIRS["Qwen/Qwen3-8B"], "drafter_config": DRAFTERS["Tengyunw/qwen3_8b_eagle3"]["drafter_config"]}
    said = markdown(plan(*folders(pair, tmp_path)))
    assert "EAGLE-3, 1 layer, which sees the whole text" in said
    assert "Its draft vocabulary has 32000 of the target's tokens" in said


def test_plan_describes_hybrid_target_and_windowed_drafter(tmp_path):
    found = plan(*folders(PAIRS["Qwen/Qwen3.5-4B"], tmp_path))
    assert found.layers == {"linear": 24, "full": 8}
    assert found.taps == [(n, "linear") for n in (1, 5, 9, 13, 17, 21, 25, 29)]
    assert (found.block_size, found.mask, found.kind) == (16, 248077, "DFlash")
    assert found.drafter_layers == ["4096 tokens, causal"] * 5 + ["the whole text"]
    assert found.memory.drafter == 2 * 634_425_856  # 2 bytes for each published parameter
    assert found.memory.states == 24 * (4 * 32 * 128 * 128 + 2 * 3 * (2 * 16 * 128 + 32 * 128))
    assert "24 linear, 8 full" in markdown(found)


def test_plan_refuses_drafter_of_another_target(tmp_path):
    pair = {**PAIRS["Qwen/Qwen3.5-4B"], "drafter_config": PAIRS["Qwen/Qwen3.5-9B"]["drafter_config"]}
    assert "has hidden size 4096, the target 2560" in plan(*folders(pair, tmp_path)).refused


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"num_hidden_layers": -3}, "num_hidden_layers is -3"),
        ({"layer_types": ["full_attention"] * 35 + ["conv"]}, "layers of kind conv"),
        ({"model_type": "nobody-knows"}, "'nobody-knows' are not supported"),
        ({"model_type": "gemma2", "attn_logit_softcapping": 50.0}, "(unsupported part: soft caps on attention logits)"),
    ],
)
def test_plan_refuses_unsupported_target(tmp_path, change, sentence):
    pair = PAIRS["Qwen/Qwen3-4B"]
    found = plan(*folders({**pair, "target_config": {**pair["target_config"], **change}}, tmp_path))
    assert sentence in found.refused
    assert "\n" not in found.refused


def test_doctor_config_only_reads_no_weights(tmp_path, capsys):
    target, drafter = folders(PAIRS["Qwen/Qwen3-8B"], tmp_path)
    assert main(["doctor", target, drafter, "--config-only"]) == 0
    assert "runs, with passes captured as CUDA graphs on a GPU" in capsys.readouterr().out
    (tmp_path / "drafter" / "config.json").write_text(json.dumps(flat()))
    assert main(["doctor", target, drafter, "--config-only"]) == FAULT_NAMED
    assert "refused: drafter" in capsys.readouterr().out


def test_plan_reports_missing_folder_and_unreachable_hub(tmp_path, monkeypatch):
    pair = folders(PAIRS["Qwen/Qwen3-4B"], tmp_path)
    assert plan(str(tmp_path / "gone"), pair[1]).refused.endswith("/gone: there is no such folder")
    assert plan(pair[0], "./gone").refused == "there is no such folder"
    (tmp_path / "drafter" / "config.json").write_text("[1]")
    assert plan(*pair).refused == "its config.json is not a JSON object"
    tries = []

    def unreachable(*_):
        tries.append(1)
        raise OSError

    monkeypatch.setattr(store, "create_connection", unreachable)
    monkeypatch.setattr(store, "getproxies", dict)
    monkeypatch.setattr(store.constants, "HF_HUB_OFFLINE", False)
    store.hub_answers.cache_clear()
    assert "couldn't connect" in plan("some-owner/some-model").refused
    assert len(tries) == 1
    store.hub_answers.cache_clear()
