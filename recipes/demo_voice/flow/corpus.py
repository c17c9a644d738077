"""Tokens, mel and speaker vectors of all utterances on one device, and batches gathered from
them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.spec import LOOKAHEAD_TOKENS, MEL_FRAMES_PER_TOKEN, SPEAKER_DIMENSION
from recipes.demo_voice.features import Features
from recipes.demo_voice.flow.pieces import Piece, voices
from recipes.demo_voice.training.speech import Speech


@dataclass(frozen=True)
class Batch:
    """Rows of equal length: n tokens, 2n frames.

    tokens: int64 [rows, n], codes of the tokenizer. ahead, known: the next three [rows, 3] and
    which of them exist. mel: float32 [rows, 2n, 80]. speaker: float32 [rows, 192]. condition: int64
    [rows], frames of the mel that are shown. prompt: int64 [rows], frames of the prompt.
    """

    tokens: Tensor
    ahead: Tensor
    known: Tensor
    mel: Tensor
    speaker: Tensor
    condition: Tensor
    prompt: Tensor

    def with_tokens(self, tokens: Tensor) -> "Batch":
        """The same with other tokens."""
        return replace(self, tokens=tokens)


class Corpus:
    """codes: int16 [tokens of all utterances]. vectors: float32 [utterances + voices, 192], unit
    length.
    """

    def __init__(self, codes: Tensor, mel: Tensor, vectors: Tensor, first_id: int, count: int) -> None:
        self.codes, self.mel, self.vectors = codes, mel, vectors
        self.first_id = first_id
        """Speech token id of code 0."""
        self.count = count
        """How many codes the tokenizer has."""
        self.mean = mel[:: max(1, len(mel) // 100_000)].float().mean(0)
        """Of the mel, float32 [80]."""

    @classmethod
    def read(cls, work: Path, tokenizer: str, speech: Speech, features: Features) -> "Corpus":
        """The tokenizer's and the speaker encoder's results. Raises ValueError when they are not of
        this speech.
        """
        device = features.mel.device
        settings = json.loads((work / tokenizer / "settings.json").read_text(encoding="utf-8"))
        codes = np.load(work / tokenizer / "codes.npy")
        if codes.shape != (sum(features.tokens),):
            raise ValueError(
                f"{work / tokenizer}: {codes.shape} codes, the speech has {sum(features.tokens)} tokens; encode it "
                "again"
            )
        embeddings = np.load(work / "speaker" / "embeddings.npy").astype(np.float32)
        if embeddings.shape != (len(speech.utterances), SPEAKER_DIMENSION):
            raise ValueError(
                f"{work / 'speaker'}: {embeddings.shape} speaker vectors for {len(speech.utterances)} utterances"
            )
        vectors = F.normalize(torch.from_numpy(embeddings), dim=1)
        means = [_mean_vector(vectors, speech, voice) for voice in voices(speech)]
        vectors = torch.cat((vectors, torch.stack(means))).to(device)
        return cls(
            torch.from_numpy(codes).to(device), features.mel, vectors, int(settings["first_id"]), int(settings["codes"])
        )

    def gather(self, pieces: Sequence[Piece]) -> Batch:
        """The pieces, all of one length, as tensors on the corpus's device; nothing waits for the
        device.
        """
        return self.at(places_of(pieces, self.mel.device).to(self.mel.device, non_blocking=True), pieces[0].length)

    def at(self, places: Tensor, length: int) -> Batch:
        """The same from `places_of` the pieces, on the corpus's device: work for the device
        alone.
        """
        device = places.device
        prompt, prompt_tokens, body, end, speaker, condition = places.unbind(1)
        at = torch.arange(length + LOOKAHEAD_TOKENS, device=device)
        tokens_at = torch.where(at < prompt_tokens[:, None], prompt[:, None] + at, (body - prompt_tokens)[:, None] + at)
        known = tokens_at[:, length:] < end[:, None]
        tokens = self.codes[tokens_at.clamp(max=self.codes.shape[0] - 1)].long()
        frames = MEL_FRAMES_PER_TOKEN * tokens_at[:, :length, None] + torch.arange(MEL_FRAMES_PER_TOKEN, device=device)
        return Batch(
            tokens=tokens[:, :length],
            ahead=tokens[:, length:],
            known=known,
            mel=self.mel[frames.flatten(1)].float(),
            speaker=self.vectors[speaker],
            condition=condition,
            prompt=MEL_FRAMES_PER_TOKEN * prompt_tokens,
        )


def places_of(pieces: Sequence[Piece], device: torch.device) -> Tensor:
    """int64 [rows, 6] on the host, in memory that `device` copies from without waiting."""
    places = torch.tensor([(p.prompt, p.prompt_tokens, p.body, p.end, p.speaker, p.condition) for p in pieces])
    return places.pin_memory() if device.type == "cuda" else places


def _mean_vector(vectors: Tensor, speech: Speech, voice: str) -> Tensor:
    """Of all utterances of the voice: what the voice is served with."""
    return F.normalize(
        vectors[[utterance.number for utterance in speech.utterances if utterance.voice == voice]].mean(0), dim=0
    )
