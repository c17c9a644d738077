"""From a request to its script, with upper bounds on its positions, so that its KV slot can be
reserved before it starts.

Source of the length rules: compatibility specification sections 3.2 and 3.4.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from cosyserve.errors import FailedPrecondition, InvalidRequest
from services.llm.generation.config import PUBLISHED_LENGTHS, LengthBounds, LlmConfig
from services.llm.generation.interleaved_text import ArrivingText, ContinuousText, UpstreamText
from services.llm.generation.request import Generation, Profile, Prompt, TextStream
from services.llm.generation.sampling import RepetitionAwareChooser, SeededDraw
from services.llm.generation.script import WholeText


@dataclass(frozen=True)
class RequestedScript:
    """The script of a request, and what the engine reserves for it."""

    script: WholeText | ArrivingText
    positions: int
    """Most positions of the sentence."""
    initial_positions: int | None = None
    """Positions of the prompt, where the text arrives over time; None: all are needed at once."""
    text: AsyncGenerator[list[int]] | None = None
    """The text that arrives, limited to what fits into `positions`; None: the script has it all."""


def requested_script(generation: Generation, config: LlmConfig, limit: int) -> RequestedScript:
    """The script that generates the tokens of a request. Raises InvalidRequest when it may need
    more than `limit` positions, and FailedPrecondition when it lacks the mark before its text that
    the model asks for.
    """
    prompt, sampling, text = generation.prompt, generation.sampling, generation.text
    _require_end_of_prompt(prompt, text, config)
    chooser = RepetitionAwareChooser(config.sampling, SeededDraw(sampling.seed, sampling.sentence_index))
    if isinstance(text, tuple):
        positions = positions_of_whole_text(prompt, len(text), limit, config.lengths)
        whole = WholeText(config, prompt, text, sampling.profile, chooser, generation.replay)
        return RequestedScript(whole, positions)
    most = longest_arriving_text(config, prompt, limit)
    kind = UpstreamText if sampling.profile is Profile.UPSTREAM else ContinuousText
    script = kind(config, prompt, chooser, generation.replay)
    return RequestedScript(script, limit, positions_of_prompt(prompt), limited_text(text, most))


def _require_end_of_prompt(prompt: Prompt, text: tuple[int, ...] | TextStream, config: LlmConfig) -> None:
    """Raises FailedPrecondition for a sentence without the mark that this model was taught to have
    before its text. Text that arrives later cannot bring it. The services put the mark there, not
    who asks them for speech, so one of them is not of this model's generation or knows only an
    earlier one. Source: compatibility specification of CosyVoice3, section 2.2.
    """
    mark = config.end_of_prompt
    if mark is None or mark in prompt.text_ids or (isinstance(text, tuple) and mark in text):
        return
    where = (
        "neither setup.prompt_text_ids nor text_ids has" if isinstance(text, tuple) else "setup.prompt_text_ids lacks"
    )
    raise FailedPrecondition(
        f"{where} id {mark}, the mark <|endofprompt|>, which this model needs before the text; frontend and "
        "orchestrator bring it (GetVoiceResponse.system_text_ids): update both to the release of this service, and "
        "give the frontend the same model directory"
    )


def positions_of_whole_text(
    prompt: Prompt, text_ids: int, limit: int, lengths: LengthBounds = PUBLISHED_LENGTHS
) -> int:
    """Most positions of a sentence whose text is known. Raises InvalidRequest when they exceed
    `limit`.
    """
    wanted = positions_of_prompt(prompt) + text_ids + lengths.longest(text_ids)
    if wanted > limit:
        raise InvalidRequest(
            f"text_ids has {text_ids} ids, which with this prompt may need {wanted} positions; this server reserves "
            f"at most {limit}"
        )
    return wanted


def longest_arriving_text(config: LlmConfig, prompt: Prompt, limit: int) -> int:
    """Most text ids of a sentence whose text arrives over time, so that it never needs more than
    `limit` positions in profile `continuous`.

    Raises InvalidRequest when the prompt leaves no room for text.
    """
    room = limit - positions_of_prompt(prompt)
    # A short sentence may have `shortest_limit` tokens, whatever its ratio.
    by_length = (
        int(room / (1 + max(1.0, config.lengths.max_token_text_ratio)))
        if room > 2 * config.lengths.shortest_limit
        else 0
    )
    # Prompt text, too, is followed by blocks of speech: one for each block of text, and one that
    # has begun.
    per_text_id = -(-config.speech_block // config.text_block)
    transcript = len(prompt.text_ids) - config.system_ids(prompt)
    by_blocks = (room - config.speech_block - per_text_id * transcript) // (1 + per_text_id)
    most = min(by_length, by_blocks)
    if most < 1:
        raise InvalidRequest(f"the prompt leaves no room for text in the {limit} positions that this server reserves")
    return most


def positions_of_prompt(prompt: Prompt) -> int:
    """Positions of the prompt and of the two marks, one before the text and one before the
    speech.
    """
    return 2 + len(prompt.text_ids) + len(prompt.speech_tokens)


async def limited_text(stream: TextStream, most: int) -> AsyncGenerator[list[int]]:
    """Yield the stream. Raises InvalidRequest when it has no ids, or more than `most`."""
    count = 0
    async for ids in stream:
        count += len(ids)
        if count > most:
            raise InvalidRequest(
                f"text has more than {most} ids, the most that this server takes in one stream with this prompt"
            )
        yield ids
    if not count:
        raise InvalidRequest("text has 0 ids; at least 1 has to arrive before the stream is closed")
