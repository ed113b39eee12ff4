"""Command-line interface: output, exit codes, one sentence for bad input; written data stays after kills and on full disks."""

from __future__ import annotations

import ast
import errno
import gzip
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from d2sd import InputError, load_trace
from d2sd.__main__ import main
from d2sd.bench.prompts import read_prompts
from d2sd.cli.common import read_text
from d2sd.engine import Engine
from d2sd.folders.drafters import save_eagle3
from d2sd.logs import read_runs
from d2sd.trace.files import append_line, whole_file, write_whole
from d2sd.trace.trace import TraceFile
from d2sd.train import loop as checkpoint
from d2sd.train.block_drafters import save_drafter
from d2sd.train.files import read_conversations
from d2sd.train.loop import save_marked
from tests.unit.test_pasted_logs import VLLM

ROOT = Path(__file__).parents[2]
TINY = ROOT / "assets" / "models" / "tiny"
OPENING = ROOT / "assets" / "traces" / "opening.jsonl.gz"
KEYS = {
    "method", "model", "text", "prompt_token_ids", "token_ids", "stop_reason", "steps", "mean_acceptance_length",
    "nodes_per_step", "boundary_hit_rate", "repaired_rate", "tokens_per_redraft", "tokens_per_second", "seconds", "stage_seconds", "config", "versions",
}  # fmt: skip


def test_generate_json_prints_one_object(capfd):
    assert main(["generate", "--prompt", "One day, a cat", "--max-new-tokens", "24", "--json"]) == 0
    out = json.loads(capfd.readouterr().out)
    assert set(out) == KEYS
    assert len(out["token_ids"]) == 24
    assert out["config"]["block_size"] == 16
    assert sum(v for k, v in out["stage_seconds"].items() if k != "prefill") <= out["seconds"]


def test_generate_stdout_is_plain_text(capfd, tmp_path):
    (tmp_path / "p.txt").write_text("One day, a cat")
    files = ["--prompt-file", str(tmp_path / "p.txt"), "--trace", str(tmp_path / "t.jsonl")]
    assert main(["generate", *files, "--max-new-tokens", "24"]) == 0
    out = capfd.readouterr().out
    assert out.rstrip("\n") == load_trace(tmp_path / "t.jsonl").finished.text.rstrip("\n")
    assert "\033" not in out  # no colour codes in a pipe


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["generate", "--prompt", ""], "the prompt is empty"),
        (["generate", "--prompt", "a " * 3000], "the prompt has"),
        (["generate", "--prompt-file", "{}/gone"], "cannot read the prompt file"),
        (["generate", "--prompt", "a", "--block-size", "1"], "block_size must be between 2 and"),
        (["generate", "--prompt", "a", "--dtype", "int4"], "unknown dtype"),
        (["generate", "--prompt", "a", "--model", "{}/gone"], "unknown model"),
        (["trace", "to-graphml", str(OPENING), "-o", "/proc/x.graphml"], "cannot write"),
        (["trace", "validate", "{}/gone.jsonl"], "cannot read"),
        (["calibrate", "--traces", "{}/gone.jsonl"], "cannot read"),
        (["whatif", "{}/gone.jsonl"], "cannot read"),
    ],
)
def test_bad_input_exits_2_with_one_sentence(capfd, tmp_path, arguments, sentence):
    assert main([a.format(tmp_path) for a in arguments]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert sentence in captured.err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no prompts"),
        ("{", "line 1: not JSON"),
        ('{"prompt": "a"}\n{"turns": ["b", "c"]}\n{"x": 1}', "line 3: needs a text"),
        ('{"prompt": "a"}\n{"prompt": "caf\xe9"}', "line 2: not UTF-8"),
    ],
)
def test_bench_prompt_file_error_names_line(capfd, tmp_path, text, sentence):
    (tmp_path / "p.jsonl").write_text(text, encoding="latin-1")
    assert main(["bench", "--prompts", str(tmp_path / "p.jsonl")]) == 2
    assert sentence in capfd.readouterr().err


def test_generate_stderr_holds_only_its_summary_on_a_terminal():
    read, write = os.openpty()
    command = [sys.executable, "-m", "d2sd", "generate", "--prompt", "the", "--max-new-tokens", "6"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=write, check=True)
    said = os.read(read, 1 << 16).decode().replace("\r", "")
    os.close(read)
    os.close(write)
    assert done.stdout.strip()
    assert re.fullmatch(
        r"\n*6 tokens in \d steps?, mean acceptance length [\d.]+, \d+ tokens/s(; on a CPU --cost-aware may be quicker)?\n",
        said,
    ), said


def test_generate_reports_out_of_memory_in_one_sentence(capsys, monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate …")

    monkeypatch.setattr("d2sd.engine.Engine.run", full)
    assert main(["generate", "--prompt", "x", "--method", "dflash"]) == 1
    assert capsys.readouterr().err == (
        "error: there was not enough memory; use fewer tokens, a shorter prompt, a smaller model or a smaller dtype\n"
    )


TRACE = gzip.decompress((ROOT / "tests" / "data" / "schema-1.jsonl.gz").read_bytes()).decode()
READERS = {
    "trace": (TRACE, lambda path: load_trace(path).token_ids),
    "several traces": (TRACE + TRACE, lambda path: [trace.token_ids for trace in read_runs(path)]),
    "prompt set": ('{"prompt": "a"}\n', lambda path: read_prompts(str(path))),
    "training prompts": ('{"prompt": "a"}\n', read_conversations),
    "prompt": ("One day", lambda path: read_text(str(path))),
}


PACKED = [(name, pack) for name in READERS for pack in (bytes, gzip.compress) if pack is bytes or "trace" in name]


@pytest.mark.parametrize(("name", "pack"), PACKED)
def test_text_is_read_with_byte_order_mark_and_refused_in_utf_16(tmp_path, name, pack):
    (text, read), path = READERS[name], tmp_path / "file"
    path.write_bytes(pack(text.encode()))
    plain = read(path)
    path.write_bytes(pack(text.encode("utf-8-sig")))
    assert read(path) == plain
    path.write_bytes(pack(text.encode("utf-16")))
    with pytest.raises(InputError, match="line 1: not UTF-8; save the file in that encoding"):
        read(path)


# Kills, full disks, vanished folders, interrupts.

WRITER = """
import sys
from d2sd.trace.trace import load_trace
from d2sd.trace.trace import TraceFile
trace = load_trace(sys.argv[1])
with TraceFile(sys.argv[2]) as file:
    file.write(trace.header)
    print("began", flush=True)
    for event in trace.events():
        file.write(event)
        print("written", flush=True)
        sys.stdin.readline()
"""


def test_trace_file_keeps_whole_steps_when_killed(tmp_path):
    """After every event the writer waits for a line on its standard input, and is killed while it waits."""
    whole = load_trace(OPENING)
    for number, events in enumerate((1, 2, 9)):
        path = tmp_path / f"{number}.jsonl"
        command = [sys.executable, "-c", WRITER, str(OPENING), str(path)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as writer:
            assert writer.stdout.readline() == "began\n"
            for event in range(events):
                assert writer.stdout.readline() == "written\n"
                if event + 1 < events:
                    print(file=writer.stdin, flush=True)
            writer.send_signal(signal.SIGKILL)
        read = load_trace(path)
        assert read.header == whole.header
        assert list(read.steps) == list(whole.steps[: events - 1])  # the first event is PrefillDone


@contextmanager
def full_disk():
    """A context in which no file can get larger than 200,000 bytes."""
    limit, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_trace_file_keeps_whole_lines_on_full_disk(tmp_path):
    whole, path = load_trace(OPENING), tmp_path / "run.jsonl"
    with full_disk(), TraceFile(path) as file:
        lines = map(file.write, (whole.header, *whole.events()))
        with pytest.raises(InputError, match=r"cannot write the trace .*; its first (\d+) lines"):
            list(lines)
    raw = path.read_bytes()
    assert raw.endswith(b"\n")
    assert raw.count(b"\n") == file.lines
    assert list(load_trace(path).steps) == list(whole.steps[: file.lines - 2])


@pytest.mark.parametrize(
    "write",
    [
        lambda path, _: write_whole(path, bytes(300_000)),
        lambda path, _: append_line(path, "x" * 300_000),
        lambda path, models: save_marked(save_drafter, models.first, path, {}),
        lambda path, models: save_marked(save_eagle3, models.eagle3, path, {}),
    ],
    ids=["file", "line", "drafter", "eagle3"],
)
def test_error_on_full_disk_names_what_was_written(bundled, tmp_path, write):
    path = tmp_path / "out"
    with full_disk(), pytest.raises(InputError, match=f"^cannot write {path}: .*File too large"):
        write(path, bundled.models)


def test_whole_file_replaces_completely_or_not_at_all(tmp_path):
    path, fault = tmp_path / "report.md", OSError(errno.ENOSPC, "No space left on device")
    path.write_text("before")
    with pytest.raises(InputError, match=rf"cannot write {path}: {fault.strerror}"), whole_file(path) as file:  # noqa: PT012 (it fails while it is written)
        file.write(b"half of what comes after")
        raise fault
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["report.md"]


def test_write_whole_follows_devices_and_links(tmp_path, capfd):
    write_whole("/dev/stdout", "said\n")
    assert capfd.readouterr().out == "said\n"
    with pytest.raises(InputError, match="No space left on device"):
        write_whole("/dev/full", "x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_whole(tmp_path / "link", "x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "x"


def interrupted(after: int, real):
    """The function, as if Ctrl-C were pressed after ``after`` calls."""
    calls = 0

    def call(*arguments, **named):
        nonlocal calls
        calls += 1
        if calls > after:
            raise KeyboardInterrupt
        return real(*arguments, **named)

    return call


def test_generate_ctrl_c_keeps_trace(capfd, tmp_path, monkeypatch):
    from d2sd.decoding.generation import Generation

    monkeypatch.setattr(Generation, "step", interrupted(3, Generation.step))
    path = tmp_path / "run.jsonl"
    assert main(["generate", "--prompt", "One day", "--max-new-tokens", "60", "--trace", str(path)]) == 130
    assert capfd.readouterr().err.endswith("stopped\n")
    assert len(load_trace(path).steps) == 3


def test_calibrate_ctrl_c_reports_finished_prompts(capfd, monkeypatch):
    monkeypatch.setattr(Engine, "generate", interrupted(2, Engine.generate))
    assert main(["calibrate", "--limit", "5", "--max-new-tokens", "8"]) == 130
    out, err = capfd.readouterr()
    assert "all: 2 runs of 2 prompts" in out
    assert err.endswith("Stopped: only 2 of 5 prompts are counted.\n")


def test_save_checkpoint_keeps_previous_on_full_disk(tmp_path, monkeypatch):
    import torch

    parameters = {"w": torch.nn.Parameter(torch.ones(3))}
    optimizers = [torch.optim.AdamW(parameters.values())]
    checkpoint.save_checkpoint(tmp_path, parameters, optimizers, {"step": 1})

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(
        InputError, match=r"cannot write a checkpoint .*No space left on device; the previous checkpoint is kept"
    ):
        checkpoint.save_checkpoint(tmp_path, parameters, optimizers, {"step": 2})
    assert checkpoint.load_checkpoint(tmp_path, parameters, optimizers, {})["step"] == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["calibrate", "--method", "nope"], "unknown method"),
        (["whatif", str(OPENING), str(OPENING), "--methods", "nope"], "unknown method"),
        (["calibrate", "--limit", "0"], "limit must be at least 1"),
        (["board", "{}", "--target", "tiny", "--limit", "0"], "limit must be at least 1"),
        (["generate", "--prompt", "a", "--drafter", "{}/gone"], "there is no such folder"),
        (["doctor", "tiny", "{}/gone"], "there is no such folder"),
    ],
)
def test_bad_arguments_are_refused_before_models_are_loaded(capfd, tmp_path, monkeypatch, arguments, sentence):
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / "config.json").write_text("{}")
    monkeypatch.setattr("d2sd.folders.loading.load_target", lambda *_: pytest.fail("a model was loaded"))
    assert main([a.format(tmp_path) for a in arguments]) == 2
    assert sentence in capfd.readouterr().err


# Streams and files in other encodings.


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_output_replaces_characters_that_its_encoding_lacks(monkeypatch, tmp_path, encoding):
    log = tmp_path / "server.log"
    log.write_text(VLLM)
    run = str(OPENING)

    def printed(*words):
        out = io.TextIOWrapper(io.BytesIO(), encoding)
        monkeypatch.setattr(sys, "stdout", out)
        assert main([*map(str, words)]) in (0, 3)
        out.flush()
        return out.buffer.getvalue()

    for words in (
        ("trace", "show", run), ("trace", "show", run, "--step", 2), ("trace", "stats", run), ("trace", "validate", run),
        ("doctor", "--log", log), ("calibrate", "--traces", run), ("compare", "--a", run, "--b", run),
    ):  # fmt: skip
        printed(*words).decode(encoding)
    assert b"?was (first)  ?sad (first)" in printed("trace", "show", run, "--step", 2)  # ␣
    said = json.loads(printed("doctor", "--log", log, "--json").decode("utf-8"))
    assert "α" in json.dumps(said, ensure_ascii=False)


def in_locale(call):
    """Whether a call reads or writes text in the encoding of the locale."""
    name, options = ast.unparse(call.func), {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    modes = {arg.value for arg in call.args if isinstance(arg, ast.Constant)}
    opens = (
        name.endswith("open") and name != "tarfile.open" and (modes & {*"rwax"} or len(call.args) == (name == "open"))
    )
    writes = opens or name.endswith((".read_text", ".write_text")) or options.get("text") == "True"
    return writes and "encoding" not in options


def test_text_files_and_pipes_name_their_encoding():
    paths = [*ROOT.glob("*.py"), *(path for top in ("d2sd", "app", "tools") for path in (ROOT / top).rglob("*.py"))]
    for path in paths:
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        assert not [node.lineno for node in nodes if isinstance(node, ast.Call) and in_locale(node)], path


# Command lines with a fault that is known without torch, and the sentence. {}: a folder with the files of ``faulty_files``.
FAULTS = {
    "generate --promt hi": "unknown option --promt; did you mean --prompt?",
    "generate --method d2sd": "one of the arguments --prompt --prompt-file is required",
    "generate --prompt=": "the prompt is empty",
    "generate --prompt-file {}/long.txt": "the prompt has 200001 characters",
    "generate --prompt x --temperature 9": "temperature must be between",
    "generate --prompt x --method nosuch": "unknown method 'nosuch'",
    "generate --prompt x --model nosuch": "unknown model 'nosuch'",
    "generate --prompt x --model {}/set": "set/target: it has no config.json",
    "generate --prompt x --target {}/nosuch/a": "there is no such folder",
    "generate --prompt x --drafter {}/empty": "empty: it has no config.json",
    "generate --prompt x --second-drafter {}/json": "config.json is not valid JSON",
    "generate --prompt x --draft-model {}/empty": "empty: it has no config.json",
    "generate --prompt x --dtype nosuch": "unknown dtype 'nosuch'",
    "generate --prompt x --passes nosuch": "unknown kind of passes 'nosuch'",
    "generate --prompt x --device gpu": "device 'gpu' is not supported",
    "generate --prompt x --block-size 17": "block_size 17 is larger than the block size this drafter was trained with (16)",
    "generate --prompt x --drafter {}/long.txt": "long.txt: it has no config.json",
    "--verison": "unknown option --verison; did you mean --version?",
    "generate --prompt x --chat": "tiny/target has no chat template",
    "generate --prompt x --target tiny --method dflash": "needs a drafter, which tiny does not have",
    "bench --methods nosuch": "unknown method 'nosuch'",
    "bench --methods d2sd --target tiny": "needs a drafter, which tiny does not have",
    "bench --sweep nosuch=1": "'nosuch' is not one of",
    "bench --gamma 2,x": "'2,x' is not a list of whole numbers",
    "bench --baselines nosuch": "unknown baseline 'nosuch'",
    "bench --repeats 0": "repeats must be at least 1",
    "bench --prompts nosuch": "there is no prompt file nosuch",
    "bench --model nosuch": "unknown model 'nosuch'",
    "bench --check-lossless --temperature 1": "--check-lossless compares greedy texts",
    "bench --check-lossless --methods nosuch": "unknown method 'nosuch'",
    "bench --check-lossless --methods d2sd --gamma 2 --branches 8": "d2sd needs a K below γ",
    "bench --check-lossless --methods dflash --target tiny": "needs a drafter, which tiny does not have",
    "bench gpu --shape nosuch": "unknown shape 'nosuch'",
    "bench gpu --dtype nosuch": "unknown dtype 'nosuch'",
    "bench cpu --context 1,2": "bench cpu takes one context",
    "bench cpu --model nosuch": "unknown model 'nosuch'",
    "calibrate --prompts {}/wrong.jsonl": "wrong.jsonl, line 1: not JSON",
    "calibrate --model nosuch": "unknown model 'nosuch'",
    "calibrate --chat": "tiny/target has no chat template",
    "calibrate --traces {}/wrong.jsonl": "wrong.jsonl: not valid JSON",
    "whatif {}/empty": "contains no traces",
    "whatif {trace} --methods nosuch": "unknown method 'nosuch'",
    "whatif {trace} --sweep nosuch=1": "'nosuch' is not one of",
    "whatif {trace} --sweep K=a": "K must be a whole number",
    "whatif {trace} --prompts heldout": "--prompts writes the texts into one folder",
    "whatif {trace} --drafter {tiny}/dflash {}/empty": "empty: it has no config.json",
    "whatif {trace} --drafter {}/vp": "is a VP-Drafter, which drafts second",
    "whatif {}/new --prompts nosuch": "there is no prompt file nosuch",
    "whatif {}/new --prompts heldout --chat": "tiny/target has no chat template",
    "board {}/empty": "contains no step-N folders",
    "doctor tiny": "name a target and its drafter",
    "doctor nosuch/a/b {tiny}/dflash": "there is no such folder",
    "doctor tiny {}/nosuch": "there is no such folder",
    "doctor tiny {tiny}/dflash --prompts nosuch": "there is no prompt file nosuch",
    "doctor tiny {tiny}/dflash --expect 0.5": "the expected α is 0.5",
    "doctor tiny {tiny}/dflash --config-only --dtype nosuch": "unknown dtype 'nosuch'",
    "doctor --log {}/nosuch": "cannot read",
    "doctor --log {}/empty.txt": "empty.txt: the log is empty",
    "train regenerate --target tiny --prompts {}/wrong.jsonl --out {}/r": "wrong.jsonl, line 1: not JSON",
    "train regenerate --target tiny --prompts {}/turns.jsonl --out {}/r": "add --chat",
    "train regenerate --target tiny --prompts {}/turns.jsonl --out {}/r --chat": "tiny/target has no chat template",
    "train pair --target {}/nosuch/a --out {}/pair": "there is no such folder",
    "train pair --target tiny --out {}/pair --minutes 0": "minutes must be a number above 0",
    "train pair --target tiny --out {}/pair --steps 0": "steps must be at least 1, not 0",
    "train pair --target tiny --out {}/pair --markov-rank -1": "markov rank must be at least 0",
    "train pair --target tiny --out {}/pair --steps 9 --minutes 1": "--steps replaces --minutes; leave out one",
    "train pair --target tiny --out {}/pair --responses {}/responses.jsonl --prompts {}/turns.jsonl": "--responses replaces --prompts",
    "train pair --target tiny --out {}/pair --responses {}/nosuch": "there is no response file",
    "train pair --target tiny --out {}/pair --responses {}/empty.txt": "empty.txt is empty",
    "train pair --target tiny --out {}/pair --responses {}/turns.jsonl": "has no field 'prompt_ids'",
    "train pair --target tiny --out {}/pair --start {tiny} --layers 2 --target-layers 1": "--start replaces --layers, --target-layers",
    "train pair --target tiny --out {}/pair --start {}/empty": "has neither dflash/ nor vp/",
    "train pair --target tiny --out {}/pair --only first --start {}/empty": "empty: it has no config.json",
    "train pair --target tiny --out {}/pair --only first --start {tiny}/eagle3": "it is not a block drafter",
    "train pair --target tiny --out {}/pair --start {tiny} --markov-rank 0 --only first": "--start replaces --markov-rank",
    "train pair --target tiny --out {}/pair --only second --held-out {}/turns.jsonl": "held-out prompts measure a first drafter",
    "train pair --target tiny --out {}/former": "d2sd train pair --only first --start {}/former/step-9 --responses",
    "train dflash --target tiny --responses x --out dflash": "train dflash is now d2sd train pair --only first",
    "train vp": "train vp is now d2sd train pair --only second",
    "train eagle3 --target tiny --out {}/d --responses {}/responses.jsonl --held-out {}/nosuch": "there is no prompt file",
    "train eagle3 --target tiny --out {}/d --responses {}/responses.jsonl --steps 0": "steps, batch size",
    "train recipe smollm2 --target {}/empty --out {}/r": "empty: it has no config.json",
    "get nosuch": "there is no target 'nosuch' to get",
    "trace show {trace} --step 999": "there is no step 999",
    "trace record --from-server nosuch --engine vllm": "nosuch",
    "app": "the port must be a number from 1 to 65535, not 'abc'",
    "app --port 70000": "the port must be a number from 1 to 65535, not '70000'",
    "app --host 192.0.2.1 --port 8123": "the page cannot listen on 192.0.2.1:8123: ",
}  # fmt: skip
TORCHLESS = """
import contextlib, io, json, sys
from d2sd.__main__ import main

def said(line):
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.suppress(SystemExit):
        return [main(line), err.getvalue()]
    return [2, err.getvalue()]

faults = {}
for line in json.load(sys.stdin):
    faults[str(line)] = said(line)
    if heavy := {"torch", "transformers", "gradio"} & sys.modules.keys():
        sys.exit(f"{line} imports {heavy}")
print(json.dumps(faults))
"""


@pytest.fixture
def faulty_files(tmp_path):
    for folder in ("empty", "json", "set/target", "vp", "former/step-9"):
        (tmp_path / folder).mkdir(parents=True)
    config = json.loads((TINY / "vp" / "config.json").read_text())
    config["dflash_config"]["role"] = "second"
    for folder in ("vp", "former/step-9"):
        (tmp_path / folder / "config.json").write_text(json.dumps(config))
    (tmp_path / "former" / "metrics.jsonl").touch()
    (tmp_path / "json" / "config.json").write_text("{")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "long.txt").write_text("a" * 200_001)
    (tmp_path / "wrong.jsonl").write_text("{")
    (tmp_path / "turns.jsonl").write_text('{"turns": ["a", "b"]}')
    (tmp_path / "responses.jsonl").write_text('{"prompt_ids": [1], "response_ids": [2, 3]}')
    return tmp_path


def test_faults_known_without_torch_are_found_before_torch_is_imported(faulty_files):
    lines = [[word.format(faulty_files, trace=OPENING, tiny=TINY) for word in line.split()] for line in FAULTS]
    command, environment = [sys.executable, "-c", TORCHLESS], os.environ | {"PORT": "abc", "GRADIO_SERVER_PORT": ""}
    asked = json.dumps(lines)
    done = subprocess.run(command, input=asked, env=environment, cwd=ROOT, capture_output=True, encoding="utf-8")
    assert not done.returncode, done.stderr
    for line, sentence, (status, said) in zip(lines, FAULTS.values(), json.loads(done.stdout).values(), strict=True):
        assert (status, said.count("\n")) == (2, 1), (line, said)
        assert said.startswith("error: "), line
        assert sentence.format(faulty_files) in said, line
