# nightshift: `make` builds ./nightshift, `make demo` and `make test` do everything else, from a fresh machine.
#
# One tree per mode under build/; one object per instruction set with its own flags. -ffp-contract=off and never
# fast-math: results must not depend on the compiler's mood.

MODE ?= release
CC ?= cc
B := build/$(MODE)

CFLAGS_release := -O2 -g
CFLAGS_asan := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
CFLAGS_tsan := -O1 -g -fsanitize=thread
CFLAGS_fuzz := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -Wno-unknown-warning-option
LDFLAGS_fuzz := -fsanitize=fuzzer,address,undefined
LDFLAGS_asan := -fsanitize=address,undefined
LDFLAGS_tsan := -fsanitize=thread
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wcast-qual -Wvla \
        -Wno-format-truncation $(if $(WERROR),-Werror)
ALL_CFLAGS := -std=gnu11 -D_GNU_SOURCE -I. $(WARN) -ffp-contract=off -pthread $(CFLAGS_$(MODE)) $(CFLAGS)
LIBS := -lcjson -lsqlite3 -lwebpdemux -lwebp -ljpeg -lpng -lmd -lm -pthread

# make V=1 shows whole commands.
Q := $(if $(V),,@)
say = $(if $(V)$(findstring s,$(firstword -$(MAKEFLAGS))),,@printf "  %s %s\n" $(1) $(2))

ARCH := $(shell $(CC) -dumpmachine | cut -d- -f1)
LIB_SRC := $(filter-out src/main.c,$(wildcard src/*.c vision/*.c jobs/*.c))
ifneq ($(ARCH),x86_64)
LIB_SRC := $(filter-out src/kern_avx2.c src/kern_avx512%.c src/kern_amx.c,$(LIB_SRC))
endif
ifneq ($(ARCH),aarch64)
LIB_SRC := $(filter-out src/kern_neon.c,$(LIB_SRC))
endif
LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o)
LIB := $(B)/libnightshift.a
FUZZ_MAIN := $(if $(filter fuzz,$(MODE)),,$(B)/tests/lib/fuzz_main.o)
TEST_OBJ := $(patsubst %.c,$(B)/%.o,$(filter-out tests/lib/fuzz_main.c,$(wildcard tests/lib/*.c)))
TEST_LIB := $(B)/libtest.a
TESTS_BIN := $(patsubst %.c,$(B)/%,$(wildcard $(foreach d,unit golden fault fuzz cli crash bench,tests/$d/*.c)))

.PHONY: all demo test check check-asan lint crash fuzz bench-model bench-kern bench-reads bench-orders clean deps tests
.DELETE_ON_ERROR:
.SECONDARY:

# `make` alone builds; the goals that set a machine up come first to deps.
all: nightshift

nightshift: $(B)/nightshift
	@cp -f $< $@

$(B)/nightshift: $(B)/src/main.o $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_$(MODE)) $(LDFLAGS) -o $@ $^ $(LIBS)

$(LIB): $(LIB_OBJ)
$(TEST_LIB): $(TEST_OBJ)
$(LIB) $(TEST_LIB):
	@rm -f $@
	$(call say,AR,$@)
	$(Q)ar rcs $@ $^

$(B)/src/kern_avx2.o: ALL_CFLAGS += -mavx2 -mfma -mf16c
$(B)/src/kern_avx512.o: ALL_CFLAGS += -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma
$(B)/src/kern_avx512bf16.o: ALL_CFLAGS += -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mavx2 -mfma
$(B)/src/kern_amx.o: ALL_CFLAGS += -mamx-tile -mamx-bf16 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mfma

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(B)/tests/%: $(B)/tests/%.o $(TEST_LIB) $(LIB)
	$(Q)$(CC) $(LDFLAGS_$(MODE)) $(LDFLAGS) -o $@ $^ $(LIBS)
$(B)/tests/fuzz/%: $(B)/tests/fuzz/%.o $(FUZZ_MAIN) $(TEST_LIB) $(LIB)
	$(Q)$(CC) $(LDFLAGS_$(MODE)) $(LDFLAGS) -o $@ $^ $(LIBS)

# The program with a switch in its system calls, for tests of faults and crashes.
$(B)/faulty: $(B)/src/main.o $(B)/tests/lib/faulty/faulty.o $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_$(MODE)) $(LDFLAGS) -o $@ $^ $(LIBS) -ldl

tests: $(TESTS_BIN) $(B)/nightshift $(B)/faulty
	@:

deps:
	@sh tests/lib/deps.sh build

demo: deps
	@$(MAKE) --no-print-directory -s nightshift
	@sh examples/demo.sh

test: deps
	@$(MAKE) --no-print-directory -j2 tests
	@sh tests/run.sh $(B) $(TESTS)

check: lint test

# Every test again under the address and undefined behaviour sanitizers.
check-asan: deps
	@$(MAKE) --no-print-directory -j2 MODE=asan tests
	@sh tests/run.sh build/asan $(TESTS)

lint:
	@sh tests/lib/deps.sh lint
	@sh tests/lint.sh

# KILLS (300) times kill -9 at moments that SEED (1) gives, on queues of 200 jobs: of one run, and of three workers.
KILLS ?= 300
SEED ?= 1
crash: deps
	@$(MAKE) --no-print-directory -s -j2 $(B)/tests/crash/campaign $(B)/nightshift
	@$(B)/tests/crash/campaign run $(B)/nightshift $(KILLS) $(SEED)
	@$(B)/tests/crash/campaign work $(B)/nightshift $(KILLS) $(SEED)

# A campaign of FUZZ_SECONDS (60) for each target, or those named in TESTS.
fuzz:
	@sh tests/lib/deps.sh fuzz
	@sh tests/fuzz/run.sh $(TESTS)

# A model for measuring, 8 GB: BENCH_DIR says where, BENCH_ARGS how large and of what kind (bench_model --help).
BENCH_DIR ?= build/bench-model
bench-model: deps
	@$(MAKE) --no-print-directory -s $(B)/tests/bench/bench_model
	@$(B)/tests/bench/bench_model $(BENCH_DIR) $(BENCH_ARGS)

# What is read for 64 jobs, 1, 8 and 64 at a time.
bench-reads: deps
	@$(MAKE) --no-print-directory -s $(B)/tests/bench/bench_model $(B)/nightshift
	@sh tests/bench/reads.sh $(B)

# Input order against auto order: BENCH_ARGS are how many shuffles of each queue, and recorded routes.
bench-orders: deps
	@$(MAKE) --no-print-directory -s $(B)/tests/bench/bench_model $(B)/tests/bench/bench_order $(B)/tests/bench/bench_predict
	@sh tests/bench/orders.sh $(B) $(BENCH_ARGS)

# Speeds of the kernels and of memory: BENCH_ARGS are threads and megabytes of weights.
bench-kern: deps
	@$(MAKE) --no-print-directory -s $(B)/tests/bench/bench_kern
	@$(B)/tests/bench/bench_kern $(BENCH_ARGS)

clean:
	rm -rf build nightshift

-include $(shell find build/$(MODE) -name '*.d' 2>/dev/null)
