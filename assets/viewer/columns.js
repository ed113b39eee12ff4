// How wide the columns of the tree are, and with them those of the strip. On a narrow screen the whole block is in view:
// the columns that tell the story are wide enough for their words, the others are slim.

const COLUMN = [62, 108];
const FITTED = { wide: 46, slim: 8 };
export const WORDLESS = 24; // a column below this holds a shape without a word

export class Columns {
  /** `across`: pixels to fill; `fitted`: whether everything is to be in view, else no column is narrower than COLUMN[0];
   *  `matters`: columns that stay readable as far as there is room, the most important first, before the others; `need(depth)`:
   *  pixels that the words of one take. */
  constructor(count, across, fitted, matters, need = () => FITTED.wide) {
    const even = Math.min(COLUMN[1], Math.max(COLUMN[0], across / count));
    this.slim = fitted && across / count < COLUMN[0]; // whether columns are narrower than they may be
    this.widths = Array.from({ length: count }, () => even);
    if (this.slim) {
      const wide = new Map();
      let room = across - count * FITTED.slim;
      for (const at of [...matters.filter((depth) => depth >= 0 && depth < count), ...this.widths.keys()]) {
        const width = Math.min(FITTED.wide, Math.max(WORDLESS, need(at)));
        // a comma may still find room where a word does not
        if (wide.has(at) || (wide.size >= 2 && width - FITTED.slim > room)) continue;
        wide.set(at, width);
        room -= width - FITTED.slim;
      }
      const slim = Math.min(WORDLESS - 1, FITTED.slim + Math.max(0, room) / Math.max(1, count - wide.size));
      const rest = wide.size === count ? Math.max(0, room) / count : 0;
      this.widths = this.widths.map((_, at) => (wide.get(at) ?? slim) + rest);
    }
    this.starts = [0];
    for (const width of this.widths) this.starts.push(this.starts[this.starts.length - 1] + width);
  }

  width(depth) {
    return this.widths[Math.min(this.widths.length - 1, Math.max(0, depth))];
  }

  /** Where a depth stands: whole numbers are the middles of columns, halves the borders behind them. */
  x(depth) {
    const at = depth + 0.5;
    const column = Math.min(this.widths.length - 1, Math.max(0, Math.floor(at)));
    return this.starts[column] + (at - column) * this.widths[column] - this.widths[0] / 2;
  }

  /** The depth that stands at a place: the inverse of `x`. */
  depth(x) {
    const place = x + this.widths[0] / 2;
    let column = this.starts.findLastIndex((start) => start <= place);
    column = Math.min(this.widths.length - 1, Math.max(0, column));
    return column + (place - this.starts[column]) / this.widths[column] - 0.5;
  }
}
