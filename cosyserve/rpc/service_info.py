"""Facts about a service; see ServiceInfo in info.proto for each field."""

import dataclasses
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from cosyserve.engines.compatibility import Identity
from cosyserve.engines.fallback import Refusal
from cosyserve.engines.gpu_facts import library_versions
from cosyserve.v1 import identity_pb2


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


def identity_from_proto(message: identity_pb2.EngineIdentity) -> Identity:
    """The message as a value that can be compared."""
    return Identity(message.model_hash, message.backend, message.precision, message.device)


def identity_to_proto(identity: Identity) -> identity_pb2.EngineIdentity:
    """As EngineIdentity of identity.proto."""
    return identity_pb2.EngineIdentity(
        model_hash=identity.model_hash, backend=identity.backend, precision=identity.precision, device=identity.device
    )
