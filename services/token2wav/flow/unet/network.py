"""The networks of CosyVoice2's flow (compatibility specification of CosyVoice2, sections 4.1 and
4.7).
"""

from collections.abc import Mapping

from torch import Tensor

from services.token2wav.flow.checkpoint import ESTIMATOR
from services.token2wav.flow.layers import Tensors
from services.token2wav.flow.unet.estimator import Estimator
from services.token2wav.flow.unet.front import ConformerFront
from services.token2wav.flow.unet.weights import UnetConfig


class UnetNetwork(ConformerFront):
    """See `FlowNetwork`. Training builds exactly the network that is served."""

    def __init__(self, config: UnetConfig, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(config, tensors)
        self.estimator = Estimator(
            Tensors(tensors).within(ESTIMATOR[:-1]),
            heads=config.estimator_heads,
            transformers=config.transformers,
            middle=config.middle,
        )
