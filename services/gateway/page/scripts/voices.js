// The voices of the server, and how one is called in the list.

import { askForKey, keyHeaders } from "./access.js";
import { failureOfBody, LOST } from "./failures.js";

const LANGUAGES = new Intl.DisplayNames(["en"], { type: "language" });

/** @returns {Promise<object[]>} as GET v1/audio/voices has them. Throws an Error whose message is a sentence. */
export async function listVoices() {
  const { data } = JSON.parse(await asked("GET", "v1/audio/voices"));
  return data;
}

/** Deletes a voice for good; throws as `listVoices`. */
export async function deleteVoice(id) {
  await asked("DELETE", `v1/audio/voices/${encodeURIComponent(id)}`);
}

/**
 * Fills the list, the model's voices apart from those that were made here.
 * @param {HTMLSelectElement} select
 * @param {string} chosen id of the voice to select; empty: the one that is selected, else the default one
 */
export function showVoices(select, voices, chosen = "") {
  const wanted = chosen || select.value || voices.find((voice) => voice.is_default)?.id || "";
  const group = (label, kind) => {
    const options = voices.filter(({ type }) => type === kind).map((voice) => new Option(describe(voice), voice.id));
    const element = Object.assign(document.createElement("optgroup"), { label });
    element.append(...options);
    return options.length > 0 ? [element] : [];
  };
  select.replaceChildren(...group("Voices of the model", "preset"), ...group("Made of recordings", "audio_sample"));
  if (select.options.length === 0) select.append(new Option("Default voice", ""));
  select.value = wanted;
  if (select.selectedIndex < 0) select.selectedIndex = 0;
}

function describe({ name, labels, language }) {
  const sex = labels.sex || labels.gender;
  return [name, ...(sex ? [sex] : []), ...(language ? [languageName(language)] : [])].join(" · ");
}

function languageName(tag) {
  try {
    return LANGUAGES.of(tag);
  } catch {
    return tag; // no tag that the browser knows
  }
}

async function asked(method, path) {
  let answer;
  try {
    answer = await fetch(new URL(path, document.baseURI), { method, headers: keyHeaders() });
  } catch {
    throw new Error(LOST);
  }
  const body = await answer.text();
  if (answer.status === 401 && (await askForKey())) return asked(method, path);
  if (!answer.ok) throw new Error(failureOfBody(answer.status, body));
  return body;
}
