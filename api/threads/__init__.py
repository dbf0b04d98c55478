"""Threads: checkpoints of named channels, each stored as what changed since its parent, and what was written to them.

For frameworks that keep the state of a run step by step and go back to any step. No framework is known here, and no
serialiser: values are bytes with the name of their form. Adapters hand them over (docs/adapters/README.md).
"""

from mnemolog.projections.sql.thread_index import CheckpointAt as CheckpointAt
from mnemolog.threads.checkpoint import Checkpoint as Checkpoint
from mnemolog.threads.checkpoint import Typed as Typed
from mnemolog.threads.checkpoint import Written as Written
from mnemolog.threads.threads import Threads as Threads

__all__ = ["Checkpoint", "CheckpointAt", "Threads", "Typed", "Written"]
