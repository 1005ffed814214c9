"""The floating formats, by name."""

FORMATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
#: Those of at most 16 bits.
NARROW = FORMATS[2:]
