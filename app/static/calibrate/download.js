// The figures as JSON and the scored positions as CSV, made in the page.

import { h, text } from "../../../assets/viewer/dom.js";
import { saveFile } from "../../../assets/viewer/save.js";

/** A cell of a CSV file. Text that a spreadsheet would take for a formula gets an apostrophe. */
export function cell(value) {
  if (typeof value === "number") return String(value);
  const words = text(value);
  const safe = /^[=+\-@\t\r]/.test(words) ? "'" + words : words;
  return `"${safe.replace(/"/g, '""')}"`;
}

export function positionsCsv(data) {
  const { steps, runs } = data;
  const head = ["run", "label", "step", "position", "confidence", "accepted", "token", "wanted", "boundary", "drafted", "predicted", "rank", "outcome"];
  const rows = [head.join(",")];
  const all = data.report.matrix.counts.length - 1;
  steps.confidence.forEach((own, row) =>
    own.forEach((c, at) => {
      const right = at < steps.matched[row];
      const { run, label } = runs[steps.run[row]];
      const name = (outcome) => (outcome === all ? "all" : outcome < 0 ? "" : outcome);
      const values = [run, label, steps.step[row] + 1, steps.depths[row][at], c, right ? 1 : 0, steps.tokens[row][at], right ? "" : steps.wanted[row], name(steps.happened[row]), steps.drafted[row], name(steps.predicted[row]), steps.rank[row], steps.outcome[row]];
      rows.push(values.map(cell).join(","));
    }),
  );
  return rows.join("\r\n") + "\r\n";
}

export function downloads(get) {
  const button = (words, kind, make) => {
    const b = h("button", { type: "button", class: "small", "data-save": kind }, words);
    b.addEventListener("click", () => get() && saveFile(`calibration.${kind}`, kind === "csv" ? "text/csv" : "application/json", make(get())));
    return b;
  };
  return [
    button("CSV", "csv", positionsCsv),
    button("JSON", "json", (data) => JSON.stringify({ title: data.progress.title, runs: data.runs, reading: data.reading, report: data.report }, null, 1)),
  ];
}
