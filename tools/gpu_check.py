"""Checks and measures the engine on a GPU with flashinfer, in at most six minutes: ``python -m tools.gpu_check OUT``.

In this order, each in a process of its own that ends at its limit: flashinfer's kernels are compiled, all at once; every call is
compared with its reference; stages are measured with fused and plain layers in one call; the engine's GPU tests; kernels by name.
Logs, ``bench gpu``'s files and ``summary.json`` lie in OUT. The exit code is 1 if a part failed or was cut short.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

SECONDS = 360
# what each process of the first part compiles: calls of tests/gpu/test_kernels.py and attention with and without a mask
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
from d2sd.nets.flashinfer import FlashInfer
from tests.gpu.test_kernels import GPU, calls
for name, given, work in calls(16, 1):
    if name == sys.argv[1]:
        work(*(t.to(GPU) for t in given))
if "attention" in sys.argv[1]:
    query, own = (torch.randn(1, h, 16, 128, dtype=torch.bfloat16, device=GPU) for h in (32, 8))
    mask = torch.ones(16, 16, dtype=torch.bool, device=GPU).tril() if "masked" in sys.argv[1] else None
    FlashInfer()(query, (own, own), (own, own), mask, 0.1)
torch.cuda.synchronize()
"""
PROFILE = """
import collections, sys, torch
from d2sd.bench.gpu_stages import Bench, random_engine
from d2sd.config import DecodeConfig
engine = random_engine("qwen3-8b", "bfloat16", "cuda", "captured", 4096)
for method in ("autoregressive", "d2sd"):
    with torch.inference_mode():
        bench = Bench(engine, DecodeConfig(method), 1024, "captured", 4, "fused")
        bench.cycle()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            bench.run.step()()
            torch.cuda.synchronize()
    found = collections.defaultdict(list)
    for event in profile.events():
        found[event.name].append(event.device_time)
    print(method, sum(map(len, found.values())), "kernels and copies")
    for name, times in sorted(found.items(), key=lambda pair: -sum(pair[1])):
        print(f"{sum(times):9.1f} us {len(times):5d} x {name[:110]}")
"""
PYTEST = ("-m", "pytest", "-p", "no:cacheprovider", "-rs")


def parts(out: Path) -> dict[str, tuple[list[tuple[str, ...]], int]]:
    """Returns for every part the arguments of its processes, which run at the same time, and the seconds that it may take at most; the last
    parts get what is left."""
    bench = ("-m", "d2sd", "bench", "gpu", "--context", "1024", "--repeats", "12", "--out", str(out))
    return {
        "compile": ([("-c", COMPILE, name) for name in COMPILED], 120),
        "calls": ([(*PYTEST, "-n", "0", "tests/gpu/test_kernels.py")], 60),
        "bench": ([bench], 170),
        "engine": ([(*PYTEST, "tests/gpu/test_engine.py", "-k", "not thousand", "-n", "4")], 200),
        "profile": ([("-c", PROFILE)], 60),
    }


def run(commands: list[tuple[str, ...]], limit: float, log: Path) -> dict[str, object]:
    """Run processes of this Python at the same time; returns whether all succeeded, and seconds."""
    began = time.monotonic()
    with log.open("w") as file:
        started = [subprocess.Popen([sys.executable, *c], stdout=file, stderr=subprocess.STDOUT) for c in commands]
        codes = []
        for process in started:
            try:
                codes.append(process.wait(max(0.0, began + limit - time.monotonic())))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append(None)
    return {
        "passed": not any(code != 0 for code in codes),
        "codes": codes,
        "seconds": round(time.monotonic() - began, 1),
    }


def main() -> int:
    """Runs the parts as far as the time reaches."""
    out, began = Path(sys.argv[1]), time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("MAX_JOBS", "4")  # compilers per process
    summary: dict[str, dict[str, object]] = {}
    for name, (commands, limit) in parts(out).items():
        left = began + SECONDS - time.monotonic()
        summary[name] = run(commands, min(limit, left), out / f"{name}.log")
        (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
        print(name, summary[name], flush=True)
    return 0 if all(part["passed"] for part in summary.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
