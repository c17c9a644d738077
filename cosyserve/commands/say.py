"""`cosyserve say`: text to a file of sound or to raw audio on standard output, through the public
endpoint.
"""

import argparse
import sys
import time
from typing import Any, get_args

from cosyserve.audio.audibility import FirstAudible
from cosyserve.audio.encoding import Encoding
from cosyserve.client import AsyncClient
from cosyserve.client.types import PromptMode
from cosyserve.commands.terminal.arguments import pair, whole
from cosyserve.commands.terminal.audio_output import deliver, read_text
from cosyserve.commands.terminal.output import WrongUsage
from cosyserve.commands.terminal.synthesis_arguments import (
    add_synthesis_options,
    check_usage,
    form_options,
    stream_options,
)
from cosyserve.load.player import Heard, Play, listen

HELP = "speak a text into a file or to standard output"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "text", metavar="TEXT", nargs="*", help="what to say, in one word or many; - reads it from standard input"
    )
    parser.add_argument("--stream", action="store_true", help="speak standard input as it arrives, until its end")
    parser.add_argument(
        "--mode", choices=("sentences", "tokens"), default="sentences", help="of --stream (default: %(default)s)"
    )
    parser.add_argument(
        "--buffer-delay",
        type=whole(0, 2**31 - 1),
        default=0,
        metavar="MS",
        help="of --stream: speak the words that wait after so long (default: never)",
    )
    parser.add_argument(
        "--instruction", default="", metavar="TEXT", help="how to speak, in words, for models that know instructions"
    )
    parser.add_argument(
        "--pause",
        type=whole(0, 10_000),
        metavar="MS",
        help="silence between sentences, 0 to 10000 (default: the server's)",
    )
    parser.add_argument(
        "--longest-sentence",
        type=whole(10, 20_000),
        default=0,
        metavar="CHARACTERS",
        help="speak longer sentences in parts, 10 to 20000 (default: as long as the model takes)",
    )
    parser.add_argument(
        "--least-euler-steps",
        type=whole(5, 10),
        default=0,
        metavar="N",
        help="fewest Euler steps that a server near its limit may take, 5 to 10 (default: always ten)",
    )
    parser.add_argument(
        "--language", default="", metavar="TAG", help="BCP-47 tag such as en-US or zh (default: by script)"
    )
    parser.add_argument(
        "--pronounce",
        action="append",
        type=pair("WRITTEN=SPOKEN"),
        metavar="WRITTEN=SPOKEN",
        help="how a word is read: other words, or /phonemes/; may be given again",
    )
    parser.add_argument(
        "--allow-control-tokens", action="store_true", help="let the text hold control tokens of the model"
    )
    parser.add_argument(
        "--retry", action="store_true", help="generate a sentence again, once, if its speech fails a check"
    )
    parser.add_argument("--unary", action="store_true", help="the whole utterance at once under full attention")
    add_synthesis_options(parser, get_args(PromptMode))


async def run(arguments: argparse.Namespace) -> int:
    if arguments.stream == bool(arguments.text):
        raise WrongUsage(
            "say TEXT, or - to read it from standard input, or --stream to speak standard input as it arrives"
        )
    if arguments.stream and arguments.unary:
        raise WrongUsage("--stream speaks as the text arrives, --unary as a whole: choose one")
    if arguments.unary and arguments.least_euler_steps:
        raise WrongUsage("--least-euler-steps is for speech that is streamed, --unary always takes ten")
    check_usage(arguments)
    if arguments.text == ["-"]:
        arguments.text = ["".join([piece async for piece in read_text(sys.stdin.fileno())])]
    arguments.text = " ".join(arguments.text)
    how: dict[str, Any] = {
        **await form_options(arguments),
        "language_code": arguments.language,
        "instruction": arguments.instruction,
        "pronunciations": dict(arguments.pronounce or ()),
        "allow_control_tokens": arguments.allow_control_tokens,
        "sentence_pause_milliseconds": arguments.pause,
        "max_sentence_characters": arguments.longest_sentence,
        "retry": arguments.retry,
        "timeout": arguments.timeout,
    }
    speak = _arriving if arguments.stream else _unary if arguments.unary else _streaming
    return await deliver(arguments, lambda client, play: speak(client, arguments, how, play))


async def _streaming(client: AsyncClient, arguments: argparse.Namespace, how: dict[str, Any], play: Play) -> Heard:
    speech = client.synthesize(arguments.text, resumptions=arguments.resume, **_streamed(arguments), **how)
    return await listen(speech, play=play)


async def _arriving(client: AsyncClient, arguments: argparse.Namespace, how: dict[str, Any], play: Play) -> Heard:
    speech = client.streaming_synthesize(
        read_text(sys.stdin.fileno()),
        mode=arguments.mode,
        buffer_delay_milliseconds=arguments.buffer_delay,
        # People pause longer than programs.
        idle_timeout_milliseconds=30_000 if arguments.mode == "tokens" else 180_000,
        **_streamed(arguments),
        **how,
    )
    return await listen(speech, play=play)


def _streamed(arguments: argparse.Namespace) -> dict[str, Any]:
    """What only a streamed text has."""
    return {**stream_options(arguments), "least_euler_steps": arguments.least_euler_steps}


async def _unary(client: AsyncClient, arguments: argparse.Namespace, how: dict[str, Any], play: Play) -> Heard:
    begin = time.monotonic()
    audio, header, summary = await client.synthesize_unary(arguments.text, **how)
    wall = time.monotonic() - begin
    await play(audio)
    if not isinstance(header.encoding, Encoding):
        return Heard(wall, wall, summary.audio_seconds, header, summary)
    audible = FirstAudible(header.encoding, header.sample_rate)
    audible.arrived(wall, audio)
    seconds = len(audio) / header.encoding.bytes_per_sample / header.sample_rate
    return Heard(wall, wall, seconds, header, summary, audible.seconds)
