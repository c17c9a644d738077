"""The speech that the teacher made, as the trainers read it and put it into batches.

Layout of a work folder, as `recipes.demo_voice.synthesise` writes it:

* `text/sentences.tsv`: number, split (`train`, `held_out` or `quality`), text, phonemes;
* `speech/NAME.s16`: utterances one after another, signed 16-bit little-endian mono at 24 kHz, each
  a whole number of speech tokens (40 ms, 960 samples) long;
* `speech/NAME.tsv`: one line per utterance of NAME.s16: sentence number, voice, speed, first
  sample, samples.

A synthesis that was interrupted leaves at most one unfinished line and samples that no line
names; both are passed over.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cosyserve.spec import SAMPLES_PER_TOKEN


@dataclass(frozen=True)
class Sentence:
    """A line of sentences.tsv."""

    number: int
    split: str
    text: str
    phonemes: str


@dataclass(frozen=True)
class Recording:
    """A line of a shard's table: one utterance, counted in samples of its own shard."""

    sentence: int
    voice: str
    speed: float
    start: int
    samples: int

    def line(self) -> str:
        return f"{self.sentence}\t{self.voice}\t{self.speed:g}\t{self.start}\t{self.samples}\n"


@dataclass(frozen=True)
class Utterance:
    """One spoken sentence; `number` is its place in Speech.utterances, `start` its first sample in
    Speech.audio.
    """

    number: int
    sentence: int
    split: str
    voice: str
    speed: float
    text: str
    phonemes: str
    start: int
    samples: int

    @property
    def tokens(self) -> int:
        """Length in speech tokens."""
        return self.samples // SAMPLES_PER_TOKEN


class Speech:
    """All utterances of a work folder, their samples in one tensor."""

    def __init__(self, audio: Tensor, utterances: list[Utterance], most_held_out: int = 256) -> None:
        """audio: int16 [total]. most_held_out: size of the held-out set; the voices take turns in
        filling it.
        """
        self.audio = audio
        self.utterances = utterances
        self.training = [each.number for each in utterances if each.split == "train"]
        self.tokens = [each.tokens for each in utterances]
        """Lengths of the utterances, at 25 a second."""
        self.first = [0, *accumulate(self.tokens)][: len(utterances)]
        """Token at which each one starts when they are laid end to end."""
        self.held_out = _balanced([each for each in utterances if each.split == "held_out"], most_held_out)

    @classmethod
    def read(
        cls, work: Path, device: torch.device | str = "cpu", most_held_out: int = 256, *, audio: bool = True
    ) -> "Speech":
        """Shards in the order of their names. audio: without it no sample is read and `wave` cannot
        be asked.

        Raises FileNotFoundError when sentences or shards are missing, ValueError when malformed.
        """
        sentences = {each.number: each for each in read_sentences(work / "text" / "sentences.tsv")}
        shards = sorted((work / "speech").glob("*.s16"))
        if not shards:
            raise FileNotFoundError(f"no shards in {work / 'speech'}")
        utterances: list[Utterance] = []
        lengths = [shard.stat().st_size // 2 for shard in shards]
        samples = np.empty(sum(lengths) if audio else 0, dtype="<i2")
        first = 0
        for shard, length in zip(shards, lengths, strict=True):
            if audio:
                samples[first : first + length] = np.fromfile(shard, dtype="<i2", count=length)
            for each in read_recordings(shard.with_suffix(".tsv"), length):
                said = sentences[each.sentence]
                utterances.append(
                    Utterance(
                        number=len(utterances),
                        sentence=each.sentence,
                        split=said.split,
                        voice=each.voice,
                        speed=each.speed,
                        text=said.text,
                        phonemes=said.phonemes,
                        start=first + each.start,
                        samples=each.samples,
                    )
                )
            first += length
        return cls(torch.from_numpy(samples).to(device), utterances, most_held_out)

    def wave(self, index: int) -> Tensor:
        """Samples of utterance `index`: float32 [samples] in [-1, 1), on the device of the
        audio.
        """
        each = self.utterances[index]
        return self.audio[each.start : each.start + each.samples].float() / 32768


def mapped_waves(work: Path) -> Callable[[Utterance], Tensor]:
    """A reader of single utterances, float32 [samples] in [-1, 1), that leaves the shards on the
    disk.
    """
    shards = [np.memmap(shard, dtype="<i2", mode="r") for shard in sorted((work / "speech").glob("*.s16"))]
    firsts = [0, *accumulate(len(shard) for shard in shards)]

    def wave(utterance: Utterance) -> Tensor:
        place = bisect_right(firsts, utterance.start) - 1
        start = utterance.start - firsts[place]
        return torch.from_numpy(np.array(shards[place][start : start + utterance.samples])).float() / 32768

    return wave


def by_length(
    members: Sequence[int], lengths: Sequence[int], budget: int, rng: np.random.Generator, *, most: int = 512
) -> list[list[int]]:
    """`members` in batches whose (count x longest length) stays within `budget`, in random order.

    lengths: indexed by member. most: largest batch. Equal lengths are shuffled by a jitter of up to
    a sixth.
    """
    jittered = np.array([lengths[member] for member in members]) * (1 + rng.uniform(0, 1 / 6, len(members)))
    order = [members[place] for place in np.argsort(jittered, kind="stable").tolist()]
    batches: list[list[int]] = []
    current: list[int] = []
    longest = 0
    for member in order:
        longest_with = max(longest, lengths[member])
        if current and (longest_with * (len(current) + 1) > budget or len(current) >= most):
            batches.append(current)
            current, longest_with = [], lengths[member]
        current.append(member)
        longest = longest_with
    if current:
        batches.append(current)
    return [batches[place] for place in rng.permutation(len(batches))]


def endless(
    members: Sequence[int], lengths: Sequence[int], budget: int, rng: np.random.Generator, *, most: int = 512
) -> Iterator[list[int]]:
    """Epoch after epoch of `by_length`."""
    while True:
        yield from by_length(members, lengths, budget, rng, most=most)


def gather(flat: Tensor, starts: Tensor, count: int) -> Tensor:
    """Rows starts[b] .. starts[b] + count - 1 of `flat` [total, ...] -> [batch, count, ...]; rows
    past the end repeat the last.
    """
    places = starts[:, None] + torch.arange(count, device=starts.device)
    return flat[places.clamp(max=flat.shape[0] - 1)]


def read_sentences(path: Path) -> list[Sentence]:
    """The lines of sentences.tsv in their order. Raises ValueError naming the line that has not
    four fields.
    """
    return [_sentence(path, place, line) for place, line in enumerate(_whole_lines(path), start=1)]


def read_recordings(path: Path, available: int) -> Iterator[Recording]:
    """The lines of a shard's table, up to the first whose samples are not among the `available`
    ones of the shard.
    """
    if not path.exists():
        return
    for line in _whole_lines(path):
        sentence, voice, speed, start, samples = line.split("\t")
        recording = Recording(int(sentence), voice, float(speed), int(start), int(samples))
        if recording.start + recording.samples > available:
            return
        yield recording


def _whole_lines(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return text[: text.rfind("\n") + 1].split("\n")[:-1]


def _sentence(path: Path, place: int, line: str) -> Sentence:
    fields = line.split("\t")
    if len(fields) != 4:
        raise ValueError(f"{path}:{place}: {len(fields)} fields where number, split, text, phonemes were expected")
    return Sentence(int(fields[0]), *fields[1:])


def _balanced(utterances: list[Utterance], most: int) -> list[int]:
    of_voice: defaultdict[str, list[int]] = defaultdict(list)
    for each in utterances:
        of_voice[each.voice].append(each.number)
    turns = zip_longest(*(of_voice[voice] for voice in sorted(of_voice)))
    return sorted([number for turn in turns for number in turn if number is not None][:most])
