"""How `make docs` builds the documentation site: Sphinx, MyST Markdown, Furo; nothing is fetched from elsewhere."""

from __future__ import annotations

import importlib
import inspect
from importlib.util import find_spec
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from dp_ensemble_env import __version__ as release

project = "dp_ensemble_env"
author = "The dp_ensemble_env maintainers"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
exclude_patterns = ["_templates"]
templates_path = ["_templates"]
# Links between pages are checked; the types in docstrings are prose ("array of shape (n,)") and are not.
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]
default_role = "code"
autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
# The reference lists the modules of the extras too, installed or not.
autodoc_mock_imports = [name for name in ("stable_baselines3", "torch", "optuna", "matplotlib") if not find_spec(name)]
napoleon_google_docstring = False
napoleon_use_ivar = True
suppress_warnings = ["ref.python"]

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
html_math_renderer = "mathml"  # which browsers draw themselves


class Manual(SphinxDirective):
    """Show a docstring that is written in Markdown, as those of Gymnasium's environments are."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Parse the docstring as part of the page."""
        module, _, name = self.arguments[0].rpartition(".")
        text = inspect.getdoc(getattr(importlib.import_module(module), name)) or ""
        part = nodes.section()
        self.state.nested_parse(StringList(text.splitlines()), 0, part, match_titles=True)
        return part.children


def shorten_manual(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Leave of a docstring in Markdown its summary; its page has the rest."""
    if any(line.startswith("## ") for line in lines):
        lines[:] = [lines[0], "", "See :doc:`/environment`.", ""]


def show_math(translator: Any, node: nodes.Element) -> None:
    """Write a formula as MathML."""
    text = node.astext().replace(r"\textstyle", "")  # which the converter takes at the start only
    translator.body.append(tex2mathml(text, as_block=isinstance(node, nodes.math_block)))
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Add the above to Sphinx."""
    app.add_directive("manual", Manual)
    app.connect("autodoc-process-docstring", shorten_manual, priority=400)  # before napoleon
    app.add_html_math_renderer("mathml", (show_math, None), (show_math, None))
