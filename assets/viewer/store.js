// The run: JSON lines, each parsed once when it arrives.

import { list, sum, text } from "./dom.js";
import { NO_OUTCOME, lacking, readOutcome, readStep, summarise } from "./step.js";
import { PROPOSER_NAMES, STAGES } from "./words.js";

const SLICE_MS = 12;
const SLICE_CHARACTERS = 300000;
const KEPT_STEPS = 96;
const PACKED = "~";
const RESEND_MS = 2000; // shortest time between two requests
const UNREADABLE = "A part of this run cannot be read.";

/** Unpacks a line. Long lines and blocks of lines are sent packed: "~", then raw deflate in base64 (see d2sd/trace/run.py). Invalid
 *  lines are returned unchanged and fail to parse later. */
export const openLine = async (line) => (line[0] === PACKED ? inflate(line.slice(1)).catch(() => line) : line);

/** Decodes base64 and inflates it (raw deflate); throws on invalid input. */
export async function inflate(packed) {
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  const { writable, readable } = new DecompressionStream("deflate-raw");
  const writer = writable.getWriter();
  const sent = [writer.write(bytes), writer.close()];
  const opened = await new Response(readable).text();
  await Promise.all(sent);
  return opened;
}

/** Reads a value: a segment of a run (a head, then lines from index `from`), or a whole trace without a head. */
function readSegment(value) {
  const lines = value.split("\n").filter(Boolean);
  if (!lines[0].startsWith('{"event":"Segment"')) return { key: lines[0], from: 0, instructive: 0, lines };
  return { ...JSON.parse(lines[0]), lines: lines.slice(1) };
}

const noSums = () => ({
  steps: 0,
  tokens: 0,
  nodes: 0,
  most: 0, // nodes of the largest tree
  redrafts: 0,
  gained: 0,
  outcomes: { repaired: 0, found: 0, missed: 0, all: 0 },
  seconds: Object.fromEntries(STAGES.map(([stage]) => [stage, 0])),
});

function addSums(sums, summary) {
  sums.steps += 1;
  sums.tokens += summary.total;
  sums.nodes += summary.nodes;
  sums.most = Math.max(sums.most, summary.nodes);
  sums.redrafts += summary.redrafts;
  sums.gained += summary.gained;
  if (summary.verdict !== null) sums.outcomes[summary.verdict] += 1;
  for (const [stage] of STAGES) sums.seconds[stage] += summary.seconds[stage];
}

/** Re-requests missing lines, at most every 2 s, until they arrive. */
export class Resend {
  /** `send(key, start)` requests the lines of a run from index `start`. */
  constructor(send) {
    Object.assign(this, { send, last: -RESEND_MS, timer: 0 });
  }

  request(store, key, start) {
    const wait = this.last + RESEND_MS - performance.now();
    clearTimeout(this.timer);
    if (wait > 0) {
      this.timer = setTimeout(() => this.request(store, key, start), wait);
      return;
    }
    this.last = performance.now();
    this.send(key, start);
    setTimeout(() => store.key === key && store.early.size && this.request(store, key, store.received), RESEND_MS);
  }
}

/** Number of steps with predictions whose first draft was partly rejected. */
export const judged = ({ outcomes }) => outcomes.repaired + outcomes.found + outcomes.missed;

export class Store {
  /** `changed({reset, message})` is called after every parsed slice, when another run begins, and for a segment's message (`kind` and
   *  fields, see d2sd/trace/run.py); `missed(key, start)` is called when lines from `start` are missing. */
  constructor(changed, missed) {
    Object.assign(this, { changed, missed, round: 0 });
    this.clear(null);
  }

  clear(key) {
    // a new round: slices still being parsed belong to the previous run and are dropped
    this.round += 1;
    Object.assign(this, {
      key,
      reading: false,
      complete: false,
      header: { run: "", method: "", config: {}, models: {} },
      prompt: "",
      finished: null,
      failed: null,
      baseline: null,
      unwatched: null,
      disturbed: false,
      measured: "", // date on which plain decoding was timed
      context: null, // tokens of context in this measurement
      waiting: [], // lines that arrived but were not parsed yet
      replays: null, // the line with the replays of the run with other K and γ
      early: new Map(), // lines after a gap, by the index of the first
      received: 0,
      lines: [],
      steps: [], // index of every step in `lines`
      outcomes: [], // the line with the outcome of every step
      opening: [], // tokens of prefill, which belong to no step
      committed: [],
      summaries: [],
      outcome: NO_OUTCOME, // outcome of the next step
      instructive: 0, // the most instructive step
      read: new Map(),
      seen: { draft: false, levels: false, branches: false, second: false, selected: false }, // parts that occur in the steps
      sums: noSums(),
      most: 1, // tokens of the longest step
      recorded: false, // whether the run was complete when it was first seen: a recording, not a live run to follow
      own: false, // whether the run was made in this window
      opened: "", // name of the file that the run was opened from
    });
  }

  get length() {
    return this.steps.length;
  }

  /** A value for another view: all lines so far. That view opens at step `index`. */
  valueAt(index) {
    const head = {
      event: "Segment",
      key: this.key,
      from: 0,
      recorded: true,
      own: this.own || !this.recorded,
      instructive: index,
      message: { kind: "select", step: index, node: null },
    };
    const outcomes = new Map(this.steps.map((place, at) => [place, this.outcomes[at] ?? []]));
    const lines = this.lines.flatMap((line, at) => [outcomes.get(at) ?? [], line].flat());
    return [JSON.stringify(head), ...lines, this.replays ? JSON.stringify(this.replays) : ""].join("\n");
  }

  get run() {
    return this.header.run;
  }

  get names() {
    const drafter = { draft_model: "draft model", eagle3: "EAGLE-3 drafter" }[this.header.method];
    return drafter ? { ...PROPOSER_NAMES, first: drafter } : PROPOSER_NAMES;
  }

  get live() {
    return this.length > 0 && !this.recorded && !this.finished && !this.failed;
  }

  /** Whether all lines of the recording have arrived, but the run in it has no end. */
  get cut() {
    return this.length > 0 && this.recorded && this.complete && !this.finished && !this.failed;
  }

  /** Takes an update. If earlier updates were lost, the missing lines are requested. */
  feed(value) {
    if (!value) return;
    const segment = readSegment(value);
    const { key, from, lines } = segment;
    if (key !== this.key && from > 0 && this.key !== null) return this.missed(key, 0); // the server decides which of the two runs is shown
    if (key !== this.key) {
      this.clear(key);
      this.own = segment.own === true;
      this.opened = text(segment.opened);
      this.recorded =
        segment.recorded === true ||
        (from === 0 && /^\{"event":\s*"(Finished|Failed|Baseline)"/.test(lines.at(-1) || ""));
      this.changed({ reset: true });
    }
    this.instructive = segment.instructive;
    if (segment.message) this.changed({ message: segment.message });
    this.early.set(from, lines);
    for (let at; (at = [...this.early.keys()].find((place) => place <= this.received)) !== undefined;) {
      const more = this.early.get(at).slice(this.received - at);
      this.early.delete(at);
      this.waiting.push(...more);
      this.received += more.length;
    }
    if (this.early.size) this.missed(this.key, this.received);
    this.pump();
  }

  /** Parses lines in short slices with pauses for the browser, so that a long recording never blocks the page. */
  async pump() {
    if (this.reading) return;
    this.reading = true;
    const { round } = this;
    while (this.waiting.length) {
      const opened = (await Promise.all(this.slice().map(openLine))).flatMap((entry) => entry.split("\n"));
      if (round !== this.round) return;
      for (let at = 0; at < opened.length;) {
        const began = performance.now();
        do this.take(opened[at++]);
        while (at < opened.length && performance.now() - began < SLICE_MS);
        this.complete = at === opened.length && !this.waiting.length;
        this.changed({ reset: false });
        await new Promise((go) => setTimeout(go, performance.now() - began > SLICE_MS ? 8 : 0));
        if (round !== this.round) return;
      }
    }
    this.reading = false;
  }

  /** Takes the next lines from `waiting`, about SLICE_CHARACTERS. */
  slice() {
    let count = 0;
    for (let size = 0; count < this.waiting.length && size < SLICE_CHARACTERS; count += 1) {
      const line = this.waiting[count];
      size += line.length * (line[0] === PACKED ? 5 : 1);
    }
    return this.waiting.splice(0, count);
  }

  /** Adds a line. Invalid lines, for example in edited files, are skipped and reported. */
  take(line) {
    try {
      this.add(JSON.parse(line), line);
    } catch {
      this.failed ??= UNREADABLE;
    }
  }

  add(event, line) {
    if (event.event === "Outcome") {
      this.outcome = readOutcome(event); // not part of the trace
      this.outcomes[this.length] = line;
      return;
    }
    if (event.event === "Replays") {
      this.replays = event; // not part of the trace either
      return;
    }
    this.lines.push(line);
    const { event: kind } = event;
    if (kind === "Header") {
      this.header = event;
      this.prompt = event.prompt ?? "";
    } else if (kind === "PrefillDone") {
      this.prompt ||= event.texts.join("");
      this.opening = event.committed;
    } else if (kind === "StepDone") this.addStep(event);
    else if (kind === "Finished") {
      this.finished = event;
      this.read.clear(); // read steps again: the reason for the end of the last one is known now
    } else if (kind === "Failed") this.failed = text(event.sentence) || "The run failed.";
    else if (kind === "Baseline") {
      this.read.clear();
      const { tokens_per_second: baseline, unwatched = null, disturbed = false, measured = "", context = null } = event;
      Object.assign(this, { baseline, unwatched, disturbed, measured, context });
    }
  }

  addStep(event) {
    const summary = summarise(event, this.outcome);
    this.steps.push(this.lines.length - 1);
    this.committed.push(event.committed);
    this.summaries.push(summary);
    this.outcome = NO_OUTCOME;
    const { seen } = this;
    seen.draft ||= Boolean(event.first_draft);
    seen.levels ||= event.levels.length > 0;
    seen.branches ||= event.branches.length > 0;
    seen.second ||= event.branches.some(({ drafter }) => drafter === "second");
    seen.selected ||= event.selected_prefixes.length > 0;
    addSums(this.sums, summary);
    this.most = Math.max(this.most, summary.total);
  }

  /** The share of the steps' time that was not spent on drawing them; 1 if unknown. */
  get undrawn() {
    const all = sum(this.sums.seconds);
    return this.unwatched && all ? this.sums.tokens / this.unwatched / all : 1;
  }

  /** The seconds of a step by stage, without the share of the run's time that was spent on drawing. */
  secondsOf(index) {
    return Object.fromEntries(STAGES.map(([stage]) => [stage, this.undrawn * this.summaries[index].seconds[stage]]));
  }

  /** Facts of the run for `readStep`. */
  get manner() {
    const { method, config, missing } = this.header;
    return {
      names: this.names,
      lacks: lacking(list(missing)),
      sampled: config.temperature > 0,
      random: method === "random_prefix",
      weighted: method === "d2sd_tree",
    };
  }

  /** Step `index`, parsed in full. The last KEPT_STEPS parsed steps are cached, all others are kept as text to save memory. */
  step(index) {
    if (index === null || !(index >= 0 && index < this.length)) return null;
    let step = this.read.get(index);
    if (!step) {
      const ending = this.finished && index === this.length - 1 ? this.finished.stop_reason : "";
      step = {
        ...readStep(JSON.parse(this.lines[this.steps[index]]), index, this.manner, this.summaries[index]),
        ending,
        seconds: this.secondsOf(index),
        drawing: this.live, // whether the times include drawing
      };
      if (this.read.size >= KEPT_STEPS) this.read.delete(this.read.keys().next().value);
      this.read.set(index, step);
    }
    return step;
  }
}
