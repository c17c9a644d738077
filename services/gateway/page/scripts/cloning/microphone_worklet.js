// Hands the samples of the microphone to the page in pieces of about 40 ms.

const FRAMES = 2048;

class MicrophoneTap extends AudioWorkletProcessor {
  constructor() {
    super();
    this.piece = new Float32Array(FRAMES);
    this.filled = 0;
  }

  process([[channel]]) {
    if (!channel) return true;
    this.piece.set(channel, this.filled); // quanta of 128 frames divide a piece
    this.filled += channel.length;
    if (this.filled === FRAMES) {
      this.port.postMessage(this.piece, [this.piece.buffer]);
      this.piece = new Float32Array(FRAMES);
      this.filled = 0;
    }
    return true;
  }
}

registerProcessor("microphone", MicrophoneTap);
