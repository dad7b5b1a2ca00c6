# make        everything into .venv, so that .venv/bin/python -c "import braze" works
# make demo   the compiler at work on real models
# make test   all tests; the last line is their sum
# make bench  the measurements that docs quote
# make sanitize  unit and FileCheck tests under ASan and UBSan (a build of its own, without torch and clang)
PYTHON ?= python3
BUILD ?= build/release
VENV := .venv
BIN := $(VENV)/bin
# Several checkouts of one source share ccache's results.
export CCACHE_BASEDIR := $(CURDIR)
SITE = $(shell $(BIN)/python -c "import sysconfig; print(sysconfig.get_path('platlib'))")

.PHONY: all demo test bench sanitize install system clean lint
all: install

system:
	@tools/setup/system_packages.sh

$(VENV)/.ready: requirements.txt | system
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -r requirements.txt
	@touch $@

$(BUILD)/build.ninja: $(VENV)/.ready
	$(BIN)/cmake -G Ninja -S . -B $(BUILD) -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DPython_EXECUTABLE=$(abspath $(BIN)/python)

install: $(BUILD)/build.ninja | system
	@$(BIN)/ninja -C $(BUILD) --quiet
	@$(BIN)/cmake --install $(BUILD) --prefix $(SITE) >/dev/null

demo: install
	$(BIN)/python bench/demo.py
	$(BIN)/python bench/demo_training.py

test: install
	$(BIN)/python tools/run_tests.py --build $(BUILD)

bench: install
	$(BIN)/python bench/overheads.py

# CPython itself frees little at its end, so leaks are no errors.
sanitize: $(VENV)/.ready
	$(BIN)/cmake -G Ninja -S . -B build/sanitize -DBRAZE_TORCH=OFF -DBRAZE_CLANG=OFF -DBRAZE_SANITIZE=ON -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DPython_EXECUTABLE=$(abspath $(BIN)/python)
	$(BIN)/ninja -C build/sanitize --quiet
	ASAN_OPTIONS=detect_leaks=0 $(BIN)/ctest --test-dir build/sanitize --output-on-failure
	ASAN_OPTIONS=detect_leaks=0 BRAZE_BUILD=build/sanitize $(BIN)/lit -sv test/lit

lint: $(VENV)/.ready
	$(BIN)/pip install -q -r requirements-lint.txt
	$(BIN)/ruff check python test tools bench
	$(BIN)/mypy python/braze

clean:
	rm -rf build
