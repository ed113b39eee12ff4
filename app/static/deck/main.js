// A deck as a file: the runs of a class file, led through by cards. The same file is the speaker's window when its address says so.

import { h, text } from "../../../assets/viewer/dom.js";
import { start as startPage } from "../../../assets/viewer/standalone.js";
import { start as startTour } from "../learn/main.js";
import { start as startLanes } from "../race/main.js";
import { AudienceBar } from "./audience.js";
import { Peers } from "./peers.js";
import { addressOf, cardNamed, readDeck } from "./reading.js";
import { SpeakerPanel } from "./speaker.js";

export function start(given) {
  const deck = readDeck(JSON.parse(document.getElementById("more").textContent));
  const speaking = new URLSearchParams(location.hash.slice(1)).get("speaker") === "1";
  let at = cardNamed(location.hash, deck.cards.length);

  const go = (to) => to >= 0 && to < deck.cards.length && (show(to), peers.tell(to));
  const peers = new Peers(deck.id, (to) => to < deck.cards.length && show(to));
  const view = speaking ? new SpeakerPanel(deck.cards, go) : new AudienceBar(deck.cards, go, () => peers.open(`${location.href.split("#")[0]}${addressOf(deck.cards, at, "speaker", location.hash)}`));
  document.body.classList.add("deck-page", speaking ? "speaker" : "audience");
  document.querySelector("main").before(h("section", { class: "panels deck", "aria-label": speaking ? "Speaker" : "Deck" }, view.box));

  /** The card for the audience; the speaker's window shows the one that comes next. */
  function show(to) {
    at = to;
    location.hash = addressOf(deck.cards, at, speaking ? "speaker" : "audience", location.hash);
    view.show(at);
  }

  // A link of the page's own, or Back: the card may be another one.
  addEventListener("hashchange", () => {
    at = cardNamed(location.hash, deck.cards.length);
    view.show(at);
  });
  // A clicker's keys, before they move steps; in the speaker's window the arrows too.
  const keys = { PageDown: 1, PageUp: -1, ...(speaking ? { ArrowRight: 1, ArrowLeft: -1 } : {}) };
  addEventListener(
    "keydown",
    (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || event.target.closest("input, textarea, select")) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      go(at + keys[event.key]);
    },
    true,
  );
  const named = new URLSearchParams(location.hash.slice(1));
  // a reload comes back to what was looked at, not to the card as it was pinned
  if (!named.has("run") && !named.has("race")) history.replaceState(null, "", addressOf(deck.cards, at, speaking ? "speaker" : "audience", location.hash));
  view.show(at);
  const race = text(deck.race);
  startPage({ ...given, startTour, startRace: race ? (box) => startLanes(box, () => {}, { value: race }, () => {}) : null });
}
