"""The doctor on a drafter's folder: checks before anything is loaded, and repairs."""

from __future__ import annotations

import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file

from d2sd.__main__ import main
from d2sd.cli.common import FAULT_NAMED
from d2sd.doctor import examination
from d2sd.doctor.asked import Asked
from d2sd.doctor.examination import Examination
from d2sd.errors import InputError
from d2sd.folders.checks import check_drafter_folder
from d2sd.folders.loading import load_drafter, with_drafter
from d2sd.folders.weights import weights_digest
from d2sd.nets.models import Models
from tools.breaking import TINY, copied, inner, outer, renamed, rope, speculators_form, weights, window
from tools.broken_ways import WAYS
from tools.outside_ways import OUTSIDE

FOLDERS = {
    "tap missing": (inner(target_layer_ids=[1, 4, 13]), dict, "shapes", "it reads 5 layers of the target, and the config names 3", "correct the sizes or the taps"),
    "misnamed": (dict, renamed("norm.weight", "final_norm.weight"), "tensors", "the unknown tensor final_norm.weight has the same shape and a similar name", "rename final_norm.weight to norm.weight"),
    "transposed": (dict, lambda w: {**w, "layers.0.mlp.up_proj.weight": w["layers.0.mlp.up_proj.weight"].T.contiguous()}, "shapes", "as if it was transposed", "transpose layers.0.mlp.up_proj.weight"),
    "adapter": (dict, lambda w: {**{k: v for k, v in w.items() if k != "fc.weight"}, "fc.base_layer.weight": w["fc.weight"], "fc.lora_A.weight": torch.ones(2, 960), "fc.lora_B.weight": torch.ones(192, 2)}, "tensors", "an adapter that was never merged into the weights (fc.lora_A.weight)", "merge the adapter"),
    "other names": (dict, lambda w: {k.replace("q_proj", "wq").replace("o_proj", "wo"): v for k, v in w.items()}, "tensors", "is missing; the files hold unknown tensors instead, such as layers.0.self_attn.wo.weight", "use a folder that has"),
    "too few layers": (dict, lambda w: {k: v for k, v in w.items() if "layers.0." not in k}, "layers", "the files hold the layers 1, 2, but num_hidden_layers is 3", None),
    "more layers": (outer(num_hidden_layers=2, layer_types=["full_attention"] * 2), dict, "layers", "the files hold the layers 0, 1, 2, but num_hidden_layers is 2", "set num_hidden_layers to 3, with layer_types of 3 entries"),
    "surplus": (dict, lambda w: {**w, "layers.0.self_attn.sinks": torch.zeros(3)}, "tensors", "attention sinks", None),
    "shape": (outer(intermediate_size=256), dict, "shapes", "mlp.down_proj.weight has shape", None),
    "VP-Drafter": (inner(role="second"), dict, "role", "its config says that it is a VP-Drafter", "use it as second drafter (--vp)"),
    "contradiction": (inner(block_size=8), dict, "config.json", "its block_size is 16 and its dflash_config.block_size is 8", None),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_check_folder_names_fault_and_fix_that_loading_raises(bundled, tmp_path, name):
    config, weights, kind, finding, fix = FOLDERS[name]
    folder, target = str(copied(tmp_path / "d", config, weights)), bundled.models.target
    wrong = next(c for c in check_drafter_folder(folder, target) if c.state == "fault")
    assert (wrong.name, finding in wrong.finding) == (kind, True), wrong
    assert fix is None or (wrong.fix or "").startswith(fix)
    if name != "VP-Drafter":
        said = wrong.finding if wrong.fix is None else f"{wrong.finding}; {wrong.fix}"
        with pytest.raises(InputError) as caught:
            with_drafter(Models(target), folder)
        assert str(caught.value) == f"cannot load the drafter {folder}: {said}"


def test_checks_compare_few_names_of_hostile_folder(bundled, tmp_path, monkeypatch):
    compared = []
    monkeypatch.setattr(
        "d2sd.folders.checks.difflib.get_close_matches", lambda name, others, *_: compared.append((name, others)) or []
    )
    norm = torch.ones(192)
    unknown = {f"{n}.{'x' * 100 * (n % 3 == 1)}norm": norm.clone() for n in range(300)}
    folder = copied(tmp_path / "d", weights=lambda w: {**{k: v for k, v in w.items() if v.dim() > 1}, **unknown})
    checks = check_drafter_folder(str(folder), bundled.models.target)
    assert [c.name for c in checks if c.state == "fault"] == ["tensors"] * 4
    assert 0 < max(len(others) for _, others in compared) <= 100
    assert max(len(other) / len(name) for name, others in compared for other in others) < 2


NOTES = {
    "late": (inner(target_layer_ids=[1, 4, 7, 10, 15]), "taps", "published drafters read no layer after 13"),
    "reversed": (inner(target_layer_ids=[13, 10, 7, 4, 1]), "taps", "not in ascending order"),
    "other target": (outer(num_target_layers=20), "taps", "the config was made for a target with 20 layers"),
    "end": (inner(mask_token_id=0), "mask token", "which occurs in texts or ends them"),
    "word": (inner(mask_token_id=300), "mask token", "which occurs in texts or ends them"),
    "rope": (rope(5e5), "rope_parameters", "the target's is {'rope_theta': 10000.0, 'rope_type': 'default'}"),
    "window": (window(512), "window", "3 of 3 layers see only the last 512 positions; attention within the block is causal"),
    "eps": (outer(rms_norm_eps=1e-3), "rms_norm_eps", "0.001; the target's is 1e-06"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTES)
def test_check_folder_notes_unusual_settings(bundled, tmp_path, name):
    config, check, finding = NOTES[name]
    checks = check_drafter_folder(str(copied(tmp_path / "d", config)), bundled.models.target)
    (note,) = [c for c in checks if c.state == "note"]
    assert (note.name, finding in note.finding) == (check, True), note


@pytest.mark.parametrize("part", ["dflash", "vp", "dspark", "eagle3"])
def test_check_folder_accepts_sound_folders(bundled, part):
    assert {c.state for c in check_drafter_folder(str(TINY / part), bundled.models.target)} == {"good"}


def test_check_folder_reports_unreadable_files(bundled, tmp_path):
    (tmp_path / "config.json").write_text("{")
    (check,) = check_drafter_folder(str(tmp_path), bundled.models.target)
    assert check.state == "fault"
    checks = check_drafter_folder(str(WAYS["LFS pointer"].drafter(tmp_path / "d")), bundled.models.target)
    assert [c.finding for c in checks if c.state == "fault"] == [
        "model.safetensors is a Git LFS pointer and holds no weights; run git lfs pull in its folder"
    ]


def sharded(folder, part):
    """Splits the weights over two files with an index, as for large models, and writes the first ``part`` files."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder / "backup.safetensors")  # a file that the index does not name
    files = {name: f"model-{n % 2 + 1}-of-2.safetensors" for n, name in enumerate(sorted(weights))}
    for file in sorted(set(files.values()))[:part]:
        save_file({n: w for n, w in weights.items() if files[n] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    return str(folder)


def test_check_folder_reads_only_indexed_files(bundled, tmp_path):
    target = bundled.models.target
    source = sharded(copied(tmp_path / "d", weights=lambda w: {**w, "norm.weight": w["norm.weight"] * 2}), 2)
    save_file({"norm.weight": torch.ones(3), "sinks": torch.ones(3)}, tmp_path / "d" / "backup.safetensors")
    (note,) = [c for c in check_drafter_folder(source, target) if c.state != "good"]
    assert note.finding == "its index leaves out backup.safetensors"
    loaded = load_drafter(source, torch.float32, "cpu", target)
    assert torch.equal(loaded.norm.weight, 2 * bundled.models.first.norm.weight)
    checks = check_drafter_folder(sharded(copied(tmp_path / "e"), 1), target)
    assert [c.finding for c in checks if c.state == "fault"] == [
        "some of the safetensors files that its index names are missing"
    ]


def examined(bundled, folder):
    one = Examination(Asked(str(folder), ["Tom had a red ball. He"]), bundled.models.target)
    one.run()
    return one


UNLOADABLE = {
    "NaN": (dict, lambda w: {**w, "norm.weight": w["norm.weight"] * torch.nan}, "fault: its weight norm.weight holds NaN", "dflash"),
    "no d2t": (lambda config: {**speculators_form(config), "draft_vocab_size": 64}, lambda w: {**w, "lm_head.weight": torch.ones(64, 192)}, "has no d2t", "dflash"),
    "EAGLE-3": (dict, lambda w: {k: v for k, v in w.items() if k != "fc.weight"}, "fc.weight is missing", "eagle3"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNLOADABLE)
def test_examine_reports_unloadable_drafter(bundled, tmp_path, name):
    config, weights, sentence, part = UNLOADABLE[name]
    found = examined(bundled, copied(tmp_path / "d", config, weights, part)).findings
    assert found.run is None
    assert found.diagnosis.names_fault
    assert sentence in found.diagnosis.sentence


def fused(w):
    for n in range(3):
        parts = [w.pop(f"layers.{n}.self_attn.{part}_proj.weight") for part in "qkv"]
        w[f"layers.{n}.self_attn.qkv_proj.weight"] = torch.cat(parts)
    return w


def from_one(w):
    return {re.sub(r"layers\.(\d)", lambda m: f"layers.{int(m[1]) + 1}", name): tensor for name, tensor in w.items()}


MENDED = {
    **{name: WAYS[name] for name in ("a longer prefix", "misnamed tensor", "eagle3 d2t absolute", "eagle3 d2t against t2d")},
    "layers from 1": weights("layers", from_one),
    "an infix": OUTSIDE["compiled layers"],
    "fused": weights("tensors", fused),
}  # fmt: skip


@pytest.mark.parametrize("name", MENDED)
def test_mend_restores_original_weights(bundled, tmp_path, name, monkeypatch):
    monkeypatch.setattr(examination, "TOKENS", 12)
    one = examined(bundled, MENDED[name].drafter(tmp_path / "d"))
    assert one.findings.diagnosis.cause in MENDED[name].causes.split()
    said = one.mend(tmp_path / "m")
    assert "; α " in said, said
    assert "fault" not in {c.state for c in check_drafter_folder(str(tmp_path / "m"), bundled.models.target)}
    mended = with_drafter(Models(bundled.models.target), str(tmp_path / "m"), None)
    if mended.first is not None:
        assert weights_digest(mended.first) == weights_digest(bundled.models.first)
    elif "d2t" in name:
        assert mended.eagle3.token_ids.tolist() == list(range(0, 4096, 2))
    else:
        assert weights_digest(mended.eagle3) == weights_digest(bundled.models.eagle3)


def test_doctor_continues_after_faulty_drafter(bundled, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("d2sd.cli.examination.load_alone", lambda *_: Models(bundled.models.target))
    config, weights, *_ = UNLOADABLE["NaN"]
    broken = copied(tmp_path / "d", config, weights)
    other = copied(tmp_path / "vp", FOLDERS["contradiction"][0])
    assert main(["doctor", "tiny", str(broken), "--vp", str(other)]) == FAULT_NAMED
    out = capsys.readouterr().out
    assert out.index("holds NaN") < out.index("its dflash_config.block_size is 8")
