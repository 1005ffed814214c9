"""How far weights without a softmax can be from the exact ones, given errors τ_j of the scores.

Each of these is a map of scores that moves no farther than they do; what its own operations add is bounded by itself.

sigmoid    |σ(x̂) − σ(x)| ≤ σ(x)(e^τ − 1), τ with the roundings of log n; and ε + 6u, as (1 + tanh(x/2))/2 may be taken.
relu       |max(ŝ, 0) − max(s, 0)| ≤ τ; the division by n costs g(4).
sparsemax  The threshold t of p = max(s − t, 0), Σ p = 1, grows with each score, and by c if all grow by c: so it moves
           by at most τ* = max τ. It is a mean of scores less a quotient, in any order, from scores as they are or less
           their maximum: g(n + 8)(2 max|s| + 2) holds its roundings, and the places at which a key more or less is
           counted, since there it makes no difference to t.
entmax     The same with s/2 and p = (s/2 − t)². Under the root of t stands what is off by at most δ = 4 g(n + 8), so
           that the root is off by √δ at most; a square moves by r (2 √p + r) if its root moves by r.

Then |Σ ŵ_j v̂_j − Σ w_j v_j| ≤ Σ e_j |v|_j + g(n + 4 + roundings of values) Σ (w_j + e_j)|v|_j, and underflows.
Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms (2002), §3.1; of the maps: Martins, Astudillo, From
Softmax to Sparsemax (2016), proposition 1; Peters, Niculae, Martins, Sparse Sequence-to-Sequence Models (2019), §3.
"""

from __future__ import annotations

from math import log

from symattn.arrays.precision import Precision
from symattn.bounds.arithmetic import Balls, g, largest, number, size, xp
from symattn.bounds.reference import Run


def weight_errors(run: Run, precision: Precision, tau: Balls) -> Balls:
    """e_j for each weight; 0 where a key is forbidden."""
    open_, f = run.allowed, precision.roughest
    w, n = size(number(run.values["weights"])), int(run.allowed.shape[-1])
    small = 2 * precision.exp_ulps * float(precision.score.u) + 6 * float(f.u)
    if run.spec.normaliser == "sigmoid":
        moved = tau + (0 if run.spec.bias else g(6, f) * (log(n) + 1))
        found = w * (xp.exp(moved) - 1) + small
    elif run.spec.normaliser == "relu":
        found = tau / n + g(4, f) * (w + tau / n)
    else:
        found = _thresholded(run, precision, tau, w, n)
    return xp.where(open_, found + float(f.eta) * 8, 0)


def _thresholded(run: Run, precision: Precision, tau: Balls, w: Balls, n: int) -> Balls:
    f, open_ = precision.roughest, run.allowed
    scores = number(run.final_scores)
    star, most = largest(tau, open_), largest(size(scores), open_)
    rounded = g(n + 8, f) * (2 * most + 2)
    if run.spec.normaliser == "sparsemax":
        return tau + star + rounded
    root = (tau + star) / 2 + rounded + xp.sqrt(4 * g(n + 8, f))
    return root * (2 * xp.sqrt(xp.maximum(w, 0)) + root) + g(4, f) * w
