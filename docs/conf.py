"""How `make docs` builds the documentation site: Sphinx, MyST Markdown, Furo; nothing is fetched from elsewhere."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import tomllib
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from docutils.utils.math.latex2mathml import tex2mathml
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx
from sphinx.ext.napoleon.docstring import GoogleDocstring
from sphinx.util.docutils import SphinxDirective

from dp_ensemble_env import __version__ as release

REPOSITORY = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "urls"
]["Repository"]

project = "dp_ensemble_env"
author = "The dp_ensemble_env maintainers"
copyright = "2026, the dp_ensemble_env maintainers, MIT licence"
version = release
language = "en"
description = "Reinforcement-learning benchmark for privacy-aware demand response, with a known optimum"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
myst_dmath_allow_space = myst_dmath_allow_digits = False  # "$15" is money
# Links between pages are checked; the types in docstrings are prose ("array of shape (n,)") and are not.
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]
default_role = "code"
autosummary_generate = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
# The reference lists the modules of the extras too, installed or not.
autodoc_mock_imports = [name for name in ("stable_baselines3", "torch", "matplotlib") if not find_spec(name)]
napoleon_google_docstring = False
napoleon_use_ivar = True
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_title = f"dp_ensemble_env {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "source_repository": REPOSITORY,
    "source_branch": "main",
    "source_directory": "docs/",
    "light_css_variables": {"color-brand-primary": "#0072B2", "color-brand-content": "#0072B2"},
    "dark_css_variables": {"color-brand-primary": "#56B4E9", "color-brand-content": "#56B4E9"},
}
html_last_updated_fmt = ""
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"  # which browsers draw themselves


# A colon in the docstring of an attribute is punctuation; it does not end a type.
GoogleDocstring._parse_attribute_docstring = GoogleDocstring._consume_to_end  # type: ignore[method-assign]


class Manual(SphinxDirective):
    """Show a docstring in Markdown, such as Gymnasium's environments have, without its first line."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Parse the docstring as part of the page."""
        module, _, name = self.arguments[0].rpartition(".")
        _, _, text = (inspect.getdoc(getattr(importlib.import_module(module), name)) or "").partition("\n\n")
        part = nodes.section()
        self.state.nested_parse(StringList(text.splitlines()), 0, part, match_titles=True)
        return part.children


class NotebookParser(MystParser):
    """Read a notebook: its texts, its code and what that printed and drew when it was run."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Turn the notebook into Markdown, and that into the page."""
        name = Path(document["source"]).stem
        cells = [_cell(cell) for cell in json.loads(inputstring)["cells"]]
        files = f"*Run it yourself: {{download}}`{name}.ipynb`, or as one program {{download}}`{name}.py`.*"
        cells.insert(1, files)
        super().parse("\n\n".join(cells), document)


def _cell(cell: dict[str, Any]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    parts = [f"```python\n{source}\n```"]
    for output in cell["outputs"]:
        if "text" in output:
            parts.append("```text\n" + "".join(output["text"]) + "```")
        else:
            picture = output["data"]["image/png"].replace("\n", "")
            parts.append(f'<img alt="What the code above draws" src="data:image/png;base64,{picture}">')
    return "\n\n".join(parts)


def add_metadata(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Tell search engines, and sites that show a link, the subject of a page."""
    title = context.get("title") or project
    words = description
    if doctree is not None:
        first = next((p for p in doctree.findall(nodes.paragraph) if len(p.astext()) > 40), None)
        words = " ".join(first.astext().split())[:200] if first is not None else description
    tags = {"og:title": title, "og:description": words, "og:type": "website", "og:site_name": project}
    lines = [f'<meta name="description" content="{escape(words)}">']
    lines += [f'<meta property="{name}" content="{escape(text)}">' for name, text in tags.items()]
    context["metatags"] = context.get("metatags", "") + "\n".join(lines)


def show_root_file(app: Sphinx, page: str, source: list[str]) -> None:
    """Show a file that stands at the top of the project, with its links turned to the pages of the site."""
    if page not in ("contributing", "changelog"):
        return
    path = Path(app.srcdir).parent / f"{page.upper()}.md"
    app.env.note_dependency(str(path))
    text = path.read_text(encoding="utf-8")
    text = text.replace("](docs/", "](").replace("](CHANGELOG.md)", "](changelog.md)")
    source[0] = re.sub(
        r"\[([^]]*)\]\((?!https?:)((?:tests|scripts|dp_ensemble_env|agents)/[^)]*|[A-Z]\w+(?:\.\w+)?)\)", r"`\1`", text
    )


def shorten_manual(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Leave of a docstring in Markdown its summary; its page has the rest."""
    if any(line.startswith("## ") for line in lines):
        lines[:] = [lines[0], "", "See :doc:`/environment`.", ""]


def show_math(translator: Any, node: nodes.Element) -> None:
    """Write a formula as MathML."""
    text = node.astext().replace(r"\textstyle", "")  # which the converter takes at the start only
    text = re.sub(r"\\[Bb]igg?[lr]?(?![A-Za-z])", "", text)  # brackets stretch without being told
    translator.body.append(tex2mathml(text, as_block=isinstance(node, nodes.math_block)))
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Add the above to Sphinx."""
    app.add_directive("manual", Manual)
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(NotebookParser)
    app.connect("source-read", show_root_file)
    app.connect("html-page-context", add_metadata)
    app.connect("autodoc-process-docstring", shorten_manual, priority=400)  # before napoleon
    app.add_html_math_renderer("mathml", (show_math, None), (show_math, None))
