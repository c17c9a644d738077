"""A listener understands the same words when another voice speaks a recording, and when a request
speaks like one.
"""

import asyncio
from pathlib import Path

from cosyserve.audio.encoding import from_pcm
from cosyserve.audio.wav import wav_header
from cosyserve.client.types import Prompt
from tests.stacks.whole_stack import whole_stack
from tools.quality.recordings.recording import Recording, Sentence
from tools.quality.words.alignment import align
from tools.quality.words.recognition import Recogniser
from tools.quality.words.spelling import words_of

SPOKEN = "She sells fresh bread and coffee near the old station every morning."
ANOTHER = "We will meet again tomorrow at noon in the garden behind the house."
MOST_ERRORS = 2
"""Of twelve and thirteen words: none on the machine of the README, and room for processors that
draw other tokens.
"""


async def test_the_same_words_are_heard() -> None:
    ear = Recogniser(1)

    async def errors(text: str, audio: bytes) -> int:
        heard = await asyncio.to_thread(ear.text_of, Recording(Sentence(1, text), from_pcm(audio), 24_000))
        return align(words_of(text), words_of(heard)).errors.errors

    async with whole_stack(Path("models/demo")) as stack:
        source = await stack.client.synthesize(SPOKEN, voice="af_heart", seed=3).read()
        recording = wav_header(24_000, len(source) // 2) + source
        converted = await stack.client.convert_voice(recording, voice="am_michael", seed=1).read()
        assert converted != source
        assert await errors(SPOKEN, converted) <= MOST_ERRORS
        for mode in ("zero_shot", "cross_lingual"):
            prompted = stack.client.synthesize(ANOTHER, prompt=Prompt(recording, SPOKEN), prompt_mode=mode, seed=1)
            audio = await prompted.read()
            assert prompted.header is not None
            assert prompted.header.voice.startswith("recording-")
            assert await errors(ANOTHER, audio) <= MOST_ERRORS
