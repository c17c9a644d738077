"""Whether one engine can take the place of another: replicas with equal identities, and engines
that were built earlier.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cosyserve.errors import FailedPrecondition


@dataclass(frozen=True)
class Identity:
    """Fields as in EngineIdentity of identity.proto."""

    model_hash: str
    backend: str
    precision: str
    device: str

    def require(self, expected: "Identity | None") -> None:
        """Raise FailedPrecondition if a request was begun by an engine that differs from
        this one.
        """
        if expected is not None and expected != self:
            raise FailedPrecondition(f"the request was begun by {expected}, this replica is {self}; start it again")


_EXACT = "none"
BUNDLED_IN = {"tensorrt": "tensorrt_llm"}
"""Libraries that another one bundles in a version of its own: library to bundler."""


def incompatibility(
    facts: Mapping[str, str],
    gpus: Sequence[Mapping[str, str]],
    libraries: Mapping[str, str],
) -> str | None:
    """Why an engine built under `facts` cannot be loaded here, in words; None if it may be loaded.

    gpus: gpu, compute_capability and driver of each. libraries: versions of those installed here.
    The version of a library of BUNDLED_IN is not compared for an engine of its bundler if that one
    is not installed here. A fact that is unknown on either side is no reason.
    """
    if facts.get("compatibility", _EXACT) != _EXACT:
        return None  # built to run on other GPUs too, at the cost of speed; only the library knows on which
    for name, version in libraries.items():
        if BUNDLED_IN.get(name) in facts.keys() - libraries.keys():
            continue
        if _release(facts.get(name, version)) != _release(version):
            return f"built with {name} {facts[name]}, here is {version}"
    if gpus and "gpu" in facts and not any(_fits(gpu, facts) for gpu in gpus):
        wanted = f"{facts['gpu']}, driver {facts.get('driver', 'unknown')}"
        return f"built for {wanted}; here: {', '.join(gpu['gpu'] + ', driver ' + gpu['driver'] for gpu in gpus)}"
    return None


def _fits(gpu: Mapping[str, str], facts: Mapping[str, str]) -> bool:
    # A MIG slice is named after its GPU and itself; nvidia-smi does not report that name here.
    built = dict(facts) | {"gpu": facts["gpu"].partition(" MIG ")[0]}
    known = {
        name: value for name, value in gpu.items() if not value.startswith("[")
    }  # "[N/A]", as some GPUs say of themselves
    return all(built.get(name, value) in (value, "unknown") for name, value in known.items())


def _release(version: str) -> str:
    """Without what a package's number has behind the library's own."""
    return version.partition(".post")[0].partition("+")[0]
