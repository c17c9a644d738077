"""The DiT of Step-Audio2 against `estimator.npz`: one Euler step of two rows, whole and in three
chunks with what they keep.
"""

import itertools
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor

from services.token2wav.flow.attention import Mask
from services.token2wav.flow.dit.block import modulated
from services.token2wav.flow.step_dit.estimator import StepDitEstimator
from services.token2wav.flow.step_dit.weights import BLOCK_MODULATIONS
from services.token2wav.flow.stream_cache import CachedPass, StreamCache
from tools.verify.flow_calls import joined_inputs
from tools.verify.recording import Recipe, Recording, compare_file
from tools.verify.report import Report
from tools.verify.step_audio2.listening import convolutions, keys_values, loaded

TOLERANCE = 2e-5
_INPUTS = ("x", "mu", "cond", "spks", "t")
_PARTS = ("block0_after_attention", "block0_after_conv", "block0_out", "last_block_in", "last_block_out")
_CHUNK_PARTS = ("out", "block0_after_attention", "block0_after_conv", "block0_out", "last_block_out")


def verify(directory: Path, report: Report) -> None:
    """Compare every array of the file."""
    _, network = loaded(directory)
    compare_file(directory, "estimator.npz", report, partial(_compare, network.estimator))


def _compare(estimator: StepDitEstimator, arrays: Recording) -> None:
    given = {name: arrays.tensor(name) for name in _INPUTS}
    partly = Mask(arrays.tensor("mask_partial").transpose(1, 2))
    times = estimator.times(estimator.time_embedding(given["t"]))
    inputs = joined_inputs(given)

    @cache
    def whole() -> Mapping[str, Tensor]:
        return layers(estimator, inputs, times, _pass())

    normed = partial(_normed_heads, estimator, inputs, times)
    recipes: dict[str, Recipe] = {
        "time_sinusoid": (TOLERANCE, lambda: estimator.time_sinusoid(given["t"])),
        "time_emb": (TOLERANCE, lambda: estimator.time_embedding(given["t"])),
        "block0_modulation": (TOLERANCE, lambda: times[0]),
        "final_modulation": (TOLERANCE, lambda: times[-1]),
        "in_proj_out": (TOLERANCE, lambda: estimator.project_in(inputs)),
        "block0_q_normed": (TOLERANCE, lambda: normed()[0]),
        "block0_k_normed": (TOLERANCE, lambda: normed()[1]),
        "out_offline": (TOLERANCE, lambda: whole()["out"]),
        "out_offline_mask_partial": (
            TOLERANCE,
            lambda: estimator.velocity(inputs, times, _pass(), partly).transpose(1, 2),
        ),
    }
    for name in _PARTS:
        recipes[name] = TOLERANCE, partial(lambda name: whole()[name], name)
    arrays.compare_all(recipes)
    borders, past = arrays["borders"].tolist(), StreamCache()
    for at, (first, last) in enumerate(itertools.pairwise(borders)):
        kept = CachedPass([past], inputs.shape[0])
        made = layers(estimator, inputs[:, first:last], times, kept)
        (past,) = kept.after()
        for name in _CHUNK_PARTS:
            arrays.compare(f"chunk{at}_{name}", TOLERANCE, partial(torch.clone, made[name]))
        arrays.compare(f"chunk{at}_conv_cache", TOLERANCE, lambda: convolutions([past])[0])  # noqa: B023
        arrays.compare(f"chunk{at}_att_cache_block0", TOLERANCE, partial(keys_values, past, 0))
        arrays.compare(f"chunk{at}_att_cache_last", TOLERANCE, partial(keys_values, past, -1))


def _pass() -> CachedPass:
    return CachedPass.whole(2)


def _normed_heads(estimator: StepDitEstimator, inputs: Tensor, times: list[Tensor]) -> Tensor:
    shift, scale, *_ = times[0].chunk(BLOCK_MODULATIONS, dim=2)
    return estimator.blocks[0].heads(modulated(estimator.project_in(inputs), shift, scale))


def layers(estimator: StepDitEstimator, inputs: Tensor, times: list[Tensor], passed: CachedPass) -> dict[str, Tensor]:
    """What the layers hand on, by the names of the recording."""
    *modulations, last = times
    x, made = estimator.project_in(inputs), dict[str, Tensor]()
    for at, (block, modulation) in enumerate(zip(estimator.blocks, modulations, strict=True)):
        made["last_block_in"] = x
        attended, convolved, x = block.parts(x, modulation, passed, None)
        if not at:
            made |= {"block0_after_attention": attended, "block0_after_conv": convolved, "block0_out": x}
    made["last_block_out"] = x
    made["out"] = estimator.output(x, last).transpose(1, 2)
    return made
