"""Why each step is done: definitions in words and formulas, and for an example with a printed text what differs.

Notes for readers of an example are computed from its arrays.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from symattn.arrays.field.quotient import Quotient
from symattn.arrays.formats import Format
from symattn.arrays.special import Undefined
from symattn.attention.letters_of_attention import D_K, D_MODEL, N_K, SIZES, SYMBOLS
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.softmax import NORMALISERS
from symattn.derivations.attention.entry_formulas import entry, row_symbol
from symattn.derivations.enclosed import Enclosed, decimal, is_number
from symattn.derivations.walks.printed import digits_sentence, reproduced_by, rounding_sentence
from symattn.derivations.walks.steps import decided, rounded_of
from symattn.derivations.walks.walk_data import Walk, counted, enumerated, first_query
from symattn.document.errors import Undecided
from symattn.document.model import Code, Paragraph, Text
from symattn.document.notation import (
    Name,
    Node,
    Over,
    Power,
    Product,
    Root,
    Transposed,
    equals,
    node,
    total,
)


def why(walk: Walk, number: int) -> Iterator[Paragraph]:
    """Yield the reasons of a step."""
    for text in _REASONS[number](walk):
        yield Paragraph(text)


def _yield_why_of_inputs(walk: Walk) -> Iterator[Text]:
    if "x" in walk.sheet.inputs:
        yield ("Each row of ", SYMBOLS["x"], " is one token, a vector of ", D_MODEL, " numbers.")
    if "y" in walk.sheet.inputs:
        yield (
            "The rows of ",
            SYMBOLS["y"],
            " are the tokens attended to: keys and values come from them.",
        )


def _yield_why_of_matrices(walk: Walk) -> Iterator[Text]:
    if "w_q" in walk.sheet.inputs:
        yield (
            "The same matrices serve every token. They are what is learned; without them the similarity of two "
            "tokens would be fixed, and the same in both directions.",
        )


def _yield_why_of_roles(walk: Walk) -> Iterator[Text]:
    yield (
        "Each token plays three roles: as a query it asks, as a key it is compared with, as a value it is handed "
        "on.",
    )
    spec = walk.sheet.attention
    if spec.latent is not None:
        yield (
            "Keys and values are made of a latent that is smaller than they are: a cache holds the latent alone, "
            "and the part of the keys that has positions.",
        )
    if spec.qk_norm:
        yield ("Normalised queries and keys keep scores bounded, however large the tokens grow.",)
    if isinstance(spec.position, Rotary):
        yield (
            "Rotated by angles that grow with their places, a query and a key have a product that depends on their "
            "distance alone (symattn derive rope).",
        )
    if spec.key_heads < spec.heads:
        yield (
            f"{spec.heads} heads of queries share {spec.key_heads} of keys and values: a cache is smaller by that "
            "factor (symattn derive gqa).",
        )


def _say_how_keys_compare(walk: Walk) -> Text:
    """Say how a query and a key are compared."""
    step = walk.pipeline["scores"]
    q = row_symbol(step.of[0], "i")
    k = row_symbol(step.of[1], "j")
    match walk.sheet.attention.score:
        case "additive":
            return (
                "The score of a key comes from a small network that sees query and key, ",
                walk.pipeline["scores"].reason[0],
                ": queries and keys need not be of one width.",
            )
        case "general":
            return (
                "The score of a key is its dot product with the query, with a matrix between: queries and keys "
                "need not be of one width.",
            )
        case "cosine":
            return (
                "The score of a key is the cosine of its angle with the query: lengths play no part.",
            )
        case "distance":
            return ("The score of a key is the larger the nearer it is to the query.",)
    result = decided(walk, step, equals(row_symbol("scores", "i", "j"), Product((q, k), "·")))
    return (
        "The score of a key is its dot product with the query",
        *((", ", result) if result else ()),
        ": large where they point the same way.",
    )


def _yield_why_of_scores(walk: Walk) -> Iterator[Text]:
    spec = walk.sheet.attention
    yield _say_how_keys_compare(walk)
    if spec.scale is None and spec.score == "dot":
        yield ("It is divided by ", Root(D_K), ", so that its variance does not grow with ", D_K,
               " (symattn derive scaling).")  # fmt: skip
    if spec.softcap is not None:
        yield (
            f"c tanh(s/c) keeps a score between −{spec.softcap} and {spec.softcap}, and hardly changes small ones.",
        )
    if spec.position is not None and not isinstance(spec.position, Rotary):
        yield (
            "What is added depends on the distance of query and key: dot products alone do not know the order of "
            "tokens.",
        )
    if spec.window is not None or spec.block is not None:
        yield (
            "A query sees near keys alone: the work for each query does not grow with the length of the text.",
        )
    if "masked" in walk.arrays:
        yield ("A forbidden score is −∞: its exponential, and so its weight, is 0.",)


def _softmax_formula(walk: Walk) -> Node:
    """Return a_ij = e^{s_ij} / Σ_l e^{s_il}, with powers of two and the sink if the specification has them."""
    spec, scores = walk.sheet.attention, walk.pipeline["weights"].of[0]
    # the walk has one letter for both
    scores = "scores" if scores == "scaled" and spec.scale == 1 else scores
    base = node(2) if spec.base else Name("e")
    below: Node = total("l", 1, N_K, Power(base, entry(scores, "i", "l")))
    if spec.sink:
        # A sink of score 0 adds the power 0 of the base, which is 1.
        below = (node(1) if spec.sink == "zero" else Power(base, SYMBOLS["sink"])) + below
    return equals(
        row_symbol("weights", "i", "j"), Over(Power(base, row_symbol(scores, "i", "j")), below)
    )


def _yield_why_of_softmax(walk: Walk) -> Iterator[Text]:
    spec = walk.sheet.attention
    if spec.is_softmax:
        makes = "Softmax makes a row of scores positive" + ("" if spec.sink else " with sum 1")
        result = decided(walk, walk.pipeline["weights"], _softmax_formula(walk))
        yield makes, *((": ", result) if result else ()), "."
    else:
        yield (NORMALISERS[spec.normaliser].why,)
    if spec.sink:
        yield (
            "The sink takes weight and has no value: a query that finds nothing need not attend to anything "
            "(symattn derive sinks).",
        )
    if spec.dropout:
        yield (
            "Some weights are dropped while a model learns; the others grow, so that the mean is what it was.",
        )
    if any(isinstance(x, Enclosed) for x in walk.arrays["weights"].flat):
        yield (
            "exact: a letter, for the number has no closed form whose equality with another could be decided. "
            f"decimal: its digits, proven by balls. {walk.dtype}: what this arithmetic computes, and how far off it "
            "is in units in the last place.",
        )
        return
    yield (
        "exact: as a quotient of sums of powers of e. decimal: that number, correctly rounded. "
        f"{walk.dtype}: what this arithmetic computes, and how far off it is in units in the last "
        "place.",
    )
    if walk.sheet.printed and reproduced_by(walk):
        yield (
            "printed: the text's digits. rounded: the weights with which it goes on; they differ from the "
            "exact ones because it rounds before it multiplies.",
        )


def _yield_why_of_products(walk: Walk) -> Iterator[Text]:
    yield ("Each value is taken as much as its key's weight says.",)
    weights, values = (walk.arrays[name] for name in walk.mixing.of[:2])
    # With heads the block has more axes than the code names.
    if weights.ndim == values.ndim == 2:
        lengths_shown = (*weights.shape[::-1], values.shape[1])
        sides = " × ".join(map(str, lengths_shown))
        yield (
            "In code all of them are often one block with an axis for the key, one for the query and one for the "
            "feature, ",
            Code("v[:, None, :] * a.T[:, :, None]"),
            f", here {sides}; its sum over the keys is the output.",
        )


def _yield_why_of_sums(walk: Walk) -> Iterator[Text]:
    weights, values = walk.mixing.of[:2]
    sum_ = total("j", 1, N_K, row_symbol(weights, "i", "j") * row_symbol(values, "j"))
    formula = equals(row_symbol(walk.mixing.name, "i"), sum_)
    # The formula has only weights and values, so that it is not the step where mixing reads a third array.
    shown = decided(walk, walk.mixing, formula) if len(walk.mixing.of) == 2 else None
    if walk.mixing.name == "attended_latents":
        yield (
            "Latents are summed in the place of values, which are made of the sums: one product less for each "
            "key.",
        )
    yield "The output is the sum over all keys", *((", ", shown) if shown else ()), "."
    if (results := rounded_of(walk)) is not None:
        kind = "the text's" if results[0] == "printed" else f"the {results[0]}"
        yield (
            f"With {kind} rounded weights it comes out differently: the rounding errors are multiplied by the "
            "values.",
        )


def _yield_why_of_others(walk: Walk) -> Iterator[Text]:
    yield (
        f"Every query is treated like query {first_query(walk)}, independently of the others: all rows at once are "
        "one product of matrices.",
    )


def _yield_why_of_merging(walk: Walk) -> Iterator[Text]:
    yield ("The heads' outputs stand side by side; a last matrix mixes them where there is one.",)


_REASONS = {
    1: _yield_why_of_inputs,
    2: _yield_why_of_matrices,
    3: _yield_why_of_roles,
    4: _yield_why_of_scores,
    5: _yield_why_of_softmax,
    6: _yield_why_of_products,
    7: _yield_why_of_sums,
    8: _yield_why_of_others,
    9: _yield_why_of_merging,
}


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
        # Equal numbers of heads are no matter of a transpose.
        if size not in ("h", "h_kv"):
            groups.setdefault(value, []).append(SIZES[size])
    equal = [equals(*sizes, value) for value, sizes in groups.items() if len(sizes) > 1]
    if equal:
        signs = ["", *([", "] * (len(equal) - 2)), " and "] if len(equal) > 1 else [""]
        listed = [part for sign, one in zip(signs, equal, strict=True) for part in (sign, one)]
        yield (*listed, " here: a missing or extra transpose would go unnoticed.")


def _symmetric_scores(walk: Walk) -> Iterator[Text]:
    scores = walk.arrays["scores"]
    # Equality of enclosed scores is not decided, so that symmetry stays open.
    has_enclosed = any(isinstance(x, Enclosed) for x in scores.flat)
    if walk.sheet.attention.score != "dot" or has_enclosed:
        return
    # A matrix that is not square has no symmetry.
    if scores.shape[-1] != scores.shape[-2] or not bool(
        np.all(scores == np.swapaxes(scores, -1, -2))
    ):
        return
    x, s = SYMBOLS["x"], SYMBOLS["scores"]
    qk, kq = (SYMBOLS[name] for name in walk.pipeline["scores"].of[:2])
    if "x" in walk.arrays and "w_q" not in walk.arrays and "y" not in walk.arrays:
        yield (
            s,
            " is symmetric whatever the inputs are, since without parameters it is ",
            x * Transposed(x),
            ".",
        )
    else:
        one = qk * Transposed(kq)
        other = kq * Transposed(qk)
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
        try:
            j = max(range(len(row)), key=lambda j: row[j])
            other_is_larger = j != i and row[i] < row[j]
        except Undecided:  # enclosed weights may be equal
            continue
        if other_is_larger:
            yield (
                f"{_name_walk_token(walk, i)} attends to {_name_walk_token(walk, j)} (",
                decimal(row[j], 4),
                ") more than to itself (",
                decimal(row[i], 4),
                ").",
            )


def _empty_rows(walk: Walk) -> Iterator[Text]:
    masked = walk.arrays.get("masked")
    if masked is None:
        return
    # A row without any number: every key is forbidden.
    rows = np.ndindex(masked.shape[:-1])
    empty = [i for i in rows if not any(map(is_number, masked[i]))]
    if empty:
        gives = (
            "weights of zero"
            if walk.sheet.attention.zeroes_empty_rows
            else "0/0, which is undefined"
        )
        yield (
            f"{counted(len(empty), 'query', 'queries')} may attend to no key at all; such a row gives {gives}.",
        )


def _not_finite(walk: Walk) -> Iterator[Text]:
    """Yield where the floating format breaks down, and why."""
    # In the order of computation, since only the first step that breaks down is named.
    for name in (*walk.sheet.inputs, *walk.pipeline):
        bad = [
            i
            for i in np.ndindex(walk.arrays[name].shape)
            # A forbidden score is −∞ in exact numbers, too, and no breakdown.
            if is_number(walk.arrays[name][i])
            and not np.isfinite(np.float64(walk.computed[name][i]))
        ]
        if bad:
            rows = sorted({i[-2:][0] + 1 for i in bad})
            row = "row" if len(rows) == 1 else "rows"
            yield (
                f"{walk.dtype}: {len(bad)} of the {walk.arrays[name].size} entries of {name} are not finite, "
                f"in {row} {enumerated(rows)}",
                *_explain_overflow_of_exp(walk, name),
                ".",
            )
            return


def _explain_overflow_of_exp(walk: Walk, name: str) -> Text:
    """Yield that e^s overflows, if that is what went wrong."""
    array_of_scores = walk.arrays[walk.pipeline["weights"].of[0]]
    scores = [x for x in array_of_scores.flat if is_number(x)]
    enclosed = any(isinstance(x, Enclosed) for x in scores)
    largest = Format(walk.dtype).largest
    exponent = None if enclosed else max(scores, default=None)
    if name != "weights" or walk.sheet.attention.stabilised or not isinstance(exponent, Quotient):
        return ()
    if exponent.constant() is None or not exponent.exp() > largest:
        return ()
    power = exponent.exp().notation()
    limit = decimal(Quotient.of(largest), 5)
    return (": ", power, " is beyond ", limit, ", its largest number; subtract the largest score of a row first "
            "(stabilised)")  # fmt: skip


def _yield_undefined_weights(walk: Walk) -> Iterator[Text]:
    result = [x for x in walk.arrays["weights"].flat if isinstance(x, Undefined)]
    if result:
        yield (f"{counted(len(result), 'weight')} undefined: {result[0].why}.",)


def _yield_rounding_remark(walk: Walk) -> Iterator[Text]:
    """Yield everything about the text's rounding as one remark."""
    sentences = list(rounding_sentence(walk))
    if sentences:
        yield tuple(
            part
            for i, sentence in enumerate(sentences)
            for part in ((" ", *sentence) if i else sentence)
        )


def too_long(walk: Walk) -> Iterator[Text]:
    """Yield which exact entries were not printed, and why."""
    if walk.enclosed:
        yield (
            f"The letters that stand for exact entries of {enumerated(walk.enclosed)}: no closed form of them is "
            "known whose equality with another could be decided. Their digits are proven, by balls.",
        )
    if rest := [name for name in walk.lettered if name not in walk.enclosed]:
        yield (
            f"The letters that stand for exact entries of {enumerated(rest)}: these are too long to stand side by "
            "side; -f json has them whole.",
        )
    if walk.long:
        which = enumerated(walk.long)
        yield (
            f"… marks exact entries of {which} that are too long for a line; -f json has them whole.",
        )


def _name_walk_token(walk: Walk, i: int) -> str:
    return walk.sheet.tokens[i] if walk.sheet.tokens else f"Token {i + 1}"


_REMARKS = (
    (1, (lambda walk: ((remark,) for remark in walk.sheet.remarks), _coinciding_sizes)),
    (4, (_symmetric_scores,)),
    (
        5,
        (
            _empty_rows,
            _yield_undefined_weights,
            _not_finite,
            _more_on_another,
            digits_sentence,
            _yield_rounding_remark,
        ),
    ),
)
