"""Text that the target writes, locally and on a server: conversations, questions, resuming, bad input."""

from __future__ import annotations

import json
import shutil
from functools import partial
from itertools import count
from types import SimpleNamespace

import pytest
import torch

from d2sd.__main__ import main
from d2sd.errors import InputError
from d2sd.folders.loading import load_target
from d2sd.logs.serving import Server
from d2sd.train import text as texts
from d2sd.train.settings import QUESTIONS, RegenerateConfig
from d2sd.train.text import (
    ask,
    load_tokenizer,
    prompt_ids,
    regenerate_responses,
    respond_to,
    user_header,
    write_on_server,
)
from d2sd.train.writer import Rows, WriterRequest, write
from tests.stub_server import stub_server
from tests.train.kills import Killed, survives
from tests.train.texts import rows

TEMPLATE = "{% for m in messages %}<|endoftext|>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
TINY, CONFIG = "assets/models/tiny/target", RegenerateConfig(4, 6)
PROMPTS = ("Once upon a time", "Tom had 3 pens and", "def add(", "One day, Mia", "The cat")


@pytest.fixture(scope="module")
def tiny():
    return load_target(TINY, "float32", "cpu")


@pytest.fixture
def chat_target():
    target = load_target(TINY, "float32", "cpu")
    target.tokenizer.chat_template = TEMPLATE
    return target


def test_respond_to_out_of_memory_halves_rows(tiny, monkeypatch, capsys):
    prompts = [prompt_ids(tiny.tokenizer, "tiny", prompt, chat=False) for prompt in PROMPTS]
    whole = respond_to(tiny, prompts, CONFIG)
    advance, calls = Rows.advance, count()

    def short(self, steps):
        if len(self.idle) > 2 and next(calls) > 2:
            raise torch.OutOfMemoryError("no memory")
        advance(self, steps)

    monkeypatch.setattr(Rows, "advance", short)
    assert respond_to(tiny, prompts, CONFIG) == whole
    assert "continuing with 2 texts in parallel" in capsys.readouterr().err


def test_write_cuts_texts_at_time_limit(tiny):
    prompts = [prompt_ids(tiny.tokenizer, "tiny", prompt, chat=False) for prompt in PROMPTS[:2]]
    whole = respond_to(tiny, prompts, RegenerateConfig(2, 40))
    requests = [WriterRequest(n, prompt) for n, prompt in enumerate(prompts)]
    passes = iter(range(100))
    written = list(write(tiny, requests, RegenerateConfig(2, 40), lambda: next(passes) >= 12))
    for request, text in written:
        assert 0 < len(text) <= 12 < len(whole[request.number])
        assert text == whole[request.number][: len(text)]
    assert len(written) == 2


def test_regenerate_answers_every_turn_of_conversation(chat_target, tmp_path, monkeypatch):
    monkeypatch.setattr("d2sd.train.text.load_target", lambda *_, **__: chat_target)
    turns = [["What is 1 + 2?", "And 3 more?", "And 4?"], ["Hello"]]
    with pytest.raises(InputError, match="add --chat"):
        regenerate_responses(TINY, turns, tmp_path / "r.jsonl", CONFIG)
    assert regenerate_responses(TINY, turns, tmp_path / "r.jsonl", CONFIG, chat=True)[1] == 4
    tokenizer = chat_target.tokenizer
    answers = {tuple(row["prompt_ids"]): row["response_ids"] for row in rows(tmp_path / "r.jsonl")}
    history = []
    for turn in turns[0]:
        answer = answers[tuple(prompt_ids(tokenizer, "tiny", turn, True, history))]
        text = tokenizer.decode(answer, skip_special_tokens=True)
        history += [{"role": "user", "content": turn}, {"role": "assistant", "content": text}]
    before = (tmp_path / "r.jsonl").read_bytes()
    regenerate_responses(TINY, turns, tmp_path / "r.jsonl", CONFIG, chat=True)
    assert (tmp_path / "r.jsonl").read_bytes() == before


@pytest.fixture
def numbered(chat_target, monkeypatch):
    """A fake writer that numbers its texts; returns a function that has it write questions to ``out``."""
    target, numbers = chat_target, count(1)

    def write(_, requests, config, stop=None, exact=False):
        for request in requests:
            yield request, [*target.tokenizer(f"the number {next(numbers)}?")["input_ids"], *target.end_ids]

    monkeypatch.setattr(texts, "load_target", lambda *_, **__: target)
    monkeypatch.setattr(texts, "write", write)
    return lambda out: ask(target, ["What is ", "Add "], 5, out, QUESTIONS)


def resume_after_every_kill(folder, work, field):
    """Kills a run at each change of a file and resumes it. Whole lines must stay. Returns the number of kills."""
    ended, number = False, 0
    while not ended:
        number += 1
        path = folder / str(number) / "lines.jsonl"
        ended = survives(number, partial(work, path))
        before = path.read_bytes() if path.exists() else b""
        work(path)
        assert path.read_bytes().startswith(before)
        assert len(rows(path)) == 5
        assert all(field in row for row in rows(path))
    return number - 1


def test_regenerate_resumes_after_kill_at_any_change(tmp_path, numbered):
    turns = [[prompt] for prompt in PROMPTS]
    work = partial(regenerate_responses, TINY, turns, config=CONFIG)
    assert resume_after_every_kill(tmp_path, lambda out: work(out=out), "response_ids") > 4


def test_regenerate_resumes_between_answers_to_equal_prompts(tmp_path, numbered):
    turns, out = [["Hello", "And then?"], ["Hello", "Why?"]], tmp_path / "r.jsonl"
    regenerate_responses(TINY, turns, out, CONFIG, chat=True)
    lines = out.read_bytes().splitlines(keepends=True)
    first, second = map(json.loads, lines[:2])
    assert first["prompt_ids"] == second["prompt_ids"]
    assert first["response_ids"] != second["response_ids"]
    out.write_bytes(lines[0])
    for _ in range(2):
        assert regenerate_responses(TINY, turns, out, CONFIG, chat=True)[1] == 4
        assert len(rows(out)) == 4


def test_questions_resume_after_kill_at_any_change(tmp_path, numbered):
    assert resume_after_every_kill(tmp_path, numbered, "prompt") > 4


def test_questions_are_saved_one_by_one(tmp_path, numbered, monkeypatch):
    out, write = tmp_path / "q.jsonl", texts.write

    def killed(*given):
        for number, question in enumerate(write(*given)):
            assert len(rows(out)) == number
            if number == 3:
                raise Killed
            yield question

    monkeypatch.setattr(texts, "write", killed)
    with pytest.raises(Killed):
        numbered(out)
    before = out.read_bytes()
    monkeypatch.setattr(texts, "write", write)
    numbered(out)
    assert out.read_bytes().startswith(before)
    assert [row["prompt"].split()[0] for row in rows(out)] == ["What", "Add", "What", "Add", "What"]


@pytest.fixture
def server(tiny):
    """A server of tiny with OpenAI's API: its ``address``, the prompts that it was ``asked``, and whether it returns ``ids``."""
    state = SimpleNamespace(ids=True, asked=[])

    def answer(path, body):
        if body is None:
            return {"data": [{"id": "tiny"}]}
        state.asked.append(body["prompt"])
        if body["prompt"] == [5]:
            return 400
        (ids,) = respond_to(tiny, [body["prompt"]], RegenerateConfig(1, body["max_tokens"]))
        choice = {
            "text": tiny.tokenizer.decode(ids, skip_special_tokens=True),
            "finish_reason": "stop" if ids[-1] in tiny.end_ids else "length",
        }
        return {"choices": [choice | ({"token_ids": ids} if state.ids else {})]}

    with stub_server(answer) as address:
        state.address = f"{address}/v1"
        yield state


@pytest.mark.parametrize("ids", [True, False])
def test_regenerate_server_option_equals_local_text(server, tmp_path, ids):
    server.ids = ids
    (tmp_path / "p.jsonl").write_text("".join(json.dumps({"prompt": p}) + "\n" for p in PROMPTS))
    command = ["train", "regenerate", "--target", "tiny", "--prompts", str(tmp_path / "p.jsonl")]
    command += ["--max-new-tokens", "6", "--batch-size", "2", "--out"]
    assert main([*command, str(tmp_path / "here.jsonl")]) == 0
    assert main([*command, str(tmp_path / "there.jsonl"), "--server", server.address]) == 0
    here, there = (sorted(map(str, rows(tmp_path / name))) for name in ("here.jsonl", "there.jsonl"))
    assert here == there
    assert len(server.asked) == len(PROMPTS)  # for the second command, the server wrote every text


def test_regenerate_server_error_is_refused(server, tiny):
    requests = [WriterRequest(0, [5])]
    with pytest.raises(InputError, match="answered 400"):
        list(write_on_server(Server(server.address), "tiny", tiny.tokenizer, tiny.end_ids, requests, CONFIG))


def test_served_text_ends_with_any_end_token_of_target(tmp_path, monkeypatch):
    folder = shutil.copytree(TINY, tmp_path / "target", ignore=shutil.ignore_patterns("*.safetensors"))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 7]}))
    tokenizer, ends, _ = load_tokenizer(folder)
    assert ends == {0, 7}
    with stub_server(
        lambda _, body: {"choices": [{"text": "a", "token_ids": body["model"], "finish_reason": "stop"}]}
    ) as address:
        for sent, last in (([11, 7], 7), (None, tokenizer.eos_token_id)):
            requests = [WriterRequest(0, [5])]
            ((_, ids),) = write_on_server(Server(address), sent, tokenizer, ends, requests, CONFIG)
            assert ids[-1] == last


def test_regenerate_bad_prompt_file_is_one_sentence(tmp_path, capsys):
    path = tmp_path / "p.jsonl"
    command = ["train", "regenerate", "--target", "tiny", "--out", str(tmp_path / "r.jsonl"), "--prompts", str(path)]
    for text, said in (
        ("", "contains no prompts; give JSON lines"),
        ('{"turns": [1]}\n', "row 1: needs a text under prompt"),
        ('{"prompt": "yes"}\n\n{"prompt": "caf\xe9"}\n', "line 3: not UTF-8; save the file in that encoding"),
    ):
        path.write_text(text, encoding="latin-1")
        assert main(command) == 2
        assert said in capsys.readouterr().err
    path.unlink()
    assert main(command) == 2
    assert "there is no prompt file" in capsys.readouterr().err


def test_questions_start_as_given_without_repeats(chat_target, tmp_path):
    assert user_header(chat_target) == "<|endoftext|>user: "
    config = RegenerateConfig(8, 60, temperature=0.7, top_k=20)
    ask(chat_target, ["Question: Tom has 3", "What is"], 8, tmp_path / "q.jsonl", config)
    found = [row["prompt"] for row in rows(tmp_path / "q.jsonl")]
    assert found
    assert len(set(found)) == len(found)
    assert all(q.startswith(("Question: Tom has 3", "What is")) for q in found)


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        (None, "has no chat template"),
        ("{% for m in messages %}{{ m['content'] }}{% endfor %}", "writes nothing before a message"),
    ],
)
def test_user_header_needs_template_with_words_before_message(chat_target, template, sentence):
    chat_target.tokenizer.chat_template = template
    with pytest.raises(InputError, match=sentence):
        user_header(chat_target)


def test_prompt_ids_add_special_tokens_once(chat_target):
    tokenizer = chat_target.tokenizer
    plain, begun = (prompt_ids(tokenizer, "tiny", text, chat=False) for text in ("Once", "<|endoftext|>Once"))
    assert plain == begun
    assert prompt_ids(tokenizer, "tiny", "Once", chat=True).count(tokenizer.eos_token_id) == 1
