"""`python -m tools.quality.clone`: make a voice from a few seconds of a speaker, let it speak, and
measure whom it sounds like.

About five seconds of each recording become a voice, as the frontend makes it, in a copy of the
model directory that is thrown away. The services are started on that, the new voices and those that
the model came with speak the same held-out sentences, and speaker embeddings say who is near to
whom (`tools.quality.sound.speakers`). The speakers recorded should be none of the model's own.

Exit status: 0 every new voice is nearer to its own speaker than to every voice of the model, 1 one
is not or it failed, 2 bad arguments. Nearer to the recording itself than to the speech of the
others; with --vocoded to its vocoded prompt than to theirs.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

from cosyserve.commands.terminal.arguments import add_json, add_model, model_directory
from cosyserve.errors import InvalidRequest
from cosyserve.model_directory import ModelDirectory
from services.frontend.voices.voice import Voice
from tools.quality.command import add_speaking, ending
from tools.quality.recordings.collect import Recordings, client_of, spoken
from tools.quality.recordings.recording import HELD_OUT, Recording, Sentence, read_sentences, spread, write_recording
from tools.quality.recordings.voice_making import (
    SECONDS,
    RecordedSpeaker,
    make_voices,
    read_originals,
    vocoded_prompts,
    with_voices,
)
from tools.quality.sound.speakers import Likeness, as_table, cosine, nearness


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        prog="python -m tools.quality.clone", description="Make a voice of a recording and measure it."
    )
    add_model(options)
    options.add_argument(
        "--recording",
        type=Path,
        nargs="+",
        required=True,
        metavar="WAV",
        help="a speaker's recording, 16 bit; the file's name is the voice's",
    )
    options.add_argument(
        "--text", nargs="+", metavar="TEXT", help="what each recording says (default: a recogniser listens)"
    )
    options.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="X", help="of each recording to use (default: %(default)s)"
    )
    options.add_argument(
        "--sentences", type=Path, default=HELD_OUT, metavar="FILE", help="one a line (default: the held-out list)"
    )
    add_speaking(options, count=10)
    options.add_argument("--seed", type=int, default=1, metavar="N", help="of every sentence (default: %(default)s)")
    options.add_argument(
        "--vocoded", action="store_true", help="decide by the prompts as the model's vocoder gives them back"
    )
    add_json(options)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    top = parser()
    arguments = top.parse_args(argv)
    model = model_directory(arguments.model)
    with ending(top, bad_arguments=(OSError, ValueError)):
        sentences = spread(read_sentences(arguments.sentences), arguments.count)
        originals = read_originals(
            arguments.recording, arguments.text, arguments.seconds, lambda part: _recogniser(arguments.threads)(part)
        )
    with ending(top, bad_arguments=(InvalidRequest, ValueError)):
        directory = ModelDirectory(model)
        presets, voices = make_voices(directory, originals)
        speech = asyncio.run(speak(model, [voice.id for voice in presets], voices, sentences, arguments.seed))
        likenesses = measure(directory, originals, presets, voices, speech)
    if arguments.keep:
        for each in speech:
            for recording in each.streamed:
                write_recording(arguments.keep / each.voice, recording)
    decisive = [each.vocoded if arguments.vocoded else each.recorded for each in likenesses]
    good = all(near is not None and near.is_own for near in decisive)
    print(
        json.dumps(as_json(voices, originals, likenesses, ok=good), indent=1)
        if arguments.json
        else as_table(likenesses)
    )
    return 0 if good else 1


async def speak(
    model: Path, presets: Sequence[str], voices: Sequence[Voice], sentences: Sequence[Sentence], seed: int
) -> list[Recordings]:
    """The sentences by the new voices and by the model's own, streamed."""
    with tempfile.TemporaryDirectory() as folder:
        async with client_of(with_voices(model, voices, Path(folder)), None) as client:
            names = [*(voice.id for voice in voices), *presets]
            return [await spoken(client, name, sentences, seed, offline_too=False) for name in names]


def measure(
    directory: ModelDirectory,
    originals: Sequence[RecordedSpeaker],
    presets: Sequence[Voice],
    voices: Sequence[Voice],
    speech: Sequence[Recordings],
) -> list[Likeness]:
    """Of each new voice, by Resemblyzer. `speech` is of all voices, new and old."""
    # Imported here: it takes seconds to load.
    from tools.quality.sound.networks import SpeakerEncoder

    encoder = SpeakerEncoder()
    said = {each.voice: encoder.embed(each.streamed) for each in speech}
    prompts = {
        name: encoder.embed([prompt]) for name, prompt in vocoded_prompts(directory, [*presets, *voices]).items()
    }
    own_speech = {voice.id: said[voice.id] for voice in presets}
    own_prompts = {voice.id: prompts[voice.id] for voice in presets if voice.id in prompts}
    likenesses = []
    for original in originals:
        name, recorded = original.name, encoder.embed([original.whole])
        likenesses.append(
            Likeness(
                voice=name,
                recorded=nearness(said[name], recorded, own_speech),
                vocoded=nearness(said[name], prompts[name], own_prompts) if own_prompts else None,
                presets_to_recorded={preset: cosine(rows, recorded) for preset, rows in own_speech.items()},
            )
        )
    return likenesses


def as_json(
    voices: Sequence[Voice], originals: Sequence[RecordedSpeaker], likenesses: Sequence[Likeness], *, ok: bool
) -> dict[str, object]:
    """Everything measured, by voice."""
    return {
        "ok": ok,
        "voices": {
            each.voice: asdict(each)
            | {
                "nearest_to_recording": each.recorded.is_own,
                "nearest_to_vocoded_prompt": each.vocoded and each.vocoded.is_own,
                "prompt_seconds": voice.prompt_seconds,
                "recording_seconds": original.whole.seconds,
                "transcript": original.prompt.sentence.text,
            }
            for each, voice, original in zip(likenesses, voices, originals, strict=True)
        },
    }


@cache
def _recogniser(threads: int) -> Callable[[Recording], str]:
    """Loaded when a recording needs a transcript."""
    from tools.quality.words.recognition import Recogniser

    return Recogniser(threads).text_of


if __name__ == "__main__":
    sys.exit(main())
