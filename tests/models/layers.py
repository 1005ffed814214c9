"""All cases, each made once."""

from __future__ import annotations

from functools import cache

from tests.models import absolute as a
from tests.models import rotary as r
from tests.models.cases import Case

MAKERS = {
    maker.__name__: maker
    for maker in (
        a.gpt2, a.bert, a.t5_encoder, a.t5_decoder, a.t5_cross, a.bloom_of_three, a.bloom_of_six, a.mpt, a.xlnet,
        a.deberta, r.llama, r.mistral, r.gemma2, r.qwen3, r.gpt_oss, r.deepseek_v3, r.gptj, r.gpt_neox, r.falcon,
    )
}  # fmt: skip


@cache
def case(name: str) -> Case:
    """A case by its name."""
    return MAKERS[name]()
