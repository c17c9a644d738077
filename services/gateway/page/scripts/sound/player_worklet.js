// Plays samples on the audio thread as they arrive, and counts how often it ran out of them.

const QUANTA_PER_REPORT = 4; // of 128 frames each: about 20 ms
const SECONDS_AFTER_UNDERRUN = 0.15; // gathered before it goes on: one long gap is better than many short ones

class SpeechPlayer extends AudioWorkletProcessor {
  constructor() {
    super();
    this.queue = [];
    this.offset = 0; // in the first chunk of the queue
    this.waiting = 0; // frames in the queue
    this.played = 0;
    this.needed = 1;
    this.running = this.ended = this.stopped = false;
    this.quanta = 0;
    this.port.onmessage = ({ data }) => {
      if (data === "end") this.ended = true;
      else if (data === "stop") this.stopped = true;
      else {
        this.queue.push(data);
        this.waiting += data.length;
      }
    };
  }

  process(_inputs, outputs) {
    if (this.stopped) return false;
    const frames = outputs[0][0];
    if (!this.running && (this.waiting >= this.needed || (this.ended && this.waiting > 0))) {
      this.running = true;
      this.port.postMessage({ event: this.played ? "resumed" : "started", played: this.played, at: currentTime });
    }
    const given = this.running ? this.fill(frames) : 0;
    this.played += given;
    if (given < frames.length && this.ended && this.waiting === 0) {
      this.port.postMessage({ event: "finished", played: this.played, at: currentTime });
      return false;
    }
    if (this.running && given < frames.length) {
      this.running = false;
      this.needed = SECONDS_AFTER_UNDERRUN * sampleRate;
      this.port.postMessage({ event: "underrun", played: this.played, at: currentTime });
    } else if (this.running && this.quanta++ % QUANTA_PER_REPORT === 0) {
      this.port.postMessage({ event: "position", played: this.played, at: currentTime });
    }
    return true;
  }

  fill(frames) {
    let at = 0;
    while (at < frames.length && this.queue.length > 0) {
      const chunk = this.queue[0];
      const count = Math.min(frames.length - at, chunk.length - this.offset);
      for (let i = 0; i < count; i++) frames[at + i] = chunk[this.offset + i] / 32768;
      at += count;
      this.offset += count;
      if (this.offset === chunk.length) {
        this.queue.shift();
        this.offset = 0;
      }
    }
    this.waiting -= at;
    return at;
  }
}

registerProcessor("speech-player", SpeechPlayer);
