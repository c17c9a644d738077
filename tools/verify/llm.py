"""The speech-token model against `llm.npz`: embeddings, hidden states, log-probabilities, nucleus
and every recorded token sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyserve.spec import END_OF_SPEECH, RESERVED_SPEECH
from services.llm.engine.kv_cache import SequenceCache
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.stepper import Alone
from services.llm.engine.weights import ServedModel
from services.llm.generation.config import LlmConfig
from services.llm.generation.interleaved_text import ArrivingText, ContinuousText, UpstreamText
from services.llm.generation.request import Profile, Prompt
from services.llm.generation.requested_script import positions_of_whole_text
from services.llm.generation.sampling import Chooser, GreedyChooser, RepetitionAwareChooser, Scores, mask, nucleus
from services.llm.generation.script import WholeText, speech_inputs
from tools.verify.recording import Recipe, Recording, compare_file
from tools.verify.report import Report

FILE = "llm.npz"
_EOS_BIAS = 30.0
MAIN_PHASE = "(continuous, while text arrives)"
"""Remark of the rows that hold the served profile to the reference. Only the tokens made before the
text ends are compared: behind its end the reference feeds the last speech embedding a second time
and the served profile does not, so their tokens may differ from there on."""


def verify(directory: Path, report: Report) -> None:
    """Recompute every output array of `llm.npz` with the project's loaders, model, sampler and
    scripts, and compare.

    An array that is unknown, or absent, or whose inputs are absent, is a row too.
    """
    compare_file(directory, FILE, report, partial(_compare, directory))


def _compare(directory: Path, arrays: Recording) -> None:
    bundle = _Bundle(ServedModel.read(directory).load(torch.device("cpu")), arrays)
    equal = 0.0
    recipes: dict[str, Recipe] = {
        "prefix_embeds": (equal, bundle.prefix),
        "hidden_last": (5e-5, bundle.forced_hidden),
        "logprobs_forced": (1e-4, bundle.forced_scores),
        "greedy_tokens": (equal, lambda: bundle.spoken(bundle.prompt(), GreedyChooser())),
        "greedy_tokens_no_prompt": (equal, lambda: bundle.spoken(Prompt(), GreedyChooser())),
        "greedy_tokens_text_prompt_only": (
            equal,
            lambda: bundle.spoken(Prompt(bundle.prompt().text_ids), GreedyChooser()),
        ),
        "greedy_tokens_eos_bias_plus30": (equal, bundle.spoken_with_biased_end),
        "ras_argmax_tokens": (equal, lambda: bundle.spoken(bundle.prompt(), bundle.repetition_aware())),
    }
    for prefix in ("nucleus", "nucleus_sharp"):
        recipes[f"{prefix}_ids"] = (equal, partial(bundle.nuclei, prefix, "ids"))
        recipes[f"{prefix}_probs"] = (1e-5, partial(bundle.nuclei, prefix, "probs"))
    arrays.compare_all(recipes)
    for case in ("with_prompt", "no_prompt"):
        for what in ("tokens", "sampled"):
            arrays.compare(f"bistream_{what}_{case}", equal, partial(bundle.interleaved, UpstreamText, case, what))
        arrays.compare(f"bistream_tokens_{case} {MAIN_PHASE}", equal, partial(bundle.main_phase, case), beginning=True)
    # How far from a tie the recorded sequences are, which is what makes asking for equality fair.
    arrays.use("greedy_min_top2_gap")


class _Bundle:
    """The inputs of the bundle, and what the project makes of them. A missing input is a KeyError
    with its name.
    """

    def __init__(self, model: SpeechTokenModel, arrays: Recording) -> None:
        self._model, self._arrays = model, arrays

    def ids(self, name: str) -> tuple[int, ...]:
        return tuple(int(value) for value in self._arrays[name].reshape(-1))

    def prompt(self) -> Prompt:
        return Prompt(self.ids("prompt_text_ids"), self.ids("prompt_speech_ids"))

    def repetition_aware(self) -> Chooser:
        return RepetitionAwareChooser(self._config.sampling, lambda weights, step, draw: int(np.argmax(weights)))

    def prefix(self) -> Tensor:
        return self._model.embed(self._script(self.prompt(), GreedyChooser()).take())[None]

    def forced_hidden(self) -> Tensor:
        """The prompt in one pass, then one forced token after another."""
        forced = self.ids("forced_speech_ids")
        inputs = self._script(self.prompt(), GreedyChooser()).take()
        cache = SequenceCache.reserve(self._config, len(inputs) + len(forced), self._model.device)
        hidden = [self._model.forward(self._model.embed(inputs), cache)[-1:]]
        hidden += [self._model.forward(self._model.embed(speech_inputs([token])), cache) for token in forced]
        return torch.cat(hidden)[None]

    def forced_scores(self) -> Tensor:
        return self._model.log_probabilities(self.forced_hidden()[0])

    def spoken(self, prompt: Prompt, chooser: Chooser, model: SpeechTokenModel | None = None) -> list[int]:
        script = self._script(prompt, chooser)
        capacity = positions_of_whole_text(
            prompt, len(self.ids("text_ids")), limit=1 << 30, lengths=self._config.lengths
        )
        return Alone(model or self._model, script, capacity).run()

    def spoken_with_biased_end(self) -> list[int]:
        bias = self._model.head_bias.clone()
        bias[END_OF_SPEECH] += _EOS_BIAS
        return self.spoken(self.prompt(), GreedyChooser(), replace(self._model, head_bias=bias))

    def nuclei(self, prefix: str, what: str) -> NDArray[np.float32]:
        """Ids or probabilities of the candidates of the recorded rows, padded as the bundle pads
        them.
        """
        sharp = prefix == "nucleus_sharp"
        rows = self._arrays["logprobs_forced"]
        if sharp:
            rows = rows[: len(self._arrays[f"{prefix}_ids"])] * np.float32(self._arrays["nucleus_sharp_scale"])
        limits = self._config.sampling
        ids = np.full((len(rows), limits.top_k), -1, np.float32)
        probabilities = np.zeros((len(rows), limits.top_k), np.float32)
        for row, scores in enumerate(rows):
            nucleus_ids, share = nucleus(scores, limits.top_p, limits.top_k)
            ids[row, : len(nucleus_ids)], probabilities[row, : len(nucleus_ids)] = nucleus_ids, share
        return ids if what == "ids" else probabilities

    def interleaved(self, kind: type[ArrivingText], case: str, what: str) -> list[int]:
        """Text that arrives one id at a time: the tokens sent, or the decisions that were
        sampled.
        """
        alone, script, chooser, tokens = self._fed(kind, case)
        script.end()
        tokens += alone.run()
        return tokens if what == "tokens" else chooser.sampled

    def main_phase(self, case: str) -> list[int]:
        """The served profile's tokens up to the end of the text. Of those only as many as the
        reference makes until then: it takes one block of text at most for each piece, so behind a
        long transcript it can have text left that the served profile has spoken."""
        served, reference = (self._fed(kind, case)[-1] for kind in (ContinuousText, UpstreamText))
        return served[: len(reference)]

    def _fed(self, kind: type[ArrivingText], case: str) -> tuple[Alone, ArrivingText, "_UntilLimit", list[int]]:
        """What runs, its script, its chooser, and the tokens it made of the whole text before being
        notified that the text has ended.
        """
        prompt = (
            Prompt(self.ids("prompt_text_ids"), self.ids("bistream_prompt_speech_ids"))
            if case == "with_prompt"
            else Prompt()
        )
        text, limit = self.ids("bistream_text_ids"), int(self._arrays["bistream_limit"])
        chooser = _UntilLimit(limit)
        script = kind(self._config, prompt, chooser)
        margin = 2 * self._config.speech_block + 4
        # A block of text may bring a block of speech, whatever the limit is: that counts only once
        # the text has ended.
        blocks = (len(prompt.text_ids) + len(text)) // self._config.text_block * (self._config.speech_block + 1)
        alone = Alone(
            self._model,
            script,
            len(prompt.text_ids) + len(prompt.speech_tokens) + len(text) + max(limit, blocks) + margin,
        )
        tokens = []
        for text_id in text:
            script.feed([text_id])
            tokens += alone.run()
        return alone, script, chooser, tokens

    @property
    def _config(self) -> LlmConfig:
        return self._model.config

    def _script(self, prompt: Prompt, chooser: Chooser) -> WholeText:
        return WholeText(prompt, self.ids("text_ids"), Profile.UPSTREAM, chooser, lengths=self._config.lengths)


@dataclass
class _UntilLimit:
    """The bundle's rule for text streaming: the best id that is neither end nor reserved, until
    `limit` decisions are made and ending is allowed."""

    limit: int
    sampled: list[int] = field(default_factory=list)

    def choose(self, scores: Scores, tokens: Sequence[int]) -> int:
        ends = len(tokens) >= self.limit and bool(np.isfinite(scores[END_OF_SPEECH]))
        self.sampled.append(END_OF_SPEECH if ends else int(np.argmax(mask(scores, (END_OF_SPEECH, RESERVED_SPEECH)))))
        return self.sampled[-1]
