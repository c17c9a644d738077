// The browser's sound output: opened at the first key or click, so that it is ready when speech begins.

import { ScheduledPlayer } from "./scheduled_player.js";
import { WorkletPlayer } from "./worklet_player.js";

const KINDS = ["pointerdown", "pointerup", "keydown"]; // a touch is an act of the user when it ends

export class SoundOutput {
  /** @param {number} rate samples per second of what will be played */
  constructor(rate) {
    this.rate = rate;
    this.context = null;
    this.loading = null;
    const first = () => {
      if (navigator.userActivation?.isActive === false) return; // a modifier key alone allows nothing
      for (const kind of KINDS) removeEventListener(kind, first, true);
      this.open().catch(() => {}); // tried again when something is to be played
    };
    for (const kind of KINDS) addEventListener(kind, first, true);
  }

  /** Browsers allow it from an act of the user on. */
  async open() {
    this.context ??= new AudioContext({ sampleRate: this.rate, latencyHint: "interactive" });
    this.loading ??= this.load();
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

  /** Browsers have worklets on https and on the machine itself only. */
  async load() {
    try {
      await this.context.audioWorklet?.addModule(new URL("player_worklet.js", import.meta.url));
    } catch (error) {
      this.loading = null;
      throw error;
    }
  }
}
