// Draws the loudness of the utterance as it arrives, and how far it has been played.

const BAR = 3; // pixels
const GAP = 2;
const PIECES_PER_SECOND = 100;
const LEAST_SECONDS = 4; // shown at once, so that a short beginning is not stretched over everything

export class Waveform {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.clear(1);
    new ResizeObserver(() => this.draw(this.played)).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw(this.played));
  }

  /** @param {number} rate samples per second */
  clear(rate) {
    this.piece = Math.max(1, Math.round(rate / PIECES_PER_SECOND));
    this.rate = rate;
    this.peaks = []; // largest magnitude of each piece, 0 to 1
    this.filled = 0; // samples in the last piece
    this.played = 0;
    this.complete = false; // nothing more will be added
    this.draw(0);
  }

  /** @param {Int16Array} samples */
  add(samples) {
    for (let at = 0; at < samples.length; ) {
      if (this.filled === 0) this.peaks.push(0);
      const until = Math.min(samples.length, at + this.piece - this.filled);
      let peak = this.peaks.at(-1) * 32768;
      this.filled = (this.filled + until - at) % this.piece;
      for (; at < until; at++) peak = Math.max(peak, Math.abs(samples[at]));
      this.peaks[this.peaks.length - 1] = peak / 32768;
    }
  }

  /** All of it has been played. */
  finish() {
    this.draw(this.peaks.length / PIECES_PER_SECOND);
  }

  /** @param {number} played seconds */
  draw(played) {
    this.played = played;
    const { canvas } = this;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    const scale = devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    const style = getComputedStyle(canvas);
    const colour = (name) => style.getPropertyValue(name);
    const colours = { unknown: colour("--edge"), heard: colour("--accent"), waiting: colour("--unplayed") };
    const bars = Math.max(1, Math.floor(width / (BAR + GAP)));
    const least = this.complete && this.peaks.length > 0 ? 0 : LEAST_SECONDS * PIECES_PER_SECOND;
    const pieces = Math.max(this.peaks.length, least);
    const heard = (played * this.rate) / this.piece;
    const loudest = Math.max(0.25, this.peaks.reduce((most, peak) => Math.max(most, peak), 0));
    for (let bar = 0; bar < bars; bar++) {
      const from = Math.floor((bar * pieces) / bars);
      const to = Math.max(from + 1, Math.floor(((bar + 1) * pieces) / bars));
      const known = from < this.peaks.length;
      const peak = this.peaks.slice(from, to).reduce((most, each) => Math.max(most, each), 0);
      const tall = known ? Math.max(BAR, (peak / loudest) * height) : BAR;
      pen.fillStyle = colours[!known ? "unknown" : from < heard ? "heard" : "waiting"];
      pen.beginPath();
      pen.roundRect(bar * (BAR + GAP), (height - tall) / 2, BAR, tall, BAR / 2);
      pen.fill();
    }
  }
}
