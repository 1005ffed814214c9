"""The faults of the corpus: their specifications, their rules, and the public reports that they resemble.

Each is a mistake of ``symattn.verification.rules``, named by its words; a report is a repository, the number of its
issue or pull request, and the description there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from symattn.attention.positions.position_fields import Alibi, Rotary
from symattn.attention.spec import Attention

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
    ("window-short", "window", "the window is one key too short, before the query", ()),
    ("window-long", "window", "the window is one key too long, before the query",
     (("ml-explore/mlx-lm", 390, "a sliding window keeps one key too many"),)),
    ("window-ignored", "window", "the window is ignored", ()),
    ("padding-inverted", "padding", "the padding mask is inverted: True is read as padding", ()),
    ("lengths-short", "padding", "lengths are off by one: the last valid key is not seen",
     (("onnxruntime/mobius", 365, "the valid length is counted before the new token is written"),)),
    ("documents-ignored", "documents", "the documents are ignored",
     (("huggingface/nanoVLM", 204, "packed documents attend across their boundaries"),)),
    ("heads-in-turn", "grouped",
     "heads of keys and values are repeated in turn: query head t reads head t mod kv_heads", ()),
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
    ("halves-with-pairs", "rotary", "halves are exchanged with angles that are laid out for neighbours",
     (("raiyanyahya/how-to-train-your-gpt", 6, "half-split rotation, angles in adjacent pairs"),)),
    ("positions-from-0", "rotary",
     "positions of queries are counted from the first key, not to the last: the keys before are not counted",
     (("RobertCsordas/moeut", 6, "new tokens rotated from position 0, not from the cache's length"),)),
)  # fmt: skip
