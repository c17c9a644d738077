// Sends a recording to the server, which makes a voice of it.

import { askForKey, keyHeaders } from "../access.js";
import { failureOfBody, LOST } from "../failures.js";

/**
 * @param {{name: string, sex: string, transcript: string, recording: Blob}} wish
 * @param {(state: {stage: string, part?: number}) => void} progress
 * @param {AbortSignal} signal
 * @returns {Promise<{id: string, name: string}>} Throws an Error whose message is a sentence.
 */
export function createVoice({ name, sex, transcript, recording }, progress, signal) {
  const form = new FormData();
  form.append("audio_sample", recording, recording.name ?? "recording.wav");
  form.append("name", name);
  form.append("transcript", transcript);
  form.append("consent", `Consent of the speaker confirmed on the page, ${new Date().toISOString()}`);
  if (sex) form.append("labels", JSON.stringify({ sex }));
  // fetch() does not report how much of a body has been sent.
  const request = new XMLHttpRequest();
  return new Promise((resolve, reject) => {
    request.upload.onprogress = ({ loaded, total }) =>
      progress({ stage: "Sending the recording…", part: loaded / total });
    request.upload.onload = () => progress({ stage: "The server is making the voice…" });
    request.onload = () => {
      if (request.status === 201) resolve(JSON.parse(request.responseText));
      else {
        if (request.status === 401) askForKey();
        reject(new Error(failureOfBody(request.status, request.responseText)));
      }
    };
    request.onerror = () => reject(new Error(LOST));
    request.onabort = () => reject(new DOMException("given up", "AbortError"));
    signal.addEventListener("abort", () => request.abort());
    request.open("POST", new URL("v1/audio/voices", document.baseURI));
    for (const [field, value] of Object.entries(keyHeaders())) request.setRequestHeader(field, value);
    request.send(form);
  });
}
