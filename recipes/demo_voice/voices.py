"""`spk2info.pt` of the bundled model: for each voice one spoken sentence to go on from, and what
the voice sounds like on average.

The grid of 25 tokens on which the decoder cuts starts at the first prompt token that it is shown.
Utterances of 25 k + 11 tokens are chosen, and the decoder is shown six tokens less
(services/frontend/voices/voice.py): the first hop of a sentence is short and can be heard.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.spec import CHUNK_TOKENS, MEL_FRAMES_PER_TOKEN, SAMPLES_PER_TOKEN
from recipes.demo_voice.speaker.train import read_vectors
from recipes.demo_voice.teacher.plan import MAIN_VOICES
from recipes.demo_voice.tokenizer import codes
from recipes.demo_voice.tokenizer.trained import TrainedTokenizer, distance, read_codes
from recipes.demo_voice.training.speech import Speech, Utterance
from services.frontend.prompts.features.mel import mel_spectrogram
from services.frontend.tokenizers.phonemes.symbols import START, read_symbols
from services.frontend.voices.speaker_file import cut_entry
from services.frontend.voices.voice_notes import FIELD, Labels, Notes, notes_field

PAST_THE_GRID = 11
PREFERRED_CHUNKS, ALLOWED_CHUNKS = (2, 3), (1, 2, 3, 4)
"""Whole chunks of 25 tokens before the last 11: prompts of 2.4 and 3.4 s, or else down to 1.4 and
up to 4.4 s.
"""
_MOST_DROPPED = 2
_QUIET = 0.01
"""Root mean square of what may be dropped behind a sentence; speech has 0.09."""
_END_SAMPLES, _SILENT = SAMPLES_PER_TOKEN // 2, 0.003
"""A prompt whose last 20 ms are louder goes on to sound at the start of every sentence."""
_FURTHEST_SPEED = 0.051


@dataclass(frozen=True)
class Corpus:
    """The speech and what the speech tokenizer and the speaker encoder made of it, utterances in
    the order of `speech.utterances`.

    codes: int16, all utterances end to end. first_id: speech token id of code 0. vectors: float32
    [utterances, 192], each of length 1. symbols: text id of each symbol.
    """

    speech: Speech
    tokenizer: TrainedTokenizer
    codes: Tensor
    first_id: int
    vectors: Tensor
    symbols: dict[str, int]

    @classmethod
    def read(cls, work: Path, tokenizer: str) -> "Corpus":
        """Results of the tokenizer in WORK/`tokenizer` and of the speaker encoder. Raises
        ValueError when they are of other speech.
        """
        speech = Speech.read(work)
        network = TrainedTokenizer.read(work / tokenizer)
        return cls(
            speech=speech,
            tokenizer=network,
            codes=torch.from_numpy(read_codes(work / tokenizer, speech)),
            first_id=codes.first_id(network.digits),
            vectors=read_vectors(work, speech),
            symbols=read_symbols(work / "model" / "phonemes" / "symbols.json"),
        )

    def codes_of(self, number: int) -> Tensor:
        """int64 [tokens] of one utterance."""
        first = self.speech.first[number]
        return self.codes[first : first + self.speech.tokens[number]].long()


def prompt_tokens(tokens: int, chunks: Sequence[int]) -> int | None:
    """The longest prompt that an utterance of `tokens` gives when at most two tokens behind it are
    dropped; None when none fits.
    """
    lengths = [CHUNK_TOKENS * each + PAST_THE_GRID for each in chunks]
    return max((length for length in lengths if 0 <= tokens - length <= _MOST_DROPPED), default=None)


def voices(corpus: Corpus, names: Iterable[str] = MAIN_VOICES) -> dict[str, dict[str, Any]]:
    """Content of `spk2info.pt`: each voice in the zero-shot layout, with its language and sex
    (`voice_notes`). Raises ValueError naming a voice without a sentence that fits."""
    return {name: _voice(corpus, name) | {FIELD: noted(name)} for name in names}


def noted(name: str) -> dict[str, Any]:
    """Language, sex and name of a voice by the teacher's rule for ids: `a` American, `b` British;
    `f` female, `m` male; then the name.
    """
    kind, _, given = name.partition("_")
    region, sex = {"a": "US", "b": "GB"}.get(kind[:1]), {"f": "female", "m": "male"}.get(kind[1:])
    labels = Labels(display_name=given.capitalize(), labels={"sex": sex} if sex else {})
    return notes_field(Notes(language_code=f"en-{region}" if region else "en", labels=labels))


def _voice(corpus: Corpus, name: str) -> dict[str, Tensor]:
    utterances = [corpus.speech.utterances[index] for index in corpus.speech.training]
    own = [each for each in utterances if each.voice == name]
    if not own:
        raise ValueError(f"voice {name!r}: not among the speech")
    mean = F.normalize(corpus.vectors[[each.number for each in own]].mean(dim=0), dim=0)
    chosen, length = choose(corpus, own, mean)
    speech = (corpus.codes_of(chosen.number)[:length] + corpus.first_id).int()[None]
    mel = (
        mel_spectrogram(corpus.speech.wave(chosen.number)[None])[:, :, : MEL_FRAMES_PER_TOKEN * length]
        .transpose(1, 2)
        .contiguous()
    )
    text = torch.tensor([[corpus.symbols[symbol] for symbol in START + chosen.phonemes]], dtype=torch.int32)
    prompt = {
        "prompt_text": text,
        "llm_prompt_speech_token": speech,
        "flow_prompt_speech_token": speech,
        "prompt_speech_feat": mel,
    }
    lengths = {f"{field}_len": torch.tensor([value.shape[1]], dtype=torch.int32) for field, value in prompt.items()}
    print(f"voice {name}: {len(own)} utterances; prompt of {length} tokens: {chosen.text}")
    return cut_entry(prompt | lengths | {"llm_embedding": mean[None], "flow_embedding": mean[None]}, COSYVOICE2)


def choose(corpus: Corpus, own: Sequence[Utterance], mean: Tensor) -> tuple[Utterance, int]:
    """The sentence to begin with and its length in tokens, from the training utterances of one
    voice whose mean vector is `mean`.

    A statement at the plain speed of a length that fits; among those the one whose tokens read
    best, whose pace is nearest to the usual one, which sounds most like the voice and ends in
    silence. Where there is none, other lengths, then other speeds within 5 %. Raises ValueError
    otherwise.
    """
    for chunks, furthest in ((PREFERRED_CHUNKS, 1e-6), (ALLOWED_CHUNKS, 1e-6), (ALLOWED_CHUNKS, _FURTHEST_SPEED)):
        fitting = [
            (each, length)
            for each in own
            if abs(each.speed - 1) <= furthest and each.phonemes.endswith(".")
            if (length := prompt_tokens(each.tokens, chunks)) and _is_quiet(corpus, each, length)
        ]
        if fitting:
            costs = _costs(corpus, [each for each, _ in fitting], own, mean)
            costs = [cost + _loud_end(corpus, *chosen) for cost, chosen in zip(costs, fitting, strict=True)]
            return fitting[min(range(len(fitting)), key=lambda place: (costs[place], fitting[place][0].number))]
    raise ValueError(
        f"voice {own[0].voice!r}: none of {len(own)} utterances has 25 k + 11 tokens, quiet after them, within 5 % of "
        "speed 1"
    )


def _is_quiet(corpus: Corpus, utterance: Utterance, length: int) -> bool:
    dropped = corpus.speech.wave(utterance.number)[SAMPLES_PER_TOKEN * length :]
    return len(dropped) == 0 or float(dropped.square().mean().sqrt()) < _QUIET


def _loud_end(corpus: Corpus, utterance: Utterance, length: int) -> float:
    """Cost of a prompt of `length` tokens that does not end in silence: five for each 20 dB."""
    end = corpus.speech.wave(utterance.number)[: SAMPLES_PER_TOKEN * length][-_END_SAMPLES:]
    return max(0.0, 5 * math.log10(max(1e-9, float(end.square().mean().sqrt())) / _SILENT))


def _costs(corpus: Corpus, fitting: Sequence[Utterance], own: Sequence[Utterance], mean: Tensor) -> list[float]:
    """Phone errors of the tokens count tenfold; pace and similarity in standard deviations of the
    voice.
    """
    pace = np.array([len(each.phonemes) / each.samples for each in own])
    similar = (corpus.vectors[[each.number for each in own]] @ mean).numpy()
    costs = []
    for each in fitting:
        expected = corpus.tokenizer.phones.of(each.phonemes)
        own_codes = corpus.codes_of(each.number)
        (read,) = corpus.tokenizer.phones_of_codes(own_codes[None], torch.tensor([len(own_codes)]))
        off_pace = abs(len(each.phonemes) / each.samples - pace.mean()) / max(float(pace.std()), 1e-9)
        unlike = max(0.0, float(similar.mean() - corpus.vectors[each.number] @ mean)) / max(float(similar.std()), 1e-9)
        costs.append(10 * distance(read, expected) / max(len(expected), 1) + float(off_pace) + unlike)
    return costs
