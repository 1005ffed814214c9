"""A function called in a child process, with time limits: what never returns is ended, what crashes is reported."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from symattn.attention.spec import Attention
from symattn.bounds.called_target import Convention, Failure, Inputs, Memory, Outcome
from symattn.bounds.domain import Domain
from symattn.document.errors import CannotRun, SymattnError
from symattn.programs.process import Process
from symattn.programs.request import Request

if TYPE_CHECKING:
    from symattn.verification.semantics import IdentityResult


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Seconds for one call and for importing the target, of processor time or of waiting; see ``process``."""

    call: float = 10.0
    start: float = 60.0


class Child:
    """A target in a process of its own: a ``Runner``.

    One child serves all calls, so that a second call sees what the first left behind; after a limit or a crash the
    next call starts a new one. Raises what ``loading.load`` and ``target.target`` raise, and ``CannotRun`` where the
    target's import ends the process or takes longer than ``limits.start``.
    """

    notes: tuple[str, ...] = ()

    def __init__(self, target: str, request: Request, limits: ProcessLimits | None = None) -> None:
        self._target, self._request, self._limits = target, request, limits or ProcessLimits()
        self._worked = 0.0  # by processes that have ended
        self._sent: deque[tuple[Inputs, Memory]] = deque()  # cases that the worker has, and whose outcomes come
        self._process: Process | None = None
        self._convention: Convention | None = None
        try:
            self.convention = self._convention = self._agreed()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def describe(self) -> str:
        """The function and what is passed to it: ``attn.py:attention(q, k, v)``."""
        return f"{self._target}({self.convention.printed})"

    @property
    def worked(self) -> float:
        """The processor time of all processes so far."""
        return self._worked + (self._process.worked if self._process is not None else 0.0)

    def close(self) -> None:
        """End the child."""
        if self._process is not None:
            self._process.end()
        self._gone()

    def _gone(self) -> None:
        self._worked, self._process = self.worked, None
        self._sent.clear()

    def ahead(self, cases: Sequence[tuple[Inputs, Memory]]) -> None:
        """Send the cases for which ``run`` is called next, in this order: the child need not wait for each of them.

        Those for which it is not called are computed in vain.
        """
        if not isinstance(self._ready(), Failure):
            self._skip()
        if self._process is not None and self._process.send(("ahead", [(dict(i), memory) for i, memory in cases])):
            self._sent.extend(cases)

    def run(self, inputs: Inputs, memory: Memory = "contiguous") -> Outcome:
        """Call the function once in the child. See ``Runner``; ``error`` tells of limits and crashes too."""
        if self._sent and self._sent[0][0] is inputs and self._sent[0][1] == memory:
            answer = self._next()
        else:
            answer = self._ready()
            if not isinstance(answer, Failure):
                answer = self._ask("run", dict(inputs), memory)
        if isinstance(answer, Failure):
            return Outcome(error=answer)
        outcome: Outcome = answer
        return outcome

    def semantics(self, spec: Attention, seconds: float, domain: Domain | None = None) -> IdentityResult | None:
        """The identity test on residues, in a copy of the child; None where the child is gone."""
        answer = self._ready()
        if not isinstance(answer, Failure):
            answer = self._ask("semantics", spec, seconds, domain)
        return None if isinstance(answer, Failure) else answer

    def _agreed(self) -> Convention:
        """Find the target and agree on the call, for the first time."""
        result = self._ask("find", self._target, self._request)
        if isinstance(result, Failure):
            raise CannotRun(f"{self._target} cannot be imported: its import {result.message}")
        self.display, self._request = result
        answer = self._ask("prepare", self._request)
        if isinstance(answer, Failure):  # the one small call did not come back: let the calls themselves show it
            layout = "nd" if self._request.layout == "auto" else self._request.layout
            self._request = replace(self._request, framework=self._request.frameworks[0], layout=layout)
            answer = self._ready()
        if isinstance(answer, Failure):
            raise CannotRun(f"{self._target} cannot be called: it {answer.message}")
        return answer  # type: ignore[no-any-return]

    def _ready(self) -> Any:
        """A failure if the target cannot be brought up again after the process has ended."""
        if self._process is not None:
            return None
        result = self._ask("find", self._target, self._request)
        return result if isinstance(result, Failure) else self._ask("prepare", self._request, self._convention)

    def _ask(self, question: str, *rest: Any) -> Any:
        """The worker's answer, or a failure, after which there is no process."""
        self._skip()
        limit = self._limits.start if question in ("find", "semantics") else self._limits.call
        limit += 2 * rest[1] if question == "semantics" else 0.0  # it is made twice, and ends by itself
        return self._reply(lambda process: process.ask((question, *rest), limit))

    def _next(self) -> Any:
        """The outcome of the next case that was sent ahead."""
        self._sent.popleft()
        return self._reply(lambda process: process.answer(self._limits.call))

    def _skip(self) -> None:
        """Wait for the outcomes of cases that were sent ahead, and let go of them."""
        while self._sent:
            with contextlib.suppress(SymattnError):
                self._next()

    def _reply(self, reply_of: Callable[[Process], Any]) -> Any:
        """A reply within the limits, opened; or a failure, after which there is no process."""
        self._process = self._process or Process()
        reply = reply_of(self._process)
        if isinstance(reply, Failure):
            self._gone()
            return reply
        return _opened(*reply)


def _opened(words: str, content: Any, text: str = "") -> Any:
    """Return the contents of a reply; an error of the worker's is raised here."""
    if words == "done":
        return content
    if words == "defect":
        raise RuntimeError(f"a call in the child process failed\n{content}")
    error: SymattnError = content.__new__(content)  # not content(text): MissingExtra is made of other words
    error.args = (text,)
    raise error
