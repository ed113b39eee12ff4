// The state of the view: one plain, frozen object. What is drawn depends only on this object and on the run. Other classes keep only
// caches of values computed from them.

import { clamp, remember, remembered } from "./dom.js";
import { stagesOf } from "./stages.js";

const WHOLE = "d2sd-explorer-whole";

/** Fields of the chosen step, with their initial values. */
const OF_STEP = {
  place: null, // number of stages played, null: the whole step is shown
  playing: false,
  until: null, // place at which playing ends, null: the end of the step
  held: null, // node after which a cut branch was opened
  seed: null, // of the random numbers with which the step is drawn again; null: as recorded
  digits: "", // typed in the quiz
  votes: [], // of the class in the quiz: places, in the order in which they were counted
  typed: "", // words in the field of “Be the drafter”
  top: null, // scroll position of the text; null: the shown step is scrolled into view
  first: null, // first bar in view; null: as above
  pass: null, // tokens at the handle in “When does it pay?”; null: those of the step's tree
};

/** Fields of the run, with their initial values. Steps count from 0. */
const OF_RUN = {
  ...OF_STEP,
  pinned: null, // the step that the user chose
  resting: null, // the step that is shown while none is pinned
  settled: false, // whether `resting` stays
  previewed: null, // the step under the pointer
  node: null, // selected in the pinned step
  wanted: null, // requested step and node, until the run reaches them
  mark: "", // fingerprint of the text that a link refers to
  question: null, // “what if?”, with its answer
  answers: { quiz: {}, draft: {} }, // by game and step
  waiting: null, // typed draft that the server verifies
  filter: "any", // of Find
  bars: 1, // zoom of the steps
  unfolded: false, // whether a long prompt is shown whole
  why: false, // whether “When does it pay?” is open
  tried: null, // K and γ there; null: those of the run
  asked: null, // a request for replays with other K and γ: its number, and its progress or problem
  silent: false, // whether no data has arrived for a while
};

/** Fields that keep their values when another run is shown. */
const LASTING = {
  widened: false, // whether every token is readable on a narrow screen
  zoom: null, // scale and position of the tree, and the block size for which they hold; null: fitted
  present: false, // whether text, sentence and drawing fill the window
  hands: false, // whether the quiz counts votes
  facts: false, // whether Details, Find, the menu *Share* and *Words & keys* are open
  finder: false,
  menu: false,
  help: false,
  game: "",
  pending: "", // game that starts once the run is loaded
};

export class State {
  /** `changed()` is called after every change. */
  constructor(store, changed, fields = {}) {
    Object.assign(this, { store, changed });
    this.now = Object.freeze({ ...LASTING, ...OF_RUN, whole: remembered(WHOLE) === "yes", ...fields });
  }

  set(fields) {
    this.now = Object.freeze({ ...this.now, ...fields });
    this.changed();
  }

  reset() {
    this.set(OF_RUN);
  }

  /** The chosen step, without the pointer's preview. */
  get chosen() {
    return this.now.pinned ?? this.now.resting;
  }

  get shown() {
    return this.now.previewed ?? this.chosen;
  }

  /** The selected node if its step is shown, else null: ids of nodes are per step. */
  get shownNode() {
    return this.shown === this.now.pinned ? this.now.node : null;
  }

  get following() {
    return this.now.pinned === null && this.store.live;
  }

  /** Sets fields that determine the chosen step. If another step is chosen, the fields of the step are reset, except `kept`. */
  choose(fields, kept = {}) {
    const { pinned, resting } = { ...this.now, ...fields };
    this.set({ ...fields, ...((pinned ?? resting) === this.chosen ? {} : OF_STEP), ...kept });
  }

  /** Follows new steps, unless the run is a recording or a step is pinned. */
  advance() {
    const { store, now } = this;
    const last = store.length - 1;
    if (last < 0) return;
    const instructive = store.instructive <= last ? store.instructive : 0;
    // at the end of a followed run its most instructive step is shown, as for recordings
    const resting = store.recorded || store.finished ? (now.settled ? now.resting : instructive) : last;
    const settled = store.recorded ? store.complete : Boolean(store.finished);
    this.choose({ resting, settled, node: now.pinned === null && resting !== now.resting ? null : now.node });
  }

  /** Chooses a step and a node; `kept`: fields of the step that are set and not reset. */
  pin(step, node = null, kept = {}) {
    if (!this.store.length) return;
    const pinned = clamp(step, 0, this.store.length - 1);
    this.choose({ pinned, node, previewed: null, wanted: null, mark: "" }, kept);
  }

  /** Esc: releases the node first, then closes Details, then releases the step. */
  release() {
    const { node, pinned, facts, resting } = this.now;
    if (node !== null && pinned !== null) this.set({ node: null });
    else if (facts) this.set({ facts: false });
    else this.unpin(resting);
  }

  follow() {
    this.unpin(this.store.live || this.now.pinned === null ? this.store.length - 1 : this.now.resting);
  }

  unpin(resting) {
    // without a live run to return to, the pinned step stays in view
    const stays = this.store.live ? resting : (this.now.pinned ?? resting);
    this.choose({ resting: stays, pinned: null, previewed: null, node: null });
  }

  /** Previews a step, but none in a game: what it hides depends on the step. */
  preview(step, kept = {}) {
    const previewed = this.now.game ? null : step;
    if (previewed !== this.now.previewed) this.set({ previewed, ...kept });
  }

  move(by) {
    if (this.shown !== null) this.pin(this.chosen + by);
  }

  /** Shows the chosen step at a place among its stages, or plays it from there. A live run would replace the step, so it is pinned. */
  goTo(place, playing = false, until = null) {
    const whole = place >= stagesOf(this.store.step(this.chosen)).length;
    const pinned = this.store.live ? this.chosen : this.now.pinned;
    this.set({ pinned, place: whole ? null : place, playing: playing && !whole, until });
  }

  /** Begins or ends the present view, which has its own scale. */
  showPresent(present) {
    this.set({ present, zoom: null });
  }

  /** Draws whole branches, or cuts those that were not accepted; the browser remembers the choice. */
  showWhole(whole) {
    remember(WHOLE, whole ? "yes" : "no");
    this.set({ whole, zoom: null });
  }
}
