"""`python -m tools.model.download DIR`: fetch the published model into DIR.

Carries on where a run before broke off, checks room on the disk first, and sha256 of every file:
the one that the catalogue in models/ names, else the one recorded at the first download
(download.json in DIR), else the hub's own. Proxies: HTTPS_PROXY, NO_PROXY.
"""

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cosyserve.commands.terminal.output import Parser

from cosyserve.errors import ModelError
from cosyserve.file_lock import FileLock
from tools.model.fetch.http_client import Web, WebError
from tools.model.fetch.hubs import Hub, Mirror, hub_named
from tools.model.fetch.transfer import Transfer
from tools.model.fetch.wanted_files import (
    CATALOGUE,
    RECORD,
    Repository,
    SizeAndHash,
    WantedFile,
    read_catalogue,
    read_record,
    write_record,
)
from tools.model.output.command import run
from tools.model.output.complete_directory import check_room, sha256_of
from tools.model.output.progress import Progress, in_units

_BLOCK = 4 << 20
_HUBS = ("huggingface", "modelscope")


def fetch_all(
    target: Path,
    hub: Hub,
    wanted: Sequence[WantedFile],
    pins: dict[str, SizeAndHash],
    transfer: Transfer,
    *,
    check: bool = False,
) -> dict[str, SizeAndHash]:
    """Fetch what is not there; returns what every file is. pins: what files have to be. check: read
    files that are there as well.

    Raises ModelError.
    """
    target.mkdir(parents=True, exist_ok=True)
    with FileLock(target / ".download.lock", f"the download to {target}", _say):
        have = read_record(target / RECORD).files if (target / RECORD).exists() else {}
        try:
            known_files = hub.known(transfer.web)
        except WebError as error:
            raise ModelError(str(error)) from error
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
        waiting = [
            (known.size if known.size is not None else file.about) - _begun(target / file.path) for file, known in plan
        ]
        check_room(target, sum(waiting) + (16 << 20) if plan else 0)
        for file, known in plan:
            got = _one(target, hub, file, known, transfer)
            if got is not None:
                done[file.path] = got
                write_record(target, hub.name, {**have, **done})
        write_record(target, hub.name, {**have, **done})
    return done


def copy_all(
    target: Path, source: Path, wanted: Sequence[WantedFile], pins: dict[str, SizeAndHash], *, check: bool = False
) -> dict[str, SizeAndHash]:
    """As `fetch_all`, from a directory. Raises ModelError."""
    if not source.is_dir():
        raise ModelError(f"{source}: no such directory")
    target.mkdir(parents=True, exist_ok=True)
    with FileLock(target / ".download.lock", f"the download to {target}", _say):
        have = read_record(target / RECORD).files if (target / RECORD).exists() else {}
        known_files = read_record(source / RECORD).files if (source / RECORD).exists() else {}
        missing = [file.path for file in wanted if not file.optional and not (source / file.path).is_file()]
        if missing:
            raise ModelError(f"{source}: has no {', '.join(missing)}")
        files = [file for file in wanted if (source / file.path).is_file()]
        check_room(
            target,
            sum((source / file.path).stat().st_size for file in files if not (target / file.path).exists())
            + (16 << 20),
        )
        done = {}
        for file in files:
            known = _expected(file, pins, have, known_files)
            present = _present(target / file.path, have.get(file.path), known, check=check)
            done[file.path] = present or _copy(source / file.path, target / file.path, known)
            write_record(target, str(source), {**have, **done})
    return done


def _expected(
    file: WantedFile, pins: dict[str, SizeAndHash], have: dict[str, SizeAndHash], known_files: dict[str, SizeAndHash]
) -> SizeAndHash:
    """What the file has to be: the most trusted that says anything about its sha256, and the hub's
    size where no other source names one.
    """
    sources = (
        SizeAndHash(file.size, file.sha256),
        pins.get(file.path, SizeAndHash()),
        have.get(file.path, SizeAndHash()),
        known_files.get(file.path, SizeAndHash()),
    )
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
    present = SizeAndHash(size, sha256_of(path))
    if known.sha256 in (None, present.sha256) and known.size in (None, size):
        return present
    raise ModelError(
        f"{path}: has sha256 {present.sha256} and {size} bytes, expected {known.sha256}; remove it to fetch it again"
    )


def _one(target: Path, hub: Hub, file: WantedFile, known: SizeAndHash, transfer: Transfer) -> SizeAndHash | None:
    with Progress(file.path, known.size or None) as progress:
        transfer.on_bytes = progress.add
        try:
            return transfer.fetch(hub.address(file.path), hub.headers(), target / file.path, known)
        except ModelError as error:
            if file.optional and isinstance(error.__cause__, WebError) and error.__cause__.status == 404:
                _say(f"{file.path}: not there; it is optional ({file.purpose})")
                return None
            raise


def _copy(source: Path, path: Path, known: SizeAndHash) -> SizeAndHash:
    path.parent.mkdir(parents=True, exist_ok=True)
    part, size, digest = path.with_name(path.name + ".part"), source.stat().st_size, hashlib.sha256()
    with Progress(path.name, size) as progress, source.open("rb") as given, part.open("wb") as stream:
        while block := given.read(_BLOCK):
            digest.update(block)
            stream.write(block)
            progress.add(len(block))
        stream.flush()
        os.fsync(stream.fileno())
    copied = SizeAndHash(part.stat().st_size, digest.hexdigest())
    if known.sha256 not in (None, copied.sha256) or known.size not in (None, copied.size):
        part.unlink()
        raise ModelError(
            f"{source}: {copied.size} bytes with sha256 {copied.sha256}, expected {known.size} with {known.sha256}"
        )
    part.replace(path)
    return copied


def _begun(path: Path) -> int:
    part = path.with_name(path.name + ".part")
    return part.stat().st_size if part.exists() else 0


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(prog="cosyserve model download", description="Fetch the published CosyVoice2-0.5B.")
    parser.add_argument("target", type=Path, metavar="DIR", help="model directory to fill")
    parser.add_argument("--from", dest="hub", choices=_HUBS, default=_HUBS[0], help="hub (default: %(default)s)")
    parser.add_argument(
        "--mirror",
        metavar="DIR|URL",
        help="a directory, or a web server, with the files laid out as in a model directory",
    )
    parser.add_argument("--repository", metavar="OWNER/NAME", help="another repository with the same files")
    parser.add_argument("--revision", help="branch, tag or commit (default: the catalogue's)")
    parser.add_argument("--pins", type=Path, metavar="FILE", help="a download.json whose sha256 have to be met")
    parser.add_argument("--with-published-onnx", action="store_true", help="fetch flow.decoder.estimator.fp32.onnx too")
    parser.add_argument("--check", action="store_true", help="read files that are there and compare their sha256")
    parser.add_argument(
        "--tries", type=int, default=5, metavar="N", help="tries in a row that may bring nothing (default: %(default)s)"
    )
    parser.add_argument(
        "--catalogue", type=Path, default=CATALOGUE, metavar="FILE", help="list of files (default: the bundled one)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    if options.tries < 1:
        parser.error(f"--tries is {options.tries}, must be at least 1")
    catalogue = read_catalogue(options.catalogue)
    wanted = [file for file in catalogue.files if file.unless is None or options.with_published_onnx]
    pins = read_record(options.pins).files if options.pins else {}
    if options.mirror and "://" not in options.mirror:
        source = options.mirror
        done = copy_all(options.target, Path(options.mirror), wanted, pins, check=options.check)
    else:
        listed = catalogue.repositories[options.hub]
        repository = Repository(options.repository or listed.name, options.revision or listed.revision)
        hub = Mirror(options.mirror) if options.mirror else hub_named(options.hub, repository, os.environ)
        source = hub.name
        done = fetch_all(
            options.target, hub, wanted, pins, Transfer(Web(), options.tries, on_trouble=_say), check=options.check
        )
    unproved = sorted(
        file.path for file in wanted if file.path in done and file.sha256 is None and file.path not in pins
    )
    size = sum(known.size or 0 for known in done.values())
    if options.json:
        files = {name: {"bytes": known.size, "sha256": known.sha256} for name, known in done.items()}
        print(
            json.dumps(
                {
                    "directory": str(options.target),
                    "source": source,
                    "bytes": size,
                    "files": files,
                    "trusted_on_first_use": unproved,
                }
            )
        )
        return 0
    print(f"{options.target}: {len(done)} files, {in_units(size)}, from {source}")
    if unproved:
        print(
            f"{len(unproved)} of them have no published sha256 here: they are trusted as first fetched, see "
            f"{options.target / RECORD}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
