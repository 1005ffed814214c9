"""Right programs, and mistakes that were drawn for them: an edit by each rule, taken the other way.

A line says the program, the rule that makes the mistake, and the whole line of code that is written otherwise.
"""

SOFTMAX = """
def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
"""
PROGRAMS = {
    "plain": ("", SOFTMAX + """

def attention(q, k, v):
    scale = np.float32(q.shape[-1] ** -0.5)
    s = q @ k.T * scale
    return softmax(s) @ v
"""),
    "causal": ("causal=True", SOFTMAX + """

def attention(q, k, v):
    n_q, n_k = len(q), len(k)
    s = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
    i = np.arange(n_q)[:, None] + n_k - n_q
    j = np.arange(n_k)[None, :]
    s = np.where(j <= i, s, -np.inf)
    return softmax(s) @ v
"""),
    "tiles": ("", """
def attention(q, k, v):
    top = np.full((len(q), 1), -np.inf, q.dtype)
    total = np.zeros((len(q), 1), q.dtype)
    acc = np.zeros((len(q), v.shape[1]), q.dtype)
    scale = np.sqrt(q.shape[1]).astype(q.dtype)
    for j in range(0, len(k), 4):
        s = q @ k[j : j + 4].T / scale
        new = np.maximum(top, s.max(1, keepdims=True))
        a = np.exp(top - new)
        p = np.exp(s - new)
        total = total * a + p.sum(1, keepdims=True)
        acc = acc * a + p @ v[j : j + 4]
        top = new
    return acc / total
"""),
    "masked": ("mask='boolean'", """
def attention(q, k, v, mask):
    s = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
    s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v
"""),
    "groups": ("heads=4, kv_heads=2", SOFTMAX + """

def attention(q, k, v):
    group = q.shape[0] // k.shape[0]
    k = np.repeat(k, group, axis=0)
    v = np.repeat(v, group, axis=0)
    s = q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(q.shape[-1]))
    return softmax(s) @ v
"""),
    "window": ("causal=True, window=3", """
def attention(q, k, v):
    late = len(k) - len(q)
    rows = []
    for i in range(len(q)):
        first, last = max(i + late - 2, 0), i + late + 1
        s = k[first:last] @ q[i] / np.float32(np.sqrt(q.shape[-1]))
        e = np.exp(s - s.max())
        rows.append(e @ v[first:last] / e.sum())
    return np.stack(rows)
"""),
}  # fmt: skip

#: Program and rule, and the line before and after; a last line says why no edit is found.
MISTAKES = """
masked, argument dropped
    return e / e.sum(axis=-1, keepdims=True) @ v
    return e / e.sum(keepdims=True) @ v
tiles, arguments
    for j in range(0, len(k), 4):
    for j in range(0, 4, len(k)):
tiles, assignment
    top = new
    total = new
tiles, bound
    p = np.exp(s - new)
    p = np.exp(np.minimum(s, a) - new)
tiles, brackets
    acc = acc * a + p @ v[j : j + 4]
    acc = acc * (a + p @ v[j:j + 4])
causal, comparison
    s = np.where(j <= i, s, -np.inf)
    s = np.where(j < i, s, -np.inf)
groups, constant
    return e / e.sum(-1, keepdims=True)
    return e / e.sum(-(-1), keepdims=True)
masked, dropped
    return e / e.sum(axis=-1, keepdims=True) @ v
    return e @ v
masked, exponent
    s = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
    s = q @ np.exp(k).T / np.float32(np.sqrt(q.shape[-1]))
causal, expression
    s = np.where(j <= i, s, -np.inf)
    s = np.where(j <= np.arange(n_q)[:, None], s, -np.inf)
tiles, factor
    s = q @ k[j : j + 4].T / scale
    s = (q @ k[j:j + 4].T - np.exp(top)) / scale
tiles, function
    p = np.exp(s - new)
    p = np.expm1(s - new)
masked, guard
    return e / e.sum(axis=-1, keepdims=True) @ v
    return np.where(e / e.sum(axis=-1, keepdims=True) == 0, 1, e / e.sum(axis=-1, keepdims=True)) @ v
causal, index
    i = np.arange(n_q)[:, None] + n_k - n_q
    i = np.arange(n_q)[-1, None] + n_k - n_q
plain, infinity
    scale = np.float32(q.shape[-1] ** -0.5)
    scale = np.float32(q.shape[-1] ** -np.inf)
    the right number stands nowhere in the code
tiles, length
    a = np.exp(top - new)
    a = np.exp(top - new + float(np.log(q.shape[-2])))
masked, negated
    s = np.where(mask, s, -np.inf)
    s = np.where(~mask, s, -np.inf)
causal, normalised
    return e / e.sum(-1, keepdims=True)
    return e / (e - e.max(-1, keepdims=True)).sum(-1, keepdims=True)
window, number of the specification
    s = k[first:last] @ q[i] / np.float32(np.sqrt(q.shape[-1]))
    s = k[first:last] @ q[3] / np.float32(np.sqrt(q.shape[-1]))
plain, operator
    s = q @ k.T * scale
    s = q @ k.T / scale
tiles, order of operations
    p = np.exp(s - new)
    p = np.exp(s ) - new
causal, ratio
    s = np.where(j <= i, s, -np.inf)
    s = np.where(j % v.shape[-1] <= i, s, -np.inf)
groups, repeated
    v = np.repeat(v, group, axis=0)
    v = np.tile(v, (group, 1, 1))
causal, slice
    i = np.arange(n_q)[:, None] + n_k - n_q
    i = np.arange(n_q)[::-1, None] + n_k - n_q
tiles, term
    acc = acc * a + p @ v[j : j + 4]
    acc = acc * a + a + p @ v[j : j + 4]
groups, transposed
    s = q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(q.shape[-1]))
    s = q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(q.swapaxes(-1, -3).shape[-1]))
plain, unwrapped
    e = np.exp(s - s.max(-1, keepdims=True))
    e = np.exp(s - s)
tiles, variable
    top = new
    top = a
window, wrapped
    rows.append(e @ v[first:last] / e.sum())
    rows.append((1 + e) @ v[first:last] / e.sum())
window, ±1
    first, last = max(i + late - 2, 0), i + late + 1
    first, last = max(i + late - 2, 0), i + (late + 1) + 1
"""
