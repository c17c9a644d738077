"""The recorded arrays of one file of a bundle, and the rows that say how what is computed compares
with them.
"""

import json
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tools.verify.report import Report

Recipe = tuple[float, Callable[[], Tensor | ArrayLike]]
"""Tolerance of a row, and how its array is made."""


class Recording:
    """The arrays by name. A lookup is the use of an input: an array that is neither looked up nor
    compared is reported by `report_rest`. A lookup of what is not in the file raises KeyError.
    """

    def __init__(self, file: str, arrays: Mapping[str, NDArray[Any]], report: Report) -> None:
        self._file, self._arrays, self._report = file, arrays, report
        self._used: set[str] = set()
        self._absent: set[str] = set()

    @classmethod
    def open(cls, directory: Path, file: str, report: Report) -> "Recording | None":
        """None, and a row, when there is no such file."""
        path = directory / file
        if not path.exists():
            report.missing(file, "no such file in the bundle")
            return None
        with np.load(path, allow_pickle=False) as archive:
            return cls(file, {name: archive[name] for name in archive.files}, report)

    def __getitem__(self, name: str) -> NDArray[Any]:
        self._used.add(name)
        return self._arrays[name]

    def __contains__(self, name: str) -> bool:
        """Whether the file holds it; no use of it."""
        return name in self._arrays

    def tensor(self, name: str) -> Tensor:
        return torch.from_numpy(self[name])

    def use(self, *names: str) -> None:
        """Note inputs that have no effect on what is compared."""
        self._used.update(names)

    def missing(self, absent: KeyError) -> None:
        """Add a row for an input that is not in the file, once."""
        name = str(absent.args[0])
        if name not in self._absent:
            self._absent.add(name)
            self._report.missing(f"{self._file}/{name}", "an input of other arrays, which is not in the bundle")

    def compare(
        self,
        row: str,
        tolerance: float,
        compute: Callable[[], Tensor | ArrayLike],
        *,
        beginning: bool = False,
        reduced: Callable[[NDArray[Any]], ArrayLike] | None = None,
    ) -> None:
        """Add a row for the array that `row` begins with; what follows a blank is a remark.

        beginning: compare only as many values as are computed, with no row for none. reduced:
        compare with what this makes of the recorded array. Where the array or an input is missing,
        or nothing can be computed, the row says so.
        """
        array = row.split(" ")[0]
        if array not in self._arrays:
            self._report.missing(f"{self._file}/{row}", "not in the bundle")
            return
        try:
            computed = np.asarray(compute())
        except KeyError as absent:
            self.missing(absent)
            self._report.missing(f"{self._file}/{row}", f"cannot be made without {absent}")
            return
        except (RuntimeError, IndexError, ValueError) as error:
            self._report.missing(f"{self._file}/{row}", f"{type(error).__name__}: {error}")
            return
        recorded = self[array] if reduced is None else np.asarray(reduced(self[array]))
        if beginning and not computed.size:
            return
        if beginning:
            row = f"{row} [{computed.size} of {recorded.size}]"
            recorded = recorded.reshape(-1)[: computed.size]
        self._report.compare(f"{self._file}/{row}", computed, recorded, tolerance)

    def compare_all(self, recipes: Mapping[str, Recipe]) -> None:
        """As `compare`, for each row."""
        for row, (tolerance, compute) in recipes.items():
            self.compare(row, tolerance, compute)

    def report_rest(self) -> None:
        """Add a row for each array that has not been used."""
        for name in self._arrays.keys() - self._used:
            self._report.missing(f"{self._file}/{name}", "unknown array: nothing here makes it")


@torch.inference_mode()
def compare_file(directory: Path, file: str, report: Report, check: Callable[[Recording], None]) -> None:
    """Have `check` compare the arrays of a file. What is missing, and what it does not know, are
    rows too.
    """
    recorded = Recording.open(directory, file, report)
    if recorded is not None:
        try:
            check(recorded)
        except KeyError as absent:
            recorded.missing(absent)
        else:
            recorded.report_rest()


INPUTS = {
    "llm": r"(prompt_|system_)?text_ids|text_with_system_ids|prompt_speech_ids|forced_speech_ids|greedy_min_top2_gap"
    r"|nucleus_sharp_scale|bistream_(text_ids|prompt_speech_ids|limit)",
    "flow_encoder": r"prompt_token|token|spk_embedding",
    "estimator": r"x|mask|mu|t|spks|cond|mask_partial",
    "flow_mel": r"prompt_token|token|prompt_feat|spk_embedding|n_calls"
    r"|call\d+_(n_tokens|token_offset|streaming|finalize)",
    "token2wav_stream": r"n_calls|hift_(mel|source)\d+|cache_source_len\d+|offline_source",
    "hift": r"mel|sine_noise|rand_ini|cache_source|sinegen_f0|sinegen_stride|n_calls|call\d+_(frames|finalize)",
    "features": r"wav\d+k",
    "silent": r"spoken|prompt_tokens",
}
"""File -> pattern of the arrays that a comparison starts from and that prove nothing by
themselves.
"""
DECODER_INPUTS = {
    "inputs": r"[A-Z]_(prompt_token|token|prompt_mel|spk)|rand_noise",
    "encoder": "",
    "estimator": r"x|mu|t|spks|cond|borders|mask_partial",
    "mel": "",
    "caches": "",
    "stream": "",
    "vocoder": r"noisy_(mel|noise)",
}
"""The same of a directory that holds a flow and a vocoder alone."""
_OF_SOME_GENERATIONS = {"silent"}
"""Files that a bundle need not have."""


def check_all_compared(
    directory: Path, rows: Sequence[str], report: Report, inputs: Mapping[str, str] = INPUTS
) -> None:
    """Add a MISSING row for each array that arrays.json or a file names and that no row of `rows`
    accounts for.

    A row is named `file.npz/array`; what follows a blank or a bracket is its own remark.
    """
    named = {re.split(r"[ (\[]", row, maxsplit=1)[0] for row in rows}
    listed = _listed(directory, report)
    for file in sorted({*inputs, *listed} - (_OF_SOME_GENERATIONS - set(listed))):
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
            elif row not in named and not re.fullmatch(inputs.get(file, ""), array):
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
