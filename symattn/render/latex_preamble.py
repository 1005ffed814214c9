"""What stands before a LaTeX document's body."""

from __future__ import annotations

from symattn.document.tex import COLOURS

_GREY = ("SAg", "5F6368")

_HEAD = r"""\documentclass[11pt,a4paper]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{lmodern}
\usepackage[margin=27mm]{geometry}
\usepackage{amsmath,amssymb,mathtools,array,booktabs,enumitem,graphicx,microtype}
\usepackage[table]{xcolor}
\usepackage[most]{tcolorbox}"""

_MACROS = r"""% reason, grade and number of a step, flush right; they move to the next line where the formula is long
\newcommand{\SAgrade}[2][SAo]{{\footnotesize\itshape\color{#1}#2}}
\newcommand{\SAwhy}[3]{\tag*{{\small\color{SAg}#1}\enspace\makebox[13mm][l]{#2}\makebox[8mm][r]{(#3)}}}
% a display right after a heading would leave an empty line
\newcommand{\SAafterheading}{\par\vspace{-0.8\baselineskip}}
\newcommand{\SAok}{\textcolor{SAo}{$\checkmark$}}
% shrinks what is wider than its place
\newsavebox{\SAbox}
\newcommand{\SAfit}[2][\linewidth]{\sbox{\SAbox}{#2}%
  \ifdim\wd\SAbox>\dimexpr#1\relax\resizebox{#1}{!}{\usebox{\SAbox}}\else\usebox{\SAbox}\fi}
\newtcolorbox{SAresult}[1]{enhanced,colback=SAs!4,colframe=SAs!70!black,boxrule=.5pt,arc=1.5mm,
  left=3mm,right=3mm,top=0mm,bottom=1mm,title={#1},fonttitle=\bfseries\small,coltitle=black,colbacktitle=SAs!12,
  before skip=9pt,after skip=11pt}
\newtcolorbox{SAcaveat}{enhanced,colback=SAk!5,colframe=SAk!5,borderline west={2pt}{0pt}{SAk},
  boxrule=0pt,arc=0pt,left=3mm,fontupper=\small,before skip=9pt,after skip=9pt}
\newtcolorbox{SAnote}{enhanced,colback=SAg!6,colframe=SAg!6,borderline west={2pt}{0pt}{SAg},
  boxrule=0pt,arc=0pt,left=3mm,fontupper=\small,before skip=7pt,after skip=7pt}
\setlist{itemsep=1pt,topsep=3pt}
\setlength{\parindent}{0pt}\setlength{\parskip}{5pt}
\renewcommand{\arraystretch}{1.15}
\allowdisplaybreaks
\AtBeginDocument{\abovedisplayskip=6pt \belowdisplayskip=6pt \abovedisplayshortskip=4pt \belowdisplayshortskip=4pt}"""


def preamble() -> str:
    """Packages, colours and macros of a whole document."""
    colours = [f"\\definecolor{{{name}}}{{HTML}}{{{value}}}" for name, value in (*COLOURS.values(), _GREY)]
    return "\n".join([_HEAD, *colours, _MACROS])
