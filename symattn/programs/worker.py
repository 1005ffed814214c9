"""The child process: find the target, call it on request, and send back the outcomes.

The two pipes of the protocol are moved away from stdin and stdout before the target is imported, so that nothing it
reads or prints, in Python or in C, reaches them. Messages are pickles between a program and its own child.
"""

from __future__ import annotations

import faulthandler
import io
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from symattn.bounds.called_target import Convention, Failure, Inputs, Memory, Outcome
from symattn.document.errors import CannotRun, NeedsMemory, SymattnError
from symattn.programs import confining, guard
from symattn.programs.calls import Target, announced, captured
from symattn.programs.loading import load
from symattn.programs.messages import Sender
from symattn.programs.names import Function
from symattn.programs.process import Inbox, receive, seldom
from symattn.programs.refusing import where
from symattn.verification.effort import ready_time

if TYPE_CHECKING:
    from symattn.attention.spec import Attention
    from symattn.bounds.domain import Domain
    from symattn.programs.judging.benchmark import Benchmark
    from symattn.programs.judging.kernel_form import KernelForm
    from symattn.programs.repairing.edits import Edit
    from symattn.programs.repairing.trials import Opened, Samples
    from symattn.programs.request import Request
    from symattn.verification.semantics import IdentityResult


def main() -> None:
    """Serve until the parent closes the pipe."""
    global _own_process
    _own_process = os.getpid()
    requests, replies = _private_pipes()
    faulthandler.enable(all_threads=False)
    inbox = Inbox()
    threading.Thread(target=_receive_requests, args=(requests, inbox), daemon=True).start()
    server = _Server(seldom(partial(_send_timed_message, replies, ("call",))))
    while True:
        question, *rest = inbox.get()
        _remember_objects(rest)
        for arguments in rest[0] if question == "ahead" else [rest]:
            try:
                result = getattr(server, "run" if question == "ahead" else question)(*arguments)
                reply: tuple[Any, ...] = ("done", result)
            except SymattnError as error:
                reply = "refused", type(error), str(error)
            except MemoryError:
                reply = "refused", NeedsMemory, f"the function {_out_of_memory()}"
            except Exception:
                # Errors of the target are caught before, so this is a defect of symattn, unless the target spoiled
                # what symattn calls.
                spoiled = guard.replaced()
                reply = (
                    ("refused", guard.Tampered, spoiled)
                    if spoiled
                    else ("defect", traceback.format_exc())
                )
            _send_timed_message(replies, reply)


class _Server:
    """The questions that the parent asks: ``find`` first, then ``prepare``, then ``run`` any number of times.

    ``ahead`` stands for several ``run``, which are answered one by one.
    """

    def __init__(self, begun: Callable[[], None]) -> None:
        self._begun = begun
        self._edited: tuple[tuple[Edit, ...], Target | None] | None = None

    def watch(
        self, place: str, secret: tuple[str, ...], judge: int, arrays_alone: bool
    ) -> tuple[str, ...]:
        """Watch what the code of the target does against its judge, from before its import.

        A process that is given ``arrays_alone`` leaves all definitions. Return what the system does not let be limited,
        as notes: later the target could write them.
        """
        guard.install(place, secret, judge)
        if arrays_alone:
            confining.leave_definitions()
        confining.leave_capabilities()
        return confining.left_open

    def find(self, name: str, request: Request) -> tuple[str, Request]:
        """Import the target; return its name with its parameters, and the request with the framework, if clear."""
        from symattn.programs.target import (
            prepared,
        )  # a process that is given arrays alone knows no definitions

        with captured():
            self._found = load(name)
            return self._found.display, prepared(self._adapt_target_to_form(request), request)

    def benchmark(self, path: str, model: str) -> Benchmark:
        """Return what the file of a benchmark says of its model and of the model's inputs."""
        from symattn.programs.judging.benchmark import (
            read_benchmark,
        )  # most targets are no benchmarks

        with captured(), announced(self._begun):
            return read_benchmark(path, model)

    def prepare(self, request: Request, agreed: Convention | None = None) -> Convention:
        """Return the convention of the call, found by small calls if needed, or as ``agreed`` after a crash."""
        from symattn.programs.target import target

        with captured(), announced(self._begun):  # many calls, each within the limit of one
            self._target = target(
                self._adapt_target_to_form(request), request, self._found.name, agreed
            )
            return self._target.convention

    def hold(
        self, name: str, form: KernelForm | None, how: Convention, returns_lists: bool
    ) -> None:
        """Import the target, to be called with arrays; neither a definition nor a request is known here."""
        # What the import prints is not part of the protocol.
        with captured():
            target = load(name)
            function = (
                target.function if form is None else form.around(target.function, target.name)
            )
            self._target = Target(
                _with_tuples(function) if returns_lists else function, how, target.name
            )

    def _adapt_target_to_form(self, request: Request) -> Function:
        """Return the function that was found, with the inputs of the definition if it takes them in another form."""
        function, form = self._found.function, request.form
        return function if form is None else form.around(function, self._found.name)

    def semantics(
        self, spec: Attention, seconds: float, domain: Domain | None, refutes_at_large_sizes: bool
    ) -> IdentityResult:
        """Return the identity test, run in a copy of this process."""
        return self._target.semantics(spec, seconds, domain, refutes_at_large_sizes)

    def open_trials(self, samples: Samples) -> Opened | None:
        """Prepare trials of edits of the target's source, and return what there is to edit."""
        with captured(), announced(self._begun):
            self._trials = self._target.trials(samples)
            return self._trials.open()

    def trials(self, question: str, *arguments: Any) -> Any:
        """Answer a question about edits; the limit of time applies to each call of an edited function."""
        with announced(self._begun):
            return getattr(self._trials, question)(*arguments)

    def edited(self, edits: tuple[Edit, ...], question: str, *arguments: Any) -> Any:
        """Answer a question about one edited function, which is kept until another one is asked about."""
        if self._edited is None or self._edited[0] != edits:
            self._edited = edits, self._trials.version(edits)
        version = self._edited[1]
        if version is None:
            raise CannotRun("the edited text is no code")
        return getattr(version, question)(*arguments)

    def run(self, inputs: Inputs, memory: Memory) -> Outcome:
        """Call the target. Only the parent receives Ctrl-C, so a ``KeyboardInterrupt`` here is the function's own."""
        try:
            outcome = self._target.run(inputs, memory)
        except KeyboardInterrupt as error:
            return Outcome(error=Failure("raised", "", "KeyboardInterrupt", where(error)))
        if confining.memory_limit is not None and _lacks_memory(outcome.error):
            return Outcome(error=Failure("memory limit", _out_of_memory(), "MemoryLimit"))
        return outcome


def _with_tuples(function: Function) -> Function:
    """Return the function with a tuple in the place of a list of outputs."""

    def called(*places: Any, **keywords: Any) -> Any:
        output = function(*places, **keywords)
        return tuple(output) if isinstance(output, list) else output

    return called


def _lacks_memory(error: Failure | None) -> bool:
    """Return whether a call failed since no memory was left: by Python, NumPy, or the allocator of PyTorch."""
    return error is not None and (
        error.type == "MemoryError" or "can't allocate memory" in error.message
    )


def _out_of_memory() -> str:
    limit = "there is" if confining.memory_limit is None else f"{confining.memory_limit:g} GiB"
    return f"needs more memory than {limit}"


def _receive_requests(requests: BinaryIO, inbox: Inbox) -> None:
    """Put requests into the inbox, and exit when the parent is gone, whatever the target is doing."""
    confining.leave_capabilities()
    receive(requests, inbox, partial(os._exit, 0))


def _private_pipes() -> tuple[BinaryIO, BinaryIO]:
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    # Reads then meet the end of a file, and prints go to the standard error.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 (it lives as long as the process)
    return requests, replies


#: The process that answers; a copy of it must not.
_own_process = 0


#: Objects of the user's own in the calls, with their names: an answer names them, since it brings data alone.
_objects: list[tuple[str, object]] = []


def _remember_objects(arguments: Iterable[object]) -> None:
    """Remember the objects of requests and conventions, as the parent does."""
    for argument in arguments:
        if hasattr(argument, "objects"):
            _objects.extend(argument.objects().items())


def _send_timed_message(replies: BinaryIO, message: tuple[object, ...]) -> None:
    """Send the processor time of this process and of its ended children, how long it was ready, and the message.

    A copy of this process that the target has made, and that returns from the call as well, has nothing to say.
    """
    if os.getpid() != _own_process:
        return
    timed_message = (sum(os.times()[:4]), ready_time()), message
    written = io.BytesIO()
    Sender(written, {id(thing): name for name, thing in _objects}).dump(timed_message)
    replies.write(written.getbuffer())
    replies.flush()


if __name__ == "__main__":
    main()
