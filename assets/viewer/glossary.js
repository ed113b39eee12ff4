// The glossary: the meaning of each term, the element for a term, and the tooltip that shows the meanings of terms and settings.

import { clamp, h } from "./dom.js";
import { capital } from "./words.js";

/** Terms that a newcomer may not know, in a useful reading order. */
export const GLOSSARY = {
  "D²SD": "Dual Diffusion Draft speculative decoding: one diffusion drafter drafts, a second one re-drafts",
  token: "a word or a piece of a word; ␣ is a lone space, ↵ a line break",
  "large model":
    "it checks every guess, and the text contains only tokens that it would have written itself; target in settings and commands",
  drafter: "a small network that guesses the next tokens",
  pass: "one run of the large model; one run of a drafter is a draft pass",
  "one-token pass": "a pass over one token: the unit of cost",
  "one by one": "without drafts, a one-token pass for each token; plain decoding in settings and commands",
  step: "one round: draft, re-draft, verify all drafts in one pass, and write the accepted tokens",
  accepted: "draft tokens that were taken",
  written: "all tokens of a step, the large model’s own included",
  anchor: "the last certain token: everything drafted in a step continues from it",
  c: "confidence: how sure the drafter is of its own token, from 0 to 1",
  boundary: "the place where the large model rejects the first draft: predicted before its pass, known after",
  "r(i)": "predicted chance that exactly i drafted tokens are accepted; “all”: that all are",
  "second draft": "a re-draft: it starts where the first draft will probably break",
  bonus: "the large model’s own token after the accepted ones; it is the next anchor",
  α: "acceptance length: tokens written per step, averaged over the run",
  γ: "tokens in a block: the anchor and γ − 1 drafted tokens",
  K: "likely boundaries that get a re-draft",
  B: "maximum number of drafted tokens that the large model reads in a step",
  T: "temperature: at 0 the large model takes its likeliest token, above 0 it samples",
  "break even": "α equals the cost of a step in one-token passes; with a larger α, a method is faster than one by one",
  "●": "rescued: a second draft started exactly where the first one broke, and added tokens",
  "○": "right place, no gain: a second draft started there, but added nothing",
  "✕": "wrong place: no second draft started there",
  "▲": "the whole first draft was accepted",
};

/** A term that shows its meaning when hovered or focused; `shown`: its form in the text. */
export const term = (word, shown = word, meaning = GLOSSARY[word]) =>
  h("span.term", { tabindex: 0, role: "button", "data-meaning": meaning }, shown);

const IN_PROSE = /(?<![\p{L}“])(anchor|bonus|α|γ|K|r\(i\))(?![\p{L}₂])/u; // not inside longer words

/** Splits prose into text and terms; the first occurrence of a term is an array. `seen`: terms that occurred before; updated. */
export function wordsIn(prose, seen = new Set()) {
  return prose.split(IN_PROSE).map((piece, at) => {
    if (at % 2 === 0 || seen.has(piece)) return piece;
    seen.add(piece);
    return [piece];
  });
}

/** Like `wordsIn`, as text and elements. */
export const withTerms = (prose, seen) =>
  wordsIn(prose, seen).map((piece) => (Array.isArray(piece) ? term(piece[0]) : piece));

const LABEL = "[data-testid='block-info'], .checkbox-container span";

/** The term or setting label at an event target, and its meaning. `focused`: a target inside a setting's field counts too. */
function meaningAt(target, focused, settings) {
  const word = target.closest("[data-meaning]");
  if (word) return [word, word.dataset.meaning];
  const field = target.closest(".small-numbers .block");
  const label = focused ? field?.querySelector(LABEL) : field && target.closest(LABEL);
  return [label, label && settings[capital(label.textContent.trim())]];
}

/** Shows the meaning of any term in the document when it is hovered, focused or tapped. `settings`: meanings of settings, by label. */
export function explainTerms(settings = {}) {
  const box = h("div.panels.meaning", { role: "tooltip", id: "meaning", hidden: true });
  let shown = null;
  const hide = () => {
    box.hidden = true;
    shown?.removeAttribute("aria-describedby");
    shown = null;
  };
  const show = ({ target, type }) => {
    const [element, words] = target instanceof Element ? meaningAt(target, type === "focusin", settings) : [];
    if (element && element === shown) return;
    hide();
    if (!words) return;
    shown = element;
    element.setAttribute("aria-describedby", "meaning");
    (element.closest("dialog") ?? document.fullscreenElement ?? document.body).append(box);
    box.textContent = `${capital(words)}.`;
    box.hidden = false;
    place(box, element.getBoundingClientRect());
  };
  for (const event of ["pointerover", "focusin", "click"]) document.addEventListener(event, show);
  for (const event of ["scroll", "input"]) addEventListener(event, hide, { capture: true, passive: true });
  // before others, so that Escape closes nothing else
  const close = (event) => event.key === "Escape" && shown && (hide(), event.stopPropagation());
  addEventListener("keydown", close, true);
}

function place(box, { left, top, bottom }) {
  const { offsetWidth: width, offsetHeight: height } = box;
  box.style.left = `${clamp(left, 8, innerWidth - width - 8)}px`;
  box.style.top = `${top - height - 6 > 4 ? top - height - 6 : bottom + 6}px`;
}
