"""How `make docs` builds the documentation site: Sphinx, MyST Markdown, Furo; nothing is fetched from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

project = "dp_ensemble_env"
author = "The dp_ensemble_env maintainers"
_package = (Path(__file__).parents[1] / "dp_ensemble_env" / "__init__.py").read_text(encoding="utf-8")
release = re.findall(r'__version__ = "(.*?)"', _package)[0]

extensions = ["myst_parser"]
myst_heading_anchors = 3
nitpicky = True

html_theme = "furo"
html_title = f"dp_ensemble_env {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072B2", "color-brand-content": "#0072B2"},
    "dark_css_variables": {"color-brand-primary": "#56B4E9", "color-brand-content": "#56B4E9"},
}
html_copy_source = False
html_show_sourcelink = False
