"""Streamed token2wav end to end against the reference: schedule, mel and sound of every call.

The golden tokens go in odd pieces through the same batcher, schedule and upstream decoder that
serve requests. Only the source excitation is taken from the recording, since the reference drew its
noise from a generator of its own.
"""

import queue
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import LOOKAHEAD_TOKENS, MEL_FRAMES_PER_TOKEN, SAMPLES_PER_MEL_FRAME, SAMPLES_PER_TOKEN
from services.token2wav.decoders.whole_hop import WholeHopDecoder
from services.token2wav.flow.flow import Flow, VoicePrompt
from services.token2wav.flow.loading import load_flow
from services.token2wav.inputs.request import Profile, Sentence, Stop, Voice
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.hop_audio import HopAudio
from services.token2wav.scheduling.memory_budget import Limits
from services.token2wav.vocoder.causal.vocoder import CausalVocoder
from services.token2wav.vocoder.hift_vocoder import HiftVocoder
from services.token2wav.vocoder.loading import load_vocoder
from services.token2wav.vocoder.state import UpstreamVocoderState
from services.token2wav.vocoder.vocoder import Vocoder
from tools.verify.recording import Recording
from tools.verify.report import Report

PIECES = (1, 2, 7, 19, 3)
PATIENCE_SECONDS = 600.0


def verify(directory: Path, report: Report) -> None:
    """Add a row for each fact of each call of the recorded stream."""
    flow, stream = (Recording.open(directory, file, report) for file in ("flow_mel.npz", "token2wav_stream.npz"))
    if flow is None or stream is None:
        return
    outputs = _speak(directory, flow, stream)
    _compare(flow, "n_calls", len(outputs.calls))
    _compare(stream, "n_calls", len(outputs.mels))
    for i, call in enumerate(outputs.calls):
        for fact, value in call.items():
            _compare(flow, f"call{i}_{fact}", value)
    for i, (mel, source, wav) in enumerate(zip(outputs.mels, outputs.sources, outputs.wavs, strict=True)):
        _compare(stream, f"hift_mel{i}", mel[None], 5e-5)
        for fact, value in source.items():
            _compare(stream, f"{fact}{i}", value)
        _compare(stream, f"wav_chunk{i}", wav[None], 2e-5)
    total = sum(wav.size for wav in outputs.wavs)
    report.compare("token2wav_stream.npz/samples (streamed)", total, SAMPLES_PER_TOKEN * flow["token"].shape[1], 0)


def _compare(recorded: Recording, array: str, got: ArrayLike, tolerance: float = 0.0) -> None:
    recorded.compare(f"{array} (streamed)", tolerance, lambda: got)


@dataclass
class _StreamCalls:
    """What the calls of the stream were given and gave."""

    calls: list[dict[str, int]] = field(default_factory=list)
    mels: list[NDArray[Any]] = field(default_factory=list)
    sources: list[dict[str, int]] = field(default_factory=list)
    """What the recording says of the excitation of each call."""
    wavs: list[NDArray[np.float32]] = field(default_factory=list)


def _speak(directory: Path, flow: Recording, stream: Recording) -> _StreamCalls:
    outputs, model, cpu = _StreamCalls(), ModelDirectory(directory), torch.device("cpu")
    vocoder = load_vocoder(model, cpu)
    _give_source(vocoder, stream, outputs)
    decoder = WholeHopDecoder(_ListeningFlow(load_flow(model, cpu), outputs), _ListeningVocoder(vocoder, outputs))  # type: ignore[arg-type]
    voice = Voice(flow["prompt_token"][0].astype(np.int64), flow["prompt_feat"][0], flow["spk_embedding"][0])
    arrivals: queue.Queue[HopAudio | Exception] = queue.Queue()
    batcher = Batcher({Profile.UPSTREAM: decoder}, Limits(max_streams=1, state_bytes=1 << 40))
    try:
        lane = batcher.open(Sentence(voice, profile=Profile.UPSTREAM), arrivals.put)
        tokens, pieces = flow["token"][0].astype(np.int64), cycle(PIECES)
        while tokens.size:
            count = next(pieces)
            batcher.feed(lane, tokens[:count])
            tokens = tokens[count:]
        batcher.finish(lane)
        while True:
            hop = arrivals.get(timeout=PATIENCE_SECONDS)
            if isinstance(hop, Exception):
                raise hop
            batcher.taken(lane)
            outputs.wavs.append(hop.samples)
            if hop.last:
                return outputs
    finally:
        batcher.close()


@dataclass
class _ListeningFlow:
    """Notes the calls as the reference's recording names them."""

    flow: Flow
    outputs: _StreamCalls

    def prefix(self, voice: VoicePrompt, tokens: Tensor, *, streaming: bool, final: bool, stop: Stop) -> Tensor:
        self.outputs.calls.append({"n_tokens": len(tokens), "streaming": int(streaming), "finalize": int(final)})
        return self.flow.prefix(voice, tokens, streaming=streaming, final=final, stop=stop)


@dataclass
class _ListeningVocoder:
    """Notes what each vocoder call sees, repeated frames included, and from it how many tokens had
    been spoken before.
    """

    vocoder: Vocoder
    outputs: _StreamCalls

    def step_upstream(self, state: UpstreamVocoderState, mel: Tensor, final: bool, *, stop: Stop) -> Tensor:
        seen = mel if state.mel is None else torch.cat([state.mel, mel], dim=1)
        self.outputs.mels.append(seen.numpy().copy())
        if isinstance(self.vocoder, HiftVocoder):
            self.outputs.sources.append({"cache_source_len": 0 if state.source is None else len(state.source)})
        call = self.outputs.calls[-1]
        decoded = call["n_tokens"] - (0 if final else LOOKAHEAD_TOKENS)
        call["token_offset"] = decoded - mel.shape[1] // MEL_FRAMES_PER_TOKEN
        return self.vocoder.step_upstream(state, mel, final, stop=stop)


def _give_source(vocoder: Vocoder, stream: Recording, outputs: _StreamCalls) -> None:
    """Let the vocoder use the recorded excitation in place of its own."""
    if isinstance(vocoder, CausalVocoder):
        vocoder.source = _RecordedHead(torch.from_numpy(stream["hift_source"])[:, 0], outputs)  # type: ignore[assignment]
    elif isinstance(vocoder, HiftVocoder):
        sources = (stream[f"hift_source{i}"] for i in range(int(stream["n_calls"])))
        vocoder.source = _RecordedSource(sources)  # type: ignore[assignment]


@dataclass
class _RecordedHead:
    """Stands in for the source of causal HiFT: every call sees the beginning of one excitation."""

    whole: Tensor
    outputs: _StreamCalls

    def generate(self, f0: Tensor, total: object, noise: Tensor) -> tuple[Tensor, None]:
        samples = SAMPLES_PER_MEL_FRAME * f0.shape[1]
        self.outputs.sources.append({"source_samples": samples})
        return self.whole[:, :samples], None


@dataclass
class _RecordedSource:
    """Stands in for the source of HiFT: hands out the recorded excitation, call by call."""

    sources: Iterator[NDArray[np.float32]]

    def generate(self, f0: Tensor, phase: object, noise: Tensor, ended: bool) -> tuple[Tensor, None]:
        return torch.from_numpy(next(self.sources))[:, 0], None
