"""What this API says about how to speak, as options of the speech service."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from cosyserve.client.options import SynthesisOptions
from services.gateway.elevenlabs.output_format import OutputFormat

Seed = Annotated[int, Field(ge=0, lt=1 << 64)]


class Lenient(BaseModel):
    """Fields that are null count as absent, unknown ones are ignored."""

    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if value is not None}


class VoiceSettings(Lenient):
    """`stability`, `similarity_boost`, `style` and `use_speaker_boost` are accepted and have no
    counterpart here. seed: for WebSockets, whose messages have no field of their own for it.
    """

    speed: float = 1.0
    seed: Seed | None = None


def options_of(
    settings: VoiceSettings, output_format: OutputFormat, language_code: str, seed: int | None
) -> SynthesisOptions:
    """Without the voice. seed: where the settings have none."""
    return SynthesisOptions(
        speed=settings.speed,
        seed=seed if settings.seed is None else settings.seed,
        language_code=language_code,
        encoding=output_format.encoding,
        sample_rate=output_format.sample_rate,
    )
