"""Every form of attention on torch's tensors, a kind of array: the one definition, within float64's own roundings."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn.arrays import kind
from symattn.attention.spec import Attention
from symattn.attention.variants import VARIANTS
from symattn.derivations.variants import Support
from symattn.document.errors import InputError
from tests.arrays.conformance import check
from tests.arrays.kinds import FloatSpecimen
from tests.arrays.operations import TABLE
from tests.attention.definitions import DEFINITIONS
from tests.bounded import bounded

pytestmark = pytest.mark.torch
CLOSE = 2.0**-40  # of the largest entry: float64 loses a few bits, and another definition more


def tensors(inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """The inputs as tensors: numbers as float64, booleans and whole numbers as they are."""
    xp = kind("torch").xp
    return {name: xp.asarray(a, dtype=xp.float64 if a.dtype.kind == "f" else None) for name, a in inputs.items()}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_definitions_are_within_the_rounding_errors_of_their_operations(name: str) -> None:
    definition = DEFINITIONS[name]
    with np.errstate(all="ignore"):
        wanted = definition.run(kind("float64").lift)
        radius = definition.run(bounded(np.float64).lift).planes[1]
    got = definition.spec(**tensors(definition.given)).numpy()
    assert got.dtype == np.float64
    assert np.array_equal(np.isnan(got), np.isnan(wanted))
    assert (np.abs(got - wanted)[~np.isnan(wanted)] <= 2 * radius[~np.isnan(wanted)]).all()


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_give_what_they_give_in_numpy(name: str) -> None:
    spec, inputs = VARIANTS[name].spec, Support(name, VARIANTS[name]).example
    wanted, got = spec(**inputs), spec(**tensors(inputs))
    for ours, theirs in zip(*((x if spec.lse else (x,)) for x in (wanted, got)), strict=True):
        np.testing.assert_allclose(theirs.numpy(), ours, rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize("wrong", ["int64", "bool", "complex128"])
def test_what_tensors_hold_is_looked_at(wrong: str) -> None:
    import torch

    q = torch.ones(2, 3, dtype=torch.float64)
    with pytest.raises(InputError, match=rf"^k must hold numbers in floating point, got torch.{wrong}$"):
        Attention()(q, q.to(getattr(torch, wrong)), q)


class TensorSpecimen(FloatSpecimen):
    """float64 tensors on the CPU."""

    def elements(self, array: Any) -> np.ndarray:
        return super().elements(array.numpy())


#: What definitions ask of a namespace; other names are torch's own, and not promised.
NAMES = (
    *("sum", "asarray", "where", "reshape", "log", "exp", "arange", "astype", "maximum", "minimum", "sqrt", "stack"),
    *("concat", "cumulative_sum", "broadcast_to", "sin", "cos", "permute_dims", "tanh", "mean", "max", "exp2", "abs"),
    *("zeros_like", "take", "sort", "pow", "isfinite", "flip", "any", "+", "-", "*", "/", "**", "@", "<", "==", "[]"),
    *("argsort", "take_along_axis", "vecdot", "repeat", "min", "sort descending"),
)


def plain(x: Any) -> Any:
    """Booleans and whole numbers as NumPy's, by which they are compared."""
    import torch

    return x.numpy() if torch.is_tensor(x) and not x.is_floating_point() else x


#: torch puts the axes of a whole number and of an array about a slice elsewhere: no definition has such an index.
LATER = {"[]": 10}


@pytest.mark.parametrize("name", NAMES)
def test_functions_are_those_of_the_standard(name: str) -> None:
    """Programs whose arguments tensors lack (NumPy's arrays, steps of −1, no axis at all) are left out, but not all."""
    specimen = TensorSpecimen("torch", kind("torch"), dtype=np.dtype(np.float64))
    agreed = 0
    for case in TABLE[name][: LATER.get(name)]:
        mine = replace(case, run=lambda *a, of=case.run: plain(of(*a)), reference=case.reference or case.run)
        try:
            check(mine, specimen)
        except AssertionError:
            raise
        except Exception:
            continue
        agreed += 1
    assert agreed


def test_another_function_under_a_name_is_seen() -> None:
    specimen = TensorSpecimen("torch", kind("torch"), dtype=np.dtype(np.float64))
    case = TABLE["max"][0]
    with pytest.raises(AssertionError):
        check(replace(case, run=lambda xp, a: xp.min(a), reference=case.run), specimen)


@pytest.mark.parametrize("name", VARIANTS)
def test_arrays_are_made_on_the_device_of_the_inputs(name: str) -> None:
    """On a device without numbers (``meta``): no operation meets a tensor of another device, but for single numbers."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class OnOneDevice(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            for a in args:
                assert not isinstance(a, torch.Tensor) or a.device.type == "meta" or a.ndim == 0, func
            return func(*args, **(kwargs or {}))

    there = {n: a.to("meta") for n, a in tensors(Support(name, VARIANTS[name]).example).items()}
    with OnOneDevice():
        out = VARIANTS[name].spec(**there)
    assert (out[0] if VARIANTS[name].spec.lse else out).device.type == "meta"
