"""The noise of the reference: a buffer of uniform draws, the same in every process and sentence.

The reference draws it when it builds the vocoder, from torch's CPU generator, which the flow has
seeded with 0 just before. So it follows from the sizes of the layers that are initialised between
the two. Source: compatibility specification of CosyVoice3, section 5.3.
"""

import torch
from torch import Tensor

from cosyserve.errors import InvalidRequest
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import MEL_BINS, SAMPLE_RATE
from services.token2wav.inputs.model_files import YamlSection
from services.token2wav.vocoder.causal.weights import CausalVocoderConfig
from services.token2wav.vocoder.weights import F0_LAYERS

SECONDS = 300
"""The reference has noise for so long."""
FLOW_NOISE_FRAMES = 15_000


class ReferenceNoise:
    """The generator's state before the buffer. Numbers are drawn each time they are asked for: a
    second of them takes about a millisecond, and 0.9 MB that need not be kept.
    """

    def __init__(self, directory: ModelDirectory, config: CausalVocoderConfig) -> None:
        """Raises ModelError for a key of the yaml section `flow` that is missing."""
        flow = YamlSection(directory, "flow")
        inputs, speaker, outputs, channels = (
            *(flow.size(key) for key in ("input_size", "spk_embed_dim", "output_size")),
            config.f0_channels,
        )
        drawn = torch.Generator().manual_seed(0)
        torch.randn(MEL_BINS * FLOW_NOISE_FRAMES, generator=drawn)
        torch.randn(flow.size("vocab_size") * inputs, generator=drawn)
        layers = [(outputs, speaker)]
        layers += [(channels, (channels if at else MEL_BINS) * config.f0_kernel(at)) for at in range(F0_LAYERS)]
        layers += [(1, channels)]
        for outs, ins in layers:
            torch.rand(outs * ins + outs, generator=drawn)
        self.initial_phases = torch.rand(1, config.harmonics, generator=drawn)
        """[1, harmonics], which no output depends on."""
        self.initial_phases[:, 0] = 0
        self._before, self._harmonics = drawn.get_state(), config.harmonics

    def first(self, samples: int) -> Tensor:
        """The buffer's first values, float32 [1, samples, harmonics] on the CPU. Raises
        InvalidRequest for more than it has.
        """
        if samples > SECONDS * SAMPLE_RATE:
            raise InvalidRequest(
                f"{samples / SAMPLE_RATE:.1f} seconds of sound: profile upstream has noise for {SECONDS} seconds"
            )
        drawn = torch.Generator()
        drawn.set_state(self._before)
        return torch.rand(1, samples, self._harmonics, generator=drawn)
