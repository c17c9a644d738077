// The fields beside the text: what they say, and what is wrong with it.

const LARGEST_SEED = Number.MAX_SAFE_INTEGER; // numbers of JSON are exact up to it

/** Throws an Error with a sentence and the field to blame. */
export function seedOf(field) {
  const given = field.value.trim();
  if (given === "") return crypto.getRandomValues(new Uint32Array(1))[0];
  const seed = /^\d{1,16}$/.test(given) ? Number(given) : NaN;
  if (seed <= LARGEST_SEED) return seed;
  throw Object.assign(new Error(`The seed is a whole number from 0 to ${LARGEST_SEED}.`), { field });
}

/** Throws as `seedOf`. */
export function textOf(field) {
  if (field.value.trim() !== "") return field.value;
  throw Object.assign(new Error("Write the text to speak first."), { field });
}

/** Keep the figure of the slider beside it. */
export function followSpeed(slider, output) {
  const show = () => {
    output.value = `${Number(slider.value).toFixed(2)}×`;
    slider.ariaValueText = `${Number(slider.value)} times`;
  };
  slider.addEventListener("input", show);
  show();
}

/** Keep the number of characters below the text. */
export function followLength(field, output) {
  const written = (count) => count.toLocaleString("en");
  const show = () => {
    output.textContent = `${written(field.value.length)} of ${written(field.maxLength)} characters`;
  };
  field.addEventListener("input", show);
  show();
}
