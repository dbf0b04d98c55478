"""Reading conversations that already exist: files in, turns out. Nothing here knows a store."""

from mnemolog.adapters.importers.detection import FORMATS, detect_format
from mnemolog.adapters.importers.fields import FieldMap, parse_field_map
from mnemolog.adapters.importers.read import read_turns
from mnemolog.adapters.importers.turn import ImportedTurn

__all__ = ["FORMATS", "FieldMap", "ImportedTurn", "detect_format", "parse_field_map", "read_turns"]
