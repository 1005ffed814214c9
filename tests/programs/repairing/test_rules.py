"""Each rule repairs a mistake: one of its edits makes a wrong function give what the right one does."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn import reports
from symattn.programs.loading import load
from symattn.programs.repairing.edits import (
    Edit,
    FunctionPlaces,
    block_rules,
    enumerate_edits,
    expression_rules,
)
from symattn.programs.repairing.likelihood import size_of
from symattn.programs.repairing.observing import observe
from symattn.programs.repairing.source import Sources

X = np.random.default_rng(0).normal(size=(3, 4))
Y = np.random.default_rng(1).normal(size=(3, 4))
M = X > 0
IDS = np.arange(4)

HALVES = "z = x.astype('e')\n"
# of more brackets than are moved
LONG = "-(x+1)+-(y+2)+-(x+3)+-(y+4)+-(x+5)+-(y+6)+-(x+7)+-(y+8)+-(x+9)+-(y+10)+-(x+11)"
# rule, tier, the wrong body, the right one; the function is f(x, y, m, n, ids, given)
BODIES = [
    ("comparison", 1, "return np.where(ids > n, 0, x)", "return np.where(ids >= n, 0, x)"),
    ("range", 1, "return np.where((ids > n) & (ids <= 3), 0, x)", "return np.where((ids >= n) & (ids < 3), 0, x)"),
    ("operands", 1, "return x - y", "return y - x"),
    ("operator", 1, "return x * y", "return x / y"),
    ("rounding", 1, "return x * (7 // n)", "return x * -(-7 // n)"),
    ("dropped", 1, "return x * 2 + y", "return x * 2"),
    ("and/or", 1, "return x if n > 1 or n > 2 else y", "return x if n > 1 and n > 2 else y"),
    ("branches", 1, "return x if n > 5 else y", "return y if n > 5 else x"),
    ("function", 1, "return np.exp(x)", "return np.exp2(x)"),
    ("function", 1, "return x + (x * y).mean(axis=0)", "return x + (x * y).sum(axis=0)"),
    ("unwrapped", 1, "return np.abs(x)", "return x"),
    ("arguments", 1, "return np.where(m, x, y)", "return np.where(m, y, x)"),
    ("argument dropped", 1, "return x.sum(axis=0)", "return x.sum()"),
    ("axis", 1, "return x + y.sum(keepdims=False)", "return x + y.sum(keepdims=False, axis=0)"),
    ("order", 1, "return x.reshape((4, 3))", "return x.reshape((3, 4))"),
    ("slice", 1, "return x[1:]", "return x[:1]"),
    ("axis", 1, "return x[:, :3] + ids[:3, None]", "return x[:, :3] + ids[None, :3]"),
    ("constant", 1, "return x.sum(axis=0, keepdims=True)", "return x.sum(axis=1, keepdims=True)"),
    ("einsum", 1, "return np.einsum('ij,kj->ik', x, y)", "return np.einsum('ij,kj->ki', x, y)"),
    ("constant", 1, "return np.where(m, x, -np.inf)", "return np.where(m, x, -1e30)"),
    ("±1", 1, "return x * n", "return x * (n + 1)"),
    ("negated", 1, "return np.where(m, x, 0)", "return np.where(~m, x, 0)"),
    ("variable", 1, "return x + x", "return x + y"),
    ("assignment", 1, "y.clip(0, 1)\n    return x * y", "y = y.clip(0, 1)\n    return x * y"),
    ("assignment", 1, "np.add(x[0], 1)\n    return x + y", "x[0] = np.add(x[0], 1)\n    return x + y"),
    ("jump", 1, "for i in ids:\n        if i == 1:\n            break\n        n = n + i\n    return x * n",
     "return x * (n + 5)"),
    ("infinity", 1, "return np.where(m, x, 1e-9)", "return np.where(m, x, -np.inf)"),
    ("index", 2, "rows = ids[::-1]\n    return x[n - 1] + y[0]", "rows = ids[::-1]\n    return x[rows[n - 1]] + y[0]"),
    ("slice", 2, "rows = ids[:3][::-1]\n    z = x * 0\n    for i in range(3):\n        z[i] = y[i]\n    return z",
     "rows = ids[:3][::-1]\n    z = x * 0\n    for i in range(3):\n        z[rows[i]] = y[i]\n    return z"),
    ("variance", 2, "return x - x.var(axis=0)", "return x - (x * x).mean(axis=0)"),
    ("variance", 2, "return x - np.var(y, axis=0)", "return x - np.mean(y * y, axis=0)"),
    ("brackets", 2, "return x * y + n", "return x * (y + n)"),
    ("variable", 2, "return (x - 1) * 2", "return y * 2"),
    ("term", 2, "return x[:, : n]", "return x[:, : n + one]"),
    ("bound", 2, "return x[:, : n + 2].sum() * (n + 2)", "return x[:, : n + 2].sum() * min(n + 2, one)"),
    ("length", 2, "return x / 7", "return x / y.shape[-1]"),
    ("remainder", 2, "return x[: (n + 1) % 3]", "return x[: n + 1]"),
    ("index", 2, "z = np.exp(y)\n    for a in (1, 2):\n        w = x[a:] * 2\n    return w", "return np.exp(y)[2:]"),
    ("factor", 2, "return np.exp(x[:, :1]) * (x @ x.T) + y @ x.T", "return np.exp(x[:, :1]) * (x @ x.T + y @ x.T)"),
    ("factor", 2, "z = np.cumsum(x, axis=-1)[..., None]\n    w = np.stack([x, y], -1)\n    return w + 2 * z",
     "z = np.cumsum(x, axis=-1)[..., None]\n    return np.stack([x, y], -1) * np.exp(z[:, -1:] - z) + 2 * z"),
    ("everywhere", 2, "z = x - 1\n    w = x * x\n    return w * z", "return y * y * (x - 1)"),
    ("number of the specification", 2, "return x * 3.0", "return x * 0.37"),
    ("mask", 2, "return x * 2", "return np.where(m, x * 2, 0.0)"),
    ("transposed", 2, "return x[:, :3] @ y[:, :3]", "return x[:, :3] @ y[:, :3].T"),
    ("wrapped", 2, "return x * y", "return (1 - x) * y"),
    ("exponent", 2, "return x * y", "return x ** 2 * y"),
    ("factor", 2, "return x + y", "return x + y * half"),
    ("term", 2, "return x * y", "return x * (y + half)"),
    ("normalised", 2, "return np.exp(x)", "return np.exp(x) / np.exp(x).sum(-1, keepdims=True)"),
    ("guard", 2, "return x / (x - x)", "return x"),
    ("bound", 2, "return x * 2", "return np.maximum(x, y) * 2"),
    ("cast", 2, "return x * 2", "return x.astype(np.float32).astype(np.float64) * 2"),
    ("copy", 2, "z = x\n    z[0] = 0.0\n    return x + z", "z = x.copy()\n    z[0] = 0.0\n    return x + z"),
    ("index", 3, "z = y[:2]\n    return x[n:] * 2", "z = y[:2]\n    return x[:2] * 2"),
    ("term", 3, "return x + 7", "return x + (one - n)"),
    ("term", 3, "return x * np.tri(3, 4, k=1)", "return x * np.tri(3, 4, k=1 + one - n)"),
    ("factor", 3, "return x + 1", "return (x + 1) * np.exp(y)"),
    ("removed", 1, "x = x * 2\n    return x + y", "return x + y"),
    ("moved", 1, "x = x + 1\n    x = x * 2\n    return x", "x = x * 2\n    x = x + 1\n    return x"),
    ("condition", 1, "if n > 5:\n        x = x + 1\n    return x", "return x + 1"),
    ("moved", 1, "for i in range(3):\n        y = y * 2\n        x = x + y\n    return x", "return x + 8 * y"),
    ("moved", 1, "for i in range(3):\n        y = y * 2\n    x = x + 1\n    return x + y", "return x + 3 + 8 * y"),
    ("assignment", 1, "for i in range(3):\n        x = y\n    return x", "return x + 3 * y"),
    ("assignment", 2, "z = x * 0\n    z = x + y\n    return x", "return x + y"),
    ("factor", 2, "z = x\n    z = z + y\n    return z", "return x * half + y"),
    # rules that were added after wrong programs had been looked at
    ("switch", 1, "def f(a, on=False):\n        return a * 2 if on else a\n    return f(x)", "return x * 2"),
    ("switch", 1, "def f(a, *, by=1.0):\n        return a * (by or n)\n    return f(x)", "return x * n"),
    ("infinity", 1, "return np.where(m, x, -1e-9)", "return np.where(m, x, -np.inf)"),
    ("infinity", 1, "return np.where(m, x, -half)", "return np.where(m, x, -np.inf)"),
    ("exponent", 2, "return x / n", "return x / np.sqrt(n)"),
    ("reduced", 2, "return np.sin(x - y)", "return np.sin(x - y.mean(-1, keepdims=True))"),
    ("guard", 2, "return x / (y * y + 1e-2)", "return x / (y * y + 1e-5)"),
    ("factor", 2, "return sum(np.exp(a) for a, b in zip(x, y))", "return sum(b * np.exp(a) for a, b in zip(x, y))"),
    ("argument", 2, "return shifted(x)", "return shifted(x, by=x.shape[-1] - x.shape[-2])"),
    ("infinity", 1, "return np.where(m, x, 0)", "return np.where(m, x, -np.inf)"),
    ("brackets", 2, "return (x > y) - 1.0", "return x > y - 1.0"),
    ("brackets", 2, "return (x + y) * n", "return x * n + y"),
    ("brackets", 2, "return x / n - y", "return (x - y) / n"),
    ("order of operations", 2, "return np.exp(x) * y", "return np.exp(x * y)"),
    ("order of operations", 2, "return np.tanh(n - x)", "return n - np.tanh(x)"),
    ("order of calls", 2, "return np.abs(np.sin(x))", "return np.sin(np.abs(x))"),
    ("repeated", 2, "return np.tile(x, (1, n))", "return np.repeat(x, n, axis=1)"),
    ("repeated", 2, "return np.repeat(x, n, axis=0)", "return np.tile(x, (n, 1))"),
    ("shape", 2, "return x.reshape((3, 2, 2))", "return x.reshape((3, 2, 2)).swapaxes(1, 2)"),
    ("everywhere", 2, "return x.sum(0) * y.max(0)", "return x.sum() * y.max()"),
    ("diagonal", 2, "return x * np.tri(3, 4)", "return x * np.tri(3, 4, 1)"),
    ("diagonal", 2, "return np.triu(x.T @ y[:, :3], 1)", "return np.triu(x.T @ y[:, :3], 1 + len(x) - 4)"),
    ("diagonal", 2, "return x * np.tril(np.ones((3, 4)))", "return x * np.tril(np.ones((3, 4)), 4 - len(x))"),
    ("offset", 3, "return x * (ids >= np.arange(3)[:, None])", "return x * (ids >= np.arange(3)[:, None] + 1)"),
    ("offset", 3, "return x * np.full(4, 0)", "return x * np.full(4, 4 - 3)"),
    ("offset", 3, "return x[: n - one].sum()", "return x[: n - one + 1].sum()"),
    ("ratio", 3, "z = np.ones((6, 2))\n    return x * ids", "z = np.ones((6, 2))\n    return x * (ids // (6 // 3))"),
    ("length", 3, "return x + y", "return x + y - np.log(3)"),
    ("length", 3, "return x + 2 * y", "return x + 2 * y * 4"),
    ("guard", 3, "return y / (np.abs(x) + 0.1)", "return y / np.sqrt(x * x + 0.1)"),
    ("operation moved", 3, "z = x * y\n    return np.exp(z) / n", "z = x * y / n\n    return np.exp(z)"),
    ("operation moved", 3, "z = np.exp(x)\n    return z * (y - 1)", "return x * np.exp(y - 1)"),
    ("guard", 3, "return y / np.sqrt(x * x)", "return y / np.sqrt(x * x + 0.37)"),
    ("mask", 3, "return np.exp(x * 2)", "return np.exp(np.where(np.tri(3, 4, 1) > 0, x * 2, -np.inf))"),
    ("mask", 3, "return np.where(m, x, 0)", "return np.where(m & ~np.tri(3, 4, 1 - n, dtype=bool), x, 0)"),
    ("mask", 3, "m = x > 9\n    return x * 2", "return x * 0.0"),
    ("transposed", 3, "z = x[None]\n    return z.sum(0) + y", "return x.sum(0) + y"),
    ("wider", 3, f"{HALVES}    return z @ z.T", f"{HALVES}    return (z.astype('d') @ z.T).astype('e')"),
    ("expression", 3, "z = x - 1\n    return x * 2 + z", "return (x - 1) * 2 + x - 1"),
    ("zero", 2, "return x * sum(range(n, 4))", "return x * sum(range(0, 4))"),
    ("zero", 2, "a, b = n, one\n    return x * (a + 3 * b)", "return x * (0 + 3 * one)"),
    ("variable", 2, "z = 3\n    return x * 2", "return x * 3"),
    ("order of operations", 2, "return x + n * y", "return x * n + y"),
    ("order of operations", 2, "return x * n + y", "return x + n * y"),
    ("rescaled", 3, "z = np.exp(x - y)\n    return z + y", "return np.exp(x - y) * (1 + y)"),
    ("variable", 2, "return x * np.tanh(x)", "return half * np.tanh(x)"),
    ("expression", 3, "return 1 + np.exp(x)", "return np.exp(-x) + np.exp(x)"),
    ("in parallel: repeated", 3, "return np.tile(x, (1, n)) + np.tile(y, (1, n))",
     "return np.repeat(x, n, axis=1) + np.repeat(y, n, axis=1)"),
    ("slice moved", 2, "return x[:1] * y", "return x[n:n + 1] * y"),
    ("order of calls", 2, "return x.sum(0, keepdims=True).clip(0) * y", "return x.clip(0).sum(0, keepdims=True) * y"),
    ("term", 3, "z = x[0]\n    return np.exp(z) * z[-1]", "z = x[0]\n    return np.exp(z[-1] - z) * z[-1]"),
    ("term", 2, "z = x[0, 0]\n    return y + np.exp(z)", "return y + np.exp(x[0, 0] - x)"),
    ("argument", 2, "return shifted(x, 3)", "return shifted(x, n)"),
    ("axis", 1, "return x.max() + y.max(axis=1, keepdims=True)",
     "return x.max(axis=1, keepdims=True) + y.max(axis=1, keepdims=True)"),
    ("exponent", 2, "return x * (ids - n)", "return x * abs(ids - n)"),
    ("function", 1, "z = x[0]\n    return y / len(z)", "return y / sum(x[0])"),
    ("assignment", 3, "z = x\n    for i in range(2):\n        w = z + y\n    return z", "return x + 2 * y"),
    ("ratio", 2, "a, b = 4, 2\n    return x * (ids % b)", "return x * (ids // 2)"),
    ("ratio", 2, "a, b = 4, 2\n    return x * (ids // b)", "return x * (ids % 2)"),
    ("unwrapped from others", 2, "return np.maximum(x, y)", "return x"),
    ("variable of another shape", 2, "z = y[:2]\n    return x + z.max()", "return x + y.max()"),
    ("brackets", 2, "return x * y + n + half", "return x * (y + n + half)"),
    ("brackets", 2, "return x - (y - n + half)", "return x - y - n + half"),
    ("exchanged", 2, "return x * half + y * n", "return x * n + y * half"),
    ("exchanged", 2, "a, b = x + 1, y * 2\n    a, b = np.cos(a), np.sin(b)\n    return a - b",
     "return np.sin(y * 2) - np.cos(x + 1)"),
    ("exchanged", 3, "return np.stack([-x[:, :2], x[:, 2:]])", "return np.stack([-x[:, 2:], x[:, :2]])"),
    ("exchanged", 3, "return np.exp(x[0]) * x.max() + x[1]", "return np.exp(x[1]) * x.max() + x[0]"),
    ("moved", 2, "w = x\n    w = w * 2\n    z = w + y\n    z = z * n\n    w = w + 1\n    return z + w",
     "return (2 * x + 1 + y) * n + 2 * x + 1"),
    ("moved", 2, "z = 0 * y\n    for i in range(3):\n        z = z + x[i]\n        y = y + z\n    return y",
     "return y + x[0] + x[1] + x[2]"),
    ("moved", 2, "for i in range(3):\n        y = y + 1\n        x = x + y\n        y = y * 2\n    return x + y",
     "return x + 15 * y + 1"),
    ("slice", 1, "return x[:, 1:] * 2", "return x[:, :-1] * 2"),
    ("slice", 1, "return x[:-n] * 2", "return x[n:] * 2"),
    ("slice", 2, "z = np.zeros(4)\n    z[:n] = y[1, n:]\n    return x + z",
     "z = np.zeros(4)\n    z[n:] = y[1, n:]\n    return x + z"),
    ("einsum", 2, "return np.einsum('ij,ij->i', x[:, :3], y[:, :3])",
     "return np.einsum('ij,jj->i', x[:, :3], y[:, :3])"),
    ("order", 2, "return x[None].transpose(1, 2, 0)", "return x[None].transpose(2, 0, 1)"),
    ("bound", 2, "return x[:, : one].sum() * y", "return x[:, : n + 1].sum() * y"),
    ("range", 2, "return x * sum(i for i in range(4))", "return x * sum(i for i in range(n, 4))"),
    ("range", 2, "for i in range(3):\n        x = x * n + i\n    return x",
     "for i in reversed(range(3)):\n        x = x * n + i\n    return x"),
    ("bound", 3, "a, b = 3, 2\n    return x[:, : one].sum() * y", "return x[:, :3].sum() * y"),
    ("index", 3, "z = y[n:]\n    return x * y.sum()", "return x * y[n:].sum()"),
    ("factor", 2, "z = x[0]\n    return x @ y[0]", "return x @ x[0]"),
    ("factor", 2, "z = y[0] * 0\n    for i in range(3):\n        z += y[i]\n    return x @ y[0]",
     "return x @ y[0] + x @ y.sum(0)"),
    ("factor", 3, "z = y * (x + 1)\n    return x + z", "return x * (x + 1) + y * (x + 1)"),
    ("term", 3, "z = y - x * 2\n    return (x + 1) * z", "return (x + 1) * (y - x * 2 + x * 2)"),
    ("factor", 3, "z = x[:, -1] * 2\n    return y + x[0, 1]", "return (y + x[0, 1]) * np.exp(x[0, 1])"),
    ("factor", 3, "z = x.sum(1)\n    return y + 1", "return (y + 1) * np.exp(x.sum(1))[:, None]"),
    ("factor", 3, "z = x.sum(1)\n    return x.T @ y", "return x.T @ (y * x.sum(1)[:, None])"),
    ("moved", 2, "z = x + 1\n    if n > 9: y = 2 * y\n    for i in range(3):\n        z = z * y\n    return z",
     "return (x + 1) * y"),
    ("brackets", 2, f"return {LONG}", f"return {LONG.replace('(y+6)', 'y+6')}"),
    ("factor", 2, "z = np.cumsum(x, axis=0)\n    return x + 1", "return (x + 1) * np.exp(x.sum(0) - x.cumsum(0))"),
    ("factor", 2, "z = np.cumsum(x, axis=1)\n    return x + 1", "return (x + 1) * np.exp(x.sum(1))[:, None]"),
    ("rest of a running sum", 2, "z = x.cumsum(1)\n    return -z", "z = x.cumsum(1)\n    return z[:, 3:] - z"),
    ("rest of a running sum", 2, "z = x.cumsum(0)\n    return np.exp(z)", "return np.exp(x.sum(0) - x.cumsum(0))"),
    ("function", 1, "return x / y.sum(0, keepdims=True)", "return x / y.cumsum(0)"),
    ("function", 1, "return x + np.cumprod(y, 1)", "return x + y.prod(1, keepdims=True)"),
    ("function", 1, "return np.maximum(x, y)", "return np.logaddexp(x, y)"),
    ("range moved", 2, "for i in range(2):\n        x = x + sum(range(max(0, i - 1), i + 2))\n    return x",
     "return x + sum(range(1, 4)) + sum(range(2, 5))"),
    ("range moved", 2, "for i in range(2):\n        x = x + y[i : i + 1]\n    return x", "return x + y[1:2] + y[2:3]"),
    ("factor", 2, "z = x[:, 0]\n    return x * z[:, None] + y", "return (x + y) * x[:, :1]"),
    ("slices in parallel", 2, "return x[:, :n] @ y[:, :n].T", "return x[:, one:n] @ y[:, one:n].T"),
    ("slices in parallel", 2, "return x[:, one:n] @ y[:, one:n].T", "return x[:, one:] @ y[:, one:].T"),
    ("slices in parallel", 2, "return x[:, :4] @ y[:, :4].T", "return x[:, 4 - n : 4] @ y[:, 4 - n : 4].T"),
    ("slices in parallel", 2, "a, b = 5, 3\n    return x[:, a % 4] * (y[:, a % 4] + x[:, 3])",
     "return x[:, 3] * (y[:, 3] + x[:, 3])"),
    ("slices in parallel", 2, "a = 3\n    return x[:, one:n] * y[:, one:n] * np.arange(one, n)",
     "return x[:, 1:3] * y[:, 1:3] * np.arange(1, 3)"),
    ("as its twin", 2, "u = x - x.max(1, keepdims=True)\n    w = y - y.min(0)\n    return u * w",
     "return (x - x.max(1, keepdims=True)) * (y - y.max(1, keepdims=True))"),
    ("as its twin", 2,
     "x_a, y_a = 2 * x, 3 * y\n    x_b = np.tanh(x_a * n)\n    y_b = np.tanh(x_a + one)\n    return x_b - y_b",
     "return np.tanh(x * 4) - np.tanh(y * 6)"),
    ("line of its twin", 2, "x = np.tanh(x * n)\n    return x - y", "return np.tanh(x * n) - np.tanh(y * n)"),
    ("line of its twin", 2, "x[1:] += x[:-1].copy()\n    return x - y",
     "x[1:] += x[:-1].copy()\n    y[1:] += y[:-1].copy()\n    return x - y"),
    ("order of operations", 2, "return x.astype(int) * half + y", "return (x * half).astype(int) + y"),
    ("order of operations", 2, "return (x * half).astype(int) + y", "return x.astype(int) * half + y"),
    ("range by one", 2, "return x[:, 1 : 2 * one + 1 : 2] * n", "return x[:, :1] * n"),
    ("range by one", 2, "return x * sum(range(n, 4))", "return x * (1 + 2)"),
    ("range by one", 2, "return x[:, : n + 1 : n] - y[:, :n]", "return x[:, [1, 3]] - y[:, :2]"),
    ("term", 2, "return x * np.arange(4)", "return x * (np.arange(4) + 2)"),
    ("term", 2, "n_q, n_k = x.shape\n    return x * (np.arange(n_k) <= np.arange(n_q)[:, None])",
     "n_q, n_k = x.shape\n    return x * (np.arange(n_k) <= np.arange(n_q)[:, None] + n_k - n_q)"),
    ("term", 2, "z = np.asarray(5)\n    return x * ids", "return x * (ids + 5)"),
    ("moved", 1, "for i in range(3):\n        x = x + y\n        return x", "return x + 3 * y"),
    ("assignment", 3, "z = x\n    for i in range(2):\n        w = z + y\n        return z", "return x + 2 * y"),
]  # fmt: skip


def _function(folder: Path, name: str, body: str) -> Callable[..., Any]:
    path = folder / f"{name}.py"
    helper = "def shifted(a, by=0):\n    return a + by\n"
    text = f"import numpy as np\n\n\n{helper}\n\ndef {name}(x, y, m, n, one, half, ids):\n    {body}\n    # the end\n"
    path.write_text(text, encoding="utf-8")
    return load(f"{path}:{name}").function


def _given() -> tuple[Any, ...]:
    return X.copy(), Y.copy(), M.copy(), 2, 1, 0.5, IDS.copy()


def _edits_of(function: Callable[..., Any], tiers: tuple[int, ...] = (1, 2, 3)) -> tuple[Sources, list[Edit]]:
    sources = Sources(function)
    with np.errstate(all="ignore"):
        seen = observe(sources, lambda f: f(*_given()))
    return sources, enumerate_edits(sources, seen, (0.37,), tiers)


def _agrees(edited: Callable[..., Any], wanted: Any) -> bool:
    try:
        got = edited(*_given())
    except Exception:
        return False
    return np.shape(got) == np.shape(wanted) and np.allclose(got, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("rule", "tier", "wrong", "right"), BODIES)
def test_a_rule_repairs_a_mistake(tmp_path: Path, rule: str, tier: int, wrong: str, right: str) -> None:
    sources, edits = _edits_of(_function(tmp_path, "wrong", wrong), (tier,))
    with np.errstate(all="ignore"):
        wanted = _function(tmp_path, "right", right)(*_given())
        found = []
        for edit in edits:
            try:
                version = sources.edited(sources.at(edit.place), edit.replacements)
            except (SyntaxError, ValueError):
                continue
            if edit.rule == rule and _agrees(version, wanted):
                found.append(edit)
    assert found, [e.new for e in edits if e.rule == rule]


@pytest.mark.parametrize("body", ["x.tolist()\n    return x", "print(n)\n    return x", "ids.sort()\n    return x"])
def test_a_result_that_is_no_array_is_not_assigned(tmp_path: Path, body: str) -> None:
    _, edits = _edits_of(_function(tmp_path, "wrong", body), (1,))
    assert not [e for e in edits if e.rule == "assignment"]


def test_every_rule_has_a_mistake_that_it_repairs() -> None:
    named = {(rule, tier) for rule, tier, *_ in BODIES}
    of_arrays = [r for r in expression_rules() if r.where != "kernels"]
    of_statements = [r for r in block_rules() if r.where != "kernels"]
    apart = {("everywhere", 2), ("operation moved", 3), ("in parallel: repeated", 3), ("slices in parallel", 2)}
    assert {*apart, *((r.name, r.tier) for r in (*of_arrays, *of_statements))} == named


def test_a_loop_carries_parameters_and_names_that_were_assigned_before_it(tmp_path: Path) -> None:
    body = "z = y * 0\n    for i in range(n):\n        a = y\n        x = x + a\n        z += x\n    return z"
    sources = Sources(_function(tmp_path, "wrong", body))
    (key,) = sources.editable
    seen = observe(sources, lambda function: function(*_given()))
    function = FunctionPlaces(sources.place(key), sources.functions[key], seen)
    assert function.carried.keys() == {"x", "z"}


def test_a_zero_of_the_module_is_edited(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("ZERO = 0\n\n\ndef f(x):\n    return x + ZERO\n", encoding="utf-8")
    sources = Sources(load(f"{path}:f").function)
    edits = enumerate_edits(sources, observe(sources, lambda function: function(X)))
    assert {"1", "-1"} <= {edit.new for edit in edits if edit.line == 1}


@pytest.mark.parametrize(("other", "is_idle"), [("", True), ("\n\ndef g(x):\n    return x * RATE\n", False)])
def test_a_number_of_the_module_that_nothing_reads_is_tried(tmp_path: Path, other: str, is_idle: bool) -> None:
    path = tmp_path / "module.py"
    path.write_text(f"RATE = 0.8\n\n\ndef f(x, y):\n    return x * (1 - y)\n{other}", encoding="utf-8")
    sources = Sources(load(f"{path}:f").function)
    edits = enumerate_edits(sources, observe(sources, lambda function: function(X, Y)))
    reading = [edit for edit in edits if edit.old == "y" and edit.new == "RATE"]
    assert [edit.reads_idle_name for edit in reading] == [True] * is_idle


@pytest.mark.parametrize(
    ("body", "moved"),
    [
        ("n_q, n_k = x.shape\n    return x * np.arange(n_q)[:, None]", ["np.arange(n_q)[:, None] + n_k - n_q"]),
        ("n_q, n_k = x.shape\n    return x * (np.arange(n_q)[:, None] + n_k)", []),
        ("n_q, n_k = x.shape\n    return x * (np.arange(n_q)[:, None] + n_k - n_q)", []),
        ("n_q, tiles = len(x), n + 2\n    return x * np.arange(n_q)[:, None]", []),
    ],
    ids=["none", "one", "both", "computed"],
)
def test_positions_are_moved_by_a_difference_of_lengths(tmp_path: Path, body: str, moved: list[str]) -> None:
    _, edits = _edits_of(_function(tmp_path, "wrong", body), (2,))
    likely = [e.new.strip("()") for e in edits if e.rule == "term" and e.likely]
    assert [new for new in likely if "] + " in new and " - " in new] == [m.strip("()") for m in moved]


def test_a_range_whose_ends_have_no_name_in_common_is_not_moved(tmp_path: Path) -> None:
    for number, body in enumerate(("return x * sum(range(one, n))", "return x[0 : n]")):
        _, edits = _edits_of(_function(tmp_path, f"wrong{number}", body), (2,))
        assert "range moved" not in {edit.rule for edit in edits}


def test_ends_that_begin_at_0_are_not_moved_below_it(tmp_path: Path) -> None:
    _, edits = _edits_of(_function(tmp_path, "wrong", "return x[0 : n + 1]"), (2,))
    assert _new_texts(edits, "range by one", "x[0:n + 1]") <= {"x[1:n + 2]"}
    assert [edit.new for edit in edits if edit.rule == "range by one"] == ["x[1:n + 2]"]


def test_a_return_leaves_a_loop_where_no_line_follows(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("def f(x):\n    for i in range(3):\n        x = x + i\n        return x", encoding="utf-8")
    sources = Sources(load(f"{path}:f").function)
    edits = enumerate_edits(sources, observe(sources, lambda function: function(X)), tiers=(1,))
    (edit,) = [edit for edit in edits if "(after the block)" in edit.new and edit.old == "return x"]
    assert np.allclose(sources.edited(sources.at(edit.place), edit.replacements)(X), X + 3)


def test_an_operator_of_two_characters_is_replaced_as_one(tmp_path: Path) -> None:
    _, edits = _edits_of(_function(tmp_path, "wrong", "return x[0] > (ids + n)"), (1,))
    (change,) = next(edit.replacements for edit in edits if edit.rule == "comparison" and ">=" in edit.new)
    line = "    return x[0] > (ids + n)"
    whole = [""] * (change.line - 1) + [line]
    assert ast.dump(ast.parse(reports.replaced(whole, [change])[-1].strip())) == ast.dump(
        ast.parse("return x[0] >= (ids + n)")
    )


def test_an_edit_shows_the_brackets_that_its_place_needs(tmp_path: Path) -> None:
    _, edits = _edits_of(_function(tmp_path, "wrong", "return x * n / 2"), (1,))
    assert "(n + 1)" in {edit.new for edit in edits if edit.old == "n"}


def _new_texts(edits: list[Edit], rule: str, old: str) -> set[str]:
    return {edit.new for edit in edits if (edit.rule, edit.old) == (rule, old)}


@pytest.mark.parametrize(
    ("written", "new"),
    [("1e-5", "1e-06"), ("0.7", "0.07"), ("0.003", "0.03"), ("1.1", "0.1"), ("2.702702702702702", "0.37")],
)
def test_a_number_in_an_edit_is_one_that_somebody_writes(tmp_path: Path, written: str, new: str) -> None:
    """In decimals; the last one is the number of the specification, which 1/2.702702702702702 misses by rounding."""
    _, edits = _edits_of(_function(tmp_path, "wrong", f"return x + {written}"), (1,))
    numbers = [edit.new for edit in edits if (edit.rule, edit.old) == ("constant", written)]
    assert new in numbers
    rounded = [n for n in numbers if n != new and np.isclose(float(n), float(new), rtol=1e-14, atol=0)]
    assert not rounded


@pytest.mark.parametrize("call", ["x.sum({}, keepdims=True)", "np.mean(x, axis={})", "np.cumsum(x, axis={})"])
def test_an_axis_from_the_end_is_changed_as_a_number_and_keeps_its_sign(tmp_path: Path, call: str) -> None:
    _, edits = _edits_of(_function(tmp_path, "wrong", f"return {call.format(-2)}"), (1,))
    numbers = [(edit.rule, edit.new) for edit in sorted(edits, key=size_of) if edit.old == "-2"]
    assert numbers[0] == ("constant", "-1")
    assert ("dropped", "2") not in numbers


def test_a_number_that_is_no_axis_may_lose_its_sign(tmp_path: Path) -> None:
    _, edits = _edits_of(_function(tmp_path, "wrong", "return np.roll(x, -2) + -3 * y"), (1,))
    assert _new_texts(edits, "dropped", "-2") == {"2"}
    assert _new_texts(edits, "dropped", "-3") == {"3"}
    assert _new_texts(edits, "constant", "-2") == set()


def test_edits_of_several_places_show_the_brackets_that_one_of_them_needs(tmp_path: Path) -> None:
    _, edits = _edits_of(_function(tmp_path, "wrong", "z = x * n / 2\n    w = y * n / 2\n    return z + w"), (2, 3))
    assert "(n + 1)" in _new_texts(edits, "everywhere", "n")
    assert "(x + n); (y + n)" in _new_texts(edits, "in parallel: operator", "x * n; y * n")
    assert "w; (y * n + z)" in _new_texts(edits, "operation moved", "z + w; y * n")


def test_an_exchange_in_several_lines_shows_what_stands_there(tmp_path: Path) -> None:
    body = "return (x * n\n            + y * half + n * x)"
    _, edits = _edits_of(_function(tmp_path, "wrong", body), (2, 3))
    assert "y; x; y" in _new_texts(edits, "exchanged", "x; y; x")
    assert "(n * x); y" in _new_texts(edits, "exchanged", "y; n * x")


def test_a_single_number_is_a_factor_of_a_product_of_matrices_once(tmp_path: Path) -> None:
    _, edits = _edits_of(_function(tmp_path, "wrong", "return x @ y.T + half"), (2,))
    texts = {edit.new for edit in edits if edit.new.endswith("* half")}
    assert "x @ y.T * half" in texts
    assert not {"x * half", "y * half", "y.T * half"} & texts


def test_a_sum_that_does_not_run_has_no_rest(tmp_path: Path) -> None:
    for number, call in enumerate(("sum(1, keepdims=True)", "cumprod(1)", "cumsum(1)")):
        body = f"z = x.{call}\n    return np.exp(z)"
        _, edits = _edits_of(_function(tmp_path, f"wrong{number}", body), (2,))
        has_rest = "rest of a running sum" in {edit.rule for edit in edits}
        assert has_rest == call.startswith("cumsum")


@pytest.mark.parametrize(
    ("body", "rule", "new"),
    [
        # A remainder of numbers that are not whole has no last part.
        ("z = x % 2\n    return z", "remainder", "% 2 + 1"),
        # An array that is read is no array which somebody forgot.
        ("z = np.exp(y)\n    for a in (1, 2):\n        w = x[a:] * 2\n    return w, z", "index", "z[a:]"),
        # Nothing says that a product of other operands has the factor too.
        ("return np.exp(x[:, :1]) * (x @ x.T) + y @ y.T", "factor", "np.exp(x[:, :1]) * (y @ y.T)"),
    ],
)
def test_rules_that_need_evidence_make_no_edit_without_it(tmp_path: Path, body: str, rule: str, new: str) -> None:
    _, edits = _edits_of(_function(tmp_path, "evidence", body), (1, 2))
    assert not [e for e in edits if e.rule == rule and new in e.new]
