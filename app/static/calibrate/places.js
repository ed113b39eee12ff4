// Which steps are behind the mark of a figure, and behind which marks a step is.

import { text } from "../../../assets/viewer/dom.js";

/** The steps behind these places, as items of the list: scored positions where the figure counts those, the most surprising
    first, else whole steps. */
export function stepsBehind({ places, steps }, figure, wanted) {
  const items = [];
  const positions = places.positions[figure];
  if (positions) {
    positions.forEach((own, row) => own.forEach((place, at) => wanted.includes(place) && items.push({ row, at })));
    return bySurprise(items, steps);
  }
  (places.steps[figure] || []).forEach((own, row) => own.some((place) => wanted.includes(place)) && items.push({ row, at: null }));
  return items;
}

/** The places of a figure that a step is behind. */
export function placesOf({ places }, figure, row) {
  return (places.positions[figure] || places.steps[figure] || [])[row] || [];
}

/** What these places are called together. */
export function nameOf({ panels }, figure, wanted) {
  const panel = panels.find(({ id }) => id === figure);
  const names = wanted.map((place) => text(panel && panel.names[place])).filter(Boolean);
  return names.length > 1 ? `${names[0]} to ${names[names.length - 1].replace(/^\D+/, "")}` : names.join("") || "Steps";
}

/** The most surprising first: sure and wrong, or unsure and right. */
function bySurprise(items, steps) {
  const surprise = ({ row, at }) => Math.abs((at < steps.matched[row] ? 1 : 0) - steps.confidence[row][at]);
  return items.sort((a, b) => surprise(b) - surprise(a));
}

/** What is listed before anything is chosen: the rejected tokens, the surest first. */
export function surprises({ steps }) {
  const items = [];
  steps.confidence.forEach((own, row) => steps.matched[row] >= 0 && own.length > steps.matched[row] && items.push({ row, at: steps.matched[row] }));
  return bySurprise(items, steps);
}
