"""The windowed vocoder of both generations on a CUDA device against the readable one, with the
small reference models: as frames arrive, alone and in a batch, from recorded graphs.
"""

from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

if find_spec("triton") is None:
    pytest.skip("needs triton", allow_module_level=True)

from cosyserve.model_directory import ModelDirectory
from services.token2wav.gpu.device.launcher import Launcher
from services.token2wav.gpu.windowed_vocoder.loading import load_windowed
from services.token2wav.gpu.windowed_vocoder.vocoder import WindowedVocoder
from services.token2wav.gpu.windowed_vocoder.windows import Render
from services.token2wav.vocoder.loading import load_vocoder
from services.token2wav.vocoder.vocoder import Vocoder
from tests.stacks.up_process import TINY, TINY3

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.usefixtures("kernels"),
]
BUNDLES = {"cosyvoice2": ModelDirectory(TINY), "cosyvoice3": ModelDirectory(TINY3)}
LARGEST = {"ieee": 1e-5, "float16": 1e-2}
"""Relative error, root mean square, over a whole sentence of the same mel."""
ARRIVALS, SEED = (26, 76, 126, 170, 181), 1 << 40
"""Frames that are there at each step; the last windows have 10 frames and fewer."""


@pytest.fixture(scope="module", params=BUNDLES)
def directory(request: pytest.FixtureRequest) -> ModelDirectory:
    return BUNDLES[request.param]


@pytest.fixture(scope="module")
def readable(directory: ModelDirectory) -> Vocoder:
    return load_vocoder(directory, torch.device("cuda"))


@pytest.fixture(scope="module", params=LARGEST)
def windowed(request: pytest.FixtureRequest, directory: ModelDirectory) -> tuple[WindowedVocoder, float]:
    made = load_windowed(
        directory, torch.device("cuda"), slots=8, buckets=(1, 2, 4), precision=request.param, launch=Launcher(True)
    )
    made.capture()
    return made, LARGEST[request.param]


def mels(directory: ModelDirectory, streams: int) -> list[Tensor]:
    """[frames, 80] each, of the recorded sentence."""
    with np.load(directory.path / "flow_mel.npz") as arrays:
        mel = torch.from_numpy(arrays["mel_offline"][0].T)
    return [mel.repeat(2, 1).roll(7 * at, 0)[: ARRIVALS[-1]].contiguous().cuda() for at in range(streams)]


def streamed(made: WindowedVocoder, given: list[Tensor], first_slot: int = 1) -> list[Tensor]:
    slots, pieces, rendered = [first_slot + at for at in range(len(given))], [list[Tensor]() for _ in given], 0
    for slot in slots:
        made.forget(slot)
    for begin, have in pairwise((0, *ARRIVALS)):
        made.write(slots, [begin] * len(given), [mel[begin:have] for mel in given])
        end = have if have == ARRIVALS[-1] else None
        while count := min(50, (have if end else have - made.hold_back_frames) - rendered):
            windows = [Render(slot, rendered, count, end, SEED + at, at) for at, slot in enumerate(slots)]
            sound = made.run(windows, 10 if count <= 10 else 50)
            for own, window, row in zip(pieces, windows, sound, strict=True):
                own.append(row[window.determined(made.late_samples)].clone())
            rendered += count
    return [torch.cat(own) for own in pieces]


def error(found: Tensor, wanted: Tensor) -> float:
    assert found.shape == wanted.shape
    return float((found - wanted).norm() / wanted.norm())


@torch.inference_mode()
def test_windows_are_the_whole_sentence_alone_and_together(
    directory: ModelDirectory, readable: Vocoder, windowed: tuple[WindowedVocoder, float]
) -> None:
    made, largest = windowed
    given = mels(directory, 3)
    together, alone = streamed(made, given), streamed(made, given[:1], first_slot=5)
    wanted = [readable.offline(mel.T, SEED + at, at) for at, mel in enumerate(given)]
    errors = [error(found, whole) for found, whole in zip([*together, *alone], [*wanted, wanted[0]], strict=True)]
    print(f"{directory.path.name}, bound {largest:.0e}: samples", *(f"{each:.1e}" for each in errors))
    assert max(errors) < largest


@torch.inference_mode()
def test_a_recorded_graph_is_what_was_launched(
    directory: ModelDirectory, windowed: tuple[WindowedVocoder, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = windowed
    given = mels(directory, 2)
    by_graphs = streamed(made, given)
    monkeypatch.setattr(made, "_graphs", {})
    for one, other in zip(by_graphs, streamed(made, given), strict=True):
        assert torch.equal(one, other)
