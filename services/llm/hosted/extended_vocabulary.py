"""One vocabulary for text, speech and the marks of the prompt layout, for engines that have one
embedding table and one head.

    id                             what                       token
    0 to text_ids - 1              text                       the tokenizer's own
    text_ids + 0 to + 6560         speech tokens              <|s_0|> to <|s_6560|>
    text_ids + 6561, 6562, 6563    end, reserved, fill        <|eos1|> <|eos2|> <|eos3|>
    text_ids + 6564, 6565          start, task                <|sos|> <|task_id|>
    up to rows - 1                 padding                    none

The published tokenizer has 151663 text ids, which makes 158229 tokens and 158336 rows. Source:
compatibility specification section 7.1.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from cosyserve.errors import InternalFault, ModelError
from cosyserve.spec import END_OF_SPEECH, FILL, RESERVED_SPEECH, SPEECH_ROWS, SPEECH_VOCABULARY
from services.llm.generation.request import Prompt

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

    def __post_init__(self) -> None:
        if self.text_ids < 1:
            raise ValueError(f"text_ids is {self.text_ids}, must be at least 1")

    @property
    def end(self) -> int:
        return self.text_ids + END_OF_SPEECH

    @property
    def stops(self) -> tuple[int, int, int]:
        """Ids that end a run: end, reserved and fill."""
        return self.end, self.text_ids + RESERVED_SPEECH, self.text_ids + FILL

    @property
    def start(self) -> int:
        return self.text_ids + SPEECH_ROWS

    @property
    def task(self) -> int:
        return self.start + 1

    @property
    def tokens(self) -> int:
        """Number of tokens of the tokenizer."""
        return self.task + 1

    @property
    def rows(self) -> int:
        """Number of rows of the embedding and of the head."""
        return -(-self.tokens // _ROWS_MULTIPLE) * _ROWS_MULTIPLE

    @property
    def added_tokens(self) -> list[str]:
        """The tokens after the text ids, in order."""
        speech = [f"<|s_{index}|>" for index in range(SPEECH_VOCABULARY)]
        return [*speech, "<|eos1|>", "<|eos2|>", "<|eos3|>", "<|sos|>", "<|task_id|>"]

    def sequence(self, prompt: Prompt, text: Sequence[int]) -> list[int]:
        """The first ids of a sentence: start, prompt text and text, task, prompt speech. Source:
        section 3.2.
        """
        spoken = (self.text_ids + token for token in prompt.speech_tokens)
        return [self.start, *prompt.text_ids, *text, self.task, *spoken]

    def speech_id(self, extended: int) -> int:
        """The speech id, 0 to 6563, of a generated id. Raises InternalFault for an id that a head
        with its bias cannot produce.
        """
        speech = extended - self.text_ids
        if not 0 <= speech < SPEECH_ROWS:
            raise InternalFault(
                f"the engine gave id {extended}, which is no speech token: its head runs without its bias"
            )
        return speech

    def save(self, path: Path) -> None:
        """Write the file that `load` reads."""
        facts = {"text_ids": self.text_ids, "speech_rows": SPEECH_ROWS, "tokens": self.tokens, "rows": self.rows}
        path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "ExtendedVocabulary":
        """Raises ModelError naming the file when it is missing, malformed or of another
        numbering.
        """
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            vocabulary = cls(int(facts["text_ids"]))
            same = (facts["speech_rows"], facts["tokens"], facts["rows"]) == (
                SPEECH_ROWS,
                vocabulary.tokens,
                vocabulary.rows,
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(
                f"{path}: no description of an extended vocabulary ({type(error).__name__}: {error})"
            ) from error
        if not same:
            raise ModelError(f"{path}: numbers its tokens in another way than this release; convert the model again")
        return vocabulary


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
            text, speech, marks = prompt_tables[TEXT], weights[SPEECH], prompt_tables[MARKS]
        except (OSError, KeyError, SafetensorError) as error:
            raise ModelError(
                f"{directory}: prompts cannot be looked up ({type(error).__name__}: {error}); convert the model again"
            ) from error
        rows, wanted = (len(text), len(speech), len(marks)), (vocabulary.text_ids, SPEECH_ROWS, 2)
        if rows != wanted:
            raise ModelError(f"{directory}: tables of {rows} rows, {wanted} are needed; convert the model again")
        return cls(((0, text), (vocabulary.text_ids, speech), (vocabulary.start, marks)))

    def rows(self, ids: Sequence[int]) -> Tensor:
        """[len(ids), hidden] for ids of the extended vocabulary, at least 1."""
        wanted = torch.tensor(ids)
        rows = self._tables[0][1].new_empty(len(ids), self._tables[0][1].shape[1])
        for first, table in self._tables:
            here = (wanted >= first) & (wanted < first + len(table))
            rows[here] = table[wanted[here] - first]
        return rows
