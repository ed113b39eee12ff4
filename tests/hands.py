"""Random hands on the view of a run: what is drawn must depend on the state alone, not on the way to it.

A sequence of presses, drags and keys at real coordinates is played on one page. After each action, a new view on a second page, which
has drawn nothing before, draws the state of the first. Both must show the same words, places, opacities and colours.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from tests.chromium import new_page

Action = tuple[Any, ...]
SIZES = [(1440, 900), (1280, 720), (390, 844)]

# by weight: what is pressed, in the middle of one of its visible elements
PRESSED = {
    ".play": 6,
    ".way li button": 6,
    ".way input": 5,
    "#tree g.node": 8,
    "#tree g.more": 5,
    "#text .tok": 6,
    "#timeline": 6,
    "#strip": 3,
    ".places button": 3,
    ".redraft-box button": 3,
    "#whole": 4,
    "#open-facts": 4,
    ".facts .close": 2,
    "#fit": 2,
    "#widen": 3,
    "#follow": 3,
    ".gutter button:last-child": 3,
    ".finder button": 5,
    "#begin-quiz": 4,
    "#be-the-drafter": 3,
    "#present": 2,
    ".guess button": 8,
    "#text .typing": 2,
    ".share": 2,
    ".why-open": 5,
    ".pays .passes": 3,
    ".by-hand input": 5,
    ".pays .close": 2,
    ".theme": 2,
    "#text .more": 1,
}
KEYS = (  # frequent keys stand twice
    "ArrowRight ArrowLeft ArrowRight ArrowUp ArrowDown Shift+ArrowRight Shift+ArrowLeft Home End Space Space "
    "Shift+Digit1 Shift+Digit2 Shift+Digit3 Shift+Digit4 Shift+Digit5 Shift+Digit6 "
    "w w t t f + - n p q q b 0 1 3 ? Escape Escape Enter Backspace Tab PageDown"
)
DRAGGED = [".way input", ".way input", "#tree", "#timeline", ".pays .passes"]

# Delays after which a pointer counts as resting are cut, so that a test need not wait for them.
QUICK = """(() => { const later = window.setTimeout; window.setTimeout = (act, ms = 0, ...more) => later(act, ms <= 250 ? 0 : ms, ...more); })();
window.viewOf = () => {
  const stage = document.querySelector('#tour .stage, #learn .stage');
  const roots = [document, ...(stage?.shadowRoot ? [stage.shadowRoot] : [])];
  const views = roots.flatMap((root) => [...root.querySelectorAll('*')].filter((e) => e.explorer));
  return (views.find((e) => e.checkVisibility()) ?? views[0]).explorer;
};
window.frames2 = () => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)));
/** The lines of the shown run, with a head for another view. */
window.linesOf = () => {
  const { instructive, opened } = viewOf().store;
  const [head, ...lines] = viewOf().store.valueAt(instructive).split('\\n');
  return [JSON.stringify({ ...JSON.parse(head), wanted: null, opened }), ...lines].join('\\n');
};
/** Replaces the view by a new one of the same run, which has drawn nothing yet. */
window.renewed = async () => {
  const { constructor, element, served, told, address, page } = viewOf();
  const lines = linesOf();
  const made = new constructor({ element, trigger() {}, served, tours: !page.explain.hidden, told, address: { ...address, game: '', play: false } });
  made.page.root.classList.toggle('told', told);
  if (told) made.page.root.dataset.told = document.querySelector('#tour [data-chapter], #learn [data-chapter]').dataset.chapter;
  element.explorer = made;
  made.store.feed(lines);
  while (!made.store.complete) await frames2();
};
/** Waits until the view has drawn itself at the size that its last drawing gave it. */
window.settled = async () => {
  const view = viewOf();
  const { tree } = view.page;
  do await frames2();
  while (view.drawn.fresh !== view.fresh || Math.abs(tree.clientHeight - view.viewport.size.height) > 1);
};
"""
# The middle of one of the visible elements that match, or null. `at`: which of them, from 0 to 1; wide elements are pressed at `at` too.
PLACE = """([selector, at, across]) => {
  const inside = ({ left, top, width, height }) => width > 1 && height > 1 && left >= 0 && top >= 0 && left + width <= innerWidth && top + height <= innerHeight;
  const all = [...document.querySelectorAll(selector)].filter((e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && !e.disabled && inside(e.getBoundingClientRect()));
  if (!all.length) return null;
  const box = all[Math.min(all.length - 1, Math.floor(at * all.length))].getBoundingClientRect();
  return [box.left + box.width * (across ?? 0.5), box.top + box.height / 2];
}"""
# All that the view shows: for each visible element with own words or a shape its words, place, opacity and colours.
SHOWN = """() => {
  for (const animation of document.getAnimations()) animation.finish();
  const view = viewOf();
  const { root, pays } = view.page;
  const frame = root.getBoundingClientRect();
  const shown = [];
  const SHAPES = 'rect, path, circle, line, polygon, polyline, canvas, input, select';
  const walk = (element, opacity, dx, dy) => {
    if (element.matches('.spoken, .tip, dialog, option, script, style')) {
      if (element.matches('dialog')) shown.push(['dialog', String(element.open), 0, 0, 0, 0, 1, '']);
      return;
    }
    const style = getComputedStyle(element);
    if (style.display === 'none') return;
    const clear = opacity * Number(style.opacity);
    if (clear < 0.01) return;
    const box = element.getBoundingClientRect();
    const words = [...element.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data).join('|').trim();
    if (style.visibility !== 'hidden' && box.width + box.height > 0 && (words || element.matches(SHAPES))) {
      const said = element.matches('canvas') ? element.toDataURL() : element.value && !element.matches('button, li') ? `${words} ${element.value}` : words;
      const { color, fill, stroke, backgroundColor, fontWeight, strokeDasharray } = style;
      const name = `${element.tagName}.${element.getAttribute('class') ?? ''}`.replace(/ (open|pinned)\\b/g, '');
      shown.push([name, said, box.left - frame.left + dx, box.top - frame.top + dy, box.width, box.height, clear, [color, fill, stroke, backgroundColor, fontWeight, strokeDasharray].join(' ')]);
    }
    const scrolls = element.id !== 'text' && (element.scrollTop || element.scrollLeft);
    for (const child of element.children) walk(child, clear, dx + (scrolls ? element.scrollLeft : 0), dy + (scrolls ? element.scrollTop : 0));
  };
  for (const part of view.told ? [root] : [root, pays]) walk(part, 1, 0, 0);
  return shown;
}"""
READ = f"""async () => {{
  await frames2();
  await settled();
  return [JSON.stringify(viewOf().drawnState), document.body.className, ({SHOWN})()];
}}"""
# Draws a state and compares what is then shown with `there`; returns the first differences. A step that plays is held at its place until
# the view has settled, since a later place may give it another size.
COMPARE = f"""async ([state, theme, there]) => {{
  document.body.className = theme;
  await renewed();
  viewOf().draw({{ ...JSON.parse(state), playing: false }});
  await frames2();
  await settled();
  viewOf().draw(JSON.parse(state));
  const here = ({SHOWN})();
  const key = (one) => one.slice(0, 2).join(' ');
  const near = (a, b) => a.every((value, n) => (typeof value === 'number' ? Math.abs(value - b[n]) <= (n === 6 ? 0.02 : 1) : value === b[n]));
  const left = new Map();
  for (const one of here) left.set(key(one), [...(left.get(key(one)) ?? []), one]);
  const differences = [];
  for (const one of there) {{
    const same = left.get(key(one)) ?? [];
    const at = same.findIndex((other) => near(one, other));
    if (at >= 0) same.splice(at, 1);
    else differences.push(['pressed', ...one]);
  }}
  for (const rest of left.values()) for (const one of rest) differences.push(['fresh', ...one]);
  return differences.slice(0, 6).map((one) => one.map((value) => String(value).slice(0, 160)).join(' · '));
}}"""


def sequence(seed: int, length: int, phone: bool = False) -> list[Action]:
    """Random actions. A seed always gives the same ones."""
    chance = random.Random(seed)
    weights = [weight * (4 if phone and kind == "#widen" else 1) for kind, weight in PRESSED.items()]
    any_of = chance.choice
    kinds: list[tuple[float, Callable[[], Action]]] = [  # each with the share of the actions up to it
        (0.56, lambda: ("press", chance.choices(list(PRESSED), weights)[0], round(chance.random(), 3))),
        (0.84, lambda: ("key", any_of(KEYS.split()))),
        (0.91, lambda: ("drag", any_of(DRAGGED), round(chance.random(), 3), round(chance.random(), 3))),
        (0.94, lambda: ("wheel", any_of(["#tree", "#timeline", "#text"]), any_of([-120, 120, 40]))),
        (0.97, lambda: ("type", any_of(["the bird", " I will", "x"]))),
        (1.0, lambda: ("wait", any_of([80, 300, 700]))),
    ]
    rolls = (chance.random() for _ in range(length))
    return [next(make for share, make in kinds if roll < share)() for roll in rolls]


def perform(page: Page, action: Action) -> None:
    """Perform an action with the mouse or the keyboard. Without a visible element to press, nothing happens."""
    kind, value, *rest = action
    simple = {"key": page.keyboard.press, "type": page.keyboard.type, "wait": page.wait_for_timeout}
    if kind in simple:
        simple[kind](value)
        return
    at, *end = rest
    wide = value in (".way input", "#timeline", "#strip", ".pays .passes", ".by-hand input")
    place = page.evaluate(PLACE, [value, 0, 0.5] if kind == "wheel" else [value, at, at if wide else None])
    if not place:
        return
    page.mouse.move(*place)
    if kind == "wheel":
        page.mouse.wheel(0, at)
        return
    page.mouse.down()
    if kind == "drag":
        x, y = page.evaluate(PLACE, [value, end[0], end[0]])
        page.mouse.move((place[0] + x) / 2, y, steps=2)
        page.mouse.move(x, y)
    page.mouse.up()


@dataclass
class Hands:
    """Two pages with the same run: one that is pressed, one that only draws."""

    pressed: Page
    fresh: Page

    def difference(self) -> list[str]:
        """The first differences between the pages, when pointers are away and animations have ended."""
        self.pressed.mouse.move(3, 3)  # touches nothing of the view
        return self.fresh.evaluate(COMPARE, self.pressed.evaluate(READ))

    def play(self, actions: Sequence[Action]) -> tuple[int, list[str]]:
        """Perform actions until the pages differ; returns how many were performed, and the differences."""
        for done, action in enumerate(actions, 1):
            perform(self.pressed, action)
            if differences := self.difference():
                return done, differences
        return len(actions), []


class OfflineHands:
    """Hands on an HTML file, which is opened again for every sequence."""

    def __init__(self, browser: Browser, path: Path, size: tuple[int, int], **options: Any) -> None:
        width, height = size
        self.context = browser.new_context(viewport={"width": width, "height": height}, **options)
        self.context.add_init_script(QUICK)
        self.errors: list[str] = []
        self.hands = Hands(new_page(self.context), new_page(self.context))
        for page in (self.hands.pressed, self.hands.fresh):
            page.on("pageerror", lambda error: self.errors.append(str(error)))
            page.on("console", lambda message: self.errors.append(message.text))
            page.goto(path.as_uri())
            page.locator("#tree g.node").first.wait_for()

    def check(self, seed: int, length: int) -> str:
        """Play the sequence of a seed; returns a report with the actions up to the first difference, or an empty string."""
        actions = sequence(seed, length, self.hands.pressed.viewport_size["width"] < 640)
        done, differences = self.hands.play(actions)
        problems = differences or self.errors
        return "\n".join([f"seed {seed}: {json.dumps(actions[:done])}", *problems]) if problems else ""

    def close(self) -> None:
        self.context.close()
