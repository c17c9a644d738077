"""`cosyserve say`: text to a WAV file or to raw audio on standard output, by the public endpoint and nothing else."""

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path

from cosyserve.audio import Encoding
from cosyserve.client import Client
from cosyserve.commands.hearing import Heard, Play, hear
from cosyserve.commands.options import add_json, add_server, encoding
from cosyserve.commands.typed import typed
from cosyserve.spec import SAMPLE_RATE
from cosyserve.wav import WavWriter

HELP = "speak a text into a file or to standard output"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", metavar="TEXT", type=_text, nargs="?", help="what to say; - reads it from standard input")
    parser.add_argument("--stream", action="store_true", help="speak standard input as it arrives, until its end")
    parser.add_argument("--mode", choices=("sentences", "tokens"), default="sentences", help="of --stream (default: %(default)s)")
    parser.add_argument(
        "--buffer-delay",
        type=int,
        default=0,
        metavar="MS",
        help="of --stream: speak the words that wait after so long (default: never)",
    )
    parser.add_argument("--pause", type=int, metavar="MS", help="silence between sentences, 0 to 10000 (default: the server's)")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="WAV file; - streams headerless audio to standard output")
    parser.add_argument("--voice", default="", metavar="ID", help="see `cosyserve voices` (default: the server's)")
    parser.add_argument("--seed", type=int, metavar="N", help="same seed, same samples (default: chosen by the server)")
    parser.add_argument("--speed", type=float, default=1.0, metavar="X", help="0.5 to 2.0 (default: %(default)s)")
    parser.add_argument("--rate", type=_rate, default=SAMPLE_RATE, metavar="HERTZ", help="8000 to 48000 (default: %(default)s)")
    parser.add_argument(
        "--encoding", type=encoding, default=Encoding.LINEAR16, metavar="NAME", help=f"{', '.join(Encoding)} (default: linear16)"
    )
    parser.add_argument("--language", default="", metavar="TAG", help="BCP-47 tag such as en-US or zh (default: by script)")
    parser.add_argument("--profile", choices=("continuous", "upstream"), default="continuous", help="(default: %(default)s)")
    parser.add_argument("--first-hop", type=int, default=0, metavar="TOKENS", help="fewest tokens before the first sound (default: 1)")
    parser.add_argument("--resume", type=int, default=3, metavar="N", help="times in a row to take up a lost connection (default: 3)")
    parser.add_argument("--unary", action="store_true", help="the whole utterance at once under full attention")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="give up after this long (default: never)")
    add_server(parser)
    add_json(parser)


async def run(arguments: argparse.Namespace) -> int:
    if arguments.stream != (arguments.text is None):
        print("say TEXT, or --stream to speak standard input as it arrives", file=sys.stderr)
        return 2
    if arguments.stream and arguments.unary:
        print("--stream speaks as the text arrives, --unary as a whole: choose one", file=sys.stderr)
        return 2
    out = _Output(arguments)
    try:
        async with Client(arguments.server) as client:
            speak = _arriving if arguments.stream else _unary if arguments.unary else _streaming
            heard = await speak(client, arguments, out.play)
    except BrokenPipeError:
        # Whoever listened has heard enough. Python would meet the broken pipe again when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    finally:
        out.close()
    line = json.dumps(heard.as_dict() | {"output": arguments.output}) if arguments.json else f"{arguments.output}: {heard}"
    print(line, file=sys.stderr if arguments.output == "-" else sys.stdout)
    return 0


async def _streaming(client: Client, arguments: argparse.Namespace, play: Play) -> Heard:
    speech = client.synthesize(
        arguments.text,
        voice=arguments.voice,
        seed=arguments.seed,
        speed=arguments.speed,
        sample_rate=arguments.rate,
        encoding=arguments.encoding,
        profile=arguments.profile,
        language_code=arguments.language,
        first_hop_tokens=arguments.first_hop,
        sentence_pause_milliseconds=arguments.pause,
        timeout=arguments.timeout,
        resumptions=arguments.resume,
    )
    return await hear(speech, play)


async def _arriving(client: Client, arguments: argparse.Namespace, play: Play) -> Heard:
    speech = client.streaming_synthesize(
        typed(sys.stdin.fileno()),
        mode=arguments.mode,
        buffer_delay_milliseconds=arguments.buffer_delay,
        # People think longer than programs.
        idle_timeout_milliseconds=30_000 if arguments.mode == "tokens" else 180_000,
        voice=arguments.voice,
        seed=arguments.seed,
        speed=arguments.speed,
        sample_rate=arguments.rate,
        encoding=arguments.encoding,
        profile=arguments.profile,
        language_code=arguments.language,
        first_hop_tokens=arguments.first_hop,
        sentence_pause_milliseconds=arguments.pause,
        timeout=arguments.timeout,
    )
    return await hear(speech, play)


async def _unary(client: Client, arguments: argparse.Namespace, play: Play) -> Heard:
    begin = time.monotonic()
    audio, header, summary = await client.synthesize_unary(
        arguments.text,
        voice=arguments.voice,
        seed=arguments.seed,
        speed=arguments.speed,
        sample_rate=arguments.rate,
        encoding=arguments.encoding,
        language_code=arguments.language,
        sentence_pause_milliseconds=arguments.pause,
        timeout=arguments.timeout,
    )
    wall = time.monotonic() - begin
    await play(audio)
    return Heard(len(audio) / header.encoding.bytes_per_sample / header.sample_rate, wall, wall, header, summary)


def _text(argument: str) -> str:
    """Read here, before there is an event loop, so that Ctrl-C reaches the reading."""
    return sys.stdin.read() if argument == "-" else argument


def _rate(argument: str) -> int:
    """The server says which rates it has; 0 would be its default, and a file must state the rate it holds."""
    rate = int(argument)
    if rate < 1:
        raise argparse.ArgumentTypeError(f"{rate} is not a rate")
    return rate


class _Output:
    """Where the audio goes. A file comes into being with the first sound, so that a refused request leaves none."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._file: WavWriter | None = None

    async def play(self, audio: bytes) -> None:
        await asyncio.to_thread(self._write, audio)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, audio: bytes) -> None:
        if self._arguments.output == "-":
            sys.stdout.buffer.write(audio)
            sys.stdout.buffer.flush()
            return
        if self._file is None:
            self._file = WavWriter(Path(self._arguments.output), self._arguments.rate, self._arguments.encoding)
        self._file.write(audio)
