"""The vLLM export: the model as a speaker of 6564 ids, whose prompts come as embeddings.

    config.json  model.safetensors             embed_tokens and lm_head hold the speech tokens only;
                                               the head has its bias
    cosyserve/prompt_embeddings.safetensors    text [text_ids, hidden], marks [2, hidden]: tables
                                               in which the prompt is looked up
    cosyserve/vocabulary.json

The architecture's name is none of vLLM's own: `services.llm.hosted.vllm.vllm_plugin` registers a
Qwen2 with a biased head under it. Source: compatibility specification section 7.6.
"""

import json
from typing import Any

from cosyserve.spec import SPEECH_ROWS
from services.llm.hosted.extended_vocabulary import MARKS, PROMPT_EMBEDDINGS_FILE, TEXT, VOCABULARY_FILE, WEIGHTS_FILE
from services.llm.hosted.vllm.vllm_plugin import ARCHITECTURE
from tools.model.checkpoints.hugging_face import Weights, model_config
from tools.model.checkpoints.llm_checkpoint import EMBEDDING, HEAD, HEAD_BIAS, LlmCheckpoint
from tools.model.checkpoints.tensor_file import Precision, rows
from tools.model.output.complete_directory import Assembly


def weights(checkpoint: LlmCheckpoint) -> Weights:
    """The large files."""
    first, last = checkpoint.vocabulary.text_ids, checkpoint.vocabulary.text_ids + SPEECH_ROWS
    embedding, head = checkpoint.tensors[EMBEDDING], checkpoint.tensors[HEAD]
    speech = {
        EMBEDDING: rows(embedding, first, last),
        HEAD: rows(head, first, last),
        HEAD_BIAS: rows(checkpoint.head_bias, first, last),
    }
    prompt = {TEXT: rows(embedding, 0, first), MARKS: rows(embedding, last, last + 2)}
    return {PROMPT_EMBEDDINGS_FILE: prompt, WEIGHTS_FILE: {**checkpoint.tensors, **speech}}


def write_small_files(checkpoint: LlmCheckpoint, assembly: Assembly, precision: Precision) -> None:
    """All but `weights`."""
    config = json.dumps(export_config(checkpoint, precision), indent=1) + "\n"
    assembly.file("config.json", lambda path: path.write_text(config, encoding="utf-8"))
    assembly.file(VOCABULARY_FILE, checkpoint.vocabulary.save)


def export_config(checkpoint: LlmCheckpoint, precision: Precision) -> dict[str, Any]:
    """config.json of the export; stop ids are the server's to give with each request."""
    config = model_config(checkpoint, precision)
    del config["eos_token_id"]
    return config | {"architectures": [ARCHITECTURE], "vocab_size": SPEECH_ROWS, "use_bias": True}
