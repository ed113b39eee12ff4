// The run: a growing text of JSON lines, read once as it arrives.

const SLICE_MS = 12;
const SLICE_CHARACTERS = 600000;
const KEPT_STEPS = 96;
const PACKED = "~";

/** A line as it was written. Long ones travel packed ("~", then raw deflate in base64; see app/views/explorer.py). */
async function openLine(line) {
  if (line[0] !== PACKED) return line;
  try {
    const bytes = Uint8Array.from(atob(line.slice(1)), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return await new Response(stream).text();
  } catch {
    return "";
  }
}

class Store {
  /** `changed({reset})` is called after every slice that was read, and when another run begins. */
  constructor(changed) {
    this.changed = changed;
    this.round = 0;
    this.clear("");
  }

  clear(head) {
    // A new round: whatever is still being read belongs to the run before.
    this.round += 1;
    this.reading = false;
    this.complete = false;
    Object.assign(this, { value: "", offset: 0, head, header: {}, prompt: "", finished: null, failed: null, baseline: null });
    this.raw = [];
    this.summaries = [];
    this.read = new Map();
    this.sums = { tokens: 0, nodes: 0, hits: 0, judged: 0, most: 1, seconds: readSeconds(null) };
    // Whether the run was already complete when it was first seen: a recording, not something to follow.
    this.recorded = false;
  }

  get length() {
    return this.raw.length;
  }

  get run() {
    return text(this.header.run);
  }

  get live() {
    return this.raw.length > 0 && !this.finished && !this.failed;
  }

  feed(value) {
    value = text(value);
    const end = value.indexOf("\n");
    const head = end < 0 ? "" : value.slice(0, end + 1);
    const at = this.offset;
    const grew = head === this.head && value.length >= at && value.slice(Math.max(0, at - 64), at) === this.tail;
    if (!grew) {
      this.clear(head);
      this.recorded = /\n\{"event":\s*"(Finished|Failed)"/.test(value);
      this.changed({ reset: true });
    }
    this.value = value;
    this.pump();
  }

  /** The last characters read: the next value must have the same ones there, or it is another run. */
  get tail() {
    return this.value.slice(Math.max(0, this.offset - 64), this.offset);
  }

  /** Read whole lines for a short while, show them, let the page breathe, go on: a long recording never blocks it. */
  async pump() {
    if (this.reading) return;
    this.reading = true;
    const { round } = this;
    for (;;) {
      const [lines, end] = this.nextLines();
      if (!lines.length) break;
      const opened = await Promise.all(lines.map(openLine));
      if (round !== this.round) return;
      const began = performance.now();
      for (const line of opened) this.take(line);
      this.offset = end;
      this.complete = this.value.indexOf("\n", end) < 0;
      this.changed({ reset: false });
      await new Promise((go) => setTimeout(go, performance.now() - began > SLICE_MS ? 8 : 0));
      if (round !== this.round) return;
    }
    this.reading = false;
  }

  nextLines() {
    const lines = [];
    let at = this.offset;
    for (let size = 0; size < SLICE_CHARACTERS; ) {
      const end = this.value.indexOf("\n", at);
      if (end < 0) break;
      lines.push(this.value.slice(at, end));
      size += (end - at) * (this.value[at] === PACKED ? 5 : 1);
      at = end + 1;
    }
    return [lines, at];
  }

  take(line) {
    let event;
    try {
      event = JSON.parse(line);
    } catch {
      return;
    }
    if (!event || typeof event !== "object") return;
    if (event.event === "Header") {
      this.header = event;
      this.prompt = text(event.prompt);
    } else if (event.event === "PrefillDone") {
      this.prompt = this.prompt || list(event.texts).map(text).join("");
    } else if (event.event === "StepDone") this.addStep(event);
    else if (event.event === "Finished") this.finished = event;
    else if (event.event === "Failed") this.failed = text(event.sentence) || "The run failed.";
    else if (event.event === "Baseline") this.baseline = number(event.tokens_per_second, 0, 1e9, null);
  }

  addStep(event) {
    const summary = summarise(event);
    this.raw.push(event);
    this.summaries.push(summary);
    const sums = this.sums;
    sums.tokens += summary.total;
    sums.nodes += summary.nodes;
    sums.most = Math.max(sums.most, summary.total);
    if (summary.verdict === "hit" || summary.verdict === "miss") sums.judged += 1;
    if (summary.verdict === "hit") sums.hits += 1;
    for (const [stage] of STAGES) sums.seconds[stage] += summary.seconds[stage];
  }

  /** Step `index`, read in full; the latest ones stay read. */
  step(index) {
    if (index === null || !(index >= 0 && index < this.raw.length)) return null;
    let step = this.read.get(index);
    if (!step) {
      step = readStep(this.raw[index], index);
      if (this.read.size >= KEPT_STEPS) this.read.delete(this.read.keys().next().value);
      this.read.set(index, step);
    }
    return step;
  }

  /** A step that shows the idea: a branch won from a predicted prefix and brought several tokens. */
  instructive() {
    let best = 0;
    let score = -1;
    this.summaries.forEach((summary, index) => {
      if (summary.verdict !== "hit") return;
      const kept = Math.max(0, summary.boundary);
      const gained = summary.accepted - kept;
      const worth = gained < 2 ? gained : 10 + Math.min(gained, 5) + Math.min(kept, 4);
      if (worth > score && gained > 0) [best, score] = [index, worth];
    });
    return best;
  }
}
