"""The services of a store, for asyncio: `mnemolog.audit`, `mnemolog.models` and `mnemolog.operations`, by method."""

from __future__ import annotations

from pathlib import Path

from mnemolog.aio.wrappers import (
    AsyncWrapper,
    in_background_pool,
    in_pages,
    in_read_pool,
    in_recall_pool,
    in_write_pool,
    wrapped,
)
from mnemolog.audit.service import AuditService
from mnemolog.models.service import ModelService
from mnemolog.operations.service import AdminService
from mnemolog.projections.quarantine import Quarantine


class AsyncAuditService(AsyncWrapper[AuditService]):
    """Shows the history of a store, compares it and exports it. See `AuditService`."""

    append_head = in_background_pool(AuditService.append_head)
    event = in_read_pool(AuditService.event)
    diff = in_background_pool(AuditService.diff)
    export = in_background_pool(AuditService.export)
    scan_secrets = in_background_pool(AuditService.scan_secrets)
    receipts = in_background_pool(AuditService.receipts)
    effects = in_background_pool(AuditService.effects)
    judge = in_write_pool(AuditService.judge)
    judgements = in_background_pool(AuditService.judgements)
    forgotten = in_background_pool(AuditService.forgotten)
    erasures = in_read_pool(AuditService.erasures)
    pending_erasures = in_read_pool(AuditService.pending_erasures)
    timeline = in_pages(AuditService.timeline)


class AsyncModelService(AsyncWrapper[ModelService]):
    """Lists, adds, activates and drops embedding models. See `ModelService`."""

    list = in_read_pool(ModelService.list)
    add = in_background_pool(ModelService.add)
    activate = in_background_pool(ModelService.activate)
    drop = in_background_pool(ModelService.drop)
    load = in_recall_pool(ModelService.load)


class AsyncQuarantine(AsyncWrapper[Quarantine]):
    """The quarantine of a store. See `Quarantine`."""

    @property
    def folder(self) -> Path:
        """The folder of the quarantine."""
        return self._of.folder

    items = in_read_pool(Quarantine.items)
    paths = in_read_pool(Quarantine.paths)
    status = in_read_pool(Quarantine.status)
    add = in_background_pool(Quarantine.add)
    delete = in_background_pool(Quarantine.delete)
    purge = in_background_pool(Quarantine.purge)


class AsyncAdminService(AsyncWrapper[AdminService]):
    """Keeps the projections of a store healthy and up to date. See `AdminService`."""

    doctor = in_background_pool(AdminService.doctor)
    quarantine = wrapped(AsyncQuarantine, in_read_pool(AdminService.quarantine))
    catch_up_views = in_background_pool(AdminService.catch_up_views)
    catch_up_vectors = in_background_pool(AdminService.catch_up_vectors)
    language = in_read_pool(AdminService.language)
    set_language = in_write_pool(AdminService.set_language)
    redaction = in_read_pool(AdminService.redaction)
    set_redaction = in_write_pool(AdminService.set_redaction)
    nodes = in_read_pool(AdminService.nodes)
    remove_node = in_read_pool(AdminService.remove_node)
    create_token = in_write_pool(AdminService.create_token)
    tokens = in_read_pool(AdminService.tokens)
    revoke_token = in_write_pool(AdminService.revoke_token)
    reapply_erasures = in_background_pool(AdminService.reapply_erasures)
