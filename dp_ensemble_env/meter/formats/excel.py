"""Excel workbooks, when openpyxl is installed."""

from __future__ import annotations

import zipfile
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from dp_ensemble_env.meter.formats import Format
from dp_ensemble_env.meter.formats.tables import read_table
from dp_ensemble_env.meter.formats.text import Rows, Sheet, find_table
from dp_ensemble_env.meter.origin import MeterFileError, Origin, Readings, ReadSettings, broken, name_list


def read_excel(path: Path, settings: ReadSettings, every: bool) -> list[Readings]:
    """Read the one sheet that holds readings; note it when there are others."""
    origin = Origin(path.name, "row")
    openpyxl = _openpyxl(path, origin, settings)
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheets = {sheet.title: Sheet(_rows(sheet, origin, settings), origin) for sheet in book.worksheets}
        book.close()
    except MeterFileError:
        raise
    except Exception as error:  # a damaged workbook raises whatever zipfile, zlib and the XML parser run into
        raise broken(error, "workbook", "save the sheet as CSV", origin) from None
    with_readings, reasons = [], []
    for title, sheet in sheets.items():
        try:
            find_table(sheet)
        except ValueError as error:
            reasons.append(error)
        else:
            with_readings.append(title)
    if not with_readings:
        raise reasons[0] if reasons else origin.error("the workbook has no sheet; save the readings as CSV.")
    if len(with_readings) > 1:
        raise origin.error(f"several sheets hold readings ({name_list(with_readings)}); leave one, or save it as CSV.")
    parts = read_table(sheets[with_readings[0]], settings, every)
    for readings in parts if len(sheets) > 1 else ():
        readings.notes.insert(0, f"Sheet {with_readings[0]!r} was read.")
    return parts


def _openpyxl(path: Path, origin: Origin, settings: ReadSettings) -> Any:
    """Import the library, once the archive is known to be a workbook of bearable size."""
    settings.limit("bytes", path.stat().st_size, origin)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise origin.error(
            f"this is a damaged zip archive or Excel workbook ({error}); unpack it, or save the sheet as CSV."
        ) from None
    if "xl/workbook.xml" not in {member.filename for member in members}:
        raise origin.error("this is a zip archive, not an Excel workbook; unpack it and give the file inside.")
    settings.limit("bytes once unpacked", sum(member.file_size for member in members), origin)
    try:
        import openpyxl
    except ImportError as error:
        raise ImportError(
            "reading an Excel workbook needs openpyxl; pip install openpyxl, or save the sheet as CSV.", name="openpyxl"
        ) from error
    return openpyxl


def _rows(sheet: Any, origin: Origin, settings: ReadSettings) -> Rows:
    """Return the cells of a sheet as text, without empty columns at the right and empty rows at the end."""
    rows: Rows = []
    for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
        cells = [_text(cell) for cell in row]
        while cells and not cells[-1]:
            cells.pop()
        rows.append(cells)
        if not number % 1000:
            settings.limit("readings", number, origin)
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


FORMAT = Format(lambda head: head.startswith(b"PK\x03\x04"), read_excel)
