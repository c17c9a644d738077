"""Which versions of which libraries go together with this release."""

import re
from dataclasses import dataclass
from typing import Literal

from cosyserve.engines.gpu_facts import TENSORRT
from cosyserve.host.doctor.finding import Finding, note, ok, problem

Version = tuple[int, ...]


@dataclass(frozen=True)
class Library:
    """distributions: names under which it comes, any of them. oldest: first that works, below:
    first that is refused, None without end. seen: with which it has been run, or read against where
    it could not run. needed: always, on a GPU, or for an engine of one's choice. install: what to
    give pip."""

    name: str
    distributions: tuple[str, ...]
    oldest: Version
    below: Version | None
    seen: str
    needed: Literal["always", "gpu", "choice"]
    what: str
    install: str


SUPPORT = (
    Library("torch", ("torch",), (2, 6), None, "2.13 (CPU), 2.11 (H200)", "always", "the engines", "torch==2.13.0"),
    Library("triton", ("triton", "pytorch-triton"), (3, 6), None, "3.6 and 3.7", "gpu", "fused LLM, paged flow",
    "triton==3.7.1"),
    Library(
        "tensorrt", TENSORRT, (10, 10), (11,), "types of 10.13", "choice",
        "backend tensorrt of token2wav", "tensorrt-cu13==10.13.3.9",
    ),
    Library(
        "tensorrt_llm", ("tensorrt_llm",), (0, 20), (2,), "sources of 0.20 to 1.4", "choice",
        "backend tensorrt_llm of llm",
        "tensorrt_llm==1.0.0",
    ),
    Library("vllm", ("vllm",), (0, 11), None, "0.32 (CPU), sources of 0.11 to 0.33", "choice", "backend vllm of llm",
    "'vllm>=0.11'"),
    Library(
        "onnxruntime", ("onnxruntime", "onnxruntime-gpu"), (1, 20), None, "1.31", "always",
        "voices of recordings, backend onnxruntime",
        "onnxruntime==1.31.1",
    ),
    Library("grpcio", ("grpcio",), (1, 71, 2), None, "1.71 and 1.85", "always", "every service", "grpcio==1.85.1"),
    Library("protobuf", ("protobuf",), (5, 29), None, "5.29 and 7.36", "always", "every service", "protobuf==7.36.2"),
)  # fmt: skip


def parsed(text: str) -> Version:
    """The numbers that a version begins with: "1.0.0rc2+cu128" is (1, 0, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def dotted(version: Version) -> str:
    return ".".join(map(str, version))


def check_library(library: Library, versions: dict[str, str], has_gpu: bool) -> Finding:
    """versions: of what is installed, by distribution."""
    name = f"library {library.name}"
    found = next(((given, versions[given]) for given in library.distributions if given in versions), None)
    install = f"pip install {library.install}"
    if found is None:
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
    text, version = found[1], parsed(found[1])
    allowed = f"from {dotted(library.oldest)} on" + (f", below {dotted(library.below)}" if library.below else "")
    if version[: len(library.oldest)] < library.oldest or (library.below is not None and version >= library.below):
        means = f"{allowed} is supported ({library.what}); seen working: {library.seen}"
        return (problem if library.needed == "always" else note)(name, text, means, install)
    return ok(name, text)


def check_company(versions: dict[str, str]) -> list[Finding]:
    """What libraries ask of each other."""
    found = []
    told = versions.get("tensorrt_llm")
    if told is not None and parsed(told)[:2] == (0, 20):
        tensorrt = next((versions[name] for name in TENSORRT if name in versions), None)
        if tensorrt is not None and parsed(tensorrt)[:2] != (10, 10):
            means = "the 0.20 line was built with TensorRT 10.10, and engines of another are refused"
            mend = "pip install 'tensorrt-cu12==10.10.*', or take the image of Dockerfile target llm, which has what goes together"
            found.append(problem("tensorrt_llm and tensorrt", f"{told} beside {tensorrt}", means, mend))
        protobuf = versions.get("protobuf")
        if protobuf is not None and parsed(protobuf) >= (6,):
            means = "the 0.20 line and its company want protobuf below 6"
            mend = "pip install protobuf==5.29.6 grpcio==1.71.2 (constraints-trtllm.txt)"
            found.append(problem("tensorrt_llm and protobuf", f"{told} beside {protobuf}", means, mend))
    if "onnxruntime" in versions and "onnxruntime-gpu" in versions:
        beside = f"{versions['onnxruntime']} and, for GPUs, {versions['onnxruntime-gpu']}"
        means = "both write the same files; whichever came last decides whether there is a GPU"
        mend = "pip uninstall --yes onnxruntime onnxruntime-gpu && pip install onnxruntime-gpu"
        found.append(note("onnxruntime twice", beside, means, mend))
    return found
