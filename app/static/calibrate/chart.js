// A chart: a panel whose marks (bars, cells) can be chosen with the pointer or the keys, and a table of its numbers.

const PAD = { left: 34, right: 8, top: 14 };

class Chart {
  /** `choose(chart id, places)` is called when a mark is chosen, with no places when it is chosen again. */
  constructor(id, title, question, choose, tooltip) {
    Object.assign(this, { id, choose, tooltip, data: null, chosen: new Set(), here: new Set(), at: null, width: 0 });
    this.svg = s("svg", { role: "group", "aria-label": `${title}: ${question}`, width: "100%" });
    this.tools = h("div", { class: "tools" });
    this.host = h("div", { class: "drawn" }, this.svg);
    this.numbers = h("div", { class: "numbers", hidden: true });
    const toTable = h("button", { type: "button", class: "small", "aria-pressed": "false" }, "Table");
    toTable.addEventListener("click", () => this.toggleTable(toTable));
    this.tools.append(toTable);
    this.box = h("section", { class: `panel chart ${id}`, "aria-label": title }, h("div", { class: "head" }, h("h3", {}, title), this.tools), h("p", { class: "question" }, question), this.host, this.numbers);
    this.listen();
    new ResizeObserver(([entry]) => {
      const width = Math.round(entry.contentRect.width);
      if (width && width !== this.width) {
        this.width = width;
        this.redraw();
      }
    }).observe(this.host);
  }

  show(data) {
    this.data = data;
    this.redraw();
  }

  redraw() {
    if (!this.data || !this.width) return;
    const focused = this.host.contains(document.activeElement);
    const { parts, height, places } = this.draw(this.width);
    this.svg.setAttribute("height", height);
    this.svg.replaceChildren(...parts);
    this.places = places;
    if (!places.includes(this.at)) this.at = places.length ? places[0] : null;
    this.paint();
    if (focused) this.focus(this.at);
    if (!this.numbers.hidden) this.fillTable();
  }

  /** One mark: `hit` is the rectangle that takes the pointer, `label` what is read out and shown beside the pointer. */
  mark(place, label, hit, ...parts) {
    return s("g", { class: "mark", role: "button", tabindex: -1, "data-place": place, "aria-label": label }, s("rect", { class: "hit", rx: 3, ...hit }), ...parts);
  }

  marks() {
    return this.svg.querySelectorAll("g.mark");
  }

  /** Shows which marks are chosen, which hold the step that is pinned in Explore, and which one Tab goes to. */
  paint() {
    for (const mark of this.marks()) {
      const place = Number(mark.dataset.place);
      mark.classList.toggle("chosen", this.chosen.has(place));
      mark.classList.toggle("here", this.here.has(place));
      mark.setAttribute("aria-pressed", this.chosen.has(place));
      mark.setAttribute("tabindex", place === this.at ? 0 : -1);
    }
  }

  select(places, here) {
    this.chosen = new Set(places);
    this.here = new Set(here);
    this.paint();
  }

  focus(place) {
    this.at = place;
    this.paint();
    const mark = [...this.marks()].find((m) => Number(m.dataset.place) === place);
    if (mark) mark.focus();
  }

  /** The mark that an arrow key goes to. */
  neighbour(place, dx) {
    const index = this.places.indexOf(place) + dx;
    return this.places[Math.min(this.places.length - 1, Math.max(0, index))];
  }

  listen() {
    const placeOf = (event) => {
      const mark = event.target.closest && event.target.closest("g.mark");
      return mark ? Number(mark.dataset.place) : null;
    };
    const take = (place) => {
      this.at = place;
      this.choose(this.id, this.chosen.size === 1 && this.chosen.has(place) ? [] : [place]);
    };
    this.svg.addEventListener("click", (event) => placeOf(event) !== null && take(placeOf(event)));
    this.svg.addEventListener("keydown", (event) => {
      const place = placeOf(event);
      const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (place === null || event.ctrlKey || event.metaKey || event.altKey) return;
      if (move) this.focus(this.neighbour(place, ...move));
      else if (event.key === "Enter" || event.key === " ") take(place);
      else return;
      event.preventDefault();
    });
    this.svg.addEventListener("pointermove", (event) => {
      const mark = event.target.closest("g.mark");
      if (!mark || event.pointerType === "touch") return this.tooltip.hide();
      return this.tooltip.show(h("span", {}, mark.getAttribute("aria-label")), event.clientX, event.clientY);
    });
    this.svg.addEventListener("pointerleave", () => this.tooltip.hide());
  }

  toggleTable(button) {
    const open = this.numbers.hidden;
    this.numbers.hidden = !open;
    this.host.hidden = open;
    button.setAttribute("aria-pressed", open);
    if (open) this.fillTable();
  }

  fillTable() {
    const { head, rows } = this.table();
    const cells = (kind, values) => h("tr", {}, ...values.map((v, i) => h(kind === "th" || i === 0 ? "th" : "td", { scope: kind === "th" ? "col" : i === 0 ? "row" : null }, v)));
    this.numbers.replaceChildren(h("table", {}, h("thead", {}, cells("th", head)), h("tbody", {}, ...rows.map((row) => cells("td", row)))));
  }
}

/** Horizontal lines with their values, from 0 to `most`. */
function yAxis(width, y, steps, words) {
  const axis = s("g", { class: "axis" });
  for (const value of steps) {
    axis.append(s("line", { x1: PAD.left, x2: width - PAD.right, y1: y(value), y2: y(value) }), s("text", { class: "end", x: PAD.left - 5, y: y(value) + 3.5 }, words(value)));
  }
  return axis;
}

/** A figure with its interval, as words. */
function figureWords(figure, write) {
  if (!figure || figure.value === null) return "—";
  return write(figure.value) + (figure.low === null ? "" : ` (${write(figure.low)}–${write(figure.high)})`);
}

/** A share in per cent; one digit where it would read as none or as all of something. */
function share(p) {
  if (p === null || p === undefined) return "—";
  const whole = Math.round(p * 100);
  return (whole === 0 && p > 0) || (whole === 100 && p < 1) ? (p * 100).toFixed(1) + "%" : whole + "%";
}

const decimals = (value) => (value === null || value === undefined ? "—" : value.toFixed(3));
const tokensWords = (value) => (value === null || value === undefined ? "—" : value.toFixed(2));
