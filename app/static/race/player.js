// The clock of the replay: seconds of the race, running at a chosen share of real time.

export const SPEEDS = [
  [1, "1×"],
  [0.5, "½×"],
  [0.25, "¼×"],
  [0.1, "1/10×"],
];
const LEAST_SECONDS = 5; // a replay shorter than this is shown in slow motion to begin with
const BETWEEN = 50; // least milliseconds between two drawings of a replay: drawing every frame takes a whole core

export class Player {
  /** `changed()` is called whenever time, speed or playing change. */
  constructor(host, changed) {
    Object.assign(this, { host, changed, time: 0, duration: 0, speed: 1, playing: false, before: 0, frame: null });
    this.tick = (now) => {
      this.frame = null;
      if (!this.playing) return;
      if (!this.host.isConnected) {
        this.playing = false;
        return;
      }
      if (now - this.before < BETWEEN) {
        this.ask();
        return;
      }
      this.time = Math.min(this.duration, this.time + ((now - this.before) / 1000) * this.speed);
      this.before = now;
      if (this.time >= this.duration) this.playing = false;
      else this.ask();
      this.changed();
    };
  }

  /** A new race: at its start, at the fastest speed that can still be followed. */
  load(duration) {
    this.playing = false;
    this.duration = duration;
    this.time = 0;
    this.speed = (SPEEDS.find(([speed]) => duration / speed >= LEAST_SECONDS) || SPEEDS[SPEEDS.length - 1])[0];
    this.changed();
  }

  play() {
    if (this.playing || this.duration <= 0) return;
    if (this.time >= this.duration) this.time = 0;
    this.playing = true;
    this.before = performance.now();
    this.ask();
    this.changed();
  }

  /** For one frame at a time: one that was asked for before a stop comes all the same. */
  ask() {
    this.frame ??= requestAnimationFrame(this.tick);
  }

  pause() {
    this.playing = false;
    this.changed();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  restart() {
    this.time = 0;
    this.playing = false;
    this.play();
  }

  seek(time) {
    this.playing = false;
    this.time = Math.min(this.duration, Math.max(0, time));
    this.changed();
  }

  slow(speed) {
    this.speed = speed;
    this.changed();
  }
}
