"""Simulates many users of one page: ``python -m tools.load [--people N] [--minutes M] [--model NAME] …``.

Starts the page in a separate process. Prints a table and writes ``load.svg``: memory and open files over time. The exit
code is 1 if there were failures.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from threading import Event, Thread

from app.guard import SECONDS_KEPT
from tests.page_client import PageClient
from tools.load.chart import chart
from tools.load.people import Done, Person, greedy
from tools.load.window import many_runs
from tools.torture.served import Server, serving

IDLE = SECONDS_KEPT + 20  # seconds until the server has released closed windows, including their heartbeats
GREEDY = 30


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.load", description=__doc__)
    parser.add_argument("--people", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--window", type=int, default=200, metavar="RUNS", help="runs in one browser window (0: none)")
    parser.add_argument("--model", default="tiny", help="preset of all runs, such as smollm2 (default: tiny)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/load"), metavar="FOLDER")
    arguments = parser.parse_args()
    faults: list[str] = []
    with serving() as server:
        page = PageClient(server.address)
        Person(page, 0, 0, arguments.model).work(
            "run", prompt="Loading the nets.", max_tokens=4, gamma_2=None, budget=None
        )
        samples, over = list[tuple[float, float, int]](), Event()
        watch = Thread(target=_watch, args=(server, samples, over), daemon=True)
        watch.start()
        people = [Person(page, number, arguments.seed, arguments.model) for number in range(arguments.people)]
        _row("users", str(arguments.people))
        before = server.megabytes(), server.files()
        stop = Event()
        threads = [person.until(stop) for person in people]
        time.sleep(60 * arguments.minutes)
        stop.set()
        for thread in threads:
            thread.join(120)
        done = [d for person in people for d in person.done]
        faults += [d.fault for d in done if d.fault]
        _report(done, people)
        steps, waited, alone = greedy(page, GREEDY, arguments.model)
        _row(
            f"{GREEDY} runs of one user",
            f"{steps} began before another user's run ended; the other user waited {waited:.1f} s (a run alone takes {alone:.1f} s)",
        )
        if steps > 2:
            faults.append(f"{steps} of one user's {GREEDY} runs began before another user's run ended")
        time.sleep(IDLE)
        after = server.megabytes(), server.files()
        peak = max(m for _, m, _ in samples)
        _row("memory, MB", f"{before[0]:.0f} before, {peak:.0f} at most, {after[0]:.0f} at the end")
        _row("open files", f"{before[1]} before, {max(f for *_, f in samples)} at most, {after[1]} at the end")
        if after[1] > before[1] + 5:
            faults.append(f"{after[1]} files are open at the end, {before[1]} before")
        if arguments.window:
            figures = many_runs(server, arguments.window)
            _row(f"{arguments.window} runs in one window", figures.sentence)
            faults += figures.faults
        tracebacks = server.tracebacks()
        _row("tracebacks in the log", str(tracebacks))
        faults += ["tracebacks in the server's log"] * bool(tracebacks)
        over.set()
        watch.join(5)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "load.svg").write_text(chart(samples, f"{arguments.people} users"), encoding="utf-8")
    _row("failures", str(len(faults)))
    for fault, count in Counter(faults).most_common():
        print(f"{count} times: {fault}")
    print(f"{arguments.out / 'load.svg'}: memory and open files over time")
    return int(bool(faults))


def _report(done: list[Done], people: list[Person]) -> None:
    counts = [len([d for d in person.done if not d.fault]) for person in people]
    waits = sorted(d.waited for d in done) or [0.0]
    for kind, count in Counter(d.kind for d in done).items():
        reasons = [f"user {d.person} after {d.seconds:.0f} s: {d.fault}" for d in done if d.kind == kind and d.fault]
        _row(f"{kind}s", f"{count}, {len(reasons)} failed")
        for reason in reasons:
            _row("", reason)
    _row("finished per user", f"{min(counts)} to {max(counts)}")
    _row("waiting time, s", f"median {statistics.median(waits):.1f}, at most {waits[-1]:.1f}")


def _row(name: str, figures: str) -> None:
    print(f"{name:24s} {figures}", flush=True)


def _watch(server: Server, samples: list[tuple[float, float, int]], over: Event) -> None:
    began = time.monotonic()
    while not over.wait(1):
        samples.append((time.monotonic() - began, server.megabytes(), server.files()))


if __name__ == "__main__":
    sys.exit(main())
