"""Simulated users without browsers: each makes short runs, races and calibrations, one after the other."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

from tests.page_client import PageClient, Window

PROMPTS = ("One day, a cat", "Tom has 12 apples.", "# Task: add two numbers", "Once upon a time there was a fox")
WAITS = 2.0  # seconds until a waiting user must have seen a message: the page polls every 0.5 s, and answers take time


@dataclass(frozen=True, slots=True)
class Done:
    """One finished request. ``waited``: seconds until it began; ``told``: whether the user saw a place in the queue."""

    person: int
    kind: str
    waited: float
    seconds: float
    told: bool
    fault: str = ""


def _tells(answer: object) -> bool:
    """Returns whether an answer of the page says that the user has to wait."""
    return any(words in str(answer) for words in ("in the queue", "Another run is in progress"))


class Person:
    """A simulated user: one window, and its finished requests."""

    def __init__(self, page: PageClient, number: int, seed: int, model: str):
        self.model = model
        self.window, self.number, self.rng = Window(page), number, random.Random(f"{seed} {number}")
        self.page, self.done = page, list[Done]()

    def work(self, kind: str, **asked: Any) -> Done:
        """Presses a button and waits for the result."""
        asked = {"model": self.model} | asked
        button = {"run": "run", "race": "start-race", "calibration": "measure"}[kind]
        # Measure triggers two calls: a quick one for existing runs, and one for prompts, which waits in the queue
        first = self.page.call(button, "click", 1 if kind == "calibration" else 0)
        began = time.monotonic()
        status, answer = self.window.at_once(first, self.page.values(first, **asked))
        told, begun = Event(), Event()
        if _tells(answer):
            told.set()
        started, fault = 0.0, "" if status == 200 else str(answer)[:200]
        Thread(target=self._ask_for_place, args=(first, told, begun), daemon=True).start()
        work = self.page.then(first)
        for message in self.window.queued(work, self.page.values(work, **asked)):
            if message["msg"] == "process_starts" and not started:
                started = time.monotonic()
                begun.set()
            if message["msg"] in ("refused", "unexpected_error") or message.get("success") is False:
                fault = fault or str(message)[:200]
            if "Please check" in str(message.get("output", ""))[-2000:]:
                fault = fault or "a notice: " + str(message["output"])[-300:]
        begun.set()
        end = time.monotonic()
        waited = (started or end) - began
        if waited > WAITS and not told.is_set():
            fault = fault or f"waited {waited:.1f} s without a message about the queue"
        done = Done(self.number, kind, waited, end - began, told.is_set(), fault)
        self.done.append(done)
        return done

    def _ask_for_place(self, first: dict[str, Any], told: Event, begun: Event) -> None:
        """Polls the place in the queue, as the page's timer does."""
        tick = self.page.ticked(first)
        while not begun.wait(tick.seconds):
            if _tells(self.window.at_once(tick.call, self.page.values(tick.call))[1]):
                told.set()

    def anything(self) -> Done:
        """Makes a random small run, race or calibration."""
        kind = self.rng.choices(("run", "race", "calibration"), (6, 2, 1))[0]
        prompt, tokens = self.rng.choice(PROMPTS), self.rng.choice((8, 16, 32))
        if kind == "run":
            return self.work(kind, prompt=prompt, max_tokens=tokens, gamma_2=None, budget=None)
        if kind == "race":
            return self.work(kind, prompt=prompt, max_tokens=tokens, race_methods=["d2sd"], budget=None)
        return self.work(kind, source="heldout", how_many=2, max_tokens=tokens)

    def until(self, stop: Event) -> Thread:
        """Makes requests in a new thread until ``stop`` is set. Returns the thread."""

        def go() -> None:
            self.window.stay()
            while not stop.is_set():
                try:
                    self.anything()
                except Exception as error:
                    self.done.append(Done(self.number, "call", 0, 0, True, f"{type(error).__name__}: {error}"))
                    stop.wait(1)
                stop.wait(self.rng.uniform(0.2, 2))
            self.window.leave()

        thread = Thread(target=go, daemon=True)
        thread.start()
        return thread


def greedy(page: PageClient, count: int, model: str) -> tuple[int, float, float]:
    """Requests ``count`` runs for one user at the same time, then one run for another user.

    Returns how many of the first user's runs made a step before the other user's run ended, the seconds that the other user
    waited, and the seconds of one run of the first user when nothing else runs.
    """
    one, other = Person(page, 0, 0, model), Person(page, 1, 0, model)
    asked: dict[str, Any] = {
        "model": model,
        "prompt": PROMPTS[0],
        "max_tokens": 200,
        "gamma_2": None,
        "budget": None,
    }
    alone = one.work("run", **asked).seconds
    began: list[float] = []

    def ask() -> None:
        first = page.call("run", "click")
        one.window.at_once(first, page.values(first, **asked))
        work = page.then(first)
        steps: list[float] = []
        with suppress(OSError, ValueError):  # the window was closed
            for message in one.window.queued(work, page.values(work, **asked)):
                if "StepDone" in str(message.get("output", "")):
                    steps.append(time.monotonic())
        began.extend(steps[:1])

    threads = [Thread(target=ask, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    waited = other.work("run", **(asked | {"max_tokens": 8})).waited
    until = time.monotonic()
    while time.monotonic() < until + 60 and any(thread.is_alive() for thread in threads):
        time.sleep(0.2)  # a thread never ends if another thread read its messages
    one.window.leave()
    return sum(at < until for at in began), waited, alone
