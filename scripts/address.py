"""Write another address of the repository, here and wherever it is quoted: ``python scripts/address.py URL``.

The constant is ``Repository`` in pyproject.toml. README's links on PyPI are made from it when the package is built, and
the site's edit links when the site is built.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[1]
#: Files that quote the address.
PLACES = (
    "pyproject.toml", "README.md", "CITATION.cff", "SECURITY.md", ".github/gymnasium-listing.md",
    ".github/ISSUE_TEMPLATE/config.yml",
)  # fmt: skip


def address(root: Path = ROOT) -> str:
    """Return the address of the repository."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Repository"])


def main() -> int:
    """Write the address that is given."""
    if len(sys.argv) != 2 or urlsplit(sys.argv[1]).scheme != "https":
        print("Give the address of the repository, such as https://github.com/NAME/dp_ensemble_env.", file=sys.stderr)
        return 2
    former, wanted = address(), sys.argv[1].rstrip("/")
    quoted = [urlsplit(url).path.strip("/") for url in (former, wanted)]  # by badges
    pairs = [(former, wanted), (quoted[0], quoted[1])]
    for path in (ROOT / place for place in PLACES):
        text = path.read_text(encoding="utf-8")
        for old, new in pairs:
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
