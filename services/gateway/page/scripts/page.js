// The page: what its buttons, keys and fields do.

import { openCloning } from "./cloning/dialog.js";
import { followLength, followSpeed, seedOf, textOf } from "./settings.js";
import { SoundOutput } from "./sound/output.js";
import { wavFile } from "./sound/wav.js";
import { Speaking } from "./speaking.js";
import { RATE } from "./utterance.js";
import { View } from "./view.js";
import { deleteVoice, listVoices, showVoices } from "./voices.js";

const element = (id) => document.getElementById(id);
const [text, voice, speed, seed, speak, again, download] = [
  "text", "voice", "speed", "seed", "speak", "again", "download",
].map(element);
const output = new SoundOutput(RATE);
const view = new View();
let speaking = null; // now heard, first or again
let spoken = null; // the last samples, to be heard again or kept
let voices = [];

function begin() {
  for (const field of [text, seed]) field.ariaInvalid = null;
  let wish;
  try {
    wish = { voice: voice.value, speed: Number(speed.value), seed: seedOf(seed), text: textOf(text) };
  } catch (error) {
    view.fail(error.message);
    error.field.ariaInvalid = "true";
    error.field.focus();
    return;
  }
  stop();
  view.begin(wish.text);
  const current = new Speaking(output, wish, {
    changed: () => view.show(current),
    audio: (samples) => view.audio(samples),
    words: (words) => view.words(words),
    warning: (message) => view.warning(message),
    over: (failure) => finish(failure),
  });
  speaking = current;
  spoken = current.samples;
  view.follow(current);
  showState();
}

function finish(failure) {
  speaking = null;
  if (failure) view.cut(failure);
  else view.finish();
  showState();
}

function stop() {
  if (!speaking) return;
  speaking.stop();
  speaking = null;
  view.cut();
  showState();
}

async function playAgain() {
  stop();
  view.fail("");
  const state = { stop: () => state.player?.stop(), get position() { return state.player?.position ?? 0; } };
  speaking = state;
  showState();
  const player = await output.player({ finished: () => speaking === state && finish() });
  if (speaking !== state) {
    player.stop();
    return;
  }
  state.player = player;
  for (const chunk of spoken.chunks) player.add(chunk);
  player.end();
  view.say("Playing again.");
  view.follow(state);
}

function save() {
  const address = URL.createObjectURL(wavFile(spoken.chunks, spoken.rate));
  Object.assign(document.createElement("a"), { href: address, download: "speech.wav" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

function showState() {
  speak.classList.toggle("active", speaking !== null);
  element("speak-label").textContent = speaking ? "Stop" : "Speak";
  again.disabled = download.disabled = speaking !== null || !spoken?.length;
}

async function refreshVoices(chosen) {
  try {
    voices = await listVoices();
    showVoices(voice, voices, chosen);
    showDeletable();
  } catch (error) {
    view.fail(error.message);
  }
}

function showDeletable() {
  element("delete-voice").hidden = voices.find(({ id }) => id === voice.value)?.type !== "audio_sample";
}

async function removeVoice() {
  const { id, name } = voices.find((each) => each.id === voice.value);
  if (!confirm(`Delete the voice “${name}” for good?`)) return;
  try {
    await deleteVoice(id);
    view.say(`The voice “${name}” is deleted.`);
  } catch (error) {
    view.fail(error.message);
  }
  await refreshVoices();
  voice.focus();
}

/** Browsers have a clipboard on https and on the machine itself only; elsewhere the id is selected. */
async function copyTrace() {
  const id = element("trace-id");
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(id.textContent);
    view.say("The trace id is copied.");
  } else getSelection().selectAllChildren(id);
}

speak.addEventListener("click", () => (speaking ? stop() : begin()));
again.addEventListener("click", playAgain);
download.addEventListener("click", save);
voice.addEventListener("change", showDeletable);
element("delete-voice").addEventListener("click", removeVoice);
element("copy-trace").addEventListener("click", copyTrace);
element("clone").addEventListener("click", () => {
  stop();
  openCloning(async ({ id, name }) => {
    await refreshVoices(id);
    view.say(`The voice “${name}” is ready.`);
    text.focus();
  });
});
document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    begin();
  } else if (event.key === "Escape" && speaking) {
    event.preventDefault();
    stop();
  }
});
followSpeed(speed, element("speed-value"));
followLength(text, element("text-count"));
refreshVoices();
