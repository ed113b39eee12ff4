// Explores one run: keeps its views in step. The store says what has been read, the selection which step and node are looked at.

import { readAddress, readNode } from "./address.js";
import { h, oncePerFrame, text, whole } from "./dom.js";
import { DetailsView, Tooltip } from "./details.js";
import { stepSummary } from "./explain.js";
import { HelpView, keyActions, listenForKeys } from "./help.js";
import { NumbersView } from "./numbers.js";
import { ChipView, Page, PathView, Presenter, RunView } from "./page.js";
import { Motion } from "./motion.js";
import { PictureMaker } from "./picture.js";
import { Player } from "./player.js";
import { QuizView } from "./quiz.js";
import { PlacesView, Redraft } from "./redraft.js";
import { Selection } from "./selection.js";
import { ShareView, saveFile } from "./share.js";
import { Resend, Store } from "./store.js";
import { StripView } from "./strip.js";
import { TextView } from "./text.js";
import { FinderView, TimelineView } from "./timeline.js";
import { TreeView } from "./tree.js";
import { BONUS } from "./tree_layout.js";
import { TypedView } from "./typed.js";
import { Viewport } from "./viewport.js";

const [STORY, TURN] = [0, 99]; // stops of the tour: what is before the first one, and behind the last one

/** A node, as addresses and other scripts name it, by the number that it has here. */
function nodeId(value) {
  const node = readNode(value);
  return node === "bonus" ? BONUS : node;
}

const VISITED = "d2sd-explorer-visited";

/** Whether nobody has seen a step come about in this browser, the address names nothing to look at, and motion is welcome. */
function isFirstVisit({ embed, game, step }) {
  if (embed || game || step !== null || matchMedia("(prefers-reduced-motion: reduce)").matches) return false;
  try {
    return !localStorage.getItem(VISITED);
  } catch {
    return false; // a frame without storage
  }
}

class Explorer {
  /** `trigger(event, data)` reaches the server; `linkNames`: settings that links carry, null where no server answers; `address`: what
   *  the address asks for, as `readAddress` returns it; `tours`: whether there is a story to lead to. */
  constructor({ element, trigger, linkNames, tours, address }) {
    Object.assign(this, { element, trigger, linkNames, tours, page: new Page() });
    const resend = new Resend((key, start) => trigger("missed", { key, start }));
    this.store = new Store(
      (change) => this.receive(change),
      (key, start) => resend.request(this.store, key, start),
    );
    this.selection = new Selection(this.store, () => this.onSelect());
    this.draw = oncePerFrame(() => element.isConnected && this.drawAll());
    this.latest = { step: null, node: null, length: 0 }; // what was drawn last
    this.wanted = null; // step and node that are asked for, until the run has got that far
    this.inView = 0; // number of the latest answer about a re-draft that was scrolled to
    this.selected = ""; // the pinned step and node that others know of
    element.replaceChildren(this.page.root);
    this.createViews();
    this.createGames(address);
    this.address = address;
    this.toPlay = address.play || (Boolean(linkNames) && isFirstVisit(address));
    this.listen();
    this.observe();
  }

  createViews() {
    const { element, page, store, selection, linkNames, tours, trigger } = this;
    this.tooltip = new Tooltip(page.root);
    const ask = (name, detail) => element.dispatchEvent(new CustomEvent(`explorer:${name}`, { bubbles: true, detail }));
    const learn = (stop) => ask("learn", { stop });
    this.help = new HelpView(page.root, { story: tours ? () => learn(STORY) : null, begin: linkNames ? () => ask("begin") : null });
    this.presenter = new Presenter(page.root, () => this.redraw());
    this.viewport = new Viewport(page.tree, () => {
      this.tree.place();
      this.strip.place();
      this.player.show();
    });
    this.tree = new TreeView(page.tree, selection, this.tooltip, this.viewport, (hidden) => page.showFolding(hidden, this.tree.unfolded));
    this.tree.scaled = () => this.presenter.scale;
    this.strip = new StripView(page.strip, this.tree, this.viewport, this.tooltip);
    this.redraft = new Redraft(store, selection, linkNames ? (question) => trigger("redraft", question) : null, () => this.draw());
    this.places = new PlacesView(this.strip, (prefix) => this.redraft.request(prefix));
    this.words = new TextView(page.text, store, selection);
    this.path = new PathView(page.path, selection);
    this.timeline = new TimelineView(page.timeline, store, selection);
    this.finder = new FinderView(this.timeline, store, selection);
    page.steps.append(this.finder.totals);
    page.finder.append(this.finder.box, this.finder.zooms);
    this.totals = new NumbersView(page.numbers, store, linkNames && { quickest: () => trigger("quickest", { quickest: true }), turn: () => learn(TURN) });
    this.details = new DetailsView(page.details, selection);
    this.createPlayer();
    this.chip = new ChipView(page.follow, store, selection, this.player);
    this.run = new RunView(page.root, page.runLabel, linkNames !== null);
    this.share = new ShareView({
      store,
      selection,
      pictures: new PictureMaker({ tree: this.tree, strip: this.strip, viewport: this.viewport, colours: page.root }),
      names: linkNames,
      ask: (kind, step, node = null) => trigger("export", { kind, step, node }),
    });
    page.deeds.append(this.share.box);
    page.numbers.firstChild.append(page.deeds);
  }

  createPlayer() {
    const { page, store, selection, tree, strip } = this;
    const motion = new Motion({ root: page.root, tree, strip, words: this.words });
    this.player = new Player(store, selection, {
      draw: (t) => motion.show(store.step(selection.shown), t),
      said: (name) => {
        const step = store.step(selection.shown);
        page.root.dataset.stage = name;
        page.showSentence(step, this.player.words);
        page.spoken.textContent = name ? `${name}: ${this.player.words}` : this.nameTree(step);
      },
      allowed: () => !this.secret,
      changed: () => this.draw(),
    });
    page.sentence.after(this.player.box);
  }

  createGames(address) {
    const { page, store, selection, linkNames, trigger } = this;
    const { root } = page;
    this.quiz = new QuizView(root, store, selection, () => this.redraw());
    this.typed = new TypedView({
      root,
      store,
      selection,
      ask: linkNames ? (question) => trigger("typed", question) : null,
      copy: linkNames ? (fields) => this.share.copy(linkNames, fields) : null,
      rival: address.beat,
      changed: () => this.redraw(),
    });
    this.games = [this.quiz, this.typed];
    page.games.append(this.quiz.box, this.typed.box);
    this.tree.answered = (depth) => this.quiz.asking && (this.quiz.guess(depth), true);
    /** The game that the address asks for, until the run is there to play it on. */
    this.nextGame = this.games.find(({ name }) => name === address.game) || null;
    if (this.nextGame) root.dataset[this.nextGame.name] = "asking"; // nothing is told before
  }

  /** Whether what came of the shown step must not be seen. */
  get secret() {
    return this.nextGame !== null || this.games.some((game) => game.asking);
  }

  // Drawing

  redraw() {
    this.latest.step = null;
    this.draw();
  }

  drawAll() {
    const { store, selection, tree, words, latest } = this;
    words.append();
    this.player.check();
    const step = store.step(selection.shown);
    if (step !== latest.step) this.drawStep(step);
    else {
      if (store.length !== latest.length) this.nameTree(step);
      if (selection.shownNode !== latest.node) tree.mark();
    }
    words.show(selection.shown);
    const hidden = this.nextGame ? 0 : (this.quiz.hidden ?? this.typed.hidden);
    words.hide(hidden);
    this.timeline.told = hidden ?? Infinity;
    for (const game of this.nextGame ? [] : this.games) game.show();
    this.latest = { step, node: selection.shownNode, length: store.length };
    this.drawDetails(step);
    this.totals.show(this.secret ? null : selection.shown);
    this.run.show(store);
    this.timeline.follow();
    this.finder.place();
    this.chip.show();
    this.player.showBar();
    this.player.show();
    this.publish();
  }

  drawStep(step) {
    const { page, selection } = this;
    this.tree.show(step);
    this.strip.show(step);
    page.showLacks(step);
    page.showSentence(step, this.player.words);
    const summary = this.nameTree(step);
    // Read out what was chosen, not every step of a running stream or of the pointer's way.
    if (selection.previewed === null && !selection.following && !this.player.on) page.spoken.textContent = this.secret ? "" : summary;
    this.drawWidth();
  }

  /** The name of the tree says how many steps there are, which may grow. */
  nameTree(step) {
    const { store } = this;
    const summary = step ? stepSummary(step, store.length, store.live || store.waiting.length > 0) : "";
    this.tree.svg.setAttribute("aria-label", (!this.secret && summary) || "Draft tree");
    if (this.secret) this.strip.svg.setAttribute("aria-label", "Confidence of the first draft");
    return summary;
  }

  drawWidth() {
    const { tree } = this;
    this.page.showWidth(tree);
    this.path.show(this.secret ? null : tree.step, this.strip.narrow && tree.cut);
  }

  /** Details of the step and what came of a re-draft: in the panel, or under the strip where that is far away. */
  drawDetails(step) {
    const { page, redraft } = this;
    const card = redraft.card(step);
    const here = this.strip.narrow ? card : null;
    page.redraft.hidden = !here;
    page.redraft.replaceChildren(here || "");
    this.details.show(step, this.store.length, here ? null : card);
    if (here && this.inView !== redraft.now.number) page.redraft.scrollIntoView({ block: "nearest" });
    this.inView = here && redraft.now.answer ? redraft.now.number : this.inView;
    this.places.mark(card ? redraft.now.prefix : null);
  }

  /** Other scripts read the selection from data attributes or the event; Python hears of pinned steps and nodes. */
  publish() {
    const { element, store, selection } = this;
    const node = selection.node === BONUS ? "bonus" : (selection.node ?? "");
    const data = { run: store.run.slice(0, 200), steps: store.length, step: selection.shown ?? "", pinned: selection.pinned ?? "", node };
    for (const [name, value] of Object.entries(data)) {
      if (element.dataset[name] !== String(value)) element.dataset[name] = value;
    }
    const selected = JSON.stringify([data.run, data.pinned, data.node]);
    if (selected === this.selected) return;
    this.selected = selected;
    const detail = { run: data.run, step: selection.pinned, node: data.node === "" ? null : data.node };
    element.dispatchEvent(new CustomEvent("explorer:selected", { bubbles: true, detail }));
    this.trigger("select", detail);
  }

  // Incoming data

  /** What the store has read: steps, or what a segment brings besides them. */
  receive({ reset, wanted, file, redraft, typed }) {
    if (redraft) return this.redraft.receive(redraft);
    if (typed) return this.typed.receive(typed);
    if (file) return saveFile(text(file.name), text(file.type), text(file.text));
    if (wanted) this.wanted = { step: whole(wanted.step, 0, 1e9, 0), node: nodeId(wanted.node) };
    if (reset) this.reset();
    this.selection.advance();
    this.selectWanted();
    this.showState();
    this.beginPlaying();
    this.beginGame(); // with its field in sight, which gets the focus
    this.chip.received();
    this.draw();
  }

  reset() {
    this.wanted = null;
    this.timeline.first = 0;
    for (const part of [this.totals, this.player, this.selection, ...this.games, this.redraft, this.words, this.finder]) part.reset();
  }

  selectWanted() {
    const { wanted, store } = this;
    if (!wanted || store.length <= wanted.step) return;
    this.selection.pin(wanted.step, wanted.node);
    this.wanted = null;
  }

  beginGame() {
    const { store, nextGame } = this;
    if (!nextGame || !store.complete || !store.length || (this.wanted && store.live)) return;
    this.nextGame = null;
    nextGame.toggle(true);
  }

  /** Plays where the address asks for it, and on a first visit one step, which then rests. */
  beginPlaying() {
    const { store, selection, address, player } = this;
    if (!this.toPlay || !store.complete || !store.length || (address.step !== null && selection.pinned === null)) return;
    this.toPlay = false;
    this.draw();
    requestAnimationFrame(() => {
      if (!this.element.offsetParent) return; // another tab is open
      if (address.play) player.toggle();
      else if (store.recorded && !player.on) {
        player.playOnce();
        localStorage.setItem(VISITED, "yes");
      }
    });
  }

  /** Whether there is anything to see, and what went wrong. */
  showState() {
    const { page, store, wanted } = this;
    const nothing = store.key === null || (!store.received && !store.early.size);
    page.empty.hidden = !nothing;
    page.views.hidden = nothing;
    const lost = wanted && this.linkNames && store.complete && !store.live ? `There is no step ${wanted.step + 1}: this run has ${store.length}.` : "";
    page.notify(store.failed ?? lost);
  }

  onSelect() {
    if (this.selection.pinned !== null && this.store.failed === null) this.page.notice.hidden = true; // of a step that is not there
    this.draw();
  }

  // Events

  listen() {
    const { element, page, tree } = this;
    const keys = keyActions(this);
    const acts = {
      fit: keys.f,
      full: keys["."],
      help: keys["?"],
      quiz: keys.q,
      typed: keys.b,
      widen: () => {
        tree.widen(!tree.widened);
        this.drawWidth();
      },
      unfold: () => tree.unfold(!tree.unfolded),
      openFacts: () => page.openFacts.setAttribute("aria-expanded", String(page.facts.classList.toggle("open"))),
    };
    for (const [name, act] of Object.entries(acts)) page[name].addEventListener("click", act);
    page.root.addEventListener("fullscreenchange", () => this.presenter.toggle(document.fullscreenElement === page.root));
    // one game at a time
    page.root.addEventListener("explorer:guessing", ({ detail: { name, on } }) => on && this.games.forEach((game) => game.name === name || game.toggle(false)));
    listenForKeys(element, keys);
    this.listenToOthers();
  }

  /** Links, tours and tables select from outside: detail = {step, node}. A tour says which end of a tree that is too wide for the
   *  screen is looked at, a file which game is on. */
  listenToOthers() {
    const { element, selection } = this;
    element.addEventListener("explorer:select", ({ detail }) => {
      const step = whole(detail && detail.step, 0, 1e9, null);
      if (step === null) return;
      selection.pin(step, nodeId(detail.node));
    });
    element.addEventListener("explorer:look", ({ detail }) => this.viewport.look(detail.start === true));
    element.addEventListener("explorer:guess", ({ detail: { name, on } }) => this.games.find((game) => game.name === name).toggle(on));
  }

  observe() {
    const { page, timeline, viewport } = this;
    const sizes = new ResizeObserver((entries) => {
      for (const { target, contentRect } of entries) (target === page.tree ? viewport : timeline).resize(contentRect.width, contentRect.height);
      this.redraw();
    });
    sizes.observe(page.tree);
    sizes.observe(page.timeline);
    document.fonts.ready.then(() => this.redraw()); // what was measured before is of another font
    // The canvas has no style rules of its own: draw it again when the page turns dark or light.
    new MutationObserver(() => timeline.draw()).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  }
}

/** Draws `props.value` into an element, and again whenever it changes. */
export function start(element, trigger, props, watch) {
  const address = readAddress(props.linked ? location.search : text(props.address));
  const explorer = new Explorer({ element, trigger, linkNames: props.linked || null, tours: Boolean(props.linked || props.tours), address });
  if (address.embed) {
    explorer.page.root.classList.add("embedded");
    document.body.classList.add("embedded-page");
  }
  watch("value", () => explorer.store.feed(props.value));
  explorer.store.feed(props.value);
}
