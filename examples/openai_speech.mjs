// OpenAI's JavaScript SDK: speech written to a file as it is made. Run by `make clients`.
//
//     npm install openai@7.57.0
//     node examples/openai_speech.mjs

import { createWriteStream } from "node:fs";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import OpenAI from "openai";

const address = process.env.COSYSERVE_URL ?? "http://127.0.0.1:8080";
const client = new OpenAI({ baseURL: `${address}/v1`, apiKey: "none" });

const answer = await client.audio.speech.create({
  model: "tts-1",
  voice: "nova",
  input: "It works in JavaScript, too.",
  response_format: "opus",
});
await pipeline(Readable.fromWeb(answer.body), createWriteStream("it-works.opus"));
console.log(`it-works.opus, spoken by ${answer.headers.get("x-voice")}`);
