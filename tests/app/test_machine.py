"""The server's machine: the core left to the browser, its memory, and the GPU that a Space lends."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from app import machine
from app.machine import leave_a_core, threads_here


@pytest.mark.parametrize(("cores", "threads", "left"), [(1, 1, 1), (2, 2, 1), (8, 8, 7), (16, 8, 8)])
def test_leave_a_core_keeps_one_core_free(monkeypatch, cores, threads, left):
    chosen = []
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(cores), raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    leave_a_core()
    assert chosen == [left]


def test_leave_a_core_respects_omp_num_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr(torch, "set_num_threads", lambda _: pytest.fail("it was set"))
    leave_a_core()


def test_threads_here_states_count_and_reason(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert threads_here().startswith("The models use 3 threads; one core is left for the browser.")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert threads_here() == "The models use 1 thread, as set by OMP_NUM_THREADS."


def test_machine_memory_is_plausible():
    assert 1e6 < machine.memory() < 1e15


def test_on_gpu_lends_card_for_fixed_seconds(monkeypatch):
    durations = []

    def lend(duration: int):
        durations.append(duration)
        return lambda function: function

    monkeypatch.setattr(machine, "spaces", SimpleNamespace(GPU=lend))
    assert machine.on_gpu(len) is len
    assert durations == [machine.SECONDS]
    monkeypatch.setattr(machine, "spaces", None)
    assert machine.on_gpu(len) is len
    assert len(durations) == 1
