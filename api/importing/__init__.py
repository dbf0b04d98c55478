"""Reading conversations that already exist: files in, turns out. Nothing here knows a store."""

from mnemolog.importing.detection import FORMATS, detect_format
from mnemolog.importing.fields import FieldMap, parse_field_map
from mnemolog.importing.read import read_turns
from mnemolog.importing.turn import ImportedTurn

__all__ = ["FORMATS", "FieldMap", "ImportedTurn", "detect_format", "parse_field_map", "read_turns"]
