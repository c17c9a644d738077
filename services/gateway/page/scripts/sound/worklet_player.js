// Plays one utterance with an AudioWorklet.

import { latency } from "./latency.js";

const LONGEST_GUESS = 0.1; // seconds behind the last report for which the position is counted on

export class WorkletPlayer {
  constructor(context, on) {
    this.context = context;
    this.on = on;
    this.report = { event: "waiting", played: 0, at: 0 };
    this.added = 0; // frames
    this.furthest = 0; // seconds
    this.node = new AudioWorkletNode(context, "speech-player", { numberOfInputs: 0, outputChannelCount: [1] });
    this.node.port.onmessage = ({ data }) => {
      this.report = data;
      this.on[data.event]?.();
    };
    this.node.connect(context.destination);
  }

  /** @param {Int16Array} samples copied, because they are kept for the download as well */
  add(samples) {
    const copy = samples.slice();
    this.added += copy.length;
    this.node.port.postMessage(copy, [copy.buffer]);
  }

  /** Nothing more will be added. */
  end() {
    this.node.port.postMessage("end");
  }

  stop() {
    this.node.disconnect();
    this.node.port.postMessage("stop");
    this.node.port.onmessage = null;
  }

  /** Seconds of the utterance that have been heard. */
  get position() {
    const { event, played, at } = this.report;
    const seconds = played / this.context.sampleRate;
    const running = event === "position" || event === "started" || event === "resumed";
    const waiting = this.added / this.context.sampleRate - seconds;
    const since = running ? Math.min(this.context.currentTime - at, LONGEST_GUESS, waiting) : 0;
    // A guess may have gone too far; what was heard stays heard.
    this.furthest = Math.max(this.furthest, seconds + since - (running ? latency(this.context) : 0));
    return this.furthest;
  }
}
