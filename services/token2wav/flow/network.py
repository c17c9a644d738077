"""What `Flow` and the solver ask of a network; each generation's is in a folder of its own."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from services.token2wav.flow.attention import Mask
from services.token2wav.flow.stream_cache import CachedPass


class NetworkConfig(Protocol):
    """Sizes and settings of a flow, read from its model directory."""

    @property
    def vocabulary(self) -> int:
        """Rows of the token embedding."""

    @property
    def guidance(self) -> float:
        """Weight of the classifier-free guidance."""

    @property
    def temperature(self) -> float:
        """Standard deviation of the noise that a sentence starts from."""

    @property
    def position_width(self) -> int | None:
        """Width of the position tables that the exported encoder takes; None: it takes none,
        because it has no attention.
        """

    @property
    def encoder_bytes_per_frame(self) -> float:
        """Bytes of keys and values for a mel frame in front of the estimator, which are never
        dropped.
        """

    def state_bytes_per_frame(self, estimator_dtype: torch.dtype = torch.float32) -> int:
        """Bytes of all keys and values for a mel frame that is kept."""


class VelocityEstimator(Protocol):
    """Weights only; the state of a stream is in the cached pass.

    What a time contributes is separate, because the solver asks for few times, again and again.
    """

    @property
    def dtype(self) -> torch.dtype:
        """Number type of weights, keys and values."""

    def time_embedding(self, t: Tensor) -> Tensor:
        """t [rows] in 0..1 -> [rows, width]."""

    def times(self, embedding: Tensor) -> list[Tensor]:
        """All that a time contributes to the layers, from its embedding [rows or 1, width]."""

    def forget_times(self) -> None:
        """Free the weights of `times` where they are many; it cannot be called any more."""

    def velocity(self, inputs: Tensor, times: Sequence[Tensor], cache: CachedPass, mask: Mask | None = None) -> Tensor:
        """inputs [rows, time, 320]: x, mu, speaker, condition side by side -> [rows, time, 80]."""


class FlowNetwork(Protocol):
    """Weights only. Everything is differentiable and takes any number of streams."""

    @property
    def estimator(self) -> VelocityEstimator: ...

    def speaker(self, embedding: Tensor) -> Tensor:
        """float32 [..., 192] of any non-zero length -> [..., 80]: the embedding at unit length,
        projected.
        """

    def mu(
        self, ids: Tensor, ahead: Tensor, known: Tensor, before: list[int], cache: CachedPass, *, chunked: bool = False
    ) -> Tensor:
        """Token ids [rows, n] and their look-ahead [rows, 3], of which bool `known` [rows, 3]
        exists -> float32 [rows, 2n, 80].

        Missing look-ahead becomes zeros after the embedding. before: tokens already computed, per
        stream. chunked: apply streaming masks to a pass of more than one block.
        """
