"""Excel workbooks, when openpyxl is installed."""

from __future__ import annotations

import zipfile
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from dp_ensemble_env.meter._limits import Limits
from dp_ensemble_env.meter._origin import MeterFileError, Origin, name_list
from dp_ensemble_env.meter._source import Rows, Sheet
from dp_ensemble_env.meter._text import find_table

_MEMBER = "xl/workbook.xml"


def read_workbook(path: Path, origin: Origin, limits: Limits) -> tuple[Sheet, list[str]]:
    """Return the one sheet that holds readings, and a note when there are others."""
    openpyxl = _openpyxl(path, origin, limits)
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheets = {sheet.title: Sheet(_rows(sheet, origin, limits), origin) for sheet in book.worksheets}
        book.close()
    except MeterFileError:
        raise
    except Exception as error:  # a damaged workbook raises whatever zipfile, zlib and the XML parser run into
        raise _broken(error, origin) from None
    found, reasons = [], []
    for title, sheet in sheets.items():
        try:
            find_table(sheet)
        except ValueError as error:
            reasons.append(error)
        else:
            found.append(title)
    if not found:
        raise reasons[0] if reasons else origin.error("the workbook has no sheet; save the readings as CSV.")
    if len(found) > 1:
        raise origin.error(f"several sheets hold readings ({name_list(found)}); leave one, or save it as CSV.")
    return sheets[found[0]], [f"Sheet {found[0]!r} was read."] if len(sheets) > 1 else []


def _openpyxl(path: Path, origin: Origin, limits: Limits) -> Any:
    """Import the library, once the archive is known to be a workbook of bearable size."""
    limits.check("bytes", path.stat().st_size, origin)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise origin.error(
            f"this is a damaged zip archive or Excel workbook ({error}); unpack it, or save the sheet as CSV."
        ) from None
    if _MEMBER not in {member.filename for member in members}:
        raise origin.error("this is a zip archive, not an Excel workbook; unpack it and give the file inside.")
    limits.check("bytes once unpacked", sum(member.file_size for member in members), origin)
    try:
        import openpyxl
    except ImportError as error:
        raise ImportError(
            "reading an Excel workbook needs openpyxl; pip install openpyxl, or save the sheet as CSV.",
            name="openpyxl",
        ) from error
    return openpyxl


def _rows(sheet: Any, origin: Origin, limits: Limits) -> Rows:
    """Return the cells of a sheet as text, without empty columns at the right and empty rows at the end."""
    rows: Rows = []
    for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
        cells = [_text(cell) for cell in row]
        while cells and not cells[-1]:
            cells.pop()
        rows.append(cells)
        if not number % 1000:
            limits.check("readings", number, origin)
    while rows and not rows[-1]:
        rows.pop()
    width = max(map(len, rows), default=0)
    return [row + [""] * (width - len(row)) if row else row for row in rows]


def _text(cell: Any) -> str:
    if cell is None or isinstance(cell, bool):
        return ""
    if isinstance(cell, datetime):
        # Excel counts days in floating point: 00:15 may be a millisecond off.
        near: datetime = cell + timedelta(milliseconds=500)
        # A cell that shows a date alone comes as its midnight, and its clock may stand in another one.
        return near.strftime("%Y-%m-%d" if near.hour == near.minute == near.second == 0 else "%Y-%m-%d %H:%M:%S")
    if isinstance(cell, date):
        return cell.isoformat()
    if isinstance(cell, time):
        return cell.strftime("%H:%M:%S")
    return str(cell).strip() if isinstance(cell, str) else repr(cell)


def _broken(error: Exception, origin: Origin) -> ValueError:
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return origin.error(f"the workbook cannot be read ({reason}); save the sheet as CSV.")
