"""The metrics of several processes as those of one service."""

import json

from cosyserve.metrics import names
from cosyserve.metrics.exposition import Buckets, Exemplar, Family
from cosyserve.metrics.merged import counted, from_json, merged, to_json

OK, LATE = (("method", "Synthesize"), ("status", "OK")), (("method", "Synthesize"), ("status", "INTERNAL"))
METHOD = (("method", "Synthesize"),)


def families(requests: int, tasks: int, age: float, exemplar: Exemplar) -> list[Family]:
    counts = [requests, *[0] * len(names.FIRST_BYTE.borders)]
    return [
        Family(names.REQUESTS, [(OK, float(requests)), *([(LATE, 1.0)] if requests > 2 else [])]),
        Family(names.TASKS, [((), float(tasks))]),
        Family(names.QUEUE_AGE, [((), age)]),
        Family(names.FIRST_BYTE, histograms=[(METHOD, Buckets(counts, 0.25 * requests, {0: exemplar}))]),
    ]


def test_counts_add_up_and_gauges_are_put_together_as_those_of_one_process() -> None:
    old, new = Exemplar("a", "b", 0.1, 1.0), Exemplar("c", "d", 0.2, 2.0)
    one, other = families(2, 10, 0.5, new), families(3, 7, 0.25, old)
    written = json.loads(json.dumps(to_json(one)))
    assert json.loads(json.dumps(to_json(from_json(written)))) == written
    both = {family.metric: family for family in merged([from_json(written), other])}
    assert dict(both[names.REQUESTS].numbers) == {OK: 5.0, LATE: 1.0}
    assert dict(both[names.TASKS].numbers) == {(): 17.0}
    assert dict(both[names.QUEUE_AGE].numbers) == {(): 0.5}
    ((labels, buckets),) = both[names.FIRST_BYTE].histograms
    assert (labels, buckets.counts[0], buckets.total, buckets.exemplars) == (METHOD, 5, 1.25, {0: new})


def test_what_an_ended_process_had_counted_stays() -> None:
    gone = counted(families(2, 10, 0.5, Exemplar("a", "b", 0.1, 1.0)))
    after = {family.metric: family for family in merged([families(3, 7, 0.25, Exemplar("c", "d", 0.2, 2.0)), gone])}
    assert dict(after[names.REQUESTS].numbers)[OK] == 5.0
    assert dict(after[names.TASKS].numbers) == {(): 7.0}
