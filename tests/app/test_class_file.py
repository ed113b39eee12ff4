"""All runs of a window in one file."""

from __future__ import annotations

import base64
import html
import json
import zlib

import pytest

from app import presets
from app.explore.tab import open_trace
from app.runs import share
from app.runs.share import class_page, hand_out, window_file
from app.runs.tab import change, together
from app.session import History, Session
from d2sd import InputError
from d2sd.trace.run import RecordedRun
from tests.app.event import Event, answered


@pytest.fixture
def kept():
    """A history of three runs."""
    history = History()
    lines = presets.opening().lines()
    for number in range(3):
        head = {**json.loads(lines[0]), "run": f"{number}" * 32, "prompt": f"prompt {number} </script>"}
        history.keep(RecordedRun.read("\n".join([json.dumps(head), *lines[1:]]).encode()), "Explore")
    return history


def data_of(page):
    return json.loads(page.partition('id="trace">')[2].partition("</script>")[0])


def test_window_file_round_trips_all_runs(kept, tmp_path):
    path = tmp_path / "d2sd-runs.jsonl.gz"
    path.write_bytes(window_file(kept.runs))
    session = Session()
    assert "Choose a trace file" in answered(open_trace, session, session, None)[-1].value
    answered(open_trace, session, session, str(path))
    assert [k.run.lines() for k in session.history.runs] == [k.run.lines() for k in kept.runs]
    assert session.shown.lines() == kept.runs[0].run.lines()


def test_class_page_holds_runs_step_and_tours(kept):
    runs = data_of(class_page(kept.runs, kept.runs[0].run.key, 4))
    assert [run["label"] for run in runs] == [f"D²SD: prompt {n} </script>" for n in range(3)]
    heads = [json.loads(run["value"].partition("\n")[0]) for run in runs]
    assert [head.get("message", {}).get("step") for head in heads] == [None, None, 4]
    assert len({head["key"] for head in heads}) == 3
    tours = [json.loads(zlib.decompress(base64.b64decode(run["tour"]), -zlib.MAX_WBITS)) for run in runs]
    assert all("lines" not in tour for tour in tours)  # "value" has them already
    assert [tour["start"] for tour in tours] == [head["instructive"] for head in heads]


def test_class_page_takes_ticked_runs_with_list_numbers(kept):
    session = Session(history=kept, shown=kept.runs[0].run)
    newest, _, oldest = (k.run.key for k in kept.runs)
    file = json.loads(together(session, Event(kind="class", keys=[newest, oldest, "gone", 7]))[0])["file"]
    runs = data_of(base64.b64decode(file["base64"]).decode())
    assert [(run["number"], run["label"]) for run in runs] == [
        (1, "D²SD: prompt 0 </script>"),
        (3, "D²SD: prompt 2 </script>"),
    ]
    assert "no run is ticked" in together(session, Event(kind="class", keys=[]))[1].value


def heading_of(page):
    return [page.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0] for tag in ("title", "h1")]


def test_class_page_title_is_cleaned_and_escaped(kept):
    session = Session(history=kept, shown=kept.runs[0].run)

    def made(title):
        file = json.loads(together(session, Event(kind="class", title=title))[0])["file"]
        return base64.b64decode(file["base64"]).decode()

    assert heading_of(made(" Lecture 3:\nD²SD ")) == ["Lecture 3: D²SD"] * 2
    for nothing in ("", " \n", None, 7, ["x"]):
        assert heading_of(made(nothing)) == [share.TITLE] * 2
    hostile = made("</title></h1><script>window.pwned=1</script>")
    assert html.unescape(heading_of(hostile)[0]).startswith("</title></h1><script>")
    assert hostile.count("<script") == 2  # the runs and the code
    refused = together(session, Event(kind="class", title="x" * 121))[1].value
    assert "the title has 121 characters; at most 120 are allowed" in refused


def test_move_reorders_runs_and_numbers(kept):
    session = Session(history=kept, shown=kept.runs[0].run)
    first, second, third = (k.run.key for k in kept.runs)
    change("move")(session, Event(key=third, by=-1))
    assert kept.numbered("2").run.key == third
    for key, by in ((first, -1), (second, 1), ("gone", 1), (first, "1"), (first, None)):
        change("move")(session, Event(key=key, by=by))
    assert [k.run.key for k in kept.runs] == [first, third, second]


def test_shared_file_refusals_are_one_sentence(kept, monkeypatch):
    session = Session(history=kept, shown=kept.runs[0].run)
    monkeypatch.setattr(share, "MAX_PAGE_MEGABYTES", 0)
    assert "more than 0 MB" in together(session, Event(kind="class"))[1].value
    with pytest.raises(InputError, match="more than 0 MB of traces; share it as JSONL"):
        hand_out(kept.runs[0].run)
    kept.runs[1].run.live = True
    with pytest.raises(InputError, match="still in progress"):
        window_file(kept.runs)
    with pytest.raises(InputError, match="no run"):
        window_file([])


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ({"method": "d2sd", "models": {"preset": "tiny"}, "prompt": "The baker put 9"}, "d2sd-tiny-the-baker-put"),
        ({"method": "draft_model", "models": {"target": "Qwen/Qwen3-4B"}, "prompt": "Où?"}, "draft-model-qwen3-4b-ou"),
        ({"method": '../a"<b>', "models": [1], "prompt": "..\\x \u202e/etc/passwd \n"}, "a-b-x-etc-passwd"),
        ({"method": None, "prompt": 7 * ["w" * 999]}, "w" * share.MAX_PART),
        ({"prompt": "天空"}, "run"),
    ],
)
def test_shared_file_is_named_after_its_run(header, name):
    assert share.file_name(header) == name
