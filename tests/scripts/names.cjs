// Prints the bytecode of the script on stdin. The engine resolves every name when it compiles: what no scope around it
// declares becomes an access to the global object. A syntax error goes to stderr, with its line.
const { readFileSync } = require("node:fs");
const v8 = require("node:v8");
const vm = require("node:vm");

const source = readFileSync(0, "utf8");
const compile = (words) => new vm.Script(words, { filename: process.argv[2] });
compile(""); // what Node itself compiles for this is not printed
v8.setFlagsFromString("--no-lazy");
v8.setFlagsFromString("--print-bytecode");
try {
  compile(source);
} catch (error) {
  console.error(error.stack.split("\n    at ")[0]);
  process.exitCode = 1;
}
v8.setFlagsFromString("--no-print-bytecode");
