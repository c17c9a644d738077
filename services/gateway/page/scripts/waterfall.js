// Where the time to the first sound went: each stage of the server, then what lies around them.

const STAGES = [
  ["frontend", "Frontend"],
  ["llm_prefill", "LLM prefill"],
  ["llm_decode", "LLM decode"],
  ["flow", "Flow"],
  ["vocoder", "Vocoder"],
];
const LEAST = 0.5; // milliseconds; what lies around the stages is left out below it

/**
 * The rows of an utterance in the order in which the time was spent.
 * @param {object} summary of the server: first_sound by stage, first_sound_milliseconds, from admission to audio
 * @param {{connected: number, arrived: number, heard: number}} seen milliseconds from the wish to speak until the
 *   WebSocket was open, the first audio arrived, and its first sample was played
 */
export function rowsOf(summary, seen) {
  const stages = STAGES.map(([stage, name]) => ({ stage, name, milliseconds: summary.first_sound?.[stage] ?? 0 }));
  const inStages = stages.reduce((sum, { milliseconds }) => sum + milliseconds, 0);
  const inServer = Math.max(summary.first_sound_milliseconds ?? 0, inStages);
  const around = (name, milliseconds) => (milliseconds >= LEAST ? [{ name, milliseconds }] : []);
  return [
    ...around("Connection", seen.connected),
    ...stages,
    ...around("Held", inServer - inStages),
    ...around("Transport", seen.arrived - seen.connected - inServer),
    ...around("Player", seen.heard - seen.arrived),
  ];
}

/** The rows before anything is known. */
export const NOT_YET = STAGES.map(([stage, name]) => ({ stage, name, milliseconds: null }));

/** @param {HTMLTableElement} table */
export function showWaterfall(table, rows) {
  const whole = rows.reduce((sum, { milliseconds }) => sum + milliseconds, 0) || 1;
  let begun = 0;
  table.tBodies[0].replaceChildren(
    ...rows.map(({ stage, name, milliseconds }) => {
      const row = document.createElement("tr");
      if (stage) row.dataset.stage = stage;
      const head = Object.assign(document.createElement("th"), { scope: "row", textContent: name });
      const track = Object.assign(document.createElement("span"), { className: "track", ariaHidden: "true" });
      const bar = document.createElement("i");
      bar.style.left = `${(100 * begun) / whole}%`;
      bar.style.width = `${(100 * milliseconds) / whole}%`;
      track.append(...(milliseconds === null ? [] : [bar]));
      const cell = document.createElement("td");
      cell.append(track);
      const figure = Object.assign(document.createElement("td"), { textContent: inWords(milliseconds) });
      row.append(head, cell, figure);
      begun += milliseconds;
      return row;
    }),
  );
}

function inWords(milliseconds) {
  if (milliseconds === null) return "–";
  return milliseconds < 9.95 ? milliseconds.toFixed(1) : milliseconds.toFixed(0);
}
