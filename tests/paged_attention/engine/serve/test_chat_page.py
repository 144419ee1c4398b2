"""The page at `/`: one talks to the model there, in a real browser."""

import itertools
import threading

import pytest

from jupyterlab_driver import browser_page, faults
from serving import wait_until

pytestmark = pytest.mark.browser


def test_a_chat_goes_on_and_says_what_cannot_be_answered(speaking):
    with browser_page() as page:
        page.goto(speaking.address)
        page.wait_for_function("document.getElementById('model').textContent === 'small'")
        for number in (1, 2):
            page.fill("#text", "naïve?")
            page.keyboard.press("Enter")
            page.wait_for_selector(f".assistant:nth-of-type({2 * number})")
            page.wait_for_function(
                "document.getElementById('state').textContent.includes('tokens')"
                f" && document.querySelectorAll('.assistant').length === {number}"
                " && document.getElementById('stop').disabled"
            )
            answers = page.locator(".assistant").all_inner_texts()
            assert answers == ["the cat 😀"] * number
        page.fill("#text", "no")  # which this model's template refuses
        page.click("#send")
        page.wait_for_selector(".error")
        assert "template refuses these: not so" in page.inner_text(".error")
        assert page.locator(".assistant").count() == 2
        # the browser itself notes the refused request
        assert [each for each in page.console_errors if "400" not in each] == []


@pytest.mark.slow
def test_an_answer_is_stopped_and_a_system_prompt_is_heard(speaking):
    steps, gate = itertools.count(), threading.Event()
    speaking.engine.history = lambda engine, scheduled: next(steps) < 2 or gate.wait(60)
    with browser_page() as page:
        page.goto(speaking.address)
        page.wait_for_function("document.getElementById('model').textContent === 'small'")
        page.fill("#text", "naïve?")
        page.keyboard.press("Enter")
        page.wait_for_function(
            "document.querySelector('.assistant')?.textContent === 'the cat'"
        )
        page.click("#stop")
        page.wait_for_function("document.getElementById('state').textContent === 'Stopped.'")
        assert page.locator(".assistant").all_inner_texts() == ["the cat"]
        gate.set()
        wait_until(speaking.is_free)
        page.click("summary")
        page.fill("#system", "no")  # which this model's template refuses
        page.fill("#text", "naïve?")
        page.keyboard.press("Enter")
        page.wait_for_selector(".error")
        assert "template refuses these: not so" in page.inner_text(".error")


@pytest.mark.slow
def test_the_pool_is_seen_beside_the_chat_and_followed(speaking):
    manager, between_steps = speaking.engine.manager, speaking.serving.engine.between_steps
    with browser_page({"width": 1366, "height": 800}) as page:
        page.goto(speaking.address)
        page.click("#pool summary")
        page.locator("#pool", has_text="512 of 512 blocks are free").wait_for()
        assert page.locator("#pool [aria-label=pool] [role=gridcell]").count() == 512
        between_steps(lambda: manager.add_sequence("theirs", 40)).result()
        page.locator("#pool", has_text="509 of 512 blocks are free").wait_for()
        between_steps(lambda: manager.free_sequence("theirs")).result()
        page.locator("#pool", has_text="512 of 512 blocks are free").wait_for()
        page.get_by_role("button", name="One step back").click()
        page.locator("#pool", has_text="509 of 512 blocks are free").wait_for()
        page.fill("#text", "naïve?")
        page.keyboard.press("Enter")
        page.locator(".assistant", has_text="the cat 😀").wait_for()
        assert faults(page) == []
        beside, form = (
            page.locator("#pool").bounding_box(),
            page.locator("#form").bounding_box(),
        )
        assert beside["x"] > form["x"] + form["width"]
        page.set_viewport_size({"width": 390, "height": 800})
        page.emulate_media(color_scheme="dark")
        assert faults(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        beside, form = (
            page.locator("#pool").bounding_box(),
            page.locator("#form").bounding_box(),
        )
        assert beside["y"] + beside["height"] <= form["y"]
        assert page.console_errors == []
