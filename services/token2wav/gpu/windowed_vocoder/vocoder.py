"""The vocoder on a GPU: windows of 50 frames of several streams in one batch, one CUDA graph for
each batch size.

A window uses its own frames and some before and after them (of HiFT 21 and 20, of causal HiFT 38
and 4), wherever in the sentence it lies; masks handle the ends of the sentence. So every window has
the same shape, and one may render fewer frames than 50: the rest is discarded. Which frames a
window renders changes samples only by rounding. The state of a stream is its mel in a ring and the
phase of its harmonics.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from cosyserve.spec import MEL_BINS, SAMPLES_PER_MEL_FRAME
from services.token2wav.gpu.device.host_staging import HostToDevice
from services.token2wav.gpu.device.launcher import Launcher, ceil, power
from services.token2wav.gpu.kernels.excitation import analysed, overlapped, short_frames
from services.token2wav.gpu.windowed_vocoder.filter_network import MEL_WIDTH, SoundNetwork
from services.token2wav.gpu.windowed_vocoder.networks import HIFT, Network
from services.token2wav.gpu.windowed_vocoder.pitch_network import PitchNetwork
from services.token2wav.gpu.windowed_vocoder.shapes import WindowShape, count
from services.token2wav.gpu.windowed_vocoder.windows import WINDOW_FRAMES, Render
from services.token2wav.vocoder.hift import LARGEST_MAGNITUDE
from services.token2wav.vocoder.weights import VocoderConfig

RING_FRAMES = 128
ENDLESS = 1 << 20
"""Frames of a sentence whose end is not known."""
DUMMY_SLOT = 0
_FIELDS = ("slot", "first", "end", "count", "seed0", "seed1", "sentence")
_DUMMY_WINDOW = np.array([[DUMMY_SLOT, 0, ENDLESS, 1, 0, 0, 0]], np.int32).T


class WindowedVocoder:
    """Weights, static buffers, and the state of `slots` streams, of which slot 0 is a dummy. For
    one owner thread.

    network: whose weights these are. precision: of the filter's products. ieee: float32; tf32x3:
    the same within rounding, from three products each; tf32; bfloat16; float16.
    """

    def __init__(
        self, config: VocoderConfig, weights: dict[str, Tensor], device: torch.device, *, slots: int,
        buckets: Sequence[int] = (1, 2,
        4, 8, 16, 32),
        launch: Launcher | None = None, precision: str = "float16", lengths: Sequence[int] = (10, WINDOW_FRAMES),
        side_streams: bool = True, network: Network = HIFT,
    ) -> None:  # fmt: skip
        self.config, self.device, self.buckets = config, device, tuple(sorted(buckets))
        launch = launch or Launcher()
        self.shapes = {frames: network.shape(config, frames) for frames in sorted(lengths)}
        longest = self.shapes[max(lengths)]
        self.hold_back_frames = longest.hold_back
        self.late_samples = -longest.samples.start
        """Samples at the end of a window's last frame that wait for the next frame."""
        # A multiple of 32, so that table rows are aligned and kernels are compiled once.
        most = -(-self.buckets[-1] // 32) * 32
        with torch.inference_mode():
            self._network = SoundNetwork(
                network, config, weights, list(self.shapes.values()), most, device, launch, precision, side_streams
            )
            leads = network.first_lead, network.lead
            self._pitch = PitchNetwork(weights, most * longest.mel_frames, device, launch, leads)
            self.ring = torch.zeros(slots, RING_FRAMES, MEL_BINS, device=device)
            self._table = torch.zeros(len(_FIELDS), most, dtype=torch.int32, device=device)
            self._staging = HostToDevice(self._table)
            self._rows = torch.zeros(most * WINDOW_FRAMES, dtype=torch.int64, device=device)
            self._rows_staging = HostToDevice(self._rows)
            self._window = torch.hann_window(config.n_fft, periodic=True, device=device)
            self._analysis, self._synthesis = _bases(config.n_fft, self._window, self._network.spectrum_width)
            self._source = network.source(config, weights, slots, most, longest, self._table, launch)
            self._short = torch.zeros(most * count(longest.post) * config.n_fft, device=device)
            self.samples = torch.zeros(most * count(longest.samples), device=device)
        self._launch = launch
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}

    @torch.inference_mode()
    def forget(self, slot: int) -> None:
        """Start a new sentence in `slot`."""
        self._source.phase[slot].zero_()

    @torch.inference_mode()
    def write(self, slots: Sequence[int], frames: Sequence[int], mels: Sequence[Tensor]) -> None:
        """Write mels[i] float32 [n, 80], n at most 50, into the ring of slots[i] as frames
        frames[i].. of its sentence.
        """
        most = self.buckets[-1]
        for part in range(0, len(mels), most):
            given, host, count = mels[part : part + most], self._rows_staging.begin(), 0
            for slot, at, mel in zip(slots[part : part + most], frames[part : part + most], given, strict=True):
                host[count : count + len(mel)] = slot * RING_FRAMES + (np.arange(at, at + len(mel)) % RING_FRAMES)
                count += len(mel)
            self._rows_staging.send()
            self.ring.view(-1, MEL_BINS).index_copy_(
                0, self._rows[:count], torch.cat(list(given)) if len(given) > 1 else given[0]
            )

    @torch.inference_mode()
    def run(self, windows: Sequence[Render], frames: int = WINDOW_FRAMES) -> Tensor:
        """Samples float32 [windows, n], until the next call; those of each row that
        `Render.determined` names are valid.

        frames: one of `shapes`, at least every count.
        """
        bucket = next(size for size in self.buckets if size >= len(windows))
        host = self._staging.begin()
        host[:, :bucket] = _DUMMY_WINDOW
        for at, each in enumerate(windows):
            ends = ENDLESS if each.end is None else each.end
            host[:, at] = (
                each.slot,
                each.first,
                ends,
                each.count,
                _word(each.seed),
                _word(each.seed >> 32),
                _word(each.sentence),
            )
        self._staging.send()
        graph = self._graphs.get((frames, bucket))
        if graph is None:
            self._render(bucket, self.shapes[frames])
        else:
            graph.replay()
        samples = count(self.shapes[frames].samples)
        return self.samples[: len(windows) * samples].view(-1, samples)

    @torch.inference_mode()
    def capture(self) -> None:
        """Record the graph of every bucket and length."""
        pool = torch.cuda.graph_pool_handle()
        for frames, shape in self.shapes.items():
            for bucket in reversed(self.buckets):
                self.run([Render(DUMMY_SLOT, 0, 1, None, 0, 0)] * bucket, frames)
                torch.cuda.synchronize(self.device)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool):
                    self._render(bucket, shape)
                self._graphs[frames, bucket] = graph

    def _render(self, batch: int, shape: WindowShape) -> None:
        slot, first, end = self._table[:3]
        f0 = self._pitch(self.ring, self._network.mel.tensor, MEL_WIDTH, slot, first, end, batch, shape)
        self._analyse(self._source(f0, batch, shape), first, end, batch, shape)
        self._synthesise(self._network(shape, first, end, batch), first, end, batch, shape)

    def _analyse(self, source: Tensor, first: Tensor, end: Tensor, batch: int, shape: WindowShape) -> None:
        config, samples, columns = self.config, count(shape.source), count(shape.spectrum)
        self._launch(
            analysed, (ceil(columns, 64), batch), source, self._analysis, self._network.spectrum.tensor, first, end,
            samples,
            columns, shape.source.start, shape.spectrum.start, HOP=SAMPLES_PER_MEL_FRAME,
            RATE=SAMPLES_PER_MEL_FRAME // config.hop_len,
            FFT=config.n_fft, STEP=config.hop_len, N=self._network.spectrum_width, BM=64,
        )  # fmt: skip

    def _synthesise(self, planes: Tensor, first: Tensor, end: Tensor, batch: int, shape: WindowShape) -> None:
        config, columns, samples = self.config, count(shape.post), count(shape.samples)
        self._launch(
            short_frames, (ceil(batch * columns, 64),), planes, self._synthesis, self._short, batch * columns,
            WIDTH=self._network.planes_width, BINS=config.bins, BP=power(config.bins), FFT=config.n_fft,
            LARGEST=LARGEST_MAGNITUDE, BM=64,
        )  # fmt: skip
        self._launch(
            overlapped, (ceil(samples, 512), batch), self._short, self._window, self.samples, first, end, columns,
            samples,
            shape.post.start, self.late_samples, config.audio_limit, HOP=SAMPLES_PER_MEL_FRAME,
            RATE=SAMPLES_PER_MEL_FRAME // config.hop_len,
            FFT=config.n_fft, STEP=config.hop_len, BLOCK=512,
        )  # fmt: skip


def _word(value: int) -> int:
    """The lowest 32 bits as an int32 with the same bits."""
    value &= 0xFFFFFFFF
    return value - (value >> 31 << 32)


def _bases(n_fft: int, window: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The transforms as matrices that include the window: [n_fft, width] to real parts followed by
    imaginary parts, and [2, bins, n_fft] back from them.
    """
    bins = n_fft // 2 + 1
    tap = torch.arange(n_fft, dtype=torch.float64, device=window.device)
    angle = 2 * torch.pi / n_fft * torch.arange(bins, dtype=torch.float64, device=window.device)[:, None] * tap
    wave = torch.cat((angle.cos(), -angle.sin())) * window.double()
    analysis = torch.zeros(n_fft, width, device=window.device)
    analysis[:, : 2 * bins] = wave.T.float()
    twice = torch.full((bins, 1), 2.0, dtype=torch.float64, device=window.device)
    twice[0] = twice[-1] = 1.0
    synthesis = torch.zeros(2, power(bins), n_fft, device=window.device)
    synthesis[0, :bins] = (twice * angle.cos() / n_fft * window.double()).float()
    synthesis[1, :bins] = (-twice * angle.sin() / n_fft * window.double()).float()
    return analysis, synthesis
