"""The supported versions of libraries."""

import re
from dataclasses import dataclass
from typing import Literal

from cosyserve.engines.gpu_facts import TENSORRT

Version = tuple[int, ...]


@dataclass(frozen=True)
class Library:
    """The supported versions of one library."""

    name: str
    distributions: tuple[str, ...]
    """Its distribution names, any of them."""
    oldest: Version
    """First supported version."""
    below: Version | None
    """First unsupported version; None: no upper bound."""
    seen: str
    """Versions with which it has been run, or read against where it could not run."""
    needed: Literal["always", "gpu", "choice"]
    """Always, on a GPU, or for an optional engine."""
    what: str
    """The feature that needs it."""
    install: str
    """Argument of pip install."""


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
"""Libraries that another one bundles in a version of its own: library to bundler."""


def parse_version(text: str) -> Version:
    """The numbers at the start of a version: "1.0.0rc2+cu128" is (1, 0, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def format_version(version: Version) -> str:
    return ".".join(map(str, version))
