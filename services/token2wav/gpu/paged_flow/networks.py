"""The networks that the paged flow has kernels for, and the choice among them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from cosyserve.engines.kernel_cache import Unsuitable
from cosyserve.generations.separate_decoder import token2wav_networks
from cosyserve.model_directory import ModelDirectory
from services.token2wav.flow.dit.weights import DitConfig
from services.token2wav.flow.network import NetworkConfig
from services.token2wav.flow.step_dit.weights import StepDitConfig
from services.token2wav.flow.unet.weights import UnetConfig
from services.token2wav.gpu.device.launcher import Launcher
from services.token2wav.gpu.device.suitability import READABLE_INSTEAD
from services.token2wav.gpu.paged_flow.dit.estimator import PagedDit
from services.token2wav.gpu.paged_flow.dit.look_ahead import PagedLookAhead
from services.token2wav.gpu.paged_flow.dit.page_layout import DitLayout
from services.token2wav.gpu.paged_flow.encoder import PagedEncoder
from services.token2wav.gpu.paged_flow.estimator import PagedEstimator
from services.token2wav.gpu.paged_flow.kept_numbers import AS_OPERANDS, KeptNumbers
from services.token2wav.gpu.paged_flow.page_layout import Layout
from services.token2wav.gpu.paged_flow.step_dit.estimator import PagedStepDit
from services.token2wav.gpu.paged_flow.step_dit.page_layout import StepDitLayout
from services.token2wav.gpu.paged_flow.unit_table import UnitTable
from services.token2wav.inputs.request import MAX_PROMPT_TOKENS

Config = TypeVar("Config", bound=NetworkConfig)


class PageLayout(Protocol):
    """Offsets within a page; only the network knows what lies there."""

    @property
    def elements(self) -> int:
        """Size of a page."""


class Front(Protocol):
    """From tokens to the mel's condition."""

    mu: Tensor
    """float32 [units, 50, 80] after a pass."""

    def __call__(self, table: UnitTable, pool: Tensor, layout: Any, units: int) -> None:
        """Write `mu` of the first `units` units."""


class Velocity(Protocol):
    """Euler steps over the mel."""

    x: Tensor
    """The mel between Euler steps, float32 [units, 50, 80]; after the last step, the result."""
    split_units: int
    """Maximum units of a `long` pass."""
    clustered_units: int
    """Maximum units of an `apart` pass, 0 for none."""

    def prepare(self, mu: Tensor, noise: Tensor, table: UnitTable, pool: Tensor, layout: Any, units: int) -> None:
        """Write the first step's input: mu float32 [units, 50, 80], noise float32 [15000, 80]."""

    def step(
        self, step: int, table: UnitTable, pool: Tensor, layout: Any, units: int, *, long: bool = False,
        apart: bool = False,
    ) -> None:  # fmt: skip
        """Euler step 0..9 of the first `units` units. long: for streams with many pages. apart: for
        units none of which is a block of another's stream.
        """


@dataclass(frozen=True)
class PagedNetwork(Generic[Config]):
    """What of the paged flow a network brings.

    layout: (config, stored, ratio) -> layout of a page, see `page_layout.Layout`. front and
    estimator: (config, tensors of `flow.pt`, most units of a pass, type of operands, launcher) ->
    themselves, the estimator with barrier_units and by_head as in `TransformerBuffers` and `kept`,
    the type of keys and values in pages, and clusters as in `PagedFlow`. barrier_channels: channels
    of a feed-forward that may use a grid barrier, 0 for none. fronts: layout -> pages of the front
    that a page has room for; they are apart from the estimator's then, a prompt is one block, and
    the past is bounded (`stream_units`). 0: the front's state lies in the estimator's pages, all of
    which are kept.
    """

    layout: Callable[..., PageLayout]
    front: Callable[..., Front]
    estimator: Callable[..., Velocity]
    barrier_channels: Callable[[Config], int]
    fronts: Callable[[Any], int] = lambda layout: 0


def _transformer(
    kind: Callable[..., Velocity], config: NetworkConfig, tensors: Mapping[str, Tensor], most: int, dtype: torch.dtype,
    launch: Launcher, *, barrier_units: int, by_head: int, kept: KeptNumbers = AS_OPERANDS,
    clusters: bool = False,
) -> Velocity:  # fmt: skip
    """A diffusion transformer, which has no form for small batches."""
    return kind(config, tensors, most, dtype, launch, kept=kept)


UNET: PagedNetwork[UnetConfig] = PagedNetwork(Layout, PagedEncoder, PagedEstimator, lambda config: config.channels)
DIT: PagedNetwork[DitConfig] = PagedNetwork(
    DitLayout,
    PagedLookAhead,
    partial(_transformer, PagedDit),
    lambda config: 0,
)
STEP_DIT: PagedNetwork[StepDitConfig] = PagedNetwork(
    StepDitLayout,
    partial(PagedEncoder, longest_prompt=MAX_PROMPT_TOKENS),
    partial(_transformer, PagedStepDit),
    lambda config: 0,
    lambda layout: layout.fronts,
)
NETWORKS: Mapping[str, PagedNetwork[Any]] = {"conformer-unet": UNET, "dit": DIT, "conformer-dit": STEP_DIT}
"""By `Generation.flow_network` and `SeparateDecoder.flow_network`."""


def paged_network(directory: ModelDirectory) -> PagedNetwork[Any]:
    """That of the directory's flow. Raises Unsuitable for a network without kernels."""
    networks = token2wav_networks(directory)
    if networks.flow_network not in NETWORKS:
        raise Unsuitable(
            f"the paged engine computes the flow networks {', '.join(sorted(NETWORKS))}; that of {directory.path}, "
            f"{networks.title}, is {networks.flow_network}; {READABLE_INSTEAD}"
        )
    return NETWORKS[networks.flow_network]
