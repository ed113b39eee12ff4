// Keeps the windows of one deck at the same card. Files from a disk may not share a channel in every browser, so the window that
// was opened and the one that opened it also write to each other.

export class Peers {
  /** `id`: of the deck; `heard(at)`: another window shows card `at`, from 0. */
  constructor(id, heard) {
    Object.assign(this, { id, other: window.opener });
    const hear = (data) => data && data.deck === id && Number.isInteger(data.card) && data.card >= 0 && heard(data.card);
    try {
      this.channel = new BroadcastChannel("d2sd-deck");
      this.channel.addEventListener("message", ({ data }) => hear(data));
    } catch {
      this.channel = null; // not from a file in this browser
    }
    addEventListener("message", ({ data, source }) => source && source === this.other && hear(data));
  }

  /** Opens the speaker's window, or brings it to the front. */
  open(address) {
    this.other = window.open(address, `d2sd-speaker-${this.id}`, "popup,width=1100,height=760");
    return this.other !== null;
  }

  tell(card) {
    const message = { deck: this.id, card };
    if (this.channel) this.channel.postMessage(message);
    if (this.other && !this.other.closed) this.other.postMessage(message, "*"); // an address from a disk has no origin to name
  }
}
