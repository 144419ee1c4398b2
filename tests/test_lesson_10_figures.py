"""What lesson 10 says of the recorded runs is what they say."""

import lessons_bench.timeline_runs
from lessons_bench.fast_engine import ORDER
from lessons_bench.fast_engine_runs import recorded
from test_lesson_figures import prose

TEXT = prose("10")
RUN = recorded()[0]
TRACE = RUN.rows[0].trace
RATES = {row.engine: row.tokens_per_second for row in RUN.rows if row.trace == TRACE}
PROFILE = lessons_bench.timeline_runs.recorded()[0]
TIMELINES = {timeline.engine: timeline for timeline in PROFILE.timelines}


def test_the_records_are_of_one_card_and_one_shape():
    assert (RUN.card, RUN.model) == (PROFILE.card, PROFILE.model)
    assert [step.kv_bits for step in RUN.steps] == [16, 8, 16, 8]
    assert (PROFILE.num_seqs, PROFILE.context) == (RUN.steps[0].num_seqs, RUN.steps[0].context)
    assert list(RATES) == ["lesson 08", *(f"+ {part}" for part in ORDER)]


def test_what_the_host_does_in_lesson_08():
    timeline = TIMELINES["lesson 08"]
    assert "each start takes some ten to twenty microseconds" in TEXT
    assert 10 < 1000 * timeline.step / timeline.launches < 20
    assert f"The GPU works for {timeline.gpu_time:.1f} of {timeline.step:.0f}" in TEXT
    assert 4.5 < timeline.step / timeline.gpu_time < 5.5 and "so about five times" in TEXT
    assert f"{RATES['lesson 08']:,.0f} tokens a second" in TEXT


def test_the_gpu_hardly_waits_for_a_recorded_step_but_computes_longer():
    before, after = TIMELINES["lesson 08"], TIMELINES["+ graphs"]
    assert "The GPU hardly waits now, but it computes more slowly." in TEXT
    assert after.busy > 0.75 and after.gpu_time > 3 * before.gpu_time
    assert 29 < after.step < 31 and "A step takes about 30 milliseconds now." in TEXT


def test_the_state_gains_next_to_nothing_while_attention_is_slow():
    assert "It gains next to nothing" in TEXT
    assert RATES["+ state"] < 1.05 * RATES["+ graphs"]


def test_with_the_plan_the_kernels_take_what_they_should():
    assert f"all kernels together took {TIMELINES['lesson 08'].gpu_time:.1f}." in TEXT
    assert "The kernels take what they should." in TEXT
    assert 6.5 < TIMELINES["+ plan"].gpu_time < 7.2 and "need about 7 milliseconds" in TEXT
    assert TIMELINES["+ plan"].busy < 0.6 and "the GPU waits again" in TEXT


def test_the_graphs_of_fused_layers_take_less_memory():
    graphs = {row.engine: row.graph_bytes for row in RUN.rows if row.trace == TRACE}
    assert "the graphs also take much less memory" in TEXT
    assert graphs["+ layers"] < graphs["+ plan"] / 10


def test_a_host_that_is_ahead_hides_its_own_time():
    before, after = TIMELINES["+ sampling"], TIMELINES["+ ahead"]
    assert f"a step takes {before.step:.1f} milliseconds" in TEXT
    assert f"the GPU works for {before.gpu_time:.1f} of them" in TEXT
    assert f"{before.step / before.gpu_time:.2f} times as fast" in TEXT
    assert RATES["+ ahead"] / RATES["+ sampling"] < before.step / after.step
    assert after.busy > 0.9 and "There is nearly no gap left." in TEXT


def test_where_a_step_is_above_its_limit():
    small, _, large, _ = RUN.steps
    assert all(step.busy > 0.94 for step in RUN.steps)
    assert "The GPU computes nearly all the time." in TEXT
    weights = 2 * (28 * 15.7e6 + 151_936 * 1024) / RUN.read_limit / 1e6  # ms
    assert 1.8 < small.budget["products of matrices"] / weights < 2.4
    assert "They take about twice as long" in TEXT
    for step, least in ((small, 0.8), (large, 0.9)):
        assert least < (step.limit - weights) / step.budget["attention"] < 1


def test_what_half_the_cache_gains():
    small, small_fp8, large, large_fp8 = RUN.steps
    assert "attention takes little more than half of the time" in TEXT
    assert 0.5 < large_fp8.budget["attention"] / large.budget["attention"] < 0.56
    assert "With 64 of 610 the gain is smaller" in TEXT
    assert small.step / small_fp8.step < large.step / large_fp8.step
    assert "*Tokens and the rest* grows" in TEXT
    rest = [step.budget["tokens and the rest"] for step in (small, small_fp8)]
    assert rest[1] > 2 * rest[0]
