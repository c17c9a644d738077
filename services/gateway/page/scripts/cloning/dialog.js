// The dialog that makes a voice of a file or of the microphone.

import { Microphone, LONGEST_SECONDS } from "./microphone.js";
import { sendable } from "./recording.js";
import { createVoice } from "./upload.js";

const element = (id) => document.getElementById(id);
const dialog = element("cloning");
const form = element("cloning-form");
const READ_ALOUD = "The quick brown fox jumps over the lazy dog, and then it rests in the warm light of the evening.";
let microphone = null;
let recorded = null; // a WAV file
let sending = null; // to be given up
let made = () => {};

/** @param {(voice: {id: string, name: string}) => void} onMade */
export function openCloning(onMade) {
  made = onMade;
  fail("");
  progress(null);
  dialog.showModal();
}

function source() {
  return form.elements.source.value;
}

function showSource() {
  element("source-file").hidden = source() !== "file";
  element("source-microphone").hidden = source() !== "microphone";
  const transcript = element("voice-transcript");
  if (source() === "microphone" && transcript.value === "") transcript.value = READ_ALOUD;
  if (source() === "file" && transcript.value === READ_ALOUD) transcript.value = "";
  document.querySelector('label[for="voice-transcript"] .hint').textContent =
    source() === "microphone" ? "read this aloud, or write what you say" : "word for word; may be left empty";
  fail("");
}

async function record() {
  if (microphone) {
    await keep();
    return;
  }
  fail("");
  element("record").disabled = true;
  try {
    microphone = await Microphone.open({
      level: (peak) => (element("level").value = peak),
      length: (seconds) => {
        element("recorded").textContent = `${seconds.toFixed(1)} s`;
        if (seconds >= LONGEST_SECONDS) keep();
      },
    });
    element("record").textContent = "Stop recording";
    element("recording").hidden = true;
  } catch (error) {
    fail(error.message);
  }
  element("record").disabled = false;
  if (!dialog.open) await keep();
}

async function keep() {
  const open = microphone;
  microphone = null;
  if (!open) return;
  recorded = await open.close();
  element("level").value = 0;
  element("record").textContent = "Record again";
  URL.revokeObjectURL(element("recording").src);
  element("recording").src = URL.createObjectURL(recorded);
  element("recording").hidden = false;
}

function chosen() {
  if (source() === "microphone") {
    if (!recorded) throw wrong("Record something first.", "record");
    return Promise.resolve(recorded);
  }
  const [file] = element("sample").files;
  if (!file) throw wrong("Choose a recording first.", "sample");
  return sendable(file);
}

function wrong(sentence, id) {
  return Object.assign(new Error(sentence), { field: element(id) });
}

async function submit() {
  if (sending) return;
  fail("");
  try {
    await keep();
    const recording = chosen();
    const name = element("voice-name").value.trim();
    if (name === "") throw wrong("Give the voice a name.", "voice-name");
    if (!element("voice-consent").checked) {
      throw wrong("A voice is made only with the consent of its speaker.", "voice-consent");
    }
    sending = new AbortController();
    element("cloning-submit").disabled = true;
    progress({ stage: "Reading the recording…" });
    const wish = {
      name,
      sex: element("voice-sex").value,
      transcript: element("voice-transcript").value.trim(),
      recording: await recording,
    };
    const voice = await createVoice(wish, progress, sending.signal);
    reset();
    dialog.close();
    made(voice);
  } catch (error) {
    if (error.name === "AbortError") return;
    fail(error.message, error.field);
  } finally {
    sending = null;
    element("cloning-submit").disabled = false;
    progress(null);
  }
}

/** @param {{stage: string, part?: number} | null} state part: of the whole, 0 to 1; without: not known */
function progress(state) {
  element("cloning-progress").hidden = state === null;
  if (!state) return;
  element("cloning-stage").textContent = state.stage;
  if (state.part === undefined) element("cloning-bar").removeAttribute("value");
  else element("cloning-bar").value = state.part;
}

function fail(sentence, field) {
  element("cloning-failure").hidden = sentence === "";
  element("cloning-failure").textContent = sentence;
  field?.focus();
}

function reset() {
  form.reset();
  recorded = null;
  element("recording").hidden = true;
  element("record").textContent = "Record";
  element("recorded").textContent = "0.0 s";
  showSource();
}

dialog.addEventListener("close", () => {
  sending?.abort();
  keep();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
for (const id of ["cloning-close", "cloning-cancel"]) element(id).addEventListener("click", () => dialog.close());
for (const choice of form.elements.source) choice.addEventListener("change", showSource);
element("record").addEventListener("click", record);
