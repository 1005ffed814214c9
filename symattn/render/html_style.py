"""The style and the script of pages: one column, hairlines, two papers, and the colours of the roles."""

from __future__ import annotations

from symattn.render.mathml import ROLES


def _variables(paper: int) -> str:
    """The colours on white (0) or black (1) paper."""
    base = {
        "paper": ("#FFFFFF", "#15171A"), "ink": ("#1B1C1E", "#E8E6E1"), "mute": ("#5F6368", "#A3A8AE"),
        "rule": ("#D9D7D2", "#363A40"), "tint": ("#F5F4F1", "#1E2125"),
    }  # fmt: skip
    return "".join(f"--sa-{name}:{pair[paper]};" for name, pair in (*base.items(), *ROLES.items()))


_FORMS = range(1, 13)  # of one array, at most
_CHECKED = ".symattn .forms input:nth-of-type({0}):checked~.form:nth-of-type({0}){{display:block}}"
_SHOWN = "".join(_CHECKED.format(i) for i in _FORMS)


# Sphinx' themes, JupyterLab and Notebook, Visual Studio Code, Colab
_DARK = ",".join(
    f"{at} .symattn" for at in ("[data-theme=dark]", "[data-jp-theme-light=false]", ".vscode-dark", "[theme=dark]")
)


STYLE = f"""
.symattn{{color-scheme:light;{_variables(0)}}}
@media(prefers-color-scheme:dark){{.symattn-page,.symattn-page .symattn{{color-scheme:dark;{_variables(1)}}}}}
{_DARK}{{color-scheme:dark;{_variables(1)}}}
@media(prefers-color-scheme:dark){{[data-theme=auto] .symattn{{color-scheme:dark;{_variables(1)}}}}}
.symattn-page{{margin:0;background:var(--sa-paper,#FFFFFF)}}
.symattn{{max-width:60rem;margin:0 auto;padding:1.5rem 1.1rem 3rem;background:var(--sa-paper);color:var(--sa-ink);
font:400 1rem/1.5 Charter,'Bitstream Charter','Sitka Text',Cambria,Georgia,serif;font-variant-numeric:lining-nums}}
.symattn.bare{{padding:.2rem 0;margin:0;max-width:none}}
.symattn h1{{font-size:2rem;line-height:1.2;margin:0}}.symattn h2{{font-size:1.5rem}}.symattn h3{{font-size:1.2rem}}
.symattn h2,.symattn h3{{display:inline;line-height:1.2}}
.symattn header{{border-bottom:1px solid var(--sa-rule);margin-bottom:1.5rem}}
.symattn header p,.symattn footer,.symattn figcaption,.symattn caption{{color:var(--sa-mute);font-size:.87rem}}
.symattn p,.symattn dd,.symattn li{{max-width:42em}}.symattn p{{margin:.7rem 0}}
.symattn summary{{cursor:pointer;list-style:none;margin:1.6rem 0 .6rem}}
.symattn summary::-webkit-details-marker{{display:none}}
.symattn math{{font-family:'STIX Two Math','Cambria Math','Latin Modern Math',math;font-size:1.06em}}
.symattn math[display=block]{{width:max-content;margin:.25em 0;text-align:left}}
.symattn code,.symattn pre{{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.87em}}
.symattn pre{{background:var(--sa-tint);padding:.7rem 1rem;overflow-x:auto}}
.symattn .wide{{overflow-x:auto;margin:.8rem 0}}
.symattn table{{border-collapse:collapse;margin:0;color:inherit;font-size:inherit}}
.symattn.symattn tbody tr{{background:none}}.symattn.symattn td,.symattn.symattn th{{padding:.2rem .7rem;
vertical-align:baseline;text-align:left}}
.symattn .steps td:first-child{{color:var(--sa-mute);padding-left:0}}
.symattn .steps td:last-child{{font-size:.87rem;color:var(--sa-mute);padding-left:1.5rem;min-width:11rem}}
.symattn .steps td:nth-child(2):not([colspan]){{padding-right:0}}
.symattn .steps td:nth-child(2):not([colspan]) math{{margin-left:auto}}
.symattn .steps td:nth-child(3){{padding-left:.2rem}}
.symattn .result .steps td:first-child,.symattn .result .steps td:last-child{{color:inherit;font-size:1rem}}
.symattn .data th{{font-weight:400;color:var(--sa-mute);font-size:.87rem;border-bottom:1px solid var(--sa-rule)}}
.symattn.symattn .left{{text-align:left}}.symattn.symattn .right{{text-align:right}}
.symattn.symattn .centre{{text-align:center}}.symattn.symattn .shaded,.symattn .result{{background:var(--sa-tint)}}
.symattn .result{{padding:.6rem 1rem;margin:1rem 0;border-left:2px solid var(--sa-rule)}}
.symattn aside{{border-left:2px solid var(--sa-rule);padding-left:1rem;margin:1rem 0;max-width:42em}}
.symattn figure{{margin:1.2rem 0}}.symattn dt{{font-weight:600;float:left;clear:left;margin-right:.7rem}}
.symattn dd{{margin:.2rem 0 .2rem 2.6rem}}
.symattn mtd{{text-align:right;text-align:-webkit-right;padding:.2em .45em}}
.symattn .grade{{display:inline-block}}.symattn .grade summary{{display:inline;margin:0;white-space:nowrap;
color:var(--sa-ink);text-decoration:underline dotted var(--sa-mute) 1px;text-underline-offset:.2em}}
.symattn .grade span{{display:block;font-size:.87rem;max-width:24em}}
.symattn .forms input{{position:absolute;opacity:0;width:1px}}
.symattn .forms label{{font-size:.8rem;color:var(--sa-mute);margin-right:1rem;cursor:pointer;
border-bottom:1.5px solid transparent}}
.symattn .forms input:checked+label{{color:var(--sa-ink);border-color:currentColor}}
.symattn .forms input:focus-visible+label{{outline:2px solid var(--sa-score);outline-offset:2px}}
.symattn .forms input~.form{{display:none}}
{_SHOWN}
.symattn nav ol{{list-style:none;padding:0}}.symattn a{{color:inherit;text-decoration-color:var(--sa-mute)}}
.symattn .verdict{{color:var(--sa-ink);font-size:1.2rem;font-weight:600}}
.symattn .copy{{font:inherit;font-size:.75rem;color:var(--sa-mute);background:none;border:0;cursor:pointer;opacity:0;
position:absolute;margin-left:.4rem}}
.symattn [data-tex]:hover .copy,.symattn .copy:focus-visible{{opacity:1}}
{"".join(f".symattn .r-{role}{{color:var(--sa-{role})}}" for role in ROLES)}
@media(max-width:44rem){{.symattn .steps,.symattn .steps tbody{{display:block}}
.symattn .steps tr{{display:flex;flex-wrap:wrap;align-items:baseline}}.symattn .steps td{{padding-right:.4rem}}
.symattn>.wide .steps td:last-child,.symattn details>.wide .steps td:last-child{{flex-basis:100%;padding-left:2.4rem}}}}
@media print{{.symattn{{max-width:none}}.symattn .copy,.symattn .forms label{{display:none}}
.symattn .forms input~.form{{display:block}}.symattn .wide{{overflow:visible}}}}
""".strip()
"""The rules of every page; each speaks of what is within ``.symattn`` alone, so that a fragment changes no other. Where
the class is named twice, the rule outweighs those that notebooks have for tables.

A fragment is light, and dark in a page that says so: by ``data-theme``, ``dark`` or ``auto``, as themes of Sphinx do,
or as dark notebooks do. One without a title, such as an array, takes no more room than it needs.
"""

SCRIPT = """
for (const at of document.querySelectorAll('[data-tex]')) {
  const copy = document.createElement('button'), place = at.tagName === 'TR' ? at.cells[0] : at;
  copy.className = 'copy'; copy.textContent = 'TeX'; copy.title = 'Copy as LaTeX';
  copy.onclick = () => navigator.clipboard.writeText(at.dataset.tex).then(() => { copy.textContent = 'copied'; });
  place.append(copy);
}
addEventListener('beforeprint', () => document.querySelectorAll('details').forEach(d => { d.open = true; }));
""".strip()
"""Puts a button beside each formula that copies it; opens what is closed before it is printed."""
