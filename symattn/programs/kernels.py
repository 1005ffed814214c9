"""Run functions of torch that launch kernels of Triton on residues: the kernels unchanged, in Triton's own interpreter.

The function gets tensors on the CPU with the dtype of its inputs, and a shadow holds what their memory means: for each
element, the array of a kind that was written there last, and the place in it. A kernel's loads and stores go through
the shadow, at addresses that lie so far apart for each storage that no access beyond one meets another. Its floats are
arrays of the kind, or plain numbers in float64; its whole numbers, masks and pointers stay as they are. Operators of
torch between launches are those of exported graphs. Nothing is rounded, whatever the dtypes say.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from symattn.arrays.base import ArrayBase
from symattn.arrays.notes import note
from symattn.arrays.planes import Planes
from symattn.bounds.inputs import Sizes
from symattn.document.errors import InputError, Refused, SymattnError
from symattn.programs.frameworks import INTERPRETER, Tensor, import_torch
from symattn.programs.graphs import torch_reader
from symattn.programs.graphs.torch_recorder import PLACED
from symattn.programs.graphs.torch_table import RULES
from symattn.programs.graphs.values import Context, Value, lighter
from symattn.programs.names import Function
from symattn.verification.semantics import OUTSIDE

_APART = 40  # an address is the number of a storage times 2⁴⁰, plus the place in it, in bytes
_USUAL = 32  # the longest tiles of which the usual sizes have several
#: Operators whose results have no numbers yet.
_EMPTY = (
    "aten.empty",
    "aten.empty_like",
    "aten.empty_strided",
    "aten.new_empty",
    "aten.new_empty_strided",
)
#: A handle of the interpreter: the data of a variable of a kernel, and their type.
Handle = Any


class Kernels:
    """A converter of functions of tensors to functions of arrays of a kind.

    A function that launches no kernel is exported, as it is where Triton is not loaded.
    """

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        # made if needed: it takes seconds
        self._exported: Callable[[Function, type[Planes]], Function] | None = None
        self._tile = 0

    def make(self, function: Function, kind: type[Planes]) -> Function:
        """Return the function for arrays of a kind."""

        def called(*places: Value, **keywords: Value) -> Value:
            if self._exported is not None:
                return self._exported(function, kind)(*places, **keywords)
            run = _Run(kind, self._dtype)
            refusal = None
            try:
                result = run.call(function, places, keywords)
            except Exception as error:  # a user's function may raise anything
                refusal = run.refusal
                if run.launches:
                    raise (refusal or _unwrap_interpreter_error(error)) from error
            if run.launches:
                self._tile = min(self._tile or run.longest, run.longest)
                return result
            exported = torch_reader.on_kinds(self._dtype)
            try:
                result = exported(function, kind)(*places, **keywords)
            except (
                InputError
            ):  # it may launch a kernel after what was refused, and a graph has no kernels
                if refusal is None:
                    raise
                raise refusal from None
            self._exported = exported
            return result

        return called

    def further(self) -> Sequence[Sizes]:
        """Return sizes of several tiles, if those of the kernels that ran are longer than the usual sizes."""
        n = self._tile
        return (Sizes(n + 2, 2 * n + 3, 4, 3, 6),) if n > _USUAL else ()


def _unwrap_interpreter_error(error: BaseException) -> BaseException:
    """Return what a kernel raised, without the interpreter's errors around it."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
    return error


# -- the shadow of memory ----------------------------------------------------------------------------------------------
class _Block:
    """The memory of one storage; of floats, each element has the piece that was written there last, and its place."""

    def __init__(self, storage: Any, width: int, number: int) -> None:
        # the storage is kept: no other gets its address
        self.storage = storage
        self.width = width
        self.number = number
        self.name = ""  # the parameter of the kernel that was given it
        self.pieces: list[Value] = []
        self._owner, self._place = np.zeros(len(self), np.int64), np.arange(len(self))

    def __len__(self) -> int:
        return int(self.storage.nbytes()) // self.width

    def read(self, at: np.ndarray, memory: _Memory) -> Value:
        """Return the elements at these places, of the kind, or plain if all are."""
        owner = self._owner[at]
        place = self._place[at]
        owners = np.unique(owner)
        if len(owners) < 2:
            return self.pieces[owners[0]][place] if len(owners) else np.zeros(0)
        parts = [self.pieces[o][place[owner == o]] for o in owners]
        # Parts are ordered by owner; the inverse of the stable sort restores the order of places.
        back = np.argsort(np.argsort(owner, kind="stable"), kind="stable")
        if not any(isinstance(x, ArrayBase) for x in parts):
            return np.concatenate(parts)[back]
        return memory.kind.xp.concat([memory.lifted(x) for x in parts])[back]

    def write(self, at: np.ndarray, values: Value) -> None:
        """Write a flat array to these places."""
        self._owner[at], self._place[at] = len(self.pieces), np.arange(len(at))
        self.pieces.append(values)


class _Memory:
    """The blocks of memory that a run has met, and the shadow of those of floats."""

    def __init__(self, kind: type[Planes]) -> None:
        self.kind = kind
        self.blocks: list[_Block] = []
        self._by_address: dict[int, _Block] = {}
        zero = kind.lift(np.zeros(1))
        # what was never written, or lies beyond a tensor, and −∞ − (−∞)
        self.undefined = zero / zero

    def lifted(self, x: Value) -> Value:
        """Return plain numbers as an array of the kind; NaN and +∞, which it lacks, are undefined elements."""
        if isinstance(x, ArrayBase):
            return x
        # The kind of residues has neither NaN nor +∞.
        lacking = np.isnan(x) | np.isposinf(x)
        if not lacking.any():
            return self.kind.written(x)
        return self.kind.xp.where(
            lacking, self.undefined, self.kind.written(np.where(lacking, 0.0, x))
        )

    def known(self, tensor: Tensor) -> _Block | None:
        """Return the block of a tensor if it has a shadow already."""
        block = self._by_address.get(tensor.untyped_storage().data_ptr())
        return block if block and block.pieces else None

    def block(self, tensor: Tensor) -> _Block:
        """Return the block of a tensor; a new one of floats has the numbers that are in the storage."""
        storage = tensor.untyped_storage()
        block = self._by_address.get(storage.data_ptr())
        if block is None:
            block = _Block(storage, tensor.element_size(), len(self.blocks) + 1)
            self.blocks.append(block)
            self._by_address[storage.data_ptr()] = block
        if tensor.is_floating_point():
            if block.width != tensor.element_size():
                raise InputError("a tensor in memory of numbers of another size is not read")
            if not block.pieces:
                # The whole storage: the tensor may be a view of it.
                whole = tensor.new_empty(0).set_(storage, 0, (len(block),), (1,))
                block.pieces.append(whole.double().numpy().copy())
        return block

    def never_written(self, tensor: Tensor) -> None:
        """Note that a tensor is new and holds nothing yet."""
        if tensor.is_floating_point() and tensor.untyped_storage().nbytes():
            block = self.block(tensor)
            block.write(
                np.arange(len(block)), self.kind.xp.broadcast_to(self.undefined, (len(block),))
            )

    def array(self, tensor: Tensor) -> Value:
        """Return what a tensor means; plain numbers if nothing in it is of the kind."""
        # Whole numbers are places and flags, and stay as they are.
        if not tensor.is_floating_point():
            return tensor.numpy()
        if not tensor.numel():
            return np.zeros(tuple(tensor.shape))
        # A tensor is a view of memory, whose numbers stand at its strides.
        return (
            self.block(tensor)
            .read(_storage_places_of_tensor(tensor), self)
            .reshape(tuple(tensor.shape))
        )

    def put(self, tensor: Tensor, value: Value) -> None:
        """Give a tensor a meaning."""
        if not tensor.is_floating_point():
            # A place that is computed from inputs would differ between residues and floats.
            if isinstance(value, ArrayBase):
                raise InputError("computed numbers in a tensor of whole numbers are not read")
            tensor.copy_(import_torch().from_numpy(np.array(value)))
        elif tensor.numel():
            value = value if isinstance(value, ArrayBase) else np.asarray(value, np.float64)
            self.block(tensor).write(
                _storage_places_of_tensor(tensor),
                np.broadcast_to(value, tuple(tensor.shape)).reshape(-1),
            )

    def locate(
        self, addresses: np.ndarray, bits: int
    ) -> tuple[_Block | None, np.ndarray, np.ndarray]:
        """Return the block that addresses are in, or are nearest to; their places in bytes; and which are within it."""
        # Rounded to the nearest storage, so that addresses shortly before it belong to it, too.
        number = int((addresses[0] + (1 << _APART - 1)) >> _APART)
        if not 0 < number <= len(self.blocks):
            return None, addresses, np.zeros(addresses.shape, bool)
        block = self.blocks[number - 1]
        at = addresses - (number << _APART)
        return block, at, (at >= 0) & (at + max(bits // 8, 1) <= int(block.storage.nbytes()))


def _storage_places_of_tensor(tensor: Tensor) -> np.ndarray:
    """Return the places of a tensor's elements in its storage, flat."""
    at = np.asarray(tensor.storage_offset())
    for n, stride in zip(tensor.shape, tensor.stride(), strict=True):
        at = at[..., None] + np.arange(n) * stride
    return at.reshape(-1)


# -- a call of the function --------------------------------------------------------------------------------------------
class _Run:
    """One call of a function on arrays of a kind."""

    def __init__(self, kind: type[Planes], dtype: str) -> None:
        self._torch = import_torch()
        self._kind, self._dtype = kind, getattr(self._torch, dtype)
        self._memory = _Memory(kind)
        self._context = Context(kind.lift(0))
        self.launches = self.longest = 0  # the longest range in a kernel
        self.refusal: SymattnError | None = None  # of an operator of torch

    def call(
        self, function: Function, places: Sequence[Value], keywords: Mapping[str, Value]
    ) -> Value:
        """Return what the function returns, with arrays for its tensors."""
        self._torch.set_num_threads(1)  # threads do not survive copying the process
        arguments = [self._make_shadowed_tensor(x) for x in places]
        named = {name: self._make_shadowed_tensor(x) for name, x in keywords.items()}
        with (
            self._patch_triton_interpreter(),
            self._make_torch_dispatch_mode(),
            lighter(self._kind),
            np.errstate(all="ignore"),
        ):
            result = function(*arguments, **named)
            return self._convert_tensors_to_arrays(result)

    def _make_shadowed_tensor(self, x: Value) -> Value:
        if not isinstance(x, self._kind):
            return torch_reader.constant(x, str(self._dtype).removeprefix("torch."))
        tensor = self._torch.zeros(x.plain_shape, dtype=self._dtype)
        self._memory.put(tensor, x)
        return tensor

    def _convert_tensors_to_arrays(self, x: Value) -> Value:
        if isinstance(x, (tuple, list)):
            return tuple(map(self._convert_tensors_to_arrays, x))
        if not isinstance(x, self._torch.Tensor) or not x.is_floating_point():
            return x
        return self._memory.lifted(self._memory.array(x.detach()))

    # -- operators of torch
    def _make_torch_dispatch_mode(self) -> Any:
        from torch.utils._python_dispatch import TorchDispatchMode

        class Dispatch(TorchDispatchMode):  # type: ignore[misc]
            @classmethod
            def _should_skip_dynamo(cls) -> bool:
                # Else the package of torch.compile is loaded, to be left out by that.
                return False

            def __torch_dispatch__(
                _, operator: Any, types: object, places: Any = (), keywords: Any = None
            ) -> Value:
                return self._run_operator_with_shadow(operator, places, keywords or {})

        return Dispatch()

    def _run_operator_with_shadow(
        self, operator: Any, places: Sequence[Value], keywords: Mapping[str, Value]
    ) -> Value:
        """Run an operator of torch; on tensors with a shadow, compute what its results mean."""
        tensors = [
            x
            for x in _yield_nested_leaves((places, *keywords.values()))
            if isinstance(x, self._torch.Tensor)
        ]
        name = str(operator.overloadpacket)
        computed = any(map(self._memory.known, tensors))
        # An operator without a rule is decomposed, and its parts come here one by one.
        if computed and name not in RULES and (decomposed := torch_reader.decomposition(operator)):
            # The mode is off within its own handler.
            with self._make_torch_dispatch_mode():
                return decomposed(*places, **keywords)
        # Real memory decides shapes, strides and views; the shadow has the meaning of its numbers.
        result = operator(*places, **keywords)
        if name in _EMPTY:
            self._memory.never_written(result)
            return result
        if not computed:
            return result
        outputs = result if isinstance(result, (list, tuple)) else [result]
        before = {x.untyped_storage().data_ptr() for x in tensors}
        apart = [
            not (hasattr(x, "untyped_storage") and x.untyped_storage().data_ptr() in before)
            for x in outputs
        ]
        # A view has the meaning of its operand's memory already.
        if operator._schema.is_mutable or any(apart):
            try:
                self._compute_shadow_values(name, places, keywords, outputs)
            except SymattnError as error:  # torch hides a ``TypeError`` of an operator
                self.refusal = type(error)(f"{name}: {str(error).removeprefix(f'{name}: ')}")
                raise self.refusal from error
        return result

    def _compute_shadow_values(
        self,
        name: str,
        places: Sequence[Value],
        keywords: Mapping[str, Value],
        made: Sequence[Value],
    ) -> None:
        # An operator in place means what the one without the underscore means.
        rule = RULES.get(name) or RULES.get(name.removesuffix("_"))
        if rule is None or not all(isinstance(x, self._torch.Tensor) for x in made):
            raise InputError("this operator of torch is not read, of computed numbers")
        options = {
            key: self._convert_torch_operand(x) for key, x in keywords.items() if key not in PLACED
        }
        value = rule(self._context, *map(self._convert_torch_operand, places), **options)
        for tensor, x in zip(
            made, value if isinstance(value, (list, tuple)) else [value], strict=True
        ):
            self._memory.put(tensor, x)

    def _convert_torch_operand(self, x: Value) -> Value:
        if isinstance(x, self._torch.Tensor):
            return self._memory.array(x)
        return (
            [*map(self._convert_torch_operand, x)]
            if isinstance(x, (list, tuple))
            else torch_reader.operand(x)
        )

    # -- launches of kernels
    @contextmanager
    def _patch_triton_interpreter(self) -> Iterator[None]:
        """Put the operators of floats in the place of the interpreter's own, and the shadow in that of memory."""
        module: Any = sys.modules[INTERPRETER]
        operators = _Operators(module, self._memory)
        ranges = module.InterpreterBuilder.create_make_range
        launch = module.GridExecutor.__call__
        pointer = module._implicit_cvt

        def launched(executor: Any, *places: Value, **keywords: Value) -> Value:
            self.launches += 1
            operators.kernel = executor.fn.__name__
            # The launch uses tensors itself, which are not the user's operators.
            with importlib.import_module("torch.utils._python_dispatch")._disable_current_modes():
                for name, x in (*zip(executor.arg_names, places, strict=False), *keywords.items()):
                    for leaf in _yield_nested_leaves([getattr(x, "base", x)]):
                        if isinstance(leaf, self._torch.Tensor):
                            self._memory.block(leaf).name = name
                return launch(executor, *places, **keywords)

        def ranged(builder: Any, dtype: Any, start: int, stop: int) -> Handle:
            self.longest = max(self.longest, stop - start)
            return ranges(builder, dtype, start, stop)

        def converted(x: Value) -> Value:
            result = pointer(x)
            if hasattr(x, "data_ptr"):
                block = self._memory.block(x)
                at = x.data_ptr() - block.storage.data_ptr()
                # An address of the shadow in place of the real one.
                result.handle.data = np.array([(block.number << _APART) + at], np.uint64)
            return result

        with ExitStack() as stack:
            for target, name, new in (
                (module.GridExecutor, "__call__", launched),
                (module, "_implicit_cvt", converted),
                (module.InterpreterBuilder, "create_make_range", ranged),
                *operators.patches(),
            ):
                # older versions lack some
                stack.enter_context(patch.object(target, name, new, create=True))
            yield


def _yield_nested_leaves(x: Value) -> Iterator[Value]:
    if isinstance(x, (list, tuple)):
        for part in x:
            yield from _yield_nested_leaves(part)
    else:
        yield x


# -- operators of the interpreter --------------------------------------------------------------------------------------
def _is_plain(x: Value) -> bool:
    return not isinstance(x, ArrayBase)


def _is_float(handle: Handle) -> bool:
    return bool(handle.dtype.scalar.is_floating())


class _Operators:
    """The operators of the interpreter's builder that differ where floats are arrays of a kind.

    The others act on ``data`` by NumPy's functions, which such arrays dispatch.
    """

    def __init__(self, module: Any, memory: _Memory) -> None:
        self._module, self._memory, self._kind = module, memory, memory.kind
        self._handle, self._builder = module.TensorHandle, module.interpreter_builder
        self.kernel = ""
        self._noted = False  # whether an access out of bounds was noted

    def patches(self) -> Iterator[tuple[Any, str, Any]]:
        """Yield what is replaced in the interpreter: where, by which name, and by what."""
        module = self._module
        builder = self._module.InterpreterBuilder
        types = self._module.tl
        self._own = {
            name: getattr(builder, name) for name in dir(builder) if not name.startswith("__")
        }
        yield from ((builder, name, getattr(self, name)) for name in dir(self) if name in self._own)
        for name, of in (
            ("fp16", "float16"),
            ("bf16", "bfloat16"),
            ("fp32", "float32"),
            ("fp64", "float64"),
        ):
            yield (
                builder,
                f"get_{name}",
                lambda _, x, of=of: self._make_typed_handle(
                    np.array([x], np.float64), getattr(types, of)
                ),
            )
        for name in ("exp", "exp2", "log", "log2", "erf"):
            yield (
                builder,
                f"create_{name}",
                lambda _, x, name=name: self._apply_unary_function(name, x),
            )
        for name, function in {
            "maxnumf": np.maximum,
            "minnumf": np.minimum,
            "fabs": np.abs,
        }.items():
            yield (
                builder,
                f"create_{name}",
                lambda _, x, *y, f=function: self._make_typed_handle(
                    f(x.data, *(z.data for z in y)), x
                ),
            )
        # checks of overflow are slow, and there in floats as well
        yield self._builder, "options", replace(self._builder.options, sanitize_overflow=False)
        yield (
            module,
            "_validate_np_data_size",
            self._exempt_floats_from_check(module._validate_np_data_size),
        )
        yield module, "_get_np_dtype", self._dtype(module._get_np_dtype)
        yield from self._yield_reduction_patches(module.ReduceOps, module.ReduceScanOpInterface)

    def _make_typed_handle(self, data: Value, of: Any) -> Handle:
        """Return a handle of a type, or of that of another handle."""
        return self._handle(data, getattr(of, "dtype", of).scalar)

    def _exempt_floats_from_check(self, own: Function) -> Function:
        return lambda data, dtype: not _is_plain(data) or dtype.is_floating() or own(data, dtype)

    def _dtype(self, own: Function) -> Function:
        return lambda dtype: np.dtype(np.float64) if dtype.scalar.is_floating() else own(dtype)

    def _yield_reduction_patches(self, reduce: Any, scan: Any) -> Iterator[tuple[Any, str, Any]]:
        extreme = reduce.min_max
        to_tensor = scan.to_tensor
        tl = self._module.tl

        def min_max(own: Any, given: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Value:
            x = given[0] if isinstance(given, tuple) else given
            # Plain numbers take Triton's own path.
            if _is_plain(x.handle.data):
                return extreme(own, given, val_reduce_op, idx_reduce_op)
            # The place of a maximum has no meaning on residues.
            if idx_reduce_op is not None or val_reduce_op not in (np.nanmax, np.nanmin):
                raise Refused("the place of a maximum of computed numbers is not read")
            largest = np.max if val_reduce_op is np.nanmax else np.min
            return own.to_tensor(
                largest(x.handle.data, axis=own.axis, keepdims=own.keep_dims), x.dtype
            )

        def tensor(own: Any, result: Value, dtype: Any) -> Value:
            if _is_plain(result):
                return to_tensor(own, result, dtype)
            shape = list(result.plain_shape)
            # Triton has no arrays without axes, so that a number is one of length 1.
            kind = tl.block_type(dtype, shape) if shape else dtype
            return tl.core.tensor(
                self._make_typed_handle(result if shape else result.reshape((1,)), dtype), kind
            )

        yield reduce, "min_max", min_max
        yield scan, "to_tensor", tensor

    # -- numbers
    def _apply_unary_function(self, name: str, x: Handle) -> Handle:
        """Return a function of each element; of plain numbers by the kind, unless the value is exact."""
        data = x.data
        if _is_plain(data):
            # exp 0 = 1, exp −∞ = 0 and log 1 = 0 are exact in floats.
            exact = data == 1 if name.startswith("log") else (data == 0) | (data == -np.inf)
        if not _is_plain(data) or name == "erf" or not exact.all():
            return self._make_typed_handle(
                getattr(self._kind.xp, name)(self._memory.lifted(data)), x
            )
        return self._make_typed_handle(getattr(np, name)(data), x)

    def create_fsub(self, x: Handle, y: Handle) -> Handle:
        """x − y; undefined where y is −∞, as in floats where both are."""
        a = x.data
        b = y.data
        infinite = np.isneginf(b) if _is_plain(b) else self._kind.xp.isinf(b)
        if not infinite.any():
            return self._make_typed_handle(np.subtract(a, b), x)
        # Replaced first, since kinds refuse to subtract −∞.
        b = np.where(infinite, 0.0, b)
        return self._make_typed_handle(
            np.where(infinite, self._memory.undefined, np.subtract(a, b)), x
        )

    def create_fma(self, x: Handle, y: Handle, z: Handle) -> Handle:
        return self._make_typed_handle(x.data * y.data + z.data, z)

    def create_clampf(self, x: Handle, low: Handle, high: Handle, *_: object) -> Handle:
        return self._make_typed_handle(np.minimum(np.maximum(x.data, low.data), high.data), x)

    def create_dot(self, a: Handle, b: Handle, added: Handle, *_: object) -> Handle:
        if not _is_float(added):
            return self._own["create_dot"](self._builder, a, b, added, *_)
        product = np.matmul(a.data, b.data)
        return self._make_typed_handle(
            product if _is_plain(added.data) and not added.data.any() else product + added.data,
            added,
        )

    def cast_impl(self, x: Handle, dtype: Any) -> Handle:
        """Cast; floats stay as they are."""
        if not dtype.scalar.is_floating() and not _is_plain(x.data):
            if str(dtype.scalar) == "int1":
                return self._make_typed_handle(x.data != 0, dtype)
            raise Refused("a cast of computed numbers to whole ones is not read")
        if not dtype.scalar.is_floating():
            return self._make_typed_handle(x.data.astype(self._module._get_np_dtype(dtype)), dtype)
        return self._make_typed_handle(x.data if _is_float(x) else x.data.astype(np.float64), dtype)

    def create_fp_to_fp(self, x: Handle, dtype: Any, *_: object) -> Handle:
        return self._make_typed_handle(x.data, dtype)

    def create_bitcast(self, x: Handle, dtype: Any) -> Handle:
        if _is_float(x) or dtype.scalar.is_floating():
            raise Refused("the bits of floats are not read")
        return self._own["create_bitcast"](self._builder, x, dtype)

    def create_splat(self, result: Any, x: Handle) -> Handle:
        if _is_plain(x.data):
            return self._own["create_splat"](self._builder, result, x)
        return self._make_typed_handle(np.broadcast_to(x.data.reshape(()), tuple(result.shape)), x)

    def create_unsplat(self, x: Handle) -> Handle:
        return self._make_typed_handle(x.data.reshape(-1)[:1], x)

    # -- memory
    def _locate_pointed_block(
        self, act: str, pointers: Handle, mask: Handle
    ) -> tuple[_Block | None, np.ndarray, np.ndarray]:
        """Return the block that pointers lead to, the places in it, in bytes, and which pointers do, not masked."""
        active = np.broadcast_to(mask.data, pointers.data.shape).astype(bool).reshape(-1)
        if not active.any():
            return None, np.zeros(0, np.int64), active
        element = pointers.get_element_ty()
        addresses = pointers.data.astype(np.int64).reshape(-1)[active]
        block, at, within = self._memory.locate(addresses, element.primitive_bitwidth)
        if not within.all():
            side = "before the first" if at.min() < 0 else "after the last"
            of = f"{side} element of {block.name or 'a tensor'}" if block else "in no tensor"
            program = ", ".join(map(str, self._builder.grid_idx))
            self._note_outside_access(
                f"the kernel {self.kernel} {act} {OUTSIDE}, {of}, in its program ({program})",
                element,
            )
            # Of the pointers that are not masked, the ones within the block remain.
            active[active] = within
        if block and bool(block.pieces) is not element.is_floating():
            raise Refused(
                f"the kernel {self.kernel} takes memory of floats for whole numbers, or the other way round"
            )
        return block, at[within], active

    def _note_outside_access(self, words: str, element: Any) -> None:
        """Note an access out of bounds; it gives undefined floats, while whole numbers are not known."""
        if not element.is_floating():
            raise InputError(words)
        if not self._noted:
            note(words)
        self._noted = True

    def _convert_to_real_pointers(
        self, pointers: Handle, met: tuple[_Block | None, np.ndarray, np.ndarray]
    ) -> Handle:
        """Return pointers to whole numbers in real memory."""
        block, at, active = met
        # Masked pointers stay 0, and are never followed.
        real = np.zeros(active.shape, np.uint64)
        if block is not None:
            real[active] = at + block.storage.data_ptr()
        return self._handle(real.reshape(pointers.data.shape), pointers.dtype)

    def _element_places_of_floats(
        self, pointers: Handle, block: _Block, at: np.ndarray
    ) -> np.ndarray:
        """Return the places of floats, counted in elements."""
        width = pointers.get_element_ty().primitive_bitwidth // 8
        if width != block.width or (at % width).any():
            raise Refused(
                f"the kernel {self.kernel} takes the memory of floats for those of another size"
            )
        return np.asarray(at // width)

    def create_masked_load(
        self, pointers: Handle, mask: Handle, other: Handle, *rest: object, **more: object
    ) -> Handle:
        element = pointers.get_element_ty()
        shape = pointers.data.shape
        block, at, active = met = self._locate_pointed_block("reads", pointers, mask)
        if not element.is_floating():
            real = self._convert_to_real_pointers(pointers, met)
            return self._own["create_masked_load"](self._builder, real, mask, other, *rest, **more)
        filled = np.zeros(shape) if other is None else np.broadcast_to(other.data, shape)
        beyond = np.broadcast_to(mask.data, shape).astype(bool) & ~active.reshape(shape)
        if beyond.any():
            filled = np.where(beyond, self._memory.undefined, filled)
        if block is None or not len(at):
            return self._make_typed_handle(filled, element)
        values = block.read(self._element_places_of_floats(pointers, block, at), self._memory)
        if active.all():
            return self._make_typed_handle(values.reshape(shape), element)
        # Each pointer that reads takes the next value; values of masked ones are replaced below.
        spread = values[np.maximum(np.cumsum(active) - 1, 0)].reshape(shape)
        return self._make_typed_handle(np.where(active.reshape(shape), spread, filled), element)

    def create_masked_store(
        self, pointers: Handle, value: Handle, mask: Handle, *rest: object
    ) -> Any:
        block, at, active = met = self._locate_pointed_block("writes", pointers, mask)
        # Stores of whole numbers are real ones.
        if not pointers.get_element_ty().is_floating():
            return self._own["create_masked_store"](
                self._builder, self._convert_to_real_pointers(pointers, met), value, mask, *rest
            )
        if block is not None and len(at):
            values = self._memory.lifted(
                np.broadcast_to(value.data, pointers.data.shape).reshape(-1)
            )
            block.write(
                self._element_places_of_floats(pointers, block, at),
                # Places that the mask leaves out keep their numbers.
                values if active.all() else values[active],
            )
        return None

    def create_atomic_rmw(
        self, operator: Any, pointers: Handle, value: Handle, mask: Handle, *rest: object
    ) -> Handle:
        if not pointers.get_element_ty().is_floating():
            real = self._convert_to_real_pointers(
                pointers, self._locate_pointed_block("changes", pointers, mask)
            )
            return self._own["create_atomic_rmw"](self._builder, operator, real, value, mask, *rest)
        places = pointers.data[np.broadcast_to(mask.data, pointers.data.shape).astype(bool)]
        # Two additions to one place need a running sum, which one load and store is not.
        if operator.name != "FADD" or len(np.unique(places)) < len(places):
            raise Refused(f"the atomic operation {operator.name} of floats is not read")
        before = self.create_masked_load(pointers, mask, None)
        self.create_masked_store(
            pointers, self._make_typed_handle(before.data + value.data, value), mask
        )
        return before

    def create_atomic_cas(
        self, pointers: Handle, expected: Handle, value: Handle, *rest: object
    ) -> Handle:
        mask = self._handle(np.ones(pointers.data.shape, bool), self._module.tl.int1)
        if _is_float(value):
            raise Refused("a comparison and exchange of floats in memory is not read")
        real = self._convert_to_real_pointers(
            pointers, self._locate_pointed_block("changes", pointers, mask)
        )
        return self._own["create_atomic_cas"](self._builder, real, expected, value, *rest)
