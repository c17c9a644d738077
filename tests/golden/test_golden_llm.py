"""The speech-token model makes every recorded array of the reference, and `verify` notices when it
does not.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tools.verify.llm import verify
from tools.verify.report import Report, Row

TINY = Path(__file__).parent / "tiny"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Layers this small are faster on one thread, especially next to other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rows(directory: Path) -> dict[str, Row]:
    report = Report()
    verify(directory, report)
    return {row.array: row for row in report.rows}


def with_arrays(tmp_path: Path, change: Callable[[dict[str, np.ndarray]], None]) -> Path:
    bundle = Path(
        shutil.copytree(TINY, tmp_path / "bundle", ignore=shutil.ignore_patterns("f*", "hift*", "est*", "token2wav*"))
    )
    with np.load(TINY / "llm.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    change(arrays)
    np.savez(bundle / "llm.npz", **arrays)
    return bundle


def test_every_output_array_is_within_tolerance() -> None:
    compared = rows(TINY)
    assert {name: row.verdict for name, row in compared.items() if row.verdict != "ok"} == {}
    with np.load(TINY / "llm.npz") as stored:
        outputs = {name for name in stored.files if not name.endswith(("_ids", "_scale", "_limit", "_gap"))} | {
            "nucleus_ids",
            "nucleus_sharp_ids",
        }
    assert {f"llm.npz/{name}" for name in outputs} <= compared.keys()


def test_a_changed_array_fails_and_an_unknown_one_is_missing(tmp_path: Path) -> None:
    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays["greedy_tokens"][7] += 1
        arrays["hidden_last"][0, 3, 2] += 1e-3
        arrays["novel"] = np.zeros(3, np.float32)
        del arrays["ras_argmax_tokens"]

    bad = {name: row.verdict for name, row in rows(with_arrays(tmp_path, change)).items() if row.verdict != "ok"}
    assert bad == {
        "llm.npz/greedy_tokens": "FAIL",
        "llm.npz/hidden_last": "FAIL",
        "llm.npz/novel": "MISSING",
        "llm.npz/ras_argmax_tokens": "MISSING",
    }


def test_arrays_without_their_inputs_are_missing(tmp_path: Path) -> None:
    compared = rows(with_arrays(tmp_path, lambda arrays: arrays.pop("bistream_limit") and None))
    bad = {name: row.verdict for name, row in compared.items() if row.verdict != "ok"}
    assert set(bad.values()) == {"MISSING"}
    assert "llm.npz/bistream_limit" in bad
    assert "llm.npz/bistream_sampled_no_prompt" in bad
    assert compared["llm.npz/greedy_tokens"].verdict == "ok"
