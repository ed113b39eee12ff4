"""Does all work that needs a GPU in ten minutes: ``python -m tools.gpu_day OUT``. docs/gpu.md describes how to prepare a machine.

The parts run in this order, each in separate processes. A part is stopped at its time limit, so that the next parts still run:

1. ``check``: ``train pair`` for the bundled target, to test whether training works on the machine;
2. ``recipe``: ``train recipe smollm2``, the drafters of SmolLM2;
3. ``calls``: every call of flashinfer, compared with its reference;
4. ``bench``: ``bench gpu`` with fused and with plain layers;
5. ``engine``: the engine's GPU tests;
6. ``profile``: kernels of a step by name.

flashinfer's kernels are compiled during the first two parts. A second call continues the work in ``runs/gpu_day``. After every
part, all results so far are written to OUT as a few files. ``results.tar.gz`` has logs, figures and ``summary.json``. An archive of
the drafters is split into pieces (unpack it with ``cat OUT/weights.tar.* | tar x``). The exit code is 1 if a part failed or was
stopped. ``--rehearse`` runs all parts on a CPU with small sizes, in less than ten minutes.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
TINY = REPOSITORY / "assets/models/tiny/target"
PIECE = 15 * 2**20  # bytes
STARTING = 25  # seconds of a part's limit reserved for starting and saving
DRAFTERS = ("dflash", "vp", "eagle3")
NAMES = ("Tom", "Mia", "Sue", "Ben")
THINGS = ("ball", "key", "map", "shell", "box", "kite", "boat", "lamp", "seed", "coin")
RESULTS = (".log", ".json", ".md")
Command = tuple[str, ...]

# The part ``compile`` has one process for each of these: calls of ``tests.flashinfer_calls``, and attention with and without a mask.
COMPILED = (
    "norm",
    "add and norm",
    "gated",
    "rotary",
    "head norms and rotary",
    "written",
    "attention",
    "masked attention",
)
COMPILE = """
import sys, torch
from d2sd.nets import flashinfer
from tests.flashinfer_calls import calls
device, what = sys.argv[1:]
if device == "cpu":
    from tests.unit import reference_flashinfer
    flashinfer._library = lambda: reference_flashinfer
for name, given, work in calls(16, 1):
    if name == what:
        work(*(t.to(device) for t in given))
if "attention" in what:
    query, key = (torch.randn(1, h, 16, 128, dtype=torch.bfloat16, device=device) for h in (32, 8))
    mask = torch.ones(16, 16, dtype=torch.bool, device=device).tril() if "masked" in what else None
    flashinfer.FlashInfer()(query, (key, key), (key, key), mask, 0.1)
if device != "cpu":
    torch.cuda.synchronize()
"""
PROFILE = """
import collections, sys, torch
from d2sd.bench.timings import Bench, random_engine
from d2sd.config import DecodeConfig
device, shape, context = sys.argv[1:]
passes, activity = ("padded", "CPU") if device == "cpu" else ("captured", "CUDA")
engine = random_engine(shape, "bfloat16", device, passes, 4096)
for method in ("autoregressive", "d2sd"):
    with torch.inference_mode():
        bench = Bench(engine, DecodeConfig(method), int(context), passes, 4, "fused")
        bench.cycle()
        with torch.profiler.profile(activities=[getattr(torch.profiler.ProfilerActivity, activity)]) as profile:
            bench.run.step()()
            if device != "cpu":
                torch.cuda.synchronize()
    times_by_kernel = collections.defaultdict(list)
    for event in profile.events():
        times_by_kernel[event.name].append(event.cpu_time if device == "cpu" else event.device_time)
    print(method, sum(map(len, times_by_kernel.values())), "kernels and copies")
    for name, times in sorted(times_by_kernel.items(), key=lambda pair: -sum(pair[1])):
        print(f"{sum(times):9.1f} us {len(times):5d} x {name[:110]}")
"""


@dataclass(frozen=True)
class Part:
    """A part of the run: processes that run at the same time.

    commands: arguments of Python, one tuple per process.
    limit: seconds after which the processes are stopped.
    beside: whether the next part starts without waiting for this one. Such processes have a low priority.
    """

    name: str
    commands: tuple[Command, ...]
    limit: float
    beside: bool = False


def parts(work: Path, device: str, target: str, prompts: Sequence[str], rehearsal: bool) -> list[Part]:
    """Returns all parts of the run, in the order in which they are started, with their commands and time limits.

    work: folder that the parts write to.
    device: "cpu" or "cuda".
    target, prompts: values of ``--target`` and ``--prompts`` for ``train recipe smollm2``.
    rehearsal: whether all sizes are small, so that the parts take less than ten minutes on a CPU.
    """
    short = ("--prompts", str(work / "beginnings.jsonl"))
    given = short if rehearsal else ("--prompts", *prompts) if prompts else ()
    shape, context = ("tiny", "64") if rehearsal else ("qwen3-8b", "1024")
    test = ("-m", "pytest", "-p", "no:cacheprovider", "-rs")
    kernels, engine = ("tests/unit/test_flashinfer.py", "tests/engine/test_merged.py") if rehearsal else (
        "tests/gpu/test_kernels.py", "tests/gpu/test_engine.py")  # fmt: skip
    d2sd = ("-m", "d2sd")

    def minutes(limit: float) -> tuple[str, str]:
        return "--minutes", f"{(limit - STARTING) / 60:.2f}"

    check, recipe = (90, 120) if rehearsal else (60, 300)
    return [
        Part("compile", tuple(("-c", COMPILE, device, name) for name in COMPILED), 360, beside=True),
        Part("check", ((*d2sd, "train", "pair", "--target", str(TINY), *short, *minutes(check), "--out", str(work / "check")),), check),
        Part("recipe", ((*d2sd, "train", "recipe", "smollm2", "--target", target, *given, *minutes(recipe), "--out", str(work / "smollm2")),), recipe),
        Part("calls", ((*test, "-n", "0", kernels),), 60),
        Part("bench", ((*d2sd, "bench", "gpu", "--shape", shape, "--context", context, "--repeats", "2" if rehearsal else "12", "--force",
                        "--out", str(work / "bench")),), 170),
        Part("engine", ((*test, "-n", "2" if rehearsal else "4", "-k", "not thousand", engine),), 120),
        Part("profile", (("-c", PROFILE, device, shape, context),), 60),
    ]  # fmt: skip


class Running:
    """The running processes of a part, which are started by the constructor. They write to the file ``log``."""

    def __init__(self, part: Part, log: Path, clock: Callable[[], float]):
        self._clock, self._began = clock, clock()
        self._end = self._began + part.limit
        nice = ("nice", "-n", "10") if part.beside and shutil.which("nice") else ()
        with log.open("ab") as file:
            self._processes = [
                subprocess.Popen(
                    [*nice, sys.executable, *command], cwd=REPOSITORY, stdout=file, stderr=subprocess.STDOUT
                )
                for command in part.commands
            ]

    def wait(self, latest: float) -> dict[str, object]:
        """Waits for all processes, and stops them at the part's time limit or at the time ``latest``.

        Returns the exit codes (None for a stopped process), the seconds, and whether all processes succeeded.
        """
        codes: list[int | None] = []
        for process in self._processes:
            try:
                codes.append(process.wait(max(0.0, min(self._end, latest) - self._clock())))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                codes.append(None)
        seconds = round(self._clock() - self._began, 1)
        return {"passed": not any(code != 0 for code in codes), "codes": codes, "seconds": seconds}


def run(
    chosen: Sequence[Part], seconds: float, work: Path, out: Path, clock: Callable[[], float] = time.monotonic
) -> bool:
    """Runs parts one after another, and packs the results after each. Returns whether all succeeded.

    seconds: time limit of all parts together.
    work, out: folders as for ``pack``.
    clock: function that returns the time in seconds.
    """
    latest, summary = clock() + seconds, dict[str, dict[str, object]]()
    beside: dict[str, Running] = {}

    def end(name: str, running: Running) -> None:
        summary[name] = running.wait(latest)
        (work / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
        print(name, summary[name], flush=True)
        pack(work, out)

    for part in chosen:
        running = Running(part, work / f"{part.name}.log", clock)
        if part.beside:
            beside[part.name] = running
            continue
        if part.name not in ("check", "recipe"):  # all other parts need the compiled kernels
            for name in list(beside):
                end(name, beside.pop(name))
        end(part.name, running)
    for name, running in beside.items():
        end(name, running)
    return all(part["passed"] for part in summary.values())


def pack(work: Path, out: Path) -> None:
    """Packs the results in the folder ``work`` into the folder ``out``: an archive of small files, and an archive of the drafters
    in pieces of ``PIECE`` bytes.
    """
    small = [p for p in sorted(work.rglob("*")) if p.suffix in RESULTS or p.name == "metrics.jsonl"]
    with tarfile.open(out / "results.tar.gz", "w:gz") as file:
        for path in small:
            file.add(path, path.relative_to(work))
    weights = io.BytesIO()
    with tarfile.open(fileobj=weights, mode="w") as file:
        for path in (p for name in DRAFTERS for p in sorted((work / "smollm2" / name).glob("*.*"))):
            file.add(path, path.relative_to(work / "smollm2"))
    view = weights.getbuffer()
    for number, begin in enumerate(range(0, len(view), PIECE)):
        (out / f"weights.tar.{number:02}").write_bytes(view[begin : begin + PIECE])


def save_miniature(out: Path) -> None:
    """Saves a small random target that fits the recipe of SmolLM2, with the same number of layers, a chat template and the mask
    token.
    """
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(TINY)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<empty_output>"]})
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=20_000, hidden_size=32, intermediate_size=64, num_hidden_layers=30, num_attention_heads=2, num_key_value_heads=1,
        head_dim=16, max_position_embeddings=1024, tie_word_embeddings=True, bos_token_id=None, pad_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight[len(tokenizer) - 1 :] = 0  # never generates the mask token or ids without a token
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("out", type=Path, help="folder of the results")
    add("names", nargs="*", metavar="PART", help="only these parts")
    add("--target", default="smollm2", metavar="FOLDER", help="the recipe's target (default: from `d2sd get smollm2`)")
    add("--prompts", nargs="+", default=[], metavar="JSONL", help="prompts of the recipe")
    add("--seconds", type=float, default=590, help="time limit of all parts (default: %(default)g)")
    add("--rehearse", action="store_true", help="run on a CPU with small sizes")
    given = parser.parse_intermixed_args()
    work = REPOSITORY / "runs/gpu_day"
    if given.rehearse:
        work = REPOSITORY / "runs/gpu_rehearsal"
        shutil.rmtree(work, ignore_errors=True)
        given.target = str(work / "target")
        save_miniature(work / "target")
        os.environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    for folder in (work, given.out):
        folder.mkdir(parents=True, exist_ok=True)
    beginnings = [f"Once upon a time, {name} found a {thing}" for name in NAMES for thing in THINGS]
    (work / "beginnings.jsonl").write_text(
        "".join(json.dumps({"prompt": text}) + "\n" for text in beginnings), encoding="utf-8"
    )
    os.environ.setdefault("MAX_JOBS", "2")  # compilers per process
    every = parts(work, "cpu" if given.rehearse else "cuda", given.target, given.prompts, given.rehearse)
    chosen = [part for part in every if not given.names or part.name in given.names]
    return 0 if run(chosen, given.seconds, work, given.out) else 1


if __name__ == "__main__":
    sys.exit(main())
