"""Helpers of the browser tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import BrowserContext, Locator, Page, expect

import d2sd
from app import presets
from app.methods import ordered
from tests.chromium import new_page

PHONE = {"width": 390, "height": 844}


def view(page: Page) -> Locator:
    """Returns the element whose data attributes state what is shown and selected."""
    return page.locator("#explorer [data-run]")


def opened(page: Page, address: str) -> None:
    """Open the address; wait until the recorded run is read completely and the controls are filled in."""
    page.goto(address)
    expect(view(page)).to_have_attribute("data-steps", str(len(presets.opening().trace().steps)))
    expect(page.locator("#tree g.node").first).to_be_visible()
    # filled in once the server has checked whether the address is a link
    expect(page.locator("#gamma-2 input[type=number]")).not_to_have_value("0")


def reopened(page: Page, address: str) -> None:
    """Like ``opened``, after clearing the window's storage. This is done on a file without scripts, since the page saves its
    form when it is left."""
    page.goto(f"{address}theme.css")
    page.evaluate("sessionStorage.clear()")
    opened(page, address)


@contextmanager
def window(context: BrowserContext, address: str | None) -> Iterator[Page]:
    """A window with the recorded run, or an empty one if ``address`` is None. At the end it must have had no errors, and its
    storage is cleared.

    Windows of one context share the compiled scripts of the page.
    """
    page = new_page(context)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: (errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    if address is not None:
        opened(page, address)
    try:
        yield page
    finally:
        if not page.is_closed():
            page.evaluate("localStorage.clear()")
            page.close()
    assert errors == []


def put_back(page: Page, address: str) -> None:
    """Return to Explore with the recorded run and no selection; reopen the page if a test has changed more than that."""
    page.get_by_role("tab", name="Explore").click()
    expect(page.locator("#explorer #tree")).to_be_visible()
    page.evaluate("document.activeElement.blur()")  # a focused tab would handle the keys itself
    page.mouse.move(0, 0)
    for _ in range(6):  # for a menu, Find, playback, the node, Details and the step
        page.keyboard.press("Escape")
    expect(view(page)).to_have_attribute("data-pinned", "")
    fold(page)
    header, prompt = presets.opening().header, str(presets.opening().header["prompt"])
    same = view(page).get_attribute("data-run") == header["run"]
    same = same and page.locator("#prompt textarea").input_value() == prompt
    same = same and page.locator("#method input").input_value() == d2sd.METHODS[header["method"]].name
    if not same or page.locator("#notice").is_visible() or page.locator("#runs li").count() > 1:
        reopened(page, address)


def unfold(page: Page) -> None:
    """Open the drawer of Explore: method, settings and runs."""
    closed = page.locator("#fold button[aria-expanded=false]")
    if closed.is_visible():
        closed.click()
        expect(page.locator("#drawer")).to_be_visible()


def fold(page: Page) -> None:
    """Close the drawer, which covers the elements below it."""
    if page.locator("#drawer").is_visible():
        page.locator("#drawer .close-fold").click()
        expect(page.locator("#drawer")).to_be_hidden()


def set_number(page: Page, elem_id: str, value: object) -> None:
    field = page.locator(f"#{elem_id} input[type=number]")
    if not field.is_visible():
        unfold(page)
    field.fill(str(value))
    field.blur()
    fold(page)


def choose_from(page: Page, elem_id: str, label: str) -> None:
    if not page.locator(f"#{elem_id}").is_visible():
        unfold(page)
    page.locator(f"#{elem_id} input").click()
    page.get_by_role("option", name=label, exact=True).click()
    fold(page)


def choose_own_folder(page: Page) -> None:
    """Choose a folder of one's own as the models, which opens the drawer and focuses the folder's field."""
    page.locator("#model input").click()
    page.get_by_role("option", name="a folder of your own").click()
    expect(page.get_by_label("Folder with target/")).to_be_focused()


def choose_method(page: Page, method: str) -> None:
    choose_from(page, "method", next(title for title, name in ordered(d2sd.METHODS) if name == method))


def start(page: Page, prompt: str, tokens: int | None = None) -> str:
    """Fill in the prompt, run, wait until the new run's first step is shown; returns the run id."""
    old = view(page).get_attribute("data-run")
    page.locator("#prompt textarea").fill(prompt)
    if tokens:
        set_number(page, "max-tokens", tokens)
    page.locator("#run").click()
    expect(view(page)).not_to_have_attribute("data-run", old or "")
    expect(view(page)).to_have_attribute("data-steps", re.compile(r"[1-9]"))
    return view(page).get_attribute("data-run") or ""


def finished(page: Page) -> None:
    """Wait for the end of the shown run, and of its job."""
    expect(view(page)).to_have_attribute("data-live", "no")
    expect(page.locator("#run")).to_have_text("Run")


def output_text(page: Page) -> str:
    return "".join(page.locator("#text .tok").all_text_contents())


def pin(page: Page, step: int, node: int | str | None = None) -> None:
    """Select a step, as links do."""
    event = "(shown, detail) => shown.dispatchEvent(new CustomEvent('explorer:select', { detail }))"
    view(page).evaluate(event, {"step": step, "node": node})
    expect(view(page)).to_have_attribute("data-pinned", str(step))


def written(page: Page, words: str) -> None:
    """Wait until the text of the run is ``words``."""
    text = "() => [...document.querySelectorAll('#text .tok')].map((e) => e.textContent).join('')"
    page.wait_for_function(f"words => ({text})() === words", arg=words)


def upload(page: Page, name: str, content: bytes) -> None:
    page.locator("#last input[type=file]").set_input_files(
        {"name": name, "mimeType": "application/octet-stream", "buffer": content}
    )


def problem(page: Page) -> Locator:
    """Returns the notice, which says what to check."""
    return page.locator("#notice textarea")


MARK = """(host, place) => {
  for (const { type, customdata, x, y, xaxis, yaxis } of host._fullData) {
    const across = host._fullLayout[(xaxis || 'x').replace('x', 'xaxis')];
    const down = host._fullLayout[(yaxis || 'y').replace('y', 'yaxis')];
    if (!customdata) continue;
    const marks = type === 'heatmap' ? customdata.flatMap((row, b) => row.map((number, a) => [number, a, b])) : customdata.map((number, n) => [number, x[n], y[n] / 2]);
    const mark = marks.find(([number]) => number === place);
    if (!mark) continue;
    const { left, top } = host.getBoundingClientRect();
    return [left + across._offset + across.l2p(mark[1]), top + down._offset + down.l2p(mark[2])];
  }
}"""


# by tab: an element that exists once the tab is drawn
DRAWN = {
    "Explore": "#tree g.node",
    "Race": "#race .track",
    "Calibrate": "#measure",
    "Learn": "#learn [data-ready=yes]",
}
# waits for the end of every animation that has one
STILL = """async () => {
  const roots = [document, ...[...document.querySelectorAll('*')].map((e) => e.shadowRoot).filter(Boolean)];
  const ends = ({ playState, effect }) => playState === 'running' && effect.getComputedTiming().endTime < Infinity;
  const moving = roots.flatMap((root) => root.getAnimations()).filter(ends);
  await Promise.all(moving.map((animation) => animation.finished.catch(() => {})));
}"""


def open_tab(page: Page, name: str) -> None:
    """Open a tab; wait until it is drawn and its animations have ended."""
    page.get_by_role("tab", name=name, exact=True).click()
    expect(page.locator(DRAWN[name]).first).to_be_visible()
    page.evaluate(STILL)


def drawn_figure(page: Page, figure: str) -> Locator:
    """Scroll this figure of Calibrate into view, which draws it; returns its element."""
    host = page.locator(f"#calibration [data-figure={figure}] .plot")
    host.evaluate("e => e.closest('details')?.setAttribute('open', '')")
    host.scroll_into_view_if_needed()
    expect(host.locator(".main-svg").first).to_be_visible()
    return host


def click_mark(page: Page, figure: str, place: int) -> None:
    """Click a bar or a cell with the pointer."""
    host = drawn_figure(page, figure)
    expect(host.locator(".nsewdrag").first).to_be_attached()
    x, y = host.evaluate(MARK, place)
    page.mouse.move(x, y)
    hovered = "([host, place]) => host._hoverdata?.some(({ customdata }) => customdata === place)"
    page.wait_for_function(hovered, arg=[host.element_handle(), place])
    page.mouse.click(x, y)


def list_steps(page: Page, figure: str, place: int) -> None:
    """Click the number of a bar or a cell in the figure's table."""
    box = page.locator(f"#calibration [data-figure={figure}]")
    table = box.get_by_role("button", name="Table", exact=True)
    if table.get_attribute("aria-pressed") == "false":
        table.click()
    box.locator(f".numbers button[data-place='{place}']").click()


def measure_what(page: Page, label: str) -> None:
    """Choose what Calibrate measures. Prompts of one's own and files have fields in the drawer, which then opens."""
    fold(page)
    field = page.locator("#source input")
    same = field.input_value() == label
    field.click()
    page.get_by_role("option", name=label, exact=True).click()
    if label in ("Prompts of my own", "Trace files and logs"):
        if same:  # the drawer opens by itself only after a change
            unfold(page)
        expect(page.locator("#own-prompts" if label.startswith("Prompts") else "#traces")).to_be_visible()


def measure_own(page: Page, prompts: str, done: int = 0) -> None:
    """Measure these prompts, one a line, with up to 2000 tokens each; wait until at least ``done`` are finished. After “🙂”
    the bundled model does not stop by itself, so a hundred such prompts take longer than any test."""
    page.get_by_role("tab", name="Calibrate").click()
    measure_what(page, "Prompts of my own")
    page.locator("#own-prompts textarea").fill(prompts)
    set_number(page, "how-many", 100)
    set_number(page, "max-tokens", 2000)
    page.locator("#measure").click()
    expect(page.locator("#calibration .what").first).to_have_text(re.compile(rf": ([{done}-9]|\d\d) of 100 done"))
