"""Checks the memory of server and page over many runs in one browser window."""

from __future__ import annotations

from dataclasses import dataclass

from playwright.sync_api import expect, sync_playwright

from tests.chromium import launch
from tests.e2e.driving import opened, set_number, view
from tools.torture.served import Server

SETTLED = 4  # memory should be flat after 1/SETTLED of the runs
GROWTH = 1.25  # largest allowed ratio of the memory at the end to the memory after 1/SETTLED of the runs


@dataclass(frozen=True, slots=True)
class Session:
    """The measured memory, as a sentence, and the faults."""

    sentence: str
    faults: list[str]


def many_runs(server: Server, count: int) -> Session:
    """Makes ``count`` short runs. Compares the memory of server and page after a quarter of the runs and at the end."""
    figures = []
    with sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_page()
        tools = page.context.new_cdp_session(page)
        opened(page, server.address)
        set_number(page, "max-tokens", 8)
        for number in range(1, count + 1):
            before = view(page).get_attribute("data-run") or ""
            page.locator("#run").click()
            expect(view(page)).not_to_have_attribute("data-run", before)
            expect(page.locator("#follow")).to_have_attribute("data-state", "resting")
            if number in (max(1, count // SETTLED), count):
                tools.send("HeapProfiler.collectGarbage")
                heap = tools.send("Runtime.getHeapUsage")["usedSize"] / 2**20
                figures.append((server.megabytes(), heap))
        browser.close()
    (server_then, page_then), (server_now, page_now) = figures[0], figures[-1]
    faults = [f"memory of the {side} grew from {a:.0f} to {b:.0f} MB over {count} runs in one window"
              for side, a, b in (("server", server_then, server_now), ("page", page_then, page_now)) if b > GROWTH * a]  # fmt: skip
    return Session(f"server {server_then:.0f} → {server_now:.0f} MB, page {page_then:.0f} → {page_now:.0f} MB", faults)
