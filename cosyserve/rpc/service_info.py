"""What a service tells of itself; see ServiceInfo in info.proto for each field."""

import dataclasses
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from cosyserve.engines.fallback import Refusal
from cosyserve.engines.gpu_facts import library_versions
from cosyserve.engines.identity import Identity


@dataclass(frozen=True, kw_only=True)
class ServiceFacts:
    """Of a service that is loaded."""

    identity: Identity | None = None
    rung: str = ""
    refused: tuple[Refusal, ...] = ()
    buckets: tuple[int, ...] = ()
    limits: dict[str, float] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)


def limits_of(settings: Any, *names: str) -> dict[str, float]:
    """Fields of a settings dataclass that are set; raises KeyError for a name that is no field."""
    fields = {one.name for one in dataclasses.fields(settings)}
    for name in names:
        if name not in fields:
            raise KeyError(name)
    return {name: float(value) for name in names if (value := getattr(settings, name)) is not None}


def libraries(*names: str) -> dict[str, str]:
    """Versions of those that are installed, and of what every service rests on."""
    return library_versions("grpcio", "protobuf", "numpy", *names)


def release() -> str:
    """Version of cosyserve, `unknown` when it runs from a tree that is not installed."""
    try:
        return version("cosyserve")
    except PackageNotFoundError:
        return "unknown"
