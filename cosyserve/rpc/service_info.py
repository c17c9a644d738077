"""Facts about a service; see ServiceInfo in info.proto for each field."""

import dataclasses
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from cosyserve.engines.fallback import Refusal
from cosyserve.engines.gpu_facts import library_versions
from cosyserve.engines.identity import Identity


@dataclass(frozen=True, kw_only=True)
class ServiceFacts:
    """Facts about a loaded service."""

    identity: Identity | None = None
    rung: str = ""
    refused: tuple[Refusal, ...] = ()
    buckets: tuple[int, ...] = ()
    limits: dict[str, float] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)


def limits_of(settings: Any, *names: str) -> dict[str, float]:
    """The given fields of a settings dataclass, without those that are None; raises KeyError for an
    unknown name.
    """
    fields = {one.name for one in dataclasses.fields(settings)}
    for name in names:
        if name not in fields:
            raise KeyError(name)
    return {name: float(value) for name in names if (value := getattr(settings, name)) is not None}


def libraries(*names: str) -> dict[str, str]:
    """Versions of the given packages that are installed, and of those that every service uses."""
    return library_versions("grpcio", "protobuf", "numpy", *names)


def release() -> str:
    """Version of cosyserve, `unknown` when it runs from a tree that is not installed."""
    try:
        return version("cosyserve")
    except PackageNotFoundError:
        return "unknown"
