// The verdict and the sentences it rests on, and the headline figures.

const TONES = { good: ["✓", "good"], bad: ["▼", "warning"], mixed: ["◐", "mixed"], few: ["…", "too few"], note: ["·", "note"] };

const MEANINGS = {
  "Scored positions": "Drafted tokens up to and including the first rejection of each step: later ones were never judged.",
  "Sure → accepted": "Mean confidence of the scored tokens, and the share of them that the target accepted; the gap is in percentage points.",
  ECE: "Expected calibration error: how far acceptance is from confidence, averaged over ten bins of equal width. 0 is perfect; “chance” is what an honest drafter would show with as few tokens.",
  "Adaptive ECE": "The same over ten bins with equally many tokens.",
  "Brier score": "Mean squared distance between confidence and outcome (0 or 1). 0 is perfect.",
  Repaired: "Of the drafts that were partly rejected: how often a re-draft began exactly there and added tokens.",
  "Tokens per re-draft": "Tokens that the drafts behind the first added, over the number of those drafts.",
  "Tokens a step, expected → got": "Of cost-aware steps that drafted: what they expected of the tree that they verified, and what came of it.",
  "Boundary in top 4": "How often the place where the first draft was rejected was among the four likeliest.",
};

class SummaryView {
  constructor(choose) {
    this.choose = choose;
    this.figures = h("dl", { class: "panel figures", "aria-label": "Figures" });
    this.reading = h("section", { class: "panel reading", "aria-label": "Reading" });
    this.spoken = h("p", { class: "spoken", "aria-live": "polite" });
    this.reading.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-chart]");
      if (button) this.choose(button.dataset.chart, button.dataset.places.split(",").map(Number));
    });
  }

  show(data) {
    const [verdict, ...rest] = data.reading;
    const line = (sentence, tag) => {
      const [mark, meaning] = TONES[sentence.tone] || TONES.note;
      // The verdict is what stands before the colon.
      const [head, ...tail] = tag === "h3" ? text(sentence.text).split(":") : [];
      const said = tail.length ? [h("b", {}, head + ":"), tail.join(":")] : [text(sentence.text)];
      const words = [h("i", { class: "tone", title: meaning, "aria-hidden": "true" }, mark), h("span", { class: "words" }, ...said)];
      if (!sentence.chart || !sentence.places.length) return h(tag, { class: sentence.tone }, ...words);
      const show = h("button", { type: "button", class: "small", "data-chart": sentence.chart, "data-places": sentence.places.join(","), "aria-label": `Show the steps: ${text(sentence.text)}` }, "steps");
      return h(tag, { class: sentence.tone }, ...words, show);
    };
    this.reading.replaceChildren(verdict ? line({ ...verdict }, "h3") : "", rest.length ? h("ul", {}, ...rest.map((sentence) => line(sentence, "li"))) : "");
    if (!data.progress.running && verdict) this.spoken.textContent = text(verdict.text);
    this.showFigures(data.report, data.promised);
  }

  showFigures(report, promised) {
    const range = (f, write) => (f.low === null ? "no interval" : `${write(f.low)}–${write(f.high)}`);
    const { ranks } = report;
    const found = ranks.used.value === null ? "" : `; boundary found in ${share(ranks.used.value)}`;
    const per = report.gains.per_redraft;
    const last =
      ranks.repaired.value === null
        ? [["Boundary in top 4", ranks.within.length ? ranks.within[Math.min(3, ranks.within.length - 1)] : null, share]]
        : [["Repaired", ranks.repaired, share, `${count(ranks.chosen, "step")}${found}`], ["Tokens per re-draft", per, decimals, ""]];
    const stats = [
      ["Scored positions", report.positions.toLocaleString("en"), `${count(report.runs, "run")}, ${count(report.steps, "step")}`],
      ["Sure → accepted", report.confidence === null ? "—" : `${share(report.confidence)} → ${share(report.accepted)}`, report.gap.low === null ? "" : `gap ${signed(report.gap.value)} (${signed(report.gap.low)} to ${signed(report.gap.high)})`],
      ["ECE", decimals(report.error.value), report.error.value === null ? "" : `${range(report.error, decimals)}; chance ${decimals(report.chance)}`],
      ["Adaptive ECE", decimals(report.adaptive.value), report.adaptive.value === null ? "" : range(report.adaptive, decimals)],
      ["Brier score", decimals(report.brier.value), report.brier.value === null ? "" : range(report.brier, decimals)],
      ...last.map(([name, figure, write, more = count(ranks.steps, "step")]) => [name, figure ? write(figure.value) : "—", figure && figure.value !== null ? [range(figure, write), more].filter(Boolean).join(" of ") : ""]),
    ];
    if (promised) {
      const skipped = `${count(promised.steps, "drafting step")}, ${promised.plain} plain, ${promised.looks} tried out`;
      stats.push(["Tokens a step, expected → got", promised.steps ? `${promised.expected.toFixed(2)} → ${promised.obtained.toFixed(2)}` : "—", skipped]);
    }
    this.figures.replaceChildren(...stats.map(([name, value, note]) => h("div", { class: "stat", title: MEANINGS[name] || null }, h("dt", {}, name), h("dd", {}, h("span", { class: "value" }, value), h("span", { class: "note", title: note }, note)))));
  }
}

/** A difference of shares in percentage points, with its sign. */
const signed = (p) => (p < 0 ? "−" : "+") + Math.abs(p * 100).toFixed(1);
