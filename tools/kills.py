"""Kills every stage of training at random moments and resumes it with the same command: ``python -m tools.kills``.

First, a small target is trained. Then every stage is killed (SIGKILL) ten times, at random moments. After each kill, the same
command is run again; after every five kills, the command may finish. A table shows, for each stage, the numbers of kills,
resumptions and lost lines of text files. A command after a kill counts as a resumption if it succeeds or reaches the stage again.
The exit code is 1 if a command failed or did not resume, or if a line was lost. ``--only`` selects stages.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from select import select
from typing import Any

from d2sd.__main__ import main as command_line
from d2sd.train import pair
from d2sd.train.settings import RegenerateConfig
from d2sd.train.text import regenerate_responses
from tests.train.texts import prompt_of, save_target, sums

TEMPLATE = "{% for m in messages %}<|endoftext|>{{ m['content'] }}{% endfor %}"
TEXTS = ("questions.jsonl", "responses.jsonl", "held-out.jsonl")  # text files of ``train pair``
STEPS = 100  # training steps of the target; with fewer, its questions do not end
PAIR = ("start", "questions", "writing", "features", "held-out", "training", "ending")
KILLS_BEFORE_END, SHARE = 5, 0.8  # kills before a command may finish; kills occur in this first share of a stage's time


@dataclass
class Stage:
    """A command, the part of it that is killed, and what happened so far.

    arguments: arguments of ``d2sd``, without ``--out``.
    out: output file or folder of the command.
    part: name of the part of ``train pair`` that is killed; empty: the whole command.
    kills, resumed, lost: numbers of kills, of resumptions and of lost lines.
    problems: what went wrong, one clause each.
    """

    name: str
    arguments: list[str]
    out: Path
    part: str = ""
    kills: int = 0
    resumed: int = 0
    lost: int = 0
    problems: list[str] = field(default_factory=list)


def stages(work: Path) -> list[Stage]:
    """Returns all stages.

    work: folder of the target, its responses and all output.
    """
    target, prompts, responses = (str(work / name) for name in ("target", "prompts.jsonl", "r.jsonl"))
    chat, target_option = str(work / "chat"), ["--target", target]
    drafter = [*target_option, "--responses", responses, "--steps", "60", "--keep-every", "20"]
    block = ["pair", *drafter, "--block-size", "4", "--layers", "1"]
    commands = {
        "regenerate": [
            "regenerate",
            *target_option,
            "--prompts",
            prompts,
            "--batch-size",
            "8",
            "--max-new-tokens",
            "24",
        ],
        "steps": [*block, "--held-out", str(work / "held-out.jsonl")],
        "second": [*block, "--only", "second"],
        "eagle3": ["eagle3", *drafter, "--save-every", "5", "--target-layers", "0", "0", "0"],
    }
    made = [
        Stage(name, ["train", *given], work / name / ("out.jsonl" if name == "regenerate" else "out"))
        for name, given in commands.items()
    ]
    short = ["--minutes", "0.2", "--prompts", str(work / "few.jsonl")]
    made += [
        Stage(
            f"pair: {part}",
            ["train", "pair", "--target", chat, *short, "--max-new-tokens", "32"],
            work / f"pair-{part}" / "out",
            part,
        )
        for part in PAIR
    ]
    made.append(Stage("recipe", ["train", "recipe", "smollm2", "--target", chat, *short], work / "recipe" / "out"))
    return made


def prepare(work: Path) -> int:
    """Writes a target, a copy of it with a chat template, its responses, and prompts. Returns 0, the exit code."""
    texts = sums(200)
    save_target(texts, work / "target", STEPS)
    answers = RegenerateConfig(max_new_tokens=24)
    regenerate_responses(work / "target", [[prompt_of(text)] for text in texts[:20]], work / "r.jsonl", answers)
    shutil.copytree(work / "target", work / "chat")
    (work / "chat" / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    for name, some in (("prompts", texts), ("few", texts[:12]), ("held-out", texts[20:32])):
        lines = (json.dumps({"prompt": prompt_of(text)}) + "\n" for text in some)
        (work / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    return 0


def _tell(part: str, pipe: int) -> None:
    """Makes ``train pair`` write "b" to the file descriptor ``pipe`` when ``part`` begins, and "e" when it ends."""
    plain = pair.State.stage

    @contextmanager
    def stage(self: Any, name: str) -> Any:
        with plain(self, name) as over:
            os.write(pipe, b"b" if name == part else b"")
            yield over
        os.write(pipe, b"e" if name == part else b"")

    pair.State.stage = stage  # type: ignore[method-assign]


def begin(work: Callable[[], int], log: Path) -> int:
    """Runs ``work`` in a new process, which exits with the value that ``work`` returns. Returns the process id.

    log: file to which the process writes its output.
    """
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        with log.open("a", encoding="utf-8") as file:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def command(stage: Stage, pipe: int) -> int:
    """Runs the command of a stage. Returns its exit code.

    pipe: file descriptor to which "b" and "e" are written when ``stage.part`` begins and ends.
    """
    if stage.part:
        _tell(stage.part, pipe)
    else:
        os.write(pipe, b"b")
    return command_line([*stage.arguments, "--out", str(stage.out)])


def run(stage: Stage, log: Path, delay: float | None) -> tuple[int | None, float]:
    """Runs the command of a stage, and kills it ``delay`` seconds after its part begins, or earlier if the part ends.

    delay: None: the command is not killed.

    Returns the exit code (None if killed), and the part's duration in seconds.
    """
    pipe, theirs = os.pipe()
    process, began, ended = begin(partial(command, stage, theirs), log), None, None
    os.close(theirs)
    while True:
        left: float | None = (
            None if began is None or delay is None else 0.0 if ended else max(0.0, began + delay - time.monotonic())
        )
        ready, _, _ = select([pipe], [], [], left)
        if not ready:
            os.kill(process, signal.SIGKILL)
            break
        told = os.read(pipe, 1)
        began = time.monotonic() if told == b"b" else began
        ended = time.monotonic() if told == b"e" or not told else ended
        if not told:
            break
    os.close(pipe)
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    took = (ended or time.monotonic()) - (began or time.monotonic())
    return (None if code == -signal.SIGKILL else code), took


def lines(out: Path) -> dict[Path, list[bytes]]:
    """Returns the complete lines of all text files that a command writes, by file."""
    files = [out] if out.suffix == ".jsonl" else [out / name for name in TEXTS]
    return {
        path: [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        for path in files
        if path.exists()
    }


def kill_repeatedly(stage: Stage, kills: int, draw: random.Random) -> None:
    """Kills a stage ``kills`` times at random moments, and records the result in ``stage``.

    The command may finish after every ``KILLS_BEFORE_END`` kills.
    """
    stage.out.parent.mkdir()
    log = stage.out.parent / "log.txt"
    code, whole = run(stage, log, None)
    if code != 0:
        stage.problems.append(f"exited with {code} without a kill; see {log}")
    while code == 0 and stage.kills < kills:
        shutil.rmtree(stage.out.parent)
        stage.out.parent.mkdir()
        before, code = dict[Path, list[bytes]](), None
        for number in range(KILLS_BEFORE_END + 1):
            ends = number == KILLS_BEFORE_END or stage.kills == kills
            code, _ = run(stage, log, None if ends else draw.uniform(0, SHARE * whole))
            now = lines(stage.out)
            stage.lost += sum(line not in now.get(path, []) for path, old in before.items() for line in old)
            before, stage.kills = now, stage.kills + (code is None)
            if number and code in (None, 0):
                stage.resumed += 1
            if code is not None:
                break
        if code != 0:
            stage.problems.append(f"exited with {code} after a kill; see {log}")


def _made_small() -> None:
    """Replaces the settings of the recipe for SmolLM2 by settings that fit the small target."""
    small_pair, small_eagle3 = pair.PairTraining, pair.Eagle3Training
    names = {"target_layer_ids": None, "mask_token": None, "max_new_tokens": 32}
    pair.PairTraining = lambda **given: small_pair(**given | names)  # type: ignore[misc, assignment]
    taps = {"target_layer_ids": [0, 0, 0], "draft_vocab_size": None}
    pair.Eagle3Training = lambda **given: small_eagle3(**given | taps)  # type: ignore[misc, assignment]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/kills"), help="folder of all files, emptied first")
    parser.add_argument("--kills", type=int, default=10, help="kills per stage")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="STAGE", help="only stages whose names begin with one of these"
    )
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    shutil.rmtree(given.work, ignore_errors=True)
    work = given.work.resolve()
    work.mkdir(parents=True)
    # This process must not compute: its torch threads would not exist in forked processes.
    _, status = os.waitpid(begin(partial(prepare, work), work / "log.txt"), 0)
    if status:
        print(f"preparing the target failed; see {work / 'log.txt'}")
        return 1
    _made_small()
    chosen = [s for s in stages(work) if not given.only or s.name.startswith(tuple(given.only))]
    for stage in chosen:
        kill_repeatedly(stage, given.kills, random.Random(given.seed))
        if stage is chosen[0]:
            print(f"{'stage':<16} {'kills':>5} {'resumed':>7} {'lines lost':>10}")
        print(
            f"{stage.name:<16} {stage.kills:>5} {stage.resumed:>7} {stage.lost:>10}  {'; '.join(stage.problems)}",
            flush=True,
        )
    return int(any(s.problems or s.lost or s.resumed < s.kills for s in chosen))


if __name__ == "__main__":
    sys.exit(main())
