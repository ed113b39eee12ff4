// How a step comes about: what is to be seen at every time, the stages of each method, and the clock that plays them.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import { keyActions } from "../../assets/viewer/help.js";
import { Player } from "../../assets/viewer/player.js";
import { Selection } from "../../assets/viewer/selection.js";
import { END, draftOf, durations, stage, stageWords, stagesOf } from "../../assets/viewer/stages.js";
import { stepLine, stepOf } from "./fixtures.mjs";

const recorded = gunzipSync(readFileSync(new URL("../../assets/traces/opening.jsonl.gz", import.meta.url)))
  .toString()
  .split("\n");
const STEPS = recorded
  .filter((line) => line.includes('"StepDone"'))
  .map((line, at) => ({ ...stepOf(JSON.parse(line)), index: at }));
const D2SD = STEPS[1];
const dflash = (passes = 1) => stepOf({ ...JSON.parse(stepLine(6, 3)), draft_passes: passes });
const node = (id, parent, depth, state) => ({
  id,
  parent,
  depth,
  token: id,
  text: `t${id}`,
  candidates: [],
  proposer: "first",
  state,
});
const EAGLE = stepOf({
  nodes: [node(0, -1, 0, "root"), node(1, 0, 1, "accepted"), node(2, 0, 1, "rejected"), node(3, 1, 2, "accepted")],
  accepted: [1, 3],
  committed: [{ text: "t1", proposer: "first", node: 1 }],
  levels: [
    { nodes: [1, 2], texts: ["t1", "t2"], scores: [-0.1, -1], scored: 4 },
    { nodes: [3], texts: ["t3"], scores: [-0.3], scored: 2 },
  ],
});
const PLAIN = stepOf({
  nodes: [node(0, -1, 0, "root")],
  accepted: [],
  committed: [{ text: "x", proposer: "target", node: null }],
  choices: [],
  seconds: { verify: 0.004 },
});
const ALL = [...STEPS, dflash(), dflash(6), EAGLE, PLAIN];

/** Every value of a step at a time. */
function everything(step, t) {
  const now = stage(step, t);
  const drafts = [0, ...step.branches.map((_, at) => at + 1)];
  return {
    stays: [
      ...[...step.nodes.values()].flatMap((n) => [
        now.node(n).opacity,
        now.node(n).word,
        now.node(n).known,
        now.edge(n).opacity,
        now.edge(n).known,
      ]),
      ...(step.draft ? step.draft.confidence.flatMap((_, j) => [now.bar(j + 1).grown, now.bar(j + 1).known]) : []),
      ...step.selected.map((_, n) => now.flag(n).dropped),
      ...step.committed.map((_, i) => now.landed(i)),
      now.lane(true),
      now.lane(false),
      now.brought,
      now.bonus,
      now.truth,
      now.posterior,
      now.late,
    ],
    goes: [
      ...[...step.nodes.values()].flatMap((n) => [now.node(n).apart, now.node(n).light, now.node(n).shake]),
      ...drafts
        .slice(1)
        .flatMap((c) => [now.rail(c).opacity, now.row(c), now.copy(c, 4).opacity, now.copy(c, 4).apart]),
      ...step.selected.map((_, n) => now.flag(n).cast),
      now.sweep ?? 0,
    ],
  };
}

test("the last stage equals the static drawing", () => {
  for (const step of ALL) {
    const { stays, goes } = everything(step, END);
    assert.ok(stays.every((value) => value === 1));
    assert.ok(goes.every((value) => value === 0));
    if (step.draft) step.draft.confidence.forEach((_, j) => assert.equal(stage(step, END).bar(j + 1).opacity, 1));
  }
});

test("stages start with the anchor alone, and shown parts never disappear", () => {
  for (const step of ALL) {
    let before = everything(step, 0).stays;
    for (const n of step.nodes.values()) assert.equal(stage(step, 0).node(n).opacity, n.depth ? 0 : 1);
    for (let t = 0.05; t < 5.01; t += 0.05) {
      const { stays } = everything(step, t);
      stays.forEach((value, at) => assert.ok(value >= before[at] - 1e-9 && value <= 1));
      before = stays;
    }
  }
});

test("acceptance stays hidden until the pass of the target", () => {
  for (const step of ALL) {
    const now = stage(step, 4);
    for (const n of step.nodes.values()) assert.equal(now.node(n).known, n.depth ? 0 : 1);
    assert.deepEqual([now.truth, now.bonus, now.brought, now.landed(0)], [0, 0, 0, 0]);
  }
});

test("re-drafts stand in separate rows until equal prefixes merge", () => {
  const merged = [...D2SD.nodes.values()].filter((n) => draftOf(n) > 0);
  assert.ok(merged.length > 20);
  for (const n of merged)
    assert.deepEqual(
      [3, 3.5].map((t) => stage(D2SD, t).node(n).apart),
      [1, 0],
    );
  assert.deepEqual(
    [2, 3, 3.5].map((t) => stage(D2SD, t).copy(1, 6).opacity),
    [0, 1, 0],
  );
});

test("the light of the verification pass reaches all nodes of a depth at once", () => {
  const lit = [...D2SD.nodes.values()].filter((n) => n.depth === 8).map((n) => stage(D2SD, 3.75).node(n).light);
  assert.ok(lit.length > 3 && lit[0] > 0);
  assert.deepEqual(new Set(lit).size, 1);
});

test("methods without re-drafts skip stages, and drafts grow by pass or level", () => {
  assert.deepEqual(stagesOf(D2SD), [0, 1, 2, 3, 4]);
  assert.deepEqual(stagesOf(dflash()), [0, 3, 4]);
  assert.deepEqual(stagesOf(EAGLE), [0, 3, 4]);
  assert.deepEqual(stagesOf(PLAIN), [3, 4]);
  const shown = (step, t) => [...step.nodes.values()].map((n) => stage(step, t).node(n).opacity > 0);
  assert.deepEqual(shown(dflash(), 0.3), Array(7).fill(true)); // a block at once
  assert.deepEqual(shown(dflash(6), 0.3), [true, true, true, true, false, false, false]); // a token a pass
  assert.deepEqual(shown(EAGLE, 0.3), [true, true, true, false]); // a level a pass
});

test("stageWords describes each stage with the numbers of the step", () => {
  const said = (step) => stagesOf(step).map((at) => stageWords(step, at));
  assert.deepEqual(
    said(D2SD).map((words) => words.replace(/[\d.]+ ms/, "… ms")),
    [
      "One pass guesses 15 tokens at once, and says how sure it is of each.",
      "Where will it break? Most likely after 3 (56%), then 4, 2 or 5.",
      "A second drafter goes on from all four places, in one batch: … ms.",
      "5 drafts, 75 tokens, are one tree of 59 nodes. The target reads it in one pass: … ms.",
      "4 + 4 accepted, and one of the target’s own: 9 tokens; plain decoding needs 9 passes.",
    ],
  );
  assert.match(said(EAGLE)[0], /level by level: 2 passes/);
  assert.deepEqual(said(PLAIN), ["The target reads the latest token: 4.00 ms.", "1 token for one pass of the target."]);
});

test("durations are proportional to measured times if asked", () => {
  const [draft, boundary, redraft, verify] = durations(D2SD, true);
  const { first_draft: first, second_draft: second } = D2SD.seconds;
  assert.ok(Math.abs(draft / redraft - first / second) < 0.01 && verify > 2 * redraft && boundary < draft);
  assert.deepEqual(durations(D2SD, false), Array(5).fill(1.2));
});

const element = () => ({
  append() {},
  replaceChildren() {},
  setAttribute() {},
  removeAttribute() {},
  addEventListener() {},
  style: { setProperty() {} },
  children: [],
  isConnected: true,
});

/** A player over the recorded steps, and a function that lets time go by. */
function playerOf() {
  const [frames, drawn, said] = [[], [], []];
  Object.assign(globalThis, {
    document: { createElement: element, createTextNode: () => ({}) },
    matchMedia: () => ({ matches: false }),
    requestAnimationFrame: (act) => frames.push(act),
  });
  const store = { length: STEPS.length, live: false, step: (at) => STEPS[at] ?? null };
  const selection = new Selection(store, () => {});
  selection.resting = 1;
  const player = new Player(store, selection, {
    draw: (t) => drawn.push(t),
    said: (name) => said.push(name),
    allowed: () => true,
    changed: () => {},
  });
  let now = 0;
  const wait = (seconds) => {
    for (const end = now + seconds * 1000; now < end; now += 50) frames.splice(0).forEach((act) => act(now));
  };
  return {
    player,
    selection,
    drawn,
    said,
    wait,
    keys: keyActions({ store, selection, player, quiz: { asking: false } }),
  };
}

test("Space plays a step in six seconds, goes on to the next steps, and pauses", () => {
  const { player, selection, drawn, said, wait, keys } = playerOf();
  keys[" "]();
  wait(6.5);
  assert.deepEqual(said, ["draft", "boundary", "re-draft", "verify", "commit"]);
  assert.equal(drawn.at(-1), END);
  wait(2);
  assert.equal(selection.pinned, 2);
  keys[" "]();
  const { at } = player;
  wait(3);
  assert.ok(!player.playing && player.on && player.at === at);
  keys[" "]();
  wait(60);
  assert.deepEqual([selection.pinned, player.on], [STEPS.length - 1, false]);
});

test("a pinned step plays alone, and playing ends when another step is pinned", () => {
  const { player, selection, wait } = playerOf();
  selection.pin(3);
  player.toggle();
  wait(20);
  assert.deepEqual([selection.pinned, player.on], [3, false]);
  player.toggle();
  wait(2);
  selection.pin(5);
  wait(0.2);
  assert.deepEqual([selection.pinned, player.on, player.playing], [5, false, false]);
});

test("Shift with a digit rests at the end of a stage", () => {
  const { player, drawn, said, keys } = playerOf();
  keys.Stage3();
  assert.deepEqual([drawn.at(-1), said.at(-1), player.playing], [3, "re-draft", false]);
  keys.Stage5();
  assert.deepEqual([drawn.at(-1), player.on], [END, false]);
});
