"""ElevenLabs' own voices, which its clients ask for unless another one is set, as voices of this
server.
"""

from services.gateway.speech.voice_names import FEMALE, MALE, VoiceNames

PREMADE = {
    "21m00Tcm4TlvDq8ikWAM": FEMALE,  # Rachel
    "cgSgspJ2msm6clMCkdW9": FEMALE,  # Jessica
    "cjVigY5qzO86Huf0OWal": MALE,  # Eric
    "CwhRBWXzGAHq8TQ4Fs17": MALE,  # Roger
    "EXAVITQu4vr4xnSDxMaL": FEMALE,  # Sarah
    "FGY2WhTYpPnrIDTdsKH5": FEMALE,  # Laura
    "hpp4J3VqNfWAUOO0d1Us": FEMALE,  # Bella, the default of LiveKit's plugin
    "IKne3meq5aSn9XLyUdCD": MALE,  # Charlie
    "iP95p4xoKVk53GoZ742B": MALE,  # Chris
    "JBFqnCBsd6RMkjVDRZzb": MALE,  # George, of the examples of ElevenLabs' SDK
    "nPczCjzI2devNBz1zQrb": MALE,  # Brian
    "onwK4e9ZLuTAKqWW03F9": MALE,  # Daniel
    "pFZP5JQG7iQjIQuC4Bku": FEMALE,  # Lily
    "pNInz6obpgDQGcFmaJgB": MALE,  # Adam
    "TX3LPaxmHKxFdv7VOQHJ": MALE,  # Liam
    "Xb7hH8MSUJpSbSDYk0k2": FEMALE,  # Alice
    "XrExE9yKIg1WjnnlVkGX": FEMALE,  # Matilda
}
"""Ids, and the sex that listeners hear."""


async def voice_of(names: VoiceNames, voice_id: str) -> str:
    """The name by which the speech service knows a voice. An id of ElevenLabs' is the first voice
    of that sex, else the default one; any other name means what it means in the other APIs.
    """
    sex = PREMADE.get(voice_id)
    return voice_id if sex is None else await names.first_of(sex)
