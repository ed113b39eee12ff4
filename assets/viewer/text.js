// The prompt and every committed token, coloured and underlined by proposer.

import { BONUS } from "./step.js";
import { button, h } from "./dom.js";

const LONG_PROMPT = 72; // characters; of longer prompts only the end is shown
const MANY_LINES = 60; // from this number on, lines out of view are not laid out
const FEW_LINES = 3; // boxes with fewer lines show none above the revealed token
const SETTLE = 120; // ms until lines that came into view are laid out

/** Text as nodes, with visible line breaks. */
export const broken = (text) =>
  text
    .toWellFormed()
    .split("\n")
    .flatMap((part, at) => (at ? [h("i.newline", { ariaHidden: true }), "\n", part] : [part]));

/** Draws the text of a run; `tokens` of the result: the elements of the tokens, by step. */
export function textView(host, store, state) {
  const tokens = [];
  let marked, opening, line, written; // tokens of the shown step; tokens of prefill; the last line; the prompt as shown
  let from; // for each class the first step whose tokens have it
  let place, scrolled; // where to scroll, and the scroll position
  let resting = 0; // timer of a resting pointer
  const prompt = h("span.prompt", { dir: "auto" });
  const output = h("div.output", {});
  host.append(prompt, output);
  reset();

  function reset() {
    clearTimeout(resting); // the preview of a step of the previous run
    tokens.length = scrolled = 0;
    [marked, opening, line, written] = [[], [], null, null];
    from = { unasked: null, ahead: null };
    prompt.replaceChildren();
    output.replaceChildren();
    output.classList.remove("long");
  }

  /** Adds new steps; existing tokens are not touched. */
  function append(unfolded) {
    const words = `${unfolded} ${store.prompt}`;
    if (words !== written) showPrompt(unfolded);
    written = words;
    if (!opening.length) opening = store.opening.map((c) => addToken(c, null, 0));
    for (let i = tokens.length; i < store.length; i += 1)
      tokens.push(store.committed[i].map((c, at) => addToken(c, i, at)));
  }

  function showPrompt(unfolded) {
    prompt.classList.toggle("asked", store.header.config.chat === true); // the text answers the prompt instead of continuing it
    const all = store.prompt.toWellFormed();
    if (unfolded || all.length <= LONG_PROMPT) return prompt.replaceChildren(all);
    const title = "Show the whole prompt";
    const more = button("…", { class: "more", title, ariaLabel: title }, () => state.set({ unfolded: true }));
    return prompt.replaceChildren(more, all.slice(-LONG_PROMPT).trimStart());
  }

  /** Appends a token, coloured and underlined by proposer. Each line is a separate block, so that a long text is laid out line by line.
   *  `step`: null for prefill. */
  function addToken({ text, proposer }, step, at) {
    if (!line) {
      line = h("div.line", {});
      output.append(line);
      if (output.childElementCount === MANY_LINES) output.classList.add("long");
    }
    const kind = `tok ${proposer}${at ? "" : " border"}${text ? "" : " empty"}`;
    const span = h("span", { class: kind, dir: "auto", "data-index": at, "data-step": step }, ...broken(text));
    // a run may arrive in several slices, after `classify`
    for (const name of Object.keys(from)) span.classList.toggle(name, isIn(name, step));
    line.append(span);
    if (text.endsWith("\n")) line = null;
    return span;
  }

  const isIn = (name, step) => from[name] !== null && step !== null && step >= from[name];

  /** `hidden`: the first step whose text is hidden; `moving`: whether the step is shown at a place before its end, so that later text is
   *  pale. */
  function show({ unfolded, at, pinned, hidden, moving, top, following }) {
    append(unfolded);
    for (const token of marked) token.classList.remove("shown", "pinned");
    marked = tokens[at] ?? [];
    for (const token of marked) {
      token.classList.add("shown");
      token.classList.toggle("pinned", at === pinned);
    }
    classify("unasked", hidden);
    classify("ahead", moving ? at + 1 : null);
    place = { top, end: following || (hidden !== null && hidden <= at) };
  }

  function classify(name, first) {
    if (first === from[name]) return;
    from[name] = first;
    tokens.forEach((some, step) => some.forEach((token) => token.classList.toggle(name, isIn(name, step))));
  }

  /** Scrolls to `top`, else to the end of a followed run or before a hidden step, else by whole lines until the shown step is on the
   *  second line. */
  function scroll() {
    const [token] = marked;
    if (!host.clientHeight) return;
    let { top } = place;
    if (top === null && place.end) top = host.scrollHeight;
    else if (top === null && token) {
      const high = parseFloat(getComputedStyle(host).lineHeight);
      const box = token.getClientRects()[0] ?? token.getBoundingClientRect();
      const above = (box.top + box.bottom) / 2 - host.getBoundingClientRect().top + host.scrollTop;
      top = (Math.floor(above / high) - (host.clientHeight + 1 < FEW_LINES * high ? 0 : 1)) * high;
    }
    if (top !== null) host.scrollTop = top;
    scrolled = host.scrollTop;
  }

  /** The fields of the state that keep the text where it is. */
  function kept() {
    const { scrollHeight, scrollTop, clientHeight } = host;
    return { top: state.following && scrollHeight - scrollTop - clientHeight < 40 ? null : scrollTop };
  }

  const stepOf = ({ target }) => {
    const { step } = target.closest?.(".tok")?.dataset ?? {};
    return step ? Number(step) : null;
  };
  host.addEventListener("pointermove", (event) => {
    if (event.pointerType === "touch") return;
    clearTimeout(resting);
    const step = stepOf(event);
    // not "pointerover", which also fires when the text scrolls below a resting pointer. After a short delay, so that a pointer that
    // only crosses the text changes nothing
    resting = setTimeout(() => state.preview(step, kept()), 50);
  });
  host.addEventListener("pointerleave", () => {
    clearTimeout(resting);
    state.preview(null, kept());
  });
  host.addEventListener("click", (event) => {
    const step = stepOf(event);
    // selecting text to copy it must not pin a step
    if (step === null || String(getSelection()).length) return;
    clearTimeout(resting);
    const { node } = store.committed[step][event.target.closest(".tok").dataset.index];
    state.pin(step, node ?? BONUS, kept());
  });
  // lines that were never on screen have an estimated height: scroll again when the text comes into view
  new IntersectionObserver(([{ isIntersecting }]) => {
    if (isIntersecting && place) setTimeout(scroll, SETTLE);
  }).observe(host);
  host.addEventListener("scroll", () => {
    if (host.clientHeight && Math.abs(host.scrollTop - scrolled) > 1) state.set(kept());
  });

  const uses = ["data", "unfolded", "at", "pinned", "hidden", "moving", "top", "present", "fresh"];
  return { uses, host, tokens, show, reset, scroll };
}
