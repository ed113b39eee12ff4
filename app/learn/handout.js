// The standalone page: runs, each with its tour.

import { start as startPage } from "../../assets/viewer/standalone.js";
import { start as startTour } from "./main.js";

export function start(options) {
  startPage({ ...options, startTour });
}
