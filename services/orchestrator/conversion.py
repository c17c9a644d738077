"""What a recording says, spoken by another voice: its speech tokens go past the speech-token model
to the decoder.
"""

import asyncio

from services.orchestrator.pipeline import RequestMetrics, Stages, settle
from services.orchestrator.speech.silence import Play, SilenceTrimmer
from services.orchestrator.speech.token_stream import GenerationTiming, TokenStream
from services.orchestrator.speech.utterance import Sentence, Utterance
from services.orchestrator.stages.token2wav import is_served_profile

FASTEST_DECODED = 1.999
"""Largest product of speed and token rate that a conversion asks token2wav for: its limit is 2,
which a rounded product must not exceed.
"""


async def convert(utterance: Utterance, audio: bytes, stages: Stages, play: Play, metrics: RequestMetrics) -> None:
    """Voice conversion: speak what the recording `audio` (bytes of a sound file) says with the
    voice of `utterance`, which has no text of its own. Hands the result to `play` (s16le, 24 kHz)
    and fills `metrics`.

    The speech tokens of the recording go straight to the decoder, without the speech-token model
    (compatibility specification section 2.4), all of them as one sentence; a pause in it is not a
    fault. Tokens that are more than 25 a second are decoded as much faster. Raises what
    `VoiceStage` and the decoder raise.
    """
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(stages.voices.speech(audio, _most_rate(utterance)))
        conditioning = group.create_task(stages.voices.conditioning(utterance.prompting))
    metrics.voice = conditioning.result().voice
    metrics.first_sound.frontend = metrics.total.frontend = metrics.milliseconds
    tokens, rate = reading.result()
    metrics.engines.token_rate = rate
    stream = TokenStream(Sentence(0, rate=rate), utterance.seed)
    stream.extend(tokens)
    stream.finish(GenerationTiming(prefill=0.0, first_hop=0.0, decode=0.0))
    metrics.heard.analyzed(0)
    sound = SilenceTrimmer(play, metrics.trimming, trimmed=utterance.trimmed)
    sound.start(0)

    async def play_decoded(audio: bytes) -> None:
        metrics.heard.decoded()
        await sound.play(audio)

    decoded = await stages.token2wav.decode(
        utterance, conditioning.result(), stream, play_decoded, metrics.engines, may_be_silent=True
    )
    await sound.end()
    settle(stream, decoded, metrics)


def _most_rate(utterance: Utterance) -> float:
    """Of the speech tokens of a recording: as far as the decoder's fastest speech makes up for it,
    and 1 where the reference is followed.
    """
    return max(1.0, FASTEST_DECODED / utterance.speed) if is_served_profile(utterance) else 1.0
