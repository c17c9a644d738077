"""Voice conversion: what a recording says, spoken by another voice.

The speech tokens of the recording go straight to the decoder, without the speech-token model
(compatibility specification section 2.4).
"""

import asyncio

from services.orchestrator.pipeline import RequestMetrics, Stages
from services.orchestrator.speech.silence import Play, SilenceTrimmer
from services.orchestrator.speech.token_stream import GenerationTiming, TokenStream
from services.orchestrator.speech.utterance import Sentence, Utterance

_NO_TIME = GenerationTiming(prefill=0.0, first_hop=0.0, decode=0.0)


async def convert(utterance: Utterance, audio: bytes, stages: Stages, play: Play, metrics: RequestMetrics) -> None:
    """Convert the speech in `audio` (bytes of a sound file) to the voice of `utterance`, which has
    no text of its own. Hands the result to `play` (s16le, 24 kHz) and fills `metrics`. The decoder
    gets the whole recording as one sentence; a pause in it is not a fault.

    Raises what `PromptStage` and the decoder raise.
    """
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(stages.prompts.speech(audio))
        showing = group.create_task(stages.prompts.conditioning(utterance.prompting))
    conditioning, tokens = showing.result(), reading.result()
    metrics.voice = conditioning.voice
    metrics.first_sound.frontend = metrics.total.frontend = metrics.milliseconds
    metrics.sentences, metrics.speech_tokens = 1, len(tokens)
    stream = TokenStream(Sentence(0, ()), utterance.seed)
    stream.extend(tokens)
    stream.finish(_NO_TIME)
    sound = SilenceTrimmer(play, metrics.trimming, trimmed=utterance.trimmed)
    sound.start(0)
    decoded = await stages.token2wav.decode(
        utterance, conditioning, stream, sound.play, metrics.engines, may_be_silent=True
    )
    await sound.end()
    metrics.takeovers += decoded.takeovers
    spent = decoded.summary
    metrics.total.flow, metrics.total.vocoder = spent.flow_milliseconds, spent.vocoder_milliseconds
    metrics.first_sound.flow, metrics.first_sound.vocoder = (
        spent.first_flow_milliseconds,
        spent.first_vocoder_milliseconds,
    )
