"""`python -m tools.quality.replies`: short replies spoken through the running services; does each
keep all its words?

`replies.txt` holds 200 replies of two to four sentences as talking agents say them: greetings,
confirmations, questions back, interjections, single words, repeated words, names, letters, numbers
in words. No model here was trained on any of them. Each voice says them with several seeds. Voices
made of recordings (--recording) say them in place of the model's own; with --convert other
recordings of them are said by each voice. With --wavs a folder of other recordings is judged.

A voice's word error rate may be 3 %, or a point above that of recordings of the same texts: of
those that are converted, or of the recipe's teacher (--reference; `recipes.demo_voice.wavs` writes
them). The table ends with that limit and a verdict on each voice. --max-wer makes the limit another
one and the verdict the exit status; without it the verdict is printed only. Rates are judged as
they are printed, to a hundredth of a percent.

Exit status: 0 measured and within the limits, 1 a limit is exceeded or it failed, 2 bad arguments.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from cosyserve.commands.terminal.arguments import model_directory, numbers
from cosyserve.errors import InvalidRequest
from tools.quality.command import add_speaking, ending, names, reported
from tools.quality.recordings.recording import Sentence, read_sentences, spread, write_recording
from tools.quality.short_replies.report import RateLimit, RepliesLimits, as_json, as_table
from tools.quality.short_replies.spoken import (
    SpokenReplies,
    cloning_model,
    converted,
    from_folder,
    heard,
    recorded,
    spoken,
)

REPLIES = Path(__file__).with_name("replies.txt")


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        prog="python -m tools.quality.replies", description="Short replies: is every word spoken, and once?"
    )
    options.add_argument(
        "--model", type=Path, metavar="DIR", help="start the services on this model directory (default: models/demo)"
    )
    options.add_argument("--server", metavar="HOST:PORT", help="use a running server")
    options.add_argument("--voices", type=names, metavar="ID,ID", help="(default: all; with --recording the new ones)")
    options.add_argument(
        "--replies", type=Path, default=REPLIES, metavar="FILE", help="one a line (default: the held-out list)"
    )
    add_speaking(options)
    options.add_argument("--seeds", type=numbers(0, 2**32 - 1), default=(1, 2), metavar="N,N", help="(default: 1,2)")
    source = options.add_mutually_exclusive_group()
    source.add_argument(
        "--recording",
        type=Path,
        nargs="+",
        metavar="WAV",
        help="make voices of five seconds of each, to say the replies",
    )
    source.add_argument(
        "--convert",
        type=Path,
        metavar="DIR",
        help="recordings of the replies, DIR/001.wav..., to be said by each voice",
    )
    source.add_argument(
        "--wavs", type=Path, metavar="DIR", help="judge DIR/001.wav... or DIR/VOICE/001.wav..., numbered as the list"
    )
    options.add_argument(
        "--reference",
        type=Path,
        metavar="DIR",
        help="recordings of the replies, DIR/001.wav..., than which a voice may be a point worse (default: those "
        "of --convert)",
    )
    options.add_argument(
        "--one-ear", action="store_true", help="Whisper tiny.en alone, which says more words are lost than two would"
    )
    options.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    for name, kind, text in (
        ("--max-lost", int, "most replies of a voice and seed with words left out or too short"),
        ("--max-twice", int, "most replies of a voice and seed with words said twice"),
        (
            "--max-wer",
            float,
            "largest word error rate of a voice and seed, by its best ear; 0.03 for 3 %%. Without it the verdict is "
            "printed only",
        ),
    ):
        options.add_argument(name, type=kind, metavar="X", help=text)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    top = parser()
    arguments = top.parse_args(argv)
    if arguments.server and arguments.recording:
        top.error("--recording makes a model directory of its own, which --server does not have")
    with ending(top, bad_arguments=(InvalidRequest, ValueError, ModuleNotFoundError)):
        said = _said(arguments, spread(read_sentences(arguments.replies), arguments.count))
        reference = arguments.reference or arguments.convert
        recordings = [recorded(reference, said[0])] if reference else []
        results = heard([*recordings, *said], one_ear=arguments.one_ear, threads=arguments.threads)
    if arguments.keep:
        for each in said:
            for recording in each.recordings:
                write_recording(arguments.keep / each.voice / str(each.seed), recording)
    spoken_results = results[len(recordings) :]
    limit = RateLimit(
        RateLimit.fixed if arguments.max_wer is None else arguments.max_wer,
        results[0].word_error_rate if recordings else None,
    )
    limits = RepliesLimits(arguments.max_lost, arguments.max_twice, None if arguments.max_wer is None else limit)
    exceeded = [line for quality in spoken_results for line in limits.exceeded(quality)]
    figures = json.dumps(as_json(results, exceeded, limit), indent=1)
    return reported(f"{as_table(results)}\n{limit.verdicts(spoken_results)}", figures, exceeded, arguments.json)


def _said(arguments: argparse.Namespace, replies: list[Sentence]) -> list[SpokenReplies]:
    if arguments.wavs:
        return from_folder(arguments.wavs, arguments.voices, replies)
    with cloning_model(model_directory(arguments.model), arguments.recording or (), arguments.threads) as (
        model,
        clones,
    ):
        voices = arguments.voices or clones
        if arguments.convert:
            return asyncio.run(converted(model, arguments.server, voices, replies, arguments.seeds, arguments.convert))
        return asyncio.run(spoken(model, arguments.server, voices, replies, arguments.seeds))


if __name__ == "__main__":
    sys.exit(main())
