// The selection that all views share: one step and one node.

export class Selection {
  constructor(store, changed) {
    Object.assign(this, { store, changed });
    this.reset();
  }

  reset() {
    Object.assign(this, { pinned: null, previewed: null, resting: null, node: null, settled: false });
  }

  /** The chosen step, without the pointer's preview. */
  get chosen() {
    return this.pinned ?? this.resting;
  }

  get shown() {
    return this.previewed ?? this.chosen;
  }

  /** The selected node if its step is shown, else null: ids of nodes are per step. */
  get shownNode() {
    return this.shown === this.pinned ? this.node : null;
  }

  get following() {
    return this.pinned === null && this.store.live;
  }

  /** Follows new steps, unless the run is a recording or a step is pinned. */
  advance() {
    const last = this.store.length - 1;
    if (last < 0) return;
    if (this.store.recorded) {
      if (!this.settled) this.resting = this.store.instructive <= last ? this.store.instructive : 0;
      this.settled = this.store.complete;
    } else {
      // at the end of a followed run its most instructive step is shown, as for recordings
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

  /** Esc: releases the node first, then the step. */
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
    // without a live run to return to, the pinned step stays in view
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
