"""Following the transcripts that coding agents write, and recording what is said as it is said.

Reading what is there needs nothing beyond the core; to be told of what is written needs the extra `watch`.
"""

from mnemolog.adapters.importers.transcripts import FORMATS, Report
from mnemolog.adapters.watch.folders import default_folders
from mnemolog.adapters.watch.watcher import Watcher, ready_to_follow

__all__ = ["FORMATS", "Report", "Watcher", "default_folders", "ready_to_follow"]
