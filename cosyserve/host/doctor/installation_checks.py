"""Checks of what is installed: libraries that suit this release and each other, and a model
directory that is complete and readable.
"""

import zipfile
from pathlib import Path

from cosyserve.engines.gpu_facts import TENSORRT
from cosyserve.errors import ModelError
from cosyserve.host.doctor.finding import Finding, note, ok, problem
from cosyserve.host.hardware import Library, parse_version
from cosyserve.model_directory import ModelDirectory


def check_library(library: Library, versions: dict[str, str], has_gpu: bool) -> Finding:
    """versions: of the installed distributions."""
    name = f"library {library.name}"
    text = next((versions[given] for given in library.distributions if given in versions), None)
    install = f"pip install {library.install}"
    if text is None:
        if library.needed == "always":
            return problem(name, "not installed", f"{library.what} cannot run", install)
        if library.needed == "gpu" and has_gpu:
            return note(
                name,
                "not installed",
                f"without it there is no {library.what}; the readable engines serve, far slower",
                install,
            )
        return ok(name, f"not installed; only for {library.what}")
    if not library.supports(text):
        means = f"{library.allowed} is supported ({library.what}); seen working: {library.seen}"
        return (problem if library.needed == "always" else note)(name, text, means, install)
    return ok(name, text)


def check_library_combinations(versions: dict[str, str]) -> list[Finding]:
    """Checks the requirements of libraries on each other."""
    findings = []
    tensorrt_llm = versions.get("tensorrt_llm")
    if tensorrt_llm is not None and parse_version(tensorrt_llm)[:2] == (0, 20):
        tensorrt = next((versions[name] for name in TENSORRT if name in versions), None)
        if tensorrt is not None and parse_version(tensorrt)[:2] != (10, 10):
            means = "the 0.20 line was built with TensorRT 10.10, and engines of another are refused"
            fix = (
                "pip install 'tensorrt-cu12==10.10.*', or use the image of Dockerfile target llm, "
                "which has matching versions"
            )
            findings.append(problem("tensorrt_llm and tensorrt", f"{tensorrt_llm} with {tensorrt}", means, fix))
        protobuf = versions.get("protobuf")
        if protobuf is not None and parse_version(protobuf) >= (6,):
            means = "the 0.20 line and its dependencies need protobuf below 6"
            fix = "pip install protobuf==5.29.6 grpcio==1.71.2 (constraints-trtllm.txt)"
            findings.append(problem("tensorrt_llm and protobuf", f"{tensorrt_llm} with {protobuf}", means, fix))
    if "onnxruntime" in versions and "onnxruntime-gpu" in versions:
        versions_found = f"{versions['onnxruntime']} and, for GPUs, {versions['onnxruntime-gpu']}"
        means = "both write the same files; whichever came last decides whether there is a GPU"
        fix = "pip uninstall --yes onnxruntime onnxruntime-gpu && pip install onnxruntime-gpu"
        findings.append(note("onnxruntime twice", versions_found, means, fix))
    return findings


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
