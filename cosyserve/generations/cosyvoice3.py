"""Fun-CosyVoice3-0.5B (compatibility specification of CosyVoice3, sections 1 to 3)."""

from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.generation import Generation, SilentTokens, SpeechVocabulary, TextPrompt, WeightMark
from cosyserve.generations.pronunciation_marks import PHONEMES, PINYIN

COSYVOICE3 = Generation(
    name="cosyvoice3",
    title="CosyVoice3",
    yaml_names=("cosyvoice3.yaml",),
    classes=(("llm", "CosyVoice3LM"), ("flow", "CausalMaskedDiffWithDiT"), ("hift", "CausalHiFTGenerator")),
    speech=SpeechVocabulary(
        tokens=6561,
        rows=6761,
        end=6562,
        fill=6564,
        start=6561,
        task=6563,
        masked_by_reference=6561,
        head_bias=False,
        special_names=("<|sos|>", "<|eos1|>", "<|task_id|>", "<|fill|>"),
    ),
    prompt=TextPrompt(end_mark="<|endofprompt|>", required=True, system="You are a helpful assistant."),
    text_marks=(*COSYVOICE2.text_marks, "<|endofsystem|>", *(f"[{mark}]" for mark in PHONEMES + PINYIN)),
    silent=SilentTokens(
        ids=frozenset({1, 2, 28, 29, 55, 248, 494, 2241, 2242, 2322, 2323}),
        longest_run=5,
    ),
    speech_tokenizer="speech_tokenizer_v3.onnx",
    mel_highest_hertz=12_000.0,
    flow_network="dit",
    vocoder_network="causal-hift",
    # And three samples.
    hold_back_frames=4,
    state_bytes_per_second=180_000_000,
    weight_marks=(WeightMark("flow.pt", "pre_lookahead_layer."), WeightMark("hift.pt", "conv_pre.", taps=5)),
)
