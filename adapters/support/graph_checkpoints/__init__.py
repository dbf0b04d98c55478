"""Threads: checkpoints of named channels, each stored as the changes since its parent, and pending writes.

For frameworks that keep the state of a run step by step and can return to any step. Independent of frameworks and
serialisers: values are bytes with the name of their format. Adapters convert them (docs/adapters/README.md).
"""

from mnemolog.adapters.support.graph_checkpoints.checkpoint import Checkpoint as Checkpoint
from mnemolog.adapters.support.graph_checkpoints.checkpoint import Typed as Typed
from mnemolog.adapters.support.graph_checkpoints.checkpoint import Written as Written
from mnemolog.adapters.support.graph_checkpoints.threads import Threads as Threads
from mnemolog.projections.sql.thread_index import CheckpointAt as CheckpointAt

__all__ = ["Checkpoint", "CheckpointAt", "Threads", "Typed", "Written"]
