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
.PHONY: help lab doctor test test-all lint format notebooks exercise grade bench site

help:  ## list these commands
	@echo 'Use: make COMMAND [ARGS="more arguments"]'
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

lab: $(READY)  ## make or update your copies in my-notebooks/, and open JupyterLab there (OPEN=no: copies only; MISTAKES=folder: with further mistakes)
	$(if $(MISTAKES),LESSONS_MISTAKES="$(abspath $(MISTAKES))" )$(PY) -P -m lessons_lib.start lab $(if $(FOLDER),"$(FOLDER)") $(if $(filter no,$(OPEN)),--only-copy,-- $(ARGS))

doctor: $(READY)  ## show what this machine can do
	$(PY) -P -m lessons_lib.start.doctor

test: $(READY)-test  ## run the tests, and compare the outputs of lessons 00 to 05
	$(PY) $(PYTEST) -m "not slow" $(ARGS)

test-all: $(READY)-test  ## run all of them, with lessons 06 to 11 and every spelling (TOOL=hub, nbgrader, cluster, platforms or gpu: what needs that)
ifeq ($(TOOL),)
	$(PY) $(PYTEST) --every 1 $(ARGS)
else ifeq ($(TOOL),gpu)
	PYTHON=$(PY) bash tests/gpu.sh
else
	$(if $(filter hub,$(TOOL)),,@$(INSTALL) $(TOOL) -- $(PIP_ARGS) --upgrade --target .build/$(TOOL))
	PYTHONPATH="$(CURDIR)/.build/$(TOOL)" $(PY) -m pytest -n auto --dist load --tool $(TOOL) $(ARGS)
endif

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

notebooks: $(READY)-test  ## make and execute all lessons (ARGS="01": one; "--words": where only text has changed; "--check": change nothing)
	$(PY) -m tools.notebooks $(ARGS)

exercise: $(READY)-test $(READY)-mutants  ## run what concerns one exercise: ID=8.8
	$(if $(ID),,$(error Say which exercise: make exercise ID=8.8))
	$(PY) -m tools.exercise "$(ID)" $(ARGS)

grade: $(READY)-grade  ## grade the notebooks of a class: SUBMISSIONS=folder (ARGS="draft …" and "mistakes …": your own mistakes)
	$(if $(SUBMISSIONS)$(filter draft mistakes,$(firstword $(ARGS))),,$(error Say where the notebooks are: make grade SUBMISSIONS=folder))
	$(if $(MISTAKES),LESSONS_MISTAKES="$(abspath $(MISTAKES))" )$(PY) -P -m lessons_grading $(if $(SUBMISSIONS),"$(SUBMISSIONS)") $(ARGS)

bench: $(READY)  ## measure: NAME=ladder, prefill, fast_engine, … (without a name: lists them)
	$(PY) -m tools.bench $(NAME) $(ARGS)

site: $(READY)-test  ## build the website of the lessons in .build/site, and look at its links
	$(PY) -m tools.site $(if $(PIP_ARGS),--pip-args="$(PIP_ARGS)") $(ARGS)

# The names of before version 2.0.0. They work for one more release, and say what is new.
NOW = $(info make $@ is now:  $(1))@$(1)
BENCHES = bench-fast-engine bench-prefill bench-host-steps bench-timeline bench-engine-peers bench-two-gpus bench-serving bench-load
.PHONY: copies wheel fuzz mutants answer-mutants lessons records check mistakes draft colour screenshots clean bench-build bench-cuda $(BENCHES)
copies: ; $(call NOW,make lab OPEN=no)
lessons: ; $(call NOW,make notebooks$(if $(ARGS), ARGS="$(ARGS)"))
check: ; $(call NOW,make notebooks ARGS="--check$(if $(ARGS), $(ARGS))")
mistakes: ; $(call NOW,make grade MISTAKES= ARGS='mistakes "$(MISTAKES)"')
draft: ; $(call NOW,make grade MISTAKES= ARGS='draft "$(RESULTS)" "$(GROUP)" "$(MISTAKES)"')
bench-build: ; $(call NOW,make bench NAME=cpp_builds)
bench-cuda: ; $(call NOW,make bench NAME=cuda_builds)
$(BENCHES): bench-%: ; $(call NOW,make bench NAME=$(subst -,_,$*)$(if $(ARGS), ARGS="$(ARGS)"))
wheel: $(READY)-test ; $(call NOW,$(PY) -m tools.wheel)
records: $(READY)-test ; $(call NOW,$(PY) -m lessons_content.mistakes $(ARGS))
fuzz: $(READY)-test ; $(call NOW,$(PY) -m tools.fuzz $(ARGS))
mutants: $(READY)-test ; $(call NOW,$(PY) -m tools.mutants $(ARGS))
answer-mutants: $(READY)-test ; $(call NOW,$(PY) -m tools.mutants.answers $(ARGS))
colour: $(READY)-test ; $(call NOW,$(PY) -m tools.colour)
screenshots: $(READY)-test ; $(call NOW,$(PY) -m tools.screenshots)
clean: ; $(call NOW,rm -rf .build .pytest_cache .hypothesis)

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
	@$(if $(filter test,$*),echo "  Python compiles what the tests import …"; $(PY) -m pytest --collect-only -q tests >/dev/null || true)
	@touch $@
