"""What surrounds a capture, with torch's CUDA calls replaced: where outputs lie, and what a failure leaves behind."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from d2sd.nets.passes import Recorder


@pytest.fixture
def recorder(monkeypatch):
    """A recorder whose streams and graphs do nothing; ``streams``: those that were made current again."""
    made = Recorder(torch.device("cpu"))
    made.streams = []
    current = SimpleNamespace(wait_stream=lambda _: None)
    for name, stub in {
        "device": nullcontext,
        "Stream": lambda _: SimpleNamespace(wait_stream=lambda _: None),
        "stream": nullcontext,
        "graph_pool_handle": object,
        "current_stream": lambda: current,
        "set_stream": made.streams.append,
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None),
        "graph": lambda *_, **__: nullcontext(),
    }.items():
        monkeypatch.setattr(torch.cuda, name, stub)
    made.current = current
    return made


def test_what_a_capture_found_is_kept_outside_its_memory_pool(recorder):
    made = []

    def double(x):
        made.append(x * 2)
        return made[-1], x

    given = torch.arange(3.0)
    captured = recorder.capture(double, (given,))
    assert len(made) == 3  # the last one in the pool, whose memory other graphs use as well
    assert not {t.data_ptr() for t in captured.outputs} & {t.data_ptr() for t in (*made, given, *captured.inputs)}
    assert captured.outputs[0].tolist() == [0.0, 2.0, 4.0]
    captured.replay((torch.ones(3),))
    assert captured.inputs[0].tolist() == [1.0, 1.0, 1.0]


def test_a_capture_that_breaks_off_gives_the_stream_back(recorder):
    runs = []

    def third_time_fails():
        runs.append(1)
        if len(runs) == 3:
            raise RuntimeError("operation not permitted when stream is capturing")
        return ()

    with pytest.raises(RuntimeError, match="not permitted"):
        recorder.capture(third_time_fails, ())
    assert recorder.streams == [recorder.current]
    assert recorder.capture(lambda: (), ()).outputs == ()  # and nothing is locked
