// A trace as a file of its own: the viewer is fed from the page's data block and takes its colours from the system.

const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => document.body.classList.toggle("dark", dark.matches);
dark.addEventListener("change", paint);
paint();
const element = document.getElementById("explorer");
const props = { value: JSON.parse(document.getElementById("trace").textContent) };
// Nobody listens for the selection here, and the value never changes.
const trigger = () => {};
const watch = () => {};
