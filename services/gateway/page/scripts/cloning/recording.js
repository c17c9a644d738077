// A chosen file as one that the server reads: what only the browser can decode is sent as WAV.

import { sixteenBits, wavFile } from "../sound/wav.js";

const READ_BY_THE_SERVER = /\.(wav|flac|mp3|ogg|oga|opus)$/i;
const MOST_BYTES = 10 * 1024 * 1024;
const RATE = 48000;

/** @param {File} file @returns {Promise<Blob>} Throws an Error whose message is a sentence. */
export async function sendable(file) {
  if (file.size > MOST_BYTES) {
    const size = (file.size / 1024 / 1024).toFixed(1);
    throw new Error(`The recording has ${size} MiB; at most 10 MiB are allowed, which is more than 30 seconds need.`);
  }
  return READ_BY_THE_SERVER.test(file.name) ? file : decoded(file);
}

async function decoded(file) {
  let sound;
  try {
    sound = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(await file.arrayBuffer());
  } catch {
    throw new Error(`“${file.name}” is no sound file that this browser or the server can read.`);
  }
  return wavFile([sixteenBits(sound.getChannelData(0))], RATE);
}
