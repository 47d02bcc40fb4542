# Two front doors. Both install what is missing (scripts/setup.sh), build, and run; both may be run again at any time.
.PHONY: quickstart test setup build format lint clean
JOBS ?= $(shell nproc)

quickstart: build
	@examples/quickstart/run.sh

test: build
	@scripts/run_tests.sh

setup:
	@scripts/setup.sh

build: setup
	@echo "ringfold: configuring and building (build/dev)"
	@cmake --preset dev >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@cmake --build --preset dev -j $(JOBS)

format:
	@scripts/format.sh

lint:
	@scripts/format.sh --check
	@python3 scripts/check_layers.py .
	@python3 scripts/check_sizes.py .

clean:
	rm -rf build
