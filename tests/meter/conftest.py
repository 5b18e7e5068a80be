"""One way to write a small meter file."""

from __future__ import annotations

import pytest


@pytest.fixture
def file(tmp_path):
    """Write bytes, text, lines, or pairs of stamp and value under a header; return the path."""

    def write(content, name=None, header="start,kW"):
        if isinstance(content, list):
            if content and isinstance(content[0], tuple):
                content = [header, *(f"{stamp},{value}" for stamp, value in content)]
            content = "\n".join(content)
        content = content if isinstance(content, bytes) else content.encode()
        path = tmp_path / (name or ("usage.xml" if content.lstrip(b"\xff\xfe").startswith(b"<") else "meter.csv"))
        path.write_bytes(content)
        return path

    return write
