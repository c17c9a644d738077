"""Whether a Hugging Face directory without our manifest, such as the published conversion, was made
of a model directory.
"""

from dataclasses import replace

import torch

from cosyserve.errors import ModelError
from cosyserve.spec import SPEECH_ROWS
from tools.model.checkpoints.llm_checkpoint import EMBEDDING, HEAD, HEAD_BIAS, LlmCheckpoint
from tools.model.checkpoints.tensor_file import Precision, Source, rounded


def as_conversion_of(checkpoint: LlmCheckpoint, model: LlmCheckpoint) -> LlmCheckpoint:
    """`checkpoint` under the identity of `model`, so that it is served and verified with that one.

    Every weight that is ever used has to be the model's, rounded to float32, bfloat16 or float16:
    text, speech and marks of the embedding, layers, and the speech part of the head and its bias.
    Raises ModelError naming the first tensor that is another.
    """
    if checkpoint.vocabulary != model.vocabulary:
        raise ModelError(
            f"its text ids are {checkpoint.vocabulary.text_ids}, those of the model are {model.vocabulary.text_ids}"
        )
    if replace(checkpoint.backbone, positions=0) != replace(model.backbone, positions=0):
        raise ModelError(f"its sizes are {checkpoint.backbone}, those of the model are {model.backbone}")
    theirs, ours = _used(checkpoint), _used(model)
    for name, tensor in ours.items():
        if not any(_equal(theirs[name], tensor, precision) for precision in Precision):
            raise ModelError(f"{name} is not the model's, in no number type: it was made of another model")
    return replace(checkpoint, identity=model.identity)


def _used(checkpoint: LlmCheckpoint) -> dict[str, Source]:
    vocabulary = checkpoint.vocabulary
    first, last = vocabulary.text_ids, vocabulary.text_ids + SPEECH_ROWS
    return {
        **checkpoint.tensors,
        EMBEDDING: checkpoint.tensors[EMBEDDING].rows(0, vocabulary.tokens),
        HEAD: checkpoint.tensors[HEAD].rows(first, last),
        HEAD_BIAS: checkpoint.head_bias.rows(first, last),
    }


def _equal(second: Source, wanted: Source, precision: Precision) -> bool:
    """Whether `second` is `wanted` rounded to this type."""
    try:
        return second.shape == wanted.shape and all(
            torch.equal(one, rounded(other, precision).float())
            for one, other in zip(second.blocks(), wanted.blocks(), strict=True)
        )
    except OverflowError:
        return False
