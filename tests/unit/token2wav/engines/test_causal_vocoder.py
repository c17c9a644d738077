"""Causal HiFT by its exported graphs, in ONNX Runtime on the CPU, against the torch path: as frames
arrive, in batches, in one rendering and call by call as the reference. Engines keep no columns, so
windows compute their context again.
"""

from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import SAMPLES_PER_MEL_FRAME
from services.token2wav.engines.backend import replace_networks
from services.token2wav.engines.onnx_runtime import OnnxEngine
from services.token2wav.engines.shapes import frames_around
from services.token2wav.engines.slots import Slots
from services.token2wav.inputs.request import Cancelled
from services.token2wav.vocoder.causal.convolutions import History
from services.token2wav.vocoder.causal.vocoder import CausalVocoder, load_causal_hift
from services.token2wav.vocoder.receptive_field import Span
from services.token2wav.vocoder.state import UpstreamVocoderState
from services.token2wav.vocoder.vocoder import Vocoder
from tests.stacks.up_process import TINY3
from tests.unit.token2wav.vocoder.causal_reach import samples_of_mel, samples_of_source
from tools.model.graphs.graph import write
from tools.model.graphs.networks import vocoder_graphs

CPU, DIRECTORY = torch.device("cpu"), ModelDirectory(TINY3)
SEED, FRAMES = 11, 141
EXACT, APART = 2e-5, 1e-2
"""Of samples: with the torch path's pitch, and with the graph's, which is float32 where that of the
torch path is float64, and is summed up into phase.
"""
HERTZ = 1e-3
MEL = torch.linspace(-4, 1, 80)[:, None] + torch.sin(torch.arange(FRAMES) / 5.0)


@pytest.fixture(scope="module")
def readable() -> CausalVocoder:
    return load_causal_hift(DIRECTORY, CPU)


@pytest.fixture(scope="module")
def by_engines(tmp_path_factory: pytest.TempPathFactory) -> CausalVocoder:
    writers, folder, engines = vocoder_graphs(DIRECTORY), tmp_path_factory.mktemp("graphs"), {}
    weights, config = writers.weights(DIRECTORY)
    for component, writer in (("pitch", writers.pitch), ("filter", writers.filter)):
        write(writer(weights, config).model({}), folder / f"{component}.onnx")
        engines[component] = OnnxEngine(component, folder / f"{component}.onnx", CPU)
    vocoder = load_causal_hift(DIRECTORY, CPU)
    replace_networks(vocoder, engines, Slots(CPU, 1))
    return vocoder


@pytest.fixture(scope="module")
def filtered(by_engines: CausalVocoder, readable: CausalVocoder) -> CausalVocoder:
    """The filter by its engine, and pitch by the torch path."""
    vocoder = load_causal_hift(DIRECTORY, CPU)
    vocoder.f0, vocoder.filter = readable.f0, by_engines.filter
    return vocoder


def streamed(
    vocoder: Vocoder, arrivals: Sequence[int], window: int = 50, streams: int = 1, delay: int = 0
) -> list[Tensor]:
    """What streams say whose frames are there at these times, each `delay` times later than the
    one before it.
    """
    states = [vocoder.start(SEED, at, arrivals[0], window) for at in range(streams)]
    pieces: list[list[Tensor]] = [[] for _ in states]
    borders = [0, *arrivals]
    for time in range(len(arrivals) + delay * (streams - 1)):
        due = [at for at in range(streams) if 0 <= time - delay * at < len(arrivals)]
        mels = [MEL[:, borders[time - delay * at] : borders[time - delay * at + 1]] for at in due]
        finals = [time - delay * at == len(arrivals) - 1 for at in due]
        for at, samples in zip(due, vocoder.step([states[at] for at in due], mels, finals), strict=True):
            assert samples is not None, states[at].fault
            pieces[at].append(samples)
    return [torch.cat(own) for own in pieces]


@pytest.mark.parametrize(("arrivals", "window"), [((26, 76, 126, FRAMES), 50), ((3, 31, 60, 61, FRAMES), 10)])
def test_windows_are_those_of_the_torch_path(
    filtered: CausalVocoder, readable: CausalVocoder, arrivals: tuple[int, ...], window: int
) -> None:
    (found,), (wanted,) = streamed(filtered, arrivals, window), streamed(readable, arrivals, window)
    assert found.shape == wanted.shape == (SAMPLES_PER_MEL_FRAME * FRAMES,)
    assert float(wanted.std()) > 0.05
    assert float((found - wanted).abs().max()) < EXACT


def test_pitch_of_pieces_is_the_torch_paths(by_engines: CausalVocoder, readable: CausalVocoder) -> None:
    padded, history, pieces = F.pad(MEL, (0, 3))[None], History(), []
    for begin, end in pairwise((0, 5, 7, 70, FRAMES)):
        pieces.append(by_engines.f0(padded[:, :, begin : end + 3], history))
        history = History.joined(history.kept())
    assert float((torch.cat(pieces, dim=1) - readable.f0(padded, History())).abs().max()) < HERTZ


def test_with_its_own_pitch_it_sounds_alike(by_engines: CausalVocoder, readable: CausalVocoder) -> None:
    arrivals = (26, 76, 126, FRAMES)
    (found,), (wanted,) = streamed(by_engines, arrivals), streamed(readable, arrivals)
    assert float((found - wanted).abs().max()) < APART


def test_however_mel_was_cut(by_engines: CausalVocoder) -> None:
    (found,), (other,) = streamed(by_engines, (26, 76, 126, FRAMES)), streamed(by_engines, (26, 27, 140, FRAMES))
    assert torch.equal(found, other)


def test_streams_that_are_not_equally_far_share_a_step(
    filtered: CausalVocoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In batches, as on a GPU: windows with and without all of their context."""
    alone = [streamed(filtered, (26, 76, 126, FRAMES), streams=streams)[-1] for streams in (1, 2)]
    monkeypatch.setattr(filtered, "batch_invariant", False)
    together = [*streamed(filtered, (26, 76, 126, FRAMES), streams=2)]
    later = streamed(filtered, (26, 76, 126, FRAMES), streams=2, delay=1)
    for found in (together, later):
        assert max(float((a - b).abs().max()) for a, b in zip(found, alone, strict=True)) < EXACT


def test_in_one_rendering_and_as_the_reference(filtered: CausalVocoder, readable: CausalVocoder) -> None:
    found, wanted = (vocoder.offline(MEL, SEED, 0) for vocoder in (filtered, readable))
    assert float((found - wanted).abs().max()) < EXACT
    said: list[list[Tensor]] = [[], []]
    for vocoder, own in zip((filtered, readable), said, strict=True):
        state = UpstreamVocoderState(seed=SEED, sentence=0)
        own += [vocoder.step_upstream(state, MEL[:, :60], False), vocoder.step_upstream(state, MEL[:, 60:], True)]
    for one, other in zip(*said, strict=True):
        assert one.shape == other.shape
        assert float((one - other).abs().max()) < EXACT


def test_a_rendering_stops_between_its_ranges(by_engines: CausalVocoder) -> None:
    polled = iter(range(100))
    with pytest.raises(Cancelled):
        by_engines.offline(MEL, SEED, 0, stop=lambda: next(polled) >= 5)
    assert next(polled) == 6


def test_the_context_is_what_samples_depend_on(readable: CausalVocoder) -> None:
    config, around = readable.config, frames_around(DIRECTORY)
    furthest = max(samples_of_mel(config).stop, samples_of_source(config, Span(0, 1)).stop) + readable.filter.late
    assert around.before - 1 <= -(-furthest // SAMPLES_PER_MEL_FRAME) <= around.before
    assert around.ahead == readable.hold_back_frames
