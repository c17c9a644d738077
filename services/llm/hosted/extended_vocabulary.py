"""One vocabulary for text, speech and the marks of the prompt layout, for engines that have one
embedding table and one head.

    id                             what                       token
    0 to text_ids - 1              text                       the tokenizer's own
    text_ids + 0 to + 6560         speech tokens              <|s_0|> to <|s_6560|>
    text_ids + 6561 and on         special ids                SpeechVocabulary.special_names
    after them                     start, task                <|sos|> <|task_id|>
    up to rows - 1                 padding                    none

Start and task have no ids of their own where they are special ids. The published tokenizer of
CosyVoice2 has 151663 text ids, which makes 158229 tokens and 158336 rows; that of CosyVoice3 has
151924, which makes 158685 and 158720. Source: compatibility specification of CosyVoice2, section
7.1, and of CosyVoice3, section 7.3.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from cosyserve.errors import InternalFault, ModelError
from cosyserve.generations.generation import SpeechVocabulary
from cosyserve.generations.reading import GENERATIONS
from services.llm.generation.request import Prompt
from services.llm.generation.script import Input, Table

SIDE_FOLDER = "cosyserve"
"""Folder in a converted directory for files that only this project reads: loaders treat every
.safetensors file next to the weights as weights.
"""
VOCABULARY_FILE = f"{SIDE_FOLDER}/vocabulary.json"
HEAD_BIAS_FILE = f"{SIDE_FOLDER}/head_bias.safetensors"
HEAD_BIAS_TENSOR = "head_bias"
MASKED = -1e4
"""Head bias of a row that is no speech token. exp of it is 0 in every float type, float16 can
represent it, and unlike -inf a difference of two of them is not NaN.
"""
_ROWS_MULTIPLE = 128


@dataclass(frozen=True)
class ExtendedVocabulary:
    """The meaning of each id. text_ids: number of text ids, at least 1."""

    text_ids: int
    speech: SpeechVocabulary

    def __post_init__(self) -> None:
        if self.text_ids < 1:
            raise ValueError(f"text_ids is {self.text_ids}, must be at least 1")

    @property
    def end(self) -> int:
        return self.text_ids + self.speech.end

    @property
    def stops(self) -> tuple[int, ...]:
        """Ids that end a run: all special ones."""
        return tuple(self.text_ids + special for special in self.speech.special)

    @property
    def behind_speech(self) -> int:
        """The first id behind those of the head."""
        return self.text_ids + self.speech.rows

    @property
    def start(self) -> int:
        return self.behind_speech if self.speech.start is None else self.text_ids + self.speech.start

    @property
    def task(self) -> int:
        return self.behind_speech + 1 if self.speech.task is None else self.text_ids + self.speech.task

    @property
    def marks(self) -> int:
        """How many of start and task have ids behind those of the head: both, or none."""
        return (self.speech.start is None) + (self.speech.task is None)

    @property
    def tokens(self) -> int:
        """Number of tokens of the tokenizer."""
        return self.behind_speech + self.marks

    @property
    def rows(self) -> int:
        """Number of rows of the embedding and of the head."""
        return -(-self.tokens // _ROWS_MULTIPLE) * _ROWS_MULTIPLE

    @property
    def added_tokens(self) -> list[str]:
        """The tokens after the text ids, in order."""
        speech = [f"<|s_{index}|>" for index in range(self.speech.rows)]
        names = self.speech.special_names
        speech[self.speech.tokens : self.speech.tokens + len(names)] = names
        return [*speech, *("<|sos|>", "<|task_id|>")[: self.marks]]

    def id_of(self, item: Input) -> int:
        """The id of one position of model input."""
        if item.table is Table.SPECIAL:
            return (self.start, self.task)[item.row]
        return item.row if item.table is Table.TEXT else self.text_ids + item.row

    def sequence(self, prompt: Prompt, text: Sequence[int]) -> list[int]:
        """The first ids of a sentence: start, prompt text and text, task, prompt speech. Source:
        section 3.2.
        """
        spoken = (self.text_ids + token for token in prompt.speech_tokens)
        return [self.start, *prompt.text_ids, *text, self.task, *spoken]

    def speech_id(self, extended: int) -> int:
        """The id of the head that a generated id stands for. Raises InternalFault for an id that
        the logits processor never leaves.
        """
        speech = extended - self.text_ids
        if not 0 <= speech < self.speech.rows:
            raise InternalFault(
                f"the engine gave id {extended}, which is no speech token: its head runs without its bias or without "
                "the logits processor"
            )
        return speech

    def save(self, path: Path) -> None:
        """Write the file that `load` reads."""
        facts = {
            "text_ids": self.text_ids,
            "speech_rows": self.speech.rows,
            "tokens": self.tokens,
            "rows": self.rows,
            "speech": asdict(self.speech),
        }
        path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "ExtendedVocabulary":
        """Raises ModelError naming the file when it is missing, malformed or of another
        numbering.
        """
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            given = (facts["speech_rows"], facts["tokens"], facts["rows"])
            known = (cls(int(facts["text_ids"]), speech) for speech in _described(facts))
            vocabulary = next((one for one in known if (one.speech.rows, one.tokens, one.rows) == given), None)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(
                f"{path}: no description of an extended vocabulary ({type(error).__name__}: {error})"
            ) from error
        if vocabulary is None:
            raise ModelError(f"{path}: numbers its tokens in another way than this release; convert the model again")
        return vocabulary


def _described(facts: dict[str, Any]) -> Iterator[SpeechVocabulary]:
    """The speech vocabulary that the file describes. Files of release 0.2.0 have no description:
    those of the generations, of which one has that number of rows. Raises KeyError,
    TypeError.
    """
    if "speech" not in facts:
        yield from (generation.speech for generation in GENERATIONS)
    else:
        described = facts["speech"]
        yield SpeechVocabulary(**described | {"special_names": tuple(described["special_names"])})


def side_file(directory: Path, name: str) -> Path:
    """Path of HEAD_BIAS_FILE or VOCABULARY_FILE in a conversion, or in an engine, which has no side
    folder. Raises ModelError when it is in neither place.
    """
    for path in (directory / name, directory / Path(name).name):
        if path.is_file():
            return path
    raise ModelError(
        f"{directory / name}: missing; without it this conversion cannot be served: convert the model again"
    )


PROMPT_EMBEDDINGS_FILE = f"{SIDE_FOLDER}/prompt_embeddings.safetensors"
TEXT, MARKS = "text", "marks"
WEIGHTS_FILE = "model.safetensors"
SPEECH = "model.embed_tokens.weight"
"""The engine's own table, in WEIGHTS_FILE, in which it looks up the tokens that it generates."""


class PromptEmbeddings:
    """The tables are memory-mapped files, in the number type of the conversion."""

    def __init__(self, tables: Sequence[tuple[int, Tensor]]) -> None:
        """tables: the first id of each, and its rows [ids, hidden]."""
        self._tables = tables

    @classmethod
    def open(cls, directory: Path, vocabulary: ExtendedVocabulary) -> "PromptEmbeddings":
        """Raises ModelError when a table is missing or of another size."""
        try:
            prompt_tables, weights = load_file(directory / PROMPT_EMBEDDINGS_FILE), load_file(directory / WEIGHTS_FILE)
            text, speech = prompt_tables[TEXT], weights[SPEECH]
            marks = prompt_tables[MARKS] if vocabulary.marks else text[:0]
        except (OSError, KeyError, SafetensorError) as error:
            raise ModelError(
                f"{directory}: prompts cannot be looked up ({type(error).__name__}: {error}); convert the model again"
            ) from error
        rows, wanted = (
            (len(text), len(speech), len(marks)),
            (vocabulary.text_ids, vocabulary.speech.rows, vocabulary.marks),
        )
        if rows != wanted:
            raise ModelError(f"{directory}: tables of {rows} rows, {wanted} are needed; convert the model again")
        return cls(((0, text), (vocabulary.text_ids, speech), (vocabulary.behind_speech, marks)))

    def rows(self, ids: Sequence[int]) -> Tensor:
        """[len(ids), hidden] for ids of the extended vocabulary, at least 1."""
        wanted = torch.tensor(ids)
        rows = self._tables[0][1].new_empty(len(ids), self._tables[0][1].shape[1])
        for first, table in self._tables:
            here = (wanted >= first) & (wanted < first + len(table))
            rows[here] = table[wanted[here] - first]
        return rows
