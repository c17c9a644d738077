"""The text files of the model directory: sizes of every network, under the published file and key
names.

`WORK/model` is written once and read by every training through the services' own readers, so sizes
stand in one place.
"""

import json
from pathlib import Path

from cosyserve.model_directory import ModelDirectory
from services.frontend.prompts.finer_reading import FILE as READING
from services.frontend.prompts.finer_reading import KEY as FRAME_STEP

TEXT_ROWS = 80
"""Rows of the text embedding: the phoneme symbols and some to spare."""

YAML = """\
# Sizes of the bundled voice. The keys are those of a published CosyVoice2 directory, but for three that
# are arguments of the reference when it speaks (min_token_text_ratio, max_token_text_ratio, temperature) and two of \
our own
# (text.split, llm.shortest_limit). Tags are data; nothing is constructed.
sample_rate: 24000
llm_input_size: 256
llm_output_size: 256
spk_embed_dim: 192
qwen_pretrain_path: ''
token_frame_rate: 25
token_mel_ratio: 2
chunk_size: 25
num_decoding_left_chunks: -1

text:
    # The model was trained on sentences one by one: of several in one utterance it leaves words out.
    split: 'sentences'

llm: !new:cosyvoice.llm.llm.Qwen2LM
    llm_input_size: !ref <llm_input_size>
    llm_output_size: !ref <llm_output_size>
    speech_token_size: 6561
    # Text ids are phonemes, about 1.4 speech tokens each, where the published model's BPE ids stand for about seven.
    mix_ratio: [15, 15]
    min_token_text_ratio: 0.6
    max_token_text_ratio: 4
    # Two seconds: "Ah." has 4 ids and takes 17 tokens, most of them the quiet around it.
    shortest_limit: 50
    sampling: !name:cosyvoice.utils.common.ras_sampling
        top_p: 0.3
        top_k: 5
        win_size: 10
        tau_r: 0.5

flow: !new:cosyvoice.flow.flow.CausalMaskedDiffWithXvec
    input_size: 96
    output_size: 80
    spk_embed_dim: !ref <spk_embed_dim>
    output_type: 'mel'
    vocab_size: 6561
    input_frame_rate: !ref <token_frame_rate>
    only_mask_loss: True
    token_mel_ratio: !ref <token_mel_ratio>
    pre_lookahead_len: 3
    encoder: !new:cosyvoice.transformer.upsample_encoder.UpsampleConformerEncoder
        output_size: 192
        attention_heads: 4
        linear_units: 384
        num_blocks: 3
        normalize_before: True
        input_layer: 'linear'
        pos_enc_layer_type: 'rel_pos_espnet'
        selfattention_layer_type: 'rel_selfattn'
        input_size: 96
        use_cnn_module: False
        macaron_style: False
        static_chunk_size: !ref <chunk_size>
    decoder: !new:cosyvoice.flow.flow_matching.CausalConditionalCFM
        in_channels: 240
        n_spks: 1
        spk_emb_dim: 80
        # The reference's inference argument, 1 by default. Less noise suits a flow as small as this one.
        temperature: 0.3
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
            channels: [128]
            dropout: 0.0
            attention_head_dim: 32
            n_blocks: 1
            num_mid_blocks: 4
            num_heads: 4
            act_fn: 'gelu'
            static_chunk_size: !ref <chunk_size> * <token_mel_ratio>
            num_decoding_left_chunks: !ref <num_decoding_left_chunks>

hift: !new:cosyvoice.hifigan.generator.HiFTGenerator
    in_channels: 80
    base_channels: 192
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
        cond_channels: 128

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

CONVERSION = {FRAME_STEP: 110}
"""A recording that is converted is read with frames 6.9 ms apart in place of 10: 36 tokens a
second.
"""

BACKBONE = {
    "model_type": "qwen2", "hidden_act": "silu", "hidden_size": 256, "intermediate_size": 576, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": TEXT_ROWS, "rope_theta": 10000.0,
    "rms_norm_eps": 1e-06,
    "tie_word_embeddings": True, "max_position_embeddings": 8192,
}  # fmt: skip


def model_directory(work: Path) -> ModelDirectory:
    """`WORK/model` with the yaml, the backbone's config and the reading of conversions in it; files
    that are there already are left as they are.
    """
    directory = work / "model"
    for name, content in {
        "cosyvoice2.yaml": YAML,
        "CosyVoice-BlankEN/config.json": json.dumps(BACKBONE, indent=1) + "\n",
        READING: json.dumps(CONVERSION) + "\n",
    }.items():
        path = directory / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    return ModelDirectory(directory)
