"""The vocoder on a GPU: windows of 50 frames of several streams at once, one CUDA graph for each batch size.

A window looks at its frames, 21 before and 20 after, wherever in the sentence it lies; masks stand for the ends of the sentence. So
every window has the same shape, and one may render fewer frames than 50: what lies behind them is thrown away. Which frames a window
renders changes no sample by more than rounding. What a stream leaves behind is mel in a ring and the phase of its harmonics.
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.spec import MEL_BINS, SAMPLE_RATE, SAMPLES_PER_MEL_FRAME
from services.token2wav.gpu.kernels.source import analysed, excitation, overlapped, short_frames
from services.token2wav.gpu.launch import Launcher, ceil, power
from services.token2wav.gpu.sound_network import SoundNetwork
from services.token2wav.gpu.units import Staging
from services.token2wav.gpu.windows import WINDOW_FRAMES, Render
from services.token2wav.vocoder.config import F0_LAYERS, VocoderConfig
from services.token2wav.vocoder.f0 import F0Predictor
from services.token2wav.vocoder.hift import LARGEST_MAGNITUDE
from services.token2wav.vocoder.receptive import Span, context, plan

RING_FRAMES = 128
ENDLESS = 1 << 20
"""Frames of a sentence whose end is not known."""
SPARE_SLOT = 0
_FAR = 1000
_FIELDS = ("slot", "first", "end", "count", "seed0", "seed1", "sentence")


class WindowedVocoder:
    """Weights, static buffers, and the memory of `slots` streams, of which slot 0 is nobody's. For one owner thread.

    precision: of the filter's products. ieee: float32; tf32x3: the same within rounding, from three products each; tf32; bfloat16.
    """

    def __init__(
        self, config: VocoderConfig, weights: dict[str, Tensor], device: torch.device, *, slots: int, buckets: Sequence[int] = (1, 2,
        4, 8, 16, 32),
        launch: Launcher | None = None, precision: str = "tf32",
    ) -> None:  # fmt: skip
        self.config, self.device, self.buckets = config, device, tuple(sorted(buckets))
        launch = launch or Launcher()
        reach, around = F0Predictor.reach, context(config)
        self.hold_back_frames = around.hold_back(reach)
        self._walk = plan(config, _FAR, _FAR + WINDOW_FRAMES, 2 * _FAR)
        source = Span(self._walk.source.start - _FAR * SAMPLES_PER_MEL_FRAME, self._walk.source.stop - _FAR * SAMPLES_PER_MEL_FRAME)
        # The phase of a sample in the first half of a frame starts at the centre of the frame before.
        self._pitched_before = -((source.start - SAMPLES_PER_MEL_FRAME // 2) // SAMPLES_PER_MEL_FRAME) + 1
        self.frames_before = self._pitched_before + reach
        self._frames = self.frames_before + WINDOW_FRAMES + self.hold_back_frames
        self._source = source
        most = -(-self.buckets[-1] // 32) * 32  # so that the rows of tables are aligned, and kernels compiled once
        with torch.inference_mode():
            self._network = SoundNetwork(
                config, weights, self._walk, _FAR, most, self._frames, self.frames_before, device, launch, precision
            )
            self._f0 = [_product64(weights, f"f0_predictor.condnet.{2 * layer}", device) for layer in range(F0_LAYERS)]
            self._pitch = tuple(weights[f"f0_predictor.classifier.{name}"].to(device, torch.float64) for name in ("weight", "bias"))
            self._merge = tuple(
                weights[f"m_source.l_linear.{name}"].to(device, torch.float32).flatten().contiguous() for name in ("weight", "bias")
            )
            self.ring = torch.zeros(slots, RING_FRAMES, MEL_BINS, device=device)
            self.phase = torch.zeros(slots, config.harmonics, dtype=torch.float64, device=device)
            self._table = torch.zeros(len(_FIELDS), most, dtype=torch.int32, device=device)
            self._staging = Staging(self._table)
            self._seeds = torch.zeros(most, 3, dtype=torch.int32, device=device)
            self._multiples = torch.arange(1, config.harmonics + 1, dtype=torch.float32, device=device)
            self._around = torch.arange(self._frames, device=device) - self.frames_before
            self._window = torch.hann_window(config.n_fft, periodic=True, device=device)
            self._analysis, self._synthesis = _bases(config.n_fft, self._window)
            samples, columns = source.stop - source.start, self._walk.spectrum.stop - self._walk.spectrum.start
            self._excitation = torch.zeros(most, samples, device=device)
            self._spectrum = torch.zeros(most, columns, config.n_fft + 2, device=device)
            self._short = torch.zeros(most, self._walk.post.stop - self._walk.post.start, config.n_fft, device=device)
            self.samples = torch.zeros(most, WINDOW_FRAMES * SAMPLES_PER_MEL_FRAME, device=device)
        self._launch = launch
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}

    @torch.inference_mode()
    def forget(self, slot: int) -> None:
        """A new sentence begins in `slot`."""
        self.phase[slot].zero_()

    @torch.inference_mode()
    def write(self, slots: Sequence[int], frames: Sequence[int], mels: Sequence[Tensor]) -> None:
        """Put mels[i] float32 [n, 80] into the ring of slots[i] as frames frames[i].. of its sentence."""
        rows = np.concatenate(
            [slot * RING_FRAMES + (at + np.arange(len(mel))) % RING_FRAMES for slot, at, mel in zip(slots, frames, mels, strict=True)]
        )
        self.ring.view(-1, MEL_BINS).index_copy_(0, torch.from_numpy(rows).to(self.device), torch.cat(list(mels)))

    @torch.inference_mode()
    def run(self, windows: Sequence[Render]) -> Tensor:
        """Samples float32 [windows, 24000], valid until the next call, of which the first 480 * count of each row mean something."""
        bucket = next(size for size in self.buckets if size >= len(windows))
        host = self._staging.begin()
        host[:, :bucket] = np.array([[SPARE_SLOT, 0, ENDLESS, 1, 0, 0, 0]], np.int32).T
        for at, each in enumerate(windows):
            words = np.array([each.seed & 0xFFFFFFFF, each.seed >> 32, each.sentence], np.uint32).view(np.int32)
            host[:, at] = (each.slot, each.first, ENDLESS if each.end is None else each.end, each.count, *words)
        self._staging.send()
        graph = self._graphs.get(bucket)
        if graph is None:
            self._render(bucket)
        else:
            graph.replay()
        return self.samples[: len(windows)]

    @torch.inference_mode()
    def capture(self) -> None:
        """Record the graph of every bucket."""
        pool = torch.cuda.graph_pool_handle()
        for bucket in reversed(self.buckets):
            self.run([Render(SPARE_SLOT, 0, 1, None, 0, 0)] * bucket)
            torch.cuda.synchronize(self.device)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                self._render(bucket)
            self._graphs[bucket] = graph

    def _render(self, batch: int) -> None:
        slot, first, end, count = (self._table[at, :batch].contiguous() for at in range(4))
        self._seeds[:batch] = self._table[4:7, :batch].T
        frames = first[:, None] + self._around
        mel = self.ring[slot.long()[:, None], frames % RING_FRAMES]
        real = (frames >= 0) & (frames < end[:, None])
        mel = torch.where(real[:, :, None], mel, 0.0)
        f0 = self._f0_of(mel, real)
        turns = torch.remainder(f0[..., None] * self._multiples / SAMPLE_RATE, 1.0).double() * SAMPLES_PER_MEL_FRAME
        centres = torch.remainder(torch.cumsum(turns, dim=1) + self.phase[slot.long()][:, None], 1.0)
        # The next window pitches from `count` frames later on; before its first frame is this one.
        carried = centres[torch.arange(batch, device=self.device), count.long() - 1]
        self.phase.index_copy_(0, slot.long(), carried)
        self._make_source(f0, centres, turns, first, end, batch)
        planes = self._network(mel, self._spectrum, first, end, batch)
        self._synthesise(planes, first, end, batch)

    def _f0_of(self, mel: Tensor, real: Tensor) -> Tensor:
        """mel [batch, n, 80] -> Hz float32 [batch, n - 10], zero outside the sentence; float64 inside, as in `vocoder.f0`."""
        x = mel.double()
        for layer, (weight, bias) in enumerate(self._f0):
            batch, time, channels = x.shape
            taps = x.as_strided((batch, time - 2, 3 * channels), (time * channels, channels, 1))
            inside = real[:, layer + 1 : real.shape[1] - layer - 1, None]
            x = torch.where(inside, F.elu(taps @ weight + bias), 0.0)
        pitch = F.linear(x, *self._pitch).squeeze(-1).abs().float()
        return torch.where(real[:, F0_LAYERS : real.shape[1] - F0_LAYERS], pitch, 0.0)

    def _make_source(self, f0: Tensor, centres: Tensor, turns: Tensor, first: Tensor, end: Tensor, batch: int) -> None:
        config, walk, source = self.config, self._walk, self._source
        samples, columns = self._excitation.shape[1], self._spectrum.shape[1]
        per_frame = SAMPLES_PER_MEL_FRAME // config.hop_len
        self._launch(
            excitation, (ceil(samples, 256), batch), f0, centres, turns, *self._merge, self._excitation, first, end, self._seeds,
            batch, samples,
            f0.shape[1], source.start, self._pitched_before, config.nsf_alpha, config.nsf_sigma, config.nsf_voiced_threshold,
            H=config.harmonics, HOP=SAMPLES_PER_MEL_FRAME, BLOCK=256,
        )  # fmt: skip
        self._launch(
            analysed, (ceil(columns, 64), batch), self._excitation, self._analysis, self._spectrum, first, end, samples, columns,
            source.start,
            walk.spectrum.start - _FAR * per_frame, HOP=SAMPLES_PER_MEL_FRAME, RATE=per_frame, FFT=config.n_fft, STEP=config.hop_len,
            N=config.n_fft + 2, NP=power(config.n_fft + 2), BM=64,
        )  # fmt: skip

    def _synthesise(self, planes: Tensor, first: Tensor, end: Tensor, batch: int) -> None:
        config, walk = self.config, self._walk
        columns, per_frame = self._short.shape[1], SAMPLES_PER_MEL_FRAME // config.hop_len
        self._launch(
            short_frames, (ceil(batch * columns, 64),), planes, self._synthesis, self._short, batch * columns, BINS=config.bins,
            BP=power(config.bins), FFT=config.n_fft, LARGEST=LARGEST_MAGNITUDE, BM=64,
        )  # fmt: skip
        samples = self.samples.shape[1]
        self._launch(
            overlapped, (ceil(samples, 512), batch), self._short, self._window, self.samples, first, end, columns, samples,
            walk.post.start - _FAR * per_frame, config.audio_limit, HOP=SAMPLES_PER_MEL_FRAME, RATE=per_frame, FFT=config.n_fft,
            STEP=config.hop_len, BLOCK=512,
        )  # fmt: skip


def _product64(weights: dict[str, Tensor], name: str, device: torch.device) -> tuple[Tensor, Tensor]:
    """A convolution as float64 [taps * channels, out] and its bias."""
    weight = weights[f"{name}.weight"].to(device, torch.float64)
    return weight.permute(2, 1, 0).flatten(0, 1).contiguous(), weights[f"{name}.bias"].to(device, torch.float64)


def _bases(n_fft: int, window: Tensor) -> tuple[Tensor, Tensor]:
    """The transforms as matrices with the window in them: [n_fft, columns] to real parts and imaginary parts side by side; and
    [2, bins, n_fft] back from them."""
    bins = n_fft // 2 + 1
    tap = torch.arange(n_fft, dtype=torch.float64, device=window.device)
    angle = 2 * torch.pi / n_fft * torch.arange(bins, dtype=torch.float64, device=window.device)[:, None] * tap
    wave = torch.cat((angle.cos(), -angle.sin())) * window.double()
    analysis = torch.zeros(n_fft, power(2 * bins), device=window.device)
    analysis[:, : 2 * bins] = wave.T.float()
    twice = torch.full((bins, 1), 2.0, dtype=torch.float64, device=window.device)
    twice[0] = twice[-1] = 1.0
    synthesis = torch.zeros(2, power(bins), n_fft, device=window.device)
    synthesis[0, :bins] = (twice * angle.cos() / n_fft * window.double()).float()
    synthesis[1, :bins] = (-twice * angle.sin() / n_fft * window.double()).float()
    return analysis, synthesis
