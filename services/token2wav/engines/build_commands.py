"""The commands that make what is looked for in the engine cache, for who is told that it is not
there.
"""

import shlex
from pathlib import Path

from services.token2wav.engines.cache_keys import NO_COMPATIBILITY


def export_command(model: Path, precision: str, published: Path | None, engines: Path | None) -> str:
    """published: the estimator's file where it is not our own. engines: directory of the cache,
    None: the usual one.
    """
    return _command("export", model, _graphs(precision, published, engines))


def build_command(
    model: Path,
    precision: str,
    published: Path | None,
    engines: Path | None,
    *,
    streams: int,
    compatibility: str,
    device: str,
) -> str:
    """The plans' too: most streams in a batch, one of COMPATIBILITIES, and the GPU."""
    options = ["--streams", str(streams)]
    options += [] if compatibility == NO_COMPATIBILITY else ["--compatibility", compatibility]
    options += [] if device == "cuda" else ["--device", device]
    return _command("build token2wav", model, [*_graphs(precision, published, engines), *options])


def _graphs(precision: str, published: Path | None, engines: Path | None) -> list[str]:
    options = ["--precision", precision]
    options += [] if published is None else ["--published", str(published)]
    return options + ([] if engines is None else ["--engines", str(engines)])


def _command(step: str, model: Path, options: list[str]) -> str:
    return shlex.join(["cosyserve", "model", *step.split(), str(model), *options])
