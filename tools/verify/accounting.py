"""Nothing is left uncompared: every array of the bundle is either named by a row or is an input of
the comparisons.
"""

import json
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tools.verify.report import Report

_INPUTS = {
    "llm": r"(prompt_)?text_ids|prompt_speech_ids|forced_speech_ids|greedy_min_top2_gap|nucleus_sharp_scale"
    r"|bistream_(text_ids|prompt_speech_ids|limit)",
    "flow_encoder": r"prompt_token|token|spk_embedding",
    "estimator": r"x|mask|mu|t|spks|cond|mask_partial",
    "flow_mel": r"prompt_token|token|prompt_feat|spk_embedding|n_calls"
    r"|call\d+_(n_tokens|token_offset|streaming|finalize)",
    "token2wav_stream": r"n_calls|hift_(mel|source)\d+|cache_source_len\d+|offline_source",
    "hift": r"mel|sine_noise|rand_ini|cache_source|sinegen_f0|sinegen_stride",
    "features": r"wav\d+k",
}
"""File -> pattern of the arrays that a comparison starts from and that prove nothing by
themselves.
"""


def check_all_compared(directory: Path, rows: Sequence[str], report: Report) -> None:
    """Add a MISSING row for each array that arrays.json or a file names and that no row of `rows`
    accounts for.

    A row is named `file.npz/array`; what follows a blank or a bracket is its own remark.
    """
    named = {re.split(r"[ (\[]", row, maxsplit=1)[0] for row in rows}
    listed = _listed(directory, report)
    for file in sorted({*_INPUTS, *listed}):
        path = directory / f"{file}.npz"
        stored = _stored(path)
        if not path.exists() and path.name not in named:
            report.missing(path.name, "not in the directory")
        for array in [*listed.get(file, {}), *(name for name in stored if name not in listed.get(file, {}))]:
            row = f"{path.name}/{array}"
            if array not in stored:
                if row not in named:
                    report.missing(row, "arrays.json names it, the file does not hold it")
            elif array not in listed.get(file, {}):
                report.missing(row, "the file holds it, arrays.json does not name it")
            elif list(stored[array]) != listed[file][array]:
                report.missing(row, f"shape {list(stored[array])}, arrays.json says {listed[file][array]}")
            elif row not in named and not re.fullmatch(_INPUTS.get(file, ""), array):
                report.missing(row, "no stage compared it")


def _listed(directory: Path, report: Report) -> dict[str, dict[str, list[int]]]:
    """arrays.json as file -> array -> shape."""
    try:
        content = json.loads((directory / "arrays.json").read_text(encoding="utf-8"))
        return {
            file: {array: list(shape) for array, (shape, _dtype) in arrays.items()} for file, arrays in content.items()
        }
    except (OSError, ValueError, AttributeError) as error:
        report.missing("arrays.json", f"{type(error).__name__}: {error}")
        return {}


def _stored(path: Path) -> dict[str, tuple[int, ...]]:
    """Array -> shape of an .npz file; empty when it cannot be read (its stage says so)."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name].shape for name in arrays.files}
    except (OSError, ValueError, zipfile.BadZipFile):
        return {}
