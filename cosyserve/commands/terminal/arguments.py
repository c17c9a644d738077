"""Command-line options that several commands share."""

import argparse
from pathlib import Path

from cosyserve.commands.terminal.arguments import backend, devices, ports, replicas, server
from cosyserve.host.starting.serving import Serving
from cosyserve.host.supervision.gpu_sharing import VARIABLE, WAYS

SERVER = "127.0.0.1:50051"


def add_server(parser: argparse.ArgumentParser) -> None:
    """--server"""
    parser.add_argument(
        "--server", type=server, default=SERVER, metavar="HOST:PORT", help="public endpoint (default: %(default)s)"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """--json"""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def add_stack(parser: argparse.ArgumentParser) -> None:
    """Options that decide which services run: --model, --backend, --device, --gpu-sharing."""
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
    """--model"""
    parser.add_argument(
        "--model", type=Path, default=None, metavar="DIR", help="CosyVoice2 model directory (default: models/demo)"
    )


def add_gpu_sharing(parser: argparse.ArgumentParser) -> None:
    """--gpu-sharing"""
    parser.add_argument(
        "--gpu-sharing",
        choices=WAYS,
        default=None,
        help="engines on one GPU; auto: at the same time, through NVIDIA MPS where it is there; off: in turns "
        f"(default: {VARIABLE}, else auto)",
    )


def add_serving(parser: argparse.ArgumentParser) -> None:
    """Where and how the services run: --listen, --ports, --replicas, --devices, --voices, --drain,
    --strict.
    """
    parser.add_argument(
        "--listen",
        default=SERVER,
        metavar="HOST:PORT",
        help="public endpoint; port 0 takes a free one (default: %(default)s)",
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


def serving(arguments: argparse.Namespace) -> Serving:
    """What the options of `add_serving` and `add_gpu_sharing` say."""
    return Serving(
        listen=arguments.listen,
        ports=arguments.ports,
        devices=arguments.devices,
        replicas=arguments.replicas,
        voices=arguments.voices,
        drain_seconds=arguments.drain,
        strict=arguments.strict,
        gpu_sharing=arguments.gpu_sharing,
    )
