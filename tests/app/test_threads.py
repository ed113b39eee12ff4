"""The page leaves a core to the browser."""

from __future__ import annotations

import pytest
import torch

from app.machine import leave_a_core, threads_here


@pytest.mark.parametrize(("cores", "threads", "left"), [(1, 1, 1), (2, 2, 1), (8, 8, 7), (16, 8, 8)])
def test_one_core_stays_free(monkeypatch, cores, threads, left):
    chosen = []
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(cores), raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    leave_a_core()
    assert chosen == [left]


def test_who_says_how_many_threads_is_heard(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr(torch, "set_num_threads", lambda _: pytest.fail("it was set"))
    leave_a_core()


def test_the_page_says_how_many_and_why(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert threads_here().startswith("The nets use 3 threads; one core is left to the browser.")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert threads_here() == "The nets use 1 thread, as OMP_NUM_THREADS says."
