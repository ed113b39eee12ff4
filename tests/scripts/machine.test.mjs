// What steps cost on other machines.
import assert from "node:assert/strict";
import { test } from "node:test";
import { meanCost, stepCost, workOf } from "../../assets/viewer/machine.js";
import { MACHINES } from "../../assets/viewer/constants.js";

const [PAPER] = MACHINES;
const near = (value, wanted, off = 1e-4) => assert.ok(Math.abs(value - wanted) < off, `${value} is not ${wanted}`);

test("a step costs what its paper reports: DFlash and D²SD each their own", () => {
  near(stepCost(PAPER, "dflash", { first: 16, again: [], nodes: 16 }), 5.31 / 4.16);
  near(stepCost(PAPER, "d2sd", { first: 16, again: [64], nodes: 80 }), 7.05 / 4.98);
  near(stepCost(PAPER, "eagle3", { first: 7, again: [], nodes: 60 }), 5.91 / 3.8);
  assert.equal(stepCost(PAPER, "draft_model", { first: 16, again: [], nodes: 16 }), null);
  near(meanCost(PAPER, "autoregressive", [{ first: 0, again: [], nodes: 1 }]), 1);
});

test("the work of a step is the rows of its passes; drafts that were only sampled took none", () => {
  const config = { block_size: 8, second_block_size: 10, draft_depth: 5 };
  const draft = { ids: [1, 2, 3, 4, 5, 6, 7] };
  const nodes = Array(20).fill({});
  const branches = [{ base: 0 }, { base: 0 }, { base: 1 }];
  assert.deepEqual(workOf({ first_draft: draft, branches, selected_prefixes: [1, 2], nodes }, { method: "d2sd_three_level", config }), { first: 8, again: [20, 10], nodes: 20 });
  assert.deepEqual(workOf({ first_draft: draft, branches, selected_prefixes: [], nodes }, { method: "dflash_resample", config }), { first: 8, again: [], nodes: 20 });
  assert.deepEqual(workOf({ nodes }, { method: "eagle3", config }), { first: 7, again: [], nodes: 20 });
  assert.deepEqual(workOf({ nodes: [{}] }, { method: "eagle3", config }), { first: 0, again: [], nodes: 1 });
  assert.deepEqual(workOf({}, null), { first: 0, again: [], nodes: 1 });
});
