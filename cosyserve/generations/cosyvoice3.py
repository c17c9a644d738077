"""Fun-CosyVoice3-0.5B (compatibility specification of CosyVoice3, sections 1 to 3), and the
phonemes and parts of syllables for which its text tokenizer has tokens, in the order of their ids
(section 2.1). Upper and lower case differ: `[K]` is a phoneme, `[k]` an initial.
"""

from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.generation import Generation, SilentTokens, SpeechVocabulary, TextPrompt, WeightMark

_PHONEMES = """
    AA AA0 AA1 AA2 AE AE0 AE1 AE2 AH AH0 AH1 AH2 AO AO0 AO1 AO2 AW AW0 AW1 AW2 AY AY0 AY1 AY2 B
    CH D DH EH EH0 EH1 EH2 ER ER0 ER1 ER2 EY EY0 EY1 EY2 F G HH IH IH0 IH1 IH2 IY IY0 IY1 IY2 JH
    K L M N NG OW OW0 OW1 OW2 OY OY0 OY1 OY2 P R S SH T TH UH UH0 UH1 UH2 UW UW0 UW1 UW2 V W Y Z
    ZH
"""
_PINYIN = """
    a ai an ang ao b c ch d e ei en eng f g h i ian in ing iu ià iàn iàng iào iá ián iáng iáo iè
    ié iòng ióng iù iú iā iān iāng iāo iē iě iōng iū iǎ iǎn iǎng iǎo iǒng iǔ j k l m n o ong ou
    p q r s sh t u uang ue un uo uà uài uàn uàng uá uái uán uáng uè ué uì uí uò uó uā uāi uān
    uāng uē uě uī uō uǎ uǎi uǎn uǎng uǐ uǒ vè w x y z zh à ài àn àng ào á ái án áng áo è èi èn
    èng èr é éi én éng ér ì ìn ìng í ín íng ò òng òu ó óng óu ù ùn ú ún ā āi ān āng āo ē ēi ēn
    ēng ě ěi ěn ěng ěr ī īn īng ō ōng ōu ū ūn ǎ ǎi ǎn ǎng ǎo ǐ ǐn ǐng ǒ ǒng ǒu ǔ ǔn ǘ ǚ ǜ
"""

PHONEMES = tuple(_PHONEMES.split())
"""ARPAbet, as in the CMU dictionary; vowels also with their stress, 0 to 2."""
PINYIN = tuple(_PINYIN.split())
"""Initials, finals without a tone, and finals with the mark of their tone; not every final has
every tone.
"""


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
