"""The bar of time: a histogram of the log, the steps of its slider, and the moment that a page shows."""

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from mnemolog import MemoryStore
from mnemolog.domain.values import to_datetime
from mnemolog.server.console.moment import BUCKETS, as_of, time_bar

pytestmark = pytest.mark.local


def test_a_moment_is_a_position_or_a_time_and_names_the_last_event_until_then(made):
    """A time is kept, also where nothing was recorded at it; a position is no time."""
    with MemoryStore.open(made, model=None) as store:
        recorded, days = store.audit.event(3).at, timedelta(days=3, microseconds=5)
        for moment, position, time in (
            (recorded.isoformat(), 3, recorded),
            ((recorded + days).isoformat(), 12, recorded + days),
            ("2001-01-01T00:00", 0, datetime(2001, 1, 1, tzinfo=UTC)),
            ("3", 3, None),
            ("0", 0, None),
            ("", 12, None),
        ):
            found = as_of(store, moment)
            assert (found.position, found.time, found.is_now) == (position, time, not moment), moment


def test_the_histogram_covers_the_whole_log_without_reading_it(store, clock, monkeypatch):
    """A hundred spans of time; their events add up to the log, and each moment lies in its span."""
    for number in range(300):
        store.session("a").record("user", f"turn {number}")
        clock.advance(seconds=3_600 if number % 7 else 60)
    monkeypatch.setattr(store.parts.log, "read", None)
    times = [store.parts.log.recorded_at(position) for position in range(1, 302)]
    for position in (1, 2, 150, 300, 301):
        bar = time_bar(store, as_of(store, str(position)))
        assert (len(bar.buckets), bar.by_time) == (BUCKETS, True)
        assert sum(bucket.events for bucket in bar.buckets) == 301
        in_last = position > bar.buckets[-2].position
        assert in_last or bar.buckets[bar.step - 1].position >= position
        assert bar.step == BUCKETS or not in_last or position < 301
        assert all(bucket.position < position for bucket in bar.buckets[: bar.step - 1])
    for bucket in bar.buckets[:-1]:
        recorded = sum(to_datetime(time) <= bucket.until for time in times)
        assert bucket.position == recorded


@pytest.mark.parametrize("seconds", [86_400 * 30, 1_000, 10, 0.001], ids=["days", "minutes", "seconds", "instants"])
def test_each_step_of_the_slider_stays_where_it_is_put(store, clock, seconds):
    """The moment of a step is on that step again, before and after a long time in which nothing was recorded."""
    clock.step = 1
    for part in (0.1, 0.9):
        for number in range(10):
            store.session("a").record("user", f"turn {number}")
            clock.advance(seconds=seconds * part / 10)
    bar = time_bar(store, as_of(store, ""))
    assert (bar.by_time, bar.step) == (True, BUCKETS)
    assert [time_bar(store, as_of(store, at)).step for at, _, _ in bar.steps] == list(range(BUCKETS + 1))
    texts = [time for _, time, _ in bar.steps]
    assert len(set(texts)) == len(texts)
    longest = max(len(at) for at, _, _ in bar.steps)
    assert longest == len("2024-01-01T00:00Z") or seconds < 10_000
    times = {at: text for at, text, _ in bar.steps[1:-1]}
    assert all(datetime.fromisoformat(at) == datetime.fromisoformat(times[at]) for at in times)


def test_the_slider_reaches_now_from_every_earlier_moment(store, clock):
    """A moment among the last events is not on the last step, which is now; one after all events is."""
    clock.step = 1_000_000
    store.session("a").record("user", "early")
    clock.advance(seconds=10_000)
    store.session("b").record("user", "late")
    asked = {"2001-01-01": 0, "0": 0, "1": 1, "3": BUCKETS - 1, "4": BUCKETS, "2030-01-01": BUCKETS, "": BUCKETS}
    assert {at: time_bar(store, as_of(store, at)).step for at in asked} == asked


def test_a_page_says_the_time_of_its_url_and_the_event_before(store, console, clock):
    """A day without events is not shown as that of the last event, nor before the first event as nothing."""
    clock.set(round(datetime(2026, 3, 5, 13, 17, 51, tzinfo=UTC).timestamp() * 1_000_000))
    store.session("a").record("user", "x")

    def said(moment):
        page = console.get(f"/?at={moment}")
        page = console.get(page.headers.get("location", f"/?at={moment}"))
        (found,) = re.findall(r'<p class="as-of" role="status">(.*?)</p>', page.text, re.S)
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", found)).partition(". Nothing")[0].strip()

    there = "2026-03-05 13:17:51Z"
    assert said("2026-03-16") == f"As of the end of 2026-03-16 · position 2 of 2, recorded {there}"
    assert said("2026-03-16T10:00:00.25") == f"As of 2026-03-16 10:00:00.250000Z · position 2 of 2, recorded {there}"
    assert said("2") == f"As of {there} · position 2 of 2"
    assert said("2026-03-01") == "As of the end of 2026-03-01, before the first event"
    assert said("0") == "As of the beginning, before the first event"


def test_a_day_means_to_its_end_and_words_are_those_of_the_command_line(store, console, clock):
    """In the URL stands the time that they stand for. A span from a day on begins with it."""
    clock.step = 0
    for day in (16, 17, 18):
        clock.set(round(datetime(2026, 11, day, 12, tzinfo=UTC).timestamp() * 1_000_000))
        store.session("a").record("user", f"said on {day}")
    for words, told, position in (
        ("2026-11-17", "2026-11-17T23:59:59.999999Z", 3),
        ("17 Nov 2026", "2026-11-17T23:59:59.999999Z", 3),
        ("yesterday", "2026-11-17T23:59:59.999999Z", 3),
        ("last tuesday", "2026-11-17T23:59:59.999999Z", 3),
        ("today", "2026-11-18T23:59:59.999999Z", 4),
        ("2 days ago", "2026-11-16T12:00Z", 2),
    ):
        sent = console.get(f"/sessions?at={words.replace(' ', '+')}")
        assert sent.headers["location"] == f"/sessions?at={told.replace(':', '%3A')}", words
        assert f"position {position} of 4" in console.get(sent.headers["location"]).text, words
    page = console.json("/diff?from=2026-11-17&to=2026-11-17")
    assert (page["before"], page["after"]) == (2, 3)
    midnights = [datetime(2026, 11, day, tzinfo=UTC) for day in (17, 18)]
    shown = [datetime.fromisoformat(page[end]) for end in ("before_at", "after_at")]
    assert shown == [midnights[0], midnights[1] - timedelta(microseconds=1)]


@pytest.mark.parametrize(
    ("zone", "told", "beside"),
    [
        (None, "2026-03-16T23:59:59.999999Z", ""),
        ("Europe/Berlin", "2026-03-16T22:59:59.999999Z", ' <span class="utc">2026-03-16 22:59:59.999999Z</span>'),
        ("America/Lima", "2026-03-17T04:59:59.999999Z", ' <span class="utc">2026-03-17 04:59:59.999999Z</span>'),
        ("../../etc/passwd", "2026-03-16T23:59:59.999999Z", ""),
    ],
)
def test_days_and_times_are_those_of_the_reader_with_utc_beside(reader, zone, told, beside):
    """As the cookie of the reader's browser names the zone. The URL has UTC, so that others see the same."""
    if zone:
        reader.cookies.set("mnemolog_zone", zone)
    sent = reader.get("/?at=Mar+16,+2026")
    assert parse_qs(urlsplit(sent.headers["location"]).query)["at"] == [told]
    page = reader.get(sent.headers["location"]).text
    assert f">the end of 2026-03-16{beside}</time>" in page
    assert 'name="at" value="2026-03-16"' in page, "typed again, it is the same moment"
    sent = reader.get("/recall?q=tea&since=16.3.2026&until=2026-03-16+18:30&role=user")
    moments = {name: value for name, (value,) in parse_qs(urlsplit(sent.headers["location"]).query).items()}
    page = reader.get(sent.headers["location"]).text
    for name, typed in (("since", "2026-03-16 00:00"), ("until", "2026-03-16 18:30")):
        assert f'name="{name}" value="{typed}"' in page
        assert f'<span class="utc">{moments[name]}</span></label>' in page
    assert datetime.fromisoformat(moments["since"]) == datetime.fromisoformat(told) - timedelta(days=1, microseconds=-1)
    assert reader.json("/recall?q=tea&since=16.3.2026")["hits"] == reader.json(f"/recall?q=tea&since={told}")["hits"]


def test_a_few_events_of_long_ago_do_not_squeeze_the_bar(store, clock):
    """A device without a clock recorded one in 1970: the bar is over the others, and says so."""
    clock.set(1)
    clock.step = 3_600_000_000
    store.session("a")
    clock.set(round(datetime(2026, 11, 16, 12).timestamp() * 1_000_000))
    for number in range(150):
        store.session("a").record("user", f"turn {number}")
    bar = time_bar(store, as_of(store, ""))
    assert (bar.by_time, bar.cut, bar.first.year) == (True, 1, 2026)
    assert max(bucket.events for bucket in bar.buckets) <= 3
    assert sum(bucket.events for bucket in bar.buckets) == 151
    assert time_bar(store, as_of(store, "1")).step == 1
    assert time_bar(store, as_of(store, "0")).step == 0


def test_where_most_was_recorded_at_once_the_slider_goes_event_by_event(store, clock):
    """After an import, a slider over time would have only two ends."""
    clock.step = 0
    store.session("a").record_many([{"role": "user", "text": f"turn {number}"} for number in range(8)])
    clock.advance(seconds=3_600)
    store.session("b")
    bar = time_bar(store, as_of(store, "2"))
    assert not bar.by_time
    assert [bucket.position for bucket in bar.buckets] == list(range(1, 11))
    assert bar.step == 2
    store.session("a").record_many([{"role": "user", "text": f"turn {number}"} for number in range(990)])
    bar = time_bar(store, as_of(store, "500"))
    assert [bucket.events for bucket in bar.buckets] == [10] * 100
    assert bar.step == 50


def test_a_moment_is_read_in_one_way_wherever_it_is_typed(reader):
    """A position, or a time; anything else is refused with the name of the field and the accepted forms."""
    for url, field in (
        ("/?at={}", "Moment"),
        ("/recall?q=tea&then={}", "Compare with the answer of"),
        ("/diff?from={}", "From"),
        ("/diff?to={}", "To"),
    ):
        for moment in (
            "3",
            "003",
            "2026-03-16",
            "2026-03-16T14:00:00.5Z",
            "+2026-03-16+",
            "2+hours+ago",
            "last+monday",
        ):
            assert reader.get(url.format(moment), Accept="application/json").status_code == 200, (url, moment)
        refused = reader.json(url.format("doomsday"))
        assert refused["status"] == 400
        forms = "a time such as '2026-03-16 14:00', '16 Mar 2026', 'yesterday 14:00', 'monday' or '2 hours ago'"
        assert refused["detail"] == f"{field}: 'doomsday' is neither a position such as 1200 nor {forms}"
        assert 'class="histogram"' in reader.get(url.format("doomsday")).text, "the bar leads on"
        assert "3 April 2026 or 4 March 2026" in reader.json(url.format("03/04/2026"))["detail"]
        for number in ("20260316", "9" * 30, "٣" * 5):
            assert reader.json(url.format(number))["status"] == 400, (url, number)
        assert "which ends at" in reader.json(url.format("20260316"))["detail"]
