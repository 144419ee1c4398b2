"""What lesson 10 says of the recorded runs is what they say."""

from lessons_content.lesson_10 import pictures
from lessons_content.lesson_10.bench import engine_peers_runs, few_rows_runs, timeline_runs
from lessons_content.lesson_10.bench.fast_engine import ORDER
from lessons_content.lesson_10.bench.fast_engine_runs import recorded
from prose import prose

TEXT = prose("10")
RUN = recorded()[0]
TRACE = RUN.rows[0].trace
RATES = {row.engine: row.tokens_per_second for row in RUN.rows if row.trace == TRACE}
PROFILE = timeline_runs.recorded()[0]
TIMELINES = {timeline.engine: timeline for timeline in PROFILE.timelines}


def test_the_records_are_of_one_card_and_one_shape():
    assert (RUN.card, RUN.model) == (PROFILE.card, PROFILE.model)
    assert [step.kv_bits for step in RUN.steps] == [16, 8, 16, 8]
    assert (PROFILE.num_seqs, PROFILE.context) == (RUN.steps[0].num_seqs, RUN.steps[0].context)
    assert list(RATES) == ["lesson 08", *(f"+ {part}" for part in ORDER)]


def test_what_the_host_does_in_lesson_08():
    timeline = TIMELINES["lesson 08"]
    assert (
        f"{timeline.step:.0f} milliseconds for {timeline.launches:,.0f} starts are"
        f" {1000 * timeline.step / timeline.launches:.0f} microseconds for each" in TEXT
    )
    assert f"The GPU works for {timeline.gpu_time:.1f} of {timeline.step:.0f}" in TEXT
    assert 4.5 < timeline.step / timeline.gpu_time < 5.5 and "so about five times" in TEXT
    assert f"{RATES['lesson 08']:,.0f} tokens a second" in TEXT
    assert TRACE == "64 requests, prompts of 143 to 1,013, 128 new each"
    words = "64 requests, with prompts of 143 to 1,013 tokens and 128 new tokens for each"
    assert words in TEXT


def test_the_gpu_waits_less_for_a_recorded_step_but_computes_longer():
    before, after = TIMELINES["lesson 08"], TIMELINES["+ graphs"]
    assert (
        "The GPU waits much less now, but it computes more slowly: for"
        f" {after.gpu_time:.1f} milliseconds of a step, where it was {before.gpu_time:.1f}."
        in TEXT
    )
    assert after.busy > 0.75 and after.gpu_time > 3 * before.gpu_time
    assert 29 < after.step < 31 and "A step takes about 30 milliseconds now." in TEXT


def test_the_state_gains_next_to_nothing_while_attention_is_slow():
    assert "It gains next to nothing" in TEXT
    assert RATES["+ state"] < 1.05 * RATES["+ graphs"]


def test_with_the_plan_the_kernels_take_what_they_should():
    assert f"all kernels together took {TIMELINES['lesson 08'].gpu_time:.1f}." in TEXT
    assert "The kernels take as long as they should." in TEXT
    assert 6.5 < TIMELINES["+ plan"].gpu_time < 7.2 and "need about 7 milliseconds" in TEXT
    assert TIMELINES["+ plan"].busy < 0.6 and "the GPU waits again" in TEXT


def test_the_graphs_of_fused_layers_take_less_memory():
    graphs = {row.engine: row.graph_bytes for row in RUN.rows if row.trace == TRACE}
    assert "the graphs also take much less memory" in TEXT
    assert graphs["+ layers"] < graphs["+ plan"] / 10


def test_with_16_bits_the_answers_part():
    shares = {row.engine: row.same_tokens for row in RUN.rows if row.trace == TRACE}
    assert shares["+ plan"] == 1
    assert f"{100 * shares['+ ahead']:.0f} % of the tokens come before the first" in TEXT


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
    assert "The GPU computes nearly all the time: the lower rows add up" in TEXT
    weights = 2 * (28 * 15.7e6 + 151_936 * 1024) / RUN.read_limit / 1e6  # ms
    assert 1.8 < small.budget["products of matrices"] / weights < 2.4
    assert "They take about twice as long" in TEXT
    assert "Attention** is most of a step" in TEXT
    assert "at nine tenths of the card's rate" in TEXT
    rates = [(step.limit - weights) / step.budget["attention"] for step in (small, large)]
    assert 0.8 < rates[0] < rates[1] and 0.88 < rates[1] < 0.93
    for step in (small, large):
        assert step.budget["attention"] > step.step / 2


def test_the_contexts_were_a_little_longer_than_their_names_say():
    assert "the limits are above those at the beginning of the lesson" in TEXT
    for step in RUN.steps[::2]:
        tokens = step.num_seqs * step.context
        limit = (1.19e9 + tokens * 2 * 28 * 2 * 8 * 128) / RUN.read_limit / 1e6
        assert 1.02 < step.limit / limit < 1.15


def test_the_ladder_shows_each_bar_to_its_end(monkeypatch):
    figures = []
    monkeypatch.setattr(pictures, "show", lambda figure, alt: figures.append(figure))
    pictures.ladder(RUN)
    for axes in figures[0].axes:
        ends = [bar.get_x() + bar.get_width() for bar in axes.patches]
        assert ends and max(ends) < 0.98 * axes.get_xlim()[1]
    names = [label.get_text() for label in figures[0].axes[1].get_yticklabels()]
    assert names[:2] == ["64 sequences of\n610 tokens", "64 sequences of\n610 tokens, 8 bits"]


def test_the_words_for_host_and_gpu_are_those_of_the_picture():
    alt = pictures.host_and_gpu(["lesson 08", "+ ahead"]).alt
    assert "49.6 ms for a step (34.0 without the profiler)" in alt
    assert "+ ahead: 3.2 ms for a step (3.1 without the profiler)" in alt


def test_what_half_the_cache_gains():
    small, small_fp8, large, large_fp8 = RUN.steps
    assert "attention takes little more than half of the time" in TEXT
    assert 0.5 < large_fp8.budget["attention"] / large.budget["attention"] < 0.56
    assert "With 64 of 610 the gain is smaller" in TEXT
    assert small.step / small_fp8.step < large.step / large_fp8.step
    assert "*Tokens and the rest* grows" in TEXT
    rest = [step.budget["tokens and the rest"] for step in (small, small_fp8)]
    assert rest[1] > 2 * rest[0]


def test_what_is_said_of_others_is_recorded_on_the_same_card():
    (beside,) = engine_peers_runs.recorded()
    assert (beside.card, beside.model) == (RUN.card, RUN.model)
    assert all(len(row.ours) == len(row.theirs) == 5 for row in beside.rows)
    assert "five turns each" in TEXT
    ratios = [row.ratio for row in beside.rows if row.peer == "Mini-SGLang"]
    first, second = (row for row in beside.rows if row.trace == TRACE)
    assert abs(first.our_rate / second.our_rate - 1) > 0.03
    assert "it is not the same in both comparisons" in TEXT
    turns = [*first.ours, *second.ours, *first.theirs, *second.theirs]
    assert max(turns) < 1 and "takes less than a second" in TEXT
    assert all(1 < ratio < 1.25 for ratio in ratios) and "is not large" in TEXT
    long = RUN.steps[2]
    assert long.budget["attention"] > 0.8 * sum(long.budget.values())
    assert "attention takes most of the time" in TEXT


BESIDE_VLLM = engine_peers_runs.beside("vLLM")


def test_what_is_said_of_vllm_was_recorded():
    alike = {(run.card, run.driver, run.date, str(run.conditions)) for run in BESIDE_VLLM}
    assert [run.size for run in BESIDE_VLLM] == ["0.6B", "4B", "8B"] and len(alike) == 1
    by_requests = [{row.trace.split()[0]: row for row in run.rows} for run in BESIDE_VLLM]
    small, *larger = by_requests
    assert len(small) == 6 and all(len(row.ours) >= 3 for row in small.values())
    assert all(small[n].ratio > each[n].ratio for n in small for each in larger)
    few = [each[n].ratio for each in larger for n in "18"]
    more = [row.ratio for each in larger for n, row in each.items() if n not in "18"]
    assert min(few) > max(more) and "our lead is small" in TEXT
    assert min(small[n].ratio for n in ("64", "512")) > 1.4 and "far ahead there too" in TEXT
    assert all(0.99 < each["32"].ratio < 1.01 for each in larger)
    assert "With long prompts the two are level" in TEXT
    spreads = [
        max(max(seconds) / min(seconds) - 1 for seconds in each)
        for each in (
            [row.theirs for row in small.values()],
            [row.ours for row in small.values()],
        )
    ]
    words = "by {:.0%} where they differ most, and ours by {:.0%}.".format(*spreads)
    assert words.replace("%", " %") in TEXT, words
    same = [row.same_first for run in BESIDE_VLLM for row in run.rows]
    assert f"the same in {100 * min(same):.0f} to {100 * max(same):.0f} %" in TEXT


def test_most_of_the_lead_with_few_requests_is_what_two_parts_gained():
    gains = {
        (rows[0].model, rows[0].num_seqs): rows[-1].tokens_per_second
        / rows[0].tokens_per_second
        for rows in few_rows_runs.recorded()[0].batches()
    }
    assert len(gains) == 6 and "most of our lead is `few rows` and `early`" in TEXT
    for run in BESIDE_VLLM:
        for row in run.rows:
            if (gain := gains.get((run.size, int(row.trace.split()[0])))) is not None:
                assert gain - 1 > 0.6 * (row.ratio - 1)
    for num_seqs in (1, 8):
        assert gains["0.6B", num_seqs] > max(gains["4B", num_seqs], gains["8B", num_seqs])


def test_with_arrivals_our_tokens_come_earlier():
    (run,) = engine_peers_runs.beside("vLLM", arrivals=True)
    at_once, *rows = run.rows
    assert run.size == "0.6B" and len(rows) == 2 and all(len(row.ours) == 2 for row in rows)
    managed = 300 * at_once.our_rate / at_once.tokens
    shares = [f"{100 * row.per_second / managed:.0f}" for row in rows]
    assert f"these rates are {' and '.join(shares)} % of its own" in TEXT, shares
    for row in rows:
        for ours, theirs in zip(row.our_waits, row.their_waits, strict=True):
            assert all(a < b for a, b in zip(ours, theirs, strict=True))


def test_fused_layers_shorten_the_kernels_and_their_start():
    plan, after, limit = TIMELINES["+ plan"], TIMELINES["+ sampling"], RUN.steps[0].limit
    wait = round(plan.step, 1) - round(plan.gpu_time, 1)  # as the reader sees them
    assert (
        f"A step takes {plan.step:.1f} milliseconds now. The GPU works for {plan.gpu_time:.1f}"
        f" of them and waits for {wait:.1f}." in TEXT
    )
    assert f"the step's limit, {limit:.1f}. That makes {wait + limit:.1f} milliseconds" in TEXT
    assert f"{plan.step / (wait + limit):.1f} times as fast" in TEXT
    assert abs(RATES["+ layers"] / RATES["+ plan"] - plan.step / (wait + limit)) < 0.1
    assert f"the GPU works for {after.gpu_time:.1f} milliseconds" in TEXT
    assert f"recorded step of {plan.kernels:,.0f} kernels" in TEXT and after.kernels < 300
    assert f"takes the host {plan.host_time('launches'):.1f} milliseconds" in TEXT
    assert f"kernels it takes {after.host_time('launches'):.1f}." in TEXT


def test_choosing_the_tokens_is_most_of_completing_a_step():
    step = 64_000 / RATES["+ layers"]
    completes = TIMELINES["+ plan"].host_time("completes")
    words = f"{RATES['+ layers']:,.0f} tokens a second, a step takes {step:.1f} milliseconds"
    assert words in TEXT
    assert f"the host needs {completes:.1f} of them" in TEXT
    left = round(round(step, 1) - round(completes, 1), 1)
    assert f"{left} milliseconds are left" in TEXT
    predicted, gained = step / (step - completes), RATES["+ sampling"] / RATES["+ layers"]
    assert "about 1.5 times as fast" in TEXT and abs(predicted - gained) < 0.1
    assert f"{TIMELINES['+ sampling'].host_time('completes'):.1f} milliseconds" in TEXT


def test_one_sequence_alone_waits_for_the_weights():
    run = few_rows_runs.recorded()[0]
    shares = {
        (row.model, row.engine): row.tokens_per_second
        * row.weight_bytes
        / 1e9
        / run.read_limit
        for row in run.rows
        if row.num_seqs == 1
    }
    assert "reads at two thirds of the rate" in TEXT and "reads at a sixth of it" in TEXT
    assert 0.64 < shares["8B", "cuBLAS"] < 0.69 and 0.15 < shares["0.6B", "cuBLAS"] < 0.19
    assert "at four fifths of the card's rate" in TEXT
    assert 0.78 < shares["8B", "+ early"] < 0.83
    assert all(row.same_tokens == 1 for row in run.rows if row.engine == "+ early")
