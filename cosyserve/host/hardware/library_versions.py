"""Which versions of which libraries go together with this release."""

import re
from dataclasses import dataclass
from typing import Literal

from cosyserve.engines.gpu_facts import TENSORRT

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


SUPPORTED_LIBRARIES = (
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


BUNDLED_IN = {"tensorrt": "tensorrt_llm"}
"""Libraries that another one brings along in a version of its own, and that one."""


def parse_version(text: str) -> Version:
    """The numbers that a version begins with: "1.0.0rc2+cu128" is (1, 0, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def format_version(version: Version) -> str:
    return ".".join(map(str, version))
