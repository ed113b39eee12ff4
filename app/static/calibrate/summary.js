// The verdict and the sentences it rests on, and the headline figures.

import { h, text } from "../../../assets/viewer/dom.js";

const TONES = { good: ["✓", "good"], bad: ["▼", "warning"], mixed: ["◐", "mixed"], few: ["…", "too few"], note: ["·", "note"] };

export class SummaryView {
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
    this.figures.replaceChildren(...data.stats.map(({ name, value, note, meaning }) => h("div", { class: "stat", title: meaning }, h("dt", {}, name), h("dd", {}, h("span", { class: "value" }, value), h("span", { class: "note", title: note }, note)))));
  }
}
