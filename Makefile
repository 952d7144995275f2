# Braid's commands. Needs GNU make 3.81+ and Python 3.11 to 3.13; everything else goes into .venv.
SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
LOG := $(VENV)/install.log
# UPGRADE=1 moves every pin to its newest version; without it `make lock` changes no more than it must.
COMPILE = $(BIN)/uv pip compile -q --no-config --universal --python-version 3.11 --generate-hashes --no-header \
	--no-annotate --no-emit-index-url $(if $(UPGRADE),--upgrade)

.DEFAULT_GOAL := help
.PHONY: help serve test audit crash bench chaos soak lock clean

# Brings .venv up to date with the lock file $(1). Warm, it compares one stamp, starts Python once and stops.
# A pyenv shim can be on the PATH and still not run, so candidates are tried, not looked up.
define environment
@fail() { echo "braid: $$1" >&2; exit 1; }; \
supported='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'; \
version='import sys; print("%d.%d" % sys.version_info[:2])'; \
stamp="$(VENV)/.installed-$(1)"; \
want="$$(cat $(1) pyproject.toml | cksum) $(CURDIR)"; \
python="$(PYTHON)"; \
if [ -n "$$python" ]; then \
	found="$$("$$python" -c "$$version" 2>/dev/null)" || fail "PYTHON=$$python does not run; pass a Python 3.11, 3.12 or 3.13, e.g. make serve PYTHON=python3.12"; \
	"$$python" -c "$$supported" 2>/dev/null || fail "PYTHON=$$python is Python $$found, and Braid needs 3.11, 3.12 or 3.13; pass another, e.g. make serve PYTHON=python3.12"; \
	[ "$$("$(BIN)/python" -c "$$version" 2>/dev/null)" = "$$found" ] || rm -f "$$stamp" "$(BIN)/python"; \
fi; \
if "$(BIN)/python" -c "$$supported" 2>/dev/null; then \
	if [ "$$(cat "$$stamp" 2>/dev/null)" = "$$want" ]; then exit 0; fi; \
else \
	if [ -z "$$python" ]; then \
		for candidate in python3.13 python3.12 python3.11 python3; do \
			if "$$candidate" -c "$$supported" >/dev/null 2>&1; then python="$$candidate"; break; fi; \
		done; \
	fi; \
	[ -n "$$python" ] || fail "no Python 3.11, 3.12 or 3.13 on the PATH; install one, or name it: make serve PYTHON=/path/to/python3.12"; \
	"$$python" -c 'import venv, ensurepip' 2>/dev/null || fail "$$python cannot make virtual environments; install python3-venv (Debian, Ubuntu: apt install python3-venv) and try again"; \
	echo "braid: making $(VENV) with $$python"; \
	"$$python" -m venv --clear "$(VENV)" || fail "could not make $(VENV); see the message above"; \
fi; \
echo "braid: installing $(1) (a minute or so the first time)"; \
{ "$(BIN)/python" -m pip install --disable-pip-version-check --require-hashes -r "$(1)" && \
  "$(BIN)/python" -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e . ; } >"$(LOG)" 2>&1 \
	|| fail "could not install $(1): $$(grep '^ERROR' "$(LOG)" | tail -n 1); the whole log is in $(LOG)"; \
echo "$$want" >"$$stamp"
endef

help: ## list the commands
	@echo "Usage: make <command>"; \
	sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1	\2/p' Makefile

serve: ## start Braid and its engines on 127.0.0.1:8080; Ctrl-C stops them
	$(call environment,requirements.lock)
	@exec $(BIN)/braid serve

test: ## run what CI runs: format, lint, types, layers, tests
	$(call environment,requirements-dev.lock)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 --dist loadfile $(ARGS)

audit: ## look all pinned dependencies up in the list of known vulnerabilities
	$(call environment,requirements-dev.lock)
	@$(BIN)/python .ci/audit.py

crash: ## kill everything N times under load, then look for what was lost (N=200)
	$(call environment,requirements-dev.lock)
	$(BIN)/python -m tests.faults.crash --kills $(or $(N),200) $(ARGS)

bench: ## measure quality and speed (ARGS="..." is passed on)
	$(call environment,requirements-dev.lock)
	$(BIN)/python -m bench $(ARGS)

chaos: ## break every engine in every way under load, then overload (ARGS="--seconds 10")
	$(call environment,requirements-dev.lock)
	$(BIN)/python -m bench.chaos $(ARGS)
	$(BIN)/python -m bench.overload

soak: ## search for MINUTES=20 while faults come and go, and see that nothing piles up
	$(call environment,requirements-dev.lock)
	$(BIN)/python -m bench.soak --minutes $(or $(MINUTES),20) $(ARGS)

# The development lock is solved first: fastembed holds versions back, and both must agree on every pin.
# hatchling and editables are in both, because the checkout is installed without build isolation.
lock: ## write both lock files from pyproject.toml (UPGRADE=1 for the newest versions)
	$(call environment,requirements-dev.lock)
	printf 'editables>=0.5\n' | $(COMPILE) --group dev pyproject.toml - -o requirements-dev.lock >/dev/null
	printf 'hatchling>=1.27\neditables>=0.5\n' | $(COMPILE) -c requirements-dev.lock pyproject.toml - -o requirements.lock >/dev/null

clean: ## remove .venv, caches and built files; data in .braid stays
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find service tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
