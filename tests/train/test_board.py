"""``d2sd board``: α of a training run's checkpoints on the same texts, stored results, and errors for bad input."""

from __future__ import annotations

import json
import shutil

import pytest

from d2sd import DecodeConfig, load
from d2sd.__main__ import main
from d2sd.calibration.replays import compare_replays, drafter_verdict
from d2sd.cli.board import checkpoints
from d2sd.replay.recorded import Replay
from d2sd.train.eagle3 import train_eagle3
from d2sd.train.files import training_step
from d2sd.train.pair import train_pair
from d2sd.train.settings import Eagle3Objective, Eagle3Training, LoopConfig, PairTraining
from tests.train.texts import prompt_of, rows, save_run

LOOP = {"batch_size": 4, "save_every": 2, "log_every": 1, "keep_every": 2}
TOKENS = 8


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A target, drafters of each kind with their checkpoints, and held-out prompts."""
    out = tmp_path_factory.mktemp("nets")
    texts = save_run(out)
    paths = {"target": out / "target", "responses": out / "r.jsonl"}
    train_pair(PairTraining(**paths, out=out / "pair", steps=5, batch_size=4, keep_every=2, block_size=6))
    loop, objective = LoopConfig(2, **LOOP), Eagle3Objective(3, 0.8, 4)
    train_eagle3(
        Eagle3Training(**paths, out=out / "eagle3", loop=loop, objective=objective, target_layer_ids=[0, 0, 0])
    )
    prompts = [prompt_of(t) for t in texts[20:24]]
    (out / "held.jsonl").write_text("".join(json.dumps({"prompt": p}) + "\n" for p in prompts))
    return out


@pytest.fixture
def folder(trained, tmp_path):
    """A copy of the first drafter's training run, without measurements."""
    shutil.copytree(trained / "pair" / "training", tmp_path / "training")
    return shutil.copytree(trained / "pair" / "dflash", tmp_path / "dflash")


def board(trained, folder, *more):
    """Runs the command on the held-out prompts and returns its exit code."""
    texts = ["--prompts", str(trained / "held.jsonl"), "--max-new-tokens", str(TOKENS)]
    return main(["board", str(folder), "--target", str(trained / "target"), *texts, *more])


def figures(capsys):
    return json.loads(capsys.readouterr().out)


def alpha(engine, method, prompts):
    runs = [engine.generate(p, DecodeConfig(method, TOKENS, inspect=False)).steps for p in prompts]
    return sum(len(s.committed) for run in runs for s in run) / sum(map(len, runs))


def prompts(trained):
    return [row["prompt"] for row in rows(trained / "held.jsonl")]


def test_board_alpha_equals_alpha_of_real_runs(trained, folder, capsys):
    assert board(trained, folder, "--json") == 0
    measured = figures(capsys)["rows"]
    names = ["dflash/step-2", "dflash/step-4", f"{folder.parent.name}/dflash"]
    assert [(r["name"], r["step"]) for r in measured] == [(names[0], 2), (names[1], 4), (names[2], 5)]
    for row, part in zip(measured, ("step-2", "step-4", ""), strict=True):
        engine = load(target=str(trained / "target"), drafter=str(folder / part))
        found = row["whole"]["alpha"]
        assert found["value"] == pytest.approx(alpha(engine, "dflash", prompts(trained)))
        assert found["low"] <= found["value"] <= found["high"]
    assert [r["whole"]["difference"] is None for r in measured] == [False, False, True]


@pytest.mark.parametrize(("part", "method", "steps"), [("pair/vp", "d2sd", [2, 4, 5]), ("eagle3", "eagle3", [2])])
def test_board_measures_second_and_eagle3_drafters(trained, capsys, part, method, steps):
    first = str(trained / "pair" / "dflash")
    assert board(trained, trained / part, *(["--drafter", first] if method == "d2sd" else []), "--json") == 0
    measured = figures(capsys)["rows"]
    assert [row["step"] for row in measured] == steps
    second = str(trained / part) if method == "d2sd" else None
    engine = load(
        target=str(trained / "target"), drafter=first if second else str(trained / part), second_drafter=second
    )
    assert measured[-1]["whole"]["alpha"]["value"] == pytest.approx(alpha(engine, method, prompts(trained)))


def test_board_reuses_measurements_also_after_ctrl_c(trained, folder, capsys, monkeypatch):
    run, calls, sweep = Replay.run, [], "--sweep=gamma=2,4"

    def counted(*arguments):
        calls.append(arguments)
        if len(calls) == 10:  # within the second checkpoint's four texts with two settings
            raise KeyboardInterrupt
        return run(*arguments)

    monkeypatch.setattr(Replay, "run", counted)
    assert board(trained, folder, sweep) == 130
    captured = capsys.readouterr()
    assert "Stopped: 1 of 3 drafters measured. Texts and results are kept" in captured.err
    assert "step-2" in captured.out
    assert board(trained, folder, sweep, "--json") == 0
    first = figures(capsys)
    assert len(calls) == 10 + 16
    monkeypatch.setattr(Replay, "run", lambda *_: pytest.fail("measured again"))
    monkeypatch.setattr("d2sd.engine.Engine.generate", lambda *_: pytest.fail("decoded again"))
    assert board(trained, folder, sweep, "--json") == 0
    assert figures(capsys)["rows"] == first["rows"]
    monkeypatch.setattr(Replay, "run", counted)
    texts = ["whatif", str(folder / "board-texts"), "--target", str(trained / "target")]
    kept = (folder / "board-texts" / "replays.json").read_bytes()
    assert main([*texts, "--drafter", *(str(folder / f"step-{n}") for n in (4, 2)), "--json"]) == 0
    assert [row["step"] for row in figures(capsys)["rows"]] == [2, 4]  # ordered by training step
    assert len(calls) == 26 + 8  # without --prompts, nothing is kept
    assert (folder / "board-texts" / "replays.json").read_bytes() == kept


def test_board_html_report_names_prompts_and_weights(trained, folder, tmp_path, capsys):
    page = tmp_path / "board.html"
    assert board(trained, folder, "--html", str(page)) == 0
    text = page.read_text()
    capsys.readouterr()
    assert board(trained, folder, "--json") == 0
    weights = {row["weights"] for row in figures(capsys)["rows"]}
    assert len(weights) == 3
    assert all(words in text for words in ("4 prompts of", "d2sd board dflash --target target", *weights))
    assert "<script src" not in text


def test_board_bad_input_is_one_sentence(trained, folder, tmp_path, capsys):
    def said(*arguments):
        assert main(["board", *map(str, arguments)]) == 2
        return capsys.readouterr().err

    target = ("--target", trained / "target")
    assert "there is no folder" in said(tmp_path / "none", *target)
    assert "contains no step-N folders: train with --keep-every N" in said(trained / "target", *target)
    held = ("--prompts", trained / "held.jsonl")
    assert "do not fit" in said(folder, "--target", "tiny", *held)
    assert "is a VP-Drafter, which drafts second" in said(trained / "pair" / "vp", *target, *held)
    assert "A chat model needs its template: add --chat" in said(folder, *target, *held, "--max-new-tokens", 1)
    (folder / "board-texts" / "replays.json").write_text('{"a": 1}')
    assert "delete it to replay again" in said(folder, *target, *held)
    both = ("--drafter", "a", "b", "--second-drafter", "c", "d")
    assert "or several second drafters, not both" in said(folder, *target, *held, *both)


def test_training_step_is_unknown_while_training_goes_on(folder):
    state = folder.parent / "training" / "checkpoint" / "state.json"
    about = json.loads(state.read_text())
    about["identity"]["steps"] = 9
    state.write_text(json.dumps(about))
    assert training_step(folder) is None
    (folder / "config.json").unlink()
    assert sorted(checkpoints(folder)) == [str(folder / "step-2"), str(folder / "step-4")]


def texts(*counts):
    """24 texts of ten steps that commit these counts, rotated from text to text."""
    return [([counts[(n + k) % len(counts)] for k in range(10)], False) for n in range(24)]


def test_verdict_compares_best_and_last_checkpoint():
    low, high = texts(1, 2, 2), texts(3, 4, 4)
    said = drafter_verdict(compare_replays(["a", "b", "c"], [low, high, low], ["x"] * 24))
    assert "b is the best: α 3.6" in said
    assert said.endswith(", significant.")
    said = drafter_verdict(compare_replays(["a", "b", "c"], [low, high, high], ["x"] * 24))
    assert "c is the best: α 3.6" in said
    assert said.endswith("not significant.")
