"""What is counted in this process, as a scraper reads it."""

import gc

from opentelemetry.sdk.trace import TracerProvider

from cosyserve.metrics import hang_up, names
from cosyserve.metrics.exposition import Exemplar
from cosyserve.metrics.instruments import RecentTotals, gauge, histogram
from tests.stacks.telemetry.scraping import reader


class Owner:
    def __init__(self, value: float) -> None:
        self.value = value


def test_a_gauge_is_read_from_those_who_live() -> None:
    before = reader().scrape("llm").count(names.LLM_RUNNING)
    first, second = Owner(3), Owner(4)
    for owner in (first, second):
        gauge(names.LLM_RUNNING).watch(owner, lambda owner: owner.value)
    assert reader().scrape("llm").count(names.LLM_RUNNING) == before + 7
    first.value = 0
    assert reader().scrape("llm").count(names.LLM_RUNNING) == before + 4
    gauge(names.LLM_RUNNING).forget(second)
    assert reader().scrape("llm").count(names.LLM_RUNNING) == before
    del first
    gc.collect()
    assert reader().scrape("llm").count(names.LLM_RUNNING) == before


def test_the_oldest_of_several_queues_counts() -> None:
    owners = [Owner(1_000.0), Owner(2_000.0)]
    for owner in owners:
        gauge(names.QUEUE_AGE).watch(owner, lambda owner: owner.value)
    assert reader().scrape("llm").count(names.QUEUE_AGE) == 2_000


def test_a_series_that_is_known_begins_at_zero() -> None:
    scrape = reader().scrape("orchestrator")
    known = [sample for sample in scrape.samples if sample.name == "cosyserve_first_sound_term_seconds_count"]
    assert {sample.labels["term"] for sample in known} >= set(names.TERMS)


def test_the_keys_used_last_have_series() -> None:
    totals = RecentTotals(names.KEY_REQUESTS, most=3)
    for key in ("a", "b", "c", "a", "d"):
        totals.add(2, key=key, tenant="clinic", status="OK")
    assert {labels["key"]: value for labels, value in totals.read()} == {"c": 2, "a": 4, "d": 2}
    assert reader().scrape("orchestrator").count(names.KEY_REQUESTS, key="a", tenant="clinic") == 4


def test_a_hang_up_is_over_when_everybody_has_let_go() -> None:
    def counted() -> tuple[float, float]:
        scrape = reader().scrape("llm")
        return scrape.count(names.CANCELS), scrape.count(names.CANCEL_SECONDS)

    cancels, seconds = counted()
    call = hang_up.begin()
    held = hang_up.of_call().hold()
    assert held is call
    call.notice()
    call.release()
    assert counted() == (cancels, seconds), "an engine still holds something"
    held.release()
    assert counted() == (cancels + 1, seconds + 1)
    calm = hang_up.begin()
    calm.release()
    assert counted() == (cancels + 1, seconds + 1), "nobody hung up"


def test_an_exemplar_names_the_trace_of_its_measurement() -> None:
    tracer = TracerProvider().get_tracer("test")
    with tracer.start_as_current_span("request") as span:
        histogram(names.STAGE_FIRST_RESULT).record(0.35)
    context = span.get_span_context()
    histogram(names.STAGE_FIRST_RESULT).record(0.36)  # without a trace: the exemplar stays
    for _ in range(2):  # each of several scrapers gets it
        scrape = reader().scrape("llm", open_metrics=True)
        (sample,) = [
            sample
            for sample in scrape.samples
            if sample.name == "cosyserve_stage_first_result_seconds_bucket" and sample.labels["le"] == "0.4"
        ]
        found = sample.exemplar
        assert found is not None
        exemplar = Exemplar(found.labels["trace_id"], found.labels["span_id"], found.value, float(found.timestamp))
        assert exemplar.trace_id == f"{context.trace_id:032x}"
        assert exemplar.span_id == f"{context.span_id:016x}"
        assert exemplar.value == 0.35
