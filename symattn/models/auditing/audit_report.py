"""The finding of one call, and the report of an audit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Literal

from symattn.document.codec import record
from symattn.document.errors import SymattnError
from symattn.document.evidence import Grade, Verdict
from symattn.document.model import Block, Document, Note, Paragraph, Table, headers
from symattn.document.printable import WithVerdict
from symattn.models.auditing import call_judge, promises
from symattn.models.auditing.call_gradients import Backward
from symattn.models.auditing.dependence.decoding import Decoding
from symattn.models.auditing.dependence.mixing import Dependence, MixingPart
from symattn.models.auditing.dependence.training import Training
from symattn.models.auditing.layers.part_judge import LayerFinding
from symattn.verification.codes import code_of

State = Literal["pass", "pass as given", "wrong", "cannot tell"]
PASSES = ("pass", "pass as given")
_MAX_ROWS_IN_SHORT = 5
UNREAD_DECODING = "what it does from a cache was not read"
_WRONG = ("certified", "beyond rounding to nearest")


@dataclass(frozen=True)
class CallFinding:
    """The finding of one call: the layer's name, how the call was seen, what it computes in words, both judgements.

    ``given`` judges it by what it received, ``intent`` by what the configuration promises; ``unknown`` says why there
    is no such promise. ``asked`` lists arguments of the call that differ from those promised, whatever its result is.
    ``cause`` is the one mistake that explains a wrong result, ``open`` lists mistakes that the result does not
    exclude, ``reason`` says why the call cannot be judged. ``cells`` counts the scores that the call's mask and the
    promised one treat differently. ``backward`` is the finding of its gradients, if requested and available.
    ``reach`` is how many tokens an output of the call can depend on, its own among them; None without a bound.
    """

    layer: str
    via: str
    semantics: str = "–"
    given: call_judge.CallJudgement | None = None
    intent: call_judge.CallJudgement | None = None
    unknown: str = ""
    cause: str = ""
    cells: int = 0
    asked: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    reason: str = ""
    backward: Backward | None = None
    reach: int | None = None

    @property
    def state(self) -> State:
        """``cannot tell`` is never a pass; ``pass as given`` is no pass against a configuration."""
        if self.backward is not None and self.backward.wrong:
            return "wrong"
        if self.backward is not None and self.backward.reason and self.forward in PASSES:
            return "cannot tell"
        return self.forward

    @property
    def undecided(self) -> bool:
        """Return whether the call may break a promise; without a configuration, nothing was promised."""
        return self.state == "cannot tell" or (
            self.state == "pass as given" and self.unknown != promises.NO_CONFIGURATION
        )

    @property
    def forward(self) -> State:
        """Return the state of the output, without the gradients."""
        judged = [j for j in (self.given, self.intent) if j is not None]
        if self.asked or any(j.sure in _WRONG for j in judged):
            return "wrong"
        if self.reason or self.given is None or any(j.sure == "unknown" for j in judged):
            return "cannot tell"
        return "pass" if self.intent is not None else "pass as given"

    @property
    def certified(self) -> bool:
        """Return whether no rounding in any implementation explains the result."""
        of_output = bool(self.asked) or any(
            j is not None and j.sure == "certified" for j in (self.given, self.intent)
        )
        return of_output or (self.backward is not None and bool(self.backward.wrong))

    @property
    def verdict(self) -> str:
        """The verdict in words: on the output, or on the gradients if the output has no fault."""
        # A wrong gradient shows only beside a right output.
        if self.backward is not None and self.forward != "wrong" and self.state != self.forward:
            return self.backward.verdict
        if self.forward == "cannot tell":
            # Both judgements may be open; the first reason is shown.
            result = [
                j.words for j in (self.given, self.intent) if j is not None and j.sure == "unknown"
            ]
            return f"CANNOT TELL: {self.reason or next(iter(result), 'unread')}"
        if self.forward != "wrong":
            return (
                f"{self.forward} (cannot exclude: {'; '.join(self.open)})"
                if self.open
                else self.forward
            )
        judged = self.given if self.against_given else self.intent or self.given
        assert judged is not None
        # An argument that differs from the promise needs no numbers.
        certified = judged.sure == "certified" or (self.asked and not self.against_given)
        head = "CERTIFIED WRONG" if certified else "WRONG beyond rounding to nearest"
        # Keys of later tokens, and padding, are closed to every causal model.
        # Keys of another layer are promised also by configurations of which nothing else is read.
        is_unpromised = self.intent is None and bool(self.unknown) and bool(self.cells)
        source = "though no configuration is read" if is_unpromised else "against the configuration"
        what = "" if self.against_given else f", {source}"
        cells = f" ({self.cells} mask cells)" if self.cells else ""
        words = f": {judged.words}" if judged.words and not self.cause else ""
        return f"{head}{what}: {self.cause or 'no known mistake explains it'}{cells}{words}"

    @property
    def against_given(self) -> bool:
        """Return whether the result is wrong for the arguments that the call received."""
        return self.given is not None and self.given.sure in _WRONG

    @property
    def empty(self) -> int:
        """How many rows were left out since they see no key."""
        judged = self.given or self.intent
        return judged.empty if judged else 0

    @property
    def undefined(self) -> int:
        """How many of these rows hold NaN or infinity."""
        judged = self.given or self.intent
        return judged.undefined if judged else 0

    @property
    def code(self) -> str:
        """The code of the cause, of the output or else of the gradients; "" without one."""
        if self.backward is not None and self.forward != "wrong":
            return code_of(self.backward.cause, "backward")
        return code_of(self.cause)

    RECORD = (
        "layer, via, semantics, state, verdict, given, intent, no_intent_since = unknown, cause, code, "
        "mask_cells = cells, arguments_not_promised = asked, not_excluded = open, fully_masked_rows = empty, "
        "undefined_rows = undefined, backward"
    )


# -- the report of an audit: a line for each call, the coverage, and a verdict -----------------------------------------
class AuditFault(SymattnError, AssertionError):
    """Raised if an audited call gave a wrong result, or could not be judged; ``report`` holds the details."""

    def __init__(self, words: str, report: AuditReport) -> None:
        super().__init__(words)
        self.report = report


@dataclass(repr=False)
class AuditReport(WithVerdict):
    """The findings of an audit, in the order of the calls; they are added while the model runs.

    ``layers`` are passes through whole layers, if ``whole`` asks for them. ``dependence`` holds the probe of each
    model: which parts mix tokens, ``decoding`` that of its passes from a cache, ``training`` that of one in training.
    ``notes`` are what a reader must not overlook. ``others`` counts softmaxes whose result could not be followed into a
    product, and ``suspect`` those of them in a module with heads, which may be attention.

    A report prints as text, and can be rendered in the forms of a document.
    """

    target: str
    findings: list[CallFinding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    others: int = 0
    suspect: int = 0
    rows: int | None = None
    gradients: bool = False
    whole: bool = False
    layers: list[LayerFinding] = field(default_factory=list)
    dependence: list[Dependence] = field(default_factory=list)
    decoding: list[Decoding] = field(default_factory=list)
    training: list[Training] = field(default_factory=list)
    command: str = ""

    @property
    def read(self) -> int:
        """How many calls were read."""
        return sum(f.state != "cannot tell" for f in self.findings)

    @property
    def verdict(self) -> Verdict:
        """A fault if a call is wrong; undecided if no call was seen, or if one could not be followed.

        ``pass as given`` if all are right, but some were compared only with what they received, or a part that mixes
        tokens was not judged. An output that depends on a later token is a fault.
        """
        states = {f.state for f in self.findings} | {f.state for f in self.layers}
        states |= {"wrong"} if self._list_probed_faults() else set()
        # Layers that were to be judged, and none was.
        if self.whole and not self.layers:
            states.add("cannot tell")
        if "wrong" in states:
            return Verdict.FAULT
        if not states or "cannot tell" in states or self.suspect:
            return Verdict.UNDECIDED
        return Verdict.AS_GIVEN if "pass as given" in states or self.unjudged else Verdict.NO_FAULT

    @property
    def mixing(self) -> list[MixingPart]:
        """Return the parts that mix tokens, of all probed models."""
        return [part for d in self._mark_judged_dependence() for part in d.parts]

    @property
    def unjudged(self) -> list[MixingPart]:
        """Return the parts that mix tokens and that no judged call of attention explains."""
        return [part for part in self.mixing if not part.judged]

    def _mark_judged_dependence(self) -> list[Dependence]:
        """Return the probes, with the parts marked in which a call was judged, and none was not."""
        # One unread call of a layer leaves it unread.
        unread = {f.layer for f in self.findings if f.state == "cannot tell"}
        judged: dict[str, int | None] = {}
        for one in self.findings:
            if one.layer not in unread:
                earlier = judged.get(one.layer, 0)
                # None says that no limit is known.
                if earlier is None or one.reach is None:
                    judged[one.layer] = None
                else:
                    judged[one.layer] = max(earlier, one.reach)
        result = [d.judging(judged) for d in self.dependence]
        # What a part does from a cache is judged by its calls there, or by one pass of all tokens.
        for decoding in self.decoding:
            result = [
                d.only_judged(decoding.is_read, UNREAD_DECODING) if d.model == decoding.model else d
                for d in result
            ]
        return result

    def _list_probed_faults(self) -> list[str]:
        """Return leaks and differences of decoding in words."""
        probes: list[Dependence | Decoding | Training]
        probes = [*self.dependence, *self.decoding, *self.training]
        return [words for probe in probes for words in probe.faults]

    @property
    def coverage(self) -> str:
        """How many calls were read, and how many of them were compared with a configuration."""
        meant = sum(f.intent is not None for f in self.findings)
        empty = sum(f.empty for f in self.findings)
        undefined = sum(f.undefined for f in self.findings)
        backwards = (f.backward for f in self.findings)
        passed = sum(bool(backward and backward.ratios) for backward in backwards)
        gradients = f", gradients of {passed} judged" if self.gradients else ""
        masked = f"; {empty} fully masked rows left out" if empty else ""
        masked += f", {undefined} of them NaN or infinite" if undefined else ""
        probes: list[Dependence | Decoding | Training]
        probes = [*self._mark_judged_dependence(), *self.decoding, *self.training]
        mixing = "".join(f"; {d.coverage}" for d in probes if d.coverage)
        if not self.findings:
            # Parts that mix tokens show that a pass has run.
            hint = "" if mixing else "; hint: run a forward pass inside the audit"
            return f"coverage: no attention call was seen{self._of_layers()}{mixing}{hint}"
        calls = f"{self.read} of {len(self.findings)} calls read"
        compared = f"{meant} compared with a configuration"
        return f"coverage: {calls}, {compared}{gradients}{self._of_layers()}{masked}{mixing}"

    def _of_layers(self) -> str:
        """How many passes through layers were judged in every part."""
        if not self.whole:
            return ""
        if not self.layers:
            return ", no known decoder layer ran"
        decided = sum(f.state != "cannot tell" for f in self.layers)
        return f", {decided} of {len(self.layers)} whole layers judged"

    @property
    def undecided(self) -> str:
        """How many calls and layers are not known to keep their promises."""
        result, open_calls = (
            sum(f.state == "cannot tell" for f in self.findings),
            sum(f.undecided for f in self.findings),
        )
        why = [f"{result} cannot be determined"] if result else []
        why += (
            [f"{open_calls - result} compared only with what they received"]
            if open_calls > result
            else []
        )
        words = f"{open_calls} of {len(self.findings)} calls" + (
            f" ({', '.join(why)})" if why else ""
        )
        layers = sum(f.state == "cannot tell" for f in self.layers)
        words += f", {layers} of {len(self.layers)} whole layers" if self.whole else ""
        words += (
            f", {len(self.unjudged)} of {len(self.mixing)} token-mixing parts"
            if self.unjudged
            else ""
        )
        return f"undecided: {words}" + (
            f", {self.suspect} softmaxes that may be attention" if self.suspect else ""
        )

    def raise_if_wrong(self, strict: bool = False) -> None:
        """Raise ``AuditFault`` if a call is wrong, or, with ``strict``, if something is undecided."""
        open_ = (
            self.verdict is Verdict.UNDECIDED
            or bool(self.unjudged)
            or any(f.undecided for f in self.findings)
        )
        # Strict: what is open is no pass.
        if self.verdict is Verdict.FAULT or (strict and open_):
            remaining = [
                f"{f.layer} ({f.via}): {_write_verdict_with_code(f)}"
                for f in self.findings
                if f.state == "wrong" or f.undecided
            ]
            whole = [
                f"{f.layer} (whole layer): {_write_verdict_with_code(f)}"
                for f in self.layers
                if f.state != "pass"
            ]
            leaks = self._list_probed_faults()
            lines = [
                # A few of each kind, since all of them are in the report.
                *leaks[:8],
                *remaining[:8],
                *whole[:8],
                self.coverage,
                *self.notes,
                *self._list_unknown_softmaxes(),
                *self._list_unpromised_calls(),
            ]
            raise AuditFault("\n".join([*lines, self.undecided]), self)

    def __repr__(self) -> str:
        return self._make_brief_repr(f"audit: {self.verdict.value} ({self.coverage})")

    def document(self) -> Document:
        """The report as a document."""
        blocks: list[Block] = []
        if self.layers:
            rows = [
                (f.layer, str(len(f.parts)), _write_error_ratio(f.ratio), f.verdict)
                for f in self.layers
            ]
            titles, numbers = ("layer", "parts", "error", "verdict"), ("parts", "error")
            blocks.append(_table_of_findings(titles, numbers, rows, [f.state for f in self.layers]))
        if self.unjudged or any(part.leak for part in self.mixing):
            blocks.append(self._table_of_parts())
        if self.verdict is Verdict.FAULT:
            blocks.append(Paragraph((self.coverage + ".",)))
        blocks += [
            Note((words,))
            for words in (
                *self.notes,
                *self._list_unknown_softmaxes(),
                *self._list_unpromised_calls(),
            )
        ]
        blocks.append(
            Paragraph(
                (f"{self.undecided.capitalize()}. Grade: {self._decide_audit_grade().value}.",)
            )
        )
        calls = (self._table_of_findings(),) if self.findings else ()
        details = (Paragraph((self._describe_audit_meaning(),)),) if self.findings else ()
        return Document(
            "audit",
            "audit",
            (f"Audit of {self.target}",),
            (*calls, *blocks, *details),
            brief=(*self._calls_in_short(), *blocks) if details else (),
            option="-v",
            command=self.command,
            verdict=self.verdict,
            reason=(self._summarise_audit_reason(),),
            hints=("-v prints every call, what was sampled, and what the columns mean",)
            if details
            else (),
            parameters={"rows": self.rows, "gradients": self.gradients, "layers": self.whole},
            record=record(
                {
                    "calls": self.findings,
                    "layers": self.layers,
                    "dependence": self._mark_judged_dependence(),
                    "decoding": self.decoding,
                    "training": self.training,
                    "read": self.read,
                    "seen": len(self.findings),
                    "coverage": self.coverage,
                    "undecided": self.undecided,
                    "grade": self._decide_audit_grade(),
                }
            ),
        )

    def _table_of_parts(self) -> Table:
        """Return a row for each part that mixes tokens: what its outputs depend on, and whether it was judged."""
        rows, states = [], []
        for part in self.mixing:
            state = part.state
            rows.append((part.name, part.kind, part.sees, "yes" if part.judged else "no", state))
            states.append("wrong" if part.leak else "pass" if part.judged else "cannot tell")
        return _table_of_findings(
            ("part that mixes tokens", "class", "depends on", "judged", "later tokens"),
            (),
            rows,
            states,
        )

    def _summarise_audit_reason(self) -> str:
        """Return the first wrong call, layer or leak, or else how much was read."""
        wrong = [
            f"{call.layer}: {_write_verdict_with_code(call)}"
            for call in self.findings
            if call.state == "wrong"
        ]
        wrong += [
            f"{layer.layer}: {_write_verdict_with_code(layer)}"
            for layer in self.layers
            if layer.state == "wrong"
        ]
        wrong += self._list_probed_faults()
        if not wrong:
            return self.coverage.removeprefix("coverage: ")
        others = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        return f"{wrong[0]}{others}"

    def _list_unpromised_calls(self) -> list[str]:
        return [
            f"Not compared with a configuration: {u}"
            for u in sorted({f.unknown for f in self.findings} - {""})
        ]

    def _list_unknown_softmaxes(self) -> list[str]:
        if not self.others:
            return []
        many = "1 softmax" if self.others == 1 else f"{self.others} softmaxes"
        heads = f", {self.suspect} in a module that has heads" if self.suspect else ""
        return [
            f"{many} followed into no matrix product{heads}: whether it is attention is unknown"
        ]

    def _decide_audit_grade(self) -> Grade:
        if self.verdict is Verdict.UNDECIDED:
            return Grade.UNDECIDED
        proved = any(f.certified for f in self.findings) or any(
            f.state == "wrong" for f in self.layers
        )
        proved = proved or bool(self._list_probed_faults())
        return Grade.REFUTED if proved else Grade.SAMPLED

    def _describe_audit_meaning(self) -> str:
        rows = "all queries" if self.rows is None else f"about {self.rows} queries of each head"
        return (
            f"Sampled: {rows} of each call. `given` and `intent` are the largest error as a fraction of the bound:"
            " compared with exact attention of what the call received, and of what the configuration promises."
            " Certified: no rounding explains it. Beyond rounding to nearest: a correct call is flagged with a"
            f" probability of at most {call_judge.ALPHA:g}. {self._of_gradients()} are not judged."
        )

    def _of_gradients(self) -> str:
        """Return the meaning of the column of gradients, and the parts that are not judged, without the verb."""
        rest = "Projections, rotary positions and norms before and after a call"
        if self.whole:
            rest = "Every part of each layer is judged for some tokens, and `error` is the largest. The embedding,"
            rest += " the last norm and the head"
        if not self.gradients:
            return f"{rest}, gradients and dropout"
        # Only calls whose gradients came back.
        looked = [f.backward for f in self.findings if f.backward and f.backward.heads]
        judged = sum(b.heads for b in looked)
        every = sum(b.of for b in looked)
        return (
            "`gradients` is the largest error of dQ, dK and dV as a fraction of what all roundings together allow, in"
            f" {judged} of {every} heads of keys. {rest}"
        )

    def _calls_in_short(self) -> Iterator[Block]:
        """Yield one row for all calls with the same verdict, wrong ones first, and how many rows are left out."""
        alike: dict[tuple[str, str], list[CallFinding]] = {}
        for f in self.findings:
            alike.setdefault((f.semantics, f.verdict), []).append(f)
        # The sort is stable, so that calls keep their order.
        groups = sorted(alike.values(), key=lambda calls: calls[0].state in PASSES)
        shown, left = groups[:_MAX_ROWS_IN_SHORT], groups[_MAX_ROWS_IN_SHORT:]
        columns = ("calls", "semantics", "given", "intent", "verdict")
        rows = [
            (_all_calls(calls), calls[0].semantics, *_largest_errors(calls), calls[0].verdict)
            for calls in shown
        ]
        yield _table_of_findings(
            columns, ("given", "intent"), rows, [calls[0].state for calls in shown]
        )
        if left:
            yield Paragraph(
                (
                    f"{sum(map(len, left))} more calls, of {len(left)} other kinds, are listed by -v.",
                )
            )

    def _table_of_findings(self) -> Table:
        numbers = ("given", "intent", *(("gradients",) if self.gradients else ()))
        titles = ("layer", "via", "semantics", *numbers, "verdict")
        rows = []
        for f in self.findings:
            # The largest of dQ, dK and dV.
            ratios = f.backward.ratios.values() if f.backward else ()
            gradients = (f"{max(ratios):.2g}" if ratios else "–",) if self.gradients else ()
            errors = (
                _write_error_ratio(nan if j is None else j.ratio) for j in (f.given, f.intent)
            )
            rows.append((f.layer, f.via, f.semantics, *errors, *gradients, f.verdict))
        return _table_of_findings(titles, numbers, rows, [f.state for f in self.findings])


def _all_calls(calls: Sequence[CallFinding]) -> str:
    """Return the layer of the first call, and how many others are like it."""
    further = len(calls) - 1
    return calls[0].layer + (f" and {further} more" if further > 0 else "")


def _largest_errors(calls: Sequence[CallFinding]) -> tuple[str, str]:
    """Return the largest error as given, and as intended."""
    actual_ratios = [call.given.ratio for call in calls if call.given is not None]
    intended = [call.intent.ratio for call in calls if call.intent is not None]
    return _write_error_ratio(max(actual_ratios, default=nan)), _write_error_ratio(
        max(intended, default=nan)
    )


def _table_of_findings(
    titles: Sequence[str], numbers: Sequence[str], rows: Sequence[Sequence[str]], states: list[str]
) -> Table:
    """A table in which the rows that do not pass are marked."""
    columns = headers(*(f">{t}" if t in numbers else t for t in titles))
    cells = tuple(tuple((words,) for words in row) for row in rows)
    marked = (i for i, state in enumerate(states) if state not in PASSES)
    return Table(columns, cells, tuple(marked))


def _write_verdict_with_code(finding: CallFinding | LayerFinding) -> str:
    """Return a verdict in words, with the code of its cause in brackets."""
    return f"{finding.verdict} [{finding.code}]" if finding.code else finding.verdict


def _write_error_ratio(ratio: float) -> str:
    return "–" if isnan(ratio) else f"{ratio:.2g}"
