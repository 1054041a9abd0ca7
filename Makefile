# `make` lists the targets. Needs Python 3.11 or newer with venv, and a C compiler.

# Another Python:            make PYTHON=python3.12 ...      in a separate environment
# Another environment:       make VENV=/somewhere ...
# A wheel instead of the sources in it:  make VENV=... WHEEL=dist/kafkastore-....whl test
# Only some tests:           make test ARGS='tests/formats -k index'
# With the seed that another run printed:  make test SEED=<number>; otherwise a run draws its own
# All cases and examples:    make test ARGS=--in-full
# Wheels of one Python, for one platform:  make wheels PYTHON=python3.12 PLATFORM=musllinux_1_2_aarch64
# Where tests write, for instance in memory:  make test SCRATCH=/dev/shm/kafkastore-tests
PYTHON =
VENV = .venv$(if $(PYTHON),-$(notdir $(PYTHON)))
WHEEL =
ARGS =
SEED =

BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check
RUN = kafkastore-run
CHECK = build/check
SCRATCH = build/tmp
CLASSES = $(VENV)/spark-classes.jsa
MARKS = kafka or soak or fuzz or sanitizer or server or image
# Tests of one file share what they set up, so they stay together (tests/models/work_units.py).
PARALLEL = -n logical --maxprocesses=4 --dist=loadfile

# Python files need no rebuild: an editable install runs them from the sources.
COMPILED = $(shell find kafkastore legacy migration -name '*.p[yx][xd]' -o -name '*.h')
PYTHON_FILES = $(shell find kafkastore legacy migration -name '*.py')

# The root's kafkastore/ must never hide the installed one: neither for this Python nor for Spark's
# workers, which put their working directory on the path too.
export PYTHONSAFEPATH = 1
# A run starts hundreds of processes; without bytecode each compiles what it imports again.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
.PHONY: help run test check lint site build wheels image bench clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16
	@echo "See CONTRIBUTING.md for details."

run: installed ## build, then run the pipeline over sample directories as a demonstration
	@test -d $(RUN)/sample || $(BIN)/kafkastore sample $(RUN)/sample
	$(BIN)/kafkastore pipeline $(RUN)/sample/* --out $(RUN)/out

test: installed $(VENV)/.stamp-dev $(CLASSES) ## run the tests, all but real brokers, servers, soaking, fuzzing, sanitizers, image
	@mkdir -p build
	$(BIN)/pytest $(PARALLEL) -m "not ($(MARKS))" -rs --basetemp=$(SCRATCH) --junit-xml=build/tests.xml \
	    $(SEED:%=--randomly-seed=%) $(ARGS)

lint: installed $(VENV)/.stamp-dev layout site ## ruff, mypy --strict, cython-lint, docstrings, layering, site
	$(BIN)/ruff check .
	cd $(LAYOUT) && $(abspath $(BIN))/mypy --config-file $(CURDIR)/pyproject.toml \
	    --cache-dir $(CURDIR)/.mypy_cache -p kafkastore
	PATH="$(abspath $(BIN)):$$PATH" cython-lint $(filter %.pyx %.pxd,$(COMPILED))
	$(BIN)/numpydoc lint --config . $(PYTHON_FILES)
	$(BIN)/pytest -q tests/test_layering.py tests/test_decisions.py tests/test_docstrings.py

# Fails at broken links and at pages that docs/README.md does not list; not with --quiet, which hides
# the warnings that --strict counts.
site: installed $(VENV)/.stamp-dev ## the pages and the reference as HTML, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file docs/site/mkdocs.yml

check: ## run everything in fresh environments: lint, all tests, the packages, a first run
	SEED=$(SEED) sh .ci/check $(CHECK) $(PYTHON)

build: $(VENV)/.stamp-dev ## sdist and wheel, in dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

wheels: ## sdist and wheels for Linux, x86-64 and ARM64, glibc and musl, in dist/; one PLATFORM= if given
	@python=$$(CC=true sh .ci/find-python $(PYTHON)) && "$$python" -m venv build/wheels-venv
	@build/wheels-venv/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", \
	    "rb"))["dependency-groups"]["wheels"], sep="\n")' >build/wheels-venv/required.txt
	@build/wheels-venv/bin/python -m pip install -q --disable-pip-version-check \
	    -r build/wheels-venv/required.txt
	build/wheels-venv/bin/python packaging/wheels.py dist $(PYTHON:%=--python %) $(PLATFORM:%=--platform %)

image: installed $(VENV)/.stamp-dev ## the root file system of the container image, in build/image, tried as root
	rm -rf build/image
	@[ -n "$(WHEEL)" ] || $(MAKE) wheels PYTHON=python3.11 PLATFORM=manylinux_2_28_$$(uname -m)
	@python=$$(CC=true sh .ci/find-python python3.11) \
	    && "$$python" packaging/image.py build/image $(or $(WHEEL),dist)
	$(BIN)/pytest -q -m image tests/test_image.py

bench: installed ## compare speed with other readers; needs a JDK 17, Maven and cargo
	PYTHONSAFEPATH= $(BIN)/python benchmarks/run.py $(ARGS)

clean: ## remove what was built, but neither environments nor kafkastore-run/
	rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f $(VENV)/.stamp-*
	find kafkastore legacy migration tests -name '*.so' -delete
	find kafkastore legacy migration tests -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.stamp-venv:
	@python=$$(sh .ci/find-python $(PYTHON)) && echo "making $(VENV) with $$python" \
	    && "$$python" -m venv $(VENV)
	@touch $@

# Requirements of pyproject.toml, one per line, for one purpose.
REQUIRED = $(BIN)/python -c 'import sys, tomllib; \
    config = tomllib.load(open("pyproject.toml", "rb")); project = config["project"]; \
    extras = project["optional-dependencies"]; \
    print(*{"build": config["build-system"]["requires"], \
        "run": project["dependencies"] + extras["spark"], "dev": extras["dev"]}[sys.argv[1]], sep="\n")'

$(VENV)/.stamp-dev: $(VENV)/.stamp-venv pyproject.toml
	@echo "installing what tests and lint need"
	@$(REQUIRED) dev >$(VENV)/required-dev.txt && $(PIP) install -q -r $(VENV)/required-dev.txt
	@touch $@

# Java reads Spark's classes from it in half the time; test runs start dozens of JVMs.
$(CLASSES): tests/spark/class_archive.py pyproject.toml | installed
	@echo "archiving Spark's classes"
	@$(BIN)/python $<

.PHONY: installed layout
ifeq ($(WHEEL),)
LAYOUT = build/layout

installed: $(VENV)/.stamp-editable

# Compile before the install, in this environment: pip would compile in a temporary folder, and
# download Cython and numpy each time.
$(VENV)/.stamp-requirements: $(VENV)/.stamp-venv pyproject.toml
	@echo "installing what kafkastore needs, PySpark and a Java runtime among it"
	@{ $(REQUIRED) build && $(REQUIRED) run; } >$(VENV)/required.txt \
	    && $(PIP) install -q -r $(VENV)/required.txt
	@touch $@

$(VENV)/.stamp-compiled: $(VENV)/.stamp-requirements setup.py $(COMPILED)
	@echo "compiling"
	@$(BIN)/python setup.py -q build_ext --inplace
	@touch $@

$(VENV)/.stamp-editable: $(VENV)/.stamp-compiled kafkastore/cli/launcher/kafkastore
	@$(PIP) install -q --no-build-isolation --no-deps --editable .
	@touch $@

# The Python files as a wheel has them: type checkers do not follow an editable install.
layout: $(VENV)/.stamp-compiled
	@rm -rf $(LAYOUT)
	@$(BIN)/python setup.py -q build_py --build-lib $(LAYOUT)
else
LAYOUT = $(VENV)

installed: $(VENV)/.stamp-wheel
layout:

$(VENV)/.stamp-wheel: $(VENV)/.stamp-venv $(WHEEL)
	@$(PIP) install -q "$(abspath $(WHEEL))[spark]"
	@touch $@
endif
