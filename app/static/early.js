// Runs before Gradio builds the page.

import { queryOfHash } from "../../assets/viewer/address.js";
import { remembered } from "../../assets/viewer/dom.js";

// Moves fields after # into the query, so that #run=2&step=10 works as in a class file.
const follow = (address) => {
  const query = queryOfHash(new URL(address).hash.slice(1), location.search);
  if (query !== null) location.replace(`${location.origin}${location.pathname}?${query}`);
};
follow(location.href);
addEventListener("hashchange", ({ newURL }) => follow(newURL)); // location.href may have changed since

// Applies the theme that the user chose with the theme button. Gradio reads the theme from the query.
const themed = new URLSearchParams(location.search);
const chosen = remembered("d2sd-theme");
if (["dark", "light"].includes(chosen) && !themed.has("__theme")) {
  themed.set("__theme", chosen);
  history.replaceState(history.state, "", `${location.pathname}?${themed}${location.hash}`);
}

// Hides “Show me in 2 minutes” once it was used.
document.documentElement.classList.toggle("toured", remembered("d2sd-toured") === "yes");

// Gradio 6.31 removes its status “Loading…” while the clock of the status still runs. The clock then ticks invisibly 60 times a second, which
// takes 6% of a core, and no option disables it. Five ticks per second suffice. The returned 0 is not a valid frame id,
// which does no harm: Gradio never cancels a tick.
const CLOCK = /^\(\)=>\{\w+\(\w+,\(performance\.now\(\)-/;
const nextFrame = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (work) => (CLOCK.test(work) ? (setTimeout(work, 200), 0) : nextFrame(work));
