"""Causal HiFT against the reference: every array of hift.npz and token2wav_stream.npz."""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import CHUNK_FRAMES, SAMPLES_PER_MEL_FRAME
from services.token2wav.inputs.request import Stop, never
from services.token2wav.vocoder.causal.convolutions import History
from services.token2wav.vocoder.causal.source import ReferenceNoise
from services.token2wav.vocoder.causal.vocoder import CausalVocoder
from services.token2wav.vocoder.causal.weights import PITCH_LOOKAHEAD, read_config, read_weights
from services.token2wav.vocoder.time_stretch import MelStretch
from tools.verify.recording import Recipe, Recording, compare_file
from tools.verify.report import Report

SPEED = 1.25
NETWORK, SOURCE, PHASES = 2e-5, 2e-6, 2e-3
"""Tolerances: of columns and samples for a given source, of the source for a given mel, and of the
source of a longer mel, whose phase may turn by a rounding.
"""
FIRST_TOUCHED, CHANGED = 8, 1e-7


def verify(directory: Path, report: Report) -> None:
    """As `tools.verify.vocoder`, of causal HiFT."""
    model = ModelDirectory(directory)
    config = read_config(model)
    noise = ReferenceNoise(model, config)
    vocoder = _ReferenceVocoder(config, read_weights(model, config), noise, torch.device("cpu"))
    compare_file(directory, "hift.npz", report, partial(_network, vocoder))
    compare_file(directory, "token2wav_stream.npz", report, partial(_stream, vocoder, directory))


class _ReferenceVocoder(CausalVocoder):
    """In all profiles with the reference's noise, and not with that of seed and sentence."""

    def noise(self, seed: int, sentence: int, first: int, end: int, stop: Stop = never) -> Tensor:
        return self.reference_noise.first(end)[:, first:]


def _network(vocoder: CausalVocoder, recorded: Recording) -> None:
    mel, noise, given = recorded.tensor("mel"), recorded.tensor("sine_noise"), recorded.tensor("source")[:, 0]
    pitched = F.pad(mel, (0, PITCH_LOOKAHEAD))
    silent = vocoder.render_whole(mel[0], torch.zeros_like(noise), True)
    recorded.compare_all({
        "rand_ini": (0.0, lambda: vocoder.reference_noise.initial_phases),
        "sine_noise": (0.0, lambda: vocoder.reference_noise.first(noise.shape[1])),
        "f0": (1e-4, lambda: vocoder.f0(pitched, History())),
        "f0_float64": (1e-3, lambda: vocoder.f0.exact(pitched, History())),
        "source": (SOURCE, lambda: vocoder.excitation(mel, noise, True)[:, None]),
        **_layers(vocoder, mel, given),
        "wav": (NETWORK, lambda: vocoder.filtered(mel, given, True)),
        "source_zero_noise": (SOURCE, lambda: silent[1][None, None]),
        "wav_zero_noise": (NETWORK, lambda: silent[0][None]),
    })  # fmt: skip
    f0 = recorded.tensor("sinegen_f0")[None]
    recorded.compare("sinegen_waves_zero_noise_frames", 1e-6, lambda: vocoder.source.waves(f0, None)[0])
    for call in range(int(recorded["n_calls"])):
        final, seen = bool(recorded[f"call{call}_finalize"]), mel[0, :, : int(recorded[f"call{call}_frames"])]
        samples, source = vocoder.render_whole(seen, noise, final)
        recorded.compare(f"call{call}_wav", NETWORK, partial(samples.unsqueeze, 0))
        if not final:
            recorded.compare(f"call{call}_source_samples", 0.0, partial(np.int64, source.shape[0]))
    _lookahead(vocoder, recorded, mel, noise)


def _layers(vocoder: CausalVocoder, mel: Tensor, given: Tensor) -> dict[str, Recipe]:
    """The arrays inside the filter network, each computed from the one before it."""
    network, frames = vocoder.filter, mel.shape[2]
    spectrum = network.analysed(given, frames, History(), True)
    padded = F.pad(mel, (0, vocoder.config.conv_pre_look_right))
    before = network.conv_pre(padded)
    first, history = network.levels[0], History()
    down = first.down(spectrum, history)
    recipes: dict[str, Recipe] = {
        "source_stft": (NETWORK, lambda: spectrum),
        "conv_pre_out": (NETWORK, lambda: network.conv_pre(padded)),
        "up0_out": (NETWORK, lambda: first.raised(before, History())),
        "source_down0_out": (NETWORK, lambda: down),
        "source0_out": (NETWORK, lambda: first.source_block(down, History())),
        "conv_post_out": (NETWORK, lambda: network.planes(padded, spectrum, History())),
    }
    x = before
    for number, level in enumerate(network.levels):
        recipes[f"fused{number}"] = NETWORK, partial(level.merged, x, spectrum, History())
        x = level(x, spectrum, History())
    return recipes


def _lookahead(vocoder: CausalVocoder, recorded: Recording, mel: Tensor, noise: Tensor) -> None:
    """Where the first sample changes with frame m, counted from 480 m: what lies before it is
    determined without that frame.
    """
    plain, changed = vocoder.render_whole(mel[0], noise, True)[0], []
    for frame in range(FIRST_TOUCHED, mel.shape[2]):
        touched = mel[0].clone()
        touched[:, frame] += 1.0
        different = (vocoder.render_whole(touched, noise, True)[0] - plain).abs() > CHANGED
        changed.append(int(different.nonzero()[0]) - SAMPLES_PER_MEL_FRAME * frame)
    # Other frames change samples as early, but by less than CHANGED.
    recorded.compare("lookahead_first_changed_sample", 0.0, lambda: min(changed), reduced=np.min)


def _stream(vocoder: CausalVocoder, directory: Path, recorded: Recording) -> None:
    with np.load(directory / "flow_mel.npz") as flow:
        mel, streamed = (torch.from_numpy(flow[name]) for name in ("mel_offline", "mel_streaming_finalize"))
    calls, samples = int(recorded["n_calls"]), SAMPLES_PER_MEL_FRAME * mel.shape[2]
    noise = vocoder.reference_noise.first(samples)
    source, last = recorded.tensor("hift_source")[:, 0], recorded.tensor(f"hift_mel{calls - 1}")
    stretched = MelStretch.offline(mel[0], SPEED)[None]
    recorded.compare_all({
        "hift_source": (PHASES, lambda: vocoder.excitation(last, noise, True)[:, None]),
        "offline_source": (PHASES, lambda: vocoder.excitation(mel, noise, True)[:, None]),
        "offline_wav": (NETWORK, lambda: vocoder.filtered(mel, recorded.tensor("offline_source")[:, 0], True)),
        "speed_1p25_mel": (5e-5, lambda: stretched),
        "speed_1p25_samples": (0.0, lambda: vocoder.offline(stretched[0], 0, 0).shape[0]),
        "wav_streaming_whole": (2e-2, lambda: vocoder.render_whole(streamed[0], noise, True)[0][None]),
        "wav_streaming_whole (blocks)": (2e-2, lambda: _in_blocks(vocoder, streamed[0])[None]),
    })  # fmt: skip
    given = 0
    for call in range(calls):
        call_mel, final = recorded.tensor(f"hift_mel{call}"), call == calls - 1
        pitched = F.pad(call_mel, (0, PITCH_LOOKAHEAD)) if final else call_mel
        count = SAMPLES_PER_MEL_FRAME * vocoder.f0(pitched, History()).shape[1]
        wave = vocoder.filtered(call_mel, source[:, :count], final)[:, given:]
        recorded.compare(f"source_samples{call}", 0.0, partial(np.int64, count))
        recorded.compare(f"wav_chunk{call}", NETWORK, partial(torch.clone, wave))
        given += wave.shape[1]


def _in_blocks(vocoder: CausalVocoder, mel: Tensor) -> Tensor:
    """As served, a block of the flow's grid at a time."""
    state, pieces = vocoder.start(0, 0, window_frames=CHUNK_FRAMES), list[Tensor]()
    for begin in range(0, mel.shape[1], CHUNK_FRAMES):
        end = begin + CHUNK_FRAMES
        made = vocoder.step([state], [mel[:, begin:end]], [end >= mel.shape[1]])
        pieces += [samples for samples in made if samples is not None]
    return torch.cat(pieces)
