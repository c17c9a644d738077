// Samples as the bytes of a WAV file.

const HEADER_BYTES = 44;
const PCM = 1;

/**
 * @param {Int16Array[]} chunks mono
 * @param {number} rate samples per second
 */
export function wavFile(chunks, rate) {
  const size = chunks.reduce((sum, chunk) => sum + chunk.byteLength, 0);
  const header = new DataView(new ArrayBuffer(HEADER_BYTES));
  const name = (at, letters) => [...letters].forEach((letter, i) => header.setUint8(at + i, letter.charCodeAt(0)));
  name(0, "RIFF");
  header.setUint32(4, HEADER_BYTES - 8 + size, true);
  name(8, "WAVEfmt ");
  header.setUint32(16, 16, true);
  header.setUint16(20, PCM, true);
  header.setUint16(22, 1, true);
  header.setUint32(24, rate, true);
  header.setUint32(28, 2 * rate, true);
  header.setUint16(32, 2, true);
  header.setUint16(34, 16, true);
  name(36, "data");
  header.setUint32(40, size, true);
  return new Blob([header, ...chunks], { type: "audio/wav" });
}

/** Samples between -1 and 1 as signed 16 bits. */
export function sixteenBits(samples) {
  return Int16Array.from(samples, (sample) => Math.round(Math.max(-1, Math.min(1, sample)) * 32767));
}
