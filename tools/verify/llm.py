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

from cosyserve.generations.generation import SpeechVocabulary
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
_RAISED_BY = 30.0
_WITH_PROMPT, _SHORT = "with_prompt", "_short"
_CASES = (_WITH_PROMPT, "no_prompt")
_LEFT_OUT = 4
"""Ids at the end of the text that the short cases leave out."""
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
    speech, equal = bundle.speech, 0.0
    has_system = bundle.has_system
    raised = (
        {"sos": speech.masked_by_reference, "eos": speech.end, "last_row": speech.rows - 1}
        if has_system
        else {"eos_bias": speech.end}
    )
    recipes: dict[str, Recipe] = {
        "prefix_embeds": (equal, bundle.prefix),
        "hidden_last": (5e-5, bundle.forced_hidden),
        "logprobs_forced": (1e-4, bundle.forced_scores),
        "greedy_tokens": (equal, lambda: bundle.spoken(bundle.prompt(), GreedyChooser())),
        "greedy_tokens_no_prompt": (equal, bundle.spoken_without_prompt),
        "greedy_tokens_text_prompt_only": (
            equal,
            lambda: bundle.spoken(Prompt(bundle.text_prompt()), GreedyChooser()),
        ),
        "ras_argmax_tokens": (equal, lambda: bundle.spoken(bundle.prompt(), bundle.repetition_aware())),
    }
    for name, row in raised.items():
        recipes[f"greedy_tokens_{name}_plus30"] = (equal, partial(bundle.spoken_with_raised, row))
    for prefix in ("nucleus", "nucleus_sharp"):
        recipes[f"{prefix}_ids"] = (equal, partial(bundle.nuclei, prefix, "ids"))
        recipes[f"{prefix}_probs"] = (1e-5, partial(bundle.nuclei, prefix, "probs"))
    arrays.compare_all(recipes)
    for case in (*_CASES, *(f"{case}_short" for case in _CASES if has_system)):
        for what in ("tokens", "sampled"):
            arrays.compare(f"bistream_{what}_{case}", equal, partial(bundle.interleaved, UpstreamText, case, what))
        # Behind a system part, without prompt speech, the reference first decides from no text.
        if case.startswith(_WITH_PROMPT) or not has_system:
            arrays.compare(
                f"bistream_tokens_{case} {MAIN_PHASE}", equal, partial(bundle.main_phase, case), beginning=True
            )
    if has_system:
        arrays.compare("end_of_prompt_id", equal, lambda: np.array(bundle.end_of_prompt))
    # How far from a tie the recorded sequences are, which is what makes asking for equality fair.
    arrays.use("greedy_min_top2_gap")


class _Bundle:
    """The inputs of the bundle, and what the project makes of them. A missing input is a KeyError
    with its name.
    """

    def __init__(self, model: SpeechTokenModel, arrays: Recording) -> None:
        self._model, self._arrays = model, arrays

    @property
    def speech(self) -> SpeechVocabulary:
        return self._config.speech

    @property
    def has_system(self) -> bool:
        """Whether a sentence of this generation has to have a system part."""
        return self.end_of_prompt is not None

    @property
    def end_of_prompt(self) -> int | None:
        """Id of the mark that ends the system part."""
        return self._config.end_of_prompt

    def ids(self, name: str) -> tuple[int, ...]:
        return tuple(int(value) for value in self._arrays[name].reshape(-1))

    def prompt(self) -> Prompt:
        return Prompt(self.ids("prompt_text_ids"), self.ids("prompt_speech_ids"))

    def text_prompt(self) -> tuple[int, ...]:
        """The prompt text without prompt speech."""
        return self.ids("system_text_ids" if self.has_system else "prompt_text_ids")

    def repetition_aware(self) -> Chooser:
        return RepetitionAwareChooser(self._config.sampling, lambda weights, step, draw: int(np.argmax(weights)))

    def prefix(self) -> Tensor:
        return self._model.embed(self._script(self.prompt(), self.ids("text_ids"), GreedyChooser()).take())[None]

    def forced_hidden(self) -> Tensor:
        """The prompt in one pass, then one forced token after another."""
        forced = self.ids("forced_speech_ids")
        inputs = self._script(self.prompt(), self.ids("text_ids"), GreedyChooser()).take()
        cache = SequenceCache.reserve(self._config, len(inputs) + len(forced), self._model.device)
        hidden = [self._model.forward(self._model.embed(inputs), cache)[-1:]]
        hidden += [self._model.forward(self._model.embed(speech_inputs([token])), cache) for token in forced]
        return torch.cat(hidden)[None]

    def forced_scores(self) -> Tensor:
        return self._model.log_probabilities(self.forced_hidden()[0])

    def spoken(
        self, prompt: Prompt, chooser: Chooser, model: SpeechTokenModel | None = None, text: str = "text_ids"
    ) -> list[int]:
        """text: name of the array."""
        ids = self.ids(text)
        capacity = positions_of_whole_text(prompt, len(ids), limit=1 << 30, lengths=self._config.lengths)
        return Alone(model or self._model, self._script(prompt, ids, chooser), capacity).run()

    def spoken_without_prompt(self) -> list[int]:
        """The reference has the system part in the text then, where it counts for the lengths."""
        text = "text_with_system_ids" if self.has_system else "text_ids"
        return self.spoken(Prompt(), GreedyChooser(), text=text)

    def spoken_with_raised(self, row: int) -> list[int]:
        """With a score that is higher at every step."""
        bias = self._model.head_bias.clone()
        bias[row] += _RAISED_BY
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
            if case.startswith(_WITH_PROMPT)
            else Prompt(self.text_prompt() if self.has_system else ())
        )
        text, limit = self.ids("bistream_text_ids"), int(self._arrays["bistream_limit"])
        text = text[:-_LEFT_OUT] if case.endswith(_SHORT) else text
        chooser = _UntilLimit(self.speech, limit)
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

    def _script(self, prompt: Prompt, text: tuple[int, ...], chooser: Chooser) -> WholeText:
        return WholeText(self._config, prompt, text, Profile.UPSTREAM, chooser)


@dataclass
class _UntilLimit:
    """The bundle's rule for text streaming: the best id among the sounds and the fill, until
    `limit` decisions are made and the text has ended."""

    speech: SpeechVocabulary
    limit: int
    sampled: list[int] = field(default_factory=list)

    def choose(self, scores: Scores, tokens: Sequence[int]) -> int:
        ends = len(tokens) >= self.limit and self._in_last_phase(scores)
        best = int(np.argmax(mask(scores, self.speech.all_but(self.speech.fill))))
        self.sampled.append(self.speech.end if ends else best)
        return self.sampled[-1]

    def _in_last_phase(self, scores: Scores) -> bool:
        """By the masks: the served profile then masks the fill, the reference nothing."""
        end, fill, other = (
            bool(np.isfinite(scores[row]))
            for row in (self.speech.end, self.speech.fill, self.speech.masked_by_reference)
        )
        return end and (other or not fill)
