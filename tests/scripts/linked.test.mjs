// A trace that a link names.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fetchTrace, traceAddress } from "../../app/runs/address.js";

const fetched = [];
let answer = null;
globalThis.fetch = async (address, options) => {
  fetched.push([address.href, options]);
  if (!answer) throw new Error("network");
  return answer;
};
const HERE = "https://page.example:8443/app/?trace=x";
const of = (wanted, hosts = ["traces.example.org"]) => traceAddress(wanted, HERE, hosts);

test("only this host and those of the list are asked, by http alone", () => {
  assert.equal(of("/runs/a.jsonl").address.href, "https://page.example:8443/runs/a.jsonl");
  assert.equal(of("https://traces.example.org/a.jsonl?x=1").address.host, "traces.example.org");
  for (const wanted of ["https://other.example/a", "//other.example/a", "https://page.example/a", "https://traces.example.org:81/a", "https://traces.example.org.evil.example/a", "https://evil.example\\@traces.example.org/a"]) {
    assert.match(of(wanted).problem, /list/, wanted);
  }
  for (const wanted of ["javascript:alert(1)", "data:,x", "blob:https://page.example:8443/x", "file:///etc/passwd", "ftp://traces.example.org/a", "https://me:secret@traces.example.org/a"]) {
    assert.match(of(wanted).problem, /http/, wanted);
  }
  assert.match(of("http://[").problem, /not contain a valid address/);
});

const stream = (...parts) => ({ ok: true, status: 200, body: { getReader: () => ({ read: async () => (parts.length ? { done: false, value: parts.shift() } : { done: true }), cancel: () => {} }) } });

test("a redirect is not followed, and what is too large or missing is not opened", async () => {
  answer = stream(new Uint8Array([0x1f, 0x8b, 1]), new Uint8Array([2]));
  const file = await fetchTrace(new URL("https://traces.example.org/x/ru%0An<1>.jsonl.gz"), 96);
  assert.deepEqual([file.name, file.size], ["ru0An3C13E.jsonl.gz", 4]);
  assert.equal(fetched[0][1].redirect, "error");
  answer = stream({ length: 97e6 });
  await assert.rejects(fetchTrace(new URL(HERE), 96), /larger than 96 MB/);
  answer = { ok: false, status: 404 };
  await assert.rejects(fetchTrace(new URL(HERE), 96), /answers 404/);
  answer = null;
  await assert.rejects(fetchTrace(new URL(HERE), 96), /does not answer/);
});
