// The Explore view of one run. The store holds the received data, the selection the shown step and node; this module keeps all views in sync.

import { readAddress, readNode } from "./address.js";
import { h, oncePerFrame, text, whole } from "./dom.js";
import { DetailsView, Tooltip } from "./details.js";
import { stepSummary } from "./explain.js";
import { HelpView, keyActions, listenForKeys } from "./help.js";
import { ClockView, NumbersView, undrawn } from "./numbers.js";
import { ChipView, Page, Presenter, RunView, runWords } from "./page.js";
import { Motion } from "./motion.js";
import { PictureMaker } from "./picture.js";
import { Player } from "./player.js";
import { QuizView } from "./quiz.js";
import { PlacesView, Redraft } from "./redraft.js";
import { Selection } from "./selection.js";
import { ShareView, otherText, saveFile } from "./share.js";
import { Resend, Store } from "./store.js";
import { StripView } from "./strip.js";
import { TextView } from "./text.js";
import { FinderView, TimelineView } from "./timeline.js";
import { TreeView } from "./tree.js";
import { BONUS } from "./tree_layout.js";
import { TypedView } from "./typed.js";
import { Viewport } from "./viewport.js";
import { count } from "./words.js";

const FOOT = 8; // pixels free below the view
const READING = { title: "Reading the prompt …", more: "" };
const NO_QUESTION = { title: "", more: "" }; // a game starts as soon as the run is loaded
const [STORY, SETTINGS] = [1, 8]; // chapters of Learn: the first one, and the one with controls for K and γ

/** Converts a node from an address or another script to its id in the tree. */
function nodeId(value) {
  const node = readNode(value);
  return node === "bonus" ? BONUS : node;
}

class Explorer {
  /**
   * `trigger(event, data)`: sends an event to the server, if there is one (`served`).
   * `tours`: whether to link to Learn.
   * `told`: whether the view is part of Learn, where the text ends with the shown step.
   * `address`: fields from `readAddress`.
   */
  constructor({ element, trigger, served, tours, told, address }) {
    const page = new Page();
    const { root } = page;
    const resend = new Resend((key, start) => trigger("missed", { key, start }));
    const store = new Store(
      (change) => this.receive(change),
      (key, start) => resend.request(store, key, start),
    );
    const selection = new Selection(store, () => this.onSelect());
    const draw = (this.draw = oncePerFrame(() => element.isConnected && this.drawAll()));
    const redraw = () => this.redraw();
    const ask = (name, detail) => element.dispatchEvent(new CustomEvent(`explorer:${name}`, { bubbles: true, detail }));
    const learn = (chapter, value = "") => ask("learn", { chapter, value, step: selection.shown });
    const onServer = (act) => (served ? act : null);
    Object.assign(this, { element, trigger, served, told, page, store, selection, address });
    this.drawn = null; // the last drawn state
    this.wanted = null; // requested step and node, until the run reaches them
    this.expected = ""; // fingerprint of the text that a link refers to
    this.selected = ""; // pinned step and node that were published last
    this.toPlay = address.play; // play once the run is loaded; it is hidden until then
    element.replaceChildren(root);

    // the drawing of the step
    const tooltip = new Tooltip(root);
    const viewport = (this.viewport = new Viewport(page.tree, () => this.place()));
    const tree = (this.tree = new TreeView(page.tree, selection, tooltip, viewport));
    page.tools.prepend(tree.wholeSwitch);
    page.explain.hidden = !tours;
    page.explain.addEventListener("click", () => learn(STORY, store.valueAt(selection.shown)));
    const strip = (this.strip = new StripView(page.strip, tree, viewport, tooltip));
    this.redraft = new Redraft(
      store,
      selection,
      onServer((question) => trigger("redraft", question)),
      draw,
    );
    const places = new PlacesView(strip, (prefix) => this.redraft.request(prefix));

    // text and steps of the run
    const words = new TextView(page.text, store, selection);
    const timeline = (this.timeline = new TimelineView(page.timeline, store, selection, tooltip));
    const finder = (this.finder = new FinderView(timeline, store, selection));
    page.finder.append(finder.box);

    // playback of the step
    const motion = new Motion({ root, tree, strip, words });
    const player = (this.player = new Player(store, selection, {
      draw: (t) => motion.show(store.step(selection.shown), t),
      said: (name) => this.showStage(name),
      allowed: () => !this.secret,
      changed: draw,
    }));
    page.moments.prepend(player.box);

    // games
    const share = new ShareView({
      store,
      selection,
      pictures: new PictureMaker({ tree, strip, viewport, colours: root }),
      served,
      ask: (kind, step, node = null) => trigger("export", { kind, step, node }),
    });
    this.quiz = new QuizView(root, store, selection, redraw);
    this.typed = new TypedView({
      root,
      store,
      selection,
      ask: onServer((question) => trigger("typed", question)),
      copy: onServer((fields) => share.copy(fields)),
      rival: address.beat,
      changed: redraw,
    });
    this.games = [this.quiz, this.typed];
    page.games.append(...this.games.map(({ box }) => box));
    page.deeds.append(share.box);
    for (const game of this.games) game.pending = game.name === address.game; // starts once the run is loaded
    tree.answered = (depth) => this.quiz.asking && (this.quiz.guess(depth), true);

    const ways = { story: tours ? () => learn(STORY) : null, begin: onServer(() => ask("begin")) };
    // on the page itself, because this view may be in a hidden tab
    const dialogs = served ? h("div", { class: "explorer" }) : root;
    if (served) document.body.append(dialogs);
    this.help = new HelpView(dialogs, ways, page.legend);
    if (served) document.addEventListener("explorer:words", () => this.help.toggle());
    this.presenter = new Presenter(root, redraw);
    tree.scaled = () => this.presenter.scale;
    this.chip = new ChipView(page.follow, store, selection, player);
    this.views = [
      words,
      tree,
      strip,
      page,
      new ClockView(page.clock, store),
      ...this.games,
      new DetailsView(page, selection, this.redraft, places, strip),
      new NumbersView(
        page.numbers,
        store,
        onServer({
          quickest: () => trigger("quickest", { quickest: true }),
          again: () => ask("begin"),
          turn: () => learn(SETTINGS),
        }),
        () => runWords(store),
      ),
      new RunView(root, store),
      timeline,
      finder,
      this.chip,
      player,
    ];
    page.numbers.firstChild.append(page.deeds);
    if (!served) page.deeds.append(page.help);
    this.listen();
    this.observe();
  }

  /** Whether a game hides the outcome of the shown step. */
  get secret() {
    return this.games.some((game) => game.pending || game.asking);
  }

  /** The headline of a run without steps. */
  get reading() {
    const { received, recorded, failed } = this.store;
    return received && !recorded && !failed ? READING : null;
  }

  // Drawing

  redraw() {
    this.fill();
    this.drawn = null;
    this.draw();
  }

  drawAll() {
    this.player.check();
    const state = this.state();
    for (const view of this.views) view.show(state);
    this.drawn = state;
    this.publish();
  }

  /**
   * The state that every view draws:
   *
   * `step`, `at`, `total`: the shown step, its index, and the number of steps; `node`: the selected node.
   * `fresh`: whether the step must be redrawn.
   * `secret`: whether to hide the outcome of the step; `hidden`: index of the first step whose text is hidden, or null.
   * `undrawn`: share of the steps' time that was not spent on drawing them.
   * `summary`: the step in words; `quiet`: whether screen readers skip it, as while following or playing.
   * `stage`: title and text of the stage that is playing; `question`: replaces title and text during a game or before the first step.
   */
  state() {
    const { store, selection, player, secret } = this;
    const step = store.step(selection.shown);
    return {
      step,
      at: selection.shown,
      node: selection.shownNode,
      fresh: !this.drawn || step !== this.drawn.step,
      secret,
      hidden:
        this.quiz.hidden ?? this.typed.hidden ?? (this.told && selection.shown !== null ? selection.shown + 1 : null),
      total: store.length,
      undrawn: undrawn(store),
      summary: step && !secret ? stepSummary(step, store.length, store.live || store.waiting.length > 0) : "",
      quiet: selection.previewed !== null || selection.following || player.on,
      stage: player.words,
      tree: this.tree,
      question: secret ? (this.games.find((game) => game.asking)?.question ?? NO_QUESTION) : step ? null : this.reading,
    };
  }

  /** Called when the tree was panned or zoomed. */
  place() {
    this.tree.place();
    this.strip.place();
    this.page.fit.hidden = !this.viewport.touched;
    this.player.showMoment();
  }

  /** Called when playback enters a stage; `name` is empty for the complete step. */
  showStage(name) {
    const { page, player } = this;
    const { step, summary } = this.state();
    page.root.dataset.stage = name;
    const { words } = player;
    page.showSentence(step, this.state().question ?? words);
    page.spoken.textContent = words ? `${name}: ${words.title} ${words.more}` : summary;
  }

  /** Publishes the selection as data attributes. If the pinned step or node changed, sends an event to the page and to the server. */
  publish() {
    const { element, store, selection } = this;
    const node = selection.node === BONUS ? "bonus" : (selection.node ?? "");
    const data = {
      run: store.run,
      steps: store.length,
      live: store.live ? "yes" : "no",
      step: selection.shown ?? "",
      pinned: selection.pinned ?? "",
      node,
    };
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

  /** Called when the store has read new steps, or one of the other messages of a segment. */
  receive({ reset, wanted, file, redraft, typed }) {
    if (redraft) return this.redraft.receive(redraft);
    if (typed) return this.typed.receive(typed);
    if (file) return saveFile(file.name, file.type, file.text);
    if (wanted) this.want(wanted);
    if (reset) this.reset();
    this.selection.advance();
    this.selectWanted();
    this.showState();
    this.beginPlaying();
    this.beginGame(); // after showState, because its input field must be visible to get the focus
    this.chip.received();
    this.draw();
  }

  reset() {
    this.wanted = null;
    this.expected = "";
    for (const part of [this.selection, this.redraft, ...this.views]) part.reset?.();
  }

  /** Requests the step and node of a link or another tab; a link also has the fingerprint of its text. */
  want({ step, node, text: mark }) {
    this.wanted = { step: whole(step, 0, 1e9, 0), node: nodeId(node) };
    this.expected = text(mark);
  }

  selectWanted() {
    const { wanted, store } = this;
    if (!wanted || store.length <= wanted.step) return;
    this.selection.pin(wanted.step, wanted.node);
    this.wanted = null;
  }

  beginGame() {
    const { store } = this;
    const game = this.games.find(({ pending }) => pending);
    if (game && store.complete && store.length && !(this.wanted && store.live)) game.toggle(true);
  }

  /** Starts playback if the address requests it; the view stays hidden until then. */
  beginPlaying() {
    const { store, selection, address, player } = this;
    if (!this.toPlay || !store.complete || !store.length || (address.step !== null && selection.pinned === null))
      return;
    this.toPlay = false;
    if (this.element.offsetParent) player.toggle(); // not while another tab is open
  }

  /** Shows the view or a note that it is empty, and a message if something went wrong. */
  showState() {
    const { page, store, wanted } = this;
    const nothing = store.key === null || (!store.received && !store.early.size);
    page.empty.hidden = !nothing;
    page.views.hidden = nothing || (this.toPlay && !store.complete && !store.live);
    const lost =
      wanted && this.served && store.complete && (store.recorded || store.finished)
        ? `There is no step ${wanted.step + 1}: this run has ${count(store.length, "step")}.`
        : "";
    page.notify(store.failed ?? (lost || otherText(store, this.expected)));
    this.fill();
  }

  onSelect() {
    if (this.selection.pinned !== null && this.store.failed === null) this.page.notice.hidden = true; // notice about a missing step
    this.draw();
  }

  // Events

  listen() {
    const { element, page, tree, selection } = this;
    const keys = keyActions(this);
    const acts = {
      fit: keys.f,
      help: keys["?"],
      find: () => this.openFinder(page.finder.hidden),
      quiz: keys.q,
      typed: keys.b,
      widen: () => {
        tree.widen(!tree.widened);
        this.redraw();
      },
      openFacts: () => page.openFacts.setAttribute("aria-expanded", String(page.facts.classList.toggle("open"))),
    };
    for (const [name, act] of Object.entries(acts)) page[name].addEventListener("click", act);
    page.root.addEventListener("fullscreenchange", () =>
      this.presenter.toggle(document.fullscreenElement === page.root),
    );
    // only one game at a time
    page.root.addEventListener(
      "explorer:guessing",
      ({ detail: { name, on } }) => on && this.games.forEach((game) => game.name === name || game.toggle(false)),
    );
    listenForKeys(element, this.told ? { "?": keys["?"] } : keys);
    // Other scripts select a step (detail: {step, node}); a standalone file starts and stops games (detail: {name, on}).
    element.addEventListener("explorer:select", ({ detail: { step, node } }) => selection.pin(step, nodeId(node)));
    element.addEventListener("explorer:guess", ({ detail: { name, on } }) =>
      this.games.find((game) => game.name === name).toggle(on),
    );
  }

  /** Makes the view fill the window below its upper edge. */
  fill() {
    const { root, views } = this.page;
    if (!views.getClientRects().length) return;
    root.style.setProperty("--above", `${Math.ceil(views.getBoundingClientRect().top + scrollY) + FOOT}px`);
  }

  openFinder(open) {
    this.page.finder.hidden = !open;
    this.page.find.setAttribute("aria-expanded", String(open));
  }

  observe() {
    const { page, timeline, viewport } = this;
    const sizes = new ResizeObserver((entries) => {
      for (const { target, contentRect } of entries)
        (target === page.tree ? viewport : timeline).resize(contentRect.width, contentRect.height);
      this.redraw();
    });
    sizes.observe(page.tree);
    sizes.observe(page.timeline);
    new ResizeObserver(() => this.fill()).observe(document.body);
    document.fonts.ready.then(() => this.redraw()); // earlier text widths were measured with a fallback font
    // CSS does not apply to a canvas: redraw it when the theme changes.
    new MutationObserver(() => timeline.draw()).observe(document.body, {
      attributes: true,
      attributeFilter: ["class"],
    });
  }
}

/** Draws the run in `props.value` into an element, and again whenever it changes; returns the view. `props.told`: show only the
 *  step, as part of Learn. */
export function start(element, trigger, props, watch) {
  const served = Boolean(props.served);
  const address = readAddress(served ? location.search : text(props.address));
  const told = Boolean(props.told);
  const explorer = new Explorer({ element, trigger, served, tours: served || Boolean(props.tours), told, address });
  if (address.embed) {
    explorer.page.root.classList.add("embedded");
    document.body.classList.add("embedded-page");
  }
  explorer.page.root.classList.toggle("told", told);
  watch("value", () => explorer.store.feed(props.value));
  explorer.store.feed(props.value);
  return explorer;
}
