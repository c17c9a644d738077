"""argparse types of lists that say something of each service; each raises ArgumentTypeError for a
value it refuses.
"""

import argparse

from cosyserve.host.supervision.layout import WITH_BACKEND


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
    """The only value of each name."""
    values = _lists(text, form)
    if any(len(listed) > 1 for listed in values.values()):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form {form}")
    return {name: value for name, (value,) in values.items()}
