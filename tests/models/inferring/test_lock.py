"""The lock: the same lines again from the same code, and a line that differs where the code changed."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from cli.main import main  # noqa: E402
from symattn import InputError, audit, configurations  # noqa: E402
from symattn.models.inferring.inferred_call import CallFacts  # noqa: E402
from tests.models.inferring.measure import tokens  # noqa: E402

pytestmark = pytest.mark.transformers
_LLAMA = "transformers.models.llama.modeling_llama."


@pytest.fixture
def lock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["models", "lock", "llama", "mamba2"]) == 0
    path = tmp_path / "models.lock"
    path.write_text(capsys.readouterr().out)
    return path


def test_a_lock_has_a_line_for_each_kind_of_part(lock: Path) -> None:
    head, *lines = lock.read_text().splitlines()
    assert head.startswith("# inferred (transformers ")
    assert [line.partition(" | ")[0] for line in lines] == ["llama", "mamba2"]
    assert "kv_heads = num_key_value_heads, scale = 1/√d_k" in lines[0]
    assert "q = rotation ← q_proj" in lines[0]
    assert "convolution of 4 tokens, silu | state space of Mamba-2, gates of tokens, D x added" in lines[1]
    assert "taps = conv1d.weight" in lines[1]
    assert "g = −exp(A_log) softplus(in_proj from column 272 on + dt_bias)" in lines[1]
    after = "times norm.weight ← rms norm over all columns, ε = 1e-05 ← silu(in_proj)"
    assert f"o = out_proj ← {after}" in lines[1]


def test_the_same_code_gives_the_same_lines(lock: Path) -> None:
    assert main(["models", "check", str(lock)]) == 0


def _made(change: dict[str, Any]) -> Any:
    own = patch(_LLAMA + "LlamaAttention.__init__").get_original()[0]

    def made(self: Any, *given: Any, **more: Any) -> None:
        own(self, *given, **more)
        for name, value in change.items():
            setattr(self, name, value)

    return made


@pytest.mark.parametrize("change", [{"scaling": 0.3}, {"scaling": 1.0}])
def test_changed_code_gives_other_lines(lock: Path, change: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    with patch(_LLAMA + "LlamaAttention.__init__", _made(change)):
        assert main(["models", "check", str(lock)]) == 1
    assert "1 line is gone and 1 is new, of 2 model types" in " ".join(capsys.readouterr().out.split())


def test_a_line_says_where_heads_are_projected() -> None:
    steps = configurations.parts_of(configurations.tiny("gpt_neox"))[0].chain
    assert steps["q"] == "rotation ← query_key_value (heads 48 columns apart)"
    assert steps["v"] == "query_key_value (from column 32 on, heads 48 columns apart)"


def test_a_head_that_differs_from_the_first_is_noticed() -> None:
    own = patch(_LLAMA + "apply_rotary_pos_emb").get_original()[0]

    def with_one_head_doubled(q: Any, k: Any, cos: Any, sin: Any, **more: Any) -> Any:
        factors = torch.ones(q.shape[1], 1, 1, dtype=q.dtype)
        factors[1] = 2
        return own(q * factors, k, cos, sin, **more)

    with patch(_LLAMA + "apply_rotary_pos_emb", with_one_head_doubled):
        parts = configurations.parts_of(configurations.tiny("llama"))
    assert all(part.missing == ["heads of queries that differ in their steps"] for part in parts)


def _with_pairs_in_another_order(own: Any) -> Any:
    def rotated(q: Any, k: Any, *places: Any, **more: Any) -> Any:
        half = q.shape[-1] // 2
        order = [1, 0, *range(2, half)]
        columns = [*order, *(half + i for i in order)]
        return own(q[..., columns], k[..., columns], *places, **more)

    return rotated


def _with_heads_of_beta_exchanged(own: Any) -> Any:
    def split(self: Any, *mixed: Any) -> Any:
        *qkvz, b, a = own(self, *mixed)
        return *qkvz, b.flip(-1), a

    return split


def _with_columns_of_values_in_turn(own: Any) -> Any:
    def split(self: Any, *mixed: Any) -> Any:
        q, k, v, *rest = own(self, *mixed)
        return q, k, v.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2), *rest

    return split


_ORDERING = "transformers.models.qwen3_next.modeling_qwen3_next.Qwen3NextGatedDeltaNet.fix_query_key_value_ordering"


@pytest.mark.parametrize(
    ("model_type", "path", "change", "words"),
    [
        (
            "llama",
            _LLAMA + "apply_rotary_pos_emb",
            _with_pairs_in_another_order,
            "another order: pairs from columns 1 to 0",
        ),
        ("qwen3_next", _ORDERING, _with_heads_of_beta_exchanged, "sigmoid(in_proj_ba (columns 5 to 4 by -1, 1 to 0"),
        (
            "qwen3_next",
            _ORDERING,
            _with_columns_of_values_in_turn,
            "in_proj_qkvz (columns 32 to 40 by 8, 33 to 41 by 8",
        ),
    ],
)
def test_a_line_says_in_which_order_columns_stand(model_type: str, path: str, change: Any, words: str) -> None:
    right = configurations.lines_of(model_type)
    with patch(path, change(patch(path).get_original()[0])):
        wrong = configurations.lines_of(model_type)
    assert wrong != right
    assert any(words in line for line in wrong)
    assert not any(words in line for line in right)


def test_orders_of_later_heads_are_told_apart() -> None:
    own = patch(_LLAMA + "apply_rotary_pos_emb").get_original()[0]

    def line_of_second_head(first: list[int]) -> str:
        """The line of a model that turns the pairs of its first two heads in an order of their own."""

        def rotated(q: Any, k: Any, *places: Any, **more: Any) -> Any:
            half, q = q.shape[-1] // 2, q.clone()
            for head, begin in enumerate(([1, 0], first)):
                order = [*begin, *range(len(begin), half)]
                q[:, head] = q[:, head][..., [*order, *(half + i for i in order)]]
            return own(q, k, *places, **more)

        with patch(_LLAMA + "apply_rotary_pos_emb", rotated):
            (line,) = configurations.lines_of("llama")
        return line

    one, other = line_of_second_head([0, 2, 1]), line_of_second_head([2, 1, 0])
    assert "q_proj (in another order: pairs from columns 1 to 0 by -1, 2 to 7; … of order " in one
    assert one != other


@pytest.mark.parametrize("model_type", ["nemotron_h", "zamba2"])
def test_a_line_says_where_steps_of_a_state_space_are_clipped(model_type: str) -> None:
    lines = configurations.lines_of(model_type)
    assert any("g = −exp(A_log) (softplus, at least 0.001)(in_proj from column 272 on + dt_bias)" in x for x in lines)
    assert not any("?" in line for line in lines)


@pytest.mark.parametrize("text", ["no lock", None])
def test_another_file_is_refused_in_a_line(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "models.lock"
    if text is not None:
        path.write_text(text)
    assert main(["models", "check", str(path)]) == 2


def test_a_line_says_from_which_place_temperatures_are_counted() -> None:
    (line,) = (x for x in configurations.lines_of("llama4_text") if "temperature" in x)
    # The model divides the number of a place, of which the first is 1, by its rate, and rounds down.
    with patch("torch.floor", lambda quotient: (quotient - 1 / 8) // 1):
        (counted_from_0,) = (x for x in configurations.lines_of("llama4_text") if "temperature" in x)
    assert "temperature_rate = floor_scale, temperature_start = 1 |" in line
    assert counted_from_0 == line.replace(", temperature_start = 1", "")


@pytest.mark.parametrize(("factor", "missing"), [(1.0, ["rates without the scaling of the fields"]), (4.0, [])])
def test_a_rotation_that_forgets_the_scaling_of_its_fields_has_no_specification(
    factor: float, missing: list[str]
) -> None:
    config = configurations.tiny("llama").config
    config.num_hidden_layers = 1
    config.rope_parameters = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    model = transformers.LlamaForCausalLM(config).double().eval()
    model.model.rotary_emb.inv_freq *= 4.0 / factor
    assert [part.missing for part in configurations.parts_of(model)] == [missing]


@pytest.mark.parametrize(("called", "before"), [(0.25, False), (1.0, True), (0.5, None)])
def test_a_scale_before_the_call_is_not_that_of_the_call(called: float, before: bool | None) -> None:
    assert CallFacts("", scale=0.25, called_scale=called).scaled_before is before


def test_an_audit_compares_a_model_without_a_row_with_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "models.lock"
    path.write_text("\n".join(configurations.lines_of("afmoe")))
    model, window = configurations.tiny("afmoe").float(), "transformers.masking_utils.sliding_window_overlay"
    own = patch(window).get_original()[0]
    prepared = audit(model, lock=str(path), dependence=False)
    with patch(window, lambda size, *more: own(size + 1, *more)), torch.no_grad(), prepared as report:
        model(tokens(), use_cache=False)
    sliding, full = report.findings
    assert "the window reaches one key too far back" in sliding.verdict
    assert full.verdict == "pass"


def test_a_lock_belongs_to_a_model_with_a_configuration(lock: Path) -> None:
    with pytest.raises(InputError, match="a lock belongs to a model of Transformers"):
        audit(torch.nn.Linear(2, 2), lock=str(lock))
