"""`python -m tools.model.download DIR`: fetch a published model into DIR.

Resumes where the last run broke off, and checks room on the disk first, and sha256 of every file:
the one that the catalogue in models/ names, else the one recorded at the first download
(download.json in DIR), else the hub's own. Proxies: HTTPS_PROXY, NO_PROXY.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cosyserve.commands.terminal.output import WrongUsage
from cosyserve.errors import ModelError
from cosyserve.file_lock import waiting_lock
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.generation import Generation
from cosyserve.generations.reading import GENERATIONS
from cosyserve.generations.separate_decoder import DECODERS, SeparateDecoder
from tools.model.fetch.hubs import Directory, Hub, Mirror, hub_named
from tools.model.fetch.object_store import ObjectStore
from tools.model.fetch.transfer import Transfer, WebError, facts_of, part_of
from tools.model.fetch.wanted_files import (
    RECORD,
    Repository,
    SizeAndHash,
    WantedFile,
    catalogue_of,
    read_catalogue,
    read_record,
    write_record,
)
from tools.model.output.command import JSON, command, say
from tools.model.output.complete_directory import check_room
from tools.model.output.progress import Progress, in_units

_ROOM = 16 << 20
_HUBS = ("huggingface", "modelscope")
_MODELS: dict[str, Generation | SeparateDecoder] = {
    **{generation.name: generation for generation in GENERATIONS},
    **{decoder.name: decoder for decoder in DECODERS},
}


def fetch_all(
    target: Path, hub: Hub, wanted: Sequence[WantedFile], pins: Mapping[str, SizeAndHash], *, check: bool = False
) -> dict[str, SizeAndHash]:
    """Fetch what is not there; returns what every file is. pins: what files have to be. check: read
    files that are there as well.

    Raises ModelError.
    """
    target.mkdir(parents=True, exist_ok=True)
    with waiting_lock(target / ".download.lock", f"the download to {target}", say):
        have = read_record(target / RECORD)
        known_files = hub.known()
        plan, done = [], {}
        for file in wanted:
            known = _expected(file, pins, have, known_files)
            present = _present(target / file.path, have.get(file.path), known, check=check)
            if present is not None:
                done[file.path] = present
            elif file.path in known_files or not known_files:
                plan.append((file, known))
            elif not file.optional:
                raise ModelError(f"{hub.name}: has no {file.path}, which serving needs ({file.purpose})")
        missing = sum(
            (known.size if known.size is not None else file.about) - _begun(target / file.path) for file, known in plan
        )
        check_room(target, missing + _ROOM if plan else 0)
        for file, known in plan:
            with Progress(file.path, known.size or None) as progress:
                try:
                    done[file.path] = hub.fetch(file.path, target / file.path, known, progress.add)
                except WebError as error:
                    if not (file.optional and error.status == 404):
                        raise
                    say(f"{file.path}: not there; it is optional ({file.purpose})")
            write_record(target, hub.name, {**have, **done})
        write_record(target, hub.name, {**have, **done})
    return done


def _expected(
    file: WantedFile,
    pins: Mapping[str, SizeAndHash],
    have: Mapping[str, SizeAndHash],
    known_files: Mapping[str, SizeAndHash],
) -> SizeAndHash:
    """What the file has to be: the most trusted that says anything about its sha256, and the hub's
    size where no other source names one.
    """
    stated = (files.get(file.path, SizeAndHash()) for files in (pins, have, known_files))
    sources = (SizeAndHash(file.size, file.sha256), *stated)
    chosen = next((known for known in sources if known.sha256 is not None), SizeAndHash())
    size = next((known.size for known in (chosen, *sources) if known.size is not None), None)
    return replace(chosen, size=size)


def _present(path: Path, recorded: SizeAndHash | None, known: SizeAndHash, *, check: bool) -> SizeAndHash | None:
    """What the file is, if it is there and right. A file that was recorded and still has its size
    is believed unless `check`.
    """
    if not path.is_file():
        return None
    size = path.stat().st_size
    if not check and recorded is not None and recorded.size == size and known.sha256 in (None, recorded.sha256):
        return recorded
    present = facts_of(path)
    if not known.admits(present):
        raise ModelError(f"{path}: has {present}, expected {known}; remove it to fetch it again")
    return present


def _mirror(place: str, transfer: Transfer) -> Hub:
    if place.startswith(("http://", "https://")):
        return Mirror(place, transfer)
    return ObjectStore(place) if "://" in place else Directory(Path(place))


def _begun(path: Path) -> int:
    return part.stat().st_size if (part := part_of(path)).exists() else 0


@command(
    "download",
    "Fetch a published model: CosyVoice2-0.5B, Fun-CosyVoice3-0.5B, or Step-Audio2's flow and vocoder.",
    {
        "target": {"type": Path, "metavar": "DIR", "help": "model directory to fill"},
        "--generation": {
            "choices": sorted(_MODELS), "default": COSYVOICE2.name, "help": "which model (default: %(default)s)"
        },
        "--from": {"dest": "hub", "choices": _HUBS, "default": _HUBS[0], "help": "hub (default: %(default)s)"},
        "--mirror": {
            "metavar": "DIR|URL",
            "help": "a directory, a web server or an object store (s3://, gs://; what fsspec knows), with the files "
            "laid out as in a model directory"
        },
        "--repository": {"metavar": "OWNER/NAME", "help": "another repository with the same files"},
        "--revision": {"help": "branch, tag or commit (default: the catalogue's)"},
        "--pins": {"type": Path, "metavar": "FILE", "help": "a download.json whose sha256 have to be met"},
        "--with-published-onnx": {"action": "store_true", "help": "fetch flow.decoder.estimator.fp32.onnx too"},
        "--check": {"action": "store_true", "help": "read files that are there and compare their sha256"},
        "--tries": {
            "type": int, "default": 5, "metavar": "N",
            "help": "tries in a row that may bring nothing (default: %(default)s)"
        },
        "--catalogue": {
            "type": Path, "metavar": "FILE", "help": "list of files (default: the bundled one of the generation)"
        },
        **JSON,
    },
)  # fmt: skip
def main(options: argparse.Namespace) -> int:
    if options.tries < 1:
        raise WrongUsage(f"--tries is {options.tries}, must be at least 1")
    catalogue = read_catalogue(options.catalogue or catalogue_of(_MODELS[options.generation]))
    wanted = [file for file in catalogue.files if file.unless is None or options.with_published_onnx]
    if options.pins is not None and not options.pins.exists():
        raise ModelError(f"{options.pins}: no such file")
    pins = read_record(options.pins) if options.pins else {}
    transfer = Transfer(options.tries, on_trouble=say)
    hub: Hub
    if options.mirror:
        hub = _mirror(options.mirror, transfer)
    else:
        listed = catalogue.repositories[options.hub]
        repository = Repository(options.repository or listed.name, options.revision or listed.revision)
        hub = hub_named(options.hub, repository, transfer, os.environ)
    done = fetch_all(options.target, hub, wanted, pins, check=options.check)
    unproved = sorted(
        file.path for file in wanted if file.path in done and file.sha256 is None and file.path not in pins
    )
    size = sum(known.size or 0 for known in done.values())
    if options.json:
        files = {name: {"bytes": known.size, "sha256": known.sha256} for name, known in done.items()}
        facts = {"directory": str(options.target), "source": hub.name, "bytes": size, "files": files}
        print(json.dumps(facts | {"trusted_on_first_use": unproved}))
        return 0
    print(f"{options.target}: {len(done)} files, {in_units(size)}, from {hub.name}")
    if unproved:
        print(
            f"{len(unproved)} of them have no published sha256 here: they are trusted as first fetched, see "
            f"{options.target / RECORD}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
