"""Vocoder against the reference: every array of hift.npz and token2wav_stream.npz, by the network
that the directory holds.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from cosyserve.generations.reading import generation_of
from cosyserve.model_directory import ModelDirectory
from tools.verify import causal_hift, hift
from tools.verify.report import Report

NETWORKS: Mapping[str, Callable[[Path, Report], None]] = {"hift": hift.verify, "causal-hift": causal_hift.verify}


def verify(directory: Path, report: Report) -> None:
    """Compare the vocoder of `directory` with its recorded outputs; an array that nothing compares
    is reported missing.
    """
    NETWORKS[generation_of(ModelDirectory(directory)).vocoder_network](directory, report)
