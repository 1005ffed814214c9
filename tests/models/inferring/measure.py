"""Count the causal language models of 2025-26 that are inferred: python -m tests.models.inferring.measure (minutes).

A type belongs to these years if the latest copyright in its files of Transformers does.
"""

import inspect
import re
from collections import Counter
from pathlib import Path

from symattn.document.errors import InputError
from symattn.models.inferring.inference import parts_of
from symattn.models.inferring.lock import locked_types
from symattn.models.inferring.tiny_models import tiny

_YEAR = re.compile(r"Copyright\s+(?:\([cC]\)\s+)?(\d{4})")


def recent_types(since: int = 2025) -> list[str]:
    """Return the causal language models of Transformers whose latest copyright is of this year or a later one."""
    from transformers import CONFIG_MAPPING

    result = []
    for model_type in locked_types():
        folder = Path(inspect.getfile(CONFIG_MAPPING[model_type])).parent
        heads = [path.read_text(encoding="utf-8")[:1500] for path in folder.glob("[mc]o*.py")]
        years = [int(year) for head in heads for year in _YEAR.findall(head)]
        if max(years, default=0) >= since:
            result.append(model_type)
    return result


def main() -> None:
    counts: Counter[str] = Counter()
    for model_type in recent_types():
        counts["types"] += 1
        try:
            parts = parts_of(tiny(model_type))
        except InputError as error:
            print(f"{model_type}: {error}")
            continue
        counts["run"] += 1
        counts["explained"] += not any(part.unknown for part in parts)
        counts["whole"] += all(part.is_explained for part in parts)
        open_ = sorted({words for part in parts for words in (*part.missing, *part.unknown)})
        if open_:
            print(f"{model_type}: {'; '.join(open_)}")
    print(", ".join(f"{name} {count}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
