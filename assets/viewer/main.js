// The chip over the tree: which step is shown and why; a click goes back to following the run.

import { h, number, oncePerFrame, text, whole } from "./dom.js";
import { count, visible } from "./words.js";
import { BONUS } from "./tree_layout.js";
import { DetailsView, Tooltip } from "./details.js";
import { stepSentence, stepSummary } from "./explain.js";
import { FinderView, TimelineView, icon } from "./timeline.js";
import { HelpView, keyActions, listenForKeys } from "./help.js";
import { RunView, legend } from "./tree_shapes.js";
import { NumbersView } from "./numbers.js";
import { PictureMaker } from "./picture.js";
import { PlacesView, Redraft } from "./redraft.js";
import { QuizView } from "./quiz.js";
import { PACES, Selection } from "./selection.js";
import { ShareView, saveFile } from "./share.js";
import { Store } from "./store.js";
import { StripView } from "./strip.js";
import { TextView } from "./text.js";
import { TreeView } from "./tree.js";
import { TypedView } from "./typed.js";
import { Viewport } from "./viewport.js";

const SILENCE_MS = 5000;

class ChipView {
  constructor(store, selection) {
    Object.assign(this, { store, selection, waiting: false, timer: 0 });
    this.button = h("button", { id: "follow", type: "button" });
    this.button.addEventListener("click", () => selection.follow());
  }

  /** A run that says nothing for a while, be it slow or cut off, is not shown as one that goes on. */
  heard() {
    clearTimeout(this.timer);
    this.waiting = false;
    this.timer = setTimeout(() => {
      this.waiting = true;
      this.show();
    }, SILENCE_MS);
  }

  show() {
    const { button, store, selection, waiting } = this;
    const { pinned, playing } = selection;
    const at = pinned === null ? "" : `step ${pinned + 1}`;
    const [state, , label] = [
      ["playing", playing, `Playing: ${at} ✕`],
      ["pinned", pinned !== null, `Pinned: ${at} ✕`],
      ["live", store.live, waiting ? "Waiting for the next step" : "Following live"],
      ["resting", store.failed, "Stopped"],
      ["resting", store.finished && store.finished.stop_reason === "stopped", `Stopped after ${count(store.length, "step")}`],
      ["resting", selection.shown === null, count(store.length, "step")],
      ["resting", true, `Step ${selection.shown + 1} of ${store.length}`],
    ].find(([, holds]) => holds);
    button.dataset.state = state;
    button.textContent = label;
    button.title = pinned === null ? "Click a token, a bar or a node to pin its step" : store.live ? "Release and follow live (Esc)" : "Release (Esc)";
  }
}

// On a narrow screen: the accepted path in full words, where the tree has slim columns without any.

class PathView {
  constructor(box, selection) {
    this.box = box;
    box.addEventListener("click", ({ target }) => {
      if (target.dataset.node) selection.pin(selection.shown, target.dataset.node === "bonus" ? BONUS : Number(target.dataset.node));
    });
  }

  /** `cut`: whether the tree does not show all of it. */
  show(step, cut) {
    this.box.hidden = !step || !cut;
    if (this.box.hidden) return;
    const token = (node, { proposer, text: words }) => h("span", { class: `tok ${proposer}`, "data-node": node }, visible(words, 24));
    const bonus = step.bonus ? token("bonus", { proposer: "target", text: step.bonus.text }) : "";
    this.box.replaceChildren("Accepted: ", ...step.accepted.map((id) => token(id, step.nodes.get(id))).flatMap((made) => [made, " "]), bonus);
  }
}

// Presenting a run on a wall: sentence, tree and strip alone, twice as large, moved by keys or a clicker.

const LARGE = 2; // times the usual size of type

class PresenterView {
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
}

// Builds the view and keeps its parts in step: the store says what there is, the selection what is looked at.

/** A node as code outside names it. */
const nodeNumber = (node) => (node === "bonus" ? BONUS : whole(node, 0, 1e9, null));

export function start(element, trigger, props, watch) {
  const root = h("section", { class: "explorer", "aria-label": "Explore a run" });
  const part = (id, label, attributes) => h("div", { id, "aria-label": label, ...attributes });
  const store = new Store(
    (change) => onData(change),
    (key, start) => askAgain(key, start),
  );
  const selection = new Selection(store, () => onSelect());
  const chip = new ChipView(store, selection);
  const notice = h("p", { class: "notice", role: "alert", hidden: true });
  const numbers = h("div", { id: "numbers" });
  const textBox = part("text", "Generated text", { role: "region", tabindex: 0 });
  const textTools = h("div", { class: "tools" });
  const details = part("details", "Details", { role: "region", "aria-live": "polite" });
  const facts = h("div", { class: "panel facts" }, details);
  const sentence = h("p", { id: "sentence", dir: "auto" });
  const spoken = h("p", { class: "spoken", "aria-live": "polite" });
  const fitButton = h("button", { class: "small", type: "button", title: "Fit the tree into view (F)" }, "Fit");
  const wideButton = h("button", { id: "widen", class: "small", type: "button", hidden: true });
  const fullButton = h("button", { class: "icon", type: "button", title: "Full screen (.)", "aria-label": "Full screen", hidden: !document.fullscreenEnabled }, icon("M-5-2V-5H-2M2-5H5V-2M5 2V5H2M-2 5H-5V2"));
  const playButton = h("button", { class: "icon", type: "button", title: "Play (space)" });
  const unfoldButton = h("button", { id: "unfold", type: "button", hidden: true });
  const helpButton = h("button", { class: "icon", type: "button", title: "Keys and words (?)", "aria-label": "Show the keys and what the words mean" }, "?");
  const treeBox = part("tree", "Draft tree: up and down move between branches", { role: "group", tabindex: 0 });
  const stripBox = part("strip", "Confidence and boundaries", { role: "group" });
  const timelineBox = part("timeline", "Steps", { role: "slider", tabindex: 0, "aria-valuemin": 1 });
  const empty = h("p", { class: "empty" }, "Nothing to show yet: run a prompt, and its draft trees appear here step by step.");
  const lacks = h("p", { class: "empty", hidden: true });
  const swipe = h("p", { class: "swipe", hidden: true });
  const steps = h("div", { class: "panel steps" });
  const paceButton = h("button", { class: "small", type: "button", title: "Speed of playing (S)", "aria-label": "Speed of playing" });
  const presenter = new PresenterView(root, () => redraw());
  const run = new RunView(root);
  const pathBox = h("p", { class: "path", dir: "auto", hidden: true, "aria-label": "The accepted path" });
  // opens and closes the details where a low window has no place for them
  const factsButton = h("button", { id: "open-facts", class: "small", type: "button", title: "The stages of this step, or what is known of its chosen token", "aria-expanded": "false" }, "Details");
  const quizBox = h("div", {});
  const playTyped = h("button", { id: "be-the-drafter", class: "small", type: "button", title: "Write the tokens that come next, and let the target verify them (B)" }, "Be the drafter");
  const redraftBox = h("div", { class: "redraft-box", role: "status", hidden: true }); // where the details are far below
  const views = h(
    "div",
    { class: "views", hidden: true },
    numbers,
    h("div", { class: "panel reading" }, h("div", { class: "head" }, h("h3", {}, "Text"), run.label, textTools), textBox),
    facts,
    h("div", { class: "panel drawing" }, h("div", { class: "head" }, sentence, h("div", { class: "tools" }, unfoldButton, chip.button, factsButton, playButton, paceButton, wideButton, fitButton, fullButton, helpButton)), lacks, treeBox, pathBox, swipe, stripBox, redraftBox, quizBox),
    steps,
    legend(),
  );
  root.append(notice, empty, views, spoken);
  element.replaceChildren(root);

  const tooltip = new Tooltip(root);
  const help = new HelpView(root);
  const viewport = new Viewport(treeBox, () => {
    tree.place();
    strip.place();
  });
  const quiz = new QuizView(root, store, selection, () => redraw());
  const tree = new TreeView(treeBox, selection, tooltip, viewport, (hidden) => showFolding(hidden));
  tree.scaled = () => presenter.scale;
  tree.asked = (depth) => quiz.asking && (quiz.guess(depth), true);
  const strip = new StripView(stripBox, tree, viewport, tooltip);
  const redraft = new Redraft(store, selection, props.linked ? (question) => trigger("redraft", question) : null, () => draw());
  const places = new PlacesView(strip, (prefix) => redraft.request(prefix));
  const words = new TextView(textBox, store, selection);
  const path = new PathView(pathBox, selection);
  const timeline = new TimelineView(timelineBox, store, selection);
  const finder = new FinderView(timeline, store, selection);
  steps.append(finder.box, timelineBox, finder.zooms, finder.totals);
  const totals = new NumbersView(numbers, store);
  const panel = new DetailsView(details, selection);

  const share = new ShareView({
    store,
    selection,
    pictures: new PictureMaker({ tree, strip, viewport, selection, colours: root }),
    names: props.linked || null,
    ask: (kind, step, node = null) => trigger("export", { kind, step, node }),
  });
  // What the address asks for beside run, step and node.
  const address = new URLSearchParams(props.linked ? location.search : text(props.address));
  const typed = new TypedView({
    root,
    store,
    selection,
    ask: props.linked ? (question) => trigger("typed", question) : null,
    copy: props.linked ? (fields) => share.copy(props.linked, fields) : null,
    rival: number(address.get("beat"), 0, 512, null),
    changed: () => redraw(),
  });
  const games = [quiz, typed];
  quizBox.append(quiz.box, typed.box);
  playTyped.addEventListener("click", () => typed.toggle());
  textTools.append(playTyped, share.box);
  /** The game that the address asks for, until the run is there to play it on. */
  let begins = games.find(({ name }) => address.get(name) === "1") || null;
  if (begins) root.dataset[begins.name] = "asking"; // nothing is told before
  const asking = () => begins !== null || games.some((game) => game.asking);

  let drawn = { step: null, node: null, total: 0 };
  const draw = oncePerFrame(() => {
    if (element.isConnected) drawAll();
  });

  function drawAll() {
    words.append();
    const step = store.step(selection.shown);
    if (step !== drawn.step) {
      tree.show(step);
      strip.show(step);
      showLacks(step);
      showSentence(step);
      showWidth();
    } else {
      if (store.length !== drawn.total) nameTree(step);
      if (selection.shownNode !== drawn.node) tree.mark();
    }
    words.show(selection.shown);
    words.hide(begins ? 0 : (quiz.hidden ?? typed.hidden));
    for (const game of begins ? [] : games) game.show();
    drawn = { step, node: selection.shownNode, total: store.length };
    showRedraft(step);
    totals.show(asking() ? null : selection.shown);
    run.show(store);
    timeline.follow();
    finder.place();
    chip.show();
    showPlaying();
    mirror();
  }

  let looked = 0; // the latest answer that was brought into view
  /** In the details, or under the strip where those are far away. */
  function showRedraft(step) {
    const card = redraft.card(step);
    const here = strip.narrow ? card : null;
    redraftBox.hidden = !here;
    redraftBox.replaceChildren(here || "");
    panel.show(step, store.length, here ? null : card);
    if (here && looked !== redraft.now.number) redraftBox.scrollIntoView({ block: "nearest" });
    looked = here && redraft.now.answer ? redraft.now.number : looked;
    places.mark(card ? redraft.now.prefix : null);
  }

  /** Where a log holds no tokens, a sentence stands in the place of tree and strip. */
  function showLacks(step) {
    const words = step ? step.lacks : "";
    lacks.textContent = words && `${words} What is known: how many tokens each step drafted and accepted.`;
    lacks.hidden = !words;
    treeBox.hidden = stripBox.hidden = Boolean(words);
  }

  function showSentence(step) {
    const pieces = step ? stepSentence(step) : [];
    sentence.replaceChildren(...(step ? [h("b", {}, `Step ${step.index + 1} `)] : []), ...pieces.map((p) => h("span", { class: p.kind || null }, p.text)));
    const summary = nameTree(step);
    // Read out what was chosen, not every step of a running stream or of the pointer's way.
    if (selection.previewed === null && !selection.following) spoken.textContent = asking() ? "" : summary;
  }

  /** The name of the tree says how many steps there are, which may grow. */
  function nameTree(step) {
    const summary = step ? stepSummary(step, store.length, store.live || store.waiting.length > 0) : "";
    tree.svg.setAttribute("aria-label", (!asking() && summary) || "Draft tree");
    if (asking()) strip.svg.setAttribute("aria-label", "Confidence of the first draft");
    return summary;
  }

  /** On a narrow screen: what the slim columns are, and how to see them. */
  function showWidth() {
    const { slim } = tree.columns;
    wideButton.hidden = swipe.hidden = !slim && !tree.widened;
    wideButton.textContent = tree.widened ? "Narrow" : "Widen";
    wideButton.title = tree.widened ? "The whole block in view" : "Every token readable; swipe to move";
    const read = tree.wordless ? "Tap a slim token to read it, or Widen and swipe." : "Widen and swipe to read long tokens.";
    path.show(asking() ? null : tree.step, strip.narrow && tree.step !== null && tree.cut);
    swipe.textContent = tree.widened ? "← Swipe the tree to move along it →" : `The whole block is in view. ${read}`;
  }

  function showPlaying() {
    paceButton.textContent = PACES[selection.pace][0];
    playButton.textContent = selection.playing ? "❚❚" : "▶";
    playButton.setAttribute("aria-label", selection.playing ? "Pause" : "Play through the steps");
  }

  function showFolding(hidden) {
    unfoldButton.hidden = !hidden && !tree.unfolded;
    unfoldButton.textContent = tree.unfolded ? "Fold" : `+${hidden} nodes`;
    unfoldButton.title = tree.unfolded ? "Fold the least likely nodes away again" : `Show the ${count(hidden, "node")} that are folded away: the drafters gave them the least probability`;
    unfoldButton.setAttribute("aria-label", unfoldButton.title);
  }

  /** Code outside reads the selection from data attributes or the event; Python hears of pinned steps and nodes. */
  let told = "";
  function mirror() {
    const node = selection.node === BONUS ? "bonus" : (selection.node ?? "");
    const data = { run: store.run.slice(0, 200), steps: store.length, step: selection.shown ?? "", pinned: selection.pinned ?? "", node };
    for (const [name, value] of Object.entries(data)) {
      if (element.dataset[name] !== String(value)) element.dataset[name] = value;
    }
    const pin = JSON.stringify([data.run, data.pinned, data.node]);
    if (pin === told) return;
    told = pin;
    const detail = { run: data.run, step: selection.pinned, node: data.node === "" ? null : data.node };
    element.dispatchEvent(new CustomEvent("explorer:selected", { bubbles: true, detail }));
    trigger("select", detail);
  }

  /** What a link asked for; it is selected once the run has got that far. */
  let wanted = null;
  function selectWanted() {
    if (!wanted || store.length <= wanted.step) return;
    selection.pin(wanted.step, wanted.node);
    wanted = null;
  }

  function onData({ reset, wanted: more, file, redraft: answer, typed: verified }) {
    if (answer) return redraft.hear(answer);
    if (verified) return typed.hear(verified);
    if (file) return saveFile(text(file.name), text(file.type), text(file.text));
    if (more) wanted = { step: whole(more.step, 0, 1e9, 0), node: nodeNumber(more.node) };
    if (reset) {
      wanted = null;
      totals.reset();
      selection.reset();
      for (const game of games) game.reset();
      redraft.reset();
      words.reset();
      timeline.first = 0;
      finder.reset();
    }
    selection.advance();
    selectWanted();
    if (begins && store.complete && store.length && !(wanted && store.live)) {
      const game = begins;
      begins = null;
      game.toggle(true);
    }
    const nothing = store.key === null || (!store.received && !store.early.size);
    empty.hidden = !nothing;
    views.hidden = nothing;
    const lost = wanted && props.linked && store.complete && !store.live ? `There is no step ${wanted.step + 1}: this run has ${store.length}.` : "";
    notice.textContent = store.failed ?? lost;
    notice.hidden = !notice.textContent;
    chip.heard();
    draw();
  }

  /** Asks for lines that did not arrive, now and then only, and again after a while: the answer may get lost as well. */
  const patience = 2000;
  let [asked, later] = [-patience, 0];
  function askAgain(key, start) {
    const wait = asked + patience - performance.now();
    clearTimeout(later);
    if (wait > 0) {
      later = setTimeout(() => askAgain(key, start), wait);
      return;
    }
    asked = performance.now();
    trigger("missed", { key, start });
    setTimeout(() => store.key === key && store.early.size && askAgain(key, store.received), patience);
  }

  function onSelect() {
    if (selection.pinned !== null && store.failed === null) notice.hidden = true; // of a step that is not there
    draw();
  }

  const redraw = () => {
    drawn.step = null;
    draw();
  };
  playButton.addEventListener("click", () => selection.toggle());
  fitButton.addEventListener("click", () => viewport.fit());
  wideButton.addEventListener("click", () => {
    tree.widen(!tree.widened);
    showWidth();
  });
  // A wall is far away: full screen presents, and so does T without it.
  const fullScreen = () => {
    if (document.fullscreenElement) document.exitFullscreen();
    else if (root.requestFullscreen) root.requestFullscreen().catch(() => {});
  };
  root.addEventListener("fullscreenchange", () => presenter.toggle(document.fullscreenElement === root));
  paceButton.addEventListener("click", () => selection.repace());
  if (address.get("embed") === "1") {
    root.classList.add("embedded");
    document.body.classList.add("embedded-page");
  }
  fullButton.addEventListener("click", fullScreen);
  factsButton.addEventListener("click", () => factsButton.setAttribute("aria-expanded", String(facts.classList.toggle("open"))));
  unfoldButton.addEventListener("click", () => tree.unfold(!tree.unfolded));
  helpButton.addEventListener("click", () => help.toggle());
  const observer = new ResizeObserver((entries) => {
    for (const { target, contentRect } of entries) {
      if (target === treeBox) viewport.resize(contentRect.width, contentRect.height);
      else timeline.resize(contentRect.width, contentRect.height);
    }
    redraw();
  });
  observer.observe(treeBox);
  observer.observe(timelineBox);
  // The canvas has no style rules of its own: draw it again when the page turns dark or light.
  new MutationObserver(() => timeline.draw()).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  /** Links, tours and tables select from outside: detail = {step, node}. */
  element.addEventListener("explorer:select", (event) => {
    const step = whole(event.detail && event.detail.step, 0, 1e9, null);
    if (step === null) return;
    selection.pause();
    selection.pin(step, nodeNumber(event.detail.node));
  });
  element.addEventListener("explorer:guess", ({ detail: { name, on } }) => games.find((game) => game.name === name).toggle(on));
  // one game at a time
  root.addEventListener("explorer:guessing", ({ detail: { name, on } }) => on && games.forEach((game) => game.name === name || game.toggle(false)));
  /** A tour says which end of a tree that is too wide for the screen is looked at. */
  element.addEventListener("explorer:look", (event) => viewport.look(event.detail.start === true));
  listenForKeys(element, keyActions({ store, selection, tree, viewport, help, finder, timeline, fullScreen, quiz, typed, presenter, redraft }));
  watch("value", () => store.feed(props.value));
  store.feed(props.value);
}
