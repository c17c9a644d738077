"""Command-line options that several commands share, and their argparse types; each type raises
ArgumentTypeError for a value it refuses.
"""

import argparse
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cosyserve.audio.encoding import AnyEncoding, CompressedEncoding, Encoding
from cosyserve.commands.terminal.connection_arguments import add_api_key, add_client_tls, add_served_tls, served_tls
from cosyserve.commands.terminal.service_lists import backend, devices, ports, replicas
from cosyserve.generations.model_pair import DECODER_MODEL, pair_variables
from cosyserve.host.starting.serving import callers, strictness, wyoming_address
from cosyserve.host.supervision.gpu_sharing import WAYS
from cosyserve.settings import GPU_SHARING


def server(text: str) -> str:
    """argparse type of host:port."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form HOST:PORT")
    if not 1 <= int(port) <= 65535:
        raise argparse.ArgumentTypeError(f"the port of {text!r} is {port}, allowed 1 to 65535")
    return text


def whole(least: int, most: int) -> Callable[[str], int]:
    """argparse type of a whole number within a range."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not allowed: {least} to {most}")
        return value

    return read


def numbers(least: int, most: int) -> Callable[[str], tuple[int, ...]]:
    """argparse type of whole numbers within a range, with commas between them."""

    def read(text: str) -> tuple[int, ...]:
        try:
            values = tuple(int(part) for part in text.split(","))
        except ValueError:
            values = ()
        if not values or not all(least <= value <= most for value in values):
            raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers from {least} to {most} such as 1,4,16")
        return values

    return read


def number(form: str, allowed: Callable[[float], bool]) -> Callable[[str], float]:
    """argparse type of a number that is `allowed`; form: which numbers these are, in words."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not allowed(value):
            raise argparse.ArgumentTypeError(f"{text!r} is no {form}")
        return value

    return read


def encoding(text: str) -> AnyEncoding:
    """argparse type of an audio encoding."""
    known: dict[str, AnyEncoding] = {each.value: each for each in (*Encoding, *CompressedEncoding)}
    if text not in known:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(known)}")
    return known[text]


def pair(form: str) -> Callable[[str], tuple[str, str]]:
    """argparse type of two texts with = between them; form: how to write that, such as
    "KEY=VALUE".
    """

    def split(text: str) -> tuple[str, str]:
        first, equals, second = text.partition("=")
        if not equals:
            raise argparse.ArgumentTypeError(f"{text!r} is not of the form {form}")
        return first, second

    return split


SERVER = "127.0.0.1:50051"
HTTP = "127.0.0.1:8080"


def add_server(parser: argparse.ArgumentParser, default: str = SERVER) -> None:
    """--server, --api-key-file and --tls"""
    parser.add_argument(
        "--server", type=server, default=default, metavar="HOST:PORT", help=f"public endpoint (default: {SERVER})"
    )
    add_api_key(parser, default if default == argparse.SUPPRESS else None)
    add_client_tls(parser, default if default == argparse.SUPPRESS else None)


def add_json(parser: argparse._ActionsContainer, default: bool | str = False) -> None:
    """--json"""
    parser.add_argument("--json", action="store_true", default=default, help="print one JSON object")


def add_stack(parser: argparse.ArgumentParser) -> None:
    """Options that decide which services run: --model, --token2wav-model, --backend, --device,
    --gpu-sharing.
    """
    add_model(parser)
    parser.add_argument(
        "--backend",
        type=backend,
        default=None,
        metavar="NAME",
        help="engine of llm and token2wav, such as auto, torch or fake, or of each, such as "
        "llm=vllm,token2wav=tensorrt (default: COSYSERVE_LLM_BACKEND and COSYSERVE_TOKEN2WAV_BACKEND, else auto)",
    )
    parser.add_argument(
        "--device",
        default=None,
        metavar="NAME",
        help="device of the engines, such as cpu or cuda (default: the services')",
    )
    add_gpu_sharing(parser)


def add_model(parser: argparse.ArgumentParser) -> None:
    """--model, --token2wav-model"""
    parser.add_argument(
        "--model",
        type=Path,
        default=None,
        metavar="DIR",
        help="model directory of CosyVoice2 or CosyVoice3 (default: models/demo)",
    )
    parser.add_argument(
        "--token2wav-model",
        type=Path,
        default=None,
        metavar="DIR",
        help="directory of another flow and vocoder for its speech tokens, as that of Step-Audio2 "
        f"(default: {DECODER_MODEL}, else those of --model)",
    )


def add_gpu_sharing(parser: argparse.ArgumentParser) -> None:
    """--gpu-sharing"""
    parser.add_argument(
        "--gpu-sharing",
        choices=WAYS,
        default=None,
        help="engines on one GPU; auto: at the same time, through NVIDIA MPS where it is there; off: in turns "
        f"(default: {GPU_SHARING}, else auto)",
    )


def add_serving(parser: argparse.ArgumentParser) -> None:
    """Where and how the services run: addresses, replicas, devices, voices, drain, strict, callers,
    TLS.
    """
    add_served_tls(parser)
    parser.add_argument(
        "--listen",
        default=SERVER,
        metavar="HOST:PORT",
        help="public endpoint; port 0 takes a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--http",
        default=HTTP,
        metavar="HOST:PORT",
        help="HTTP and WebSockets; port 0 takes a free one, off: none (default: %(default)s)",
    )
    parser.add_argument(
        "--root-path", metavar="PATH", help="below which a proxy publishes --http, such as /tts (default: the root)"
    )
    parser.add_argument(
        "--wyoming",
        metavar="HOST:PORT",
        help="Wyoming, for Home Assistant, such as 0.0.0.0:10200; its clients have no keys (default: none)",
    )
    parser.add_argument(
        "--keys",
        type=Path,
        metavar="FILE",
        help="file with the API keys of callers, as `cosyserve keys add` writes it (default: callers need none)",
    )
    parser.add_argument(
        "--insecure", action="store_true", help="serve callers without keys on an address that other machines reach"
    )
    parser.add_argument(
        "--ports",
        type=ports,
        default={},
        metavar="LIST",
        help="of the stages, on the loopback, such as frontend=50052,llm=50053,token2wav=50054; "
        "further replicas have the ports that follow (default: free ones)",
    )
    parser.add_argument(
        "--devices",
        type=devices,
        default={},
        metavar="LIST",
        help="one replica on each, such as token2wav=cuda:0,cuda:1,llm=cuda:0 "
        "(default: --replicas and the device of the engines)",
    )
    parser.add_argument(
        "--replicas", type=replicas, default={}, metavar="LIST", help="such as token2wav=2,llm=1 (default: one of each)"
    )
    parser.add_argument(
        "--voices",
        default=None,
        metavar="URL",
        help="where voices are kept: a directory or object store (default: the user's data directory)",
    )
    parser.add_argument(
        "--drain",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="how long a stop waits for calls (default: %(default)s)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="the fastest engine there is, or an error that says what it lacks"
    )


def serving(arguments: argparse.Namespace, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The options of `add_serving` and `add_gpu_sharing` as arguments of `local_deployment`.
    environ: further variables of the services. Raises SettingsError for options that do not fit,
    and for an address that other machines reach without --keys or --insecure.
    """
    return {
        "listen": arguments.listen,
        "http": None if arguments.http == "off" else arguments.http,
        "ports": arguments.ports,
        "devices": arguments.devices,
        "replicas": arguments.replicas,
        "drain_seconds": arguments.drain,
        "gpu_sharing": arguments.gpu_sharing,
        "environ": {
            **(environ or {}),
            **strictness(arguments.strict),
            **served_tls(arguments),
            **wyoming_address(arguments.wyoming, arguments.http),
            **callers(arguments.keys, arguments.listen, arguments.http, insecure=arguments.insecure),
            **({"COSYSERVE_GATEWAY_ROOT_PATH": arguments.root_path} if arguments.root_path else {}),
            "COSYSERVE_FRONTEND_VOICES_URL": arguments.voices or voices_url(),
        },
    }


_DEMO_MODEL = Path("models") / "demo"


def model_directory(given: Path | None) -> Path:
    """The requested directory, else the bundled model next to the package, else the one in the
    working directory.
    """
    if given is not None:
        return given
    bundled = Path(__file__).resolve().parents[3] / _DEMO_MODEL
    return bundled if bundled.is_dir() else _DEMO_MODEL


def model_pair(arguments: argparse.Namespace) -> dict[str, str]:
    """Variables of the services for --token2wav-model. Raises ModelError where it does not fit to
    --model.
    """
    return pair_variables(model_directory(arguments.model), decoder_directory(arguments))


def decoder_directory(arguments: argparse.Namespace) -> Path | None:
    """The directory of another flow and vocoder, None without one."""
    named = os.environ.get(DECODER_MODEL)
    return arguments.token2wav_model or (Path(named) if named else None)


def voices_url() -> str:
    """Where `cosyserve up` stores voices by default: COSYSERVE_FRONTEND_VOICES_URL, else the data
    directory of the user.
    """
    url = os.environ.get("COSYSERVE_FRONTEND_VOICES_URL")
    if url:
        return url
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return str(Path(data) / "cosyserve" / "voices")
