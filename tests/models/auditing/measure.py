"""How much of real models is read, how often right ones are accused, and which seeded faults are named.

python -m tests.models.auditing.measure coverage [FAMILY ...]
python -m tests.models.auditing.measure layers DTYPE [FAMILY ...]
python -m tests.models.auditing.measure faults [DTYPE ...]
python -m tests.models.auditing.measure torch
python -m tests.models.auditing.measure sweep DTYPE [FAMILY ...]

``sweep`` tries families that no row was written for. A model is made from the class of its configuration alone, small
in every field by which a size is commonly told. Each family has a process of its own, of 60 s of processor time at
most; those that cannot be made so, or do not run without an audit, are told and left out.
"""

import json
import os
import resource
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product
from typing import Any

from symattn import audit, reports
from symattn.models.configurations.promised_layers import LAYOUTS
from tests.models.auditing.families import (
    CACHED,
    ENCODERS,
    FAMILIES,
    HALVES,
    decoding,
    drawn,
    forward,
    inputs,
    layered,
    made,
)
from tests.models.auditing.seeds import CALLS, seeded

DTYPES = ("float32", "bfloat16", "float16")
Runs = Iterable[tuple[str, Any, Callable[[], Any]]]


def tally(report: reports.AuditReport) -> Counter[str]:
    """Calls seen, read, compared with a configuration, accused; layers and their parts, those accused, those open."""
    return Counter(
        runs=1, seen=len(report.findings), read=report.read, held=sum(f.intent is not None for f in report.findings),
        accused=sum(f.state == "wrong" for f in (*report.findings, *report.layers)), layers=len(report.layers),
        parts=sum(len(f.parts) for f in report.layers), open=sum(f.state == "cannot tell" for f in report.layers),
    )  # fmt: skip


def measured(name: str, runs: Runs, odd: Callable[[Any], bool], **how: Any) -> Counter[str]:
    """The tally of all runs of a family; what is ``odd`` is printed."""
    import torch

    counts: Counter[str] = Counter()
    for words, model, run in runs:
        try:
            with torch.no_grad(), audit(model, **how) as report:
                run()
        except RuntimeError as error:  # of a family that cannot be run so, such as Bloom from a static cache
            print(f"  {name} {words}: {str(error)[:60]}")
            continue
        counts.update(tally(report))
        for f in report.layers if how.get("layers") else report.findings:
            if odd(f):
                print(f"  {name} {words} {f.layer}: {f.verdict[:300]} {getattr(f, 'unknown', '')[:90]}", flush=True)
    print(f"{name}: {dict(counts)}", flush=True)
    return counts


def summed(results: Iterable[Counter[str]]) -> None:
    total: Counter[str] = Counter()
    for counts in results:
        total.update(counts)
    print(f"all: {dict(total)}")


def runs_of_calls(name: str) -> Iterator[tuple[str, Any, Any]]:
    """The ways in which a family is run: in words, the model, what runs it."""
    import torch

    for dtype, implementation in product(DTYPES, ("eager", "sdpa")):
        try:
            model = made(name, getattr(torch, dtype), implementation)
        except ValueError as refused:  # of sdpa, by families that have no such function
            print(f"  {name} {dtype} {implementation}: {str(refused)[:60]}")
            continue
        for padding in ("none", "left", "right") if name != "whisper" else ("none",):
            given = inputs(name, model.dtype, padding)
            yield f"{dtype} {implementation} {padding} prefill", model, forward(model, given)
            if name in CACHED:
                yield f"{dtype} {implementation} {padding} decoding", model, decoding(model, given)
        if name in CACHED and name not in HALVES:
            yield f"{dtype} {implementation} static cache", model, decoding(model, inputs(name, None), static=True)


def coverage(names: list[str]) -> None:
    """Calls seen, read, compared with a configuration, accused; of each family."""
    summed(measured(n, runs_of_calls(n), lambda f: f.state != "pass" or f.unknown) for n in names or FAMILIES)


def runs_of_layers(family: str, dtype: Any) -> Iterator[tuple[str, Any, Any]]:
    """The same where whole layers are judged."""
    model = layered(family, dtype)
    given = inputs(family, dtype, "left")
    cached = family not in ENCODERS
    yield "eager, padding on the left, prefill", model, forward(model, given)
    if cached:
        yield "eager, padding on the left, decoding", model, decoding(model, given)
    try:
        model = layered(family, dtype, "sdpa")
    except ValueError:  # of families that have no such function
        return
    given = inputs(family, dtype)
    if not cached:
        yield "sdpa, prefill", model, forward(model, given)
        return
    yield "sdpa, decoding", model, decoding(model, given)
    yield "sdpa, static cache", model, decoding(model, given, static=True)


def layers(words: list[str]) -> None:
    """Passes through layers and their parts, those accused, those left open; of each family."""
    import torch

    dtype = getattr(torch, words[0])
    summed(
        measured(family, runs_of_layers(family, dtype), lambda f: f.state != "pass", layers=True, rows=1)
        for family in words[1:] or LAYOUTS
    )


def faults(dtypes: list[str]) -> None:
    """Seeded faults: found, and named as what they are."""
    counts: Counter[str] = Counter()
    for dtype, seed in product(dtypes or DTYPES, CALLS):
        report = seeded(seed, dtype)
        wrong = [f for f in report.findings if f.state == "wrong"]
        named = bool(wrong) and all(seed.words in f.cause for f in wrong)
        counts.update(seeded=1, found=int(bool(wrong)), named=int(named))
        if not named:
            print(f"  {dtype} {seed.words}: {[f.verdict for f in report.findings]}")
    print(dict(counts))


def modules(_: list[str]) -> None:
    """torch's own modules and function: calls seen, read, accused; with gradients and without."""
    import torch

    from tests.models.auditing.torch_modules import DTYPES as formats
    from tests.models.auditing.torch_modules import functions, ways

    counts: Counter[str] = Counter()
    for dtype, first, training, grad in product(formats, (True, False), (True, False), (True, False)):
        for way in (*ways(dtype, first, training), *functions(dtype)):
            with torch.set_grad_enabled(grad), audit(way.module) as report:
                way.run()
            counts.update(tally(report))
            counts.update(f.via for f in report.findings)
            for f in report.findings:
                if f.state != "pass as given":
                    print(f"  {dtype} {way.words} {f.layer}: {f.verdict}")
    print(dict(counts))


# -- families that no row was written for ------------------------------------------------------------------------------
_LARGEST = 8_000_000  # parameters
_SECONDS = 60  # of processor time, of a family
_SIZES = {
    32: "hidden_size d_model n_embd dim embed_dim word_embed_proj_dim embedding_size intermediate_size ffn_dim d_ff"
    " n_inner hidden_dim encoder_ffn_dim decoder_ffn_dim ffn_hidden_size",
    2: "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers num_decoder_layers"
    " num_encoder_layers num_key_value_heads num_kv_heads num_experts_per_tok moe_k moe_topk",
    4: "num_attention_heads num_heads n_head n_heads encoder_attention_heads decoder_attention_heads num_experts"
    " num_local_experts n_routed_experts moe_num_experts patch_size rotary_dim qk_rope_head_dim qk_nope_head_dim",
    8: "head_dim d_kv q_lora_rank kv_lora_rank v_head_dim relative_attention_num_buckets",
    16: "image_size moe_intermediate_size shared_expert_intermediate_size relative_attention_max_distance",
    64: "vocab_size max_position_embeddings n_positions n_ctx",
    6: "sliding_window",
    1: "n_group topk_group n_shared_experts num_hidden_groups bos_token_id decoder_start_token_id",
    0: "pad_token_id num_kv_shared_layers",
}


def config_of(family: str) -> Any:
    """A small configuration of a family."""
    from transformers import CONFIG_MAPPING

    of_family = CONFIG_MAPPING[family]
    usual, other = of_family(), getattr(of_family, "attribute_map", {})
    sizes = {name: size for size, names in _SIZES.items() for name in names.split() if hasattr(usual, name)}
    if "kv_lora_rank" in sizes:  # latents have no groups, and rotate a part of a head
        sizes |= {name: 4 for name in ("num_key_value_heads", "head_dim") if name in sizes}
    return of_family(**{name: size for name, size in sizes.items() if other.get(name) not in sizes})


def model_of(family: str, dtype: Any, implementation: str) -> Any:
    """A model with random weights, whose queries and keys are large enough that scores matter."""
    import torch
    import transformers

    of_family = getattr(transformers, named(family))
    with torch.device("meta"):
        count = sum(p.numel() for p in of_family(config_of(family)).parameters())
    if count > _LARGEST:
        raise ValueError(f"it has {count} parameters")
    torch.manual_seed(0)
    return drawn(of_family(config_of(family)), dtype, implementation)


def named(family: str) -> str:
    """The class of its models: of two halves, of language, or whatever there is."""
    from transformers.models.auto import modeling_auto as auto

    for table in (auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        if family in table:
            return str(table[family])
    name = auto.MODEL_MAPPING_NAMES[family]
    return name if isinstance(name, str) else str(name[0])


def every() -> list[str]:
    """The families of models of language, and those of two halves."""
    from transformers.models.auto import modeling_auto as auto

    return sorted({*auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES})


def runs_of_any(model: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Text without padding and with it on either side, all at once and from a cache; pictures and sounds whole."""
    import torch

    if model.main_input_name != "input_ids":
        size = getattr(model.config, "image_size", 16)
        shape = {"pixel_values": (2, 3, size, size), "input_values": (2, 3200)}[model.main_input_name]
        yield "prefill", partial(model, torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(model.dtype))
        return
    halves = bool(getattr(model.config, "is_encoder_decoder", False))
    for padding in ("none", "left", "right"):
        given = inputs("t5" if halves else "", None, padding)
        yield f"{padding} prefill", forward(model, given)
        if not halves and padding != "right":
            yield f"{padding} decoding", decoding(model, given)


def swept(family: str, dtype: str) -> Counter[str]:
    """Calls seen, read, compared with a configuration, accused; and what crashed."""
    import torch

    counts: Counter[str] = Counter(families=0)
    told: set[str] = set()
    for implementation in ("eager", "sdpa"):
        try:
            model = model_of(family, getattr(torch, dtype), implementation)
        except Exception as error:  # of Transformers, whose models are not all made so
            told.add(f"not made with {implementation}: {_short(error)}")
            continue
        for words, run in runs_of_any(model):
            try:
                with torch.no_grad():
                    run()
            except Exception as error:  # of a model that does not run so, audited or not
                told.add(f"{words.split()[-1]} does not run: {_short(error)}")
                continue
            with torch.no_grad(), audit(model) as report:
                run()
            counts.update(tally(report))
            told |= {f"{f.layer}: {f.verdict}" for f in report.findings if f.state not in ("pass", "pass as given")}
    counts["families"] = int(counts["seen"] > 0)
    print(f"{family} {dtype}: {dict(counts)}", *(f"  {line[:160]}" for line in sorted(told)[:6]), sep="\n", flush=True)
    return counts


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"


def sweep(words: list[str]) -> None:
    """Each family by itself, since one that crashes, or does not end, is to be told."""
    total: Counter[str] = Counter()
    for family in words[1:] or every():
        source, sink = os.pipe()
        child = os.fork()
        if child == 0:
            os._exit(_alone(family, words[0], sink))
        os.close(sink)
        _, status = os.waitpid(child, 0)
        total.update(json.loads(os.read(source, 1 << 12) or b"{}"))
        os.close(source)
        if status:
            total["crashed"] += 1
            print(f"{family} {words[0]}: it crashed or took more than {_SECONDS} s", flush=True)
    print(f"all {words[0]}: {dict(total)}")


def _alone(family: str, dtype: str, sink: int) -> int:
    """In a process of its own: the counts go to ``sink``; the exit code."""
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    try:
        os.write(sink, json.dumps(swept(family, dtype)).encode())
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    kinds = {"coverage": coverage, "layers": layers, "faults": faults, "torch": modules, "sweep": sweep}
    kinds[sys.argv[1]](sys.argv[2:])
