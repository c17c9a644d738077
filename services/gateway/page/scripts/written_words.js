// Which written words a spoken word stands for: "twelve dollars" is spoken for "$12".

const AHEAD = 12; // written words beyond the number of the spoken ones among which they are looked for
const LETTERS = /[^\p{L}\p{N}]+/gu;

/** @typedef {{word: string, start: number, end: number}} Spoken */

export class WrittenWords {
  /** @param {string} text */
  constructor(text) {
    /** Written words: their place in the text. */
    this.words = Array.from(text.matchAll(/\S+/gu), (match) => ({
      from: match.index,
      to: match.index + match[0].length,
      key: keyOf(match[0]),
    }));
    this.next = 0; // first written word that is not accounted for
    this.open = []; // spoken words that no written word was found for, since the last one that was
  }

  /**
   * Finds the written words of further spoken ones.
   * @param {Spoken[]} spoken in order
   * @returns {{first: number, last: number, start: number, end: number}[]} numbers of written words and when they
   *   are spoken; a later call may correct the last ones.
   */
  place(spoken) {
    const wanted = [...this.open, ...spoken];
    const offered = this.words.slice(this.next, this.next + wanted.length + AHEAD);
    const found = [];
    let begun = 0; // in `wanted`
    let from = this.next;
    for (const [s, w] of longestCommon(wanted.map(({ word }) => keyOf(word)), offered.map(({ key }) => key))) {
      const at = this.next + w;
      if (begun < s) found.push(...this.spread(wanted.slice(begun, s), from, at - 1));
      found.push({ first: at, last: at, start: wanted[s].start, end: wanted[s].end });
      begun = s + 1;
      from = at + 1;
    }
    this.open = wanted.slice(begun);
    this.next = from;
    return found.concat(this.open.length > 0 ? this.spread(this.open, from, from) : []);
  }

  /** All spoken words stand for all written ones of a range; for the one in front of it if it is empty. */
  spread(spoken, first, last) {
    const place = last < first ? { first: first - 1, last: first - 1 } : { first, last };
    if (place.first < 0 || place.last >= this.words.length) return [];
    return [{ ...place, start: spoken[0].start, end: spoken.at(-1).end }];
  }
}

function keyOf(word) {
  return word.normalize("NFKC").toLowerCase().replace(LETTERS, "");
}

/** Pairs of places with equal values, as many as possible, in order and as early as possible. */
function longestCommon(left, right) {
  const most = Array.from({ length: left.length + 1 }, () => new Uint16Array(right.length + 1));
  for (let i = left.length - 1; i >= 0; i--) {
    for (let j = right.length - 1; j >= 0; j--) {
      const pair = left[i] === right[j] && left[i] !== "" ? 1 + most[i + 1][j + 1] : 0;
      most[i][j] = Math.max(pair, most[i + 1][j], most[i][j + 1]);
    }
  }
  const pairs = [];
  for (let i = 0, j = 0; i < left.length && j < right.length; ) {
    if (left[i] === right[j] && left[i] !== "" && most[i][j] === 1 + most[i + 1][j + 1]) pairs.push([i++, j++]);
    else if (most[i + 1][j] === most[i][j]) i++;
    else j++;
  }
  return pairs;
}
