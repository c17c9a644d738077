"""Checks that the model directory exists, is complete and readable."""

import zipfile
from pathlib import Path

from cosyserve.errors import ModelError
from cosyserve.host.doctor.finding import Finding, note, ok, problem
from cosyserve.model_directory import ModelDirectory

CHECKPOINTS = ("llm.pt", "flow.pt", "hift.pt")
_NEEDED = (*CHECKPOINTS, "CosyVoice-BlankEN/config.json")
_TOKENIZER = ("CosyVoice-BlankEN/vocab.json", "CosyVoice-BlankEN/merges.txt", "CosyVoice-BlankEN/tokenizer_config.json")
_PHONEMES = "phonemes/symbols.json"
"""Used instead of a tokenizer by models trained on phonemes, such as the bundled one."""
_FOR_VOICES = ("campplus.onnx", "speech_tokenizer_v2.onnx")
_POINTER = b"version https://git-lfs"


def checkpoint_bytes(model: Path) -> int:
    """Bytes of the checkpoints that exist."""
    return sum(path.stat().st_size for name in CHECKPOINTS if (path := model / name).is_file())


def check_model(model: Path) -> list[Finding]:
    """One finding if all is well, else one for each problem."""
    fetch = f"cosyserve model download {model}"
    try:
        directory = ModelDirectory(model)
        directory.config()
    except ModelError as error:
        return [problem("model", str(error), "nothing can be served from it", fetch)]
    except OSError as error:
        return [problem("model", str(error), "nothing can be served from it", f"chmod -R a+rX {model}")]
    findings = [finding for name in _NEEDED if (finding := _wrong(model / name, fetch)) is not None]
    if (model / _TOKENIZER[0]).is_file() or not (model / _PHONEMES).is_file():
        findings += [finding for name in _TOKENIZER if (finding := _wrong(model / name, fetch)) is not None]
    for name in _FOR_VOICES:
        wrong = _wrong(model / name, fetch)
        if wrong is not None:
            findings.append(
                note("model", wrong.observed, "no voice can be made of a recording; the model's own speak", fetch)
            )
    if findings:
        return findings
    return [ok("model", f"{model}: complete, checkpoints of {checkpoint_bytes(model) / 1e6:.0f} MB")]


def _wrong(path: Path, fetch: str) -> Finding | None:
    """The problem of a required file, if any."""
    try:
        with path.open("rb") as stream:
            begin = stream.read(64)
    except FileNotFoundError:
        return problem("model", f"{path}: missing", "a service will not start without it", fetch)
    except OSError as error:
        return problem("model", f"{path}: {error.strerror}", "the services cannot read it", f"chmod a+r {path}")
    if begin.startswith(_POINTER):
        means = "git has fetched a note of where the file is, and not the file"
        return problem("model", f"{path}: a Git LFS pointer", means, f"git -C {path.parent} lfs pull, or {fetch}")
    if path.suffix == ".pt" and begin.startswith(b"PK") and not zipfile.is_zipfile(path):
        return problem(
            "model", f"{path}: {path.stat().st_size} bytes, its end is missing", "a download was cut off", fetch
        )
    if not begin:
        return problem("model", f"{path}: empty", "a service will not start with it", fetch)
    return None
