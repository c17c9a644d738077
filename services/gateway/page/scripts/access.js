// The API key, for a server that wants one: asked for when the server says so, kept until the tab is closed.

const NAME = "cosyserve-api-key";
const element = (id) => document.getElementById(id);
let kept = ""; // where the browser keeps nothing for this page
let asking = null;

/** @returns {string} the key; empty if there is none. */
export function apiKey() {
  try {
    return sessionStorage.getItem(NAME) ?? kept;
  } catch {
    return kept;
  }
}

/** @returns {Record<string, string>} header fields of a request. */
export function keyHeaders() {
  return apiKey() ? { authorization: `Bearer ${apiKey()}` } : {};
}

/**
 * Asks for the key, once for all requests that want it.
 * @returns {Promise<boolean>} whether one was given
 */
export function askForKey() {
  asking ??= ask().finally(() => (asking = null));
  return asking;
}

function ask() {
  const dialog = element("access");
  const field = element("api-key");
  element("access-hint").textContent = apiKey()
    ? "The server does not take this key. Enter another one."
    : "This server wants an API key. It is kept until this tab is closed.";
  field.value = "";
  dialog.showModal();
  field.focus();
  return new Promise((resolve) => {
    const given = (event) => {
      event.preventDefault();
      if (field.value.trim() === "") return;
      keep(field.value.trim());
      dialog.close("given");
    };
    element("access-form").addEventListener("submit", given);
    element("access-cancel").addEventListener("click", () => dialog.close(""), { once: true });
    dialog.addEventListener(
      "close",
      () => {
        element("access-form").removeEventListener("submit", given);
        field.value = "";
        resolve(dialog.returnValue === "given");
      },
      { once: true },
    );
    dialog.returnValue = "";
  });
}

function keep(key) {
  kept = key;
  try {
    sessionStorage.setItem(NAME, key);
  } catch {
    // Kept in this page alone.
  }
}
