"""Excerpts of a derivation: the answer in short, one step, one part. Steps and parts keep their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from symattn.document.codec import quote_word
from symattn.document.errors import InputError, near
from symattn.document.model import (
    Assumptions,
    Block,
    Caveat,
    Code,
    Document,
    Heading,
    Note,
    Paragraph,
    Result,
    Step,
    Steps,
    Text,
)
from symattn.document.render import common
from symattn.document.text import plain_text

MAX_RESULTS_PRINTED_WHOLE = 2
"""A derivation with more results prints its answer in short unless all of it is asked for."""


@dataclass(frozen=True, slots=True)
class DocumentSection:
    """A numbered section of a document with its blocks; the part before the first heading has no number."""

    number: str
    title: str
    blocks: tuple[Block, ...]


def with_brief(document: Document, after: Sequence[Block] = ()) -> Document:
    """Return a derivation of many results with its answer in short.

    The answer has the assumptions, the steps up to the first result, what the derivation adds from its later parts
    (``after``, else its caveats), and the titles of the other parts.
    """
    results = sum(isinstance(block, Result) for block in document.blocks)
    if results <= MAX_RESULTS_PRINTED_WHOLE:
        return document
    every = parts_of(document)
    # The answer ends with the whole part in which the first result stands.
    to_result = (
        next(i for i, part in enumerate(every) if any(isinstance(b, Result) for b in part.blocks))
        + 1
    )
    further = every[to_result:]
    opening = [
        _without_further(b, further)
        for part in every[:to_result]
        for b in part.blocks
        if _is_block_of_answer(b)
    ]
    caveats = [block for block in document.blocks if isinstance(block, Caveat)]
    closing = [_with_numbers(block, document) for block in after or caveats]
    hint = f"{document.command} --all  every step and every part"
    blocks = (
        *_join_neighbouring_steps([*opening, *closing]),
        Paragraph(_name_further_parts(further)),
    )
    return replace(document, brief=blocks, hints=(hint, *document.hints))


def excerpt(document: Document, step: object = None, part: object = None) -> Document:
    """Return one step or one part of a derivation, with the assumptions. Raises InputError for one it does not have."""
    if step is not None and part is not None:
        raise InputError("step and part: give one of them")
    if step is None and part is None:
        return document
    option = f"--step {step}" if part is None else f"--part {quote_word(str(part))}"
    blocks = (
        _excerpt_numbered_step(document, step)
        if part is None
        else _find_part_by_title(document, str(part)).blocks
    )
    # A step alone may use letters that blocks before it define.
    chosen = (*_defined_before(document, blocks[0]), *blocks)
    command = f"{document.command} {option}"
    return replace(document, blocks=chosen, brief=(), hints=(), page=None, command=command)


def parts_of(document: Document) -> list[DocumentSection]:
    """Return the sections of level 1, whose steps and headings hold their numbers."""
    numbers = iter(common.headings(document))
    parts = [DocumentSection("", "", ())]
    for block, first in common.numbered(document):
        if isinstance(block, Steps):
            block = replace(block, numbers=tuple(common.numbers_of(block, first)))
        elif isinstance(block, Heading):
            number, _ = next(numbers)
            block = replace(block, number=number)
            if block.level == 1:
                parts.append(DocumentSection(number, plain_text(block.title), ()))
        extended = (*parts[-1].blocks, block)
        parts[-1] = replace(parts[-1], blocks=extended)
    return parts


def _is_block_of_answer(block: Block) -> bool:
    """Return whether the answer in short keeps a block of the opening parts: false variants are left out."""
    return not isinstance(block, (Heading, Note))


def _without_further(block: Block, further: Sequence[DocumentSection]) -> Block:
    """Return assumptions without those that are made for one of the further parts alone; other blocks as they are."""
    if not isinstance(block, Assumptions):
        return block
    # The remark of such an assumption says so by the title of its part.
    alone = [f"“{part.title}” alone" for part in further]
    items = (
        item for item in block.items if not any(words in plain_text(item.remark) for words in alone)
    )
    return Assumptions(tuple(items))


def _join_neighbouring_steps(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield the blocks with neighbouring groups of steps as one group."""
    last: Block | None = None
    for block in blocks:
        if isinstance(last, Steps) and isinstance(block, Steps):
            items = (*last.items, *block.items)
            last = Steps(items, (*last.numbers, *block.numbers))
            continue
        if last is not None:
            yield last
        last = block
    if last is not None:
        yield last


def _with_numbers(block: Block, document: Document) -> Block:
    """Return steps of the document with their numbers in it; other blocks as they are."""
    if not isinstance(block, Steps):
        return block
    number_of: dict[int, int] = {}
    for group, first in common.numbered(document):
        if isinstance(group, Steps):
            number_of.update(
                zip(map(id, group.items), common.numbers_of(group, first), strict=True)
            )
    return replace(block, numbers=tuple(number_of[id(step)] for step in block.items))


def _name_further_parts(parts: Sequence[DocumentSection]) -> Text:
    """Name the parts of which the answer in short says nothing."""
    named = "; ".join(f"{part.number} {part.title}" for part in parts)
    return ("Further parts, each by ", Code("--part N"), ", all by ", Code("--all"), f": {named}.")


def _defined_before(document: Document, first: Block) -> Iterator[Block]:
    """Yield the assumptions, and the paragraphs that define letters before the first block of an excerpt."""
    numbers = first.numbers if isinstance(first, Steps) else ()
    for part in parts_of(document):
        for block in part.blocks:
            if block == first or (
                isinstance(block, Steps) and set(numbers) <= set(block.numbers) and numbers
            ):
                return
            defines = isinstance(block, Paragraph) and str(block.text[0]).startswith("Let ")
            if defines or isinstance(block, Assumptions):
                yield block


def _excerpt_numbered_step(document: Document, wanted: object) -> tuple[Block, ...]:
    numbered_steps: dict[int, Step] = {}
    for block, first in common.numbered(document):
        if isinstance(block, Steps):
            numbered_steps.update(zip(common.numbers_of(block, first), block.items, strict=True))
    if not numbered_steps:
        raise InputError(f"derive {document.name} has no numbered steps")
    number = int(str(wanted)) if str(wanted).isdecimal() else 0
    if number not in numbered_steps:
        raise InputError(
            f"derive {document.name} has steps 1 to {max(numbered_steps)}, not {wanted}"
        )
    return (Steps((numbered_steps[number],), (number,)),)


def _find_part_by_title(document: Document, wanted: str) -> DocumentSection:
    """Return the part of this number, or the only one whose title has these words."""
    named = [part for part in parts_of(document) if part.number]
    if not named:
        raise InputError(f"derive {document.name} has no parts; hint: leave out --part")
    chosen = [part for part in named if wanted == part.number]
    wanted_word = wanted.lower()
    chosen = chosen or [part for part in named if wanted_word in part.title.lower()]
    if len(chosen) == 1:
        return chosen[0]
    named_parts = chosen or named
    listed = "; ".join(f"{part.number} {part.title}" for part in named_parts)
    several = f"{len(chosen)} parts of derive {document.name} have {wanted!r} in their title"
    problem = several if chosen else f"derive {document.name} has no part {wanted!r}"
    nearest = near(wanted, [part.title for part in named])
    raise InputError(f"{problem}: {listed}{nearest}")
