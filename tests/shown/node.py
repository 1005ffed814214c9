"""Programs that stand in ``node/``, run as one process each."""

import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("node")


def run(program: str, *arguments: str, lines: Iterable[Any] = ()) -> list[Any]:
    """Run a program: JSON lines in, JSON lines out. It has 20 minutes, as browsers have no limit of their own."""
    assert shutil.which("node"), "Node.js is missing"
    assert (FOLDER / "node_modules").is_dir(), "packages are missing: npm install --no-package-lock in tests/shown/node"
    sent = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run(
        ["node", program, *arguments], cwd=FOLDER, input=sent.encode(), capture_output=True, timeout=1200, check=False
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]
