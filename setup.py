"""The package's description on PyPI: README.md, with links that work there. All else is in pyproject.toml."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent


def described(text: str, address: str) -> str:
    """Turn relative links into links to the repository."""
    text = re.sub(r"(!\[[^]]*\]\()(?!https?:|#)", rf"\1{address}/raw/main/", text)
    return re.sub(r"(\]\()(?!https?:|#)", rf"\1{address}/blob/main/", text)


if __name__ == "__main__":
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    setup(
        long_description=described(readme, project["urls"]["Repository"]),
        long_description_content_type="text/markdown",
    )
