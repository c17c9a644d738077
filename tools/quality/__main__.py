"""`python -m tools.quality`: speak a held-out list through the running services and measure what
came out.

The words are read back by a recogniser, naturalness and speaker by networks made for it; seams and
endings are looked for in the samples. With --wavs a folder of other recordings (the teacher of
a voice, an older model) goes through the very same measures.

Exit status: 0 measured and within the limits, 1 a limit is exceeded or it failed, 2 bad arguments.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from cosyserve.commands.terminal.arguments import model_directory
from cosyserve.errors import SettingsError
from tools.quality.command import add_speaking, ending, names, reported
from tools.quality.recordings.collect import Recordings, client_of, from_folder, spoken, voices_of
from tools.quality.recordings.recording import (
    HELD_OUT,
    Recording,
    Sentence,
    read_recordings,
    read_sentences,
    spread,
    voice_folders,
    write_recording,
)
from tools.quality.reports.report import Limits, as_json, as_table
from tools.quality.reports.voice_quality import Rate, VoiceQuality, measure
from tools.quality.sound.speakers import Similarity, similarity
from tools.quality.words.recognition import Recogniser


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        prog="python -m tools.quality", description="Speak a held-out list and measure what came out."
    )
    source = options.add_mutually_exclusive_group()
    source.add_argument(
        "--model", type=Path, metavar="DIR", help="start the services on this model directory (default: models/demo)"
    )
    source.add_argument("--server", metavar="HOST:PORT", help="use a running server")
    source.add_argument(
        "--wavs", type=Path, metavar="DIR", help="measure DIR/001.wav... or DIR/VOICE/001.wav..., numbered as the list"
    )
    options.add_argument("--voices", type=names, metavar="ID,ID", help="(default: all)")
    options.add_argument(
        "--sentences", type=Path, default=HELD_OUT, metavar="FILE", help="one a line (default: the held-out list)"
    )
    add_speaking(options)
    options.add_argument("--seed", type=int, default=1, metavar="N", help="of every sentence (default: %(default)s)")
    options.add_argument(
        "--reference",
        type=Path,
        metavar="DIR",
        help="recordings of the same list, to compare duration and speaker with",
    )
    options.add_argument(
        "--offline-too", action="store_true", help="also speak everything as a whole, and streamed in other cuts"
    )
    options.add_argument("--words-only", action="store_true", help="no naturalness, no speaker: much faster")
    options.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    for name, kind, text in (
        ("--max-wer", float, "largest word error rate, 0.05 for 5 %%"),
        ("--min-dnsmos", float, "lowest mean naturalness"),
        ("--max-faults", int, "most sentences of a voice silent, running on, stopping early or cut off"),
        ("--max-seam-ratio", float, "largest ratio of steps or jumps at the stream's borders to those elsewhere"),
        (
            "--min-similarity",
            float,
            "lowest cosine to the reference's speaker, to the voice itself without a reference",
        ),
        ("--max-wer-above-whole", float, "most that streaming may cost in word error rate; needs --offline-too"),
    ):
        options.add_argument(name, type=kind, metavar="X", help=text)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    top = parser()
    arguments = top.parse_args(argv)
    if arguments.max_wer_above_whole is not None and not arguments.offline_too:
        top.error("--max-wer-above-whole needs --offline-too")
    if arguments.words_only and not (arguments.min_dnsmos is arguments.min_similarity is None):
        top.error("--words-only measures neither naturalness nor speaker")
    if arguments.offline_too and arguments.wavs:
        top.error("--offline-too needs a server, --wavs has only files")
    with ending(top, bad_arguments=(SettingsError, ValueError)):
        sentences = spread(read_sentences(arguments.sentences), arguments.count)
        recordings = asyncio.run(_collect(arguments, sentences))
        references = _references(arguments.reference, recordings, sentences)
    if arguments.keep:
        for voice in recordings:
            for recording in voice.streamed:
                write_recording(arguments.keep / voice.voice, recording)
    voices = _measure(recordings, references, words_only=arguments.words_only, threads=arguments.threads)
    limits = Limits(
        arguments.max_wer,
        arguments.min_dnsmos,
        arguments.max_faults,
        arguments.max_seam_ratio,
        arguments.min_similarity,
        arguments.max_wer_above_whole,
    )
    exceeded = [line for quality in voices for line in limits.exceeded(quality)]
    return reported(as_table(voices), as_json(voices, exceeded), exceeded, arguments.json)


async def _collect(arguments: argparse.Namespace, sentences: list[Sentence]) -> list[Recordings]:
    if arguments.wavs:
        return from_folder(arguments.wavs, arguments.voices, sentences)
    async with client_of(model_directory(arguments.model), arguments.server) as client:
        voices = await voices_of(client, arguments.voices)
        return [
            await spoken(client, voice, sentences, arguments.seed, offline_too=arguments.offline_too)
            for voice in voices
        ]


def _references(
    directory: Path | None, voices: Sequence[Recordings], sentences: list[Sentence]
) -> dict[str, list[Recording]]:
    """By voice; those that the directory has. Its own files serve the only voice."""
    if directory is None:
        return {}
    folders = voice_folders(directory)
    if list(folders.values()) == [directory]:
        folders = {voices[0].voice: directory} if len(voices) == 1 else {}
    references = {
        voice.voice: read_recordings(folders[voice.voice], sentences) for voice in voices if voice.voice in folders
    }
    if not references:
        raise ValueError(
            f"{directory} has a folder for none of the voices {', '.join(voice.voice for voice in voices)}"
        )
    return references


def _measure(
    recordings: Sequence[Recordings], references: dict[str, list[Recording]], *, words_only: bool, threads: int
) -> list[VoiceQuality]:
    recogniser = Recogniser(threads)
    rate: Rate | None = None
    likenesses: dict[str, Similarity] = {}
    if not words_only:
        # Imported here: these take half a minute to load.
        from tools.quality.sound.networks import overall_quality

        rate, likenesses = overall_quality, _similarities(recordings, references)
    return [
        measure(voice, recogniser.text_of, rate, references.get(voice.voice), likenesses.get(voice.voice))
        for voice in recordings
    ]


def _similarities(recordings: Sequence[Recordings], references: dict[str, list[Recording]]) -> dict[str, Similarity]:
    from tools.quality.sound.networks import SpeakerEncoder

    encoder = SpeakerEncoder()
    own = {voice.voice: encoder.embed(voice.streamed) for voice in recordings}
    theirs = {name: encoder.embed(reference) for name, reference in references.items()}
    return {
        name: similarity(rows, [other for voice, other in own.items() if voice != name], theirs.get(name))
        for name, rows in own.items()
    }


if __name__ == "__main__":
    sys.exit(main())
