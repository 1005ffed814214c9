"""How Sphinx builds the documentation."""

import sys
from pathlib import Path

from symattn import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "symattn"
author = "The symattn developers"
release = version = __version__
copyright = author

extensions = [
    "myst_parser",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "symattn.plugins.sphinx",
    "codes",
    "commands",
    "docstrings",
    "links",
    "notebooks",
]
templates_path = ["_templates"]
exclude_patterns = ["_build"]
nitpicky = True
# Signatures name types of other libraries, and private ones, which have no place here.
nitpick_ignore_regex = [("py:class", ".*")]
smartquotes_action = "qe"

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # types stand in the table of parameters
python_maximum_signature_line_length = 88

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3

# `sphinx-build -b linkcheck` asks the hosts that the pages link to; what is no page of theirs ends it.
linkcheck_timeout = 20
linkcheck_retries = 2
linkcheck_rate_limit_timeout = 60.0
linkcheck_anchors_ignore_for_url = [
    r"https://github\.com/.*"
]  # its pages make their anchors by script

html_theme = "furo"
html_title = "symattn"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_show_sphinx = False
pygments_style = "xcode"
pygments_dark_style = "github-dark"

_SERIF = "Charter, 'Bitstream Charter', 'Sitka Text', Cambria, Georgia, 'DejaVu Serif', serif"
_MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def _colours(paper: str, ink: str, mute: str, rule: str, tint: str, link: str) -> dict[str, str]:
    """The names that the theme has for the colours of the pages that symattn writes."""
    return {
        "color-background-primary": paper,
        "color-background-secondary": paper,
        "color-background-border": rule,
        "color-background-hover": tint,
        "color-foreground-primary": ink,
        "color-foreground-secondary": mute,
        "color-foreground-muted": mute,
        "color-foreground-border": mute,
        "color-code-background": tint,
        "color-code-foreground": ink,
        "color-inline-code-background": "transparent",
        "color-brand-primary": ink,
        "color-brand-content": link,
        "color-brand-visited": link,
        "color-sidebar-link-text": mute,
        "color-sidebar-link-text--top-level": ink,
        "color-sidebar-caption-text": mute,
    }


html_theme_options = {
    "light_css_variables": {
        "font-stack": _SERIF,
        "font-stack--headings": _SERIF,
        "font-stack--monospace": _MONO,
        **_colours("#FFFFFF", "#1B1C1E", "#5F6368", "#D9D7D2", "#F5F4F1", "#1558B0"),
    },
    "dark_css_variables": _colours(
        "#15171A", "#E8E6E1", "#A3A8AE", "#363A40", "#1E2125", "#8AB4F8"
    ),
    "top_of_page_buttons": [],
}
