"""`python -m tools.model.prune --model DIR`: remove what no model and no GPU here uses any more.

Judged are the entries of the engine cache, conversions below the folders named with --conversions,
and what runs that were cut off left behind. An entry goes when it was made of none of the models
given, or for another GPU, driver, TensorRT or TensorRT-LLM than there are here; what cannot be
known here (no GPU visible, a library not installed) is no reason. What a running service holds is
kept.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cosyserve.engines.compatibility import incompatibility
from cosyserve.engines.engine_cache import EngineCache
from cosyserve.engines.gpu_facts import library_versions, machine_gpus, tensorrt_version
from cosyserve.errors import ModelError
from cosyserve.file_lock import MANIFEST, exclusive_lock, is_locked
from cosyserve.model_directory import ModelDirectory
from services.llm.generation.config import identity_files
from services.token2wav.engines.artifacts import WRITER
from tools.model.output.command import ENGINES, JSON, command, engine_cache
from tools.model.output.complete_directory import leftovers, read_manifest
from tools.model.output.progress import in_units

_TOKEN2WAV_FILES = ("flow.pt", "hift.pt")
"""The files that token2wav's model hash covers, in addition to the yaml."""
_LEFT = (".building-", ".broken-")


@dataclass(frozen=True)
class Inventory:
    """What this machine has: hashes of the models in use (None: not named), GPUs, and versions of
    libraries.
    """

    models: frozenset[str] | None
    gpus: tuple[Mapping[str, str], ...] = ()
    libraries: Mapping[str, str] = field(default_factory=dict)

    def objection(self, facts: Mapping[str, str]) -> str | None:
        """Why something made under these facts is of no use here, None when it may be."""
        if self.models is not None and "model" in facts and facts["model"] not in self.models:
            return f"made of model {facts['model']}, which is none of those given"
        if facts.get("writer", WRITER) != WRITER:
            return "written by another release, which this one does not load"
        return incompatibility(facts, self.gpus, self.libraries)


@dataclass(frozen=True)
class Verdict:
    """reason: why it goes; None: it stays. lock: the file that who uses it, or makes it, holds a
    lock of.
    """

    path: Path
    bytes: int
    reason: str | None
    lock: Path
    held: bool = False


def judge_engines(cache: EngineCache, present: Inventory) -> Iterator[Verdict]:
    """Every entry of the cache, and what cut-off builds left."""
    for engine in cache.entries():
        yield _judged(engine.directory, engine.bytes, present.objection(engine.key.facts))
    if cache.root.is_dir():
        for left, name in _set_aside(cache.root):
            if not is_locked(lock := cache.root / f"{name}.lock"):
                yield Verdict(left, _size(left), "left by a build that was cut off", lock)


def judge_conversions(folder: Path, present: Inventory) -> Iterator[Verdict]:
    """Every conversion right below `folder`, and what cut-off conversions left. Raises
    ModelError.
    """
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such directory")
    for path in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        manifest = read_manifest(path)
        if manifest is not None and "source" in manifest.identity:
            yield _judged(path, manifest.size, present.objection({"model": manifest.identity["source"]}))
    for left, name in [*((left, _target_of(left.name)) for left in leftovers(folder)), *_set_aside(folder)]:
        if not is_locked(lock := folder / f"{name}.lock"):
            yield Verdict(left, _size(left), "left by a conversion, or a prune, that was cut off", lock)


def remove(verdict: Verdict) -> bool:
    """Whether it went: out of sight with one rename, then deleted. What a process has begun to use
    since it was judged stays.
    """
    aside = verdict.path.with_name(f".broken-{verdict.path.name.lstrip('.')}-{os.getpid()}-{time.monotonic_ns()}")
    try:
        with exclusive_lock(verdict.lock):
            verdict.path.rename(aside)
        shutil.rmtree(aside)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return True  # another prune was faster
    return True


def model_hashes(models: Sequence[Path]) -> frozenset[str]:
    """The hashes that engines of these model directories are kept under. Raises ModelError."""
    hashes = set()
    for path in models:
        directory = ModelDirectory(path)
        for names in (identity_files(directory), [*_TOKEN2WAV_FILES, directory.yaml_name]):
            hashes.add(directory.content_hash(names))
    return frozenset(hashes)


@command(
    "prune",
    "Remove engines and conversions that nothing here uses.",
    {
        "--model": {
            "type": Path, "action": "append", "metavar": "DIR",
            "help": "a model directory in use; give it once for each"
        },
        **ENGINES,
        "--conversions": {
            "type": Path, "action": "append", "default": [], "metavar": "DIR",
            "help": "folder of conversions to judge too"
        },
        "--dry-run": {"action": "store_true", "help": "say what would go and remove nothing"},
        **JSON,
    },
)  # fmt: skip
def main(options: argparse.Namespace) -> int:
    present = Inventory(
        models=model_hashes(options.model) if options.model else None,
        gpus=tuple(machine_gpus()),
        libraries=library_versions("tensorrt_llm") | ({"tensorrt": version} if (version := tensorrt_version()) else {}),
    )
    verdicts = list(judge_engines(engine_cache(options), present))
    for folder in options.conversions:
        verdicts += judge_conversions(folder, present)
    going = [verdict for verdict in verdicts if verdict.reason is not None and (options.dry_run or remove(verdict))]
    freed = sum(verdict.bytes for verdict in going)
    if options.json:
        removed = [{"path": str(verdict.path), "bytes": verdict.bytes, "reason": verdict.reason} for verdict in going]
        staying = (verdict for verdict in verdicts if verdict not in going)
        files = [{"path": str(verdict.path), "bytes": verdict.bytes, "in_use": verdict.held} for verdict in staying]
        print(json.dumps({"freed_bytes": freed, "dry_run": options.dry_run, "removed": removed, "kept": files}))
        return 0
    for verdict in verdicts:
        what = "kept, in use" if verdict.held else "kept"
        if verdict in going:
            what = f"{'would go' if options.dry_run else 'removed'}: {verdict.reason}"
        print(f"{verdict.path}  {in_units(verdict.bytes)}  {what}")
    done = "would be freed" if options.dry_run else "freed"
    print(f"{in_units(freed)} {done}: {len(going)} of {len(verdicts)} {'would go' if options.dry_run else 'went'}")
    return 0


def _judged(path: Path, size: int, objection: str | None) -> Verdict:
    held = is_locked(path / MANIFEST)
    return Verdict(path, size, None if held else objection, path / MANIFEST, held)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _set_aside(folder: Path) -> list[tuple[Path, str]]:
    """Directories that are built or deleted under another name, and whose they are:
    `.building-NAME-PID-TIME` -> `.NAME`.
    """
    folders = sorted(path for path in folder.iterdir() if path.is_dir() and path.name.startswith(_LEFT))
    return [(path, "." + path.name.split("-", 1)[1].rsplit("-", 2)[0]) for path in folders]


def _target_of(name: str) -> str:
    """`.NAME.KEY.partial` or `.NAME.superseded` -> `.NAME`"""
    return name.rsplit(".", 2 if name.endswith(".partial") else 1)[0]


if __name__ == "__main__":
    sys.exit(main())
