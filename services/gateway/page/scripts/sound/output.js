// The browser's sound output: opened at the first key or click, so that it is ready when somebody speaks.

import { ScheduledPlayer } from "./scheduled_player.js";
import { WorkletPlayer } from "./worklet_player.js";

export class SoundOutput {
  /** @param {number} rate samples per second of what will be played */
  constructor(rate) {
    this.rate = rate;
    this.context = null;
    this.loading = null;
    for (const kind of ["pointerdown", "keydown"]) {
      addEventListener(kind, () => this.open().catch(() => {}), { once: true, capture: true });
    }
  }

  /** Browsers allow it from an event of the user on. */
  async open() {
    if (!this.context) {
      this.context = new AudioContext({ sampleRate: this.rate, latencyHint: "interactive" });
      // Browsers have worklets on https and on the machine itself only.
      this.loading = this.context.audioWorklet
        ? this.context.audioWorklet.addModule(new URL("player_worklet.js", import.meta.url))
        : Promise.resolve();
    }
    await Promise.all([this.loading, this.context.resume()]);
  }

  /**
   * A player of one utterance.
   * @param {object} on started() at the first sample, underrun() when it ran dry, resumed() when it goes on after that,
   *   finished(); a player that schedules ahead knows of a gap only when it is over.
   */
  async player(on) {
    await this.open();
    return this.context.audioWorklet ? new WorkletPlayer(this.context, on) : new ScheduledPlayer(this.context, on);
  }
}
