// The Explore view of one run. What its views draw depends only on the run (store.js) and on the state (state.js).

import { readAddress, readNode } from "./address.js";
import { emit, h, oncePerFrame, whole } from "./dom.js";
import { detailsView, tooltipIn } from "./details.js";
import { stepSummary } from "./explain.js";
import { STORY, helpView, keyActions, listenForKeys } from "./help.js";
import { clockView, numbersView, verdictView } from "./numbers.js";
import { paysView } from "./pays.js";
import { Page, chipView } from "./page.js";
import { motionView } from "./motion.js";
import { pictureMaker } from "./picture.js";
import { playerView, stageAt } from "./player.js";
import { QuizView, askedStep } from "./quiz.js";
import { Redraft, placesView } from "./redraft.js";
import { shareView, otherText, saveFile } from "./share.js";
import { State } from "./state.js";
import { redrawn } from "./sampling.js";
import { STAGE_NAMES } from "./stages.js";
import { Resend, Store } from "./store.js";
import { stripView } from "./strip.js";
import { textView } from "./text.js";
import { finderView, timelineView } from "./timeline.js";
import { treeView } from "./tree.js";
import { TypedView } from "./typed.js";
import { Viewport } from "./viewport.js";
import { count, plain } from "./words.js";

const PRESENTED = { width: 932, height: 580 }; // pixels that the present view scales to the window
const FOOT = 8; // pixels free below the view
const READING = { title: "Reading the prompt …", more: "" };
const NO_STEPS = {
  title: "No steps.",
  more: "The run ended with the first token, which the large model writes without a draft.",
};
const NO_QUESTION = { title: "", more: "" }; // a game starts as soon as the run is loaded

class Explorer {
  /**
   * `trigger(event, data)`: sends an event to the server, if there is one (`served`).
   * `tours`: whether to link to Learn.
   * `told`: whether the view is part of Learn, where the text ends with the shown step.
   * `address`: fields from `readAddress`.
   */
  constructor({ element, trigger, served, tours, told, address }) {
    const resend = new Resend((key, start) => trigger("missed", { key, start }));
    const store = new Store(
      (change) => this.receive(change),
      (key, start) => resend.request(store, key, start),
    );
    const page = new Page(store);
    const { root } = page;
    const drawSoon = oncePerFrame(() => element.isConnected && this.drawAll());
    const state = new State(store, drawSoon, { pending: address.game, present: address.present });
    const server = served ? trigger : null;
    Object.assign(this, { element, trigger, served, told, page, store, state, address, drawSoon });
    this.drawn = {}; // the last drawn scene
    this.data = 0; // increases with every change of the run's data
    this.fresh = 0; // increases when everything must be drawn again
    this.published = ["", "", ""]; // the selection, the game and the place of the latest events
    this.toOpen = address.play || address.stage !== ""; // once the run is loaded; it is hidden until then
    // a part of the drawing in Learn, else a drawer beside the view
    if (told) page.views.append(page.pays);
    element.replaceChildren(root, ...(told ? [] : [page.pays]));

    // the drawing of the step
    const tooltip = tooltipIn(root);
    const viewport = (this.viewport = new Viewport(page.tree, (zoom) => state.set({ zoom })));
    const tree = (this.tree = treeView(page, state, tooltip, viewport));
    page.tools.prepend(tree.wholeSwitch);
    page.explain.hidden = !tours;
    page.explain.addEventListener("click", () => {
      const step = state.shown;
      emit(element, "explorer:learn", { chapter: STORY, value: store.valueAt(step), step });
    });
    const strip = stripView(page.strip, tree, viewport, tooltip);
    this.redraft = new Redraft(store, state, server);
    const places = placesView(strip, tooltip, (prefix) => this.redraft.request(prefix));

    // text and steps of the run, playback of the step
    const words = (this.words = textView(page.text, store, state));
    this.timeline = timelineView(page.timeline, store, state, tooltip);
    this.finder = finderView(page, store, state);
    this.player = playerView(store, state, () => !this.secret);
    page.moments.prepend(this.player.box);

    // games
    const share = shareView(store, state, pictureMaker({ tree, strip, viewport, colours: root }), server);
    this.quiz = new QuizView(root, store, state);
    this.typed = new TypedView({ root, store, state, written: this.words.tokens, server, share, rival: address.beat });
    this.games = [this.quiz, this.typed];
    page.games.append(this.quiz.box);
    page.text.after(this.typed.box);
    page.actions.append(share.box);
    tree.answered = (depth) => this.quiz.asking && (this.quiz.guess(depth), true);

    this.pays = paysView(page, store, state, server, told);
    // on the page itself, because this view may be in a hidden tab
    const dialogs = served ? h("div.explorer", {}) : root;
    if (served) document.body.append(dialogs);
    this.chip = chipView(page.follow, store, state);
    // in the order in which they are drawn: each may use what those before it have drawn
    this.views = [
      page,
      this.quiz,
      words,
      this.typed,
      tree,
      strip,
      clockView(page.clock, store),
      verdictView(page.verdict, store),
      detailsView(page, state, this.redraft, places, strip),
      numbersView(page.numbers, store, state, server),
      this.pays,
      this.timeline,
      this.finder,
      this.chip,
      this.player,
      share,
      helpView(dialogs, state, page.legend, { served, tours }),
      { uses: words.uses, show: words.scroll }, // reads the layout, so after all that changes it
      motionView({ root, tree, strip, words }),
    ];
    page.numbers.firstChild.append(page.actions);
    if (!served) page.actions.append(page.help);
    this.listen();
    this.observe();
  }

  get secret() {
    return this.state.now.pending !== "" || this.games.some((game) => game.asking);
  }

  // Drawing

  /** Draws everything again, for example after a change of size or of fonts. */
  redraw() {
    this.fill();
    this.fresh += 1;
    this.drawSoon();
  }

  /** Draws a state, for example that of another view of the same run. */
  draw(now) {
    this.state.now = Object.freeze(now);
    this.drawAll();
  }

  drawAll() {
    const { drawn } = this;
    const scene = (this.drawn = this.scene());
    this.drawnState = this.state.now; // while a step plays, the state may be a frame ahead
    const changed = (name) => scene[name] !== drawn[name];
    // views without `uses` find out themselves whether anything changed
    for (const view of this.views) if (view.uses?.some(changed) ?? true) view.show(scene);
    this.showBranches(scene.why ? this.pays.replays.most(scene.tried) : null);
    if (["notice", "empty", "waits"].some(changed)) this.fill();
    this.publish();
  }

  /**
   * What the views draw: the fields of the state, and values computed from them and the run.
   *
   * `step`, `at`, `total`: the shown step, its index, and the number of steps; `node`: the selected node.
   * `secret`: whether to hide the outcome of the step; `hidden`: index of the first step whose text is hidden, or null.
   * `place`: the place among the stages of the shown step, null for the whole step (`moving`: whether it is not null); `stage`: the stage
   * at this place.
   * `summary`: the step in words; `quiet`: whether screen readers skip it, as while following or playing.
   * `yours`: the user's own draft of the step with its result, or null.
   * `larger`: scale of the present view.
   * `headline`: replaces the result of the step during a game or in a run without steps.
   */
  scene() {
    const { store, state, secret, data, fresh } = this;
    const { now, chosen, shown, following } = state;
    const here = shown === chosen && !secret;
    const recorded = store.step(shown);
    const again = now.seed !== null && recorded !== null;
    const step = secret ? askedStep(recorded) : again ? redrawn(recorded, now.seed) : recorded;
    const place = here && step ? now.place : null;
    const told = this.told && shown !== null ? shown + (again ? 0 : 1) : null;
    const typed = secret ? null : this.typed.told;
    const words = typed ? `${typed.headline.title} ${plain(typed.headline.pieces)} ` : "";
    const empty = store.key === null || (!store.received && !store.early.size);
    return {
      ...now,
      data,
      fresh,
      step,
      at: shown,
      chosen,
      node: state.shownNode,
      held: here ? now.held : null,
      total: store.length,
      secret,
      hidden: this.quiz.hidden ?? this.typed.hidden ?? told,
      following,
      place: this.player.drawnAt(place),
      moving: place !== null,
      stage: stageAt(step, place),
      yours: typed?.result ?? null,
      larger: now.present ? Math.max(1, Math.min(innerWidth / PRESENTED.width, innerHeight / PRESENTED.height)) : 1,
      summary: step && !secret ? words + stepSummary(step, store.length, store.live || store.waiting.length > 0) : "",
      quiet: now.previewed !== null || following || place !== null,
      headline: secret
        ? (this.games.find((game) => game.asking)?.question ?? NO_QUESTION)
        : !step
          ? this.stepless
          : place === null && typed
            ? typed.headline
            : null,
      notice: store.failed ?? (this.lost || otherText(store, now.mark)),
      empty,
      waits: this.toOpen && !store.complete && !store.live,
    };
  }

  get stepless() {
    const { received, recorded, finished, failed } = this.store;
    if (!received || failed) return null;
    return finished ? NO_STEPS : recorded ? null : READING;
  }

  /** A sentence if a link names a step that the run lacks, else "". */
  get lost() {
    const { store, served } = this;
    const { wanted } = this.state.now;
    return wanted && served && store.complete && (store.recorded || store.finished)
      ? `There is no step ${wanted.step + 1}: this run has ${count(store.length, "step")}.`
      : "";
  }

  /** Fades the re-drafts with a number above `most`; null fades none. */
  showBranches(most) {
    if (most === null && !this.faded) return;
    this.faded = most !== null;
    for (const part of this.page.root.querySelectorAll(":is(#tree, #strip) [data-draft]"))
      part.classList.toggle("unasked", this.faded && Number(part.dataset.draft) > most);
  }

  /** Publishes the selection as data attributes. If the pinned step or node changed, sends an event to the page and to the server; to the
   *  page also if a game begins or ends. */
  publish() {
    const { element, store, state, drawn } = this;
    const { pinned, node, game, present } = state.now;
    const data = {
      run: store.run,
      steps: store.length,
      live: store.live ? "yes" : "no",
      step: state.shown ?? "",
      pinned: pinned ?? "",
      node: node ?? "",
      stage: STAGE_NAMES[drawn.stage] ?? "",
      present: present ? 1 : "",
    };
    for (const [name, value] of Object.entries(data)) {
      if (element.dataset[name] !== String(value)) element.dataset[name] = value;
    }
    const [before, played, placed] = this.published;
    const selected = JSON.stringify([data.run, data.pinned, data.node]);
    const place = selected + data.stage + data.present;
    this.published = [selected, game, place];
    if (place !== placed) emit(element, "explorer:selected", { ...data, step: pinned });
    if (selected !== before) this.trigger("select", { run: data.run, step: pinned, node });
    if (game !== played) emit(element, "explorer:guessing", { name: game || played, on: game !== "" });
  }

  // Incoming data

  /** Called when the store has read new steps or a message of the server, and when another run begins. */
  receive({ reset, message }) {
    const { state, redraft, typed, pays } = this;
    if (message?.kind === "file") return saveFile(message.name, message.type, message.text);
    const asked = { redraft, typed, replays: pays.replays }[message?.kind];
    if (asked) return asked.receive(message);
    // select: steps count from 0; a link also has the fingerprint of its text
    if (message)
      state.set({
        wanted: { step: whole(message.step, 0, 1e9, 0), node: readNode(message.node) },
        mark: message.text ?? "",
      });
    if (reset) {
      this.state.reset();
      this.words.reset();
    }
    this.data += 1;
    this.drawSoon(); // also if the state stays the same, as before the first step
    this.state.advance();
    this.selectWanted();
    this.openStage();
    this.beginGame();
    this.chip.received();
  }

  selectWanted() {
    const { wanted, mark } = this.state.now;
    if (wanted && this.store.length > wanted.step) this.state.pin(wanted.step, wanted.node, { mark });
  }

  beginGame() {
    const { store, games, state } = this;
    const game = games.find(({ pending }) => pending);
    if (game && store.complete && store.length && !(state.now.wanted && store.live)) game.toggle(true);
  }

  /** Goes to the stage in the address, or plays the step if the address requests it. */
  openStage() {
    const { store, state, address, player } = this;
    const there = address.step === null ? store.complete && store.length : state.now.pinned !== null;
    if (!this.toOpen || !there) return;
    this.toOpen = false;
    if (address.stage) player.jump(STAGE_NAMES.indexOf(address.stage));
    else if (this.element.offsetParent) player.toggle(); // not while another tab is open
  }

  // Events

  listen() {
    const { element, page, state } = this;
    const keys = keyActions(this);
    const turn =
      (name, more = {}) =>
      () =>
        state.set({ [name]: !state.now[name], ...more });
    const acts = {
      fit: keys.f,
      help: keys["?"],
      find: turn("finder"),
      quiz: keys.q,
      typed: keys.b,
      present: keys.t,
      widen: turn("widened", { zoom: null }),
      openFacts: turn("facts"),
    };
    for (const [name, act] of Object.entries(acts)) page[name].addEventListener("click", act);
    page.root.addEventListener("fullscreenchange", () => {
      if (!document.fullscreenElement) state.showPresent(false);
      else if (!state.now.present) document.exitFullscreen(); // the present view ended before full screen began
    });
    listenForKeys(element, this.told ? { "?": keys["?"] } : keys);
    if (this.served) document.addEventListener("explorer:words", keys["?"]);
    // Other scripts select a step (detail: {step, node}); a standalone file starts and stops games (detail: {name, on}).
    element.addEventListener("explorer:select", ({ detail: { step, node } }) => state.pin(step, readNode(node)));
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

  observe() {
    const { page, timeline, viewport } = this;
    const sizes = new ResizeObserver((entries) => {
      for (const { target, contentRect } of entries)
        (target === page.tree ? viewport : timeline).resize(contentRect.width, contentRect.height);
      this.redraw();
    });
    sizes.observe(page.tree);
    sizes.observe(page.timeline);
    new ResizeObserver(() => this.redraw()).observe(this.pays.chart.box);
    new ResizeObserver(() => this.fill()).observe(document.body);
    document.fonts.ready.then(() => this.redraw()); // earlier text widths were measured with a fallback font
    // CSS does not apply to a canvas: redraw it when the theme changes.
    new MutationObserver(timeline.draw).observe(document.body, { attributeFilter: ["class"] });
  }
}

/** Draws the run in `props.value` into an element, and again whenever it changes; returns the view. `props.told`: show only the
 *  step, as part of Learn. */
export function start(element, trigger, props, watch) {
  const served = Boolean(props.served);
  const address = readAddress(served ? location.search : props.address);
  const told = Boolean(props.told);
  const explorer = new Explorer({ element, trigger, served, tours: served || Boolean(props.tours), told, address });
  if (address.embed) {
    explorer.page.root.classList.add("embedded");
    document.body.classList.add("embedded-page");
  }
  explorer.page.root.classList.toggle("told", told);
  element.explorer = explorer;
  watch("value", () => explorer.store.feed(props.value));
  explorer.store.feed(props.value);
  return explorer;
}
