# Everything that people and CI run. `make run` and `make test` set up all they need.
VENV := .venv
PYTHON := $(VENV)/bin/python
HOST ?= 127.0.0.1
PORT ?= 7860
# Compiled modules are kept, whatever the shell says: many processes import them.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test quick soak durations narrow target check bench page-bench torture load e2e gpu record docs format browser pin oldest newest clean

run: $(VENV)/.run
	@$(PYTHON) -m d2sd get smollm2 || echo "The page opens with the bundled model, tiny."
	GRADIO_SERVER_NAME=$(HOST) GRADIO_SERVER_PORT=$(PORT) $(PYTHON) app.py

# `make test CLOCK=4` tests as if this machine were four times slower, `CLOCK=.25` as if it were four times quicker: clocks of
# Python run so much faster or slower, limits of tests grow, and pages are throttled. No result may depend on it.
CLOCK ?= 1
SEEMING := CLOCK=$(CLOCK) $(if $(filter-out 1,$(CLOCK)),PYTHONPATH=$(CURDIR)/tests/clock PYTEST_TIMEOUT=2400)

# One process more than cores, since tests of the page also wait, so torch takes one thread in each. A process takes a file
# at a time; tests/conftest.py puts those that take longest first.
WORKERS = -n $$($(PYTHON) -c "import os; print(min(4, 1 + (os.cpu_count() or 1)))") --dist loadfile --no-loadscope-reorder
test: $(VENV)/.dev browser target
	$(SEEMING) OMP_NUM_THREADS=1 $(PYTHON) -m pytest $(WORKERS)
	@$(MAKE) --no-print-directory narrow

# Measures how long each file takes, for the order in which they start.
durations: $(VENV)/.dev browser target
	D2SD_DURATIONS=1 OMP_NUM_THREADS=1 $(PYTHON) -m pytest $(WORKERS)

# Under a minute, for whoever changes a line: neither a browser nor a published model is needed.
quick: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest $(WORKERS) tests/unit tests/scripts

# All tests twelve times, in ways that differ in how fast this machine is or seems: what failed, and when. Two to three hours.
soak: $(VENV)/.dev browser target
	$(PYTHON) -m tools.soak

# The tests of numbers once more as on a processor with AVX2 alone. Where this is one, they have just run so.
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 FBGEMM_ENABLE_INSTRUCTIONS=AVX2
NUMBERS := $(addprefix tests/engine/test_,processor.py packed.py lossless.py sampling.py smollm2.py)
narrow: $(VENV)/.dev
	@if $(PYTHON) -c "import sys, torch; sys.exit(torch.backends.cpu.get_cpu_capability() != 'AVX512')"; then \
	  $(SEEMING) $(AVX2) OMP_NUM_THREADS=1 $(PYTHON) -m pytest $(WORKERS) $(NUMBERS); \
	else echo "This processor has no AVX-512: the tests of numbers ran with what it has."; fi

# A published chat model, for the tests on it; where it cannot be had, they are skipped.
target: $(VENV)/.dev
	@$(PYTHON) -m d2sd get smollm2 || true

check: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/oxlint --deny-warnings app assets tests
	$(VENV)/bin/oxfmt --check app assets tests

e2e: $(VENV)/.dev browser
	$(PYTHON) -m pytest -m e2e

# On a machine with a CUDA GPU. The kernels of flashinfer are compiled in the first run: minutes, once.
gpu: $(VENV)/.dev
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -r requirements-gpu.txt
	$(PYTHON) -c "import sys, torch; sys.exit(None if torch.cuda.is_available() else 'torch sees no CUDA GPU here')"
	$(PYTHON) -m pytest -rs tests/gpu
	$(PYTHON) -m d2sd bench gpu --shape qwen3-8b --context 1024,8192,32768

bench: $(VENV)/.run
	$(PYTHON) -m d2sd bench --by-domain

# How quick the page is on this machine: first paint, scrubbing, streaming, and what watching costs the engine.
page-bench: $(VENV)/.dev browser
	$(PYTHON) -m tools.page_bench

# Hostile input and faults from a seed, ten minutes by default: a table of what was tried and what failed.
SEED ?= 1
MINUTES ?= 10
torture: $(VENV)/.dev browser
	OMP_NUM_THREADS=1 $(PYTHON) -m tools.torture --seed $(SEED) --minutes $(MINUTES)

# Many people on one page of this machine: errors, fairness, waiting, memory over time (runs/load/load.svg).
PEOPLE ?= 20
load: $(VENV)/.dev browser
	$(PYTHON) -m tools.load --people $(PEOPLE) --minutes 3

# The run, the race and the tour that the page opens with, run again on this machine: with the published
# chat model where it is here, else with the bundled one.
record: $(VENV)/.run
	$(PYTHON) -m tools.record

# docs/python.md, the reference of the Python interface, from its docstrings.
docs: $(VENV)/.run
	$(PYTHON) -m tools.python_docs

format: $(VENV)/.dev
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	$(VENV)/bin/oxfmt app assets tests

$(VENV)/bin/python:
	python3 -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	python3 -m venv $(VENV) || { echo "python3 cannot make virtual environments; on Debian: apt install python3-venv"; exit 1; }

$(VENV)/.run: requirements.txt $(VENV)/bin/python
	@echo "Installing the packages of requirements.txt: about 2 minutes, once."
	$(PYTHON) -m pip install --disable-pip-version-check -r requirements.txt
	touch $@

# Tests run with the versions of constraints.txt, so that a library's release day is not ours; the page with any in range.
$(VENV)/.dev: requirements-dev.txt requirements.txt constraints.txt $(VENV)/bin/python
	@echo "Installing the packages of requirements-dev.txt: about 2 minutes, once."
	$(PYTHON) -m pip install --disable-pip-version-check -r requirements-dev.txt -c constraints.txt
	touch $(VENV)/.run $@

# To test with newer versions: a new environment without constraints, the tests, and the versions that passed.
pin: $(VENV)/bin/python
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --upgrade -r requirements-dev.txt
	touch $(VENV)/.run $(VENV)/.dev
	$(MAKE) check test
	{ head -1 constraints.txt; $(PYTHON) -m pip freeze --exclude setuptools --exclude pip | sed 's/+.*//' | sort -f; } > $(VENV)/pins
	mv $(VENV)/pins constraints.txt

# Tests with the lowest and with the newest versions that requirements.txt allows, each in an environment of its own: uv finds
# them, which is installed there. What passed is in constraints-oldest.txt and constraints-newest.txt, with the date. The bound
# on pydantic is for gradio[mcp], which the page does not need.
oldest: RESOLUTION := lowest-direct
oldest: TESTED := tests/unit tests/engine tests/train tests/app tests/e2e/test_explore.py
newest: RESOLUTION := highest
newest: TESTED := tests
oldest newest: OWN = $(VENV)-$@
# compares requirements.txt with these files, which are written at the end
oldest newest: RECORD := tests/unit/test_packaging.py::test_requirement_bounds_match_tested_versions
oldest newest: browser
	python3 -m venv --clear $(OWN)
	$(OWN)/bin/python -m pip install --quiet --disable-pip-version-check uv
	grep -v ^pydantic requirements-dev.txt | $(OWN)/bin/uv pip install --python $(OWN)/bin/python --resolution $(RESOLUTION) -r -
	{ OMP_NUM_THREADS=1 $(OWN)/bin/python -m pytest -n 2 --dist worksteal $(TESTED) --deselect $(RECORD) || echo failed; } | tee $(OWN)/tested
	@! grep -qx failed $(OWN)/tested
	{ echo "# The $@ versions that requirements.txt allows: $$(tail -1 $(OWN)/tested | tr -d =), $$(date +%F), $$($(OWN)/bin/python -V), $$(uname -s). make $@ writes this file again."; \
	  $(OWN)/bin/python -m pip freeze --exclude setuptools --exclude pip --exclude uv | sed 's/+.*//' | sort -f; } > constraints-$@.txt

# The page is tested in a real browser: Debian's Chromium, installed when none is there and we are root. Its headless shell
# takes a third less time for a page.
browser:
	@if command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing Chromium for the tests of the page: about a minute, once."; \
	  export DEBIAN_FRONTEND=noninteractive; apt-get update -q; for name in chromium-headless-shell chromium; do \
	    apt-get install -y -q --no-install-recommends $$name fonts-dejavu-core && break; done || true; \
	else echo "No Chromium here: the browser tests are skipped. On Debian: apt install chromium-headless-shell."; fi

clean:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-newest .pytest_cache .ruff_cache .mypy_cache
