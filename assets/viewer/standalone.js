// A trace as a file of its own: the viewer is fed from the page's data block and takes its colours from the system.

const dark = matchMedia("(prefers-color-scheme: dark)");
const wantedTheme = new URLSearchParams(location.hash.slice(1)).get("theme");
const paint = () => document.body.classList.toggle("dark", wantedTheme ? wantedTheme === "dark" : dark.matches);
dark.addEventListener("change", paint);
paint();
const element = document.getElementById("explorer");
const props = { value: JSON.parse(document.getElementById("trace").textContent), address: location.hash.slice(1) };
/** `#step=10&node=7`: counted as on the page, from 1. */
const asked = () => {
  const fields = new URLSearchParams(location.hash.slice(1));
  const step = Number(fields.get("step"));
  return Number.isInteger(step) && step > 0 ? { step: step - 1, node: fields.get("node") } : null;
};
{
  const wanted = asked();
  const [head, ...lines] = props.value.split("\n");
  if (wanted) props.value = [JSON.stringify({ ...JSON.parse(head), wanted }), ...lines].join("\n");
}
addEventListener("hashchange", () => asked() && element.dispatchEvent(new CustomEvent("explorer:select", { detail: asked() })));
// Nobody listens for the selection here, and the value never changes.
const trigger = () => {};
const watch = () => {};
