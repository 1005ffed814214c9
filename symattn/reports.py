"""The records in reports: for annotations, for programs that read reports, and for reports of your own.

``Report`` of ``symattn`` has faults, each a ``Fault`` with its ``Counterexample``; a ``StepPower`` is a mistake in a
step that would have been noticed. A ``Repair`` is an edit of a function's source, and ``replaced`` the source after it.
An ``AuditReport`` has a ``CallFinding`` for each call, with a ``CallJudgement`` by what it received and by what the
model promises, a ``LayerFinding`` for each layer, and a ``Dependence`` for what a token may depend on, with each
``Leak``. A ``Generation`` has a ``WayResult`` for each way of decoding. ``Status`` is what ``judge`` says of a
candidate.

>>> from symattn import reports, verify
>>> (fault,) = verify(lambda q, k, v: 0 * (q @ k.T) @ v, examples=0).faults
>>> isinstance(fault, reports.Fault), fault.code, isinstance(fault.counterexample, reports.Counterexample)
(True, 'output-zero', True)
>>> [status.name for status in reports.Status if status.exit_code == 1]
['FAIL', 'TAMPERED']
"""

from symattn.first_use import offer_names

__all__, __getattr__, __dir__ = offer_names(__name__, __file__)
