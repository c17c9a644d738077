"""Speech tokens of training sentences, as the finished model says them."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

from cosyserve.model_directory import ModelDirectory
from services.frontend.loading import read_tokenizer
from services.frontend.voices.speaker_file import read_voices
from services.llm.backends.torch_backend import TorchBackend
from services.llm.generation.request import FinishReason, Generation, Prompt, Sampling
from services.llm.settings import LlmSettings


def speak(work: Path, count: int) -> list[tuple[list[int], list[int]]]:
    """Text ids and speech tokens of the first `count` training sentences that come to an end;
    `WORK/timing/said.jsonl` keeps them.
    """
    table = work / "timing" / "said.jsonl"
    table.parent.mkdir(parents=True, exist_ok=True)
    lines = (work / "text" / "sentences.tsv").read_text(encoding="utf-8").splitlines()
    texts = [text for _, split, text, _ in (line.split("\t") for line in lines) if split == "train"][:count]
    # Weights, and in the yaml how tokens are chosen.
    speaker = (work / "model" / name for name in ("llm.pt", "cosyvoice2.yaml"))
    if table.exists() and any(table.stat().st_mtime < file.stat().st_mtime for file in speaker):
        # What another model said.
        table.unlink()
    done = len(table.read_text(encoding="utf-8").splitlines()) if table.exists() else 0
    asyncio.run(_speak_rest(work / "model", texts, done, table))
    rows = [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines()[:count]]
    return [(row["ids"], row["tokens"]) for row in rows if row["ended"]]


async def _speak_rest(model: Path, texts: list[str], done: int, table: Path) -> None:
    backend = TorchBackend.load(LlmSettings(listen="127.0.0.1:0", model=model))
    try:
        with table.open("a", encoding="utf-8") as out:
            async for row in _rows(backend, ModelDirectory(model), texts, done):
                print(json.dumps(row), file=out, flush=True)
    finally:
        await backend.close()


async def _rows(
    backend: TorchBackend, directory: ModelDirectory, texts: list[str], done: int
) -> AsyncIterator[dict[str, object]]:
    tokenizer = read_tokenizer(directory)
    voices = read_voices(directory, tokenizer)
    for number in range(done, len(texts)):
        voice = voices[number % len(voices)]
        prompt = Prompt(tuple(voice.prompt_text_ids), tuple(voice.prompt_speech_tokens))
        ids = tokenizer.encode(texts[number])
        hops = [
            hop
            async for hop in backend.generate(
                Generation(prompt=prompt, text=tuple(ids), sampling=Sampling(seed=number))
            )
        ]
        outcome = hops[-1].outcome
        ended = outcome is not None and outcome.reason is FinishReason.END_OF_SPEECH
        yield {"ids": ids, "tokens": [token for hop in hops for token in hop.tokens], "ended": ended}
