# One line per target; everything runs in .venv, which any target makes first.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
UV_VERSION := 0.13.8
# Tests start many processes of Python, which would compile the same modules.
unexport PYTHONDONTWRITEBYTECODE

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml setup.py constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r constraints.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	SPARK_HOME= $(BIN)/python -m kafkaclient.spark.precompile
	touch $@

install: $(STAMP) ## make .venv with everything in it

build: $(STAMP) ## rebuild the compiled part after a change to one of its sources
	$(BIN)/python setup.py --quiet build_ext --inplace

demo: $(STAMP) ## a real dataset through three real brokers, one of them slow
	$(BIN)/python -m experiments demo --out build/demo

test: check unit slice ## everything that must pass

check: $(STAMP) ## ruff, mypy, import-linter, the documentation site
	$(MAKE) --no-print-directory -j2 --output-sync=target mypy lint

mypy: $(STAMP)
	$(BIN)/mypy

lint: $(STAMP)
	$(BIN)/python release/extensions.py
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(SITE) build --strict

file-map: $(STAMP) ## docs/project/file-map.md, after a module was added or its docstring changed
	$(BIN)/python -m docsite.file_map

keywords: $(STAMP) ## kafkaclient/config/keywords.py, after the declaration of an option changed
	$(BIN)/python -m docsite.keywords

# mkdocs-material announces its successor on every run.
SITE = NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs

docs: $(STAMP) ## the documentation site, in build/site
	$(SITE) build --strict

docs-serve: $(STAMP) ## the same on http://127.0.0.1:8000, built again after each change
	$(SITE) serve --dev-addr 127.0.0.1:8000

# A test that never ends may be stuck inside a callback, where asyncio swallows what a signal raises.
# A process that such a test ends is not started again: it would only be stuck once more.
UNIT = $(BIN)/pytest -q -n 3 --max-worker-restart=0 --timeout-method=thread --durations=15

unit: $(STAMP) ## no network; HYPOTHESIS_PROFILE=ci looks at ten times as many inputs
	HYPOTHESIS_PROFILE=$(or $(HYPOTHESIS_PROFILE),quick) $(UNIT) tests -m "not full"

full: $(STAMP) ## the unit tests that take long: builds, matrices, many seeds
	$(UNIT) tests -m full

FAUST := build/faust
QUIX := build/quix
MOTO := build/moto
SPARKS := build/spark-4.0 build/spark-4.1 build/spark-4.2 build/spark-4.3

# What has an environment of its own: stream processors (faust-streaming needs an older click than the rest,
# Quix Streams an older confluent-kafka), the S3 server of integration/test_telemetry.py, and versions of PySpark.
$(FAUST)/.installed $(QUIX)/.installed $(MOTO)/.installed $(SPARKS:=/.installed): build/%/.installed: $(STAMP) integration/neighbours/%.txt
	rm -rf build/$* && $(BIN)/uv venv --quiet --python $(BIN)/python build/$*
	$(BIN)/uv pip install --quiet --compile-bytecode --python build/$* --require-hashes -r integration/neighbours/$*.txt
	touch $@

peers: $(FAUST)/.installed $(QUIX)/.installed ## faust-streaming and Quix Streams, for the experiments word-count and task-handover

spark-versions: $(STAMP) $(SPARKS:=/.installed) ## PySpark 4.0 to 4.3 and Spark Connect on a real broker, some minutes
	$(BIN)/pytest integration/test_spark_versions.py

GSSAPI = $(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r integration/neighbours/kerberos.txt

kerberos: $(STAMP) ## Kerberos on real brokers; it needs apt-get install krb5-kdc krb5-admin-server krb5-user libkrb5-dev
	$(GSSAPI)
	$(BIN)/pytest integration/security/kerberos

# What a test's own time limit does not end (a callback swallows it, or a thread is waited for) ends here,
# with the stacks of all threads.
STUCK = -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true

slice: $(STAMP) $(FAUST)/.installed ## real brokers, without what takes long
	$(BIN)/pytest integration -m "not full" -n 3 --max-worker-restart=0 --dist loadfile --durations=15 $(STUCK)

integration: $(STAMP) peers $(MOTO)/.installed ## real brokers; KAFKACLIENT_TEST_BOOTSTRAP=host:port for another cluster
	$(BIN)/pytest integration

compose-test: $(STAMP) ## the same against containers of docker-compose.yml; COMPOSE_TEST="integration/test_faults.py ..."
	$(BIN)/python -m integration.compose.run $(COMPOSE_TEST)

aiokafka-tests: $(STAMP) ## aiokafka's producer tests with the drop-in; AIOKAFKA=<checkout or bare repository>
	$(BIN)/python -m integration.aiokafka_tests.run "$(AIOKAFKA)" $(AIOKAFKA_TESTS)

bench: $(STAMP) ## this producer beside its peers on one broker, half an hour; BENCH="--seconds 1 ..."
	$(BIN)/python -m benchmarks.produce --out build/bench $(BENCH)

bench-spark: $(STAMP) ## the Spark source beside spark-sql-kafka 3.5.1, twelve minutes; BENCH_SPARK="--rows 1000000 ..."
	test -d build/spark-peer || $(BIN)/uv venv --quiet --python $(BIN)/python build/spark-peer
	$(BIN)/uv pip install --quiet --python build/spark-peer pyspark==3.5.1 setuptools
	$(BIN)/python -m benchmarks.spark --out build/bench-spark --peer-python build/spark-peer/bin/python $(BENCH_SPARK)

chaos: $(STAMP) ## ten minutes of faults on 3 brokers, then every record looked for; CHAOS="--seed 2 --brokers 5 ..."
	$(BIN)/python -m experiments chaos --seconds 600 --seed 1 --out build/chaos $(CHAOS)

kerberos-chaos: $(STAMP) ## the same through Kerberos and TLS, with tickets of a minute; it needs what kerberos needs
	$(GSSAPI)
	$(BIN)/python -m experiments chaos --seconds 600 --seed 1 --kerberos 60 --out build/kerberos-chaos $(CHAOS)

streams-chaos: $(STAMP) ## ten minutes of faults on instances and brokers, then every count looked at; STREAMS_CHAOS="--seed 2 ..."
	$(BIN)/python -m experiments streams-chaos --seconds 600 --seed 1 --out build/streams-chaos $(STREAMS_CHAOS)

consumer-chaos: $(STAMP) ## ten minutes of faults on a group, brokers and topics, then every record looked for; CONSUMER_CHAOS="--protocol classic ..."
	$(BIN)/python -m experiments consumer-chaos --seconds 600 --seed 1 --out build/consumer-chaos $(CONSUMER_CHAOS)

spark-chaos: $(STAMP) build/spark-4.2/.installed build/spark-4.3/.installed ## ten minutes of faults for each of seven settings of Spark, two hours; SPARK_CHAOS="--seconds 60 ..."
	for v in 4.2 4.3; do SPARK_HOME= build/spark-$$v/bin/python -m kafkaclient.spark.precompile; done
	$(BIN)/python -m experiments spark-chaos --out build/spark-chaos $(SPARK_CHAOS)

soak: $(STAMP) ## half an hour of faults at 20,000 records/s: memory, tasks and files stay flat; SOAK="--seconds 600 ..."
	$(BIN)/python -m experiments chaos --seconds 1800 --seed 1 --rate 20000 --producers 1 --flat --out build/soak $(SOAK)

sanitize: $(STAMP) ## the compiled part under AddressSanitizer and with bounds checks
	rm -rf build/sanitize && mkdir -p build/sanitize
	git ls-files -z kafkaclient tests release setup.py pyproject.toml | xargs -0 cp --parents -t build/sanitize
	grep -rlZ boundscheck=False build/sanitize/kafkaclient | xargs -0 sed -i 's/boundscheck=False/boundscheck=True/'
	cd build/sanitize && CFLAGS="-fsanitize=address -fno-omit-frame-pointer -O1 -g" $(CURDIR)/$(BIN)/python setup.py --quiet build_ext --inplace
	cd build/sanitize && PYTHONPATH=. PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD=$$(gcc -print-file-name=libasan.so) \
	  $(CURDIR)/$(BIN)/pytest -q -p no:cacheprovider -W ignore::pytest.PytestUnraisableExceptionWarning -k "not memory_is_not_taken" \
	  tests/wire tests/metrics tests/reader tests/producer/unit

fuzz: $(STAMP) ## a million inputs over all decoders, guided by coverage, some minutes; FUZZ="--inputs 10000000 --keep ..."
	$(BIN)/uv pip install --quiet --python $(BIN)/python --group fuzz
	$(BIN)/python -m fuzz.run --out build/fuzz $(FUZZ)

figures: $(STAMP) ## measure the tables of docs/figures on a quiet machine, and write them; FIGURES="consume sync --again"
	$(BIN)/python -m benchmarks.figures $(FIGURES)

dashboard-pictures: $(STAMP) ## docs/pictures of the Grafana dashboard and of `kafkaclient top`
	$(BIN)/python -m experiments dashboard docs/pictures

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --no-emit-index-url --no-emit-find-links

constraints: ## pin the newest versions that pyproject.toml allows
	$(COMPILE) --extra all --group dev --group docs pyproject.toml -o constraints.txt
	$(COMPILE) --extra aiokafka --group faust pyproject.toml -o integration/neighbours/faust.txt
	$(COMPILE) --group quix pyproject.toml -o integration/neighbours/quix.txt
	$(COMPILE) --group moto pyproject.toml -o integration/neighbours/moto.txt
	$(COMPILE) --group kerberos pyproject.toml -o integration/neighbours/kerberos.txt
	$(COMPILE) --group release -o release/tools.txt
	for v in 4.0 4.1 4.2 4.3; do $(COMPILE) --extra spark --group spark$$(echo $$v | tr -d .) pyproject.toml -o integration/neighbours/spark-$$v.txt; done

wheel-test: $(STAMP) ## sdist, wheels and their tests on every Python there; PYTHONS="python3.13 /path/python3" WHEEL_TEST="--unit tests/wire ..."
	$(BIN)/python -m release.wheel_test --uv $(BIN)/uv $(WHEEL_TEST)

TOOLS := build/release/tools

$(TOOLS)/.installed: $(STAMP) release/tools.txt
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(TOOLS)
	$(BIN)/uv pip install --quiet --python $(TOOLS) --require-hashes -r release/tools.txt
	touch $@

release-check: $(STAMP) $(TOOLS)/.installed ## what a release uploads: built from a commit, checked, tried; TAG=v0.1.0
	$(BIN)/python -m release.dry_run --uv $(BIN)/uv --tools $(TOOLS)/bin "$(or $(TAG),HEAD)"

OLDEST := build/oldest

oldest: $(STAMP) ## unit tests with the oldest dependencies that pyproject.toml allows; OLDEST_TESTS=tests/wire
	mkdir -p $(OLDEST)
	$(BIN)/uv pip compile --quiet --python-version 3.11 --resolution lowest-direct --extra all --group unit --group docs --no-emit-index-url pyproject.toml > $(OLDEST)/requirements.txt
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(OLDEST)/venv
	$(BIN)/uv pip install --quiet --python $(OLDEST)/venv -r $(OLDEST)/requirements.txt
	$(BIN)/uv pip install --quiet --python $(OLDEST)/venv --no-deps --no-build-isolation -e .
	HYPOTHESIS_PROFILE=quick $(OLDEST)/venv/bin/pytest -q -n 2 --timeout-method=thread $(or $(OLDEST_TESTS),tests)

NEWEST := build/newest

newest: $(STAMP) ## unit tests with the newest dependencies, also pre-releases, that pyproject.toml allows; NEWEST_TESTS=tests/wire
	mkdir -p $(NEWEST)
	$(BIN)/uv pip compile --quiet --python-version 3.11 --prerelease allow --extra all --group unit --group docs --no-emit-index-url pyproject.toml > $(NEWEST)/requirements.txt
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(NEWEST)/venv
	$(BIN)/uv pip install --quiet --python $(NEWEST)/venv -r $(NEWEST)/requirements.txt
	$(BIN)/uv pip install --quiet --python $(NEWEST)/venv --no-deps --no-build-isolation -e .
	HYPOTHESIS_PROFILE=quick $(NEWEST)/venv/bin/pytest -q -n 2 --timeout-method=thread $(or $(NEWEST_TESTS),tests)

types: $(STAMP) ## pyright --verifytypes: the type of every public name is known
	test -x build/types/bin/python || $(BIN)/uv venv --quiet --python $(BIN)/python build/types
	$(BIN)/uv pip install --quiet --python build/types --group types --requirements pyproject.toml --extra all
	ln -sfn $(CURDIR)/kafkaclient "$$(build/types/bin/python -c 'import site; print(site.getsitepackages()[0])')/kafkaclient"
	PATH="$(CURDIR)/build/types/bin:$$PATH" PYTHONPATH=. build/types/bin/python -m release.types

extras: $(STAMP) ## the table of extras in docs/reference/extras.md: what each brings
	$(BIN)/python -m release.extras --uv $(BIN)/uv --python $(BIN)/python docs/reference/extras.md

clean: ## remove what was built
	rm -rf build dist *.egg-info && find kafkaclient \( -name "*.so" -o -name "*.c" \) -delete

.PHONY: help install build keywords docs docs-serve demo test check mypy lint unit full peers kerberos kerberos-chaos slice integration compose-test aiokafka-tests sanitize bench bench-spark fuzz chaos streams-chaos consumer-chaos spark-chaos soak figures dashboard-pictures constraints wheel-test release-check oldest newest types extras clean
