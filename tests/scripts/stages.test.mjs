// The animation of a step: its look at every time, the stages of each method, and the player.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import { keyActions } from "../../assets/viewer/help.js";
import { playerView, stageAt, timeAt } from "../../assets/viewer/player.js";
import { ALONE, END, STAGE_NAMES, draftOf, rowOrder, stage, stageWords, stagesOf } from "../../assets/viewer/stages.js";
import { State } from "../../assets/viewer/state.js";
import { brokenTokens } from "../../assets/viewer/tree_layout.js";
import { afterToken } from "../../assets/viewer/words.js";
import { stepLine, stepOf } from "./fixtures.mjs";

const recorded = gunzipSync(readFileSync(new URL("../../assets/traces/opening.jsonl.gz", import.meta.url)))
  .toString()
  .split("\n");
const STEPS = recorded
  .filter((line) => line.includes('"StepDone"'))
  .map((line, at) => ({ ...stepOf(JSON.parse(line)), index: at }));
const D2SD = STEPS[3];
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
      now.fold,
    ],
    goes: [
      ...[...step.nodes.values()].flatMap((n) => [now.node(n).apart, now.node(n).light, now.node(n).shake]),
      ...drafts
        .slice(1)
        .flatMap((c) => [now.rail(c).opacity, now.kept(c), now.copy(c, 4).opacity, now.copy(c, 4).apart]),
      ...step.selected.map((_, n) => now.flag(n).cast),
      ...[0, ...step.accepted].map((_, at) => now.wants(at).opacity),
      now.apart,
    ],
  };
}

test("the last stage equals the static drawing", () => {
  for (const step of ALL) {
    const { stays, goes } = everything(step, END);
    assert.ok(stays.every((value) => value === 1));
    assert.ok(goes.every((value) => value === 0));
  }
});

test("stages start with the anchor alone, and shown parts never disappear", () => {
  for (const step of ALL) {
    let before = everything(step, 0).stays;
    for (const n of step.nodes.values()) assert.equal(stage(step, 0).node(n).opacity, n.depth ? 0 : 1);
    for (let t = 0.05; t < END + 0.01; t += 0.05) {
      const { stays } = everything(step, t);
      stays.forEach((value, at) => assert.ok(value >= before[at] - 1e-9 && value <= 1));
      before = stays;
    }
  }
});

test("before the first stage the large model writes the tokens of the step one by one", () => {
  for (const step of ALL) {
    const seen = (t) => [0, ...step.accepted].map((_, at) => stage(step, t).wants(at).opacity);
    assert.ok(seen(ALONE).every((opacity) => opacity === 0));
    assert.ok(seen(-0.2).every((opacity) => opacity === 1));
    assert.ok(seen(0).every((opacity) => opacity === 0));
    const half = seen((ALONE - 0.3) / 2);
    assert.deepEqual(
      half.toSorted((a, b) => b - a),
      half,
    ); // in their order
    for (const n of step.nodes.values()) assert.equal(stage(step, -0.2).node(n).opacity, n.depth ? 0 : 1);
  }
});

test("acceptance stays hidden until the target has walked", () => {
  for (const step of ALL) {
    for (const t of [4, 4.99]) {
      const now = stage(step, t);
      for (const n of step.nodes.values()) assert.equal(now.node(n).known, n.depth ? 0 : 1);
      assert.deepEqual([now.truth, now.bonus, now.brought, now.landed(0), now.fold], [0, 0, 0, 0, 0]);
    }
  }
});

test("all masks of a block appear together, and all tokens", () => {
  const drafted = [...D2SD.nodes.values()].filter((n) => n.depth && draftOf(n) === 0);
  for (const t of [0.1, 0.5, 0.6]) {
    const seen = new Set(drafted.map((n) => stage(D2SD, t).node(n)).map(({ opacity, word }) => `${opacity} ${word}`));
    assert.equal(seen.size, 1);
  }
  assert.deepEqual([stage(D2SD, 0.3).node(drafted[0]).word, stage(D2SD, 0.7).node(drafted[0]).word], [0, 1]);
});

test("in the doubt stage the bars rise together, then the flags drop, the likeliest first", () => {
  assert.equal(new Set(D2SD.draft.confidence.map((_, j) => stage(D2SD, 1.2).bar(j + 1).grown)).size, 1);
  assert.deepEqual(
    [1, 1.4].map((t) => stage(D2SD, t).bar(1).grown),
    [0, 1],
  );
  const dropped = D2SD.selected.map((_, n) => stage(D2SD, 1.72).flag(n).dropped);
  assert.ok(dropped[0] === 1 && dropped.at(-1) === 0 && dropped.every((d, n) => !n || d <= dropped[n - 1]));
});

test("equal tokens slide into one another, one row after the other", () => {
  const apart = (t) => rowOrder(D2SD).map((c) => stage(D2SD, t).copy(c, 12).apart);
  assert.deepEqual(
    rowOrder(D2SD).map((c) => D2SD.branches[c - 1].prefix),
    [6, 5, 3, 2],
  ); // the latest start is nearest
  assert.ok(apart(3).every((value) => value === 1) && apart(4).every((value) => value === 0));
  const [first, ...others] = apart(3.35);
  assert.ok(first === 0 && others.at(-1) === 1);
  const own = [...D2SD.nodes.values(), ...D2SD.left].find((n) => draftOf(n) === rowOrder(D2SD)[0]);
  assert.deepEqual(
    [3, 3.35].map((t) => stage(D2SD, t).node(own).apart),
    [1, 0],
  );
  assert.deepEqual(
    [2, 3, 4].map((t) => stage(D2SD, t).copy(1, 6).opacity),
    [0, 1, 0],
  );
  assert.ok(stage(D2SD, 3).kept(1) > 0.2); // the prefix is drawn faintly
});

test("the target's pass lights up the whole tree together, then the walk goes node by node", () => {
  const nodes = [...D2SD.nodes.values()];
  for (const t of [4.08, 4.2, 4.3]) assert.equal(new Set(nodes.map((n) => stage(D2SD, t).node(n).light)).size, 1);
  assert.equal(stage(D2SD, 4.2).node(nodes[0]).light, 1);
  const lit = (t) => nodes.filter((n) => stage(D2SD, t).node(n).light > 0.5).map((n) => n.id);
  const path = [0, ...D2SD.accepted];
  assert.deepEqual(lit(4.405), []);
  assert.deepEqual(
    lit(4.99),
    path.toSorted((a, b) => a - b),
  );
  for (let t = 4.41; t < 4.99; t += 0.02)
    assert.deepEqual(
      lit(t),
      path.slice(0, lit(t).length).toSorted((a, b) => a - b),
    );
  assert.ok(lit(4.7).length > 2 && lit(4.7).length < path.length - 2);
  const asked = (t) => path.map((_, at) => stage(D2SD, t).wants(at).opacity > 0.1);
  for (let t = 4.45; t < 4.95; t += 0.05) assert.equal(asked(t).filter(Boolean).length <= 1, true);
  const last = path.length - 1;
  assert.deepEqual(
    [0, last].map((at) => stage(D2SD, 4.99).wants(at).opacity > 0.9),
    [false, true],
  ); // no node equals the last token, so it stays in view
  assert.equal(stage(D2SD, 4.99).wants(last).down, 0);
});

test("only rejected tokens at the boundary shake", () => {
  const shaking = new Set();
  for (let t = 5.3; t < 5.6; t += 0.01)
    for (const n of D2SD.nodes.values()) if (Math.abs(stage(D2SD, t).node(n).shake) > 0.1) shaking.add(n.id);
  const [...wrong] = brokenTokens(D2SD).keys();
  assert.deepEqual([...shaking].toSorted(), wrong.toSorted());
});

test("methods without re-drafts skip stages, and drafts appear pass by pass or level by level", () => {
  assert.deepEqual(stagesOf(D2SD), [0, 1, 2, 3, 4, 5]);
  assert.deepEqual(stagesOf(dflash()), [0, 4, 5]);
  assert.deepEqual(stagesOf(EAGLE), [0, 4, 5]);
  assert.deepEqual(stagesOf(PLAIN), [4, 5]);
  const shown = (step, t) => [...step.nodes.values()].map((n) => stage(step, t).node(n).opacity > 0);
  assert.deepEqual(shown(dflash(), 0.3), Array(7).fill(true)); // a whole block
  assert.deepEqual(shown(dflash(6), 0.3), [true, true, true, true, false, false, false]); // one token per pass
  assert.deepEqual(shown(EAGLE, 0.3), [true, true, true, false]); // one level per pass
});

test("stageWords describes each stage with the numbers of the step", () => {
  const said = (step) => stagesOf(step).map((at) => Object.values(stageWords(step, at)));
  assert.deepEqual(
    said(D2SD).map((words) => words.map((line) => line.replace(/[\d.]+ ms/, "… ms"))),
    [
      ["The drafter guesses 15 tokens at once.", "One draft pass, … ms."],
      ["Where will the draft break?", "47% after the second token, 17% after the sixth, …"],
      ["A second drafter starts from four places.", "Four drafts at once, … ms."],
      ["75 tokens become one tree of 58 nodes.", "Only the 17 likeliest go on."],
      ["The large model reads 17 nodes in one pass.", "One pass, … ms."],
      ["Nine tokens in one pass.", "One by one, they would take nine passes."],
    ],
  );
  assert.deepEqual(said(EAGLE)[0], [
    "Two draft passes grow a tree, level by level.",
    "Each continues the likeliest paths.",
  ]);
  assert.deepEqual(said(PLAIN), [
    ["The large model reads the latest token.", "One pass, 4.00 ms."],
    ["One token in one pass.", ""],
  ]);
  assert.equal(said(dflash(6))[0][0], "The drafter guesses six tokens, one after the other.");
  assert.match(said({ ...D2SD, selected: [0, 1, 2] })[1][1], /^\d+% before the first token, \d+% after the \w+, …$/);
  for (const step of ALL) for (const [title] of said(step)) assert.ok(title.length <= 60, title);
});

test("afterToken names every boundary of a draft", () => {
  const named = [0, 1, 12, 13, 21, 22, 33, 112].map((n) => afterToken(n, true));
  assert.deepEqual(named, [
    "before the first",
    ...["first", "twelfth", "13th", "21st", "22nd", "33rd", "112th"].map((n) => `after the ${n}`),
  ]);
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

/** A player of the recorded steps; `wait(seconds)` lets time pass, `drawn` and `said` are the times and the stages that were shown. */
function playerOf() {
  const [frames, drawn, said] = [[], [], []];
  Object.assign(globalThis, {
    document: { createElementNS: element },
    matchMedia: () => ({ matches: false }),
    requestAnimationFrame: (act) => frames.push(act),
  });
  const store = { length: STEPS.length, live: false, step: (at) => STEPS[at] ?? null };
  const show = ({ now, chosen }) => {
    const name = STAGE_NAMES[stageAt(STEPS[chosen], now.place)] ?? "";
    drawn.push(timeAt(STEPS[chosen], now.place));
    if (said.at(-1) !== name) said.push(name);
  };
  const state = new State(store, () => show(state), { resting: 1 });
  const player = playerView(store, state, () => true);
  let now = 0;
  const wait = (seconds) => {
    for (const end = now + seconds * 1000; now < end; now += 50) frames.splice(0).forEach((act) => act(now));
  };
  return { player, state, drawn, said, wait, keys: keyActions({ store, state, player, quiz: { asking: false } }) };
}

test("Space plays a step in 18 seconds and stops at its end; it also pauses and resumes", () => {
  const { state, drawn, said, wait, keys } = playerOf();
  keys[" "]();
  wait(0.1);
  assert.ok(drawn[0] < 0.05); // the first drawing is the beginning
  wait(9);
  keys[" "]();
  const { place } = state.now;
  wait(3);
  assert.ok(!state.now.playing && state.now.place === place && place > 2.9 && place < 3.2);
  keys[" "]();
  wait(9.5);
  assert.deepEqual(said, ["draft", "doubt", "re-draft", "merge", "verify", "keep", ""]);
  assert.deepEqual([drawn.at(-1), state.now.place, state.now.playing], [END, null, false]);
  wait(60);
  assert.deepEqual([state.now.pinned, state.shown, state.now.place], [null, 1, null]); // the next step does not start to play
});

test("a part of a step plays between two places and rests there", () => {
  const { player, state, drawn, wait, keys } = playerOf();
  player.play(-1, -0.2);
  assert.ok(drawn[0] < -0.9);
  wait(1);
  assert.ok(state.now.playing);
  wait(2);
  assert.deepEqual([drawn.at(-1), state.now.playing, state.now.place], [-0.2, false, -0.2]);
  player.play(4, 6);
  wait(7);
  assert.deepEqual([drawn.at(-1), state.now.place], [END, null]);
  player.play(2, 3);
  wait(4);
  keys[" "](); // to the end
  wait(10);
  assert.deepEqual([drawn.at(-1), state.now.place], [END, null]);
});

test("playing ends when another step is pinned", () => {
  const { player, state, wait } = playerOf();
  state.pin(3);
  player.toggle();
  wait(2);
  state.pin(5);
  wait(0.2);
  assert.deepEqual([state.now.pinned, state.now.place, state.now.playing], [5, null, false]);
});

test("Shift with a digit rests at the end of a stage, and arrows go from one to the next", () => {
  const { player, state, drawn, said, keys } = playerOf();
  keys.Stage3();
  assert.deepEqual([drawn.at(-1), said.at(-1), state.now.playing], [3, "re-draft", false]);
  const press = (key) => player.press({ key, preventDefault() {} });
  press("ArrowRight");
  assert.deepEqual([drawn.at(-1), said.at(-1)], [4, "merge"]);
  player.seek(3.4);
  press("ArrowLeft");
  assert.equal(drawn.at(-1), 3);
  keys.Stage6();
  assert.deepEqual([drawn.at(-1), state.now.place], [END, null]);
});
