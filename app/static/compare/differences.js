// Figures of two sides and their difference with its interval, as a table with a bar for every interval.

const asShare = (p) => `${(p * 100).toFixed(1)}%`;
const asPoints = (p) => `${p < 0 ? "−" : "+"}${(Math.abs(p) * 100).toFixed(1)}`;
const asNumber = (digits) => (value) => value.toFixed(digits).replace("-", "−");
const withSign = (digits) => (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(digits);

/** Name, what it means, how a value and how a difference is written. */
const COMPARED = {
  tokens: ["Tokens per step α", "Committed tokens per step, the target’s own included", asNumber(2), withSign(2)],
  first: ["Accepted of the first draft", "Verified tokens of the first draft that the target accepted, per step with a draft", asNumber(2), withSign(2)],
  hit: ["Boundary re-drafted from", "Of the steps with a rejected first draft: a re-draft began exactly there", asShare, asPoints],
  repaired: ["Repaired", "The same, and the re-draft brought a token", asShare, asPoints],
  redraft: ["Tokens a re-draft brings", "On average over all re-drafts", asNumber(3), withSign(3)],
  nodes: ["Nodes per step", "Verified tree nodes, the anchor included", asNumber(1), withSign(1)],
  gap: ["Accepted − confidence", "Below 0: over-confident", asPoints, asPoints],
  error: ["Calibration error above chance", "How far acceptance is from confidence (ECE, ten bins), less what an honest drafter would show by chance on as many positions", asNumber(3), withSign(3)],
  brier: ["Brier score", "Mean squared distance between confidence and outcome", asNumber(3), withSign(3)],
};

const known = (value) => typeof value === "number" && Number.isFinite(value);

/** A figure with its interval in words. */
function withInterval(figure, write) {
  if (!figure || !known(figure.value)) return "—";
  return write(figure.value) + (known(figure.low) ? ` (${write(figure.low)} to ${write(figure.high)})` : "");
}

/** An interval as a bar about 0; `reach`: the value at either end. */
function intervalBar({ value, low, high }, clear) {
  if (!known(value) || !known(low)) return h("span", { class: "none" }, "no interval");
  const reach = Math.max(Math.abs(low), Math.abs(high), 1e-9) * 1.15;
  const x = (v) => 60 + (56 * v) / reach;
  return s(
    "svg",
    { class: `interval${clear ? " clear" : ""}`, width: 120, height: 16, viewBox: "0 0 120 16", "aria-hidden": "true" },
    s("path", { class: "zero", d: "M60 1V15" }),
    s("path", { class: "range", d: `M${x(low).toFixed(1)} 8H${x(high).toFixed(1)}M${x(low).toFixed(1)} 4v8M${x(high).toFixed(1)} 4v8` }),
    s("circle", { class: "value", cx: x(value).toFixed(1), cy: 8, r: 3 }),
  );
}

function differenceRow(name, title, row, write, difference) {
  const says = !known(row.difference.low) ? "" : row.clear ? "clear" : "not clear";
  return h(
    "tr",
    { class: row.clear ? "clear" : null, "data-figure": row.name },
    h("th", { scope: "row", title: title || null }, name),
    h("td", { "data-side": "A" }, withInterval(row.a, write)),
    h("td", { "data-side": "B" }, withInterval(row.b, write)),
    h("td", {}, withInterval(row.difference, difference)),
    h("td", {}, intervalBar(row.difference, row.clear)),
    h("td", { class: "says" }, says),
  );
}

function differencesTable(caption, rows) {
  const heads = ["", "A", "B", "B − A (95% interval)", "", ""].map((words) => h("th", { scope: "col" }, words));
  return h("div", { class: "scroll" }, h("table", { class: "differences" }, h("caption", { class: "spoken" }, caption), h("thead", {}, h("tr", {}, ...heads)), h("tbody", {}, ...rows)));
}

/** All figures of a comparison. */
function figuresTable(comparison) {
  const rows = list(comparison.figures).filter((row) => COMPARED[row.name]);
  return differencesTable("Figures of both sides", rows.map((row) => differenceRow(COMPARED[row.name][0], COMPARED[row.name][1], row, COMPARED[row.name][2], COMPARED[row.name][3])));
}

/** Which side is which. */
function sidesLegend(titles) {
  const item = (side, name) => h("li", {}, s("svg", { width: 34, height: 14, viewBox: "0 0 34 14", "aria-hidden": "true" }, s("path", { class: `curve ${side}`, d: "M1 7H33" }), curvePoint(side, 17, 7)), h("b", {}, name), h("bdi", {}, text(titles[side === "a" ? 0 : 1])));
  return h("ul", { class: "legend sides", "aria-label": "Sides" }, item("a", "A"), item("b", "B"));
}

/** How it was drawn again, in a sentence. */
function howCompared(comparison) {
  const together = comparison.paired ? "both sides drawn together" : "each side drawn on its own: they have other prompts, or wrote other texts";
  return `95% intervals from drawing every ${text(comparison.unit)} again, ${together}.`;
}
