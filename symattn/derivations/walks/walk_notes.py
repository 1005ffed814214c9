"""Notes for readers of an example, computed from its arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from symattn.arrays.field.quotient import Quotient
from symattn.arrays.formats import Format
from symattn.arrays.special import Undefined
from symattn.attention.letters_of_attention import SIZES, SYMBOLS
from symattn.derivations.enclosed import Enclosed
from symattn.derivations.printed_elements import decimal, is_number
from symattn.derivations.walks.printed import digits_sentence, rounding_sentence
from symattn.derivations.walks.walk_data import Walk, counted, enumerated
from symattn.document.model import Text
from symattn.document.notation import Node, Transposed, equals


def about(walk: Walk, step: int | None) -> Iterator[Text]:
    """Yield the remarks on a step, or on the whole walk."""
    for number, remarks in _REMARKS:
        if step in (None, number):
            for remark in remarks:
                yield from remark(walk)


def _coinciding_sizes(walk: Walk) -> Iterator[Text]:
    """Yield a warning that equal sizes hide a missing transpose."""
    groups: dict[int, list[Node]] = {}
    for size, value in walk.main_sizes.items():
        if size not in ("h", "h_kv"):
            groups.setdefault(value, []).append(SIZES[size])
    equal = [equals(*sizes, value) for value, sizes in groups.items() if len(sizes) > 1]
    if equal:
        signs = ["", *[", "] * (len(equal) - 2), " and "] if len(equal) > 1 else [""]
        listed = [part for sign, one in zip(signs, equal, strict=True) for part in (sign, one)]
        yield (*listed, " here: a transpose too few or too many may go unnoticed.")


def _symmetric_scores(walk: Walk) -> Iterator[Text]:
    scores = walk.arrays["scores"]
    if walk.sheet.attention.score != "dot" or any(isinstance(x, Enclosed) for x in scores.flat):
        return
    if scores.shape[-1] != scores.shape[-2] or not bool(np.all(scores == np.swapaxes(scores, -1, -2))):
        return
    x, s = SYMBOLS["x"], SYMBOLS["scores"]
    qk, kq = (SYMBOLS[name] for name in walk.pipeline["scores"].of[:2])
    if "x" in walk.arrays and "w_q" not in walk.arrays and "y" not in walk.arrays:
        yield (s, " is symmetric whatever the inputs are, since without parameters it is ", x * Transposed(x), ".")
    else:
        one, other = qk * Transposed(kq), kq * Transposed(qk)
        yield (s, " is symmetric here: this example cannot tell ", one, " from ", other, ".")


def _more_on_another(walk: Walk) -> Iterator[Text]:
    """Yield that without parameters a token may attend to another one more than to itself."""
    weights = walk.arrays["weights"]
    if (
        weights.ndim != 2
        or set(walk.sheet.inputs) != {"x"}
        or "w_q" in walk.arrays
        or "x" not in walk.arrays
        or "y" in walk.arrays
    ):
        return
    for i, row in enumerate(weights):
        if not all(map(is_number, row)):
            continue
        j = max(range(len(row)), key=lambda j: row[j])
        if row[i] < row[j]:
            yield (f"{_token(walk, i)} attends to {_token(walk, j)} (", decimal(row[j], 4), ") more than to itself (",
                   decimal(row[i], 4), ").")  # fmt: skip


def _empty_rows(walk: Walk) -> Iterator[Text]:
    masked = walk.arrays.get("masked")
    if masked is None:
        return
    empty = [i for i in np.ndindex(masked.shape[:-1]) if not any(map(is_number, masked[i]))]
    if empty:
        gives = "weights of zero" if walk.sheet.attention.zeroes_empty_rows else "0/0, which is undefined"
        yield (f"{counted(len(empty), 'query', 'queries')} may attend to no key at all; such a row gives {gives}.",)


def _not_finite(walk: Walk) -> Iterator[Text]:
    """Yield where the floating format breaks down, and why."""
    for name in (*walk.sheet.inputs, *walk.pipeline):
        bad = [
            i
            for i in np.ndindex(walk.arrays[name].shape)
            if is_number(walk.arrays[name][i]) and not np.isfinite(np.float64(walk.computed[name][i]))
        ]
        if bad:
            rows = sorted({i[-2:][0] + 1 for i in bad})
            row = "row" if len(rows) == 1 else "rows"
            yield (f"{walk.dtype}: {len(bad)} of the {walk.arrays[name].size} entries of {name} are not finite, "
                   f"in {row} {enumerated(rows)}", *_overflow(walk, name), ".")  # fmt: skip
            return


def _overflow(walk: Walk, name: str) -> Text:
    """Yield that e^s overflows, if that is what went wrong."""
    scores = [x for x in walk.arrays[walk.pipeline["weights"].of[0]].flat if is_number(x)]
    enclosed = any(isinstance(x, Enclosed) for x in scores)
    largest, exponent = Format(walk.dtype).largest, None if enclosed else max(scores, default=None)
    if name != "weights" or walk.sheet.attention.stabilised or not isinstance(exponent, Quotient):
        return ()
    if exponent.constant() is None or not exponent.exp() > largest:
        return ()
    power, limit = exponent.exp().notation(), decimal(Quotient.of(largest), 5)
    return (": ", power, " is beyond ", limit, ", its largest number; subtract the largest score of a row first "
            "(stabilised)")  # fmt: skip


def _undefined(walk: Walk) -> Iterator[Text]:
    result = [x for x in walk.arrays["weights"].flat if isinstance(x, Undefined)]
    if result:
        yield (f"{counted(len(result), 'weight')} undefined: {result[0].why}.",)


def _roundings(walk: Walk) -> Iterator[Text]:
    """Yield everything about the text's rounding as one remark."""
    sentences = list(rounding_sentence(walk))
    if sentences:
        yield tuple(part for i, sentence in enumerate(sentences) for part in ((" ", *sentence) if i else sentence))


def too_long(walk: Walk) -> Iterator[Text]:
    """Yield which exact entries were not printed, and why."""
    if walk.enclosed:
        yield (f"The letters that stand for exact entries of {enumerated(walk.enclosed)}: no closed form of them is "
               "known whose equality with another could be decided. Their digits are proven, by balls.",)  # fmt: skip
    if rest := [name for name in walk.lettered if name not in walk.enclosed]:
        yield (f"The letters that stand for exact entries of {enumerated(rest)}: these are too long to stand side by "
               "side; -f json has them whole.",)  # fmt: skip
    if walk.long:
        which = enumerated(walk.long)
        yield (f"… marks exact entries of {which} that are too long for a line; -f json has them whole.",)


def _token(walk: Walk, i: int) -> str:
    return walk.sheet.tokens[i] if walk.sheet.tokens else f"Token {i + 1}"


_REMARKS = (
    (1, (lambda walk: ((remark,) for remark in walk.sheet.remarks), _coinciding_sizes)),
    (4, (_symmetric_scores,)),
    (5, (_empty_rows, _undefined, _not_finite, _more_on_another, digits_sentence, _roundings)),
)
