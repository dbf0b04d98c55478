"""`make screenshots` works: one of its pictures, with the model of these tests."""

from PIL import Image

from examples import five_weeks
from tests.browser.chromium import WIDE, Visit
from tests.browser.long_memory import encoder
from tests.browser.screenshots import take_in
from tests.browser.serving import serving


def test_a_picture_of_a_page_of_the_sample_memory(browser, tmp_path, capsys):
    """As wide as the window, with something on it, and nothing went wrong in the page."""
    five_weeks.make(tmp_path / "sample", model=encoder())
    capsys.readouterr()
    with serving(tmp_path / "sample", "--write") as url:
        take_in(Visit(browser, url, color_scheme="light"), tmp_path, ["session"], shape="wide", colours="light")
    path = tmp_path / "session-wide-light.png"
    assert capsys.readouterr().out == f"{path}  200\n"
    with Image.open(path) as picture:
        assert picture.width == WIDE[0]
        assert picture.height >= WIDE[1]
        assert len(picture.convert("RGB").getcolors(2**24)) > 16
