// The view in the tab Explore, for scripts of other tabs. They send it events: explorer:select, explorer:guess.

/** The element of the view; null until it has a run. */
export const explorer = () => document.querySelector("#explorer [data-run]");
