"""Threads: checkpoints of named channels, each stored as the changes since its parent, and pending writes.

For frameworks that keep the state of a run step by step and can return to any step. Independent of frameworks and
serialisers: values are bytes with the name of their format. Adapters convert them (docs/adapters/README.md).
"""

from mnemolog.adapters.support.graph_checkpoints.threads import Checkpoint as Checkpoint
from mnemolog.adapters.support.graph_checkpoints.threads import Threads as Threads
from mnemolog.adapters.support.graph_checkpoints.threads import Typed as Typed
from mnemolog.adapters.support.graph_checkpoints.threads import Written as Written

__all__ = ["Checkpoint", "Threads", "Typed", "Written"]
