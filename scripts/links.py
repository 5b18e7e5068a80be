"""Check the built site: every link leads somewhere, every page says what it is, has a footer and fits a telephone.

``make docs`` runs it on what it built; nothing is fetched.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: What the head of a page has to say.
TAGS = ("viewport", "description", "og:title", "og:description", "og:type", "og:site_name")


class Page(HTMLParser):
    """The links, anchors and tags of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.tags: dict[str, str] = {}
        self.words: list[str] = []
        self.unnamed: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note links, anchors and tags."""
        given = {name: value or "" for name, value in attrs}
        self.links += [given[name] for name in ("href", "src") if name in given]
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "meta":
            self.tags[given.get("name", given.get("property", ""))] = given.get("content", "")
        if tag == "img" and not given.get("alt"):
            self.unnamed.append(given.get("src", "")[:60])

    def handle_data(self, data: str) -> None:
        """Note the words."""
        self.words.append(data)


def problems(folder: Path) -> list[str]:
    """Return what is wrong with a site, a sentence each."""
    pages = {path.resolve(): Page(path) for path in sorted(folder.rglob("*.html"))}
    found = [] if pages else [f"{folder} has no pages."]
    for path, page in pages.items():
        name = path.relative_to(folder.resolve())
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if parts.scheme not in ("http", "https", "mailto", "data"):
                    found.append(f"{name} has a link of an unknown kind: {link[:80]}")
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            if not target.exists():
                found.append(f"{name} links to {link}, which is not there.")
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{name} links to {link}, and there is no such place on that page.")
        found += [f"{name} has no {tag}." for tag in TAGS if not page.tags.get(tag)]
        found += [f"{name} has a picture without a description: {source}" for source in page.unnamed]
        if "Copyright" not in " ".join(page.words):
            found.append(f"{name} has no footer.")
    return found


def main() -> int:
    """Check the folder that is given."""
    folder = Path(sys.argv[1])
    found = problems(folder)
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
