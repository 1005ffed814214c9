"""How a function is called: match its parameters with the inputs and settings of a definition, or of an attention."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from inspect import Parameter
from numbers import Integral, Real
from typing import TYPE_CHECKING

from symattn.attention.fields import field_types, members, words
from symattn.attention.inputs import NEEDED, OPTIONAL, check_combination, required
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.spec import Attention
from symattn.bounds.called_target import (
    CAUSAL_MASK,
    COUNT_K,
    COUNT_Q,
    DESTINATION,
    FACTOR,
    PAST,
    WIDTH,
    Argument,
    Convention,
)
from symattn.document.errors import InputError, perhaps
from symattn.document.keywords import FIELDS, plain
from symattn.programs.names import (
    AMBIGUOUS,
    AROUND,
    MASKS,
    OF_POSITIONS,
    PLACED,
    SETTINGS,
    STARS,
    TILE,
    Function,
    bound_keywords,
    called,
    match_names,
    meaning,
    parameters,
)
from symattn.programs.request import Request

if TYPE_CHECKING:
    from symattn.verification.definitions.definition_subject import Definition, Input

#: Common names of parameters for settings, in addition to those of fields of ``Attention``.
_SETTINGS = {
    "axis": "dim",
    "eps": "epsilon variance_epsilon norm_eps layer_norm_eps rms_norm_eps",
    "normalized_shape": "shape",
    "base": "theta rope_theta rotary_base freq_base",
    "dim": "rotary_dim rope_dim",
    "head_dim": "d_head d head_size dim_head d_k",
    "interleaved": "interleave",
    "length": "n seq_len max_len max_seq_len seqlen",
    "start": "offset past start_pos",
    "return_lse": "return_softmax_lse with_lse output_lse return_logsumexp",
}


class Parameters:
    """The parameters of a function, the values that the user sets by name, and the function's name in messages.

    ``*args`` and an unreadable signature are replaced by ``places``; a name that the user sets and only ``**kwargs``
    takes becomes a parameter like the others. Raises ``InputError`` for a name that cannot be passed, or is set twice.
    """

    def __init__(
        self, function: Function, request: Request, name: str, places: Iterable[str]
    ) -> None:
        results = parameters(function)
        self._name, self._given = name, results
        self.request, self.values = request, dict(request.call)
        self.mask_name = (request.mask_arg or "").removeprefix("~")
        if results is None or open_ended(results):
            rest = (Parameter("keywords", Parameter.VAR_KEYWORD),) if results is None else results
            of_places = (Parameter(n, Parameter.POSITIONAL_ONLY) for n in places)
            results = (*of_places, *(p for p in rest if p.kind not in PLACED))
        self.open_ended = any(p.kind is Parameter.VAR_KEYWORD for p in results)
        # What a partial fixes is no parameter, unless the user sets it by name.
        fixed = bound_keywords(function) - self.values.keys() - {self.mask_name}
        self.parameters = [p for p in results if p.kind not in STARS and p.name not in fixed]
        names = [p.name for p in self.parameters if p.kind is not Parameter.POSITIONAL_ONLY]
        option_names = [*self.values, *filter(None, [self.mask_name])]
        for word in option_names:
            if word not in names and not self.open_ended:
                raise InputError(
                    f"{self.label} has no parameter {word} that can be named{perhaps(word, names)}"
                )
        if self.mask_name in self.values:
            raise InputError(
                f"{self.mask_name} is set twice, by --call and by --mask-arg; leave one out"
            )
        new = [word for word in option_names if word not in [p.name for p in self.parameters]]
        self.parameters += [Parameter(word, Parameter.KEYWORD_ONLY, default=None) for word in new]

    @cached_property
    def label(self) -> str:
        """The function in messages, with its own parameters."""
        return called(self._name, self._given)


def _raise_missing_inputs(label: str, which: str, names: Mapping[str, str], more: str = "") -> None:
    """Raise ``InputError`` for inputs that no parameter stands for, with the names that parameters may have."""
    them = "it" if len(names) == 1 else "them"
    raise InputError(
        f"{label}: no parameter for the {which} {', '.join(names)} is known; name {them} "
        f"{', '.join(names.values())}{more}"
    )


def _accepted_name(wanted: Input) -> str:
    """Return the name of an input, or of ``attention.w_q``, which no parameter can have, the first of its others."""
    return wanted.name if wanted.name.isidentifier() else wanted.words.split()[0]


class Agreement(Parameters):
    """The matching of a function with a definition, from which a convention results."""

    def __init__(
        self, function: Function, subject: Definition, request: Request, name: str
    ) -> None:
        # Only needed inputs have to be among the parameters.
        super().__init__(function, request, name, [i.name for i in subject.inputs if i.needed])
        self.subject = subject
        self.derived: dict[str, Function] = {}
        self.arguments = self._make_call_arguments(self._assign_parameter_meanings())
        placed = {a.input for a in self.arguments}
        missing = {i.name: i for i in subject.inputs if i.needed and i.name not in placed}
        if missing:
            which = "input" if len(missing) == 1 else "inputs"
            _raise_missing_inputs(
                self.label, which, {n: _accepted_name(i) for n, i in missing.items()}
            )

    def convention(self) -> Convention:
        """Return how the function is called."""
        return Convention(self.arguments, self.request.framework or "numpy", self.request.dtype)

    def _assign_parameter_meanings(self) -> dict[str, str]:
        """Return {parameter: input or setting}, each at most once; unnamed required places take the inputs in order."""
        names = [p.name for p in self.parameters if p.name not in self.values]
        words = {i.name: i.words for i in self.subject.inputs}
        result: dict[str, str] = {}
        if self.mask_name in names and "mask" in words:
            result[self.mask_name] = "mask"
            del words["mask"]
        # Inputs first, so that no setting takes the place of one.
        result |= match_names(words, [name for name in names if name not in result])
        known = meanings(self.subject)
        for name in names:
            what = known.get(plain(name))
            if what and name not in result and what not in result.values():
                result[name] = what
        free = [
            p.name
            for p in self.parameters
            if is_place(p) and p.name not in result and p.name not in self.values
        ]
        left = [i.name for i in self.subject.inputs if i.name not in result.values()]
        needed = [i.name for i in self.subject.inputs if i.needed and i.name in left]
        # Unnamed places take all needed inputs, or all that are left, if the numbers agree.
        for choice in (needed, left):
            if len(free) == len(choice):
                return result | dict(zip(free, choice, strict=True))
        return result

    def _make_call_arguments(self, meanings: Mapping[str, str]) -> tuple[Argument, ...]:
        inputs = {i.name for i in self.subject.inputs}
        result: list[Argument] = []
        leading = True  # a parameter can be passed by position only if all before it are
        for p in self.parameters:
            what = meanings.get(p.name)
            required = p.default is Parameter.empty
            leading = leading and p.kind in PLACED and what in inputs
            if p.name in self.values:
                result.append(Argument(p.name, value=self.values[p.name]))
            elif what in inputs:
                place = leading or p.kind is Parameter.POSITIONAL_ONLY
                # ``~NAME`` says that True means ignore; ``mask_name`` lacks the sign.
                inverted = p.name == self.mask_name != self.request.mask_arg
                result.append(Argument(p.name, what, None, place, required, inverted))
            elif what is not None and callable(self.subject.settings[what]):
                self.derived[p.name] = self.subject.settings[what]
            elif what is not None and self.subject.settings[what] is not None:
                result.append(Argument(p.name, value=for_user_code(self.subject.settings[what])))
            elif required:
                raise unknown(self.label, p.name)
        return tuple(result)


def meanings(subject: Definition) -> dict[str, str]:
    """Return {plain name of a parameter: meaning}; inputs precede settings, and own names precede other words."""
    result = {plain(i.name): i.name for i in subject.inputs}
    for i in subject.inputs:
        # Earlier entries win, so that a word shared by two inputs is that of the first.
        result = {plain(word): i.name for word in i.words.split()} | result
    for setting in subject.settings:
        words = (setting, *_SETTINGS.get(setting, "").split(), *FIELDS.get(setting, "").split())
        result = {plain(word): setting for word in words} | result
    return result


def open_ended(found: tuple[Parameter, ...]) -> bool:
    """Return whether only ``*args`` takes the arrays."""
    return any(p.kind is Parameter.VAR_POSITIONAL for p in found) and not any(map(is_place, found))


def is_place(p: Parameter) -> bool:
    """Return whether a parameter is required and can be passed by position."""
    return p.kind in PLACED and p.default is Parameter.empty


def for_user_code(value: object) -> object:
    """Return an ``int`` or a ``float`` for an exact number of a specification, also within tuples.

    Code of users compares types, and NumPy, torch and JAX take no ``Fraction``. Other values stay.
    """
    if isinstance(value, tuple):
        return tuple(map(for_user_code, value))
    # Before whole numbers, since True is one of them in Python.
    if isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


_OPTIONS_OF_OTHERS = {
    "--like gated-deltanet, or another linear attention (docs/definitions.md)": (
        "g beta decay dt A_log initial_state"
    ),
    "--definition cached": "k_cache v_cache key_cache value_cache past_k past_v past_key past_value",
    "--definition gradient": "do d_o dout grad_out grad_output",
}
#: Options that name another definition, by the plain names of parameters that it alone has.
_OF_OTHER_DEFINITIONS = {
    plain(name): option for option, names in _OPTIONS_OF_OTHERS.items() for name in names.split()
}


def option_of_input(name: str) -> str:
    """Return the option that gives an attention this input or result; empty if there is none.

    >>> option_of_input("mask"), option_of_input("slopes"), option_of_input("lse"), option_of_input("q")
    ('--mask boolean, or additive', '--causal --position alibi:slopes=given', '--lse', '')
    """
    row = ARRAYS.get(name)
    types = field_types(Attention)
    wanted = row and (row.needed or row.optional)
    if wanted and wanted.option:
        return wanted.option
    field = wanted.field if wanted else name
    option = f"--{field.replace('_', '-')}"
    if field in types and bool in members(types[field]):
        return option
    # A setting of the same name, such as a number of heads, is no array.
    if not wanted:
        return ""
    fitting = [str(word) for word in words(types[field]) if wanted.fits(word)]
    return f"{option} {', or '.join(fitting) or 'NUMBER'}"


def unknown(label: str, name: str) -> InputError:
    """Return the error for a parameter for which no value is known."""
    value = f"say --call {name}=VALUE, in Python call={{{name!r}: VALUE}}"
    option = option_of_input(meaning(name) or "") or _OF_OTHER_DEFINITIONS.get(plain(name))
    hint = f"; hint: if the definition has this input, say {option}" if option else ""
    return InputError(f"{label}: no value is known for {name}; {value}{hint}")


# -- attention ---------------------------------------------------------------------------------------------------------
#: Inputs of attention on heads.
_QKV = ("q", "k", "v")
#: Inputs of attention on tokens, with three projections.
_PROJECTED = ("x", "w_q", "w_k", "w_v")
#: The same with one projection for queries, keys and values.
_PACKED = ("x", "w_in")
#: The same with the projections of latent attention.
_LATENT = ("x", "w_dkv", "w_uk", "w_uv", "w_kr")
#: What a guessed parameter is, in the words of a note.
_NAMES = {"mask": "mask", "keep": "mask of padding", "doc": "labels of documents"}
#: Numbers that are computed from the inputs, by the meaning of a parameter.
_COUNTS = {"past": PAST, "n_q": COUNT_Q, "n_k": COUNT_K, "d_k": WIDTH}
#: Plain names of a parameter into which the output is written.
_DESTINATIONS = ("o", "out", "output")
_END = re.compile("([qk])v?$")  # the end of a name that belongs to queries, or to keys and values


def agree(function: Function, request: Request, name: str = "") -> Convention:
    """Return how to call ``function`` with the inputs of the specification.

    Parameters are matched by name (``q, k, v``; ``query, key, value``; ``x, w_q, w_k, w_v``; ``mask``, ``is_causal``;
    …). If the names say nothing, exactly three required positional parameters, ``*args`` or an unreadable signature
    take q, k, v by position. Settings are passed if the function has a parameter for them, unless the user sets it; one
    without a parameter is assumed to be built in. A mask that no name fits goes to the only parameter left over.
    Raises ``InputError`` for a required parameter without a value, and for a mask without a parameter.
    """
    return _Agreement(
        function, request, name or getattr(function, "__name__", "the function"), _QKV
    ).convention()


class _Agreement(Parameters):
    """The matching of a function with a request, from which a convention results."""

    guessed = ""

    def convention(self) -> Convention:
        arguments = self._make_call_arguments(self._assign_parameter_meanings())
        # Only of queries and values does the output have the rows and columns.
        if self._destination and not {*_QKV} <= {a.input for a in arguments}:
            raise unknown(self.label, self._destination)
        self._check_arguments(arguments)
        r = self.request
        notes = [self.guessed] if self.guessed else []
        if any(meaning(p.name) == "tile" and p.default is Parameter.empty for p in self.parameters):
            notes.append(f"Sizes of tiles that must be given are {TILE}.")
        if self._destination:
            notes.append(
                f"The output is what the function writes into {self._destination}, which is NaN before each call."
            )
        # Parameters are compared without underscores and case.
        topleft = any(plain(a.parameter) == "iscausal" and a.value is True for a in arguments)
        if topleft and r.framework == "torch" and r.alignment == "bottom-right":
            notes.append(
                "torch aligns is_causal top-left, the specification bottom-right: they differ where n_q ≠ n_k"
            )
        # An unused mask may be the one that the function needs.
        left = [p.name for p in self.parameters if meaning(p.name) == "mask"]
        if left and self._causal_by_mask and not any(a.input == CAUSAL_MASK for a in arguments):
            notes.append(
                f"{left[0]} is not passed: --mask-arg {left[0]} would pass the causal mask"
            )
        layout = "nd" if r.layout == "auto" else r.layout
        return Convention(
            arguments, r.framework or "numpy", r.dtype, layout, r.alignment, tuple(notes)
        )

    def _assign_parameter_meanings(self) -> dict[str, str]:
        """Return {parameter: input or setting}, each at most once."""
        result: dict[str, str] = {}
        r = self.request
        # inputs of other specifications
        foreign = {*NEEDED, *OPTIONAL} - {*MASKS, *SETTINGS, *r.extras, *r.optional}
        for p in self.parameters:
            what = None if p.name in (*self.values, self.mask_name) else meaning(p.name)
            # Sizes of tiles, further results and bounds may have several parameters.
            if (
                what
                and what not in foreign
                and (what not in result.values() or what in ("tile", "more", "bounds"))
            ):
                result[p.name] = what
        if "keep" in self.request.masks:
            self._find_keep(result)
        known = (
            *MASKS,
            *SETTINGS,
            *AROUND,
            *OF_POSITIONS,
            *self.request.extras,
            *self.request.optional,
        )
        others = {n: what for n, what in result.items() if what in known}
        spec = self.request.spec
        projected = _PACKED if spec.packed else _LATENT if spec.latent is not None else _PROJECTED
        # With q, k and v by name, the output projection has the only weights that are inputs.
        if set(_QKV) <= set(result.values()):
            result = others | {
                n: what for n, what in result.items() if what in (*_QKV, "w_o", "b_o")
            }
        elif set(projected) <= set(result.values()):
            result = {n: what for n, what in result.items() if what not in _QKV}
        else:
            result = others | self._place_required_inputs(result, others)
        if self.request.masks or spec.documents:
            result |= self._left_over(result)
        return result

    def _find_keep(self, results: dict[str, str]) -> None:
        """Find the parameter of padding: lengths, a mask of unclear polarity, or one called just a mask."""
        if "keep" in results.values() or self._mask_meaning == "keep":
            return
        # Lengths say most, then a mask whose polarity is unclear, then any mask.
        lengths = [n for n, what in results.items() if what == "lengths"]
        unclear = [
            p.name
            for p in self.parameters
            if plain(p.name) in AMBIGUOUS and p.name not in self.values
        ]
        masks = [
            n for n, what in results.items() if what == "mask" and "mask" not in self.request.masks
        ]
        for name in (lengths or unclear or masks)[:1]:
            results[name] = "lengths" if lengths else "keep"

    def _left_over(self, results: dict[str, str]) -> dict[str, str]:
        """Return a mask, or labels of documents, that no name fits for the only parameter without a meaning."""
        placed = {"keep" if what == "lengths" else what for what in results.values()} | {
            self._mask_meaning
        }
        wanted = [what for what in self.request.masks if what not in placed]
        if self.request.spec.documents and not {"doc", "doc_q", "doc_k", "bounds"} & placed:
            wanted.append("doc")
        taken = (*results, *self.values, self.mask_name, self._destination)
        free = [p.name for p in self.parameters if p.name not in taken]
        # With one of each left, there is no other choice, and a note says so.
        if len(wanted) == 1 and len(free) == 1:
            self.guessed = f"{free[0]} is used as the {_NAMES[wanted[0]]}: no name fits better"
            return {free[0]: wanted[0]}
        return {}

    @property
    def _mask_meaning(self) -> str:
        """The input that the parameter named by the user as the mask stands for, or ""."""
        return next(iter(self.request.masks), "") if self.mask_name else ""

    def _place_required_inputs(
        self, results: dict[str, str], others: dict[str, str]
    ) -> dict[str, str]:
        """Return the three required places as q, k, v (a single place x as x) if no name contradicts that."""
        taken = (*others, *self.values, self.mask_name, self._destination)
        free = [p.name for p in self.parameters if is_place(p) and p.name not in taken]
        if [results.get(n) for n in free] == ["x"]:
            return {free[0]: "x"}
        # A fourth place may be a mask, so there may be more places than roles.
        roles = dict(zip(free, _QKV, strict=False))
        spare = bool({*self.request.masks} - {*others.values()}) or self.request.spec.documents
        fits = len(free) == len(_QKV) or (len(free) == len(_QKV) + 1 and spare)
        if not fits or any(results.get(n, role) != role for n, role in roles.items()):
            raise InputError(
                f"{self.label}: the names do not say which parameters are q, k, v (or x, w_q, w_k, w_v); "
                "name them so, or give a function of q, k, v alone"
            )
        return roles

    def _make_call_arguments(self, meanings: dict[str, str]) -> tuple[Argument, ...]:
        result: list[Argument] = []
        leading = True  # a parameter can be passed by position only if all before it are
        for p in self.parameters:
            leading = leading and is_place(p) and p.name not in self.values
            argument = self._choose_argument(p, meanings.get(p.name), leading)
            if argument is not None:
                result.append(argument)
        return tuple(result)

    def _choose_argument(self, p: Parameter, what: str | None, positional: bool) -> Argument | None:
        required = p.default is Parameter.empty
        if p.name in self.values:
            return Argument(p.name, value=self.values[p.name])
        if p.name == self.mask_name:
            inverted = (self.request.mask_arg or "").startswith("~")
            return Argument(p.name, self._mask_input(), None, positional, required, inverted)
        if p.kind is Parameter.POSITIONAL_ONLY and not required:
            return None  # it cannot be named, and can be left out
        if what in MASKS:
            return self._choose_mask_argument(p.name, what, positional, required)
        if what in AROUND and what not in _SET:
            return self._make_computed_argument(p, what, positional, required)
        # A required scale that the specification leaves open is computed from the width.
        if what == "scale" and required and self.request.spec.scale is None:
            return Argument(p.name, FACTOR, None, positional, required)
        if what in _SET and what not in self.request.extras:
            value = self._choose_setting_value(what, p)
            return None if value is None else Argument(p.name, None, value, positional, required)
        if what is not None:
            return Argument(p.name, what, None, positional, required)
        if p.name == self._destination:
            return Argument(p.name, DESTINATION, None, positional, required)
        if required:
            raise unknown(self.label, p.name)
        return None

    @cached_property
    def _destination(self) -> str:
        """The required parameter into which the function writes its output; "" if there is none.

        It is the only one of a usual name, and the specification has one output, in the shape of the queries.
        """
        named = [
            p.name
            for p in self.parameters
            if p.default is Parameter.empty
            and plain(p.name) in _DESTINATIONS
            and p.name not in (*self.values, self.mask_name)
        ]
        is_single = len(named) == 1 and not self.request.spec.lse
        return named[0] if is_single else ""

    def _choose_mask_argument(
        self, name: str, what: str, positional: bool, required: bool
    ) -> Argument | None:
        """Return the argument for a parameter named as a mask; None is passed if it is required and no mask exists."""
        result = self._mask_input() if self.mask_name else None
        if what in self.request.masks and what != result:
            return Argument(
                # Code is not agreed on what True means in such a mask.
                name,
                what,
                None,
                positional,
                required,
                inverted=plain(name) in AMBIGUOUS,
            )
        if not required:
            return None
        # A function without a causal flag takes the causal mask here.
        by_mask = what == "mask" and self._causal_by_mask
        return Argument(name, CAUSAL_MASK if by_mask else None, None, positional, required)

    def _mask_input(self) -> str:
        """Return the mask to pass to the parameter that the user named for it."""
        for what in self.request.masks:
            return what
        if self.request.causal:
            return CAUSAL_MASK
        raise InputError(
            f"--mask-arg {self.request.mask_arg}: the specification has no mask; give it one, or leave this"
        )

    @property
    def _causal_by_mask(self) -> bool:
        named = {meaning(p.name) for p in self.parameters}
        result = self.request.masks or self.mask_name or "causal" in named
        return self.request.causal and not result

    def _make_computed_argument(
        self, p: Parameter, what: str, positional: bool, required: bool
    ) -> Argument | None:
        """Return an argument computed from other inputs: numbers of tokens or valid keys, bounds of documents."""
        # Padding is the number of valid keys for each item.
        if what == "lengths" and "keep" in self.request.masks:
            return Argument(p.name, "keep", None, positional, required, form="length")
        if what == "bounds" and self.request.spec.documents:
            return Argument(
                p.name, self._choose_bounds_document(p), None, positional, required, form="bounds"
            )
        # Only what is required: an optional number of tokens has its own default.
        if what == "past" or (required and what in ("n_q", "n_k", "d_k", "lengths")):
            return Argument(p.name, _COUNTS.get(what, COUNT_K), None, positional, required)
        if required:
            raise unknown(self.label, p.name)
        return None

    def _choose_bounds_document(self, p: Parameter) -> str:
        """Return whose document bounds a parameter takes: of queries, of keys, or of both if there is no pair."""
        ends = {
            q.name: _END.search(plain(q.name))
            for q in self.parameters
            if meaning(q.name) == "bounds"
        }
        of = {name: f"doc_{end[1]}" if end else "doc" for name, end in ends.items()}
        # A pair of parameters has one for queries and one for keys.
        both = {*of.values()} == {"doc_q", "doc_k"} and self.request.spec.position is None
        return of[p.name] if both else "doc"

    def _choose_setting_value(self, what: str, p: Parameter) -> object:
        """Return the value of a setting, or None to leave it to the function."""
        r = self.request
        required = p.default is Parameter.empty
        if what == "causal":
            # The mask replaces the flag, which is then off.
            by_mask = self.mask_name and r.causal and not r.masks
            return None if by_mask and not required else r.causal and not by_mask
        value = setting(what, required, p.default, r)
        if value is None and required:
            raise unknown(self.label, p.name)
        return for_user_code(value)

    def _check_arguments(self, arguments: tuple[Argument, ...]) -> None:
        """Raise ``InputError`` for an input without a parameter, and for inputs that go together with no others."""
        placed = {a.input for a in arguments}
        for what in self.request.masks:
            if what not in placed:
                # Names such as attention_mask are ambiguous: the user has to say.
                unclear = [p.name for p in self.parameters if plain(p.name) in AMBIGUOUS]
                hint = "name the parameter with --mask-arg NAME"
                if unclear:
                    hint = f"say --mask-arg {unclear[0]}, or --mask-arg ~{unclear[0]} if True means ignore"
                raise InputError(
                    f"{self.label}: no parameter for the specification's {what} is known; {hint}"
                )
        if self.request.spec.documents and not placed & {"doc", "doc_q", "doc_k"}:
            raise InputError(
                f"{self.label}: no parameter for the specification's documents is known; name it doc"
            )
        missing = [what for what in self.request.extras if what not in placed]
        if missing:
            more = ""
            # Heads side by side in the columns of q, k and v are often called packed, too.
            if "w_in" in missing and {"q", "k", "v"} <= placed:
                more = "; if q, k and v have their heads side by side, say --layout nc for --packed"
            names = {what: what for what in missing}
            _raise_missing_inputs(self.label, "specification's", names, more)
        spec = self.request.spec
        given = {name for name in placed if name is not None}
        # Masks were checked before, and a request may have some that its definition leaves open.
        masks = {name for name in required(spec) if name in MASKS}
        try:
            check_combination(spec, given - {*MASKS} | masks)
        except InputError as error:
            raise InputError(f"{self.label}: as its parameters are named, {error}") from None


# -- settings ----------------------------------------------------------------------------------------------------------
def setting(what: str, required: bool, usual: object, request: Request) -> object:
    """Return the value of a setting, or None to leave it to the function; ``usual`` is the parameter's own default.

    Further results (``return_lse``) are switched off unless the specification has them, and so is training.
    """
    if what == "lse":
        # A default that agrees is left to the function.
        return request.spec.lse if required or bool(usual) is not request.spec.lse else None
    if what == "more":
        return False if required or usual is True else None
    if what == "repeats":
        spec = request.spec
        return spec.group if required or spec.heads > spec.key_heads else None
    if what == "tile":
        return TILE if required else None
    if what in OF_POSITIONS:
        field = getattr(request.spec.position, OF_POSITIONS[what], None)
        # A flag in code, and the name of a layout in a specification.
        return field == "interleaved" if what == "interleaved" and field is not None else field
    if what == "heads":
        return request.heads if required or request.heads > 1 else None
    if what == "dropout":
        # a specification with a rate has an input of the weights that are kept, so that nothing is drawn
        return request.spec.dropout or (0.0 if required else None)
    if what == "scale":
        return request.scale
    result = dict(request.settings).get(what)
    return request.heads if what == "kv_heads" and required and result is None else result


#: Meanings that are settings, and no arrays.
_SET = frozenset({*SETTINGS, *OF_POSITIONS, "lse", "more", "tile", "repeats"})
