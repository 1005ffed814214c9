"""Where implementations come from: somebody's function is found, called as it wants to be, and watched.

``target(function, request)`` calls in this process; ``Child("file.py:function", request)`` in one of its own, with
time limits. Both are ``symattn.verification.target.Runner``.
"""

from symattn.sources.calling import agree
from symattn.sources.child import Child, Limits, open_target
from symattn.sources.loading import (
    BadTarget,
    CannotRun,
    Loaded,
    NoSuchAttribute,
    NoSuchFile,
    NotCallable,
    load,
)
from symattn.sources.request import Request, keyword
from symattn.sources.target import Target, target

__all__ = [
    "BadTarget",
    "CannotRun",
    "Child",
    "Limits",
    "Loaded",
    "NoSuchAttribute",
    "NoSuchFile",
    "NotCallable",
    "Request",
    "Target",
    "agree",
    "keyword",
    "load",
    "open_target",
    "target",
]
