// What the page shows of an utterance: waveform, words, status, facts, and the way to the first sound.

import { Transcript } from "./transcript.js";
import { RATE } from "./utterance.js";
import { NOT_YET, rowsOf, showWaterfall } from "./waterfall.js";
import { Waveform } from "./waveform.js";

const element = (id) => document.getElementById(id);

export class View {
  constructor() {
    this.waveform = new Waveform(element("waveform"));
    this.transcript = new Transcript(element("words"));
    this.moving = 0;
    showWaterfall(element("waterfall"), NOT_YET);
  }

  /** A new utterance of which nothing is known. */
  begin(text) {
    this.waveform.clear(RATE);
    this.transcript.show(text);
    element("warnings").replaceChildren();
    element("warnings").hidden = true;
    element("facts").textContent = "";
    showWaterfall(element("waterfall"), NOT_YET);
    element("trace").hidden = true;
    element("timing-total").textContent = "Waiting for the first sound…";
    this.say("Asking the server…");
    this.fail("");
  }

  audio(samples) {
    this.waveform.add(samples);
    if (!this.moving) this.waveform.draw(this.waveform.played);
  }

  words(words) {
    this.transcript.add(words);
  }

  warning({ message, left_out }) {
    const line = document.createElement("li");
    line.textContent = left_out.length > 0 ? `${message}: ${left_out.join(", ")}` : message;
    element("warnings").append(line);
    element("warnings").hidden = false;
  }

  /** @param {import("./speaking.js").Speaking} speaking */
  show(speaking) {
    const { seen, summary, header, utterance, underruns } = speaking;
    this.say(stateOf(speaking));
    if (summary) this.waveform.complete = true;
    if (header) {
      element("trace").hidden = false;
      element("trace-id").textContent = header.trace_id ?? utterance.traceparent.split("-")[1];
    }
    if (seen.heard) this.total(seen.heard);
    if (seen.heard && summary?.first_sound) showWaterfall(element("waterfall"), rowsOf(summary, seen));
    if (header) element("facts").textContent = factsOf(speaking.samples.seconds, summary, header, underruns);
  }

  /** Follow what is heard until `stay`. @param {{position: number}} source */
  follow(source) {
    this.stay();
    const step = () => {
      this.at(source.position);
      this.moving = requestAnimationFrame(step);
    };
    this.moving = requestAnimationFrame(step);
  }

  /** It ended before all was heard. @param {string} failure a sentence; without: the user wanted it so */
  cut(failure = "") {
    this.stay();
    this.say("Stopped.");
    this.fail(failure);
    if (!element("timing-total").querySelector("strong")) element("timing-total").textContent = "There was no sound.";
  }

  stay() {
    cancelAnimationFrame(this.moving);
    this.moving = 0;
  }

  /** All of it has been heard. */
  finish() {
    this.stay();
    this.waveform.finish();
    this.transcript.finish();
    this.say("Done.");
  }

  say(sentence) {
    const status = element("status");
    if (status.textContent !== sentence) status.textContent = sentence;
  }

  /** @param {string} sentence empty: there is no failure */
  fail(sentence) {
    element("failure").hidden = sentence === "";
    element("failure").textContent = sentence;
  }

  at(position) {
    this.waveform.draw(position);
    this.transcript.follow(position);
  }

  total(milliseconds) {
    const strong = Object.assign(document.createElement("strong"), { textContent: `${Math.round(milliseconds)} ms` });
    element("timing-total").replaceChildren(strong, "until the first sample played");
  }
}

function stateOf({ seen, starved, summary }) {
  if (!seen.arrived) return "Asking the server…";
  if (starved) return "Waiting for more sound…";
  return summary ? "Playing. Everything has arrived." : "Playing while it is being made.";
}

function factsOf(seconds, summary, header, underruns) {
  const gaps = underruns === 0 ? "no underruns" : `${underruns} underrun${underruns === 1 ? "" : "s"}`;
  const made = summary ? [`real-time factor ${summary.real_time_factor.toFixed(2)}`] : [];
  return [`${seconds.toFixed(1)} s`, ...made, gaps, `seed ${header.seed}`].join(" · ");
}
