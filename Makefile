# The front door. Everything below is meson, pip and the scripts in tools/.
PYTHON ?= python3
VENV := .venv
PY := $(CURDIR)/$(VENV)/bin/python
TORCH ?=
comma := ,
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
MESON := $(VENV)/bin/meson
NINJA := $(VENV)/bin/ninja -j$(JOBS)
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

# What the installed package is made of: reinstalled when one of these changes.
PACKAGE := $(shell find include src tools python examples tests/meson.build \
    meson.build meson_options.txt pyproject.toml -type f \
    \( -name '*.[ch]' -o -name '*.def' -o -name '*.py' -o -name '*.pyi' \
    -o -name 'meson*' -o -name py.typed -o -name '*.toml' \) 2>/dev/null)

.PHONY: help venv deps build demo test bench check docs format asan tsan fuzz \
    aarch64 stress wheel clean

help: ## this list
	@grep -hE '^[a-z0-9]+:.*## ' $(MAKEFILE_LIST) | \
	    sed -E 's/:.*## /\t/' | expand -t 10

venv: $(VENV)/.torchair ## .venv with torch, torchair and the tools

deps: $(VENV)/.deps

$(VENV)/.deps: tools/requirements.txt tools/make_venv.sh
	PYTHON=$(PYTHON) TORCH=$(TORCH) tools/make_venv.sh $(VENV)
	@touch $@

$(VENV)/.torchair: $(VENV)/.deps $(PACKAGE)
	$(PY) -m pip install --quiet --no-deps --no-build-isolation \
	    --force-reinstall --disable-pip-version-check \
	    --no-index --config-settings=build-dir=build-wheel .
	@touch $@

# The name torch_npu, which no user of torchair has unasked.
$(VENV)/.torch_npu: $(VENV)/.torchair $(wildcard packages/torch_npu/*)
	$(PY) -m pip install --quiet --no-deps --no-build-isolation \
	    --force-reinstall --disable-pip-version-check \
	    --no-index packages/torch_npu
	@touch $@

build/build.ninja: | $(VENV)/.deps
	$(MESON) setup build -Dpython=disabled

build: build/build.ninja ## the engine, the `air` command, the C tests
	@$(NINJA) -C build

demo: venv ## search and generate with real models; one table of figures
	$(PY) examples/demo.py

test: venv build $(VENV)/.torch_npu ## C tests and Python tests
	@$(PY) tools/run_tests.py --build build --nvrtc --jobs $(JOBS) \
	    --pytest tests/tools tests/python

bench: venv ## figures against eager and Inductor, build/bench.json
	$(PY) tests/bench/run.py

check: venv build ## format, lint, types, layers, budgets, symbols, docs
	@$(PY) tools/check.py --build build

docs: venv build ## docs/ops.md and options.md from the tables
	@$(PY) tools/gen_docs.py --build build

format: deps ## clang-format and ruff, in place
	@$(PY) tools/check.py --fix

build-asan/build.ninja: | $(VENV)/.deps
	$(MESON) setup build-asan -Dpython=disabled \
	    -Db_sanitize=address,undefined

asan: build-asan/build.ninja ## C tests under ASan and UBSan
	@$(NINJA) -C build-asan
	@# tests/cuda compiles kernels by content, for both builds alike
	@mkdir -p build-asan/tests/cuda
	@[ ! -d build/tests/cuda/units ] || \
	    cp -a -n build/tests/cuda/units build-asan/tests/cuda
	@$(PY) tools/run_tests.py --build build-asan --jobs $(JOBS)

build-tsan/build.ninja: | $(VENV)/.deps
	$(MESON) setup build-tsan -Dpython=disabled -Db_sanitize=thread

tsan: build-tsan/build.ninja ## C tests under TSan
	@$(NINJA) -C build-tsan
	@$(PY) tools/run_tests.py --build build-tsan --jobs $(JOBS) \
	    --only unit --only unit_rest --only stress

build-aarch64/build.ninja: | $(VENV)/.deps
	$(MESON) setup build-aarch64 --cross-file tools/aarch64.ini \
	    -Dpython=disabled

aarch64: build-aarch64/build.ninja ## C tests for 64-bit ARM; ONLY="ir conform"
	@$(NINJA) -C build-aarch64
	@$(PY) tools/run_tests.py --build build-aarch64 --jobs $(JOBS) \
	    --under "qemu-aarch64 -L /usr/aarch64-linux-gnu" \
	    $(addprefix --only ,$(ONLY))

fuzz: build-asan/build.ninja ## random mutations of the corpora, under ASan
	@$(NINJA) -C build-asan
	@$(PY) tools/run_fuzz.py --build build-asan --jobs $(JOBS)

# The extension alone, at a level that gcc compiles in minutes.
build-%-python/build.ninja: | $(VENV)/.deps
	$(MESON) setup build-$*-python -Dtests=false -Doptimization=1 \
	    -Db_sanitize=$(if $(filter asan,$*),address$(comma)undefined,thread)

stress: build-asan-python/build.ninja build-tsan-python/build.ninja ## threads in Python under ASan, then TSan
	@$(NINJA) -C build-asan-python python/_native.abi3.so
	@$(NINJA) -C build-tsan-python python/_native.abi3.so
	@$(PY) tools/run_sanitized.py --build build-asan-python
	@$(PY) tools/run_sanitized.py --build build-tsan-python

wheel: deps ## dist/: for machines without a compiler, glibc 2.28 or later
	@tools/wheel.sh

clean: ## everything that was built, but .venv
	rm -rf build build-asan build-tsan build-wheel build-asan-python \
	    build-tsan-python build-aarch64 build-portable
