"""The kinds of specifications: what a program needs for each, in one entry of ``KINDS`` for a class.

An entry says which definitions a specification has and in which parts its answers are joined, how a function of it is
called, which promises, options and judges apply, and how it is spelled: ``gradient``, ``LayerNorm(eps=1e-6)``,
``Block(norm='rms')``. Callers ask the entry by ``kind_of``. Modules are imported as a run needs them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib import import_module
from inspect import signature
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any, TypeAlias

from symattn.attention import inputs
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.positions.checks import least_width
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Convention, Layout
from symattn.document.codec import differing, inside, spelled
from symattn.document.errors import InputError
from symattn.document.keywords import unknown
from symattn.programs.request import Request

if TYPE_CHECKING:
    from symattn.attention.layers.block import Block
    from symattn.attention.positions.position_fields import Rotary
    from symattn.bounds.domain import Domain
    from symattn.programs.calls import Target
    from symattn.programs.names import Function
    from symattn.programs.question import OutputVerdict
    from symattn.verification.definitions.caches import Cached
    from symattn.verification.definitions.definition_mistakes import Remade
    from symattn.verification.definitions.definition_subject import Definition
    from symattn.verification.definitions.depth_attention import DepthAttention
    from symattn.verification.definitions.differential import Differential
    from symattn.verification.definitions.gradients import Gradient
    from symattn.verification.definitions.linear import LinearAttention
    from symattn.verification.definitions.merging import Merge
    from symattn.verification.definitions.norms import LayerNorm, RMSNorm
    from symattn.verification.definitions.weights import Softmax
    from symattn.verification.report import Report

Specification: TypeAlias = (
    "Attention | Block | Cached | DepthAttention | Differential | Gradient | LayerNorm"
    " | LinearAttention | Merge | RMSNorm | Rotary | Softmax"
)

#: The word of an ``Attention`` that returns the logarithms of its sums.
LSE = "lse"
_ROOM = "symattn.verification.definitions."


class SpecificationKind(ABC):
    """The needs of a program for the specifications of one class.

    name     the class
    word     its word on a command line; "" if its fields are options of their own
    ordered  whether arrays may have an axis of heads, whose order differs between functions
    by_name  whether a benchmark's arrays have the names of its inputs
    """

    name: str
    word: str
    ordered: bool
    by_name: bool = False

    # -- what is verified ----------------------------------------------------------------------------------------------
    def parts(self, spec: Any) -> tuple[Specification, ...]:
        """Return the specifications to verify in this order, whose reports are joined; it stops at a fault."""
        return (spec,)

    @abstractmethod
    def definitions(self, spec: Any, layout: Layout = "nd") -> Iterator[Definition]:
        """Yield the definitions of arrays by name, one for each form of functions; the usual one first."""

    @abstractmethod
    def subject(self, spec: Any, agreed: Convention) -> Definition:
        """Return the subject of a specification, in the form in which a function is called."""

    def attention_with_rules(self, spec: Any) -> tuple[Attention, ...]:
        """Return the attention whose own steps the rules of mistakes change; none if definitions hold the mistakes."""
        return ()

    def describe_right_readings(
        self, report: Report, spec: Any, domain: Domain, judge: Callable[..., Report]
    ) -> str:
        """Return another reading of the specification in which a wrong function is right; "" for none."""
        return ""

    # -- how a function is called --------------------------------------------------------------------------------------
    @abstractmethod
    def request(self, spec: Any, **settings: Any) -> Request:
        """Return the request of a call with these settings."""

    @abstractmethod
    def prepare(self, function: Function, request: Request) -> Request:
        """Return the request with the framework that the code names; import what takes long to import."""

    @abstractmethod
    def target(
        self, function: Function, request: Request, name: str, agreed: Convention | None
    ) -> Target:
        """Return the function ready to be called; with a convention ``agreed`` before, nothing is tried."""

    def with_weights(
        self, function: Function, request: Request, name: str
    ) -> tuple[Function, Request]:
        """Return a module that holds weights as a function of them; return other callables unchanged."""
        return function, request

    def needs_autograd(self, function: Function, request: Request) -> bool:
        """Return whether a function computes less than the specification, and autograd the rest."""
        return False

    # -- what applies to it --------------------------------------------------------------------------------------------
    @abstractmethod
    def check_domain(self, spec: Any, domain: Domain) -> None:
        """Raise ``InputError`` for a promise that does not apply."""

    def check_power(self, spec: Any, power: Mapping[str, float]) -> None:
        """Raise ``InputError`` for a ``power`` that does not apply."""
        raise InputError("power is for the output of Attention; hint: leave it out")

    def mask_form(self, spec: Any, mask_axes: str) -> str:
        """Return the form that ``mask_axes`` names. Raises ``InputError`` if there is no mask that has it."""
        raise InputError("--mask-axes is for the output of Attention; hint: leave it out")

    def arithmetic(self) -> Callable[..., Any]:
        """Return the search for the arithmetic of a function. Raises ``InputError`` if there is none."""
        raise InputError("arithmetic() expects an Attention, LayerNorm or RMSNorm")

    def derivatives(self, spec: Any, outputs: int) -> dict[str, Any]:
        """Return the derivatives that the outputs of a graph are, by the array; none if it is an output itself."""
        return {}

    def judge_output(
        self, out: object, arrays: dict[str, Any], spec: Any, others: Mapping[str, Any], **how: Any
    ) -> OutputVerdict:
        """Judge an output by its inputs, and the ``others`` that are returned with it."""
        from symattn.programs.asserted import judge_attention

        return judge_attention(out, arrays, spec, others, **how)

    # -- how it is spelled ---------------------------------------------------------------------------------------------
    @abstractmethod
    def attention_of(self, spec: Any) -> Attention | None:
        """Return the attention that it is, or is made of, as its options give it; None if there is none."""

    @abstractmethod
    def written(self, spec: Any) -> str:
        """Return the specification as one word or call, without the fields of its attention."""

    @abstractmethod
    def options(self, spec: Any) -> dict[str, str]:
        """Return the options of a command line beside those for the fields of its attention."""

    @abstractmethod
    def words(self, spec: Any) -> str:
        """Return the specification as its repr in Python, without the fields that have their default."""

    def build(self, values: Mapping[str, Any], attention: Attention | None) -> Any:
        """Return the specification with these fields, of an attention if it is made of one.

        Raises ``InputError`` for a field that it does not have, and for an ``attention`` that it is not made of.
        """
        made = self.described_class()
        known = {f.name for f in fields(made)}
        takes_attention = "attention" in known
        self._check_fields(values, sorted(known - {"attention"}), takes_attention)
        if not takes_attention:
            if attention is not None:
                raise InputError(
                    f"{self.word} is made of no attention; "
                    f"hint: leave out its options, or write {self.word}(FIELD=VALUE)"
                )
            return made(**values)
        return made(**values, attention=attention or Attention())

    def described_class(self) -> Any:
        """Return the class of the specifications: the public one of this name."""
        return getattr(import_module("symattn"), self.name)

    def _check_fields(self, values: Mapping[str, Any], known: list[str], takes: bool) -> None:
        hint = "; give those of the attention by their options" if takes else ""
        for field in values:
            if field not in known:
                raise InputError(f"{unknown(self.word, field, known, what='field')}{hint}")

    # -- how a case is encoded -----------------------------------------------------------------------------------------
    def implied_inputs(self, spec: Any) -> tuple[str, ...]:
        """Return the inputs that the word of a case leaves out; none if it names or numbers each."""
        return ()

    def entries_of(self, name: str, spec: Any) -> str | None:
        """Return the kind of an input's entries, in words; None if a specification does not determine it."""
        return None


class OutputOfAttention(SpecificationKind):
    """The output of an ``Attention``, whose inputs have letters, and whose form is found by small calls."""

    name, word, ordered, by_name = "Attention", "", True, True

    def definitions(self, spec: Any, layout: Layout = "nd") -> Iterator[Definition]:
        """Yield none: its arrays are found by roles, not by the letters of a definition."""
        yield from ()

    def subject(self, spec: Any, agreed: Convention) -> Definition:
        """See ``definitions.attention_output``."""
        from symattn.verification.definitions import attention_output

        return attention_output.subject(spec)

    def attention_with_rules(self, spec: Any) -> tuple[Attention, ...]:
        """Return the specification."""
        return (spec,)

    def describe_right_readings(
        self, report: Report, spec: Any, domain: Domain, judge: Callable[..., Report]
    ) -> str:
        """Try the other alignment of queries and keys, and as many queries as keys."""
        from symattn.programs.verifying import describe_right_readings

        return describe_right_readings(report, spec, domain, judge)

    request = staticmethod(Request.of)

    def prepare(self, function: Function, request: Request) -> Request:
        """See ``target``."""
        from symattn.programs.target import settled

        return settled(function, request)

    def target(
        self, function: Function, request: Request, name: str, agreed: Convention | None
    ) -> Target:
        """See ``target``."""
        from symattn.programs.target import target_of_attention

        return target_of_attention(function, request, name, agreed)

    def check_domain(self, spec: Any, domain: Domain) -> None:
        """Every promise applies."""

    def check_power(self, spec: Any, power: Mapping[str, float]) -> None:
        """Raise ``InputError`` for a step or a part that is no aim."""
        # Slow to import, and rarely needed.
        from symattn.verification.arithmetic.aims import aims

        aims(spec, power)

    def mask_form(self, spec: Any, mask_axes: str) -> str:
        """Return the form of the mask that a specification has."""
        from symattn.programs import layouts

        if not (spec.mask or spec.padding or spec.causal):
            raise InputError(
                "--mask-axes: the specification has no mask; hint: --mask boolean or --padding"
            )
        return layouts.form_of(mask_axes)

    def arithmetic(self) -> Callable[..., Any]:
        """See ``arithmetic``."""
        from symattn.programs.arithmetic import arithmetic_of_attention

        return arithmetic_of_attention

    def attention_of(self, spec: Any) -> Attention:
        """Return the specification."""
        return spec  # type: ignore[no-any-return]

    def written(self, spec: Any) -> str:
        """Return it with the fields that differ from the defaults."""
        return inside(spec)

    def options(self, spec: Any) -> dict[str, str]:
        """Return none: all fields are options of their own."""
        return {}

    def words(self, spec: Any) -> str:
        """Return it with the fields that differ from the defaults."""
        return _words_of_attention(spec)

    def implied_inputs(self, spec: Any) -> tuple[str, ...]:
        """Return q, k, v and what the specification needs."""
        return ("q", "k", "v", *sorted(inputs.required(spec)))

    def entries_of(self, name: str, spec: Any) -> str:
        """Return what the input of this name holds."""
        return inputs.holds(name, spec) if name in ARRAYS else "numbers"


def _check_layout_parameter(name: str, subject: Callable[..., Definition]) -> None:
    """Raise ``InputError`` if a row of ``KINDS`` passes a layout that ``subject`` does not take."""
    if len(signature(subject).parameters) < 2:
        raise InputError(
            f"{name}: its subject takes no layout; hint: ordered=False in the row of KINDS, or subject(spec, layout) "
            "if arrays may have an axis of heads"
        )


@dataclass(eq=False)
class OfDefinition(SpecificationKind):
    """A specification with definitions of arrays by name: ``subject`` or ``subjects`` in the module ``room``."""

    name: str
    room: str
    word: str = ""
    ordered: bool = True

    def __post_init__(self) -> None:
        """Give a class without a word its name as one."""
        self.word = self.word or self.name

    def definitions(self, spec: Any, layout: Layout = "nd") -> Iterator[Definition]:
        """Yield the definitions of the module, with the mistakes in fields."""
        from symattn.verification.definitions.definition_mistakes import of_fields

        attention = self.attention_of(spec)
        for form, definition in enumerate(self._yield_forms(spec, layout)):
            remade: Remade = partial(self._definition_of_form, layout=layout, form=form)
            # Positions and latents of an attention may need more columns.
            width = partial(least_width, attention) if attention is not None else int
            numbered = (*definition.numbered, *of_fields(spec, remade))
            yield replace(definition, width=width, numbered=numbered, remade=remade, described=spec)

    def described_class(self) -> Any:
        """Return the class that the module has, also before it has a public name; else the public one."""
        room: Any = import_module(_ROOM + self.room)
        return getattr(room, self.name, None) or super().described_class()

    def _definition_of_form(self, spec: Any, layout: Layout, form: int) -> Definition:
        """Return the definition of a specification in one of its forms, counted from 0."""
        return next(islice(self._yield_forms(spec, layout), form, None))

    def _yield_forms(self, spec: Any, layout: Layout) -> Iterator[Definition]:
        room: Any = import_module(_ROOM + self.room)
        # A module with several forms of functions yields each of them.
        if hasattr(room, "subjects"):
            yield from room.subjects(spec, layout)
        elif self.ordered:
            _check_layout_parameter(self.name, room.subject)
            yield room.subject(spec, layout)
        else:
            yield from _yield_numbers_of_axes(room.subject(spec))

    def subject(self, spec: Any, agreed: Convention) -> Definition:
        """Return the definition in the form, and of the sizes, that the convention has."""
        from symattn.programs import definitions

        assert isinstance(agreed, definitions.Formed)
        return definitions.subject_of(spec, agreed)

    def request(self, spec: Any, **settings: Any) -> Request:
        """Return the request; a definition holds all of its settings itself."""
        return Request(spec=spec, **settings)

    def prepare(self, function: Function, request: Request) -> Request:
        """See ``definitions``."""
        from symattn.programs import definitions

        return definitions.prepared(function, request)

    def target(
        self, function: Function, request: Request, name: str, agreed: Convention | None
    ) -> Target:
        """See ``definitions``."""
        from symattn.programs import definitions

        return definitions.target(function, request, name, agreed)

    def check_domain(self, spec: Any, domain: Domain) -> None:
        """See ``definitions``."""
        from symattn.programs import definitions

        definitions.check_domain(spec, domain)

    def attention_of(self, spec: Any) -> Attention | None:
        """Return the attention that it is made of."""
        return getattr(spec, "attention", None)

    def written(self, spec: Any) -> str:
        """Return it as on a command line."""
        words = spelled(spec, without="attention")
        return words if "(" in words else self.word

    def options(self, spec: Any) -> dict[str, str]:
        """Return the option of its own name."""
        return {"definition": self.written(spec)}

    def words(self, spec: Any) -> str:
        """Return it as on a command line, and its attention if that is not the usual one."""
        attention = self.attention_of(spec)
        of = "" if attention in (None, Attention()) else f" of {_words_of_attention(attention)}"
        return f"{self.written(spec)}{of}"


class OutputAndLogSums(OfDefinition):
    """The output of an ``Attention`` and the logarithms of its sums."""

    by_name = True

    def parts(self, spec: Any) -> tuple[Specification, ...]:
        """Return the output first, since a mistake in it also spoils the logarithms."""
        return replace(spec, lse=False), spec

    def arithmetic(self) -> Callable[..., Any]:
        """Only the output is compared, not the logarithms of sums."""
        return KINDS["Attention"].arithmetic()

    def attention_of(self, spec: Any) -> Attention:
        """Return the attention whose output alone is returned."""
        return replace(spec, lse=False)  # type: ignore[no-any-return]

    def written(self, spec: Any) -> str:
        """Return the word: every field is one of its attention."""
        return self.word

    def build(self, values: Mapping[str, Any], attention: Attention | None) -> Any:
        """Return the attention with its logarithms."""
        self._check_fields(values, [], takes=True)
        return replace(attention or Attention(), lse=True)


class OfNorm(OfDefinition):
    """A norm, whose modules hold its gain and its bias."""

    def with_weights(
        self, function: Function, request: Request, name: str
    ) -> tuple[Function, Request]:
        """Return a module of a norm as a function of its weights."""
        from symattn.programs.hosts import host_of
        from symattn.programs.modules import HeldNorm

        host = host_of(function)
        if host is None:
            return function, request
        return HeldNorm(host, request, name), replace(request, framework=host.framework)

    def arithmetic(self) -> Callable[..., Any]:
        """See ``arithmetic``."""
        from symattn.programs.arithmetic import arithmetic_of_norm

        return arithmetic_of_norm


class OfBlock(OfDefinition):
    """A layer of a transformer."""

    def with_weights(
        self, function: Function, request: Request, name: str
    ) -> tuple[Function, Request]:
        """Return torch's encoder layer as a function of its weights."""
        from symattn.programs.hosts import host_of
        from symattn.programs.modules import HeldLayer, is_layer

        host = host_of(function)
        if host is None or not is_layer(function):
            return function, request
        return HeldLayer(host, request, name), replace(request, framework="torch")


class OfGradient(OfDefinition):
    """The gradients of an attention, or of a linear one, which has no options of its own."""

    def attention_of(self, spec: Any) -> Attention | None:
        """Return the attention that is differentiated; None if it is linear."""
        return spec.attention if isinstance(spec.attention, Attention) else None

    def written(self, spec: Any) -> str:
        """Return the word, or, of a linear attention, a call with its fields."""
        if isinstance(spec.attention, Attention):
            return self.word
        return f"{self.name}(attention={inside(spec.attention)})"

    def build(self, values: Mapping[str, Any], attention: Attention | None) -> Any:
        """Return the gradients of an attention, or of the linear one that is a field. Raises as usual."""
        if "attention" not in values:
            return super().build(values, attention)
        self._check_fields({name: x for name, x in values.items() if name != "attention"}, [], True)
        if attention is not None:
            raise InputError(
                f"{self.word} of linear attention has no options of an attention; hint: leave out its options"
            )
        return self.described_class()(values["attention"])

    def needs_autograd(self, function: Function, request: Request) -> bool:
        """Return whether it is a torch function without a parameter for the output's gradient."""
        from symattn.programs.definitions import is_forward_pass

        # NumPy functions have no automatic differentiation.
        if "numpy" in (request.framework, request.likely):
            return False
        return is_forward_pass(function, request)

    def derivatives(self, spec: Any, outputs: int) -> dict[str, Any]:
        """Return those by queries, keys and values, or by the first of them."""
        from symattn.programs.graphs.judging import Derivative
        from symattn.verification.definitions.gradients import WRT

        if not isinstance(spec.attention, Attention):
            raise InputError(
                "a graph is not compared with gradients of linear attention; hint: verify a function"
            )
        return {by: Derivative(spec.attention, by) for by in WRT[:outputs]}


class OfLinearAttention(OfDefinition):
    """A linear attention, whose output a law of roundings judges."""

    by_name = True

    def judge_output(
        self, out: object, arrays: dict[str, Any], spec: Any, others: Mapping[str, Any], **how: Any
    ) -> OutputVerdict:
        """See ``recurrent_closeness``."""
        from symattn.programs.recurrent_closeness import judge_recurrence

        for name, value in others.items():
            if value is not None:
                raise InputError(
                    f"{name} is judged for softmax attention only; hint: leave out {name}"
                )
        return judge_recurrence(out, arrays, spec, **how)


#: The entry of each class of specifications, and of an ``Attention`` that returns logarithms of sums.
KINDS: dict[str, SpecificationKind] = {
    kind.name if kind.word != LSE else LSE: kind
    for kind in (
        OutputOfAttention(),
        OutputAndLogSums("Attention", "lse", LSE),
        OfBlock("Block", "blocks", ordered=False),
        OfDefinition("Cached", "caches", "cached"),
        OfDefinition("DepthAttention", "depth_attention"),
        OfDefinition("Differential", "differential"),
        OfGradient("Gradient", "gradients", "gradient"),
        OfNorm("LayerNorm", "norms", ordered=False),
        OfLinearAttention("LinearAttention", "linear"),
        OfDefinition("Merge", "merging", "merge"),
        OfNorm("RMSNorm", "norms", ordered=False),
        OfDefinition("Rotary", "rotary_vectors"),
        OfDefinition("Softmax", "weights", "softmax", ordered=False),
    )
}
#: The entries of definitions, by their words on a command line.
BY_WORD = {kind.word: kind for kind in KINDS.values() if kind.word}


def kind_of(spec: object) -> SpecificationKind:
    """Return the entry of a specification. Raises ``InputError`` for anything else."""
    if isinstance(spec, Attention):
        return KINDS[LSE if spec.lse else "Attention"]
    kind = KINDS.get(type(spec).__name__)
    if kind is None:
        raise InputError(
            f"{spec!r} is not a specification; hint: give an Attention, LayerNorm, Gradient …; see definitions.md"
        )
    return kind


def definitions_of(spec: Any, layout: Layout = "nd") -> Iterator[Definition]:
    """Yield the definitions of a specification, one for each form of functions; the usual one first.

    The output of an ``Attention`` has none. Raises ``InputError`` for anything but a specification.
    """
    yield from kind_of(spec).definitions(spec, layout)


def written(spec: Specification) -> str:
    """Return a definition as on a command line; the fields of its attention are separate options.

    >>> from symattn import LayerNorm
    >>> written(LayerNorm(eps=0.5)), written(Attention(lse=True))
    ('LayerNorm(eps=0.5)', 'lse')
    """
    return kind_of(spec).written(spec)


def words_of(spec: Specification) -> str:
    """Return a specification as its repr in Python, without the fields that have their default.

    >>> words_of(Attention(causal=True, heads=2))
    'Attention(causal=True, heads=2)'
    """
    return kind_of(spec).words(spec)


def _words_of_attention(attention: Any) -> str:
    changed = differing(attention, Attention())
    return f"Attention({', '.join(f'{name}={value!r}' for name, value in changed.items())})"


def _yield_numbers_of_axes(subject: Definition) -> Iterator[Definition]:
    """Yield a definition as it is, then with fewer different numbers of axes, as many as possible first.

    Functions such as norms need not accept all of (d,), (n, d) and (b, n, d) as their first input.
    """
    yield subject
    letters = subject.inputs[0].shape.split()
    least = min(len(subject.axes_of(subject.inputs[0].name, sizes)) for sizes in subject.shapes)
    numbers = range(least, len(letters) + 1)
    for several in range(len(numbers), 0, -1):
        for chosen in combinations(numbers, several):
            shapes = (
                _with_axes(sizes, letters, chosen[i % several])
                for i, sizes in enumerate(subject.shapes)
            )
            yield replace(subject, shapes=tuple(shapes))


def _with_axes(sizes: Mapping[str, int], letters: Sequence[str], number: int) -> dict[str, int]:
    """Return the sizes with only the last letters of an array; a missing letter gets a size of 2 or more."""
    wanted = letters[len(letters) - number :]
    # Sizes from 2 on, different from each other, so that exchanged axes show.
    added = {letter: 2 + i for i, letter in enumerate(wanted) if letter not in sizes}
    return added | {
        letter: n for letter, n in sizes.items() if letter in wanted or letter not in letters
    }
