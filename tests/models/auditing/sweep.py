"""Families of Transformers that no row was written for: how much is read, and how often right models are accused.

python -m tests.models.auditing.sweep DTYPE [FAMILY ...]

A model is made from the class of its configuration alone, small in every field by which a size is commonly told. Each
family has a process of its own, of 60 s of processor time at most; those that cannot be made so, or do not run
without an audit, are told and left out.
"""

import inspect
import json
import os
import resource
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from symattn import audit

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

    made = CONFIG_MAPPING[family]
    usual, other = made(), getattr(made, "attribute_map", {})
    sizes = {name: size for size, names in _SIZES.items() for name in names.split() if hasattr(usual, name)}
    if "kv_lora_rank" in sizes:  # latents have no groups, and rotate a part of a head
        sizes |= {name: 4 for name in ("num_key_value_heads", "head_dim") if name in sizes}
    return made(**{name: size for name, size in sizes.items() if other.get(name) not in sizes})


def model_of(family: str, dtype: Any, implementation: str) -> Any:
    """A model with random weights, whose queries and keys are large enough that scores matter."""
    import torch
    import transformers

    made = getattr(transformers, named(family))
    with torch.device("meta"):
        count = sum(p.numel() for p in made(config_of(family)).parameters())
    if count > _LARGEST:
        raise ValueError(f"it has {count} parameters")
    torch.manual_seed(0)
    model = made(config_of(family))
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if parameter.ndim == 2 and "embed" not in path:
                parameter.copy_(torch.randn_like(parameter) * (2.0 / parameter.shape[-1]) ** 0.5)
    model.set_attn_implementation(implementation)
    return model.eval().to(dtype)


def named(family: str) -> str:
    """The class of its models: of two halves, of language, or whatever there is."""
    from transformers.models.auto import modeling_auto as auto

    for table in (auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        if family in table:
            return str(table[family])
    found = auto.MODEL_MAPPING_NAMES[family]
    return found if isinstance(found, str) else str(found[0])


def every() -> list[str]:
    """The families of models of language, and those of two halves."""
    from transformers.models.auto import modeling_auto as auto

    return sorted({*auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES})


def ways(model: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Text without padding and with it on either side, all at once and from a cache; pictures and sounds whole."""
    import torch

    if model.main_input_name != "input_ids":
        size = getattr(model.config, "image_size", 16)
        shape = {"pixel_values": (2, 3, size, size), "input_values": (2, 3200)}[model.main_input_name]
        given = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(model.dtype)
        yield "prefill", lambda: model(given)
        return
    ids = torch.randint(3, 50, (2, 18), generator=torch.Generator().manual_seed(1))
    halves = bool(getattr(model.config, "is_encoder_decoder", False))
    for padding, hidden in (("none", slice(0, 0)), ("left", slice(0, 5)), ("right", slice(-5, None))):
        mask = torch.ones_like(ids)
        mask[0, hidden] = 0
        more = {"decoder_input_ids": ids[:, :7]} if halves else {}
        yield f"{padding} prefill", lambda mask=mask, more=more: model(input_ids=ids, attention_mask=mask, **more)
        if not halves and padding != "right":
            yield f"{padding} decoding", lambda mask=mask: _decoding(model, ids, mask)


def _decoding(model: Any, ids: Any, mask: Any) -> None:
    cache, at = None, 0
    places = (mask.cumsum(-1) - 1).clamp(min=0)
    for stop in (13, 16, 17, 18):
        more = (
            {"position_ids": places[:, at:stop]}
            if "position_ids" in inspect.signature(model.forward).parameters
            else {}
        )
        out = model(
            input_ids=ids[:, at:stop], attention_mask=mask[:, :stop], past_key_values=cache, use_cache=True, **more
        )
        cache, at = out.past_key_values, stop


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
        for words, run in ways(model):
            try:
                with torch.no_grad():
                    run()
            except Exception as error:  # of a model that does not run so, audited or not
                told.add(f"{words.split()[-1]} does not run: {_short(error)}")
                continue
            with torch.no_grad(), audit(model) as report:
                run()
            counts["runs"] += 1
            counts["seen"] += len(report.findings)
            counts["read"] += report.read
            counts["held"] += sum(f.intent is not None for f in report.findings)
            counts["accused"] += sum(f.state == "wrong" for f in report.findings)
            told |= {f"{f.layer}: {f.verdict}" for f in report.findings if f.state not in ("pass", "pass as given")}
    counts["families"] = int(counts["seen"] > 0)
    print(f"{family} {dtype}: {dict(counts)}", *(f"  {line[:160]}" for line in sorted(told)[:6]), sep="\n", flush=True)
    return counts


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"


def main(dtype: str, families: list[str]) -> None:
    """Each family by itself, since one that crashes, or does not end, is to be told."""
    import symattn.models.auditing.audit  # noqa: F401 - so that each process has it

    total: Counter[str] = Counter()
    for family in families or every():
        source, sink = os.pipe()
        child = os.fork()
        if child == 0:
            os._exit(_alone(family, dtype, sink))
        os.close(sink)
        _, status = os.waitpid(child, 0)
        total.update(json.loads(os.read(source, 1 << 12) or b"{}"))
        os.close(source)
        if status:
            total["crashed"] += 1
            print(f"{family} {dtype}: it crashed or took more than {_SECONDS} s", flush=True)
    print(f"all {dtype}: {dict(total)}")


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
    main(sys.argv[1], sys.argv[2:])
