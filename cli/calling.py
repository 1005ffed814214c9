"""Options for how a function is called and how much is tried, for each command that judges functions."""

from __future__ import annotations

import click

from .choices import Choice, Whole
from .groups import all_of, under
from .variants import MODEL

CALL = under("How the function is called", "calling")
DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
LAYOUTS = ("nd", "bnd", "nbd", "nhd", "bhnd", "bnhd", "nbhd", "nc", "bnc", "nbc")

SEARCH = under("How much is tried", "effort")

calling = all_of((
    CALL("--call", multiple=True, metavar="NAME=VALUE", help="Pass this keyword, such as is_causal=true."),
    CALL("--mask-arg", metavar="NAME", help="The parameter that takes the mask; ~NAME takes its negation."),
    CALL("--mask-axes", metavar="AXES", help="The axes of a mask, such as b,1,1,n_k. Default: detected by trial."),
    CALL("--layout", type=Choice(LAYOUTS), help="Order of the axes. Default: detected by trial."),
    CALL("--framework", type=Choice(("numpy", "torch", "jax")), help="The arrays to call it with. Default: detected."),
))  # fmt: skip
"""Give a command the options for how a function is called."""
judging = all_of((
    click.option(
        "--dtype", type=Choice(DTYPES), default="float32", metavar="TYPE",
        help=f"Type of inputs: {', '.join(DTYPES)}. Default: float32.",
    ),
    MODEL(
        "--definition", metavar="NAME",
        help="Something else than attention: lse, gradient, cached, RMSNorm(eps=1e-6), LinearAttention, Block, "
        "merge, ...",
    ),
    CALL(
        "--contract", type=Choice(("eager", "fused")),
        help="Whether scores are stored in the input type (eager) or wider (fused).",
    ),
    CALL("--time-limit", type=float, metavar="SECONDS", help="Processor time allowed for one call. Default: 10."),
    SEARCH("--examples", type=Whole(0), help="Number of random inputs. Default: 100."),
    SEARCH("--budget", type=float, metavar="SECONDS", help="Processor time allowed for a function. Default: 120."),
    SEARCH("--seed", type=int, help="Seed of the random inputs."),
))  # fmt: skip
"""Give a command the options for what a function is compared with, and how much is tried."""
