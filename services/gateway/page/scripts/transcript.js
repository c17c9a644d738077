// The text that is spoken, with the word that is heard now marked.

import { WrittenWords } from "./written_words.js";

export class Transcript {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    this.show("");
  }

  /** Begin with a new text of which nothing has been spoken. */
  show(text) {
    this.written = new WrittenWords(text);
    this.times = []; // by written word: when it is spoken, in seconds
    this.marked = -1;
    this.element.classList.remove("timed");
    const parts = [];
    let end = 0;
    this.spans = this.written.words.map(({ from, to }) => {
      const span = document.createElement("span");
      span.textContent = text.slice(from, to);
      parts.push(text.slice(end, from), span);
      end = to;
      return span;
    });
    this.element.replaceChildren(...parts);
    this.element.scrollTop = 0;
  }

  /** Words that were reported, in order. */
  add(spoken) {
    for (const { first, last, start, end } of this.written.place(spoken)) {
      for (let at = first; at <= last; at++) this.times[at] = { start, end };
    }
  }

  /** Mark what is heard at a position in seconds. */
  follow(seconds) {
    let now = -1;
    this.times.forEach(({ start }, at) => {
      if (start <= seconds) now = at;
    });
    if (now === this.marked) return;
    const together = (at) => this.times[at] && this.times[now]?.start === this.times[at].start;
    this.spans.forEach((span, at) => {
      span.classList.toggle("said", at <= now);
      span.classList.toggle("now", at === now || together(at) === true);
    });
    this.marked = now;
    if (now >= 0) this.reveal(this.spans[now]);
  }

  /** All of it has been spoken. */
  finish() {
    for (const span of this.spans) span.className = "said";
    this.marked = -1;
  }

  reveal(span) {
    const top = span.offsetTop - this.element.offsetTop;
    if (top < this.element.scrollTop || top + span.offsetHeight > this.element.scrollTop + this.element.clientHeight) {
      this.element.scrollTop = top - this.element.clientHeight / 3;
    }
  }
}
