"""The layer in front of the mel's condition: each token sees the three tokens after it
(compatibility specification of CosyVoice2, section 4.2; of CosyVoice3, section 4.2).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from services.token2wav.flow.layers import ProductConvolution, Tensors
from services.token2wav.flow.stream_cache import CachedPass


class LookAhead:
    """A convolution over a token and those behind it, then one over the three tokens up to it,
    added to the input.
    """

    def __init__(self, tensors: Tensors) -> None:
        self._ahead = ProductConvolution.unless_cpu(tensors.within("conv1"))
        self._smooth = ProductConvolution.unless_cpu(tensors.within("conv2"))

    def __call__(self, x: Tensor, ahead: Tensor, cache: CachedPass) -> Tensor:
        """x [streams, tokens, width] and ahead [streams, 3, width], zeros where there is no token
        -> the shape of x. The cache holds what the second convolution has seen, so that the zeros
        in front of a stream are zeros behind the first one.
        """
        seen = F.leaky_relu(self._ahead(torch.cat((x, ahead), dim=1)), 0.01)
        return self._smooth(cache.before(seen, self._smooth.reach)) + x
