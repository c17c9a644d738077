"""Options of the commands that speak: voice, speed, audio format, and retries."""

import argparse
import asyncio
import math
from pathlib import Path
from typing import Any

from cosyserve.audio.compressed import FileFormat, check_rate
from cosyserve.audio.encoding import CompressedEncoding, Encoding
from cosyserve.client.types import Prompt
from cosyserve.commands.terminal.arguments import add_json, add_server, encoding, number, whole
from cosyserve.commands.terminal.audio_output import COMPRESSED, check_output
from cosyserve.commands.terminal.output import WrongUsage
from cosyserve.commands.terminal.players import PROGRAMS
from cosyserve.errors import InvalidRequest
from cosyserve.spec import SAMPLE_RATE

_MOST_BYTES = 10 * 1024 * 1024
CUT_PROMPT = "an earlier first sound: the decoder gets up to 0.96 s less of the recording's start"


def add_synthesis_options(parser: argparse.ArgumentParser, modes: tuple[str, ...]) -> None:
    """modes: prompt modes of the command."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="file: .wav, .mp3, .opus, .aac or .flac; - streams headerless audio to standard output",
    )
    parser.add_argument(
        "--play", action="store_true", help=f"play it ({', '.join(program.name for program in PROGRAMS)})"
    )
    parser.add_argument("--voice", default="", metavar="ID", help="see `cosyserve voices` (default: the server's)")
    parser.add_argument(
        "--prompt",
        type=Path,
        metavar="FILE",
        help="speak like this recording (WAV, FLAC, MP3 or Ogg, 1 to 30 s) instead",
    )
    parser.add_argument("--transcript", default="", metavar="TEXT", help="of --prompt: what is said in it")
    parser.add_argument("--prompt-language", default="", metavar="TAG", help="of --transcript (default: by script)")
    parser.add_argument("--cut-prompt", action="store_true", help=f"of --prompt: {CUT_PROMPT}")
    parser.add_argument("--prompt-mode", choices=modes, help="which parts of the voice are used (default: all)")
    parser.add_argument(
        "--seed", type=whole(0, 2**64 - 1), metavar="N", help="same seed, same samples (default: chosen by the server)"
    )
    parser.add_argument(
        "--speed",
        type=number("number", lambda value: not math.isnan(value)),
        default=1.0,
        metavar="X",
        help="0.5 to 2.0 (default: %(default)s)",
    )
    parser.add_argument(
        "--rate",
        type=whole(1, 2**31 - 1),
        default=SAMPLE_RATE,
        metavar="HERTZ",
        help="8000 to 48000 (default: %(default)s)",
    )
    parser.add_argument(
        "--encoding",
        type=encoding,
        default=Encoding.LINEAR16,
        metavar="NAME",
        help=f"{', '.join(Encoding)} (default: linear16); {', '.join(CompressedEncoding)}: the server encodes the file",
    )
    parser.add_argument(
        "--profile", choices=("continuous", "upstream"), default="continuous", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--onset",
        choices=("trimmed", "natural"),
        help="silence at both ends removed or sent (default: trimmed; natural with upstream)",
    )
    parser.add_argument(
        "--first-hop",
        type=whole(0, 2**31 - 1),
        default=0,
        metavar="TOKENS",
        help="fewest tokens before the first sound (default: 1)",
    )
    parser.add_argument(
        "--resume",
        type=whole(0, 1000),
        default=3,
        metavar="N",
        help="times in a row to call a server that cannot be reached; speech that has begun is resumed for 60 s "
        "(default: 3)",
    )
    parser.add_argument(
        "--timeout",
        type=number("number of seconds above 0", lambda value: 0 < value < math.inf),
        metavar="SECONDS",
        help="give up so long after connecting began (default: never)",
    )
    add_server(parser)
    add_json(parser)


def check_usage(arguments: argparse.Namespace) -> None:
    """Raise WrongUsage for the first conflict among the options of `add_synthesis_options`, and
    what `check_output` raises.
    """
    if arguments.prompt is None and (arguments.transcript or arguments.prompt_language or arguments.cut_prompt):
        raise WrongUsage("--transcript, --prompt-language and --cut-prompt need --prompt")
    if arguments.prompt is not None and arguments.voice:
        raise WrongUsage("--voice and --prompt: speak like one of them")
    if arguments.output is None and not arguments.play:
        raise WrongUsage("where to: -o FILE, -o - for standard output, or --play")
    if arguments.play and arguments.encoding is not Encoding.LINEAR16:
        raise WrongUsage("--play plays linear16, and no other encoding")
    encodes = isinstance(arguments.encoding, Encoding)
    check_output(arguments.output, COMPRESSED, encodes=encodes)
    compressed = COMPRESSED.get(Path(arguments.output or "").suffix.lower())
    if not encodes:
        wanted = FileFormat(arguments.encoding.value)
        if compressed is not wanted and arguments.output != "-":
            endings = ", ".join(ending for ending, each in COMPRESSED.items() if each is wanted)
            raise WrongUsage(f"{arguments.output}: --encoding {wanted} is for a file that ends in {endings}, or -")
        compressed = wanted
    if compressed is not None:
        if encodes and arguments.encoding is not Encoding.LINEAR16:
            raise WrongUsage(f"{arguments.output}: --encoding {arguments.encoding} is for WAV files and raw audio")
        try:
            check_rate(compressed, arguments.rate)
        except InvalidRequest as error:
            raise WrongUsage(f"--rate: {error}") from error


async def form_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options as FormOptions of the client. Raises OSError or InvalidRequest for a recording
    that cannot be sent.
    """
    options = {
        "voice": arguments.voice,
        "prompt_mode": arguments.prompt_mode,
        "seed": arguments.seed,
        "speed": arguments.speed,
        "sample_rate": arguments.rate,
        "encoding": arguments.encoding,
        "onset": arguments.onset,
    }
    if arguments.prompt is not None:
        audio = await asyncio.to_thread(read_recording, arguments.prompt)
        options["prompt"] = Prompt(audio, arguments.transcript, arguments.prompt_language, arguments.cut_prompt)
    return options


def stream_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options as StreamOptions of the client."""
    return {"profile": arguments.profile, "first_hop_tokens": arguments.first_hop}


def read_recording(path: Path) -> bytes:
    """The bytes of a sound file. Raises OSError, and InvalidRequest if every server would refuse
    its size.
    """
    if not 1 <= (size := path.stat().st_size) <= _MOST_BYTES:
        raise InvalidRequest(f"{path} has {size} bytes, allowed 1 to {_MOST_BYTES}")
    return path.read_bytes()
