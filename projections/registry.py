"""The registry: add a projection here, and status, doctor, rebuild and forgetting include it."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.values import Position
from mnemolog.projections.maintenance.context import (
    CacheStatus,
    Forgotten,
    IssueWithFix,
    StoreContext,
    TableStatus,
)
from mnemolog.projections.maintenance.tables import AdapterTables, ConversationViews, Embeddings, Snapshots
from mnemolog.projections.maintenance.vectors import VectorGenerations
from mnemolog.projections.sql.item_tables import ItemTables
from mnemolog.projections.sql.thread_index import ThreadIndex
from mnemolog.projections.vectors.folders import GenerationStatus, Rebuilt

Status = TableStatus | CacheStatus | GenerationStatus


class Projection(Protocol):
    """The files of one projection: anything that can be deleted and rebuilt from the log."""

    @property
    def name(self) -> str:
        """What commands and reports call it. The database of a projection that has one is `NAME.db`."""

    def status(self, context: StoreContext) -> Iterable[Status]:
        """Return its state from metadata alone; nothing is read through or changed."""

    def check(self, context: StoreContext, *, deep: bool) -> Iterator[IssueWithFix]:
        """Yield what is wrong with it. Changes nothing; the fixes do."""

    def purge(self, context: StoreContext, forgotten: Forgotten) -> bool:
        """Remove forgotten content, down to the bytes. False while another process reads the old bytes."""

    def backup_paths(self, layout: StoreLayout) -> list[Path]:
        """Return what a store that is only read copies: files are databases, folders are segments of vectors."""


@runtime_checkable
class Rebuildable(Projection, Protocol):
    """A projection that is rebuilt on request; the others are filled when they are next used."""

    def rebuild(self, context: StoreContext, *, upto: Position, skip_bad: bool) -> Rebuilt:
        """Rebuild it from the log up to a position. The old one answers until the new one is complete."""

    def to_encode(self, context: StoreContext, *, upto: Position) -> int:
        """Return how many texts a rebuild would call the model for."""


TRANSCRIPT_OFFSETS: Final = AdapterTables("watch", tracked_as="watch/1")
"""How far each transcript file was read; `mnemolog.adapters.importers.transcripts` has the tables."""

PROJECTIONS: Final[tuple[Projection, ...]] = (
    ConversationViews("views"),
    AdapterTables("threads", kind=ThreadIndex),
    AdapterTables("items", kind=ItemTables),
    TRANSCRIPT_OFFSETS,
    Embeddings("embeddings"),
    Snapshots("snapshots"),
    VectorGenerations(),
)
"""In the order in which reports list them."""
REBUILDABLE: Final = {item.name: item for item in PROJECTIONS if isinstance(item, Rebuildable)}
"""By name, in the order in which `all` rebuilds them."""


def unregistered_tables(layout: StoreLayout) -> list[AdapterTables]:
    """Return the databases of adapters that are not registered here: forgetting empties them as well."""
    known = {item.name for item in PROJECTIONS}
    others = (path.stem for path in sorted(layout.projections.glob("*.db")) if path.stem not in known)
    return [AdapterTables(name) for name in others]
