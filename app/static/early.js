// What runs before Gradio builds the page.

import { queryOfHash } from "../../assets/viewer/address.js";
import { remembered } from "../../assets/viewer/dom.js";

// Fields behind # are those of the query: #run=2&step=10 asks for the same here as in a hand-out.
const follow = (address) => {
  const query = queryOfHash(new URL(address).hash.slice(1), location.search);
  if (query !== null) location.replace(`${location.origin}${location.pathname}?${query}`);
};
follow(location.href);
addEventListener("hashchange", ({ newURL }) => follow(newURL)); // not location.href: the page may have changed it since

// The theme that was chosen with the switch, put where Gradio looks for one.
const themed = new URLSearchParams(location.search);
const chosen = remembered("d2sd-theme");
if (["dark", "light"].includes(chosen) && !themed.has("__theme")) {
  themed.set("__theme", chosen);
  history.replaceState(history.state, "", `${location.pathname}?${themed}${location.hash}`);
}

// Gradio 6.31 takes the status “Loading…” of its page away while its clock runs, which then redraws nothing sixty times a second: 6% of
// a core. No option and no attribute leaves that status out. Its clocks show tenths of a second, so five ticks a second do. The answer
// is 0, which no frame has: Gradio never cancels a tick.
const CLOCK = /^\(\)=>\{\w+\(\w+,\(performance\.now\(\)-/;
const nextFrame = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (work) => (CLOCK.test(work) ? (setTimeout(work, 200), 0) : nextFrame(work));
