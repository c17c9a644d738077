"""`python -m services.frontend.speaker_transfer import|export FILE`: copy voices between
`spk2info.pt` and the voice storage.

It works on the storage directly; running services see imported voices at once. Only plain tensors
are ever loaded. Exit status: 0 success, 1 failure (one line on standard error), 2 wrong usage.
"""

import argparse
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from cosyserve.errors import AlreadyExists, CosyserveError, ModelError
from cosyserve.generations.reading import generation_of
from cosyserve.model_directory import ModelDirectory
from services.frontend.loading import read_tokenizer
from services.frontend.prompts.prompt_reader import voice_model
from services.frontend.voices.blobs import open_blobs
from services.frontend.voices.speaker_file import entry_of, read_file, read_voices, triton_entry_of
from services.frontend.voices.stored_voice import Origin, StoredVoice, now
from services.frontend.voices.voice_notes import FIELD, UNNAMED_GENERATION, Notes, notes_field, require_given_id
from services.frontend.voices.voice_store import VoiceStore

_DONE = {"import": "read", "export": "written"}


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    top = argparse.ArgumentParser(
        prog="python -m services.frontend.speaker_transfer",
        description="Copy voices between spk2info.pt and the voice storage.",
    )
    top.add_argument("direction", choices=("import", "export"))
    top.add_argument("file", type=Path)
    top.add_argument("--model", type=Path, required=True, metavar="DIR")
    top.add_argument("--voices", required=True, metavar="URL")
    top.add_argument("--only", action="append", default=[], metavar="ID")
    top.add_argument("--layout", choices=("zero-shot", "triton"), default="zero-shot")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one transfer; returns the exit status."""
    arguments = parser().parse_args(argv)
    try:
        directory = ModelDirectory(arguments.model)
        store = VoiceStore(open_blobs(arguments.voices, voice_model(directory)), generation_of(directory).name)
        if arguments.direction == "import":
            names = import_file(store, directory, arguments.file, arguments.only)
        else:
            names = export_file(store, arguments.file, arguments.only, triton=arguments.layout == "triton")
        sys.stdout.write(f"{len(names)} voices: {', '.join(names)}\n")
        return 0
    except CosyserveError as error:
        problem = f"{error.code.name}: {error.message}"
    except OSError as error:
        problem = f"{arguments.file}: cannot be {_DONE[arguments.direction]}: {error.strerror or error}"
    except (ModelError, ValueError) as error:
        problem = str(error)
    sys.stderr.write(f"cosyserve: {problem}\n")
    return 1


def import_file(store: VoiceStore, directory: ModelDirectory, file: Path, only: Sequence[str]) -> list[str]:
    """Store the voices of a file of any layout with their notes. All are checked before the first
    is stored. Returns their ids.

    Raises ModelError naming file, voice and field for a voice that cannot be used, InvalidRequest
    for an id that a caller may not choose, ValueError when the file lacks one of `only`, and
    AlreadyExists for the id of a preset or of a stored voice (voices stored before it stay).
    """
    if not file.exists():
        raise ModelError(f"{file}: no such file")
    tokenizer = read_tokenizer(directory)
    pairs = read_file(file, tokenizer, generation_of(directory))
    _require_known(only, [voice.id for voice, _ in pairs], str(file))
    chosen = [(voice, notes_of_voice) for voice, notes_of_voice in pairs if not only or voice.id in only]
    presets = {voice.id for voice in read_voices(directory, tokenizer)}
    for voice, _ in chosen:
        require_given_id(voice.id)
        if voice.id in presets:
            raise AlreadyExists(
                f"there is a voice {voice.id!r} already, which comes with the model; choose others with --only"
            )
    for voice, notes_of_voice in chosen:
        notes = notes_of_voice.imported(now(), f"imported from {file.name}")
        origin = Origin(notes.transcript, notes.language_code, notes.created, notes.provenance)
        store.add(StoredVoice(voice, origin), notes.labels, notes.owner)
    return [voice.id for voice, _ in chosen]


def export_file(store: VoiceStore, file: Path, only: Sequence[str], *, triton: bool) -> list[str]:
    """Write stored voices and their notes to a file, atomically. Returns their ids. Raises
    ValueError when one of `only` is not stored or the layout cannot hold a voice.
    """
    if not file.parent.is_dir():
        raise NotADirectoryError(0, f"{file.parent} is no directory", str(file))
    known = store.ids()
    _require_known(only, known, "the storage")
    speakers: dict[str, dict[str, Any]] = {}
    chosen = [voice_id for voice_id in known if not only or voice_id in only]
    for entry, labels in store.entries_with_labels(chosen):
        stored = store.content(entry)
        if stored is not None:
            origin = stored.origin
            notes = Notes(
                origin.transcript,
                origin.language_code,
                origin.created,
                origin.provenance,
                labels,
                entry.owner,
                "" if store.generation == UNNAMED_GENERATION else store.generation,
            )
            arrays = triton_entry_of(stored.voice, origin.transcript) if triton else entry_of(stored.voice)
            speakers[entry.id] = {**arrays, FIELD: notes_field(notes, stored.voice.prompt_text_ids)}
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as target:
            torch.save(speakers, target)
        os.replace(temporary, file)  # noqa: PTH105 - the same file system
    finally:
        temporary.unlink(missing_ok=True)
    return list(speakers)


def _require_known(only: Sequence[str], known: Sequence[str], where: str) -> None:
    missing = [voice_id for voice_id in only if voice_id not in known]
    if missing:
        raise ValueError(f"{where} has no voice {missing[0]!r}")


if __name__ == "__main__":
    sys.exit(main())
