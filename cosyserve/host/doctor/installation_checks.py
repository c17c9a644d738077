"""Checks of what is installed: libraries that suit this release and each other, and a model
directory that is complete and readable.
"""

import zipfile
from pathlib import Path

from cosyserve.engines.benchmark_note import LLM, TOKEN2WAV
from cosyserve.engines.gpu_facts import TENSORRT
from cosyserve.errors import ModelError
from cosyserve.generations.model_pair import decoding_directory
from cosyserve.generations.reading import GENERATIONS, generation_of
from cosyserve.generations.separate_decoder import Token2WavNetworks, token2wav_networks
from cosyserve.host.doctor.finding import Finding, note, ok, problem
from cosyserve.host.hardware import Library, Machine, parse_version
from cosyserve.model_directory import ModelDirectory


def check_library(library: Library, machine: Machine) -> Finding:
    """Checks whether a library is there, in a supported version."""
    name, install = f"library {library.name}", f"pip install {library.install}"
    version = machine.version(*library.distributions)
    if version is None:
        if library.needed == "always":
            return problem(name, "not installed", f"{library.what} cannot run", install)
        if library.needed == "gpu" and machine.gpu is not None:
            means = f"without it there is no {library.what}; the readable engines serve, far slower"
            return note(name, "not installed", means, install)
        return ok(name, f"not installed; only for {library.what}")
    if not library.supports(version):
        means = f"{library.allowed} is supported ({library.what}); seen working: {library.seen}"
        return (problem if library.needed == "always" else note)(name, version, means, install)
    return ok(name, version)


def check_library_combinations(machine: Machine) -> list[Finding]:
    """Checks the requirements of libraries on each other."""
    findings = []
    tensorrt_llm = machine.version("tensorrt_llm")
    if tensorrt_llm is not None and parse_version(tensorrt_llm)[:2] == (0, 20):
        tensorrt, protobuf = machine.version(*TENSORRT), machine.version("protobuf")
        if tensorrt is not None and parse_version(tensorrt)[:2] != (10, 10):
            other_tensorrt = problem(
                "tensorrt_llm and tensorrt",
                f"{tensorrt_llm} with {tensorrt}",
                means="the 0.20 line was built with TensorRT 10.10, and engines of another are refused",
                fix="pip install 'tensorrt-cu12==10.10.*', or use the image of Dockerfile target llm, "
                "which has matching versions",
            )
            findings.append(other_tensorrt)
        if protobuf is not None and parse_version(protobuf) >= (6,):
            later_protobuf = problem(
                "tensorrt_llm and protobuf",
                f"{tensorrt_llm} with {protobuf}",
                means="the 0.20 line and its dependencies need protobuf below 6",
                fix="pip install protobuf==5.29.6 grpcio==1.71.2 (constraints-trtllm.txt)",
            )
            findings.append(later_protobuf)
    on_cpu, on_gpu = machine.version("onnxruntime"), machine.version("onnxruntime-gpu")
    if on_cpu is not None and on_gpu is not None:
        both = note(
            "onnxruntime twice",
            f"{on_cpu} and, for GPUs, {on_gpu}",
            means="both write the same files; whichever came last decides whether there is a GPU",
            fix="pip uninstall --yes onnxruntime onnxruntime-gpu && pip install onnxruntime-gpu",
        )
        findings.append(both)
    return findings


_WITHOUT_DECODER = (*LLM.weight_files, "CosyVoice-BlankEN/config.json")
_NEEDED = (*_WITHOUT_DECODER, *TOKEN2WAV.weight_files)
_TOKENIZER = ("CosyVoice-BlankEN/vocab.json", "CosyVoice-BlankEN/merges.txt", "CosyVoice-BlankEN/tokenizer_config.json")
_PHONEMES = "phonemes/symbols.json"
"""Used instead of a tokenizer by models trained on phonemes, such as the bundled one."""
_FOR_VOICES = "campplus.onnx"
"""With the speech tokenizer of the generation."""
_POINTER = b"version https://git-lfs"


def checkpoint_bytes(model: Path, decoder_model: Path | None = None) -> int:
    """Bytes of the checkpoints that exist; decoder_model: of flow and vocoder, where they are not
    those of `model`.
    """
    decoder = model if decoder_model is None else decoder_model
    paths = [model / name for name in LLM.weight_files] + [decoder / name for name in TOKEN2WAV.weight_files]
    return sum(path.stat().st_size for path in paths if path.is_file())


def flow_and_vocoder(model: Path, decoder_model: Path | None = None) -> Token2WavNetworks:
    """What token2wav serves of the directories; that of CosyVoice2 for what is no model."""
    try:
        return token2wav_networks(ModelDirectory(decoder_model or model))
    except (ModelError, OSError):
        return GENERATIONS[0]


def check_model(model: Path, decoder_model: Path | None = None) -> list[Finding]:
    """One finding for each directory if all is well, else one for each problem. decoder_model: of
    flow and vocoder, where they are not those of `model`.
    """
    if decoder_model is None:
        return _check_generation(model, _NEEDED)
    return _check_generation(model, _WITHOUT_DECODER) + _check_decoder(model, decoder_model)


def _check_decoder(model: Path, decoder_model: Path) -> list[Finding]:
    fix = "give --token2wav-model a directory with flow.yaml, flow.pt and hift.pt that fits to --model"
    try:
        directory = decoding_directory(model, decoder_model)
        title = token2wav_networks(directory).title
    except ModelError as error:
        return [problem("token2wav model", str(error), "token2wav does not start with it", fix)]
    files = (decoder_model / name for name in TOKEN2WAV.weight_files)
    wrong = [finding for path in files if (finding := _wrong(path, fix)) is not None]
    size = sum((decoder_model / name).stat().st_size for name in TOKEN2WAV.weight_files if not wrong)
    return wrong or [
        ok("token2wav model", f"{decoder_model}: flow and vocoder of {title}, complete, {size / 1e6:.0f} MB")
    ]


def _check_generation(model: Path, files: tuple[str, ...]) -> list[Finding]:
    fetch = f"cosyserve model download {model}"
    try:
        generation = generation_of(ModelDirectory(model))
    except (ModelError, OSError) as error:
        fix = fetch if isinstance(error, ModelError) else f"chmod -R a+rX {model}"
        return [problem("model", str(error), "nothing can be served from it", fix)]
    if generation is not GENERATIONS[0]:
        fetch += f" --generation {generation.name}"
    # Phonemes have no mark for the end of the system part.
    has_tokenizer = generation.prompt.required or (model / _TOKENIZER[0]).is_file() or not (model / _PHONEMES).is_file()
    needed = (*files, *_TOKENIZER) if has_tokenizer else files
    findings = [wrong for name in needed if (wrong := _wrong(model / name, fetch)) is not None]
    findings += [
        note("model", wrong.observed, "no voice can be made of a recording; the model's own speak", fetch)
        for name in (_FOR_VOICES, generation.speech_tokenizer)
        if (wrong := _wrong(model / name, fetch)) is not None
    ]
    size = sum((model / name).stat().st_size for name in files if name.endswith(".pt") and not findings)
    return findings or [ok("model", f"{model}: {generation.title}, complete, checkpoints of {size / 1e6:.0f} MB")]


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
        return problem(
            "model",
            f"{path}: a Git LFS pointer",
            means="git has fetched a note of where the file is, and not the file",
            fix=f"git -C {path.parent} lfs pull, or {fetch}",
        )
    if path.suffix == ".pt" and begin.startswith(b"PK") and not zipfile.is_zipfile(path):
        return problem(
            "model", f"{path}: {path.stat().st_size} bytes, its end is missing", "a download was cut off", fetch
        )
    if not begin:
        return problem("model", f"{path}: empty", "a service will not start with it", fetch)
    return None
