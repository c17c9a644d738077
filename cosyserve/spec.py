"""The numbers that all generations share, in one place; `cosyserve.generations` has the others.

Everything here is fixed by the published checkpoints (25 Hz FSQ speech tokens, 50 Hz mel, 24 kHz
sound); layer sizes are not, they are read from the model directory.
"""

SAMPLE_RATE = 24_000
TOKENS_PER_SECOND = 25
MEL_BINS = 80
MEL_FRAMES_PER_TOKEN = 2
SAMPLES_PER_MEL_FRAME = 480
SAMPLES_PER_TOKEN = SAMPLES_PER_MEL_FRAME * MEL_FRAMES_PER_TOKEN

SPEECH_VOCABULARY = 6561
SPEAKER_DIMENSION = 192
CHUNK_TOKENS = 25
CHUNK_FRAMES = CHUNK_TOKENS * MEL_FRAMES_PER_TOKEN
LOOKAHEAD_TOKENS = 3
EULER_STEPS = 10
FEWEST_EULER_STEPS = 5
MAX_FLOW_FRAMES = 15_000

MIN_TOKENS_PER_TEXT_TOKEN = 2
MAX_TOKENS_PER_TEXT_TOKEN = 20
"""For the published text ids; a model directory whose text ids cover less text sets its own in its
yaml (llm.min_token_text_ratio, max_...).
"""
TEXT_BLOCK = 5
SPEECH_BLOCK = 15

LONGEST_SENTENCE = 200
"""Text tokens in one utterance, at most: 20 speech tokens for each, the published most, are 4000,
what every stage takes for one sentence."""
