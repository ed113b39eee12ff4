// The clock of Gradio's first “Loading…” goes on when it is gone, and wakes a page that rests sixty times a second: 7% of a core.
// Its clocks show tenths of a second at most, so a few frames do.
const CLOCK = /^\(\)=>\{\w+\(\w+,\(performance\.now\(\)-/;
const nextFrame = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (work) => (CLOCK.test(work) ? setTimeout(work, 200) : nextFrame(work));
