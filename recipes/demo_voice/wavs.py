"""`python -m recipes.demo_voice.wavs WORK DIR [--split quality]`: the teacher's recordings as
DIR/VOICE/001.wav and so on.

The numbers count the sentences of the split from 1; one that the teacher spoilt is missing. With a
work folder of its own, spoken by `recipes.demo_voice.synthesise WORK ... --plan plain --split
quality`, that is what `python -m tools.quality --wavs DIR` measures. With `prepare_text --quality
tools/quality/replies.txt` and `synthesise --plain-voices af_bella` they are the recordings that
`python -m tools.quality.replies --convert DIR/af_bella` has converted.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from cosyserve.audio.wav import wav_header
from cosyserve.spec import SAMPLE_RATE
from recipes.demo_voice.training import commands
from recipes.demo_voice.training.speech import Speech, read_sentences


def write_wavs(work: Path, directory: Path, split: str) -> Counter[str]:
    """16-bit mono files at 24 kHz; how many of each voice. Raises FileNotFoundError when there is
    no speech.
    """
    speech = Speech.read(work)
    spoken = [each.number for each in read_sentences(work / "text" / "sentences.tsv") if each.split == split]
    places = {number: place for place, number in enumerate(spoken, start=1)}
    written: Counter[str] = Counter()
    for each in speech.utterances:
        if each.split != split:
            continue
        (directory / each.voice).mkdir(parents=True, exist_ok=True)
        samples = speech.audio[each.start : each.start + each.samples].numpy()
        path = directory / each.voice / f"{places[each.sentence]:03d}.wav"
        path.write_bytes(wav_header(SAMPLE_RATE, each.samples) + samples.tobytes())
        written[each.voice] += 1
    return written


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, 1 when nothing was written, or 2 for bad arguments."""
    parser = commands.stage("wavs", __doc__, "work folder with speech/ in it")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--split", choices=("train", "held_out", "quality"), default="quality")
    options = parser.parse_args(arguments)
    written = write_wavs(options.work, options.directory, options.split)
    print(
        ", ".join(f"{count} of {voice}" for voice, count in written.items())
        or f"there is no recording of the split {options.split}"
    )
    return 0 if written else 1


if __name__ == "__main__":
    sys.exit(main())
