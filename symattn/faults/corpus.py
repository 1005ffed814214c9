"""Faults of the corpus, with wrong and right outputs for inputs drawn by a seed.

Each is a mistake of ``symattn.verification.rules``, named by its words; the public report that it resembles is a
repository, the number of its issue or pull request, and the description there.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention.inputs import accepted, required
from symattn.attention.positions.position_fields import Alibi, Rotary
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Argument, Convention
from symattn.bounds.domain import Domain
from symattn.bounds.inputs import Maker, Sizes
from symattn.bounds.mistake import Mistake
from symattn.bounds.reference import RIGHT, Variant, variant_values
from symattn.document import files
from symattn.document.codec import changed_fields, record
from symattn.document.errors import InputError, perhaps
from symattn.verification.probing.probes import FAMILIES
from symattn.verification.rules.known_mistakes import yield_known_mistakes

Array = np.ndarray
#: Those of the samples, in which no two lengths are equal; and those of an everyday test.
TELLING, EVERYDAY = Sizes(7, 9, 6, 4), Sizes(16, 16, 16, 16)
# The usual promises, within which samples are drawn.
DOMAIN = Domain()


@dataclass(frozen=True)
class CorpusFault:
    """A fault: its name, the name of its specification, the mistake by rule, and the reports that it resembles."""

    name: str
    family: str
    mistake: Mistake
    reports: tuple[PublicReport, ...]

    @property
    def spec(self) -> Attention:
        """The specification of the right code."""
        return SPECIFICATIONS[self.family]

    @property
    def words(self) -> str:
        """The mistake."""
        return self.mistake.cause

    @property
    def fields(self) -> dict[str, str]:
        """The fields of the specification that differ from the defaults."""
        return changed_fields(self.spec)

    def wrong(self, inputs: Mapping[str, Array]) -> Array:
        """Return the output of code with this mistake, in the arithmetic of the inputs."""
        return _compute_variant_output(self.spec, inputs, self.mistake.variant)

    RECORD = "name, step = mistake.step, words, specification = fields, family, reports"


@dataclass(frozen=True)
class Sample:
    """Inputs in float32, the exact output rounded to float64 (``exact``), and the outputs of a right and of the wrong
    program in float32."""

    inputs: Mapping[str, Array]
    exact: Array
    right: Array
    wrong: Array

    def arrays(self) -> dict[str, Array]:
        """Return the arrays by name, as a NumPy file holds them."""
        outputs = {"exact": self.exact, "right": self.right, "wrong": self.wrong}
        return {**{f"input_{name}": a for name, a in self.inputs.items()}, **outputs}


@lru_cache(maxsize=1)
def corpus() -> tuple[CorpusFault, ...]:
    """Return all faults, in the order of the table. Raises ``KeyError`` if no rule has a fault's words."""
    rules = {
        family: {m.cause: m for m in yield_known_mistakes(spec, names(spec))}
        for family, spec in SPECIFICATIONS.items()
    }
    return tuple(
        CorpusFault(
            name, family, rules[family][words], tuple(PublicReport(*report) for report in reports)
        )
        for name, family, words, reports in TABLE
    )


def named(name: str) -> CorpusFault:
    """Return the fault with this name. Raises ``InputError`` if there is none."""
    result = {fault.name: fault for fault in corpus()}
    if name not in result:
        hint = perhaps(name, result) or "; `symattn faults list` names them"
        raise InputError(f"there is no fault {name!r}{hint}")
    return result[name]


def sample(fault: CorpusFault, seed: int, sizes: Sizes = TELLING) -> Sample:
    """Draw inputs N(0, 1) by a seed, the same on every machine, with outputs of a right and of the wrong program."""
    inputs = drawn(fault.spec, seed, sizes)
    wide = {
        name: array.astype(np.float64) if array.dtype.kind == "f" else array
        for name, array in inputs.items()
    }
    # In float64, beside which errors of float32 are visible.
    exact = _compute_variant_output(fault.spec, wide, RIGHT)
    return Sample(
        inputs, exact, _compute_variant_output(fault.spec, inputs, RIGHT), fault.wrong(inputs)
    )


def drawn(spec: Attention, seed: int, sizes: Sizes) -> dict[str, Array]:
    """Draw inputs of a specification in float32, with boolean masks."""
    if seed < 0:
        raise InputError(f"seed must be 0 or more, got {seed}")
    # Drawn by NumPy, whose generators are the same everywhere.
    rng = np.random.default_rng(seed)
    maker = Maker(spec, convention(spec), Precision.of("float32"), DOMAIN)
    result = maker.make(sizes, FAMILIES["normal"](rng), rng)
    return {
        name: array.astype(np.float32) if array.dtype.kind == "f" else array
        for name, array in result.items()
    }


def names(spec: Attention) -> frozenset[str]:
    """Return the names of a specification's inputs."""
    return frozenset({"q", "k", "v", *required(spec), *({"doc_q", "doc_k"} & accepted(spec))})


def convention(spec: Attention) -> Convention:
    """Return the calling convention of a program of the corpus: by the names of its inputs."""
    ordered = (*"qkv", *sorted(names(spec).difference("qkv")))
    return Convention(
        tuple(Argument(name, name, required=True) for name in ordered), dtype="float32"
    )


def _compute_variant_output(
    spec: Attention, inputs: Mapping[str, Array], variant: Variant
) -> Array:
    """Return the output of the definition or a variant of it, on NumPy's floats, in the dtype of q."""
    with np.errstate(all="ignore"):
        output = variant_values(spec, dict(inputs), variant)["output"]
    return np.asarray(output, dtype=inputs["q"].dtype)


# -- the corpus as a folder: ``corpus.json``, and a file of NumPy for each fault and seed ------------------------------
_MOST = 100  # seeds: 38 faults of some 5 kB for each make 20 MB
_README = (
    "Each fault has a file of NumPy for each seed: input_* (float32, or bool), exact (the output in float64), right "
    "and wrong (what a right program and one with the mistake give in float32). A rule finds a fault if it refuses "
    "wrong; it must accept right."
)


def export(
    folder: Path, seeds: int = 1, faults: Sequence[CorpusFault] | None = None, force: bool = False
) -> list[Path]:
    """Write ``corpus.json`` and NAME-SEED.npz for the seeds 0 to ``seeds`` − 1, and return the paths.

    Raises ``InputError`` for too many seeds, and for files that are there and not to be replaced.
    """
    if not 1 <= seeds <= _MOST:
        raise InputError(f"seeds must be from 1 to {_MOST}, got {seeds}")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is not a folder; hint: name a new folder")
    results = tuple(faults) if faults is not None else corpus()
    paths = {
        (k, seed): folder / f"{f.name}-{seed}.npz"
        for k, f in enumerate(results)
        for seed in range(seeds)
    }
    table = folder / "corpus.json"
    folder.mkdir(parents=True, exist_ok=True)
    # All files are checked before anything is written.
    for path in (table, *paths.values()):
        files.check(path, force)
    for (k, seed), path in paths.items():
        files.write(path, packed(sample(results[k], seed)), force)
    entries = [
        {**record(f), "files": [paths[k, s].name for s in range(seeds)]}
        for k, f in enumerate(results)
    ]
    files.write(table, written({"schema": 1, "about": _README, "faults": entries}), force)
    return [table, *paths.values()]


def packed(drawn: Sample) -> bytes:
    """Return the sample as a file of NumPy, byte for byte the same for the same sample."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = drawn.arrays()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def written(record: object) -> str:
    """Return a record as JSON."""
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


# The specifications of the faults, by the name of their family.
SPECIFICATIONS: Mapping[str, Attention] = {
    "plain": Attention(),
    "scale": Attention(scale=0.2),
    "causal": Attention(causal=True),
    "window": Attention(causal=True, window=4),
    "padding": Attention(padding=True),
    "documents": Attention(documents=True),
    "grouped": Attention(causal=True, heads=4, kv_heads=2),
    "softcap": Attention(causal=True, softcap=5),
    "sink": Attention(heads=2, sink="given"),
    "alibi": Attention(heads=6, causal=True, position=Alibi()),
    "rotary": Attention(causal=True, position=Rotary()),
}


class PublicReport(NamedTuple):
    """A public report that a fault resembles."""

    repository: str
    number: int
    words: str

    @property
    def link(self) -> str:
        """The address of the issue or pull request."""
        return f"https://github.com/{self.repository}/issues/{self.number}"


#: Name, specification, words of the rule, reports.
TABLE: tuple[tuple[str, str, str, tuple[tuple[str, int, str], ...]], ...] = (
    ("no-scale", "plain", "scores are not scaled",
     (("fla-org/flash-linear-attention", 395, "no 1/√d_k"),)),
    ("scale-inverted", "plain", "scores are multiplied by √d_k",
     (("esceptico/perceiver-io", 9, "divides by d_k**-0.5"),)),
    ("scale-of-values", "plain", "scores are scaled by 1/√d_v", ()),
    ("scale-twice", "plain", "scores are scaled by 1/d_k (as by 1/√d_k twice)", ()),
    ("scale-ignored", "scale", "the configured scale is ignored, and 1/√d_k used",
     (("huggingface/pytorch-image-models", 2280, "a fused path takes the default scale"),)),
    ("scale-of-model", "grouped", "scores are scaled by 1/√d_model",
     (("lucidrains/vit-pytorch", 65, "divided by √d_model, not by √d_k"),
      ("juho-lee/set_transformer", 18, "the width of all heads together in the scale"))),
    ("softmax-of-queries", "plain", "the softmax runs over the queries",
     (("labmlai/annotated_deep_learning_paper_implementations", 146, "softmax over the wrong axis"),
      ("FudanNLP/fastNLP", 254, "dim=2 hard-coded for arrays of rank 3"))),
    ("softmax-of-heads", "grouped", "the softmax runs over the heads", ()),
    ("not-normalised", "plain", "exponentials are not divided by their sum", ()),
    ("sink-not-asked-for", "plain", "a sink of the logit 0 takes weight that was not requested: 1 is added to the sum",
     ()),
    ("tile-of-zero-keys", "plain", "zero keys that fill the last tile of 16 take part",
     (("jax-ml/jax", 27224, "the padding of the last tile takes part where 16 does not divide n_k"),)),
    ("tile-dropped", "plain", "keys after the last full tile of 8 are dropped", ()),
    ("cache-slots", "plain", "empty slots of a static cache (zeros) take part: 64 in all",
     (("huggingface/transformers", 45940, "slots of a static cache that nothing filled are attended"),)),
    ("not-rescaled", "plain", "the sum so far is not rescaled when the maximum grows (tiles of 4)", ()),
    ("log-sums-in-base-2", "plain", "logarithms of sums in base 2 are merged as natural ones (2 parts)",
     (("sgl-project/sglang", 35045, "base-2 log-sum-exp merged as natural"),)),
    ("first-key-lost", "plain", "the first key is dropped", ()),
    ("causal-one-more", "causal", "the causal mask is off by one: a query also sees the next key", ()),
    ("causal-transposed", "causal", "the causal mask is transposed: a query sees itself and later keys", ()),
    ("mask-inverted", "causal", "the mask is inverted",
     (("lucidrains/x-transformers", 160, "the mask's polarity is reversed"),)),
    ("mask-added-as-numbers", "causal", "a boolean mask is added as 0 and 1",
     (("microsoft/onnxscript", 656, "a boolean mask is added as 0 and 1, not as 0 and −∞"),)),
    ("mask-fills-zero", "causal",
     "forbidden scores become 0 (a mask multiplied) or nearly 0 (−1e-9 filled in), which leaves them a weight",
     (("Shujun-He/RibonanzaNet", 5, "-1e-9 filled in where -1e9 was meant"),
      ("georg-wolflein/good-features", 1, "scores multiplied by the mask before the softmax"))),
    ("window-short", "window", "the window stops one key short before the query", ()),
    ("window-long", "window", "the window reaches one key too far back",
     (("ml-explore/mlx-lm", 390, "a sliding window keeps one key too many"),)),
    ("window-ignored", "window", "the window is ignored", ()),
    ("padding-inverted", "padding", "the padding mask is inverted: True is read as padding", ()),
    ("lengths-short", "padding", "lengths are off by one: the last valid key is not seen",
     (("onnxruntime/mobius", 365, "the valid length is counted before the new token is written"),)),
    ("documents-ignored", "documents", "the documents are ignored",
     (("huggingface/nanoVLM", 204, "packed documents attend across their boundaries"),)),
    ("heads-in-turn", "grouped",
     "heads of keys and values are tiled (repeat), not repeated (repeat_interleave)", ()),
    ("cap-before-scale", "softcap", "the cap comes before the scale", ()),
    ("cap-after-mask", "softcap",
     "the cap comes after the mask: forbidden scores become −c, which leaves them a weight",
     (("onnx/onnx", 7865, "the softcap after the mask turns −∞ into −c"),)),
    ("cap-left-out", "softcap", "the cap is left out", ()),
    ("sink-scaled", "sink", "the sink's logit is scaled as scores are",
     (("ROCm/rocm-libraries", 12229, "the sink's logit is multiplied by the scale"),)),
    ("sink-left-out", "sink", "the sink is left out", ()),
    ("slopes-of-any-number", "alibi", "slopes are 2^(−8t/h)",
     (("ml-explore/mlx", 3071, "geometric slopes for numbers of heads that are no powers of two"),)),
    ("bias-flipped", "alibi", "the sign of the linear bias is flipped: far keys are favoured",
     (("meta-pytorch/attention-gym", 86, "the sign of the linear bias is reversed"),)),
    ("frequencies-halved", "rotary", "the exponents of the frequencies are l/r, not 2l/r",
     (("rasbt/LLMs-from-scratch", 410, "the proposed change of the exponent"),)),
    ("halves-with-pairs", "rotary", "halves are rotated with angles in the interleaved layout",
     (("raiyanyahya/how-to-train-your-gpt", 6, "half-split rotation, angles in adjacent pairs"),)),
    ("positions-from-0", "rotary",
     "positions of queries are counted from the first key, not to the last: the keys before are not counted",
     (("RobertCsordas/moeut", 6, "new tokens rotated from position 0, not from the cache's length"),)),
)  # fmt: skip
