// OpenAI's JavaScript SDK: every format, streaming, events, errors. Prints a line of JSON for each
// call, as calls.py does.

import { spawnSync } from "node:child_process";
import OpenAI from "openai";
import { VERSION as version } from "openai/version";

const address = process.argv[2].replace(/\/$/, "");
const client = new OpenAI({ baseURL: `${address}/v1`, apiKey: "none", maxRetries: 5 });
const request = { model: "gpt-4o-mini-tts", voice: "nova", input: "The train to Berlin leaves at nine.", seed: 7 };
const longerSeconds = { mp3: 0.1, aac: 0.1 };
let failed = false;

async function tried(call, work) {
  let result;
  try {
    const found = await work();
    result = found ? `ok, ${found}` : "ok";
  } catch (error) {
    failed = true;
    result = `${error.name}: ${error.message}`;
  }
  console.log(JSON.stringify({ client: "openai (JavaScript)", version, call, result }));
}

function expect(holds, otherwise) {
  if (!holds) throw new Error(otherwise);
}

function compared(audio, format, pcm) {
  let samples = audio;
  if (format !== "pcm") {
    const options = ["-v", "error", "-i", "pipe:0", "-f", "s16le", "-ar", "24000", "-ac", "1", "pipe:1"];
    const done = spawnSync("ffmpeg", options, { input: audio, maxBuffer: 1 << 28 });
    expect(done.status === 0 && done.stderr.length === 0, `ffmpeg: ${done.stderr}`);
    samples = done.stdout;
  }
  const longer = (samples.length - pcm.length) / 48000;
  expect(longer >= 0 && longer <= (longerSeconds[format] ?? 0), `${format} is ${longer} s longer than pcm`);
  return longer === 0 ? "as long as pcm" : `${Math.round(1000 * longer)} ms longer than pcm`;
}

let pcm;
for (const format of ["pcm", "wav", "flac", "aac", "opus", "mp3"]) {
  await tried(`audio.speech.create, ${format}`, async () => {
    const answer = await client.audio.speech.create({ ...request, response_format: format });
    const audio = Buffer.from(await answer.arrayBuffer());
    pcm ??= audio;
    return compared(audio, format, pcm);
  });
}

await tried("audio.speech.create, body read as a stream", async () => {
  const answer = await client.audio.speech.create({ ...request, response_format: "pcm" });
  const pieces = [];
  for await (const piece of answer.body) pieces.push(piece);
  expect(pieces.length > 1, "it came in one piece");
  expect(Buffer.concat(pieces).equals(pcm), "the samples differ from those in one piece");
});

await tried("stream_format sse, opus", async () => {
  const answer = await client.audio.speech.create({ ...request, response_format: "opus", stream_format: "sse" });
  const lines = (await answer.text()).split("\n").filter(Boolean).map((line) => line.replace(/^data: /, ""));
  expect(lines.pop() === "[DONE]", "no [DONE] at the end");
  const events = lines.map((line) => JSON.parse(line));
  expect(events.pop().type === "speech.audio.done", "no speech.audio.done");
  const audio = Buffer.concat(events.map((event) => Buffer.from(event.audio, "base64")));
  return compared(audio, "opus", pcm);
});

await tried("a voice that does not exist: NotFoundError", async () => {
  const error = await client.audio.speech.create({ ...request, voice: "nobody" }).then(
    () => undefined,
    (refused) => refused,
  );
  expect(error instanceof OpenAI.NotFoundError, `it was ${error}`);
  expect(error.message.includes("nobody") && error.requestID, "neither the voice nor a request id is named");
});

process.exitCode = failed ? 1 : 0;
