"""Interruptions of the training loop: Ctrl-C, a kill, too little memory."""

from __future__ import annotations

import json
import signal
from functools import partial
from itertools import count

import pytest
import torch
from torch import nn

from d2sd.train.loop import Loop
from d2sd.train.settings import LoopConfig
from tests.clocks import Ticking
from tests.train.kills import survives

ROWS = torch.arange(40.0).view(10, 4)


class Fit(nn.Module):
    """Learns the identity; batches of more than ``fits`` rows run out of memory."""

    def __init__(self, fits=10):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.fits, self.sizes = nn.Linear(4, 4), fits, []

    def forward(self, x):
        self.sizes.append(len(x))
        if len(x) > self.fits:
            raise torch.OutOfMemoryError("no memory")
        return (self.fc(x) - x).square().mean(), {}

    @property
    def weights(self):
        return nn.utils.parameters_to_vector(self.parameters())


def run(out, net, sample=lambda index, _: {"x": ROWS[index]}, save=None, **more):
    config = LoopConfig(**{"steps": 12, "batch_size": 4, "log_every": 1, **more})
    Loop(net, len(ROWS), sample, out, config).run(keep=save and (lambda step: save(out / f"step-{step}")))
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture
def ctrl_c():
    """Ctrl-C as on a terminal, also if tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_training_ctrl_c_saves_step_and_resumes(tmp_path, ctrl_c):
    whole, stopped = Fit(), Fit()
    run(tmp_path / "whole", whole)

    def interrupted(index, _):
        if len(stopped.sizes) == 4:
            signal.raise_signal(signal.SIGINT)
        return {"x": ROWS[index]}

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", stopped, interrupted)
    state = json.loads((tmp_path / "stopped" / "checkpoint" / "state.json").read_text())
    assert state["step"] == 5
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    resumed = Fit()
    rows = run(tmp_path / "stopped", resumed)
    assert [row["step"] for row in rows] == list(range(1, 13))
    assert torch.equal(resumed.weights, whole.weights)


def test_training_resumes_after_kill_at_any_change(tmp_path):
    def keep(folder):
        folder.mkdir(exist_ok=True)
        (folder / "first").write_text("whole")
        (folder / "second").write_text("whole")

    def work(out):
        net = Fit()
        run(out, net, steps=6, save_every=3, keep_every=3, log_every=2, save=keep)
        return net.weights

    whole = work(tmp_path / "whole")
    for number in count(1):
        out = tmp_path / str(number)
        ended = survives(number, partial(work, out))
        assert torch.equal(work(out), whole)
        assert [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()] == [2, 3, 4, 6]
        for step in (3, 6):
            assert {path.read_text() for path in (out / f"step-{step}").iterdir()} == {"whole"}
            assert len(list((out / f"step-{step}").iterdir())) == 2
        if ended:
            break
    assert number > 20


def test_training_drops_unfinished_line_of_metrics(tmp_path):
    run(tmp_path, Fit(), steps=4)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "lo')
    assert [row["step"] for row in run(tmp_path, Fit(), steps=6)] == [1, 2, 3, 4, 5, 6]


def test_training_out_of_memory_halves_batch(tmp_path, capsys):
    net = Fit(fits=1)
    rows = run(tmp_path, net)
    assert net.sizes == [4, 2, *[1] * 12]
    assert len(rows) == 12
    said = capsys.readouterr().err
    assert "batches of 2 rows" in said
    assert "batches of 1 rows" in said
    with pytest.raises(torch.OutOfMemoryError):
        run(tmp_path / "none", Fit(fits=0))


def test_training_for_given_seconds_measures_five_points(tmp_path):
    points = []
    config = LoopConfig(1000, batch_size=4, seconds=1.0, save_every=200, log_every=10**6)
    sample, measure = lambda index, _: {"x": ROWS[index]}, lambda last: points.append(last) or {"a": 1.0}
    Loop(Fit(), len(ROWS), sample, tmp_path, config, clock=Ticking(1 / 128)).run(measure)
    state = json.loads((tmp_path / "checkpoint" / "state.json").read_text())
    assert points == [False] * 4 + [True]
    assert state["seconds"] == pytest.approx(1.0, abs=0.02)
    assert state["rows"] == 4 * state["step"]


def test_progress_of_timed_training_gives_time_and_step(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("d2sd.trace.text.SECONDS", 0.0)
    sample = lambda index, _: {"x": ROWS[index]}  # noqa: E731
    config = LoopConfig(1000, batch_size=4, seconds=120.0, log_every=10**6)
    Loop(Fit(), len(ROWS), sample, tmp_path, config, clock=Ticking(8)).run()
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("training")]
    state = json.loads((tmp_path / "checkpoint" / "state.json").read_text())
    assert lines[0] == "training: 0:08 of 2:00, step 0"
    assert lines[-1].startswith(f"training: 2:00 of 2:00, step {state['step']}, loss=")
    assert all(line.startswith("training: ") and " of 2:00, step " in line for line in lines)
