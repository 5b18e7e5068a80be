"""One way to write a small meter file, and what reading it gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import refuses

from dp_ensemble_env.meter import read_meter


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


@pytest.fixture
def reads(file):
    """Check the power that a path, or what `file` writes, is read as; return the series."""

    def read(kw, content, **settings):
        series = read_meter(content if isinstance(content, Path) else file(content), **settings)
        np.testing.assert_array_equal(series.kw, kw)
        return series

    return read


@pytest.fixture
def refused(file):
    """Check in which words a path, or what `file` writes, is refused."""

    def check(words, content, **settings):
        refuses(words, read_meter, content if isinstance(content, Path) else file(content), **settings)

    return check
