"""The inputs of the graphs of a model in a comparison, and what the torch path makes of them.

A case is one call of one graph. Streaming cases are the calls of a chunk schedule: prefixes that
end on borders of the grid, under chunk masks, and the end of the sentence; batches of streams and
lengths are others than any that a graph was made with, since it was made with none.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import CHUNK_FRAMES, CHUNK_TOKENS, LOOKAHEAD_TOKENS, MEL_BINS, SAMPLES_PER_MEL_FRAME
from services.token2wav.engines.shapes import SOURCE_MARGIN
from services.token2wav.flow.attention import chunk_mask
from services.token2wav.flow.flow import Flow
from services.token2wav.flow.loading import load_flow
from services.token2wav.flow.step_dit.weights import StepDitConfig
from services.token2wav.flow.stream_cache import CachedPass
from services.token2wav.flow.unet.encoder import relative_positions
from tools.model.comparison.chunk_cases import chunk_calls
from tools.model.comparison.vocoder_calls import vocoder_calls
from tools.model.graphs.graph import Array
from tools.verify.flow_calls import velocity

Arrays = dict[str, Array]
_ENCODER = ((1, 1, False), (1, 103, False), (3, 57, False), (1, 25, True), (1, 50, True), (2, 75, True), (5, 88, True))
"""Streams, tokens, and whether under chunk masks."""
_ESTIMATOR_PUBLISHED = ((1, 2, False), (1, 206, False), (1, 500, False))
_ESTIMATOR = (*_ESTIMATOR_PUBLISHED, (3, 114, False), (1, 50, True), (1, 100, True), (2, 150, True), (4, 176, True))
"""Streams, frames, and whether under chunk masks."""
_PITCH, _FILTER = ((1, 1), (1, 61), (3, 40)), ((1, 3), (1, 61), (3, 40))
MOST_STREAMS = 5
"""In a batch of any case."""


@dataclass(frozen=True)
class Case:
    """A call of graph `component`. wanted: the torch path's answer, of the rows and lengths that
    are real; padding of the graph's own answer lies behind it. again: has the torch path give it
    once more, where it is not a call of whole prefixes.
    """

    component: str
    name: str
    inputs: Arrays
    output: str
    wanted: Array
    again: Callable[[], object] | None = None


class Reference:
    """The torch path of a model on the CPU, and random but seeded questions to it. Raises
    ModelError naming file and tensor.
    """

    def __init__(self, model: Path) -> None:
        directory, cpu = ModelDirectory(model), torch.device("cpu")
        self.flow: Flow = load_flow(directory, cpu)
        self.vocoder = vocoder_calls(directory)
        self._recorded = model / "estimator.npz"

    @torch.inference_mode()
    def cases(self, *, masked: bool = True, most: int = MOST_STREAMS) -> Iterator[Case]:
        """masked: whether the estimator takes streaming masks; without, a batch of one stream and
        full attention. most: streams in a batch."""

        def few(case: Callable[..., Case], sizes: Iterable[tuple[int, ...]]) -> Iterator[Case]:
            return (case(*size) for size in sizes if size[0] <= most)

        if isinstance(config := self.flow.config, StepDitConfig):
            for call in chunk_calls(self.flow, config, most):
                for output, wanted in call.wanted.items():
                    name = f"{call.name}, {output}"
                    yield Case(call.component, name, call.inputs, output, wanted, call.again)
        else:
            yield from few(self._encoder, _ENCODER)
            if self._recorded.exists():
                yield from self._recorded_estimator(masked)
            yield from few(partial(self._estimator, masked=masked), _ESTIMATOR if masked else _ESTIMATOR_PUBLISHED)
        yield from few(self._pitch, _PITCH)
        yield from few(self._filter, _FILTER)

    def _encoder(self, streams: int, tokens: int, chunked: bool) -> Case:
        drawn = torch.Generator().manual_seed(streams + tokens)
        ids = torch.randint(0, self.flow.config.vocabulary, (streams, tokens + LOOKAHEAD_TOKENS), generator=drawn)
        look = LOOKAHEAD_TOKENS if chunked and tokens % CHUNK_TOKENS == 0 else 0
        known = torch.ones(streams, tokens + LOOKAHEAD_TOKENS)
        known[:, tokens + look :] = 0.0
        wanted = [
            self.flow.mu([row[:tokens]], [row[tokens : tokens + look]], [0], CachedPass.whole(1), chunked=chunked)[0].T
            for row in ids
        ]
        inputs: Arrays = {"tokens": ids.to(torch.int32).numpy(), "known": known.numpy()}
        if (width := self.flow.config.position_width) is not None:
            inputs |= {
                "mask": np.ones((streams, 1, tokens), np.float32),
                "attention": self._seen(tokens, CHUNK_TOKENS if chunked else 0),
                "attention_frames": self._seen(2 * tokens, CHUNK_FRAMES if chunked else 0),
                "positions": self._positions(tokens, width),
                "positions_frames": self._positions(2 * tokens, width),
            }
        return Case(
            "encoder", f"{streams} x {tokens} tokens{_mode(chunked)}", inputs, "mu", torch.stack(wanted).numpy()
        )

    def _recorded_estimator(self, masked: bool) -> Iterator[Case]:
        with np.load(self._recorded, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        frames = arrays["x"].shape[2]
        recorded = [("mask", 0, "out_offline"), ("mask_partial", 0, "out_offline_mask_partial")]
        for mask, chunk, wanted in [*recorded, *([("mask", CHUNK_FRAMES, "out_streaming")] if masked else [])]:
            inputs = {name: arrays[name] for name in ("x", "mu", "t", "spks", "cond")} | {"mask": arrays[mask]}
            inputs |= {"attention": self._seen(frames, chunk)} if masked else {}
            yield Case("estimator", f"estimator.npz/{wanted}", inputs, "estimator_out", arrays[wanted])

    def _estimator(self, streams: int, frames: int, chunked: bool, masked: bool) -> Case:
        drawn = torch.Generator().manual_seed(streams + frames)
        rows = 2 * streams
        x, mu, cond = (torch.randn(rows, MEL_BINS, frames, generator=drawn) for _ in range(3))
        spks, t = torch.randn(rows, MEL_BINS, generator=drawn), torch.rand(rows, generator=drawn)
        mask = torch.ones(rows, 1, frames)
        for row, length in enumerate(max(1, frames - 7 * (row // 2)) for row in range(rows)):
            mask[row, :, length:] = 0.0
        allowed = torch.from_numpy(self._seen(frames, CHUNK_FRAMES if chunked else 0))
        inputs = {"x": x, "mask": mask, "mu": mu, "t": t, "spks": spks, "cond": cond}
        _, _, wanted = velocity(self.flow, inputs, allowed)
        inputs |= {"attention": allowed} if masked else {}
        arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
        return Case("estimator", f"{rows} x {frames} frames{_mode(chunked)}", arrays, "estimator_out", wanted.numpy())

    def _pitch(self, streams: int, frames: int) -> Case:
        mel = self._mel(streams, frames)
        wanted = self.vocoder.pitch(mel)
        return Case("pitch", f"{streams} x {frames} frames", {"mel": mel.numpy()}, "f0", wanted.numpy())

    def _filter(self, streams: int, frames: int) -> Case:
        drawn = torch.Generator().manual_seed(frames)
        mel = self._mel(streams, frames + self.vocoder.ahead)
        source = 0.1 * torch.randn(streams, SAMPLES_PER_MEL_FRAME * frames, generator=drawn)
        wanted = self.vocoder.samples(mel, source)
        wider = torch.nn.functional.pad(source, (SOURCE_MARGIN, SOURCE_MARGIN), mode="reflect")
        inputs: Arrays = {"mel": mel.numpy(), "source": wider.numpy()}
        return Case("filter", f"{streams} x {frames} frames", inputs, "samples", wanted.numpy())

    def _mel(self, streams: int, frames: int) -> Tensor:
        """As large as mel is."""
        return 2.0 * torch.randn(streams, MEL_BINS, frames, generator=torch.Generator().manual_seed(frames)) - 5.0

    @staticmethod
    def _positions(length: int, width: int) -> Array:
        table = relative_positions(length, length, width, torch.device("cpu"))
        return torch.cat((torch.zeros(1, width), table)).numpy()

    @staticmethod
    def _seen(length: int, chunk: int) -> Array:
        if not chunk:
            return np.ones((length, length), np.bool_)
        return chunk_mask(length, chunk, torch.device("cpu")).numpy()


def _mode(chunked: bool) -> str:
    return ", streaming" if chunked else ""
