"""What is read of an output."""

import numpy as np
import pytest

from symattn.programs.frameworks import check_settled


def test_numbers_that_change_after_the_call_are_refused() -> None:
    before = np.array([1.0, np.nan])
    check_settled(before, before.copy())
    with pytest.raises(TypeError, match="another stream"):
        check_settled(before, np.array([2.0, np.nan]))


@pytest.mark.torch
@pytest.mark.cuda
def test_work_on_another_stream_is_noticed() -> None:
    import torch

    from symattn.programs.frameworks import read

    output, stream = torch.zeros(4, device="cuda"), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1 << 30)
        output.fill_(1.0)
    with pytest.raises(TypeError, match="another stream"):
        read(output)
