# The course's commands. `make help` lists them; each shows what it runs.

VENV   := .venv
PY     := $(VENV)/bin/python
READY  := $(VENV)/ready
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
ARGS   ?=
PIP_ARGS ?=
INSTALL = "$(PYTHON)" lessons_lib/start/install.py
PYTEST  = -m pytest -n auto --dist loadscope --no-loadscope-reorder --durations 5 --nbval --nbval-current-env --nbval-cell-timeout=900
CPP     = $(shell find kernels lessons_* tests tools -name "*.h" -o -name "*.cpp" -o -name "*.cu" -o -name "*.cuh")

# Otherwise each of the tests' many processes would compile the course anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help lab copies test test-all wheel fuzz mutants answer-mutants lint format exercise lessons records check grade draft doctor bench-build bench-cuda bench bench-prefill bench-fast-engine bench-host-steps bench-timeline bench-engine-peers bench-serving bench-load colour screenshots site clean

help:  ## list these commands
	@echo 'Use: make COMMAND [ARGS="more arguments"]'
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

lab: $(READY)  ## make or update your copies in my-notebooks/, and open JupyterLab there (MISTAKES=folder: with further mistakes)
	$(if $(MISTAKES),LESSONS_MISTAKES="$(abspath $(MISTAKES))" )$(PY) -P -m lessons_lib.start lab $(if $(FOLDER),"$(FOLDER)") -- $(ARGS)

copies: $(READY)  ## make or update your copies in my-notebooks/ for an editor, without JupyterLab
	$(PY) -P -m lessons_lib.start lab $(if $(FOLDER),"$(FOLDER)") --only-copy

test: $(READY)-test  ## run the tests, and compare the outputs of lessons 00 to 07
	$(PY) $(PYTEST) -m "not slow" $(ARGS)

test-all: $(READY)-test  ## run all of them, with lessons 08 to 11 and every spelling (TOOL=hub, nbgrader, cluster, platforms or gpu: what needs that)
ifeq ($(TOOL),)
	$(PY) $(PYTEST) --every 1 $(ARGS)
else ifeq ($(TOOL),gpu)
	PYTHON=$(PY) bash tests/gpu.sh
else
	$(if $(filter hub,$(TOOL)),,@$(INSTALL) $(TOOL) -- $(PIP_ARGS) --upgrade --target .build/$(TOOL))
	PYTHONPATH="$(CURDIR)/.build/$(TOOL)" $(PY) -m pytest -n auto --dist loadscope --tool $(TOOL) $(ARGS)
endif

wheel: $(READY)-test  ## make the course's wheel, in .build/wheel
	$(PY) -m tools.notebooks --handed-out
	rm -f .build/wheel/*.whl
	$(PY) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir .build/wheel .
	@ls .build/wheel/*.whl

fuzz: $(READY)-test $(READY)-fuzz  ## look for texts and calls that break something (apt-get: clang; ARGS="60" seconds each)
	PYTHON=$(PY) bash tools/fuzz/fuzz.sh $(ARGS)

mutants: $(READY)-test $(READY)-mutants  ## put small faults into the code, one at a time, and list those that no test notices (ARGS="paged_attention")
	$(PY) -m tools.mutants $(ARGS)

answer-mutants: $(READY)-test $(READY)-mutants  ## put small faults into our answers, and list those that a check lets pass (ARGS="4.3")
	$(PY) -m tools.mutants.answers $(ARGS)

lint: $(READY)-lint  ## look for slips, types that do not fit, and untidy lines (`make format` mends lines)
	@failed=; run() { echo "$$1"; shift; "$$@" || failed=yes; }; \
	run "ruff check" $(PY) -m ruff check .; \
	run "ruff format --check" $(PY) -m ruff format --check .; \
	run "clang-format --dry-run" $(VENV)/bin/clang-format --dry-run -Werror $(CPP); \
	run "mypy" $(PY) -m mypy; \
	[ -z "$$failed" ]

format: $(READY)-lint  ## tidy Python, C++ and CUDA, mend the slips that a tool can mend, and list the others
	$(PY) -m ruff format --quiet .
	$(PY) -m ruff check --quiet --fix --exit-zero .
	$(PY) -m ruff format .
	@echo clang-format
	@$(VENV)/bin/clang-format -i $(CPP)
	$(PY) -m ruff check .

exercise: $(READY)-test $(READY)-mutants  ## run what concerns one exercise: ID=8.8
	$(if $(ID),,$(error Say which exercise: make exercise ID=8.8))
	$(PY) tests/support/exercise.py "$(ID)" $(ARGS)

lessons: $(READY)-test  ## rebuild and execute all lessons (ARGS="--words" where only text has changed)
	$(PY) -m tools.notebooks $(ARGS)

records: $(READY)-test  ## record what the known mistakes give, where something has changed
	$(PY) -m lessons_content.mistakes $(ARGS)

check: $(READY)-test  ## say whether the notebooks are in step with their sources
	$(PY) -m tools.notebooks --check $(ARGS)

grade: $(READY)-grade  ## grade the notebooks of a class: SUBMISSIONS=folder
	$(if $(SUBMISSIONS),,$(error Say where the notebooks are: make grade SUBMISSIONS=folder))
	$(if $(MISTAKES),LESSONS_MISTAKES="$(abspath $(MISTAKES))" )$(PY) -P -m lessons_grading "$(SUBMISSIONS)" $(ARGS)

mistakes: $(READY)  ## try your own further mistakes: MISTAKES=folder
	$(if $(MISTAKES),,$(error Say where your mistakes are: make mistakes MISTAKES=folder))
	LESSONS_MISTAKES="$(abspath $(MISTAKES))" $(PY) -P -m lessons_content.mistakes.teachers_mistakes

draft: $(READY)-grade  ## draft a mistake from answers that fail alike: RESULTS=folder GROUP=2.5-… MISTAKES=folder
	$(if $(and $(RESULTS),$(GROUP),$(MISTAKES)),,$(error Say which group of which results, and where the draft goes: make draft RESULTS=folder GROUP=2.5-… MISTAKES=folder))
	$(PY) -P -m lessons_grading.draft "$(RESULTS)" "$(GROUP)" "$(MISTAKES)" $(ARGS)

doctor: $(READY)  ## show what this machine can do
	$(PY) -P -m lessons_lib.start.doctor

bench-build: $(READY)  ## time the C++ build beside load_inline's defaults
	$(PY) -m tools.bench.cpp_builds $(ARGS)

bench-cuda: $(READY)  ## time kernels on the CPU: building and running
	$(PY) -m tools.bench.cuda_builds $(ARGS)

bench: $(READY)  ## time lesson 07's kernels on the GPU, beside its limit and what else is installed
	$(PY) -m lessons_content.lesson_07.bench.ladder $(ARGS)

bench-prefill: $(READY)  ## time lesson 09's kernels on the GPU, beside what else is installed
	$(PY) -m lessons_content.lesson_09.bench.prefill $(ARGS)

bench-fast-engine: $(READY)  ## time the engine on the GPU, with one of its fast parts more each time
	$(PY) -m lessons_content.lesson_10.bench.fast_engine $(ARGS)

bench-host-steps: $(READY)  ## count what the host does in a step of the engine, with ten times as much in it
	$(PY) -m tools.bench.host_steps $(ARGS)

bench-timeline: $(READY)  ## profile decode steps on the GPU: what host and GPU do when
	$(PY) -m tools.bench.timeline $(ARGS)

bench-engine-peers: $(READY)  ## time the engine on the GPU, in turns with nano-vllm and Mini-SGLang
	$(PY) -m tools.bench.engine_peers $(ARGS)

bench-two-gpus: $(READY)  ## time the engine on one GPU and on two, with the shapes of Qwen3-8B
	$(PY) -m tools.bench.two_gpus $(ARGS)

bench-serving: $(READY)  ## time lesson 08's engine beside transformers' own, on the GPU where there is one
	$(PY) -m lessons_content.lesson_08.bench.serving $(ARGS)

bench-load: $(READY)  ## ask the server at random times, more and more often, and measure how long clients wait
	$(PY) -m tools.bench.load $(ARGS)

colour:  ## build the JupyterLab extension that shows C++ in colour, after a change of its source (needs node)
	@command -v npm >/dev/null || { echo "npm is not installed. It comes with Node.js, version 20.19 or newer." >&2; exit 1; }
	rm -rf .build/colour && mkdir -p .build && cp -r tools/colour .build/colour
	cd .build/colour && npm ci --ignore-scripts --no-audit --no-fund && npm run build
	rm -rf lessons_lib/start/labextension && cp -r .build/colour/labextension lessons_lib/start

screenshots: $(READY)-test  ## take the README's pictures again, in a real browser
	SCREENSHOTS=tests/screenshots $(PY) -m pytest tests/course/test_browser.py $(ARGS)
	$(PY) tests/screenshots/film.py

site: $(READY)-test  ## build the website of the lessons in .build/site, and look at its links
	$(PY) -m tools.site $(if $(PIP_ARGS),--pip-args="$(PIP_ARGS)") $(ARGS)

clean:  ## delete compiled lessons and caches; the environment and your progress stay
	rm -rf .build .pytest_cache .hypothesis

# After an upgrade of the system's Python, or a move of this folder, the environment is
# rebuilt.
ifneq ($(shell $(PY) -c 'import sys; print(sys.prefix)' 2>/dev/null),$(CURDIR)/$(VENV))
.PHONY: $(READY)
endif

$(READY): pyproject.toml constraints.txt lessons_lib/start/labextension/package.json
	@sh lessons_lib/start/preflight.sh "$(PYTHON)"
	@$(INSTALL) -- $(PIP_ARGS)
	@touch $@

# An extra of pyproject.toml: what only those need who test, grade or change the course.
$(READY)-%: $(READY)
	@$(INSTALL) $* -- $(PIP_ARGS)
	@touch $@
