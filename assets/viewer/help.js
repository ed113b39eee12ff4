// The help dialog (legend, glossary, keys), and the actions of the keys.

import { button, closeButton, emit, h } from "./dom.js";
import { GLOSSARY } from "./glossary.js";
import { draftedNode } from "./quiz.js";
import { STAGE_NAMES } from "./stages.js";

export const STORY = 1; // the first chapter of Learn
const OPENING =
  "A drafter guesses ahead. The large model checks all guesses in one pass and accepts those that it would have written itself: the same text, in fewer passes.";

const KEYS = [
  ["← →", "previous, next step"],
  ["↑ ↓", "node in the branch above, below"],
  ["Shift + ← →", "previous, next node on the path"],
  ["Home End", "first, last step"],
  ["Space", "play the stages of the step; pause"],
  [`Shift + ${STAGE_NAMES.map((_, at) => at + 1).join(" ")}`, `stage of the step: ${STAGE_NAMES.join(", ")}`],
  ["W", "show whole branches, or only their beginnings"],
  ["F", "fit the tree"],
  ["+ −", "zoom the tree in, out"],
  ["N P", "next, previous step of the kind chosen in Find"],
  ["T", "present: text, sentence and drawing fill the screen"],
  ["Q", "quiz: guess where the first draft is rejected; answer with 1 to 9, Enter on a token, or 0 for nowhere"],
  ["Backspace", "in the quiz with Hands: take a vote back; Enter reveals the answer"],
  ["B", "be the drafter: type into the text what comes next; Enter verifies it, Shift + Enter starts a line, Esc ends"],
  [
    "Tab",
    "go to the positions under the drawing where a second draft can start; ← → choose one, Enter shows what a second draft from there would have added",
  ],
  ["Esc", "leave the present view, close what was opened last, stop playing, or release the step"],
  ["?", "this list"],
];

/** The dialog. `legend`: an element; `served`: whether prompts can be run; `tours`: whether to link to Learn. */
export function helpView(host, state, legend, { served, tours }) {
  const close = () => box.close();
  const leave = (words, kind, act) => button(words, { class: kind }, () => [close(), act()]);
  const story = () => emit(box, "explorer:learn", { chapter: STORY, step: state.shown });
  const begin = () => emit(box, "explorer:begin");
  const row = (word, meaning) => h("div", {}, h("dt", {}, ...[word].flat()), h("dd", {}, meaning));
  const named = (keys) => keys.split(" ").map((k) => (k === "+" && keys !== "+ −" ? " + " : h("kbd", {}, k)));
  const tools = [tours && leave("Show me in 2 minutes", "main", story), served && leave("Try it", "quiet", begin)];
  const box = h(
    "dialog.help",
    {
      ariaLabel: "Words and keys",
      onclick: ({ target }) => target === box && close(),
      onclose: () => state.set({ help: false }),
    },
    closeButton("Close", close),
    h("div.opening", {}, h("p", {}, OPENING), h("div.tools", {}, ...tools)),
    h("h3", {}, "Shapes"),
    legend,
    h("h3", {}, "Words"),
    h("dl.words", {}, ...Object.entries(GLOSSARY).map(([word, meaning]) => row(word, meaning))),
    h("h3", {}, "Keys"),
    h("dl", {}, ...KEYS.map(([keys, meaning]) => row(named(keys), meaning))),
    h("p", {}, "Mouse: hover to preview, click to pin, scroll to zoom the tree, drag to pan it."),
  );
  host.append(box);

  function show({ help }) {
    if (help && !box.open) box.showModal();
    else if (!help) box.close();
  }

  return { show };
}

// Keys work while the view is visible, unless the focused element uses keys itself.
const TAKES_TYPING =
  "input, textarea, select, [contenteditable='true'], [role='textbox'], [role='combobox'], [role='listbox']";

const OWN_KEYS = "[role='tablist'], [role='menu'], [role='slider'], [role='radiogroup'], video, audio";

/** Whether the view handles keys while the focus is on `target`. */
export function handlesKeysOf(element, target) {
  if (target === document.body || element.contains(target)) return true;
  return Boolean(target.closest("button, a, summary")) && !target.closest(OWN_KEYS);
}

/** The names of a key event in `keyActions`, the preferred one first. Shift + digit means a stage, but types a digit on some layouts. */
export function keyNames({ key, code, shiftKey }) {
  const name = (shiftKey && key.startsWith("Arrow") ? "Shift" : "") + (key.length === 1 ? key.toLowerCase() : key);
  return [...((shiftKey && /(?<=^Digit)[1-6]$/.exec(code)) || []).map((digit) => `Stage${digit}`), name];
}

/** `act`: functions by key name; unless one returns false, the key's default action is prevented. */
export function listenForKeys(element, act) {
  const onKey = (event) => {
    if (!element.isConnected) {
      document.removeEventListener("keydown", onKey);
      return;
    }
    const target = event.target instanceof Element ? event.target : document.body;
    if (
      !handlesKeysOf(element, target) ||
      !element.offsetParent ||
      event.defaultPrevented ||
      event.ctrlKey ||
      event.metaKey ||
      event.altKey
    )
      return;
    const closes = event.key === "Escape" && target.matches("select"); // the list of Find
    if ((target.closest(TAKES_TYPING) && !closes) || target.closest("dialog[open]")) return;
    // a hidden button, such as one in a dialog that was just closed, can keep the focus for a while
    const button = target.closest("button, a");
    if ([" ", "Enter"].includes(event.key) && button && button.getClientRects().length) return;
    if (keyNames(event).some((name) => act[name] && act[name]() !== false)) event.preventDefault();
  };
  document.addEventListener("keydown", onKey);
}

export function keyActions({ store, state, page, tree, viewport, finder, quiz, typed, redraft, player }) {
  const toNode = (direction) => {
    const { shown, shownNode } = state;
    const node = quiz.asking
      ? draftedNode(store.step(shown), shownNode, ["left", "up"].includes(direction) ? -1 : 1)
      : tree.neighbour(shownNode, direction);
    if (shown === null || node === null) return;
    state.pin(shown, node);
    tree.reveal(node);
  };
  /** Begins or ends the present view, full screen unless that is refused. The end of full screen ends it too. */
  const present = () => {
    document.activeElement.blur(); // or Space would press the button again instead of playing
    if (document.fullscreenElement) return document.exitFullscreen();
    if (!state.now.present) page.root.requestFullscreen?.().catch(() => {});
    return state.showPresent(!state.now.present);
  };
  const zoom = (factor) => {
    const box = viewport.host.getBoundingClientRect();
    viewport.zoom(factor, box.left + box.width / 2, box.top + box.height / 2);
  };
  return {
    ArrowLeft: () => state.move(-1),
    ArrowRight: () => state.move(1),
    ArrowUp: () => toNode("up"),
    ArrowDown: () => toNode("down"),
    ShiftArrowLeft: () => toNode("left"),
    ShiftArrowRight: () => toNode("right"),
    Home: () => state.pin(0),
    End: () => state.pin(store.length - 1),
    " ": () => player.toggle(),
    ...Object.fromEntries(STAGE_NAMES.map((_, at) => [`Stage${at + 1}`, () => player.jump(at)])),
    f: () => state.set({ zoom: null }),
    w: () => state.showWhole(!state.now.whole),
    "+": () => zoom(1.2),
    "=": () => zoom(1.2),
    "-": () => zoom(1 / 1.2),
    "?": () => state.set({ help: !state.now.help }),
    n: () => finder.go(1),
    p: () => finder.go(-1),
    t: present,
    q: () => quiz.toggle(),
    b: () => typed.toggle(),
    Enter: () => quiz.enter(tree.step?.nodes.get(state.shownNode)?.depth),
    Backspace: () => quiz.takeBack(),
    ...[...Array(10).keys()].map((digit) => () => quiz.type(digit)), // by digit
    // keys of a presentation remote; when not presenting, they scroll the page
    PageDown: () => state.now.present && state.move(1),
    PageUp: () => state.now.present && state.move(-1),
    Escape: () => {
      if (state.now.present) present();
      else if (state.now.why) state.set({ why: false });
      else if (state.now.finder) state.set({ finder: false });
      else if (state.now.place !== null) player.seek(Infinity);
      else if (!redraft.release()) state.release();
    },
  };
}
