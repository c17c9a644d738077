"""The teacher's phonemes: misaki's notation, numbered as in the configuration of Kokoro-82M."""

_RUNS = {
    1: ";:,.!?",
    9: '—…"()“” \u0303ʣʥʦʨᵝꭧAI',
    31: "O",
    33: "Q",
    35: "ST",
    39: "W",
    41: "Yᵊabcdef",
    50: "hijklmnopqrstuvwxyzɑɐɒæ",
    75: "βɔɕç",
    80: "ɖðʤə",
    85: "ɚɛɜ",
    90: "ɟ",
    92: "ɡ",
    99: "ɥ",
    101: "ɨɪʝ",
    110: "ɯɰŋɳɲɴø",
    118: "ɸθœ",
    123: "ɹ",
    125: "ɾɻ",
    128: "ʁɽʂʃʈʧ",
    135: "ʊʋ",
    138: "ʌɣɤ",
    142: "χʎ",
    147: "ʒʔ",
    156: "ˈˌː",
    162: "ʰ",
    164: "ʲ",
    169: "↓",
    171: "→↗↘",
    177: "ᵻ",
}
_NUMBERS = {symbol: first + place for first, run in _RUNS.items() for place, symbol in enumerate(run)}


def numbers(phonemes: str) -> list[int]:
    """Token ids of a phoneme string, without the boundary symbols. Raises ValueError at a symbol
    that the teacher does not know.
    """
    try:
        return [_NUMBERS[symbol] for symbol in phonemes]
    except KeyError as error:
        raise ValueError(f"the teacher has no phoneme {error.args[0]!r}: {phonemes}") from None
