# Every target does its own set-up: a fresh machine needs python3.11 (or newer) and make, nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN    := .venv/bin
READY  := .venv/.ready

.PHONY: demo pictures rehearsal test quick check format docs bench walks mutants fuzz reliability deviations results people stage faults lock sbom audit licences package setup clean

demo: $(READY)            ## watch real people: who does what, who is novel; teach that act, and watch again
	$(BIN)/python -m examples.demo

# Hundreds of processes start in the tests; none compiles again what another has compiled.
test quick faults: export PYTHONDONTWRITEBYTECODE =

FIRST := cli comparison core data detection distributed docs evaluation evidence inference stage
LAST  := training video watching

# In three parts, so that no process runs thousands of tests.
test: $(READY)            ## every test; those marked alone in a process that has run no other
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not alone and not thorough" $(FIRST:%=tests/%)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not alone and not thorough" tests src studies $(FIRST:%=--ignore=tests/%) $(LAST:%=--ignore=tests/%)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not alone and not thorough" $(LAST:%=tests/%)
	$(BIN)/python -m pytest -q -n 0 -m "alone and not thorough" $$(grep -rl --include="test_*.py" "mark\.alone" tests)

quick: $(READY)           ## what answers in under three minutes
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow and not alone and not thorough"

setup: $(READY)           ## only the environment

check: $(READY) docs      ## format, lint, types, import contracts, and a site without broken links
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --level error
	$(BIN)/lint-imports

docs: $(READY)            ## build the documentation site into site/; a broken link fails
	NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --quiet --strict

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)           ## speed, as ratios within one run; writes docs/BENCHMARKS.md
	$(BIN)/python -m bench.speed

pictures: $(READY)        ## make the pictures of the README from what `make demo` left; needs Chromium
	$(BIN)/python -m examples.demo_pictures

rehearsal: $(READY)       ## walk docs/REPRODUCE.md on miniatures of AVA and Charades, every system and table
	$(BIN)/python -m examples.rehearsal

walks: $(READY)           ## how far it is from four commands to their aim: files, lines, levels
	$(BIN)/python -m bench.walks

mutants: $(READY)         ## change one operator at a time and see whether a test notices; writes docs/MUTANTS.md
	$(BIN)/python -m bench.mutants --sample 70 --minutes 30 --write

MINUTES ?= 1

fuzz: $(READY)            ## look for files that break a reader, MINUTES each (READERS="film cvat"); needs atheris
	$(BIN)/python -m bench.fuzz --minutes $(MINUTES) $(READERS)

reliability: $(READY)     ## try 50 hostile files on each reader, crowds, a stream of two hours, eight trainings; writes docs/RELIABILITY.md
	$(BIN)/python -m bench.reliability --write --tries 50 --hours 2 --same

deviations: $(READY)      ## what each deviation costs; writes the measured part of docs/DEVIATIONS.md
	$(BIN)/python -m bench.deviations

results: $(READY)         ## write docs/RESULTS.md and the table of the README from studies/results
	$(BIN)/python -m studies.results

JHMDB  ?= ../shared/data/videos/jhmdb
CAVIAR ?= ../shared/data/videos/caviar_lobby
MAPS   ?= runs/make_people/maps

people: $(READY)          ## make the model of real people anew, from J-HMDB and CAVIAR; `mule weights pull i3d` first
	$(BIN)/python -m examples.make_people $(JHMDB) $(CAVIAR) --maps $(MAPS)

stage: $(READY)           ## make the model of rendered scenes anew
	$(BIN)/python -m examples.make_builtin

faults: $(READY)          ## make every write of every command fail once, and continue; writes docs/RELIABILITY.md
	$(BIN)/python -m bench.reliability --write --faults
	$(BIN)/python -m pytest -q -n 2 -m thorough tests

package: $(READY)         ## build the wheel, install it into an empty environment, watch a clip with it, resolve each extra
	$(BIN)/python -m examples.try_package --extras

licences: $(READY)        ## write docs/LICENCES.md from what is installed
	$(BIN)/python -m bench.licences --write

# Tools of the supply chain have an environment of their own: they are no part of what is tested.
TOOLS  := .venv/tools
EXTRAS := faiss onnx openvino pandas parquet plots tensorboard hub ray

$(TOOLS)/.ready: $(READY)
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet uv==0.13.8 cyclonedx-bom==7.5.0 pip-audit==2.10.1
	@touch $@

lock: $(TOOLS)/.ready     ## write requirements.lock anew, with the SHA-256 of every file; versions stay unless constraints.txt changes them
	cp requirements.lock $(TOOLS)/lock.txt
	$(TOOLS)/bin/uv pip compile pyproject.toml $(EXTRAS:%=--extra %) --group dev --quiet --generate-hashes \
		--python $(BIN)/python --constraint constraints.txt $(PIP_FIND_LINKS:%=--find-links %) \
		--no-emit-package torch --no-emit-index-url --no-emit-find-links --no-header --no-annotate --output-file $(TOOLS)/lock.txt
	{ sed -n '/^#/p' requirements.lock; sed '/^#/d' $(TOOLS)/lock.txt; } > $(TOOLS)/whole.txt && mv $(TOOLS)/whole.txt requirements.lock

sbom: $(TOOLS)/.ready     ## write sbom.json (CycloneDX): every locked package, with its hashes
	$(TOOLS)/bin/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --of JSON --output-file sbom.json

audit: $(TOOLS)/.ready    ## look up known vulnerabilities of the locked packages; needs the network
	$(TOOLS)/bin/pip-audit --requirement requirements.lock --disable-pip --no-deps --progress-spinner off --strict \
		|| { echo "Either a vulnerability is listed above, or packages could not be looked up: then nothing is known about them."; exit 1; }

# Installed again only when what is to be installed has changed; exactly the files of requirements.lock, and torch (see there).
$(READY): pyproject.toml constraints.txt requirements.lock
	@test -n "$(PYTHON)" || { echo "No python3.11 found. Install Python 3.11 or newer, or say: make PYTHON=/path/to/python"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "MULE needs Python 3.11 or newer; $(PYTHON) is older. Say: make PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --upgrade pip torch
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	$(BIN)/python -m pip check
	@touch $(READY)

clean:
	rm -rf .venv build dist runs site .ruff_cache .hypothesis .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
