"""The silence between two sentences, where the request leaves it to us."""

from services.orchestrator.sentence_pause import LONG_TOKENS, SENTENCE_PAUSE_MILLISECONDS, SHORT_TOKENS, default_pause


def test_short_replies_follow_at_once_and_sentences_after_a_breath() -> None:
    assert [default_pause(tokens) for tokens in (0, 1, SHORT_TOKENS)] == [0, 0, 0]
    assert [default_pause(tokens) for tokens in (LONG_TOKENS, 500)] == [SENTENCE_PAUSE_MILLISECONDS] * 2
    assert default_pause(35) == 100
    between = [default_pause(tokens) for tokens in range(SHORT_TOKENS, LONG_TOKENS + 1)]
    assert between == sorted(between)
