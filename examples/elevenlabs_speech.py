# /// script
# requires-python = ">=3.11"
# dependencies = ["elevenlabs==2.78.0"]
# ///
"""ElevenLabs' SDK: speech as it is made, and when each character is heard. Run by `make clients`.

pip install elevenlabs==2.78.0
python examples/elevenlabs_speech.py
"""

import base64
import os
from pathlib import Path

from elevenlabs.client import ElevenLabs

client = ElevenLabs(base_url=os.environ.get("COSYSERVE_URL", "http://127.0.0.1:8080"), api_key="none")
voice = client.voices.get_all().voices[0]

with Path("it-works.mp3").open("wb") as file:
    for piece in client.text_to_speech.stream(voice.voice_id, text="It works.", output_format="mp3_22050_32"):
        file.write(piece)

timed = client.text_to_speech.convert_with_timestamps(voice.voice_id, text="It works.", output_format="pcm_24000")
times = timed.alignment.character_start_times_seconds
for character, start in zip(timed.alignment.characters, times, strict=True):
    print(f"{start:6.2f} s  {character!r}")
Path("timed.pcm").write_bytes(base64.b64decode(timed.audio_base_64))
