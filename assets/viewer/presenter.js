// Presenting a run on a wall: sentence, tree and strip alone, twice as large, moved by keys or a clicker.

const LARGE = 2; // times the usual size of type

export class PresenterView {
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
