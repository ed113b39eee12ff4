// How far apart the lanes of a tree stand: as close as their nodes and labels allow.

import { PILL } from "./tree_shapes.js";

const GAP = 5; // between the pills of neighbouring lanes, at least
export const LABEL = { above: [-29, -14], below: [13, 27] };

/**
 * The height of every lane, and what lies above and below the outermost ones.
 *
 * `items`: what stands in a lane: {lane, left, right, top, bottom}, top and bottom relative to the lane's middle.
 */
export function laneRows({ low, high }, items) {
  const byLane = new Map();
  for (const item of items) byLane.set(item.lane, [...(byLane.get(item.lane) || []), item]);
  const y = new Map([[low, 0]]);
  for (let lane = low + 1; lane <= high; lane += 1) {
    let gap = PILL + GAP;
    for (const above of byLane.get(lane - 1) || []) {
      for (const below of byLane.get(lane) || []) {
        if (above.left < below.right && below.left < above.right) gap = Math.max(gap, above.bottom - below.top + 2);
      }
    }
    y.set(lane, y.get(lane - 1) + gap);
  }
  const middle = y.get(0);
  for (const lane of y.keys()) y.set(lane, y.get(lane) - middle);
  const top = y.get(low) + Math.min(-PILL / 2, ...(byLane.get(low) || []).map((item) => item.top));
  const bottom = y.get(high) + Math.max(PILL / 2, ...(byLane.get(high) || []).map((item) => item.bottom));
  return { y, top, bottom };
}
