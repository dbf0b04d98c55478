"""What one node forgets, all nodes forget: none serves it again, each purges its files and confirms."""

import os
import shutil
from contextlib import suppress

import pytest
from psycopg.conninfo import conninfo_to_dict

from mnemolog.adapters.support.items import Items
from mnemolog.forgetting import service as purging
from mnemolog.forgetting.service import STEPS
from mnemolog.infra import postgres
from mnemolog.projections.quarantine import Quarantine
from tests.children.forking import in_child
from tests.postgres import connect
from tests.support import wait_until

pytestmark = pytest.mark.local

SECRET = "heliotrope"


def told(store):
    """Record what will be forgotten, and what will not."""
    secret = store.start_session("secret", title=f"about {SECRET}")
    for n in range(6):
        secret.record("user", f"the {SECRET} blooms in week {n}")
    secret.set("flower", SECRET)
    secret.note(f"a note on {SECRET}")
    store.session("other").record("user", "the ferry leaves at noon")


def read_all(store):
    """Fill every projection of a node."""
    assert store.recall(f"{SECRET} week 3").hits
    store.admin.catch_up_vectors()
    assert store.find(SECRET)
    assert store.session("secret").get("flower") == SECRET


def serves_nothing(store):
    """Whether no call gives anything of what was forgotten."""
    for mode in ("vector", "hybrid", "text"):
        assert all(SECRET not in hit.text for hit in store.recall(f"{SECRET} week 3", mode=mode).hits)
    assert store.find(SECRET) == []
    assert SECRET not in store.context(SECRET, session="secret").text.partition("\n")[2]
    assert store.session("secret").all() == {}
    assert store.turns("secret") == []
    assert all(SECRET not in item.title for item in store.sessions())
    assert store.recall("ferry").hits[0].text == "the ferry leaves at noon"
    return True


def files_with_it(folder):
    """The files below a folder that have the word in their bytes."""
    found = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError, IsADirectoryError):  # A projector deletes files of its own meanwhile.
            if SECRET.encode() in path.read_bytes():
                found.append(str(path))
    return found


def waiting(store):
    """The nodes that have not confirmed each request."""
    return [
        sorted(node.label.rpartition("/")[2] for node in item.waiting_for) for item in store.audit.pending_erasures()
    ]


def test_a_node_that_was_away_serves_nothing_of_it_after_it_returns(opened, tmp_path):
    """It purges before its first recall, and confirms."""
    with opened("one") as one:
        told(one)
        with opened("two") as two:
            read_all(two)
        assert files_with_it(tmp_path / "two" / "projections")
        report = one.forget(session="secret", reason="asked for")
        assert [node.here for node in report.confirmed_by] == [True]
        assert [node.label for node in report.waiting_for] == [f"{os.uname().nodename}:{two.path}"]
        assert report.complete
        assert waiting(one) == [["two"]]
        with opened("two") as two:
            assert not files_with_it(two.path)
            assert waiting(one) == []
            assert serves_nothing(two)
            assert two.status().vectors[0].vectors == 1
            assert two.admin.doctor(deep=True).healthy
        assert not files_with_it(two.path)
        assert serves_nothing(one)


def test_a_node_that_is_open_serves_nothing_of_it_from_then_on(opened, tmp_path):
    """The first read after it purges, items in quarantine too: nobody knows what words they hold.

    A new node has nothing to confirm: it reads a log without that content. The certificate is the same with it.
    """
    with opened("one") as one, opened("two") as two, opened("two") as again:
        told(one)
        for store in (one, two, again):
            read_all(store)
        (tmp_path / "damaged").write_text(SECRET)
        quarantine = Quarantine(two.path / "projections" / "quarantine")
        assert quarantine.add(tmp_path / "damaged", reason="x", state="damaged")
        report = one.forget(session="secret", reason="asked for")
        assert report.certificate.statements.confirmed_by == (f"{os.uname().nodename}:{one.path}",)
        assert waiting(one) == [["two"]]
        assert serves_nothing(two)
        assert serves_nothing(again)
        assert two.admin.quarantine().items() == []
        assert not files_with_it(two.path)
        assert waiting(one) == []
        certificate = one.parts.forgetting.certificate(report.request)
        with opened("three") as three:
            assert waiting(one) == []
            assert serves_nothing(three)
            assert one.parts.forgetting.certificate(report.request) == certificate
        two.forget(session="other", reason="asked for as well")
        assert waiting(two) == [["one", "three"]]
        assert not one.recall("ferry").hits
        assert waiting(two) == [["three"]]


def test_a_node_does_not_confirm_what_another_one_forgot_while_it_purged(opened, monkeypatch):
    """It has read its files before: what came in between may be in them."""
    with opened("one") as one, opened("two") as two:
        told(one)
        read_all(two)
        real, places = purging.purge, []

        def purge(layout, *given, **options):
            places.append(layout.folder.name)
            left = real(layout, *given, **options)
            if places == ["two"]:
                assert one.forget(session="secret", reason="asked for meanwhile").complete
            return left

        monkeypatch.setattr(purging, "purge", purge)
        assert two.forget(session="other", reason="asked for").complete
        assert places == ["two", "one"]
        assert waiting(one) == [["two"]]
        monkeypatch.undo()
        assert not two.find(SECRET)
        assert waiting(one) == []


def test_a_node_with_a_projector_confirms_without_being_read(opened):
    """Its thread looks at the log anyway."""
    with opened("one") as one:
        told(one)
        with opened("two", background=True) as two:
            read_all(two)
            one.forget(session="secret", reason="asked for")
            assert serves_nothing(two)
            wait_until(lambda: not waiting(one), what="the confirmation")
            assert not files_with_it(two.path)


@pytest.mark.parametrize("background", [False, True])
def test_a_node_that_is_cut_off_says_so_and_purges_before_its_first_answer_after_that(
    opened, postgres_url, tmp_path, monkeypatch, background
):
    """Its answers are marked as stale; report and certificate name it, until it is back."""
    host = conninfo_to_dict(postgres_url)["host"]
    if not os.path.isdir(host):  # noqa: PTH112
        pytest.skip("the server has no socket here")
    monkeypatch.setattr(postgres, "RECONNECT_S", 0.3)
    way = tmp_path / "way"
    way.symlink_to(host)
    through = postgres_url.replace(host, str(way))
    with opened("one") as one, opened("two", url=through, background=background) as two:
        told(one)
        read_all(two)
        assert files_with_it(two.path)
        way.unlink()
        with connect(postgres_url) as database:
            database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        assert two.recall(SECRET).stale is not None
        report = one.forget(session="secret")
        label = f"{os.uname().nodename}:{two.path}"
        assert [node.label for node in report.waiting_for] == [*report.certificate.statements.waiting_for] == [label]
        assert {item.kind: item.items for item in report.certificate.remains}["nodes"] == (label,)
        assert two.recall(SECRET).stale is not None
        way.symlink_to(host)
        answer = two.recall(f"{SECRET} ferry")
        assert (answer.stale, [hit.text for hit in answer.hits]) == (None, ["the ferry leaves at noon"])
        wait_until(lambda: not files_with_it(two.path) and not waiting(one), what="the purge") if background else None
        assert not files_with_it(two.path)
        assert waiting(one) == []
        assert serves_nothing(two)


def test_a_purge_that_fails_is_tried_again_and_serves_nothing_meanwhile(opened, monkeypatch):
    """The node has not confirmed until its files are clean."""
    with opened("one") as one, opened("two") as two:
        told(one)
        read_all(two)
        one.forget(session="secret")
        with monkeypatch.context() as failing:
            failing.setattr(purging, "_purge_quarantine", lambda *_: (_ for _ in ()).throw(OSError("no")))
            assert serves_nothing(two)
            assert waiting(one) == [["two"]]
        two.close()
        with opened("two") as two:
            assert waiting(one) == []
            assert serves_nothing(two)


def test_a_purge_that_was_killed_is_done_again(opened):
    """Nothing is noted before all is done."""
    with opened("one") as one:
        told(one)
        with opened("two") as two:
            read_all(two)
        one.forget(session="secret")

        def killed():
            purging._purge_quarantine = lambda *_: os._exit(9)
            opened("two")

        with pytest.raises(pytest.fail.Exception, match="ended before"):
            in_child(killed)
        assert waiting(one) == [["two"]]
        with opened("two") as two:
            assert waiting(one) == []
            assert serves_nothing(two)
            assert not files_with_it(two.path)


@pytest.mark.parametrize("step", STEPS[:-1])
def test_a_request_that_one_node_began_is_completed_by_another(opened, step):
    """Whatever step it was interrupted at. The first node confirms when it is back."""

    def interrupted(reached):
        if reached == step:
            raise KeyboardInterrupt

    with opened("one") as one:
        told(one)
        read_all(one)
        one.parts.forgetting.reached = interrupted
        with pytest.raises(KeyboardInterrupt):
            one.forget(session="secret", reason="asked for")
    with opened("two") as two:
        assert serves_nothing(two)
        assert two.status().forgetting.pending == ()
        assert waiting(two) in ([["one"]], [])
        assert not files_with_it(two.path)
        with opened("one") as one:
            assert waiting(two) == []
            assert serves_nothing(one)
            assert not files_with_it(one.path)


def test_tables_of_an_adapter_start_over_without_what_was_forgotten(opened):
    """Before the node purges them, and though they are open."""
    with opened("one") as one, opened("two", background=True) as two:
        here, there = Items(one), Items(two)
        with here.batch() as batch:
            batch.put(("flowers",), "a", {"name": SECRET})
            batch.put(("ferries",), "b", {"leaves": "noon"})
        with there.batch() as batch:
            assert batch.get(("flowers",), "a").value == {"name": SECRET}
        one.forget(positions=here.positions(("flowers",)))
        with there.batch() as batch:
            assert batch.get(("flowers",), "a") is None
            assert batch.get(("ferries",), "b").value == {"leaves": "noon"}
        here.close()
        there.close()


def test_projections_of_an_earlier_time_are_purged_again(opened, tmp_path):
    """The note of what was purged is copied with them; without a note everything is purged."""
    with opened("one") as one:
        told(one)
        one.forget(positions=[one.session("early").record("user", "the first").position])
        with opened("two") as two:
            read_all(two)
        shutil.copytree(two.path / "projections", tmp_path / "earlier")
        one.forget(session="secret")
        for noted in (True, False):
            shutil.rmtree(two.path / "projections")
            shutil.copytree(tmp_path / "earlier", two.path / "projections")
            if not noted:
                (two.path / "projections" / "purged.json").unlink()
            with opened("two") as two:
                assert serves_nothing(two)
                assert not files_with_it(two.path)


def test_commands_list_who_has_not_confirmed(opened, run):
    """`forget` says so, `forgotten --pending` lists them until they have; a node that is gone can be removed."""
    with opened("one") as one:
        told(one)
        opened("two").close()
        opened("three").close()
        said = " ".join(
            run("forget", one.path, "--session", "secret", "--reason", "asked for", "--yes").exited().stdout.split()
        )
        assert "1 node confirmed; not yet confirmed by" in said
        assert said.count("last seen") == 2
        (request,) = run("forgotten", one.path, "--pending", "--json").json
        assert (request["reason"], request["complete"], len(request["waiting_for"])) == ("asked for", True, 2)
        assert "1 request pending" in run("forgotten", one.path, "--pending").stdout
        opened("two").close()
        ((gone,),) = (item.waiting_for for item in one.audit.pending_erasures())
        assert gone.label.endswith("/three")
        assert run("nodes", one.path, "--remove", gone.node).returncode == 0
        assert run("forgotten", one.path, "--pending").stdout == "0 requests pending\n"
        assert run("forgotten", one.path, "--pending", "--json").json == []


@pytest.mark.log_file
def test_a_store_in_a_folder_waits_for_no_node(store):
    """Its report names no nodes."""
    told(store)
    report = store.forget(session="secret")
    assert (report.confirmed_by, report.waiting_for) == ((), ())
    assert store.audit.pending_erasures() == []
    assert not (store.path / "projections" / "purged.json").exists()
