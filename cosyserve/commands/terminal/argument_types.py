"""Types of command-line options for argparse. Each raises ArgumentTypeError for a value it
refuses.
"""

import argparse
import math
from collections.abc import Callable

from cosyserve.audio.encoding import Encoding
from cosyserve.host.supervision.layout import WITH_BACKEND


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


def seconds(text: str) -> float:
    """argparse type of a time above 0."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds") from None
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text} is not allowed: more than 0 seconds")
    return value


def decimal(text: str) -> float:
    """argparse type of a number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None


def encoding(text: str) -> Encoding:
    """argparse type of an audio encoding."""
    try:
        return Encoding(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(Encoding)}") from None


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


def backend(text: str) -> str | dict[str, str]:
    """argparse type of a name, or of e.g. "llm=vllm,token2wav=tensorrt"."""
    if "=" not in text:
        return text
    named = _named(text, "llm=vllm,token2wav=tensorrt")
    if not named.keys() <= set(WITH_BACKEND):
        raise argparse.ArgumentTypeError(f"{text!r} names more than {' and '.join(WITH_BACKEND)}")
    return named


def replicas(text: str) -> dict[str, int]:
    """argparse type of e.g. "token2wav=2,llm=1"."""
    form = "token2wav=2,llm=1"
    named = _named(text, form)
    if not all(count.isdecimal() for count in named.values()):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form {form}")
    return {name: int(count) for name, count in named.items()}


def devices(text: str) -> dict[str, list[str]]:
    """argparse type of e.g. "token2wav=cuda:0,cuda:1,llm=cuda:0": a name with = begins the list of
    a service.
    """
    return _lists(text, "token2wav=cuda:0,cuda:1,llm=cuda:0")


def ports(text: str) -> dict[str, list[int]]:
    """argparse type of e.g. "frontend=50052,llm=50053,token2wav=50054,50060"."""
    form = "frontend=50052,llm=50053,token2wav=50054"
    named = _lists(text, form)
    if not all(port.isdecimal() for listed in named.values() for port in listed):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form {form}")
    return {name: [int(port) for port in listed] for name, listed in named.items()}


def _lists(text: str, form: str) -> dict[str, list[str]]:
    """The list after each name, up to the next name."""
    values: dict[str, list[str]] = {}
    listed: list[str] | None = None
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if equals and name not in values:
            listed = values.setdefault(name, [])
        elif equals:
            listed = None
        if listed is None or not (value if equals else name) or (equals and not name):
            raise argparse.ArgumentTypeError(f"{text!r} is not of the form {form}")
        listed.append(value if equals else name)
    return values


def _named(text: str, form: str) -> dict[str, str]:
    """The value of each name."""
    values: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value or name in values:
            raise argparse.ArgumentTypeError(f"{text!r} is not of the form {form}")
        values[name] = value
    return values
