"""A model of two directories: speech-token model, tokenizer and voices in the first, flow and
vocoder in the second. Whether they belong together.
"""

from pathlib import Path

from cosyserve.errors import ModelError, SettingsError
from cosyserve.generations.reading import generation_of
from cosyserve.generations.separate_decoder import DECODERS, SeparateDecoder, decoder_of
from cosyserve.model_directory import DECODER_YAML, ModelDirectory

DECODER_MODEL = "COSYSERVE_TOKEN2WAV_DECODER_MODEL"


def pair_variables(model: Path, decoder_model: Path | None) -> dict[str, str]:
    """The variables of the services by which they serve a model of two directories; none without a
    second one. Raises ModelError as `decoding_directory`.
    """
    decoding_directory(model, decoder_model)
    return {} if decoder_model is None else {DECODER_MODEL: str(decoder_model.resolve())}


def decoding_directory(model: Path | None, decoder_model: Path | None) -> ModelDirectory:
    """The directory of flow and vocoder: the second one, or the first where there is no second.

    Raises SettingsError without a first directory, ModelError where one of them is no model, or
    where the second does not decode what the speech-token model of the first speaks.
    """
    if model is None:
        raise SettingsError("a model directory is needed, and none is set")
    first = ModelDirectory(model)
    refuse_decoder_alone(first)
    if decoder_model is None:
        return first
    second, generation = ModelDirectory(decoder_model), generation_of(first)
    decoder = decoder_of(second)
    if decoder is None:
        other = _other_generation(second)
        if other != generation.title:
            raise ModelError(
                f"{decoder_model}: its flow and vocoder are of {other} and decode other speech tokens than those of "
                f"{model}, which is a directory of {generation.title}"
            )
        return second
    if decoder.generation.name != generation.name:
        raise ModelError(
            f"{decoder_model}: {decoder.title} decodes the speech tokens of {decoder.generation.title}; {model} is a "
            f"directory of {generation.title}, whose tokens mean other sounds"
        )
    _check_vocabulary(first, second, decoder)
    return second


def refuse_decoder_alone(directory: ModelDirectory) -> None:
    """Raise ModelError for a directory of a flow and a vocoder where the model belongs."""
    if (alone := decoder_of(directory)) is not None:
        raise ModelError(
            f"{directory.path}: holds flow and vocoder of {alone.title} alone; the model directory is one of "
            f"{alone.generation.title}, and this one belongs into --token2wav-model ({DECODER_MODEL})"
        )


def _other_generation(directory: ModelDirectory) -> str:
    """The title of its generation. Raises ModelError where it has none."""
    try:
        return generation_of(directory).title
    except ModelError as error:
        known = ", ".join(decoder.title for decoder in DECODERS)
        raise ModelError(
            f"{error}; a directory of flow and vocoder alone needs {DECODER_YAML}, flow.pt and hift.pt ({known})"
        ) from error


def _check_vocabulary(first: ModelDirectory, second: ModelDirectory, decoder: SeparateDecoder) -> None:
    spoken, decoded = first.section("llm").get("speech_token_size"), second.section("flow").get("vocab_size")
    if spoken is not None and spoken != decoded:
        raise ModelError(
            f"{second.path}: the flow of {decoder.title} has flow.vocab_size = {decoded!r}; the speech-token model of "
            f"{first.path} has llm.speech_token_size = {spoken!r}"
        )
