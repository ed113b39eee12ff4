// Draws plotly figures in the colours of the theme and the width of their box, with a table of their numbers.

import { button, h, oncePerFrame } from "./dom.js";

const NEAR = 200; // pixels: figures at most this far outside the window are drawn immediately, others when the browser is idle
// Looks of the marks in the legend above a figure; the second drafter has another colour.
const MARKS = {
  accepted: (kind) => `background: var(--${kind})`,
  few: (kind) => `background: var(--${kind}-tint); box-shadow: inset 0 0 0 1px var(--${kind})`,
  "over-confident": () => "background: repeating-linear-gradient(135deg, var(--reject) 0 2px, var(--sunken) 2px 4px)",
  "under-confident": () =>
    "background: radial-gradient(circle at 2px 2px, var(--muted) 1px, var(--sunken) 1.3px) 0 0 / 4px 4px",
  confidence: () => "border-top: 2px dashed var(--ink); height: 0",
};
const whenIdle = (act) => (window.requestIdleCallback ?? setTimeout)(act);

/** Options of plotly and its toolbar; `name`: name of saved files, without extension. */
function configOf(library, name) {
  const vector = {
    name: "svg",
    title: "Save as SVG",
    icon: library.Icons.disk,
    click: (shown) => library.downloadImage(shown, { format: "svg", filename: name }),
  };
  return {
    displaylogo: false,
    showSendToCloud: false, // do not upload figures
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    modeBarButtonsToAdd: [vector],
    toImageButtonOptions: { scale: 2, filename: name },
  };
}

/** Loads plotly.js from the server, once per page. */
export function plotly(address) {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  window.plotlyOnItsWay ??= new Promise((resolve, reject) => {
    const root = window.gradio_config?.root || location.origin + location.pathname;
    const script = h("script", { src: root.replace(/\/$/, "") + address });
    script.addEventListener("load", () => resolve(window.Plotly));
    script.addEventListener("error", () => {
      window.plotlyOnItsWay = undefined;
      reject(new Error("plotly.js did not load"));
    });
    document.head.append(script);
  });
  return window.plotlyOnItsWay;
}

/** Replaces the light theme's `colours` (by name) by the colours of the current theme. */
function themed(figure, element, colours) {
  const style = getComputedStyle(element);
  const names = new Map(Object.entries(colours).map(([name, colour]) => [colour, `--${name}`]));
  const own = (whole, colour) => (names.has(colour) ? `"${style.getPropertyValue(names.get(colour)).trim()}"` : whole);
  return JSON.parse(JSON.stringify(figure).replace(/"(#[0-9a-f]{6})"/g, own));
}

/** Frames around the marks (columns, rows or cells) whose place is in `places`. */
export function frames(data, places, line) {
  const shapes = [];
  const add = (place, ...sides) => places.has(place) && shapes.push(Object.assign({ type: "rect", line }, ...sides));
  const across = (middle, xref = "x") => ({ xref, x0: middle - 0.5, x1: middle + 0.5 });
  const down = (middle, yref = "y") => ({ yref, y0: middle - 0.5, y1: middle + 0.5 });
  for (const { type, orientation, x, y, xaxis, yaxis, customdata = [] } of data)
    for (const [n, place] of customdata.entries()) {
      if (type === "heatmap") place.forEach((cell, column) => add(cell, across(column), down(n)));
      else if (orientation === "h") add(place, { xref: "paper", x0: 0, x1: 1 }, down(y[n], yaxis));
      else add(place, across(x[n], xaxis), { yref: "paper", y0: 0, y1: 1 });
    }
  return shapes;
}

export class FigureView {
  /**
   * `options`: `colours`: colours of the light theme, by name; `plotly`: address of the library; `outOfView`: whether to draw figures
   * outside the window too (for reports, which may be printed).
   * `choose(id, places)`: called with the place of a selected mark, or with an empty list when it is deselected.
   */
  constructor(id, options, choose = null) {
    Object.assign(this, {
      id,
      options,
      choose,
      panel: null,
      chosen: new Set(),
      here: new Set(),
      width: 0,
      inView: Boolean(options.outOfView),
      late: false,
    });
    this.title = h("h3", {});
    this.question = h("p.question", {});
    this.legend = h("ul.legend", { "aria-label": "Marks" });
    this.host = h("div.plot", { role: "group" }); // not img, since its toolbar can take the focus
    this.numbers = h("div.numbers", { hidden: true });
    this.button = button("Table", { class: "small", "aria-pressed": "false" }, () => this.toggle());
    this.box = h(
      "section.panel.figure",
      { "data-figure": id },
      h("div.head", {}, this.title, h("div.tools", {}, this.button)),
      this.question,
      this.legend,
      this.host,
      this.numbers,
    );
    this.draw = oncePerFrame(() => this.redraw());
    new ResizeObserver(([entry]) => {
      const width = Math.floor(entry.contentRect.width);
      if (width && width !== this.width) {
        this.width = width;
        this.draw();
      }
    }).observe(this.host);
    if (!options.outOfView) {
      const seen = (entries) => {
        this.inView = entries[entries.length - 1].isIntersecting;
        if (this.late && this.inView) this.draw();
      };
      new IntersectionObserver(seen, { rootMargin: `${NEAR}px 0px` }).observe(this.host);
    }
    new MutationObserver(this.draw).observe(document.body, { attributeFilter: ["class"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", this.draw);
  }

  /** `revision`: plotly keeps zoom and hidden traces until this value changes. */
  show(panel, revision = "") {
    Object.assign(this, { panel, revision });
    this.box.hidden = this.legend.hidden = !panel;
    if (!panel) return;
    this.title.textContent = panel.title;
    this.question.textContent = panel.question;
    this.box.ariaLabel = panel.title;
    this.host.ariaLabel = `${panel.title}: ${panel.question} The numbers are in the table.`;
    this.host.style.minHeight = `${panel.figure.layout.height}px`; // reserves space, so that drawing it later does not shift the page
    const kind = panel.id === "second" ? "second" : "first";
    const mark = ([look, name]) => h("li", {}, h("i.swatch", { style: MARKS[look](kind) }), name);
    this.legend.replaceChildren(...panel.legend.map(mark));
    this.fillTable();
    this.draw();
  }

  /** Draws the figure, which takes 0.1 s or more. A figure outside the window waits until plotly is loaded and the browser is idle. */
  async redraw(idle = false) {
    if (!this.panel || !this.width || this.host.hidden || !this.host.isConnected) return;
    this.late = !this.inView && !idle;
    if (this.late) return window.plotlyOnItsWay?.then(() => whenIdle(() => this.late && this.redraw(true)));
    try {
      const library = await plotly(this.options.plotly);
      const { data, layout } = themed(this.panel.figure, this.host, this.options.colours);
      const style = getComputedStyle(this.host);
      const line = (name, dash) => ({ color: style.getPropertyValue(name).trim(), width: 2, dash });
      const shapes = [
        ...(layout.shapes || []),
        ...frames(data, this.here, line("--target", "dash")),
        ...frames(data, this.chosen, line("--ink", "solid")),
      ];
      const dragmode = matchMedia("(pointer: coarse)").matches ? false : "zoom"; // on touch screens, dragging scrolls the page
      this.config ??= configOf(library, this.id); // a new object would make plotly start over
      await library.react(
        this.host,
        data,
        { ...layout, shapes, dragmode, width: this.width, uirevision: this.revision },
        this.config,
      );
      if (this.listens) return;
      this.listens = true;
      this.host.on("plotly_click", ({ points }) => {
        const mark = points.find((point) => Number.isInteger(point.customdata));
        if (mark) this.take(mark.customdata);
      });
    } catch (error) {
      this.host.textContent = `This figure could not be drawn (${error.message}). The numbers are in the table.`;
    }
  }

  take(place) {
    if (this.choose) this.choose(this.id, this.chosen.size === 1 && this.chosen.has(place) ? [] : [place]);
  }

  /** Frames the selected marks (`places`), and the marks that contain the step pinned in Explore (`here`). */
  select(places, here) {
    const same = (set, values) => set.size === values.length && values.every((value) => set.has(value));
    if (same(this.chosen, places) && same(this.here, here)) return;
    Object.assign(this, { chosen: new Set(places), here: new Set(here) });
    for (const mark of this.numbers.querySelectorAll("button"))
      mark.ariaPressed = this.chosen.has(Number(mark.dataset.place));
    this.draw();
  }

  toggle() {
    const open = this.numbers.hidden;
    this.numbers.hidden = !open;
    this.host.hidden = open;
    this.button.ariaPressed = open;
    this.draw();
  }

  fillTable() {
    const { head, rows } = this.panel.table;
    const content = (cell) => {
      if (!Array.isArray(cell)) return cell;
      const [words, place] = cell;
      const name = `${this.panel.names[place] ?? ""}: list ${words}`;
      const pressed = String(this.chosen.has(place));
      const state = { class: "small", "data-place": place, "aria-pressed": pressed, "aria-label": name };
      return this.choose ? button(words, state, () => this.take(place)) : words;
    };
    const row = (cells) =>
      h(
        "tr",
        {},
        ...cells.map((cell, n) => (n ? h("td", {}, content(cell)) : h("th", { scope: "row" }, content(cell)))),
      );
    this.numbers.replaceChildren(
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, ...head.map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, ...rows.map(row)),
      ),
    );
  }
}
