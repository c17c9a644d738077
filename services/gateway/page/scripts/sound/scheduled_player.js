// Plays one utterance without a worklet: each chunk is scheduled behind the one before it.

import { latency } from "./latency.js";

const LEAD = 0.03; // seconds ahead at which the first chunk, and one behind a gap, is scheduled

export class ScheduledPlayer {
  constructor(context, on) {
    this.context = context;
    this.on = on;
    this.sources = new Set();
    this.spans = []; // {from, start, seconds}: start is the position in the utterance
    this.until = 0; // when the last chunk is over, on the clock of the context
    this.added = 0; // seconds
    this.ended = false;
  }

  add(samples) {
    if (samples.length === 0) return;
    const { context } = this;
    const late = this.until < context.currentTime;
    if (late && this.added > 0) this.on.resumed?.();
    const from = late ? context.currentTime + LEAD : this.until;
    const buffer = context.createBuffer(1, samples.length, context.sampleRate);
    buffer.copyToChannel(Float32Array.from(samples, (sample) => sample / 32768), 0);
    const source = new AudioBufferSourceNode(context, { buffer });
    source.connect(context.destination);
    source.onended = () => {
      this.sources.delete(source);
      this.finishIfOver();
    };
    source.start(from);
    this.sources.add(source);
    this.spans.push({ from, start: this.added, seconds: buffer.duration });
    this.until = from + buffer.duration;
    if (this.added === 0) this.starting = setTimeout(() => this.on.started?.(), 1000 * LEAD);
    this.added += buffer.duration;
  }

  end() {
    this.ended = true;
    this.finishIfOver();
  }

  stop() {
    clearTimeout(this.starting);
    for (const source of this.sources) {
      source.onended = null;
      source.stop();
    }
    this.sources.clear();
  }

  get position() {
    const now = this.context.currentTime - latency(this.context);
    const span = this.spans.findLast(({ from }) => from <= now);
    return span ? span.start + Math.min(now - span.from, span.seconds) : 0;
  }

  finishIfOver() {
    if (this.ended && this.sources.size === 0) this.on.finished?.();
  }
}
