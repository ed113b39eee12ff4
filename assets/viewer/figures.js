// Draws plotly figures in the colours of the theme and the width of their box, with a table of their numbers.

import { button, h, oncePerFrame, table } from "./dom.js";

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
  const replace = (whole, colour) =>
    names.has(colour) ? `"${style.getPropertyValue(names.get(colour)).trim()}"` : whole;
  return JSON.parse(JSON.stringify(figure).replace(/"(#[0-9a-f]{6})"/g, replace));
}

/** Frames around the marks (columns, rows or cells) whose place is in `places`. */
export function frames(data, places, line) {
  const shapes = [];
  const add = (place, ...sides) =>
    places.includes(place) && shapes.push(Object.assign({ type: "rect", line }, ...sides));
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

/**
 * A figure with its table.
 *
 * options: `colours`: colours of the light theme, by name; `plotly`: address of the library; `outOfView`: whether to draw figures outside the
 *   window too (for reports, which may be printed)
 * choose(id, places): called with the place of a selected mark, or with an empty list when it is deselected
 */
export function figureView(id, options, choose = null) {
  let [panel, revision, config] = [null, "", null];
  let [chosen, here] = [[], []]; // places of the selected marks, and of those with the step pinned in Explore
  let [width, inView, late, listens] = [0, Boolean(options.outOfView), false, false];
  const title = h("h3", {});
  const question = h("p.question", {});
  const legend = h("ul.legend", { ariaLabel: "Marks" });
  const host = h("div.plot", { role: "group" }); // not img, since its toolbar can take the focus
  const numbers = h("div.numbers", { hidden: true });
  const opener = button("Table", { class: "small", ariaPressed: false }, toggle);
  const head = h("div.head", {}, title, h("div.tools", {}, opener));
  const box = h("section.panel.figure", { "data-figure": id }, head, question, legend, host, numbers);
  const draw = oncePerFrame(() => redraw());
  new ResizeObserver(([{ contentRect }]) => {
    const now = Math.floor(contentRect.width);
    if (!now || now === width) return;
    width = now;
    draw();
  }).observe(host);
  if (!options.outOfView) {
    const seen = (entries) => {
      inView = entries.at(-1).isIntersecting;
      if (late && inView) draw();
    };
    new IntersectionObserver(seen, { rootMargin: `${NEAR}px 0px` }).observe(host);
  }
  new MutationObserver(draw).observe(document.body, { attributeFilter: ["class"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  /** Shows a panel, null for none. `version`: plotly keeps zoom and hidden traces until this value changes. */
  function show(shown, version = "") {
    [panel, revision] = [shown, version];
    box.hidden = legend.hidden = !panel;
    if (!panel) return;
    title.textContent = box.ariaLabel = panel.title;
    question.textContent = panel.question;
    host.ariaLabel = `${panel.title}: ${panel.question} The numbers are in the table.`;
    host.style.minHeight = `${panel.figure.layout.height}px`; // reserves space, so that drawing it later does not shift the page
    const kind = panel.id === "second" ? "second" : "first";
    const mark = ([look, name]) => h("li", {}, h("i.swatch", { style: MARKS[look](kind) }), name);
    legend.replaceChildren(...panel.legend.map(mark));
    fillTable();
    draw();
  }

  /** Draws the figure, which takes 0.1 s or more. A figure outside the window waits until plotly is loaded and the browser is idle. */
  async function redraw(idle = false) {
    if (!panel || !width || host.hidden || !host.isConnected) return;
    late = !inView && !idle;
    if (late) return window.plotlyOnItsWay?.then(() => whenIdle(() => late && redraw(true)));
    try {
      const library = await plotly(options.plotly);
      const { data, layout } = themed(panel.figure, host, options.colours);
      const style = getComputedStyle(host);
      const line = (name, dash) => ({ color: style.getPropertyValue(name).trim(), width: 2, dash });
      const shapes = [
        ...(layout.shapes || []),
        ...frames(data, here, line("--target", "dash")),
        ...frames(data, chosen, line("--ink", "solid")),
      ];
      const dragmode = matchMedia("(pointer: coarse)").matches ? false : "zoom"; // on touch screens, dragging scrolls the page
      config ??= configOf(library, id); // a new object would make plotly start over
      await library.react(host, data, { ...layout, shapes, dragmode, width, uirevision: revision }, config);
      if (listens) return;
      listens = true;
      host.on("plotly_click", ({ points }) => {
        const mark = points.find(({ customdata }) => Number.isInteger(customdata));
        if (mark) take(mark.customdata);
      });
    } catch (error) {
      host.textContent = `This figure could not be drawn (${error.message}). The numbers are in the table.`;
    }
  }

  function take(place) {
    if (choose) choose(id, String(chosen) === String(place) ? [] : [place]);
  }

  /** Frames the selected marks (`places`), and the marks that contain the step pinned in Explore (`pinned`). */
  function select(places, pinned) {
    if (String([chosen, "", here]) === String([places, "", pinned])) return;
    [chosen, here] = [places, pinned];
    for (const mark of numbers.querySelectorAll("button"))
      mark.ariaPressed = chosen.includes(Number(mark.dataset.place));
    draw();
  }

  function toggle() {
    const open = numbers.hidden;
    numbers.hidden = !open;
    opener.ariaPressed = host.hidden = open;
    draw();
  }

  function fillTable() {
    const { head, rows } = panel.table;
    const content = (cell) => {
      if (!Array.isArray(cell)) return cell;
      const [words, place] = cell;
      const name = `${panel.names[place] ?? ""}: list ${words}`;
      const state = { class: "small", "data-place": place, ariaPressed: chosen.includes(place), ariaLabel: name };
      return choose ? button(words, state, () => take(place)) : words;
    };
    const row = ([name, ...cells]) =>
      h("tr", {}, h("th", { scope: "row" }, content(name)), ...cells.map((cell) => h("td", {}, content(cell))));
    numbers.replaceChildren(table(head, rows.map(row)));
  }

  return { id, box, legend, numbers, show, select };
}
