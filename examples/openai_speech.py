# /// script
# requires-python = ">=3.11"
# dependencies = ["openai==3.54.0"]
# ///
"""OpenAI's Python SDK: a file, then speech as it is made. Run by `make clients`.

pip install openai==3.54.0
python examples/openai_speech.py
"""

import os
from pathlib import Path

from openai import OpenAI

client = OpenAI(base_url=os.environ.get("COSYSERVE_URL", "http://127.0.0.1:8080") + "/v1", api_key="none")

# A compressed file, written while it arrives.
with client.audio.speech.with_streaming_response.create(
    model="tts-1", voice="nova", input="It works.", response_format="mp3"
) as answer:
    answer.stream_to_file("it-works.mp3")

# Raw samples for a player. `seed` is a field of this server: the same seed gives the same samples.
with (
    client.audio.speech.with_streaming_response.create(
        model="tts-1",
        voice="nova",
        input="Each piece can be played while the next one is made.",
        response_format="pcm",
        extra_body={"seed": 7},
    ) as answer,
    Path("pieces.pcm").open("wb") as player,
):
    print(f"{answer.headers['x-sample-rate']} samples a second, 16 bits, one channel")
    for piece in answer.iter_bytes():
        player.write(piece)
