// One utterance over the WebSocket v1/audio/stream: text goes, audio and what is known about it come.

import { apiKey, askForKey } from "./access.js";
import { samplesOf } from "./sound/samples.js";
import { failureOf, LOST } from "./failures.js";

export const RATE = 24000;
const MOST_IN_A_MESSAGE = 10000; // characters: a message of the server's may hold a few more
const SECONDS_FOR_GOODBYE = 2;

/** @typedef {{voice: string, speed: number, seed: number, text: string}} Wish */

export class Utterance {
  /**
   * Connects at once.
   * @param {Wish} wish
   * @param {object} on opened(), header(message), audio(samples), words(words), warning(message),
   *   summary(message), failed(sentence); after one of the last two nothing follows.
   */
  constructor(wish, on) {
    this.on = on;
    this.over = false;
    this.traceparent = newTrace();
    const address = new URL("v1/audio/stream", document.baseURI);
    address.protocol = address.protocol.replace("http", "ws");
    this.socket = new WebSocket(address);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => {
      this.on.opened();
      this.ask(wish);
    };
    this.socket.onmessage = ({ data }) => this.receive(data);
    this.socket.onclose = () => this.fail(LOST);
  }

  /** The caller wants no more: every stage stops. Nothing is reported from here on. */
  stop() {
    if (this.over) return;
    this.over = true;
    if (this.socket.readyState === WebSocket.OPEN) this.send({ type: "cancel" });
    const closing = setTimeout(() => this.socket.close(), 1000 * SECONDS_FOR_GOODBYE);
    this.socket.onmessage = ({ data }) => {
      if (typeof data === "string" && JSON.parse(data).type === "summary") this.socket.close();
    };
    this.socket.onclose = () => clearTimeout(closing);
    if (this.socket.readyState === WebSocket.CONNECTING) this.socket.onopen = () => this.socket.close();
  }

  ask({ voice, speed, seed, text }) {
    const key = apiKey() ? { api_key: apiKey() } : {}; // a WebSocket of a browser has no headers
    this.send({ type: "setup", voice, speed, seed, sample_rate: RATE, traceparent: this.traceparent, ...key });
    const characters = Array.from(text);
    for (let at = 0; at < characters.length; at += MOST_IN_A_MESSAGE) {
      this.send({ type: "text", text: characters.slice(at, at + MOST_IN_A_MESSAGE).join("") });
    }
    this.send({ type: "end" });
  }

  send(message) {
    this.socket.send(JSON.stringify(message));
  }

  receive(data) {
    if (this.over) return;
    if (data instanceof ArrayBuffer) {
      this.on.audio(samplesOf(data));
      return;
    }
    const message = JSON.parse(data);
    if (message.type === "error") {
      if (message.error?.code === "invalid_api_key") askForKey();
      this.fail(failureOf(message));
    } else if (message.type === "words") this.on.words(message.words);
    else if (message.type === "header") this.on.header(message);
    else if (message.type === "warning") this.on.warning(message);
    else if (message.type === "summary") {
      this.finish();
      this.on.summary(message);
    }
  }

  fail(sentence) {
    if (this.over) return;
    this.finish();
    this.on.failed(sentence);
  }

  finish() {
    this.over = true;
    this.socket.close();
  }
}

/** A W3C trace context that begins here; its trace id finds the utterance in the logs of every stage. */
function newTrace() {
  const digits = (bytes) =>
    Array.from(crypto.getRandomValues(new Uint8Array(bytes)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  return `00-${digits(16)}-${digits(8)}-01`;
}
