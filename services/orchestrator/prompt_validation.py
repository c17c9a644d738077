"""Checks of the voice, prompt and instruction of a request, before any stage is called."""

from cosyserve.errors import InvalidRequest
from cosyserve.v1 import synthesis_pb2, voice_pb2
from services.orchestrator.speech.conditioning import Prompting, PromptMode, Recording

LARGEST_RECORDING = 10 * 1024 * 1024
_LONGEST_VOICE_ID = 128
_LONGEST_INSTRUCTION = 500
_LONGEST_TRANSCRIPT = 1000
_CONVERSION_MODES = (PromptMode.CROSS_LINGUAL, PromptMode.SFT)


def prompting(request: synthesis_pb2.SynthesizeRequest | synthesis_pb2.SynthesizeUnaryRequest) -> Prompting:
    """Raises InvalidRequest."""
    mode = _mode(request.prompt_mode)
    instruction = request.instruction.strip()
    if request.instruction and not 1 <= len(instruction) <= _LONGEST_INSTRUCTION:
        raise InvalidRequest(
            f"instruction has {len(instruction)} characters besides the blanks around it, allowed are 1 to "
            f"{_LONGEST_INSTRUCTION}"
        )
    if instruction and mode not in (None, PromptMode.INSTRUCT):
        raise InvalidRequest(
            f"prompt_mode is PROMPT_MODE_{mode.name}, which takes no instruction; PROMPT_MODE_INSTRUCT does"
        )
    if mode is PromptMode.INSTRUCT and not instruction:
        raise InvalidRequest(
            f"prompt_mode is PROMPT_MODE_INSTRUCT, which needs an instruction of 1 to {_LONGEST_INSTRUCTION} characters"
        )
    return Prompting(request.voice, _recording(request), mode, instruction)


def conversion(request: synthesis_pb2.ConvertVoiceRequest) -> Prompting:
    """The prompting of a `ConvertVoice` request. Raises InvalidRequest."""
    require_size("audio", request.audio)
    mode = _mode(request.prompt_mode)
    if mode not in (None, *_CONVERSION_MODES):
        allowed = ", ".join(f"PROMPT_MODE_{each.name}" for each in _CONVERSION_MODES)
        raise InvalidRequest(f"prompt_mode is PROMPT_MODE_{mode.name}; a conversion has {allowed}")
    return Prompting(request.voice, _recording(request), mode, allowed=_CONVERSION_MODES)


def require_size(field: str, audio: bytes) -> None:
    """Raises InvalidRequest for a sound file that is empty or too large."""
    if not 1 <= len(audio) <= LARGEST_RECORDING:
        raise InvalidRequest(f"{field} has {len(audio)} bytes, allowed are 1 to {LARGEST_RECORDING}")


def _mode(number: int) -> PromptMode | None:
    if number == synthesis_pb2.PROMPT_MODE_UNSPECIFIED:
        return None
    try:
        return PromptMode(number)
    except ValueError:
        raise InvalidRequest(f"prompt_mode is {number}, no value of that number exists") from None


def _recording(
    request: synthesis_pb2.SynthesizeRequest | synthesis_pb2.SynthesizeUnaryRequest | synthesis_pb2.ConvertVoiceRequest,
) -> Recording | None:
    if len(request.voice) > _LONGEST_VOICE_ID:
        raise InvalidRequest(f"voice has {len(request.voice)} characters, allowed are at most {_LONGEST_VOICE_ID}")
    if not request.HasField("prompt"):
        return None
    if request.voice:
        raise InvalidRequest("voice and prompt are both set; a request speaks like one of them")
    prompt: voice_pb2.PromptRecording = request.prompt
    require_size("prompt.audio", prompt.audio)
    if len(prompt.transcript) > _LONGEST_TRANSCRIPT:
        raise InvalidRequest(
            f"prompt.transcript has {len(prompt.transcript)} characters, allowed are at most {_LONGEST_TRANSCRIPT}"
        )
    return Recording(prompt.audio, prompt.transcript, prompt.language_code, prompt.cut_prompt)
