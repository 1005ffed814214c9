"""How often the right side is blamed: seeded mistakes in one of two back-ends, in padding and in decoding.

python -m tests.models.comparing.measure [float32 bfloat16 float16] [FAMILY ...]

Each line has a mistake, a family and a type, and the ways that are wrong where these are not those that must be.
"""

import sys

from tests.models.comparing.seeds import FAMILIES, backends, blamed, decoded, padded


def main(words: list[str]) -> None:
    """Print the mistakes that are missed or blamed on the other side, and how many are right."""
    for dtype in [word for word in words if word not in FAMILIES] or ["float32", "bfloat16", "float16"]:
        for kind in (backends, padded, decoded):
            count = good = 0
            for family in [word for word in words if word in FAMILIES] or FAMILIES:
                for seed in kind(family, dtype):
                    ok, ways = blamed(seed)
                    count, good = count + 1, good + ok
                    if not ok:
                        print(f"  {dtype}, {family}: {seed.name}: wrong are {', '.join(ways) or 'none'}")
            print(f"{dtype}, {kind.__name__}: {good} of {count} blamed rightly", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
