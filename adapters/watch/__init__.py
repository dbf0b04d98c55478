"""Follow the transcripts that coding agents write, and record turns as they are written.

Reading and polling need only the core; notifications of changes need the extra `watch`.
"""

from mnemolog.adapters.importers.transcripts import FORMATS, Report
from mnemolog.adapters.watch.watcher import Watcher, default_folders, ready_to_follow

__all__ = ["FORMATS", "Report", "Watcher", "default_folders", "ready_to_follow"]
