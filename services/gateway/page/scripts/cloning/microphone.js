// Records the microphone as it is: without the browser's noise suppression, which changes a voice.

import { LOST } from "../failures.js";
import { sixteenBits, wavFile } from "../sound/wav.js";

export const LONGEST_SECONDS = 30;
const WISHES = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false };

export class Microphone {
  /**
   * @param {{level: (peak: number) => void, length: (seconds: number) => void}} on
   * Throws an Error whose message is a sentence.
   */
  static async open(on) {
    if (!navigator.mediaDevices || !("AudioWorkletNode" in globalThis)) {
      throw new Error("Browsers give the microphone only to pages on https or on localhost. Choose a file instead.");
    }
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ audio: WISHES });
    } catch (error) {
      const refused = error.name === "NotAllowedError";
      throw new Error(refused ? "The browser was not allowed to use the microphone." : "No microphone was found.");
    }
    const context = new AudioContext();
    try {
      await context.audioWorklet.addModule(new URL("microphone_worklet.js", import.meta.url));
    } catch {
      for (const track of stream.getTracks()) track.stop();
      throw new Error(LOST);
    }
    return new Microphone(stream, context, on);
  }

  constructor(stream, context, on) {
    this.stream = stream;
    this.context = context;
    this.chunks = [];
    this.length = 0;
    const node = new AudioWorkletNode(context, "microphone", { numberOfOutputs: 0 });
    node.port.onmessage = ({ data }) => {
      this.chunks.push(sixteenBits(data));
      this.length += data.length;
      on.level(data.reduce((most, sample) => Math.max(most, Math.abs(sample)), 0));
      on.length(this.length / context.sampleRate);
    };
    context.createMediaStreamSource(stream).connect(node);
  }

  /** Release the microphone. @returns {Promise<Blob>} what was recorded, as a WAV file */
  async close() {
    for (const track of this.stream.getTracks()) track.stop();
    const rate = this.context.sampleRate;
    await this.context.close();
    return wavFile(this.chunks, rate);
  }
}
