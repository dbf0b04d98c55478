"""An application of the eventsourcing library shares a store with agents: one log, one chain, one backup."""

from uuid import UUID

import pytest
from eventsourcing.application import Application
from eventsourcing.dispatch import singledispatchmethod
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import InfrastructureFactoryError
from eventsourcing.projection import EventSourcedProjection, EventSourcedProjectionRunner

from mnemolog import InvalidInput, MemoryStore, import_log, restore_backup
from mnemolog.domain.events import ForeignEvent
from tests.pages import assert_example_prints

pytestmark = pytest.mark.local


class Account(Aggregate):
    @event("Opened")
    def __init__(self, owner):
        self.owner, self.balance = owner, 0

    @event("Paid")
    def pay(self, amount):
        self.balance += amount


class Accounts(Application[UUID]):
    snapshotting_intervals = {Account: 3}  # noqa: RUF012


class Receipt(Aggregate):
    @event("Printed")
    def __init__(self, amount):
        self.amount = amount


class Receipts(EventSourcedProjection[UUID]):
    @singledispatchmethod
    def policy(self, domain_event, processing_event):
        pass

    @policy.register
    def _(self, domain_event: Account.Paid, processing_event):
        processing_event.collect_events(Receipt(domain_event.amount))


def env_of(folder):
    return {"PERSISTENCE_MODULE": "mnemolog.eventsourcing", "MNEMOLOG_FOLDER": str(folder)}


@pytest.fixture
def account(folder):
    """A store with a conversation, and an account of an application beside it, with snapshots."""
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("s").record("user", "pay 5 into my account", key="k")
    with Accounts(env=env_of(folder)) as accounts:
        account = Account("Ada")
        for amount in range(1, 10):
            account.pay(amount)
            accounts.save(account)
    return account.id


def balance(folder, account):
    with Accounts(env=env_of(folder)) as accounts:
        assert len(list(accounts.snapshots.get(account))) == 3
        return accounts.repository.get(account).balance


def test_an_aggregate_is_found_again_from_its_snapshot_and_at_every_version(folder, account):
    """Snapshots carry the versions of the aggregate, which skip."""
    assert balance(folder, account) == 45
    with Accounts(env=env_of(folder)) as accounts:
        found = [accounts.repository.get(account, version=version).balance for version in range(1, 11)]
        assert found == [sum(range(version)) for version in range(1, 11)]
        accounts.take_snapshot(account, version=5)  # Behind later ones.
        assert accounts.repository.get(account, version=5).balance == 10
    with MemoryStore.open(folder, model=None) as store:
        assert store.verify().sound


def test_a_store_verifies_replays_and_tells_its_history_with_such_events_in_it(bare, account):
    head = bare.head().position
    audit = bare.verify()
    assert (audit.sound, audit.events) == (True, head)
    assert bare.replay().events == head
    assert bare.rebuild("views")
    assert bare.recall("account", mode="text").hits[0].position == 2
    foreign = [item for item in bare.events() if isinstance(item.event, ForeignEvent)]
    assert len(foreign) == head - 2
    said = [moment.what for moment in bare.audit.timeline() if moment.position == foreign[0].position]
    assert said[0].startswith("event of another library (tests.e2e.test_eventsourcing:Account.Opened, ")
    assert bare.admin.doctor(deep=True).healthy
    assert bare.session("s").record("user", "more").position == head + 1


@pytest.mark.log_file
@pytest.mark.parametrize("way", ["backup", "export"])
def test_an_application_finds_its_aggregates_in_a_copy_of_the_store(folder, account, tmp_path, way):
    """They go where the log goes."""
    with MemoryStore.open(folder, model=None) as store:
        if way == "backup":
            store.backup(tmp_path / "b", keys=tmp_path / "keys")
        else:
            store.audit.export(tmp_path / "log.jsonl")
    if way == "backup":
        restore_backup(tmp_path / "b", tmp_path / "copy", keys=tmp_path / "keys")
    else:
        import_log(tmp_path / "log.jsonl", tmp_path / "copy")
        (tmp_path / "copy" / "keys.db").write_bytes((folder / "keys.db").read_bytes())
    assert balance(tmp_path / "copy", account) == 45


def test_forgetting_a_session_keeps_the_events_and_snapshots_of_aggregates(folder, account):
    """Only content of sessions is erased; a position of an aggregate's event is refused."""
    with MemoryStore.open(folder, model=None) as store:
        with pytest.raises(InvalidInput, match="holds no content"):
            store.forget(positions=[4])
        store.forget(session="s")
        assert store.verify().sound
        assert not store.recall("account", mode="text").hits
    assert balance(folder, account) == 45


def test_a_process_application_reads_every_event_once_also_after_a_restart(folder, account):
    """What it derives and how far it has read are one append."""
    for more in (0, 2):
        with Accounts(env=env_of(folder)) as accounts:
            for amount in range(more):
                found = accounts.repository.get(account)
                found.pay(100 + amount)
                accounts.save(found)
        runner = EventSourcedProjectionRunner(application_class=Accounts, projection_class=Receipts, env=env_of(folder))
        with runner:
            runner.wait(runner.app.recorder.max_notification_id(), timeout=20)
            printed = runner.projection.recorder.select_notifications(1, 100, topics=[_topic(Receipt.Printed)])
        assert len(printed) == 9 + more
    with MemoryStore.open(folder, model=None) as store:
        assert store.verify().sound


def _topic(kind):
    return f"{kind.__module__}:{kind.__qualname__}"


@pytest.mark.parametrize(
    ("env", "name", "why"),
    [
        ({"MNEMOLOG_FOLDER": ""}, "Accounts", "set MNEMOLOG_FOLDER"),
        ({"ORIGINATOR_ID_TYPE": "int"}, "Accounts", "use 'uuid' or 'text'"),
        ({}, "a/b", "without '/'"),
    ],
)
def test_a_wrong_environment_is_refused_with_what_to_do(folder, env, name, why):
    class Named(Application[UUID]):
        pass

    Named.name = name
    with pytest.raises(InfrastructureFactoryError, match=why):
        Named(env=env_of(folder) | env)


def test_applications_on_one_log_do_not_see_each_other(folder):
    """Each sees its own events, in the order of the log."""

    class Others(Accounts):
        pass

    with Accounts(env=env_of(folder)) as accounts, Others(env=env_of(folder)) as others:
        for n in range(3):
            accounts.save(Account(f"a{n}"))
            others.save(Account(f"b{n}"))
        mine, theirs = (app.recorder.select_notifications(1, 100) for app in (accounts, others))
    assert [item.id for item in mine] == [1, 3, 5]
    assert [item.id for item in theirs] == [2, 4, 6]


def test_the_example_of_an_application_runs(capsys):
    """Aggregate, snapshot, projection, and a chain that is sound at the end."""
    lines = ("trips by way of Coimbra: 2", "snapshots of the first trip: 1", "sound: True")
    assert_example_prints(capsys, "eventsourcing_application.py", *lines)
