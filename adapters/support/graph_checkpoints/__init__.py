"""Threads: checkpoints of named channels, each stored as what changed since its parent, and what was written to them.

For frameworks that keep the state of a run step by step and go back to any step. No framework is known here, and no
serialiser: values are bytes with the name of their form. Adapters hand them over (docs/adapters/README.md).
"""

from mnemolog.adapters.support.graph_checkpoints.checkpoint import Checkpoint as Checkpoint
from mnemolog.adapters.support.graph_checkpoints.checkpoint import Typed as Typed
from mnemolog.adapters.support.graph_checkpoints.checkpoint import Written as Written
from mnemolog.adapters.support.graph_checkpoints.threads import Threads as Threads
from mnemolog.projections.sql.thread_index import CheckpointAt as CheckpointAt

__all__ = ["Checkpoint", "CheckpointAt", "Threads", "Typed", "Written"]
