"""Recording the transcripts of coding agents: sessions, and their rewinds, branches and compactions.

The readers of `mnemolog.adapters.importers` find the turns. `Transcripts` records the part of each file that is new.
The adapter `watch` decides which files to read, and when.
"""

from mnemolog.adapters.importers.transcripts.reading import FORMATS, Transcripts
from mnemolog.adapters.importers.transcripts.recording import Report

__all__ = ["FORMATS", "Report", "Transcripts"]
