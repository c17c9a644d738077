// One text from the wish to hear it until it has been heard: the utterance, its player and its measurements.

import { Samples } from "./sound/samples.js";
import { RATE, Utterance } from "./utterance.js";

export class Speaking {
  /**
   * @param {import("./sound/output.js").SoundOutput} output
   * @param {import("./utterance.js").Wish} wish
   * @param {object} on changed() when anything below is new, audio(samples), words(words), warning(message),
   *   over(failure): a sentence, or nothing after all has been heard.
   */
  constructor(output, wish, on) {
    this.on = on;
    this.samples = new Samples(RATE);
    this.header = this.summary = this.player = null;
    this.underruns = 0;
    this.starved = false;
    this.over = false;
    /** Milliseconds from the wish. */
    this.seen = { connected: 0, arrived: 0, heard: 0 };
    for (const name of ["wish", "connected", "arrived", "heard", "summary"]) performance.clearMarks(name);
    this.begun = performance.mark("wish").startTime;
    this.utterance = new Utterance(wish, {
      opened: () => this.note("connected"),
      header: (header) => this.change({ header }),
      audio: (samples) => this.take(samples),
      words: (words) => on.words(words),
      warning: (message) => on.warning(message),
      summary: (summary) => this.complete(summary),
      failed: (sentence) => this.end(sentence),
    });
    this.opening = this.open(output);
  }

  /** Silence at once, here and in every stage. */
  stop() {
    if (this.over) return;
    this.over = true;
    this.utterance.stop();
    this.player?.stop();
  }

  /** Seconds that have been heard. */
  get position() {
    return this.player?.position ?? 0;
  }

  async open(output) {
    try {
      const player = await output.player({
        started: () => this.note("heard"),
        underrun: () => this.change({ starved: !this.summary }),
        resumed: () => this.change({ starved: false, underruns: this.underruns + 1 }),
        finished: () => this.end(),
      });
      if (this.over) {
        player.stop();
        return;
      }
      this.player = player;
      for (const chunk of this.samples.chunks) player.add(chunk);
      if (this.summary) player.end();
    } catch (error) {
      this.end(`This browser plays no sound here: ${error.message}`);
    }
  }

  take(samples) {
    if (this.samples.length === 0) this.note("arrived");
    this.samples.add(samples);
    this.player?.add(samples);
    this.on.audio(samples);
  }

  complete(summary) {
    performance.mark("summary");
    this.change({ summary });
    this.player?.end();
    if (this.samples.length === 0) this.end("The server spoke nothing.");
  }

  end(failure) {
    if (this.over) return;
    this.stop();
    this.on.over(failure);
  }

  note(event) {
    if (this.over) return;
    this.seen[event] = performance.mark(event).startTime - this.begun;
    this.on.changed();
  }

  change(values) {
    if (this.over) return;
    Object.assign(this, values);
    this.on.changed();
  }
}
