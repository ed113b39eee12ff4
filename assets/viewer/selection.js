// What is looked at: one step and one node, shared by all views.

export class Selection {
  constructor(store, changed) {
    Object.assign(this, { store, changed });
    this.reset();
  }

  reset() {
    Object.assign(this, { pinned: null, previewed: null, resting: null, node: null, settled: false });
  }

  /** The step that is chosen, whatever the pointer previews. */
  get chosen() {
    return this.pinned ?? this.resting;
  }

  get shown() {
    return this.previewed ?? this.chosen;
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
    Object.assign(this, { pinned: step, previewed: null, node });
    this.changed();
  }

  /** Esc: first the node, then the step. */
  release() {
    if (this.node !== null && this.pinned !== null) this.node = null;
    else this.unpin();
    this.changed();
  }

  follow() {
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
    if (this.shown !== null) this.pin(this.chosen + by);
  }
}
