"""CosyVoice2-0.5B (compatibility specification of CosyVoice2, sections 1 to 3)."""

from cosyserve.generations.generation import Generation, SpeechVocabulary, TextPrompt, WeightMark

SOUND_MARKS = (
    "[breath]", "<strong>", "</strong>", "[noise]", "[laughter]", "[cough]", "[clucking]", "[accent]",
    "[quick_breath]", "<laughter>", "</laughter>", "[hissing]", "[sigh]", "[vocalized-noise]", "[lipsmack]", "[mn]",
)  # fmt: skip
"""Sounds and manners of speaking that a text may ask for."""

COSYVOICE2 = Generation(
    name="cosyvoice2",
    title="CosyVoice2",
    # Older snapshots have only the second one.
    yaml_names=("cosyvoice2.yaml", "cosyvoice.yaml"),
    classes=(("llm", "Qwen2LM"), ("flow", "CausalMaskedDiffWithXvec"), ("hift", "HiFTGenerator")),
    speech=SpeechVocabulary(
        tokens=6561,
        rows=6564,
        end=6561,
        fill=6563,
        start=None,
        task=None,
        masked_by_reference=6561,
        head_bias=True,
        special_names=("<|eos1|>", "<|eos2|>", "<|eos3|>"),
    ),
    prompt=TextPrompt(end_mark="<|endofprompt|>", required=False, system=""),
    text_marks=("<|im_start|>", "<|im_end|>", "<|endofprompt|>", *SOUND_MARKS),
    silent=None,
    speech_tokenizer="speech_tokenizer_v2.onnx",
    mel_highest_hertz=8000.0,
    flow_network="conformer-unet",
    vocoder_network="hift",
    hold_back_frames=20,
    state_bytes_per_second=231_000_000,
    weight_marks=(WeightMark("flow.pt", "decoder.estimator.down_blocks."), WeightMark("hift.pt", "conv_pre.", taps=7)),
)
