// What is looked at: one step and one node, shared by all views.

const PLAY_SLOWDOWN = 12;
export const PACES = [
  ["1×", 1],
  ["¼×", 4],
  ["3×", 1 / 3],
]; // of playing: what it is called, and by what its waits are multiplied

export class Selection {
  constructor(store, changed) {
    Object.assign(this, { store, changed, timer: null, pace: 0 });
    this.reset();
  }

  reset() {
    this.pause();
    Object.assign(this, { pinned: null, previewed: null, resting: null, node: null, settled: false });
  }

  get shown() {
    return this.previewed ?? this.pinned ?? this.resting;
  }

  /** The node that was picked, while its step is shown: in another step its number means another node. */
  get shownNode() {
    return this.shown === this.pinned ? this.node : null;
  }

  get following() {
    return this.pinned === null && this.store.live;
  }

  /** New steps arrived: follow them, unless this is a recording or something is pinned. */
  advance() {
    const last = this.store.length - 1;
    if (last < 0) return;
    if (this.store.recorded) {
      if (!this.settled) this.resting = this.store.instructive <= last ? this.store.instructive : 0;
      this.settled = this.store.complete;
    } else {
      // followed to its end, a run comes to rest on a step that shows something, as a recording does
      const resting = this.store.finished ? (this.settled ? this.resting : this.store.instructive) : last;
      if (this.pinned === null && this.resting !== resting) this.node = null;
      this.resting = resting;
      this.settled = Boolean(this.store.finished);
    }
  }

  pin(step, node = null) {
    if (!this.store.length) return;
    step = Math.min(this.store.length - 1, Math.max(0, step));
    if (step === this.pinned && node === this.node && this.previewed === null) return;
    if (step !== this.pinned) this.pause(); // playing ends where another step is asked for
    Object.assign(this, { pinned: step, previewed: null, node });
    this.changed();
  }

  /** Esc: first the node, then the step. */
  release() {
    this.pause();
    if (this.node !== null && this.pinned !== null) this.node = null;
    else this.unpin();
    this.changed();
  }

  follow() {
    this.pause();
    if (this.store.live || this.pinned === null) this.resting = this.store.length - 1;
    this.unpin();
    this.changed();
  }

  unpin() {
    // Without a stream to go back to, the step that was pinned stays in view.
    if (!this.store.live && this.pinned !== null) this.resting = this.pinned;
    Object.assign(this, { pinned: null, previewed: null, node: null });
  }

  preview(step) {
    if (step === this.previewed) return;
    this.previewed = step;
    this.changed();
  }

  move(by) {
    this.pause();
    if (this.shown !== null) this.pin((this.pinned ?? this.resting) + by);
  }

  repace() {
    this.pace = (this.pace + 1) % PACES.length;
    if (this.playing) {
      this.pause();
      this.schedule();
    }
    this.changed();
  }

  get playing() {
    return this.timer !== null;
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
  }

  toggle() {
    if (this.playing) this.pause();
    else if (this.store.length) {
      const at = this.pinned ?? this.resting;
      this.pin(at >= this.store.length - 1 ? 0 : at);
      this.schedule();
    }
    this.changed();
  }

  /** The next step after its recorded time, slowed until an eye can follow. */
  schedule() {
    const at = this.pinned;
    const next = this.store.summaries[at + 1];
    if (!next) {
      this.pause();
      this.changed();
      return;
    }
    const recorded = (next.elapsed - this.store.summaries[at].elapsed) * 1000 * PLAY_SLOWDOWN;
    const wait = Math.min(1400, Math.max(350, recorded)) * PACES[this.pace][1];
    this.timer = setTimeout(() => {
      this.pin(at + 1);
      this.schedule();
    }, wait);
  }
}
