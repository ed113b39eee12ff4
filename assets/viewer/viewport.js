// Zoom and pan of the tree. The strip follows it horizontally.

import { clamp } from "./dom.js";

export const NODE_FONT = 16; // pixels
export const CAPTION = 13;
const TRUNK = 0.56; // position of the first draft, as a share of the view's height, if everything fits
const ZOOM = [0.35, 3];
export const MARGIN = { left: 14, right: 14, top: 6, bottom: 6 };

export class Viewport {
  /** `touched(zoom)` is called with the new `zoom` of the state after the user has zoomed or panned. */
  constructor(host, touched) {
    Object.assign(this, { host, touched, content: null, pointers: new Map(), dragged: false });
    Object.assign(this, { k: 1, x: 0, y: 0, size: { width: 0, height: 0 } });
    this.listen();
  }

  /** `content`: left, right, top and bottom of the drawing; `focus`: the drawing's most important part, with the x `turn` that must be in
   *  view; `block`: the block size; `larger`: scale. The `zoom` of another block size is ignored. */
  place(content, zoom, start) {
    this.content = content;
    this.fitted = this.fit(content, start);
    Object.assign(this, zoom?.block === content.block ? zoom : this.fitted);
  }

  /** Sets the size of the host, from a resize observer: measuring here would force a layout at every step. */
  resize(width, height) {
    this.size = { width, height };
  }

  /** The scale and position that show the whole drawing; if it does not fit, its beginning (`start`) or its focus. */
  fit(c, start) {
    const { width, height } = this.size;
    const k = (this.k = c.larger);
    const across = width - MARGIN.left - MARGIN.right;
    const along = height - MARGIN.top - MARGIN.bottom;
    const { focus } = c;
    const [first, last] = [-c.top * k, along - c.bottom * k];
    const x = this.settle(c.left, c.right, focus.left, focus.right, across, start ? c.left : focus.turn);
    const y =
      first <= last + 1
        ? clamp(along * TRUNK, first, last)
        : this.settle(c.top, c.bottom, focus.top, focus.bottom, along);
    return { k, x: x + MARGIN.left, y: y + MARGIN.top };
  }

  /** Applies a zoom or a pan of the user. */
  change(zoom) {
    if (!this.content) return;
    Object.assign(this, zoom);
    const { k, x, y, content } = this;
    this.touched({ k, x, y, block: content.block });
  }

  /** The offset along one axis. It aligns the start of the content with the view, or if this would cut the focus, brings the focus into
   *  view, centred at `turn`. */
  settle(from, to, focusFrom, focusTo, room, turn = focusFrom + room / this.k / 2) {
    const k = this.k;
    if ((Math.min(to, focusTo) - from) * k <= room + 1) return -from * k;
    const start = Math.min(turn - room / k / 2, to - room / k);
    return -Math.max(from, Math.min(start, focusTo - room / k)) * k;
  }

  zoom(factor, clientX, clientY) {
    const box = this.host.getBoundingClientRect();
    const [px, py] = [clientX - box.left, clientY - box.top];
    const k = clamp(this.k * factor, ...ZOOM);
    this.change({ k, x: px - ((px - this.x) * k) / this.k, y: py - ((py - this.y) * k) / this.k });
  }

  pan(dx, dy) {
    this.change({ x: this.x + dx, y: this.y + dy });
  }

  /** Pans just enough to show a point of the content. */
  reveal(x, y) {
    const { width, height } = this.size;
    const [px, py] = [this.x + x * this.k, this.y + y * this.k];
    const dx = px < 60 ? 60 - px : px > width - 60 ? width - 60 - px : 0;
    const dy = py < 30 ? 30 - py : py > height - 30 ? height - 30 - py : 0;
    if (dx || dy) this.pan(dx, dy);
  }

  listen() {
    const { host, pointers } = this;
    host.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(-event.deltaX, 0);
        else this.zoom(Math.exp(-clamp(event.deltaY, -60, 60) * 0.004), event.clientX, event.clientY);
      },
      { passive: false },
    );
    host.addEventListener("pointerdown", (event) => {
      if (event.button > 0) return;
      pointers.set(event.pointerId, { x: event.clientX, y: event.clientY, far: 0 });
      if (pointers.size === 1) this.dragged = false;
    });
    host.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) return;
      const now = { x: event.clientX, y: event.clientY };
      now.far = before.far + Math.hypot(now.x - before.x, now.y - before.y);
      if (pointers.size === 2) this.pinch(event.pointerId, before, now);
      else if (now.far > 4) this.drag(event, before, now);
      pointers.set(event.pointerId, now);
    });
    const end = (event) => pointers.delete(event.pointerId);
    for (const name of ["pointerup", "pointercancel", "lostpointercapture"]) host.addEventListener(name, end);
    host.addEventListener("pointerleave", (event) => event.buttons || end(event));
  }

  drag(event, before, now) {
    if (!this.dragged) this.host.setPointerCapture(event.pointerId);
    this.dragged = true;
    this.pan(now.x - before.x, now.y - before.y);
  }

  pinch(id, before, now) {
    const [other] = [...this.pointers].filter(([key]) => key !== id).map(([, at]) => at);
    const spread = (a) => Math.max(20, Math.hypot(a.x - other.x, a.y - other.y));
    this.dragged = true;
    this.zoom(spread(now) / spread(before), (now.x + other.x) / 2, (now.y + other.y) / 2);
  }
}
