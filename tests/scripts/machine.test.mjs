// What steps cost on other machines.
import assert from "node:assert/strict";
import { test } from "node:test";
import { meanCost, readWork, stepCost } from "../../assets/viewer/machine.js";
import { MACHINES } from "../../assets/viewer/machines.js";

const [PAPER] = MACHINES;
const near = (value, wanted, off = 1e-4) => assert.ok(Math.abs(value - wanted) < off, `${value} is not ${wanted}`);

test("a step costs what its paper reports: DFlash and D²SD each their own", () => {
  near(stepCost(PAPER, "dflash", { first: 16, again: [], nodes: 16 }), 5.31 / 4.16);
  near(stepCost(PAPER, "d2sd", { first: 16, again: [64], nodes: 80 }), 7.05 / 4.98);
  near(stepCost(PAPER, "eagle3", { first: 7, again: [], nodes: 60 }), 5.91 / 3.8);
  assert.equal(stepCost(PAPER, "draft_model", { first: 16, again: [], nodes: 16 }), null);
  near(meanCost(PAPER, "autoregressive", [{ first: 0, again: [], nodes: 1 }]), 1);
});

test("steps whose work or drafter's time is not known have no price", () => {
  assert.equal(meanCost(PAPER, "dflash", [readWork([16, [], 16]), readWork(undefined)]), null);
  assert.equal(meanCost(PAPER, "draft_model", [readWork([16, [], 16])]), null);
  assert.equal(meanCost(PAPER, "dflash", []), null);
  assert.deepEqual(readWork([8, [20, -1], "x"]), { first: 8, again: [20, 0], nodes: 1 });
});
