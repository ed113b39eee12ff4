// The elements of the view, their arrangement, and the texts of its buttons and legend.

import { SETTINGS } from "./constants.js";
import { button, h, s, text } from "./dom.js";
import { stepStory } from "./explain.js";
import { STAGE_NAMES, stageWords } from "./stages.js";
import { hatching } from "./tree_shapes.js";
import { count, methodName, visible } from "./words.js";

const READ = "The limit B: only the likeliest drafted tokens are verified, because every token takes time";
const SILENCE_MS = 5000;
const USUAL = { top_p: 1, seed: 0 }; // default values, not worth showing

/** The elements that views draw into and the buttons of the view, by name, all below `root`. */
export class Page {
  uses = [
    "data",
    "step",
    "stage",
    "headline",
    "summary",
    "quiet",
    "facts",
    "present",
    "larger",
    "fresh",
    "notice",
    "empty",
    "waits",
  ];

  constructor(store) {
    const part = (id, label, attributes) => h("div", { id, ariaLabel: label, ...attributes });
    const quiet = (label, title, id) => button(label, { id, class: "quiet", title });
    Object.assign(this, {
      store,
      root: h("section.explorer", { ariaLabel: "Explore a run" }),
      notice: h("p.notice", { role: "alert", hidden: true }),
      empty: h("p.empty", {}, "Nothing to show yet: run a prompt, and its draft trees appear here step by step."),
      spoken: h("p.spoken", { ariaLive: "polite" }),
      title: h("h2", {}),
      parts: h("p.parts", {}),
      verdict: h("p.verdict", {}),
      clock: part("clock", "Time of this step, and of its tokens one by one", { role: "group" }),
      text: part("text", "Generated text", { role: "region", tabindex: 0 }),
      lacks: h("p.empty", { hidden: true }),
      tree: part("tree", "Draft tree: the up and down keys move between branches", { role: "group", tabindex: 0 }),
      strip: part("strip", "How sure the drafter was", { role: "group" }),
      redraft: h("div.redraft-box", { role: "status", hidden: true }),
      details: part("details", "Details", { role: "region", ariaLive: "polite" }),
      games: h("div", {}),
      timeline: part("timeline", "Steps", { role: "slider", tabindex: 0, ariaValueMin: 1 }),
      finder: h("div.finding", { hidden: true }),
      numbers: h("div", { id: "numbers" }),
      pays: h("div.explorer.pays", { role: "region", ariaLabel: "When does it pay?", hidden: true }),
      legend: legend(),
      follow: button("", { id: "follow" }),
      find: quiet("Find", "Find steps by outcome, length or time (N, P)"),
      quiz: quiet("Quiz", "Guess where the first draft is rejected (Q)", "begin-quiz"),
      typed: quiet("Be the drafter", "Type the next tokens, and let the large model verify them (B)", "be-the-drafter"),
      openFacts: quiet("Details", "The stages of this step, or details of the selected token", "open-facts"),
      present: quiet("Present", "Text, sentence and drawing fill the screen (T)", "present"),
      explain: quiet("Explain", "This step explained chapter by chapter (in Learn)", "explain"),
      widen: quiet("", "", "widen"),
      fit: quiet("Fit", "Fit the tree into view (F)", "fit"),
      help: quiet("Words & keys", "Meanings of words, and all keys (?)", "words-and-keys"),
    });
    this.arrange(this);
  }

  arrange(parts) {
    const { title, clock, verdict, text, lacks, tree, strip, redraft, games, timeline, finder, numbers } = parts;
    this.tools = h("div.tools", {}, this.fit, this.widen, this.explain, this.openFacts);
    this.moments = h("div.stages-row", {}, this.tools); // the player's bar is added
    this.facts = h("div.facts", {}, this.details);
    this.actions = h("div.tools", {}, this.quiz, this.typed, this.present);
    this.views = h(
      "div.views",
      { hidden: true },
      h("div.headline", {}, h("div", { id: "sentence", dir: "auto" }, title, parts.parts), clock, verdict),
      text,
      this.moments,
      h("div.drawing", {}, lacks, tree, strip, redraft, this.facts),
      games,
      h("div.steps", {}, h("div.gutter", {}, parts.follow, parts.find), timeline, finder),
      numbers,
    );
    this.root.append(this.notice, this.empty, this.views, this.spoken);
  }

  /** Shows the texts of the step, and which parts are open. Screen readers hear stages, and steps that the user chose: not streamed or
   *  hovered ones (`quiet`). */
  show({ step, stage, summary, quiet, headline, facts, present, larger, notice, empty, waits }) {
    const words = stage === null ? null : stageWords(step, stage);
    const name = STAGE_NAMES[stage] ?? "";
    this.root.dataset.stage = name;
    this.root.classList.toggle("presenting", present);
    this.root.style.setProperty("--larger", larger);
    this.present.ariaPressed = present;
    this.facts.classList.toggle("open", facts);
    this.openFacts.ariaExpanded = facts;
    this.notice.textContent = notice;
    this.notice.hidden = !notice;
    this.empty.hidden = !empty;
    this.views.hidden = empty || waits;
    this.showParts();
    this.showLacks(step);
    this.showSentence(step, headline ?? words);
    if (words) this.spoken.textContent = `${name}: ${words.title} ${words.more}`;
    else if (!quiet) this.spoken.textContent = summary;
  }

  /** Tells in data attributes which parts the run has; styles hide everything about missing parts. */
  showParts() {
    const { seen, length } = this.store;
    const yes = (flag) => (flag || !length ? "yes" : "no");
    Object.assign(this.root.dataset, {
      drafts: yes(seen.draft || seen.levels),
      redrafts: yes(seen.second),
      predicts: yes(seen.selected),
      levels: yes(seen.levels),
    });
  }

  showLacks(step) {
    const words = step ? step.lacks : "";
    this.lacks.textContent = words && `${words} The log still has each step’s numbers of drafted and accepted tokens.`;
    this.lacks.hidden = !words;
    this.tree.hidden = this.strip.hidden = Boolean(words);
  }

  /** Shows the result of the step, or `instead` the `title` and the text (`more`) of a stage or a question. */
  showSentence(step, instead = null) {
    const { title, pieces, read } = instead
      ? { pieces: [{ text: instead.more }], ...instead }
      : step
        ? stepStory(step)
        : { title: "", pieces: [] };
    this.title.replaceChildren(title, read ? h("small", { title: READ }, read) : "");
    this.parts.replaceChildren(...pieces.map((p) => h("span", { class: p.kind || null }, p.text)));
  }
}

/** The chip that names the shown step; a click releases a pinned step or follows the run again. */
export function chipView(chip, store, state) {
  let timer = 0;
  chip.addEventListener("click", () => state.follow());

  /** Call this when data of the run arrives. After SILENCE_MS without data the chip shows “Waiting …”. */
  function received() {
    clearTimeout(timer);
    if (state.now.silent) state.set({ silent: false });
    timer = setTimeout(() => state.set({ silent: true }), SILENCE_MS);
  }

  function show({ at, pinned, playing, silent }) {
    const { length, live, failed, finished } = store;
    const here = at === null ? "" : `Step ${at + 1} of ${length}`;
    const stopped = failed || finished?.stop_reason === "stopped";
    const [kind, label] = playing
      ? ["playing", `${here} ✕`]
      : pinned !== null
        ? ["pinned", `${here} ✕`]
        : live
          ? ["live", silent ? "Waiting …" : `Live: step ${length}`]
          : ["resting", stopped ? `Stopped · ${count(length, "step")}` : here];
    chip.dataset.state = kind;
    chip.textContent = label;
    chip.disabled = pinned === null && !playing;
    chip.title = chip.disabled
      ? "Click a token, a bar or a node to pin its step"
      : `Release this step${live ? " and follow the run" : ""} (Esc)`;
  }

  return { uses: ["data", "at", "pinned", "playing", "silent"], received, show };
}

/** The meaning of shapes and lines. Colours are explained by the sentence above the drawing. */
function legend() {
  const picture = (...parts) =>
    s("svg", { width: 26, height: 16, viewBox: "-13 -8 26 16", ariaHidden: true }, ...parts);
  const box = (rx) => s("rect.shape", { x: -10, y: -6, width: 20, height: 12, rx });
  const item = (words, kind, drawn) => h("li", { class: kind }, drawn, h("span", {}, words));
  return h(
    "ul.legend",
    { ariaLabel: "Legend" },
    item("first drafter", "first", picture(box(3))),
    item("second drafter", "second", picture(box(6))),
    item("the large model", "target", picture(s("polygon.shape", { points: "-11,0 -6,-6 6,-6 11,0 6,6 -6,6" }))),
    item("accepted: filled, on a thick line", "accepted", picture(s("path.thick", { d: "M-13 0H13" }), box(3))),
    item("rejected: the large model chose another token", "rejected", picture(box(3))),
    item("your own draft, in “Be the drafter”", "yours", picture(box(3), hatching(20, 12))),
    item("where the first draft broke", "truth", picture(s("path", { d: "M0-8V8" }))),
    item(
      "a second draft starts here: the first draft was expected to break after this token",
      "flagged",
      picture(s("path", { d: "M0-5L6 5H-6Z" })),
    ),
    item(
      "value of the confidence head",
      "headed",
      picture(s("path.trained", { d: "M0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5Z" })),
    ),
    h("li.space", {}, h("b", {}, "44%"), "below a token, when sampling: its probability under the large model"),
    h("li.space", {}, h("b", {}, "▯"), "a token whose text is not in this log"),
  );
}

/** A run in a few words: method, models and settings that differ from their defaults. */
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
  const bundled = !drafter || !seen.draft || drafter.startsWith(`${model}/`);
  const who = [`${methodName(method || "run")}${model && ` on ${model}`}`, bundled ? "" : `drafter ${drafter}`];
  const block = (name) => (name === "block_size" && config[name] > 1 ? ` (anchor + ${config[name] - 1})` : "");
  const words = [
    ...who,
    ...shown.map(([symbol, name]) => `${symbol} ${config[name]}${block(name)}`),
    config.cost_aware === true ? "quickest here" : "",
    config.chat === true ? "chat" : "",
  ];
  return words.filter(Boolean).join(" · ");
}
