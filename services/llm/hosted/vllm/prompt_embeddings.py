"""Embedding lookup for an engine that takes prompts as embeddings: the tables of the vLLM export,
indexed by ids of the extended vocabulary.

    text [text_ids, hidden]    speech [6564, hidden]    marks [2, hidden]: start, task

Source: compatibility specification sections 3.2 and 7.6.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.spec import SPEECH_ROWS
from services.llm.hosted.extended_vocabulary import SIDE_FOLDER, ExtendedVocabulary

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
