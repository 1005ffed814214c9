"""A page of several documents of which one is seen: which one is chosen by buttons."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape

from symattn.document.model import Document, Text
from symattn.render import html
from symattn.render.html_style import SCRIPT

_STYLE = """
.choose{position:sticky;top:0;background:var(--sa-paper);border-bottom:1px solid var(--sa-rule);z-index:1;
display:flex;flex-wrap:wrap;gap:.2rem 2rem;padding:.6rem 0}
.choose fieldset{border:0;padding:0;margin:0}.choose legend{float:left;margin-right:.7rem;color:var(--sa-mute)}
.choose label{margin-right:.8rem;cursor:pointer}
""".strip()
_SCRIPT = """
const form = document.querySelector('.choose'), parts = JSON.parse(form.dataset.parts);
const choose = () => {
  const wanted = parts.map(name => form.elements[name].value).join(' ');
  const none = document.querySelector('.none');
  none.hidden = false;
  for (const at of document.querySelectorAll('[data-choice]')) {
    at.hidden = at.dataset.choice !== wanted;
    if (!at.hidden) none.hidden = true;
  }
};
form.addEventListener('change', choose);
choose();
""".strip()

_WITHOUT = "<noscript><style>[data-choice][hidden]{display:block!important}.choose{display:none}</style></noscript>"
_NONE = '<p class="none" role="status" hidden>There is no walk for this choice.</p>'


def page(command: str, choices: Mapping[str, Sequence[Text]], documents: Mapping[tuple[int, ...], Document]) -> str:
    """The page: for each of ``choices`` a row of buttons, and the document of each combination of their numbers.

    The first document is seen first; where a combination has none, a line says so. Without its script the page shows
    all of them. ``command`` made the page; it is empty where no command does.
    """
    first = next(iter(documents))
    shown = "".join(
        f'<div data-choice="{" ".join(map(str, at))}" aria-live="polite"{"" if at == first else " hidden"}>'
        f"{html.body(document)}</div>\n"
        for at, document in documents.items()
    )
    rows = "".join(_row(name, words, first[i]) for i, (name, words) in enumerate(choices.items()))
    form = f'<form class="choose" data-parts="{escape(json.dumps(list(choices)), quote=True)}">{rows}</form>'
    style = f"<style>{_STYLE}</style>{_WITHOUT}"
    title = f"<h1>{html.prose(documents[first].title)}</h1>"
    article = f'{style}<article class="symattn alone">{title}\n{form}\n{_NONE}\n{shown}</article>\n'
    whole = f"{SCRIPT}\n{_SCRIPT}"
    return html.page(command, documents[first].title, article, script=whole)


def _row(name: str, words: Sequence[Text], chosen: int) -> str:
    radios = "".join(
        f'<label><input type="radio" name="{escape(name, quote=True)}" value="{i}"{" checked" * (i == chosen)}>'
        f" {html.prose(word)}</label>"
        for i, word in enumerate(words)
    )
    return f"<fieldset><legend>{escape(name)}</legend>{radios}</fieldset>"
