"""Models of Transformers and torch while they run: every call seen, right ones pass, seeded faults are named."""

import pytest

from symattn import InputError, audit
from symattn.models.auditing.promises import number_of_layer

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]


def test_sdpa_is_read_and_passes() -> None:
    q, k, v = (torch.randn(2, 3, 20, 8) for _ in range(3))
    with audit() as report:
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert [f.state for f in report.findings] == ["pass as given"]
    assert report.exit_code == 0
    report.raise_if_wrong(strict=True)  # nothing was promised, so that nothing is undecided


def test_nothing_is_left_behind() -> None:
    before = torch.nn.functional.scaled_dot_product_attention
    with audit():
        assert torch.nn.functional.scaled_dot_product_attention is not before
    assert torch.nn.functional.scaled_dot_product_attention is before


def test_a_wrong_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        torch.nn.functional, "scaled_dot_product_attention", lambda q, k, v, **more: right(q, k, v, scale=0.125)
    )
    q, k, v = (torch.randn(2, 3, 20, 8) for _ in range(3))
    with audit() as report:
        torch.nn.functional.scaled_dot_product_attention(q, k, v)
    assert report.exit_code == 1
    assert report.findings[0].cause == "scores are scaled by 1/d_k"
    with pytest.raises(AssertionError, match="CERTIFIED WRONG"):
        report.raise_if_wrong()


def test_dropout_is_refused() -> None:
    q, k, v = (torch.randn(1, 1, 4, 8) for _ in range(3))
    with audit() as report:
        torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    assert report.exit_code == 3
    assert "dropout of 0.5 is on" in report.findings[0].verdict
    with pytest.raises(AssertionError, match=r"undecided: 1 of 1 calls \(1 cannot be determined\)"):
        report.raise_if_wrong(strict=True)


def test_no_call_is_no_pass() -> None:
    with audit(torch.nn.Linear(2, 2)) as report:
        pass
    assert report.exit_code == 3


def test_bad_input_is_one_line() -> None:
    for wrong in ({"model": 3}, {"contract": "loose"}, {"rows": 0}):
        with pytest.raises(InputError, match=r"audit:|contract|rows must be"):
            audit(**wrong)  # type: ignore[arg-type]


def test_an_index_below_zero_is_none_of_a_layer() -> None:
    module = torch.nn.Identity()
    for own, number in ((-1, 3), (2, 2)):
        module.layer_idx = own
        assert number_of_layer(module, "model.layers.3.self_attn") == number
