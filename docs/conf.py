"""How Sphinx builds the documentation."""

from symattn import __version__

project = "symattn"
author = "The symattn developers"
release = version = __version__
copyright = author

extensions = ["myst_parser", "symattn.plugins.sphinx"]
exclude_patterns = ["_build"]
nitpicky = True

myst_enable_extensions = ["dollarmath", "deflist"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 3

html_theme = "alabaster"
html_title = f"symattn {release}"
html_copy_source = False
