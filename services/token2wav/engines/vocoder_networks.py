"""Puts engines in the place of a vocoder's two networks."""

from collections.abc import Mapping
from functools import singledispatch

from services.token2wav.engines.causal_vocoder import CausalEngineFilter, CausalEnginePitch
from services.token2wav.engines.runtime import Engine
from services.token2wav.engines.slots import Slots
from services.token2wav.engines.vocoder import EngineFilter, EnginePitch
from services.token2wav.vocoder.causal.vocoder import CausalVocoder
from services.token2wav.vocoder.hift_vocoder import HiftVocoder
from services.token2wav.vocoder.vocoder import Vocoder

# Each vocoder uses only the members of its networks that the engines' classes implement.


@singledispatch
def replace_networks(vocoder: Vocoder, engines: Mapping[str, Engine], slots: Slots) -> None:
    """Have `vocoder` compute pitch and filter by `engines`, by component. Raises TypeError for one
    whose networks have no engines.
    """
    raise TypeError(f"the networks of {type(vocoder).__name__} have no engines")


@replace_networks.register
def _(vocoder: HiftVocoder, engines: Mapping[str, Engine], slots: Slots) -> None:
    vocoder.f0 = EnginePitch(engines["pitch"], slots)  # type: ignore[assignment]
    vocoder.filter = EngineFilter(vocoder.config, engines["filter"], slots)  # type: ignore[assignment]


@replace_networks.register
def _(vocoder: CausalVocoder, engines: Mapping[str, Engine], slots: Slots) -> None:
    vocoder.f0 = CausalEnginePitch(vocoder.config, engines["pitch"], slots)  # type: ignore[assignment]
    vocoder.filter = CausalEngineFilter(vocoder.config, engines["filter"], slots)  # type: ignore[assignment]
