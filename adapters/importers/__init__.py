"""Import existing conversations: files in, turns out, recorded in a store by `import_files`."""

from mnemolog.adapters.importers.import_files import FilePreview, ImportReport, TurnPreview, import_files, preview_files
from mnemolog.adapters.importers.read import FORMATS, detect_format, read_turns
from mnemolog.adapters.importers.turn import FieldMap, ImportedTurn, parse_field_map

__all__ = [
    "FORMATS",
    "FieldMap",
    "FilePreview",
    "ImportReport",
    "ImportedTurn",
    "TurnPreview",
    "detect_format",
    "import_files",
    "parse_field_map",
    "preview_files",
    "read_turns",
]
