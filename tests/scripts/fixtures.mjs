// Small runs, and the store that reads them.
import { readStep } from "../../assets/viewer/step.js";
import { Store } from "../../assets/viewer/store.js";

export const RUN = {
  names: { first: "first drafter", second: "second drafter", target: "target" },
  sampled: false,
  random: false,
};

const EMPTY = {
  event: "StepDone",
  anchor_text: "",
  anchor_position: 0,
  first_draft: null,
  boundary_posterior: [],
  full_acceptance: 0,
  selected_prefixes: [],
  branches: [],
  nodes: [],
  choices: [],
  accepted: [],
  committed: [],
  actual_boundary: null,
  elapsed: 0,
  draft_passes: null,
  levels: [],
  decision: null,
  seconds: { first_draft: 0, second_draft: 0, tree: 0, verify: 0, commit: 0 },
};
const whole = (draft) => draft && { base: 0, alternatives: [], ids: draft.texts, ...draft };

/** A recorded step with these fields; all others are empty. */
export function rawStep(fields) {
  const raw = { ...EMPTY, ...fields };
  const depths = new Map([[-1, -1]]);
  for (const { id, parent } of raw.nodes) depths.set(id, depths.get(parent) + 1);
  const nodes = raw.nodes.map((node) => ({
    target_probability: null,
    drafter_probability: null,
    target_rank: null,
    token: node.text,
    ...node,
    depth: depths.get(node.id),
  }));
  return {
    ...raw,
    nodes,
    first_draft: whole(raw.first_draft),
    branches: raw.branches.map(whole),
    seconds: { ...EMPTY.seconds, ...raw.seconds },
  };
}

/** The same step as `readStep` returns it. */
export const stepOf = (fields, run = RUN, outcome = undefined) => readStep(rawStep(fields), 0, run, outcome);

/** The line of a step: the first `boundary` of its `drafted` tokens were accepted. `selected`: predicted prefixes. */
export function stepLine(drafted, boundary, selected = [], elapsed = 0) {
  const trunk = Array.from({ length: drafted + 1 }, (_, id) => ({
    id,
    parent: id - 1,
    depth: id,
    token: `t${id}`,
    text: `t${id}`,
    candidates: [0],
    proposer: "first",
    drafter_probability: 0.5,
    target_probability: 0.5,
    target_rank: 0,
    state: id === 0 ? "root" : id <= boundary ? "accepted" : id === boundary + 1 ? "rejected" : "unreached",
  }));
  return JSON.stringify(
    rawStep({
      elapsed,
      nodes: trunk,
      accepted: trunk.slice(1, boundary + 1).map((n) => n.id),
      branches: [],
      choices: [{ node: boundary, token: 99, text: "right", probability: 0.7 }],
      committed: [
        ...trunk.slice(1, boundary + 1).map((n) => ({ text: n.text, proposer: "first", node: n.id })),
        { text: "right", proposer: "target", node: null },
      ],
      first_draft: {
        drafter: "first",
        prefix: 0,
        texts: trunk.slice(1).map((n) => n.text),
        confidence: Array(drafted).fill(0.5),
        alternatives: [],
      },
      selected_prefixes: selected,
      actual_boundary: boundary,
      boundary_posterior: [],
      full_acceptance: 0,
      seconds: { verify: 0.01 },
    }),
  );
}

/** The outcome line before a step. */
export const outcomeLine = (verdict, gained = 0, closed = null, work = [5, [], 5]) =>
  JSON.stringify({ event: "Outcome", verdict, gained, closed, work });

export const HEADER = JSON.stringify({
  event: "Header",
  run: "r",
  method: "d2sd",
  prompt: "Once",
  config: {},
  models: {},
});
export const FINISHED = JSON.stringify({ event: "Finished", stop_reason: "max_new_tokens" });
export const segment = (key, from, ...lines) =>
  [JSON.stringify({ event: "Segment", key, from, instructive: 0 }), ...lines].join("\n") + "\n";

export function storeOf() {
  const asked = [];
  const store = new Store(
    () => {},
    (key, start) => asked.push([key, start]),
  );
  return { store, asked };
}

export async function settled(store) {
  while (store.reading || store.waiting.length) await new Promise((go) => setTimeout(go, 1));
}
