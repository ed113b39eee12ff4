// The standalone page: runs, and a tour of each run.

import { start as startPage } from "../../assets/viewer/standalone.js";
import { start as startTour } from "./main.js";

export function start(options) {
  startPage({ ...options, startTour });
}
