"""The report of “Why is it rejected?” in Calibrate, without a browser."""

from __future__ import annotations

import pytest

from app.calibrate import measure
from app.calibrate.measure import PromptSource
from app.jobs import Job
from app.models import model_set
from app.streaming import RunRequest
from d2sd.doctor import examination
from d2sd.folders.checks import Check
from tests.app.event import updates_of


def updates(job):
    request = RunRequest("", model_set("tiny"), "", {"chat": False})
    return updates_of(job, measure.examine_drafter(job, PromptSource("heldout"), 1, request))


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(examination, "TOKENS", 8)


def test_doctor_reports_progress_before_report():
    seen = list(updates(Job()))
    assert any(u.news.startswith("Trying changes: ") for u in seen)
    assert [u.value for u in seen[:-1]] == [None] * (len(seen) - 1)
    assert "## `tiny/dflash` for `tiny/target`" in seen[-1].value
    assert "| tensors | ok |" in seen[-1].value


def test_doctor_public_report_hides_paths_and_escapes_markup(monkeypatch):
    finding = "/srv/own_<b>/late\\<img src=/x/y onerror=z()> is unknown"
    monkeypatch.setattr(
        examination,
        "check_drafter_folder",
        lambda *_, **__: [Check("tensors", "fault", finding, "rename /srv/own/late")],
    )
    monkeypatch.setenv("FOLDERS", "refuse")
    report = list(updates(Job()))[-1].value
    assert "srv" not in report
    assert r"…/\<img src=…/y onerror=z()\> is unknown" in report
    assert "To fix: `rename …/late`" in report


def test_doctor_stops_when_job_is_cancelled():
    job, seen = Job(), []
    for update in updates(job):
        seen.append(update)
        job.stopped = job.stopped or update.news.startswith("Drafting over the texts")
    assert job.stopped
    assert "Stopped before the end" in seen[-1].value
    assert "### What was tried" not in seen[-1].value
