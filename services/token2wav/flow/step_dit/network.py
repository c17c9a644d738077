"""The networks of Step-Audio2's flow."""

from collections.abc import Mapping

from torch import Tensor

from services.token2wav.flow.checkpoint import ESTIMATOR
from services.token2wav.flow.layers import Tensors
from services.token2wav.flow.step_dit.estimator import StepDitEstimator
from services.token2wav.flow.step_dit.weights import StepDitConfig
from services.token2wav.flow.unet.front import ConformerFront


class StepDitNetwork(ConformerFront):
    """See `FlowNetwork`."""

    def __init__(self, config: StepDitConfig, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(config, tensors)
        self.estimator = StepDitEstimator(Tensors(tensors).within(ESTIMATOR[:-1]), config)
