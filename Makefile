# Commands for users, developers and CI. `make run` and `make test` install everything that they need.
VENV := .venv
PYTHON := $(VENV)/bin/python
HOST ?= 127.0.0.1
PORT ?= 7860
# Always write bytecode, since many processes import the same modules.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test quick soak durations narrow target check bench page-bench torture load e2e gpu record docs format browser pin oldest newest clean

run: $(VENV)/.run
	@$(PYTHON) -m d2sd get smollm2 || echo "The page opens with the bundled model, tiny."
	GRADIO_SERVER_NAME=$(HOST) GRADIO_SERVER_PORT=$(PORT) $(PYTHON) app.py

# `make test CLOCK=4` tests as if this machine were four times slower, `CLOCK=.25` as if it were four times faster. It scales
# Python's clocks and the time limits of tests, and throttles pages. No result may depend on it.
CLOCK ?= 1
SEEMING := CLOCK=$(CLOCK) $(if $(filter-out 1,$(CLOCK)),PYTHONPATH="$(CURDIR)/tests/clock" PYTEST_TIMEOUT=2400)

# One process more than cores, since tests of the page also wait; torch uses one thread in each. A process takes one file at
# a time; tests/conftest.py puts the slowest files first.
WORKERS = -n $$($(PYTHON) -c "import os; print(min(4, 1 + (os.cpu_count() or 1)))") --dist loadfile --no-loadscope-reorder
test: $(VENV)/.dev browser target
	$(SEEMING) OMP_NUM_THREADS=1 $(PYTHON) -m pytest $(WORKERS)
	@$(MAKE) --no-print-directory narrow

# Measures the time of each test file, which determines their order.
durations: $(VENV)/.dev browser target
	D2SD_DURATIONS=1 OMP_NUM_THREADS=1 $(PYTHON) -m pytest $(WORKERS)

# Quick check after a change, under a minute. It needs neither a browser nor a published model.
quick: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest $(WORKERS) tests/unit tests/scripts

# Runs the cases that `make test` leaves out, then all tests twelve times, at different real or simulated speeds, and lists the
# failures. Takes two to three hours.
soak: $(VENV)/.dev browser target
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest $(WORKERS) -m soak
	$(PYTHON) -m tools.soak

# Repeats the numerical tests as on a processor with AVX2 only. Skipped if this processor has no AVX-512.
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 FBGEMM_ENABLE_INSTRUCTIONS=AVX2
NUMBERS := $(addprefix tests/engine/test_,dtypes.py merged.py lossless.py sampling.py bundled.py)
narrow: $(VENV)/.dev
	@if $(PYTHON) -c "import sys, torch; sys.exit(torch.backends.cpu.get_cpu_capability() != 'AVX512')"; then \
	  $(SEEMING) $(AVX2) OMP_NUM_THREADS=1 $(PYTHON) -m pytest $(WORKERS) $(NUMBERS); \
	else echo "This processor has no AVX-512: the numerical tests already ran without it."; fi

# Downloads a published chat model. Its tests are skipped if it is not available.
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

# For a machine with a CUDA GPU. The first run compiles the kernels of flashinfer, which takes minutes.
gpu: $(VENV)/.dev
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -r requirements-gpu.txt
	$(PYTHON) -c "import sys, torch; sys.exit(None if torch.cuda.is_available() else 'torch sees no CUDA GPU here')"
	$(PYTHON) -m pytest -rs tests/gpu
	$(PYTHON) -m d2sd bench gpu --shape qwen3-8b --context 1024,8192,32768

bench: $(VENV)/.run
	$(PYTHON) -m d2sd bench --by-domain

# Measures the page on this machine: first paint, scrubbing, streaming, and the engine's slowdown while a page is open.
page-bench: $(VENV)/.dev browser
	$(PYTHON) -m tools.page_bench

# Tests hostile input and faults from a seed, for ten minutes by default, and prints a table of attempts and failures.
SEED ?= 1
MINUTES ?= 10
torture: $(VENV)/.dev browser
	OMP_NUM_THREADS=1 $(PYTHON) -m tools.torture --seed $(SEED) --minutes $(MINUTES)

# Simulates many users of one page on this machine: errors, fairness, waiting, memory over time (runs/load/load.svg).
PEOPLE ?= 20
load: $(VENV)/.dev browser
	$(PYTHON) -m tools.load --people $(PEOPLE) --minutes 3

# Records the opening run, race and tour of the page again on this machine, with the published chat model or, if it is not
# downloaded, the bundled one.
record: $(VENV)/.run
	$(PYTHON) -m tools.record

# Writes docs/python.md, the reference of the Python interface, from docstrings.
docs: $(VENV)/.run
	$(PYTHON) -m tools.python_docs

format: $(VENV)/.dev
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	$(VENV)/bin/oxfmt app assets tests

$(VENV)/bin/python:
	python3 -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	python3 -m venv $(VENV) || { echo "python3 cannot make virtual environments; on Debian: apt install python3-venv"; exit 1; }

# torch comes without CUDA if there is no NVIDIA GPU. TORCH=cpu or TORCH=cuda overrides this, in a new environment (`make clean`).
$(VENV)/.run: requirements.txt $(VENV)/bin/python
	@echo "Installing the packages of requirements.txt, once: 0.3 GB, or 2.9 GB with CUDA."
	$(PYTHON) -m tools.install -r requirements.txt
	touch $@

# Tests use the versions of constraints.txt, so that new releases do not break them. The page uses any allowed version.
$(VENV)/.dev: requirements-dev.txt requirements.txt constraints.txt $(VENV)/bin/python
	@echo "Installing the packages of requirements-dev.txt, once: 0.5 GB, or 3.0 GB with CUDA."
	$(PYTHON) -m tools.install -r requirements-dev.txt -c constraints.txt
	touch $(VENV)/.run $@

# Upgrades all packages without constraints, runs the tests, and writes the versions to constraints.txt if they pass.
pin: $(VENV)/bin/python
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --upgrade -r requirements-dev.txt
	touch $(VENV)/.run $(VENV)/.dev
	$(MAKE) check test
	{ head -1 constraints.txt; $(PYTHON) -m pip freeze --exclude setuptools --exclude pip --exclude uv | sed 's/+.*//' | sort -f; } > $(VENV)/pins
	mv $(VENV)/pins constraints.txt

# Tests with the lowest and the newest versions that requirements.txt allows, each in a separate environment, where uv resolves
# them. The versions that passed are in constraints-oldest.txt and constraints-newest.txt, with the date. The bound on pydantic
# is left out: only gradio[mcp] needs it, which the page does not use.
oldest: RESOLUTION := lowest-direct
oldest: TESTED := tests/unit tests/engine tests/train tests/app tests/e2e/test_explore.py
newest: RESOLUTION := highest
newest: TESTED := tests
oldest newest: OWN = $(VENV)-$@
# excluded: it compares requirements.txt with the files written at the end
oldest newest: RECORD := tests/unit/test_packaging.py::test_requirement_bounds_match_tested_versions
oldest newest: browser
	python3 -m venv --clear $(OWN)
	$(OWN)/bin/python -m pip install --quiet --disable-pip-version-check uv
	grep -v ^pydantic requirements-dev.txt | $(OWN)/bin/uv pip install --python $(OWN)/bin/python --resolution $(RESOLUTION) -r -
	{ OMP_NUM_THREADS=1 $(OWN)/bin/python -m pytest -n 2 --dist worksteal $(TESTED) --deselect $(RECORD) || echo failed; } | tee $(OWN)/tested
	@! grep -qx failed $(OWN)/tested
	{ echo "# The $@ versions that requirements.txt allows: $$(tail -1 $(OWN)/tested | tr -d =), $$(date +%F), $$($(OWN)/bin/python -V), $$(uname -s). make $@ writes this file again."; \
	  $(OWN)/bin/python -m pip freeze --exclude setuptools --exclude pip --exclude uv | sed 's/+.*//' | sort -f; } > constraints-$@.txt

# Installs Debian's Chromium for the browser tests, if no Chromium is found and we are root. Its headless shell takes a third
# less time per page.
browser:
	@if command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing Chromium for the tests of the page: about a minute, once."; \
	  export DEBIAN_FRONTEND=noninteractive; apt-get update -q; for name in chromium-headless-shell chromium; do \
	    apt-get install -y -q --no-install-recommends $$name fonts-dejavu-core && break; done || true; \
	else echo "No Chromium here: the browser tests are skipped. On Debian: apt install chromium-headless-shell."; fi

clean:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-newest .pytest_cache .ruff_cache .mypy_cache
