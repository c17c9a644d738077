// The samples of one utterance: signed 16 bits, mono, kept as they arrive.

export class Samples {
  /** @param {number} rate samples per second */
  constructor(rate) {
    this.rate = rate;
    this.chunks = [];
    this.length = 0;
  }

  /** @param {Int16Array} chunk */
  add(chunk) {
    this.chunks.push(chunk);
    this.length += chunk.length;
  }

  get seconds() {
    return this.length / this.rate;
  }
}

/** A binary message as samples; it is little-endian on every machine that has a browser. */
export function samplesOf(buffer) {
  return new Int16Array(buffer, 0, Math.floor(buffer.byteLength / 2));
}
