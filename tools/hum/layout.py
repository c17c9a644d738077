"""The parts of the bundled model directory that are text: sizes and tokenizer, under the published file and key names."""

import json
from pathlib import Path

from services.frontend.tokenizer import CONTROLS, FOLDER, MARKUP

BYTES = 256
TEXT_VOCABULARY = BYTES + len(CONTROLS) + len(MARKUP)

YAML = """\
# Sizes of the bundled model, which hums. The keys are those of a published CosyVoice2 directory; tags are data, nothing is constructed.
sample_rate: 24000
llm_input_size: 64
llm_output_size: 64
spk_embed_dim: 192
qwen_pretrain_path: ''
token_frame_rate: 25
token_mel_ratio: 2
chunk_size: 25
num_decoding_left_chunks: -1

llm: !new:cosyvoice.llm.llm.Qwen2LM
    llm_input_size: !ref <llm_input_size>
    llm_output_size: !ref <llm_output_size>
    speech_token_size: 6561
    mix_ratio: [5, 15]
    sampling: !name:cosyvoice.utils.common.ras_sampling
        top_p: 0.8
        top_k: 25
        win_size: 10
        tau_r: 0.1

flow: !new:cosyvoice.flow.flow.CausalMaskedDiffWithXvec
    input_size: 48
    output_size: 80
    spk_embed_dim: !ref <spk_embed_dim>
    output_type: 'mel'
    vocab_size: 6561
    input_frame_rate: !ref <token_frame_rate>
    only_mask_loss: True
    token_mel_ratio: !ref <token_mel_ratio>
    pre_lookahead_len: 3
    encoder: !new:cosyvoice.transformer.upsample_encoder.UpsampleConformerEncoder
        output_size: 48
        attention_heads: 4
        linear_units: 96
        num_blocks: 2
        normalize_before: True
        input_layer: 'linear'
        pos_enc_layer_type: 'rel_pos_espnet'
        selfattention_layer_type: 'rel_selfattn'
        input_size: 48
        use_cnn_module: False
        macaron_style: False
        static_chunk_size: !ref <chunk_size>
    decoder: !new:cosyvoice.flow.flow_matching.CausalConditionalCFM
        in_channels: 240
        n_spks: 1
        spk_emb_dim: 80
        cfm_params: !new:omegaconf.DictConfig
            content:
                sigma_min: 1e-06
                solver: 'euler'
                t_scheduler: 'cosine'
                training_cfg_rate: 0.2
                inference_cfg_rate: 0.7
                reg_loss_type: 'l1'
        estimator: !new:cosyvoice.flow.decoder.CausalConditionalDecoder
            in_channels: 320
            out_channels: 80
            channels: [32]
            dropout: 0.0
            attention_head_dim: 16
            n_blocks: 1
            num_mid_blocks: 2
            num_heads: 2
            act_fn: 'gelu'
            static_chunk_size: !ref <chunk_size> * <token_mel_ratio>
            num_decoding_left_chunks: !ref <num_decoding_left_chunks>

hift: !new:cosyvoice.hifigan.generator.HiFTGenerator
    in_channels: 80
    base_channels: 32
    nb_harmonics: 8
    sampling_rate: !ref <sample_rate>
    nsf_alpha: 0.1
    nsf_sigma: 0.003
    nsf_voiced_threshold: 10
    upsample_rates: [8, 5, 3]
    upsample_kernel_sizes: [16, 11, 7]
    istft_params:
        n_fft: 16
        hop_len: 4
    resblock_kernel_sizes: [3, 7, 11]
    resblock_dilation_sizes: [[1, 3, 5], [1, 3, 5], [1, 3, 5]]
    source_resblock_kernel_sizes: [7, 7, 11]
    source_resblock_dilation_sizes: [[1, 3, 5], [1, 3, 5], [1, 3, 5]]
    lrelu_slope: 0.1
    audio_limit: 0.99
    f0_predictor: !new:cosyvoice.hifigan.f0_predictor.ConvRNNF0Predictor
        num_class: 1
        in_channels: 80
        cond_channels: 32

get_tokenizer: !name:cosyvoice.tokenizer.tokenizer.get_qwen_tokenizer
    token_path: !ref <qwen_pretrain_path>
    skip_special_tokens: True
allowed_special: 'all'
feat_extractor: !name:matcha.utils.audio.mel_spectrogram
    n_fft: 1920
    num_mels: 80
    sampling_rate: !ref <sample_rate>
    hop_size: 480
    win_size: 1920
    fmin: 0
    fmax: 8000
    center: False
"""


def write(directory: Path) -> None:
    """Write the yaml, and the folder of the text side: a vocabulary of the 256 bytes, no merges."""
    (directory / "cosyvoice2.yaml").write_text(YAML, encoding="utf-8")
    folder = directory / FOLDER
    folder.mkdir(exist_ok=True)
    end, start, stop = BYTES, BYTES + 1, BYTES + 2
    config = {
        "model_type": "qwen2", "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": TEXT_VOCABULARY, "rope_theta": 1000000.0,
        "rms_norm_eps": 1e-06, "tie_word_embeddings": True, "max_position_embeddings": 2048, "bos_token_id": end, "eos_token_id": stop,
    }  # fmt: skip
    specials = {end: "<|endoftext|>", start: "<|im_start|>", stop: "<|im_end|>"}
    plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    tokenizer = {
        "tokenizer_class": "Qwen2Tokenizer",
        "add_prefix_space": False,
        "added_tokens_decoder": {str(number): {"content": content} | plain for number, content in specials.items()},
        "additional_special_tokens": [specials[start], specials[stop]],
        "eos_token": specials[end],
        "pad_token": specials[end],
        "bos_token": None,
        "unk_token": None,
        "errors": "replace",
    }
    _dump(folder / "config.json", config)
    _dump(folder / "generation_config.json", {"bos_token_id": end, "eos_token_id": [stop, end], "do_sample": True})
    _dump(folder / "tokenizer_config.json", tokenizer)
    _dump(folder / "vocab.json", {character: number for number, character in enumerate(_byte_characters())})
    (folder / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")


def _byte_characters() -> list[str]:
    """The printable character that stands for each byte in byte-level vocabularies: itself where it is one, else U+0100 and up."""
    itself = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in itself else next(others)) for byte in range(BYTES)]


def _dump(path: Path, content: dict[str, object] | dict[str, int]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
