# make test   installs what the tests need where it is missing, then runs everything
# make lint   formatting and lints
# make bench  figures; asserts nothing
# make fuzz   ten minutes of fuzzing (cargo-fuzz)

CARGO ?= cargo
TALLY = $(CARGO) run --release --locked --quiet --
FUZZ_SECONDS ?= 150

.PHONY: test unit sim lint bench fuzz tools

test: tools unit sim
	@echo "all tests passed"

# A linker is all that a Rust toolchain may lack.
tools:
	@command -v cc >/dev/null 2>&1 || (apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev)

unit: tools
	$(CARGO) test --workspace --locked

sim: tools
	$(CARGO) build --release --locked
	$(CARGO) test --release --locked -p tally-sim --lib model
	$(TALLY) sim --seeds 0..5000
	$(TALLY) sim --mutants
	$(TALLY) model

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

bench:
	$(CARGO) bench -p tally-core --bench ledger

# cargo-fuzz wants instrumentation that the stable toolchain only gives when told so.
fuzz:
	@command -v cargo-fuzz >/dev/null 2>&1 || $(CARGO) install cargo-fuzz --locked
	for target in index_text job_view pod_view status_rules; do \
		RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -dict=fuzz/objects.dict || exit 1; \
	done
