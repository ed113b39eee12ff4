// The elements of the view, where they stand, and what its own buttons, lines and legend say.

import { SETTINGS } from "./constants.js";
import { button, h, icon, list, s, text } from "./dom.js";
import { stepSentence } from "./explain.js";
import { withTerms } from "./glossary.js";
import { BONUS } from "./tree_layout.js";
import { count, methodName, visible } from "./words.js";

const SILENCE_MS = 5000;
const LARGE = 2; // times the usual size of type while presenting
const PREDICTED = "predicted boundary: 1 likeliest";
const USUAL = { top_p: 1, seed: 0 }; // values of settings that say nothing
const FULL_SCREEN = "M-5-2V-5H-2M2-5H5V-2M5 2V5H2M-2 5H-5V2";

/** The elements that views draw into and the buttons of the view, by name, all of them in `root`. */
export class Page {
  constructor() {
    const part = (id, label, attributes) => h("div", { id, "aria-label": label, ...attributes });
    this.root = h("section", { class: "explorer", "aria-label": "Explore a run" });
    this.notice = h("p", { class: "notice", role: "alert", hidden: true });
    this.empty = h(
      "p",
      { class: "empty" },
      "Nothing to show yet: run a prompt, and its draft trees appear here step by step.",
    );
    this.spoken = h("p", { class: "spoken", "aria-live": "polite" });
    this.numbers = h("div", { id: "numbers" });
    this.runLabel = h("p", { id: "run-label", dir: "auto" });
    this.text = part("text", "Generated text", { role: "region", tabindex: 0 });
    this.details = part("details", "Details", { role: "region", "aria-live": "polite" });
    this.sentence = h("p", { id: "sentence", dir: "auto" });
    this.lacks = h("p", { class: "empty", hidden: true });
    this.tree = part("tree", "Draft tree: up and down move between branches", { role: "group", tabindex: 0 });
    this.path = h("p", { class: "path", dir: "auto", hidden: true, "aria-label": "The accepted path" });
    this.swipe = h("p", { class: "swipe", hidden: true });
    this.strip = part("strip", "Confidence and boundaries", { role: "group" });
    this.redraft = h("div", { class: "redraft-box", role: "status", hidden: true }); // where the details are far below
    this.games = h("div", {});
    this.timeline = part("timeline", "Steps", { role: "slider", tabindex: 0, "aria-valuemin": 1 });
    this.createButtons();
    this.arrange();
  }

  createButtons() {
    this.follow = button("", { id: "follow" });
    this.quiz = button("Quiz", {
      id: "begin-quiz",
      class: "quiet",
      title: "Guess where the first draft is rejected (Q)",
    });
    this.typed = button("Be the drafter", {
      id: "be-the-drafter",
      class: "quiet",
      title: "Write the tokens that come next, and let the target verify them (B)",
    });
    this.unfold = button("", { id: "unfold", hidden: true });
    // opens and closes the details where a low window has no place for them
    this.openFacts = button("Details", {
      id: "open-facts",
      class: "small",
      title: "The stages of this step, or what is known of its chosen token",
      "aria-expanded": "false",
    });
    this.widen = button("", { id: "widen", class: "small", hidden: true });
    this.fit = button("Fit", { class: "small", title: "Fit the tree into view (F)" });
    this.full = button(icon(FULL_SCREEN), {
      class: "icon",
      title: "Full screen (.)",
      "aria-label": "Full screen",
      hidden: !document.fullscreenEnabled,
    });
    this.help = button("?", {
      class: "icon",
      title: "Words and keys (?)",
      "aria-label": "Show what the words mean, and the keys",
    });
  }

  arrange() {
    const head = (...parts) => h("div", { class: "head" }, ...parts);
    const tools = (...parts) => h("div", { class: "tools" }, ...parts);
    this.deeds = tools(this.quiz, this.typed);
    this.facts = h("div", { class: "facts" }, this.details);
    this.steps = h("div", { class: "steps" }, this.timeline);
    this.finder = h("div", { class: "finding" });
    const drawingTools = tools(this.unfold, this.follow, this.openFacts, this.widen, this.fit, this.full, this.help);
    this.views = h(
      "div",
      { class: "views", hidden: true },
      h("div", { class: "reading" }, this.text, this.runLabel),
      this.facts,
      h(
        "div",
        { class: "drawing" },
        (this.drawingHead = head(this.sentence, drawingTools)),
        this.lacks,
        this.tree,
        this.path,
        this.swipe,
        this.strip,
        this.redraft,
        this.games,
      ),
      this.steps,
      this.numbers,
      this.finder,
      legend(),
    );
    this.root.append(this.notice, this.empty, this.views, this.spoken);
  }

  /** What is said of the step; read out is what was chosen, not every step of a running stream or of the pointer's way. */
  show({ step, fresh, stage, summary, quiet }) {
    if (!fresh) return;
    this.showLacks(step);
    this.showSentence(step, stage);
    if (!quiet) this.spoken.textContent = summary;
  }

  /** A sentence above everything; empty: none. */
  notify(words) {
    this.notice.textContent = words;
    this.notice.hidden = !words;
  }

  /** Where a log holds no tokens, a sentence stands in the place of tree and strip. */
  showLacks(step) {
    const words = step ? step.lacks : "";
    this.lacks.textContent = words && `${words} What is known: how many tokens each step drafted and accepted.`;
    this.lacks.hidden = !words;
    this.tree.hidden = this.strip.hidden = Boolean(words);
  }

  /** What came of the step, or while it comes about what happens at its `stage`. */
  showSentence(step, stage = null) {
    const pieces = stage ? [{ text: `${stage.title} ${stage.more}` }] : step ? stepSentence(step) : [];
    this.sentence.replaceChildren(
      ...(step ? [h("b", {}, `Step ${step.index + 1} `)] : []),
      ...pieces.map((p) => h("span", { class: p.kind || null }, p.text)),
    );
  }

  /** `hidden`: how many nodes of the tree are folded away. */
  showFolding(hidden, unfolded) {
    this.unfold.hidden = !hidden && !unfolded;
    this.unfold.textContent = unfolded ? "Fold" : `+${hidden} nodes`;
    this.unfold.title = unfolded
      ? "Fold the least likely nodes away again"
      : `Show the ${count(hidden, "node")} that are folded away: the drafters gave them the least probability`;
    this.unfold.setAttribute("aria-label", this.unfold.title);
  }
}

/** The chip over the tree: which step is shown and why; a click goes back to following the run. */
export class ChipView {
  constructor(chip, store, selection, player) {
    Object.assign(this, { chip, store, selection, player, waiting: false, timer: 0 });
    chip.addEventListener("click", () => selection.follow());
  }

  /** Something of the run arrived. A run that sends nothing for a while, be it slow or cut off, is not shown as one that goes on. */
  received() {
    clearTimeout(this.timer);
    this.waiting = false;
    this.timer = setTimeout(() => {
      this.waiting = true;
      this.show();
    }, SILENCE_MS);
  }

  show() {
    const { chip, store, selection, waiting } = this;
    const { pinned, chosen } = selection;
    const at = `step ${chosen + 1}`;
    const [state, , label] = [
      ["playing", this.player.playing, `Playing: ${at} ✕`],
      ["pinned", pinned !== null, `Pinned: ${at} ✕`],
      ["live", store.live, waiting ? "Waiting for the next step" : "Following live"],
      ["resting", store.failed, "Stopped"],
      [
        "resting",
        store.finished && store.finished.stop_reason === "stopped",
        `Stopped after ${count(store.length, "step")}`,
      ],
      ["resting", selection.shown === null, count(store.length, "step")],
      ["resting", true, `Step ${selection.shown + 1} of ${store.length}`],
    ].find(([, holds]) => holds);
    chip.dataset.state = state;
    chip.textContent = label;
    chip.title =
      pinned === null
        ? "Click a token, a bar or a node to pin its step"
        : store.live
          ? "Release and follow live (Esc)"
          : "Release (Esc)";
  }
}

/** On a narrow screen, where the tree has slim columns: what they are, how to see all, and the accepted path in full words. */
export class PathView {
  constructor(page, selection, tree, strip) {
    Object.assign(this, { page, tree, strip });
    page.path.addEventListener("click", ({ target }) => {
      if (target.dataset.node)
        selection.pin(selection.shown, target.dataset.node === "bonus" ? BONUS : Number(target.dataset.node));
    });
  }

  show({ step, fresh, secret }) {
    const { path } = this.page;
    if (!fresh) return;
    this.showWidth();
    path.hidden = secret || !step || !this.strip.narrow || !this.tree.cut;
    if (path.hidden) return;
    const token = (node, { proposer, text: words }) =>
      h("span", { class: `tok ${proposer}`, "data-node": node }, visible(words, 24));
    const bonus = step.bonus ? token("bonus", { proposer: "target", text: step.bonus.text }) : "";
    path.replaceChildren(
      "Accepted: ",
      ...step.accepted.map((id) => token(id, step.nodes.get(id))).flatMap((made) => [made, " "]),
      bonus,
    );
  }

  showWidth() {
    const { widen, swipe } = this.page;
    const { columns, widened, wordless, cut } = this.tree;
    widen.hidden = !columns.slim && !widened;
    swipe.hidden = !widened && !(columns.slim && (wordless || cut));
    widen.textContent = widened ? "Narrow" : "Widen";
    widen.title = widened ? "The whole block in view" : "Every token readable; swipe to move";
    const read = wordless
      ? "A dot is a token: tap it to read it, or Widen and swipe."
      : "Widen and swipe to read long tokens.";
    swipe.textContent = widened ? "← Swipe the tree to move along it →" : `The whole block is in view. ${read}`;
  }
}

/** Presenting a run on a wall: sentence, tree and strip alone, twice as large, moved by keys or a clicker. */
export class Presenter {
  /** `changed()`: everything is to be drawn anew. */
  constructor(root, changed) {
    Object.assign(this, { root, changed, on: false });
  }

  get scale() {
    return this.on ? LARGE : 1;
  }

  toggle(on = !this.on) {
    this.on = on;
    this.root.classList.toggle("presenting", on);
    this.changed();
  }

  /** Full screen presents as well: a wall is far away. */
  fullScreen() {
    if (document.fullscreenElement) document.exitFullscreen();
    else if (this.root.requestFullscreen) this.root.requestFullscreen().catch(() => {});
  }
}

/** What shapes, lines and colours mean, in the drawing and under the bars of the timeline. */
function legend() {
  const icon = (...parts) =>
    s("svg", { width: 26, height: 16, viewBox: "-13 -8 26 16", "aria-hidden": "true" }, ...parts);
  const box = (rx) => s("rect", { class: "shape", x: -10, y: -6, width: 20, height: 12, rx });
  const item = (words, kind, picture, line) =>
    h("li", { class: kind }, picture, h("span", { class: line ? `under ${line}` : null }, words));
  return h(
    "ul",
    { class: "legend", "aria-label": "Legend" },
    item("first drafter", "first", icon(box(3)), "tok first"),
    item("second drafter", "second", icon(box(6)), "tok second"),
    item(
      "target",
      "target",
      icon(s("polygon", { class: "shape", points: "-11,0 -6,-6 6,-6 11,0 6,6 -6,6" })),
      "tok target",
    ),
    item(
      "accepted: filled",
      "accepted",
      icon(
        s("path", { class: "thick", d: "M-13 0H13" }),
        s("rect", { class: "shape one", x: -10, y: -5, width: 9, height: 10, rx: 2 }),
        s("rect", { class: "shape two", x: 1, y: -5, width: 9, height: 10, rx: 5 }),
      ),
    ),
    item(
      "rejected",
      "rejected",
      icon(
        box(3),
        s("g", { transform: "translate(9,-4)" }, s("circle", { r: 4.5 }), s("path", { d: "M-2-2L2 2M2-2L-2 2" })),
      ),
    ),
    item("not reached", "unreached", icon(box(3))),
    item(PREDICTED, "flagged", icon(s("path", { d: "M-5 8V-7H8L5-2.5L8 2H-5" }))),
    item(
      "re-draft wrote it too",
      "twinned",
      icon(
        s("rect", { class: "shape", x: -10, y: -7, width: 20, height: 11, rx: 3 }),
        s("path", { class: "twin", d: "M-10 7H10" }),
      ),
    ),
    item("true boundary", "truth", icon(s("path", { d: "M0-8V8" }))),
    item(
      "what its confidence head says",
      "headed",
      icon(s("path", { class: "trained", d: "M0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5Z" })),
    ),
    h("li", { class: "space" }, h("b", {}, "␣"), "a space"),
    h("li", { class: "space unlogged" }, h("b", {}, "▯"), "a token that is not in this log"),
  );
}

/** What was run, in a few words: method, models and the settings that are not as they always are. */
export function runWords({ header, seen, length }) {
  const { config, models, method } = header;
  const means = {
    block_size: seen.draft || !length,
    second_block_size: config.second_block_size !== config.block_size,
    num_branches: seen.branches,
    draft_depth: seen.levels,
    draft_top_k: seen.levels,
  };
  const shown = SETTINGS.filter(
    ([, name]) => typeof config[name] === "number" && config[name] !== USUAL[name] && means[name] !== false,
  );
  const [model, drafter] = [models.preset, models.first_drafter].map((name) => text(name) && visible(name, 60));
  const own = !drafter || !seen.draft || drafter.startsWith(`${model}/`);
  const who = [`${methodName(method || "run")}${model && ` on ${model}`}`, own ? "" : `drafter ${drafter}`];
  const block = (name) => (name === "block_size" && config[name] > 1 ? ` (anchor + ${config[name] - 1})` : "");
  const words = [
    ...who,
    ...shown.map(([symbol, name]) => `${symbol} ${config[name]}${block(name)}`),
    config.cost_aware === true ? "quickest here" : "",
    config.chat === true ? "chat" : "",
  ];
  return words.filter(Boolean).join(" · ");
}

/** Says what was run, and takes away what this kind of run never fills: its marks would only be puzzling. */
export class RunView {
  /** `runs`: whether the page can run something. */
  constructor(root, label, store, runs) {
    Object.assign(this, { root, label, store, runs, said: null });
  }

  show() {
    const { store } = this;
    this.say(runWords(store), store.recorded && !store.own);
    const yes = (flag) => (flag || !store.length ? "yes" : "no");
    Object.assign(this.root.dataset, {
      drafts: yes(store.seen.draft || store.seen.levels),
      redrafts: yes(store.seen.second),
      predicts: yes(store.seen.selected),
      headed: store.seen.head ? "yes" : "no",
      levels: yes(store.seen.levels),
      unlogged: ["tokens", "target"].some((part) => list(store.header.missing).includes(part)) ? "yes" : "no",
    });
    const first = this.root.querySelector(".legend .first span");
    if (first.textContent !== store.names.first) first.textContent = store.names.first;
    const flag = this.root.querySelector(".legend .flagged span");
    const name = store.manner.random ? "re-draft, drawn at random" : PREDICTED;
    if (flag.textContent !== name) flag.textContent = name;
  }

  say(words, recorded) {
    const said = `${recorded} ${words}`;
    if (said === this.said) return;
    this.said = said;
    const how = recorded
      ? [h("b", {}, this.runs ? "A recorded run: press Run to do it here." : "A recorded run."), h("br")]
      : [];
    this.label.replaceChildren(...how, ...withTerms(words));
  }
}
