// Failures as sentences for the person in front of the page.

export const LOST = "The connection to the server was lost. Is it still running?";

/**
 * The error of a WebSocket message or of an HTTP answer as a sentence.
 * @param {{error?: {code?: string, message?: string, type?: string}, retry_after_milliseconds?: number}} answer
 */
export function failureOf(answer) {
  const { code = "", message = "", type = "" } = answer?.error ?? {};
  const wait = answer?.retry_after_milliseconds;
  if (code === "overloaded") {
    const when = wait ? `in ${Math.max(1, Math.ceil(wait / 1000))} s` : "in a moment";
    return `The server is speaking as much as it can at once. Try again ${when}.`;
  }
  if (code === "invalid_api_key") return "The server wants a valid API key.";
  if (code === "unavailable") return `The speech service does not answer: ${sentence(message)}`;
  if (!message) return "The server failed and gave no reason.";
  return `The server ${type === "server_error" ? "failed" : "refused"}: ${sentence(message)}`;
}

/** The body of an HTTP answer, which a proxy may have written, as a sentence. */
export function failureOfBody(status, body) {
  try {
    const answer = JSON.parse(body);
    if (answer.error) return failureOf(answer);
  } catch {
    // No JSON: the status is all there is.
  }
  return `The server answered with status ${status}.`;
}

function sentence(message) {
  return /[.!?]$/.test(message) ? message : `${message}.`;
}
