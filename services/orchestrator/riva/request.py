"""A request of Riva's contract as one of ours."""

from dataclasses import dataclass, field

from cosyserve.foreign import riva_tts_pb2 as riva
from cosyserve.v1 import synthesis_pb2 as pb
from services.orchestrator.foreign.native_call import Context
from services.orchestrator.foreign.voices import KnownVoices
from services.orchestrator.riva.audio_format import audio_format
from services.orchestrator.riva.configuration import configure
from services.orchestrator.riva.dictionary import pronunciations
from services.orchestrator.riva.voice_names import DEFAULT_LANGUAGE, is_chosen_here, mismatch, own_name, voice_of
from services.orchestrator.riva.zero_shot import recording


@dataclass(frozen=True)
class Translated:
    """setup: the options of the request, without its text. warnings: about what has no effect."""

    setup: pb.StreamingSynthesizeSetup
    warnings: list[str] = field(default_factory=list)


async def translated(request: riva.SynthesizeSpeechRequest, known: KnownVoices, context: Context) -> Translated:
    """Raises InvalidRequest, and what listing the voices raises."""
    setup = pb.StreamingSynthesizeSetup()
    warnings = configure(request.custom_configuration, setup)
    native = setup.request
    native.audio_format.CopyFrom(audio_format(request))
    native.pronunciations.update(pronunciations(request.custom_dictionary))
    # The default of clients, for a text in any language: the script of the text says more.
    if request.language_code != DEFAULT_LANGUAGE:
        native.language_code = request.language_code
    if request.HasField("zero_shot_data"):
        # Its clients name a voice, too, which is that of the model.
        native.prompt.CopyFrom(recording(request.zero_shot_data))
        return Translated(setup, warnings)
    native.voice = own_name(request.voice_name)
    if is_chosen_here(native.voice):
        native.voice = voice_of(native.voice, request.language_code, await known.seen(context))
    elif native.language_code:
        warning = mismatch(native.voice, native.language_code, await known.seen(context))
        warnings += [warning] if warning else []
    return Translated(setup, warnings)
