"""Plans of published pairs, made from their configs alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from d2sd.folders import store
from d2sd.folders.checks import network
from d2sd.folders.configs import published_config
from d2sd.folders.loading import supported_config
from d2sd.folders.plan import memory, plan
from d2sd.nets.layouts import is_eagle3, read_eagle3, read_form
from d2sd.nets.passes import row_shape
from d2sd.nets.types import text_config

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


def checked(*sources):
    """Findings of the plan of a pair, by name; and the fault, or an empty string."""
    checks = plan(*sources)
    faults = [check.finding for check in checks if check.state == "fault"]
    assert len(faults) <= 1
    return {check.name: check.finding for check in checks}, "".join(faults)


def compare_verdict(cell, found, fault):
    """Compares a table's verdict, with its reason, with the plan."""
    verdict = "refused" if fault else found["passes"].removeprefix("it ").partition(",")[0]
    assert cell.partition(":")[0] == {"runs": "runs", "refused": "refused"}.get(verdict, "runs eagerly")
    assert cell.partition(": ")[2] in (fault or found["passes"])


def bytes_of(target, drafter=None):
    """Bytes in bfloat16 by part, of a target's folder and a drafter's config."""
    config = text_config(supported_config(published_config(target), target))
    form = drafter and (read_eagle3(drafter, config.num_hidden_layers) if is_eagle3(drafter) else read_form(drafter))
    return memory(config, form and network(form), 2)


def kinds_of(taps):
    """The tapped layers of a finding on taps, and the count of each kind."""
    return re.fullmatch(r"\[(.*)\], of the target's layers 0 to \d+ \((.*?)\).*", taps).groups()


@pytest.mark.parametrize("name", PAIRS)
def test_targets_table_matches_plan_of_pairs(name, tmp_path):
    (row,) = (line for line in table("Pairs published by z-lab") if f"| {name} |" in line)
    if name not in KNOWN:
        assert "config not found" in row
        return
    pair = folders(PAIRS[name], tmp_path)
    found, fault = checked(*pair)
    layers, taps, size, weights, said = (cell.strip() for cell in row.split("|")[3:-1])
    compare_verdict(said, found, fault)
    if fault:
        return
    assert ("weights" in found) == ("quantization_config" in PAIRS[name]["target_config"])
    plain = re.sub(r" \((\d+) tokens\)", "", found["target"]).partition("layers: ")[2].replace(" per layer", "")
    window = re.search(r"\((\d+) tokens\)", found["target"])
    assert set(layers.split(", ")) == {*plain.split(", "), *([f"window {window[1]}"] if window else [])}
    numbers, kinds = kinds_of(found["taps"])
    assert (taps.partition(" (")[0], set(taps[:-1].partition(" (")[2].split(", "))) == (numbers.replace(",", ""), set(kinds.split(", ")))  # fmt: skip
    assert f"{int(size) - 1} drafted tokens per step" in found["block"]
    assert f"{bytes_of(pair[0])['target'] / 1e9:.0f}" == weights


@pytest.mark.parametrize("name", DRAFTERS)
def test_targets_table_matches_plan_of_other_drafters(name, tmp_path):
    drafter = DRAFTERS[name]
    star = "*" if drafter["assumed"] else ""
    (row,) = (
        line for line in table("EAGLE-3, DSpark and speculators drafters") if line.startswith(f"| {name}{star} |")
    )
    target, kind, taps, vocabulary, size, said = (cell.strip() for cell in row.split("|")[2:-1])
    assert target == drafter["target"]
    pair = folders({"target_config": PAIRS.get(target, drafter).get("target_config"), **drafter}, tmp_path)
    found, fault = checked(*pair)
    compare_verdict(said, found, fault)
    if fault:
        return
    assert taps == kinds_of(found["taps"])[0].replace(",", "")
    assert kind.lower() in found["layout"].lower()
    assert "block" not in found if not size else f"{int(size) - 1} drafted tokens per step" in found["block"]
    assert found.get("vocabulary", "it can draft all of").startswith(f"it can draft {vocabulary} of")


@pytest.mark.parametrize(
    ("name", "published", "others"),
    [  # bytes of the published files, and of their parts outside the network: token tables, an embedding and a head
        ("Tengyunw/qwen3_8b_eagle3", 799_493_246, 8 * 32000 + 151936),
        ("deepseek-ai/dspark_qwen3_8b_block7", 4_742_170_330, 2 * 2 * 151936 * 4096),
    ],
)
def test_plan_drafter_memory_matches_published_weights(name, published, others, tmp_path):
    pair = {**PAIRS["Qwen/Qwen3-8B"], "drafter_config": DRAFTERS[name]["drafter_config"]}
    parts = bytes_of(folders(pair, tmp_path)[0], pair["drafter_config"])
    assert parts["drafter"] == pytest.approx(published - others, abs=50_000)  # the file also has a header


def test_plan_describes_hybrid_target_and_windowed_drafter(tmp_path):
    pair = PAIRS["Qwen/Qwen3.5-4B"]
    sources = folders(pair, tmp_path)
    found, _ = checked(*sources)
    assert found["mask token"] == "token 248077"
    assert found["window"] == "5 of 6 layers see only the last 4096 positions; attention within the block is causal"
    parts = bytes_of(sources[0], pair["drafter_config"])
    assert parts["drafter"] == 2 * 634_425_856  # 2 bytes for each published parameter
    assert parts["states of linear layers"] == 24 * (4 * 32 * 128 * 128 + 2 * 3 * (2 * 16 * 128 + 32 * 128))
    rows = row_shape(65)
    assert parts["keys and values of 4096 tokens"] == (4096 + rows) * 8 * 2 * 2 * 4 * 256
    tree = "buffers of linear layers for a tree of 64 nodes"
    assert parts[tree] == 24 * rows * (2 * (2 * 16 * 128 + 32 * 128) + 4 * 32 * (128 + 128 + 1))
    assert found["memory"] == f"it needs {sum(parts.values()) / 1e9:.2f} GB in bfloat16 for a text of 4096 tokens"
    assert "drafter 1.27 GB, keys and values of 4096 tokens" in found["memory by part"]


def test_plan_counts_shared_keys_and_values_once(tmp_path):
    config, sizes = PAIRS["google/gemma-4-31B-it"]["target_config"], []
    for shared in (0, 6):
        text = {**config["text_config"], "num_kv_shared_layers": shared}
        (tmp_path / "config.json").write_text(json.dumps({**config, "text_config": text}))
        sizes.append(bytes_of(str(tmp_path))["keys and values of 4096 tokens"])
    assert sizes[1] < sizes[0]


def test_plan_reports_missing_folder_invalid_config_and_unreachable_hub(tmp_path, monkeypatch):
    pair = folders(PAIRS["Qwen/Qwen3-4B"], tmp_path)
    assert checked(str(tmp_path / "gone"), pair[1])[1].endswith("/gone: there is no such folder")
    assert checked(pair[0], "./gone")[1] == "there is no such folder"
    (tmp_path / "drafter" / "config.json").write_text("[1]")
    assert checked(*pair)[1] == "its config.json is not a JSON object"
    monkeypatch.setattr(store.constants, "HF_HUB_OFFLINE", True)
    assert "couldn't connect" in checked("some-owner/some-model")[1]
