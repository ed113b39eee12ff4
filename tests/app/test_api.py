"""The page's endpoints for programs: their documentation, answers, and errors for bad arguments."""

from __future__ import annotations

import json
import runpy
from types import SimpleNamespace

import gradio as gr
import pytest

from app import api, machine
from app.layout import build, launch_options
from d2sd import InputError
from d2sd.__about__ import HOME
from d2sd.trace.run import RecordedRun
from d2sd.trace.trace import read_traces


@pytest.fixture(scope="module")
def page():
    return build()


def test_program_launches_page_with_options_of_environment(monkeypatch):
    launched = []
    monkeypatch.setattr(machine, "leave_a_core", lambda: None)  # would change this process
    monkeypatch.setattr(gr.Blocks, "launch", lambda demo, **options: launched.append(options))
    monkeypatch.setenv("HOST", "localhost")
    runpy.run_path(str(HOME / "app.py"), run_name="__main__")
    (options,) = launched
    assert options["server_name"] == "localhost"
    assert options.keys() > {*launch_options(), "mcp_server"}


@pytest.fixture
def run():
    trace = next(iter(read_traces(HOME / "assets" / "traces" / "opening.jsonl.gz")))
    return api.RUNS.keep(RecordedRun.of(trace.records()), "API").key


def test_api_lists_documented_endpoints_only(page):
    endpoints = page.get_api_info(all_endpoints=True)["named_endpoints"]
    assert set(endpoints) == {"/generate", "/step", "/calibrate"}
    for name, endpoint in endpoints.items():
        assert endpoint["description"], name
        assert all(p["parameter_name"] in api.__dict__[name[1:]].__doc__ for p in endpoint["parameters"])
    first = endpoints["/generate"]["parameters"][0]
    assert (first["parameter_name"], first["type"]) == ("prompt", {"type": "string"})


def test_api_generate_continues_prompt_and_step_reads_run():
    made = api.generate("One day, a cat", max_new_tokens=16)
    assert made["text"].endswith("".join(made["steps"]))
    assert made["totals"]["tokens"] == 16
    assert made["stop_reason"] == "max_new_tokens"
    last = api.step(made["run"], -1)
    assert last["step"]["step"] == len(made["steps"]) - 1
    assert last["words"][0].startswith(f"step {len(made['steps'])} of {len(made['steps'])}: ")


def test_api_calibrate_counts_equal_runs_once(run):
    found = api.calibrate([run, run])
    assert found["figures"]["runs"] == 1
    assert found["sentences"]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: api.generate(5), "prompt must be a string, not 5"),
        (lambda: api.generate("x", model="none"), "unknown model 'none'"),
        (lambda: api.generate("x", method="none"), "unknown method 'none'"),
        (lambda: api.generate("x", max_new_tokens=10**9), "max_new_tokens must be between"),
        (lambda: api.generate("x", num_branches=True), "num_branches must be a whole number"),
        (lambda: api.generate("x", chat="false"), "chat must be true or false"),
        (lambda: api.generate("x" * 200_000), "the page accepts at most"),
        (lambda: api.step("none"), "there is no run 'none'"),
        (lambda: api.calibrate([]), "runs must be a list"),
        (lambda: api.calibrate([5]), "there is no run '5'"),
    ],
)
def test_api_bad_arguments_are_one_sentence(call, sentence):
    with pytest.raises(InputError) as raised:
        call()
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_api_error_reaches_caller_without_path(client, monkeypatch):
    monkeypatch.setenv("FOLDERS", "refuse")
    status, answer = client.post("/gradio_api/run/step", json.dumps({"data": ["/srv/own/run", 1]}).encode())
    assert status == 500
    assert json.loads(answer)["error"].startswith("there is no run '…/run'; use the name that generate returned")


def test_api_step_refuses_unknown_number(run):
    with pytest.raises(InputError, match="there is no step 99; the run has"):
        api.step(run, 99)
    with pytest.raises(InputError, match="number must be a whole number"):
        api.step(run, 1.5)


def test_mcp_variable_enables_server_or_names_package(monkeypatch):
    monkeypatch.delenv("MCP", raising=False)
    assert api.mcp() == {"mcp_server": False}
    monkeypatch.setenv("MCP", "1")
    monkeypatch.setattr(api, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"install it with pip install 'gradio\[mcp\]'"):
        api.mcp()
    monkeypatch.setattr(api, "find_spec", lambda _: SimpleNamespace())
    assert api.mcp() == {"mcp_server": True}
