"""What a step receives is valid until the next step begins, in memory that is allocated once."""

import torch

from services.token2wav.gpu.device.host_staging import DeviceToHost


def test_results_stay_until_the_next_step_and_memory_is_used_again() -> None:
    to_host = DeviceToHost(pinned=False)
    sent = [torch.randn(3, 7), torch.arange(5), torch.randn(40, 24000), torch.randn(40, 24000), torch.randn(1)]
    places = []
    for _ in range(3):
        to_host.begin()
        received = [to_host.receive(each) for each in sent]
        for found, wanted in zip(received, sent, strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=0)
        places.append([each.data_ptr() for each in received])
        sent = [each + 1 for each in sent]
    assert places[0] == places[1] == places[2]
    assert len(set(places[0])) == len(sent)
