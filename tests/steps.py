"""The steps that a report may blame, by hand, in the order in which an attention has them."""

BLAMED = (
    "call", "project", "norm", "split", "position", "cache", "score", "scale", "softcap", "bias", "mask", "sink", "max",
    "exp", "normalize", "dropout", "weights", "values", "gate", "merge", "output", "residual", "lse", "backward",
)  # fmt: skip
