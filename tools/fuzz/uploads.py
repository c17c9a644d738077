"""`python -m tools.fuzz.uploads`: mutated sound files through everything that an upload goes
through, from its first byte to a voice.

Every upload must become a voice or be refused with InvalidRequest (INVALID_ARGUMENT) within its
time. The work is done in a process of its own, so that one that crashes or hangs is seen, counted
and gone over; its input is written next to them, under the number that makes it again. Exit status:
0 nothing but voices and refusals, 1 otherwise.
"""

import argparse
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

from tests.fuzz.upload_seeds import seeds

from cosyserve.errors import InvalidRequest
from cosyserve.model_directory import ModelDirectory
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.loading import read_tokenizer
from services.frontend.normalization.normalize import Normalizer
from services.frontend.prompts.prompt_reader import PromptReader
from services.frontend.prompts.prompt_recording import Draft, PromptRecording
from services.frontend.prompts.recording_reader import RecordingReader
from services.frontend.recordings.compressed_audio import read_compressed
from services.frontend.recordings.decoding import kind_of
from services.frontend.recordings.wav_reader import read_wav
from services.frontend.voices.voice_notes import Labels
from tools.fuzz.damage import damaged

MODEL = Path("models/demo")
MOST_TOKENS = 750
SECONDS = 20.0
"""What one upload may take, many times what it does: the machine may be busy."""
_LOADING_SECONDS = 120.0
_TEXTS = (
    "",
    "",
    "a little sound",
    "一点声音而已",
    "x",
    "\x00<|endofprompt|>",
    "12 " * 300,
    "very " * 100,
    "مرحبا بالعالم",
    "...",
    "y" * 1001,
)
_IDS = ("", "voice", "a" * 64, "a" * 65, "../x", ".", "a/b", "a\x00", "é", "-x", "_")
_TAGS = ("", "en", "zh-CN", "ar", "en_US", "x" * 65)


def upload(number: int, seed: int, files: list[bytes]) -> Draft:
    """The draft of this number: always the same for the same seed."""
    source = random.Random(f"{seed} {number}")  # noqa: S311 - not a secret
    plain = source.random() < 0.8
    voice_id = "voice" if plain else source.choice(_IDS)
    recording = PromptRecording(
        audio=damaged(files, source),
        transcript=source.choice(_TEXTS[:3]) if plain else source.choice(_TEXTS),
        language_code="" if plain else source.choice(_TAGS),
    )
    return Draft(
        id=voice_id,
        recording=recording,
        provenance="" if plain else "p" * source.choice((0, 2000, 2001)),
        labels=Labels(),
        request_id="",
    )


def try_upload(reader: RecordingReader, draft: Draft) -> str:
    """What came of it: "voice", or "refused" and the first words why."""
    try:
        checked = draft.checked()
        audio = checked.recording.audio
        kind = kind_of(audio)
        sound = read_wav(audio) if kind == "wav" else read_compressed(audio, kind)
        voice = reader.analyse(checked.id, checked.recording, sound)
    except InvalidRequest as error:
        return f"refused: {' '.join(error.message.split()[:4])}" if draft.id == "voice" else "refused: a draft"
    if not 0 < len(voice.prompt_speech_tokens) <= MOST_TOKENS:
        raise ValueError(f"a voice of {len(voice.prompt_speech_tokens)} tokens")
    return "voice"


def recording_reader(model: Path) -> RecordingReader:
    """As the frontend reads recordings, but for the pools."""
    from concurrent.futures import ThreadPoolExecutor

    directory = ModelDirectory(model)
    return RecordingReader(
        PromptReader(directory), Analyzer(Normalizer(None), read_tokenizer(directory)), ThreadPoolExecutor(1), 1
    )


def _work(connection: Connection, model: Path, numbers: range, seed: int) -> None:
    # The decoder of MP3 complains of every file.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    reader, files = recording_reader(model), list(seeds().values())
    connection.send("ready")
    for number in numbers:
        try:
            connection.send(try_upload(reader, upload(number, seed, files)))
        except Exception as error:  # whatever it is, it is what is looked for
            connection.send(f"FAULT {type(error).__name__}: {error}")


def fuzz(model: Path, count: int, seed: int, keep: Path | None, first: int = 0) -> tuple[Counter[str], list[str]]:
    """Try uploads `first` to `first + count`; what came of them by kind, and a line for each that
    failed.
    """
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    spawn = multiprocessing.get_context("spawn")
    files = list(seeds().values())
    number, end = first, first + count
    begin = time.monotonic()
    while number < end:
        ours, theirs = spawn.Pipe(duplex=False)
        worker = spawn.Process(target=_work, args=(theirs, model, range(number, end), seed), daemon=True)
        worker.start()
        theirs.close()
        try:
            try:
                ready = ours.poll(_LOADING_SECONDS) and ours.recv() == "ready"
            except EOFError:
                ready = False
            if not ready:
                raise RuntimeError(f"the worker did not start: is {model} a model directory?")
            while number < end:
                outcome = ours.recv() if ours.poll(SECONDS) else f"HANG over {SECONDS:g} s"
                outcomes[outcome] += 1
                if outcome.startswith(("HANG", "FAULT")):
                    failures.append(_failed(number, outcome, upload(number, seed, files), keep))
                number += 1
                if outcome.startswith("HANG"):
                    break
                if number % 500 == 0:
                    speed = (number - first) / (time.monotonic() - begin)
                    print(
                        f"\r{number - first} of {count}, {speed:.0f} a second, {len(failures)} failed",
                        end="",
                        file=sys.stderr,
                        flush=True,
                    )
        except EOFError:
            worker.join()
            outcomes["CRASH"] += 1
            failures.append(_failed(number, f"CRASH with status {worker.exitcode}", upload(number, seed, files), keep))
            number += 1
        finally:
            worker.kill()
            worker.join()
    print(file=sys.stderr)
    return outcomes, failures


def _failed(number: int, outcome: str, draft: Draft, keep: Path | None) -> str:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{number}.bin").write_bytes(draft.recording.audio)
    return f"upload {number} ({len(draft.recording.audio)} bytes): {outcome}"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", type=Path, default=MODEL)
    options.add_argument("--count", type=int, default=100_000)
    options.add_argument("--first", type=int, default=0, help="number of the first upload (default: %(default)s)")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--keep", type=Path, default=Path("build/fuzz"), help="where uploads that fail are written")
    arguments = options.parse_args()
    begin = time.monotonic()
    outcomes, failures = fuzz(arguments.model, arguments.count, arguments.seed, arguments.keep, arguments.first)
    print(
        f"{arguments.count} uploads in {time.monotonic() - begin:.0f} s: {outcomes['voice']} voices, {len(failures)} "
        "failures"
    )
    for outcome, times in outcomes.most_common(40):
        print(f"{times:8} {outcome}")
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
