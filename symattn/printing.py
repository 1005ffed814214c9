"""Formulas and the blocks of documents, and how they print: for pages of your own, and to read those of symattn.

A ``Document`` is a title and ``blocks``: headings, paragraphs, numbered steps, results, tables and values. Their words
contain formulas, which ``formula`` parses and ``text`` and ``tex`` print; ``running_text`` parses a sentence with
formulas between dollar signs. ``render`` prints a document in each format.

For annotations there are four types: ``Text`` is running text, ``Block`` any block, ``Like`` what ``node`` takes for a
part of a formula, and ``Role`` what a letter stands for, such as "query", by which it is coloured.

>>> from symattn import Document, printing
>>> printing.tex(printing.formula("softmax(s + c 𝟏) = softmax(s)"))
'\\\\mathrm{softmax}(s + c \\\\mathbf{1}) = \\\\mathrm{softmax}(s)'
>>> words = printing.running_text("The constant $c$ adds to every score $s_j$.")
>>> page = Document("derivation", "shift", ("Shifts",), (printing.Paragraph(words),))
>>> page.text().splitlines()[3]
'The constant c adds to every score sⱼ.'
"""

from symattn.first_use import offer_names

__all__, __getattr__, __dir__ = offer_names(__name__, __file__)
