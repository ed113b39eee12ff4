// A file of its own: what its address can ask for.
import assert from "node:assert/strict";
import { test } from "node:test";
import { missing } from "../../assets/viewer/standalone.js";

const of = (address) => missing(address, [2, 5], 12);

test("runs and steps that the file does not hold are said", () => {
  assert.deepEqual(["", "run=5&step=12&stop=5", "step=1"].map(of), ["", "", ""]);
  assert.equal(of("run=3&step=1"), "There is no run 3 in this file; run 2 is shown.");
  for (const step of ["13", "0", "-1", "1.5", "x"]) assert.equal(of(`step=${step}`), `There is no step ${step}: this run has 12.`);
});
