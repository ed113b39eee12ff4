// A link tells by a hash whether a run that is made again wrote the same text: as app/links.py makes it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fingerprint } from "../../assets/viewer/share.js";

test("the text of a finished run has a hash, that of a stopped one has none", () => {
  const run = { opening: [{ text: "h" }], committed: [[{ text: "el" }, { text: "" }], [{ text: "lo" }]], finished: { stop_reason: "end_token" } };
  assert.equal(fingerprint(run), "4f9f2cab");
  assert.equal(fingerprint({ ...run, opening: [], committed: [[{ text: "é🙂" }]] }), "279e480f");
  assert.equal(fingerprint({ ...run, finished: { stop_reason: "stopped" } }), null);
  assert.equal(fingerprint({ ...run, finished: null }), null);
});
