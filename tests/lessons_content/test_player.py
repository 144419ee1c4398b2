"""The player of recorded steps: what it records, and how it behaves in a real browser."""

import re
from collections import Counter

import pytest
from playwright.sync_api import expect

from echo import engine_with
from jupyterlab_driver import faults
from lessons_content.lesson_00.pictures import reserving
from lessons_content.lesson_02.pictures import Film
from lessons_content.lesson_05.pictures import batch, from_the_queue
from lessons_content.lesson_08.pictures.served_pool import recording_of
from lessons_content.lesson_10.pictures import in_turns_and_ahead
from lessons_lib.drawing.player import Bar, Cell, Cells, Lanes, Numbers, Recording, Row, View
from lessons_lib.drawing.player.recording import script, style
from paged_attention.engine.dry_run import dry_run
from paged_attention.engine.prefix_cache import PrefixCache
from paged_attention.engine.request import Request, SamplingParams
from paged_attention.engine.scheduler import Scheduler
from paged_attention.pool.block_table import BlockTable
from paged_attention.pool.kv_cache import PagedAttentionManager
from tools.bench import player

# How many places a step has changed, whatever it did to them.
CHANGED = """() => {
    const observer = new MutationObserver(() => {});
    const about = {subtree: true, attributes: true, childList: true, characterData: true};
    observer.observe(document.querySelector('.views'), about);
    window.changed = step => {
        document.querySelector('.pool-player').player.show(step);
        const nodes = observer.takeRecords().map(record => record.target);
        const element = node => node.nodeType === 3 ? node.parentNode : node;
        return new Set(nodes.map(node => element(node).closest('.cell, .panel'))).size;
    };
}"""


def small(num_blocks=4) -> Recording:
    """A pool, a block table that leads to it, lanes and a number, over four steps."""
    pool = Cells("pool", "The pool", [Row("", range(num_blocks))], size=4, columns=4)
    table = Cells(
        "table",
        "Block table",
        [Row("A", range(2), True)],
        noun="entry",
        points="pool",
        ids=False,
    )
    lanes = Lanes("time", "Time", "AB", 3, [("runs", "look-0")], [Bar(0, 0, 2, 0, "4")])
    numbers = Numbers("numbers", {"free": "blocks are free"})
    views = [View("Blocks", [pool, table]), View("Time", [lanes, numbers])]
    recording = Recording("Two requests", views, "AB", pace=100)
    steps = [
        ("The pool is empty.", {}, {}, ""),
        (
            "A takes block 3.",
            {3: Cell("A", 4, tells="Once upon")},
            {0: Cell("A", 1, "3")},
            "A",
        ),
        ("B shares it.", {3: Cell("AB", 4), 1: Cell("B", 1)}, {0: Cell("A", 1, "3")}, "A"),
        ("All is free again.", {}, {}, ""),
    ]
    for now, (say, blocks, entries, head) in enumerate(steps):
        free = (f"{num_blocks - len(blocks)}", 1 - len(blocks) / num_blocks)
        states = pool.at(blocks), table.at(entries, {"A": head}), lanes.at(now)
        recording.step(say, *states, numbers.at(free=free))
    return recording


def output(recording, **options) -> str:
    return recording.player("Two requests share a block.", **options)._repr_html_()


def test_a_step_keeps_what_differs_from_the_one_before():
    recording = small()
    assert [*recording.steps[1]["set"]] == [
        *("pool/3", "table/0", "table/head A", "time/now", "numbers/free")
    ]
    assert recording.steps[1]["set"]["pool/3"] == [[0], 4, "", "Once upon"]
    assert recording.state(1) | recording.steps[2]["set"] == recording.state(2)
    with pytest.raises(KeyError, match="pool/9.* is not in the panel 'pool'"):
        recording.views[0].panels[0].at({9: Cell("A")})
    with pytest.raises(ValueError, match="alt is empty"):
        recording.player(" ")


def test_an_output_is_small_the_same_each_time_and_loads_nothing():
    page = reserving.recorded()._repr_html_()
    assert page == reserving.recorded()._repr_html_() and len(page) < 100_000
    both = script() + style(20)
    assert len(both.encode()) < 25_000 and not re.search(r"https?:|@import|url\(", both)
    # nothing of a recording can end its element
    recording = small()
    recording.step("</script> & <b>")
    assert "</script> &" not in output(recording)


def test_without_scripts_and_styles_it_is_a_picture_with_a_text_and_a_list_of_sentences():
    """As in an untrusted notebook."""
    html = re.sub(r"<(script|style).*?</\1>", "", output(small()), flags=re.S)
    assert re.findall(r"<(\w+)", html) == [
        "div",
        "img",
        "details",
        "summary",
        "ol",
        *4 * ["li"],
    ]
    assert 'alt="Two requests share a block."' in html and "<li>B shares it.</li>" in html
    assert repr(small().player("Words.")) == "Player of 4 steps: Words."


def test_lesson_00_wastes_half_without_blocks_and_less_with_them():
    recording = reserving.recorded().recording
    for step in range(1, 15):  # while both sides have work
        state = recording.state(step)
        empty = {side: state[f"{side}-numbers/empty"][1] for side in ("left", "right")}
        assert empty["left"] >= 0.5 and empty["left"] > empty["right"]
    assert recording.steps[-1]["say"] == (
        "All is done. Contiguous: 67 % of the reserved memory was empty over all 19 steps."
        " Paged: 15 %, and it took 14 steps."
    )


def test_the_batches_of_lesson_05_are_those_of_the_engine():
    recording = from_the_queue().recording
    runs = [
        n for n, step in enumerate(recording.steps) if "The model runs once" in step["say"]
    ]
    shown = []
    for state in map(recording.state, runs):
        places = [state[f"batch/{place}"] for place in range(batch.BUDGET)]
        shown.append(Counter("ABC"[place[0][0]] for place in places if place))
    manager = PagedAttentionManager(16, 4, 1, 1, max_num_seqs=3, max_blocks_per_seq=4)
    scheduler = Scheduler(manager, PrefixCache(manager, enabled=False), batch.BUDGET, 3)
    prompts = batch.PROMPTS.items()
    scheduler.waiting += [Request(name, [7] * length) for name, length in prompts]
    history = dry_run(scheduler, batch.NUM_NEW)
    computed = [{id: n for id, (n, _) in record.scheduled.items()} for record in history]
    assert shown == computed


def test_the_pool_of_a_server_has_any_requests_blocks_and_nobodys_text():
    engine = engine_with(num_blocks=3)
    engine.add(250, [1, 2, 3], SamplingParams(max_new_tokens=2))
    engine.step()
    (step,) = recording_of(engine)["steps"]
    blocks = [value for key, value in step["set"].items() if key.startswith("pool/")]
    assert blocks == [[[50], 3, "", ""], None, None]


@pytest.mark.browser
def test_keys_buttons_and_the_slider_move_it_and_words_say_what_happened(shown):
    page = shown(output(small(), still=2))
    say, slider = page.get_by_role("status"), page.get_by_role("slider", name="Step")
    assert say.inner_text() == "B shares it." and say.get_attribute("aria-live") == "polite"
    assert not page.get_by_alt_text("Two requests share a block.").is_visible()
    assert page.get_by_role("button", name="Play from the start").is_visible()
    slider.focus()
    seen = []
    for key in ("ArrowLeft", "ArrowLeft", "ArrowLeft", "End", "ArrowRight", "Home", "ArrowUp"):
        page.keyboard.press(key)
        seen.append(slider.get_attribute("aria-valuetext"))
    assert seen == [f"{step} of 3" for step in (1, 0, 0, 3, 3, 0, 1)]
    assert say.inner_text() == "A takes block 3."
    assert page.get_by_role("button", name="Play", exact=True).is_visible()
    page.get_by_role("button", name="One step on").click()
    slider.fill("3")
    assert say.inner_text() == "All is free again."
    page.keyboard.press(" ")  # plays from the beginning, to the end
    page.get_by_role("button", name="Pause").wait_for()
    page.get_by_role("button", name="Play from the start").wait_for()
    assert slider.input_value() == "3"


@pytest.mark.sampled(2)
@pytest.mark.browser
@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_nothing_moves_before_it_is_asked_to(shown, motion):
    page = shown(output(small()), reduced_motion=motion)
    page.wait_for_timeout(500)
    assert page.get_by_role("slider").input_value() == "3"
    still = "getComputedStyle(document.querySelector('.later')).transitionDuration === '0s'"
    assert page.evaluate(still) == (motion == "reduce")


@pytest.mark.browser
def test_a_block_is_told_and_lit_with_the_entry_that_leads_to_it(shown):
    page = shown(output(small(), still=1))
    entry = page.get_by_role("gridcell", name="entry 3, A")
    block = page.get_by_role("gridcell", name="block 3, A, 4 of 4 tokens, Once upon")
    entry.hover()
    assert "lit" in block.get_attribute("class")
    page.get_by_role("gridcell", name="block 0, free").focus()
    page.keyboard.press("End")
    assert page.locator(".told").inner_text() == "Block 3, A, 4 of 4 tokens, Once upon"
    assert "lit" in entry.get_attribute("class")
    assert page.evaluate("document.activeElement.tabIndex") == 0
    assert page.get_by_role("slider").input_value() == "1"


# How editors without JupyterLab show an output: in a frame of its own (Colab), or as markup
# whose scripts are put in once more, since they would not run (VS Code).
IN_A_FRAME = """html => { document.body.innerHTML = "<iframe sandbox=allow-scripts></iframe>";
    document.querySelector("iframe").srcdoc = html; }"""
PUT_IN_AGAIN = """html => { document.body.innerHTML = html;
    for (const old of document.querySelectorAll("script")) {
        const script = document.createElement("script");
        for (const {name, value} of old.attributes) script.setAttribute(name, value);
        script.textContent = old.textContent;
        old.replaceWith(script);
    } }"""


@pytest.mark.browser
@pytest.mark.parametrize("put", [IN_A_FRAME, PUT_IN_AGAIN])
def test_it_runs_where_other_editors_put_an_output(shown, put):
    page = shown()
    page.evaluate(put, output(small()))
    player = page.frame_locator("iframe") if put is IN_A_FRAME else page
    player.get_by_role("slider").press("End")
    expect(player.get_by_text("All is free again.").first).to_be_visible()


@pytest.mark.browser
def test_several_players_are_apart_and_each_brings_its_script(shown):
    page = shown(output(small()), output(small()), output(small(num_blocks=8)))
    assert page.locator(".pool-player[data-started]").count() == 3
    page.get_by_role("slider").nth(1).fill("2")
    steps = page.evaluate(
        "[...document.querySelectorAll('.pool-player')].map(root => root.player.step)"
    )
    assert steps == [3, 2, 3]
    assert page.evaluate("[typeof make, typeof createPlayer]") == ["undefined", "undefined"]


@pytest.mark.sampled(2)
@pytest.mark.browser
@pytest.mark.parametrize(("theme", "width"), [("light", 1100), ("dark", 390)])
def test_axe_finds_no_fault_and_nothing_is_wider_than_the_window(shown, theme, width):
    film = Film()
    film.add_table(BlockTable(2, 3), "Both rows are free", {})
    players = (
        reserving.recorded(),
        from_the_queue(),
        in_turns_and_ahead(),
        film.player(),
    )
    outputs = output(small(), still=2), *(player._repr_html_() for player in players)
    page = shown(*outputs, size=(width, 800), color_scheme=theme)
    assert faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.browser
def test_a_step_changes_only_the_places_that_differ(shown):
    """Counted over 2,000 steps of 256 blocks, to and fro."""
    recording = player.recording()
    assert (len(recording.steps), len(recording.steps[0]["set"])) == (2000, 256)
    differ = [len(step["set"]) for step in recording.steps]
    page = shown(output(recording, still=0))
    page.evaluate(CHANGED)
    assert page.evaluate("[...Array(2000).keys()].map(changed)") == [0, *differ[1:]]
    assert page.evaluate("changed(1998)") == differ[1999]
    first, last = recording.state(0), recording.state(1998)
    assert page.evaluate("changed(0)") == sum(first[key] != last[key] for key in first)
