# Makefile of attnd.  `make help` lists the targets; `make run` shows the daemon at work.
#
# One file, no recursive make.  Sources are found by wildcard, so a new .c file in one of the
# directories below, or in a room of lib/ or server/, needs no line here.  What a variant (asan,
# ubsan, tsan) changes is the output directory and the sanitizer flags: `make asan` calls this file
# again with VARIANT=asan.
#
#   build/attnd         the daemon             lib/ + server/
#   build/attnd_no_ui   as UI=0 makes it       likewise, for the HTTP suite
#   build/libattn.a     the library            lib/*/*.c; libattn.so of the same objects
#   build/share/...     manual pages and such  made by config/install.mk, which installs all
#   build/kernelcheck   every kernel, checked  tests/kernels/*.c
#   build/bench         attention, measured    tests/bench/*.c but the next three's
#   build/bench_json    JSON numbers, measured tests/bench/json.c
#   build/bench_store   a store's files        tests/bench/store.c
#   build/bench_http    HTTP, measured         tests/bench/http_*.c, under tests/bench/http.sh
#   build/mixed         decodes and attends    tests/load/mixed.c
#   build/host/openapi_text  prints /openapi.json  server/openapi/*.c, on the machine that builds
#   build/host/family_text  prints model families  server/family_text/*.c, likewise
#   build/unit          unit suites            tests/unit/*.c and what they need of server/
#   build/http_suite    HTTP suite             tests/http/*.c, starts the daemon named by $ATTND
#   build/catalogue     bad requests and files  tests/catalogue/*.c carries out tests/catalogue/*.txt
#   build/fuzz/fuzz_*   parsers under libFuzzer tests/fuzz/*.c, each a target but replay.c
#   build/corrupt       damage to state files  tests/corrupt/*.c
#   build/kill          kills under load       tests/kill/*.c, starts the daemon named by $ATTND
#   build/retry         requests lost, late    tests/retry/*.c, likewise
#   build/soak          ten minutes of all     tests/soak/*.c, likewise
#   build/invariance    bits alone, in batches  tests/invariance/*.c
#   build/v2            requests of the Open Inference Protocol  tests/v2/*.c, likewise
#   build/framing       requests on a line  tests/framing/*.c, likewise, and proxies
#   build/observe       Prometheus  tests/metrics/*.c, likewise
#   build/overload      load and slow clients  tests/overload/*.c, likewise
#   build/fault         calls that fail        tests/fault/main.c and what it needs
#   build/power         power failures         tests/power/*.c, starts the daemon named by $ATTND
#   build/recorder.so   what it does on disk   tests/power/recorder.c, preloaded there
#   build/power_store   of slots, manifests    tests/power_store/*.c
#   build/store_model   model of the store     tests/store_model/*.c, all that can happen
#   build/cluster_model model of a partition   tests/cluster/*.c, likewise
#   build/attnd_fault   the daemon they fail in: its calls go through tests/fault/shim.c
#   build/asan/...      the same, instrumented
#
# Compiler warnings are errors here.  With a compiler newer than Debian 12's: `make WERROR=`.

CC      = gcc
AR      = ar
PKG_CONFIG = pkg-config
WERROR  = -Werror
V       = 0
VARIANT =
ARCH    =

# Seconds that kernelcheck runs within `make check`; its seed changes from run to run.
KERNELCHECK_SECONDS = 5

# For check-soak: --seconds N, --series FILE for a line of each sample (seconds, KiB, deeds), and
# --thread-caches for an allocator as it is shipped.
SOAK_FLAGS =

# For check-power: --again RECORD --state N; --mode always|everysec|os|snapshot, --states N, --records N.
POWER_FLAGS =

# For check-cluster: --only EVENT,..., --random N, --seed N, --cost.
CLUSTER_FLAGS =

# For each target of `make fuzz`.
FUZZ_SECONDS = 60
FUZZ_RUNS    =

OUT = build$(ARCH:%=/%)$(VARIANT:%=/%)
OBJ = $(OUT)/obj
HOST = build/host
Q_0 = @
Q   = $(Q_$(V))

# ---- Architecture ----------------------------------------------------------------------------

# ARCH=arm64 is built by Debian's cross compiler from headers and libraries that stand below
# ARM64_ROOT (tests/arm64/root.sh), and run by qemu-user.
ARM64_ROOT = build/deps/arm64
ifeq ($(ARCH),arm64)
CC = aarch64-linux-gnu-gcc --sysroot=$(CURDIR)/$(ARM64_ROOT)
AR = aarch64-linux-gnu-ar
PKG_CONFIG = PKG_CONFIG_SYSROOT_DIR=$(CURDIR)/$(ARM64_ROOT) \
             PKG_CONFIG_LIBDIR=$(CURDIR)/$(ARM64_ROOT)/usr/lib/aarch64-linux-gnu/pkgconfig pkg-config
endif

# Sources of other architectures than the one that the compiler compiles for.
MACHINE := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
FOREIGN := $(if $(filter x86_64,$(MACHINE)),,lib/kernels/avx% tests/kernels/emulated% tests/bench/peaks.c) \
           $(if $(filter aarch64,$(MACHINE)),,lib/kernels/neon% tests/bench/peaks_arm64.c)

# ---- Flags -----------------------------------------------------------------------------------

WARNINGS = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wconversion \
           -Wno-sign-conversion -Wvla

# Instrumented code is compiled without _FORTIFY_SOURCE, which would hide calls from the sanitizer,
# and without -Werror, because instrumentation sets off false "maybe uninitialized" warnings.
VARIANT_       = -O2 -D_FORTIFY_SOURCE=2 -fstack-protector-strong $(WERROR)
INSTRUMENTED   = -O1 -fno-omit-frame-pointer -DINSTRUMENTED=1
VARIANT_asan   = $(INSTRUMENTED) -fsanitize=address
VARIANT_ubsan  = $(INSTRUMENTED) -fsanitize=undefined,float-cast-overflow -fno-sanitize-recover=all
VARIANT_tsan   = $(INSTRUMENTED) -fsanitize=thread
VARIANT_fuzz   = -O1 -fno-omit-frame-pointer -w -fsanitize=address,undefined,float-cast-overflow \
                 -fno-sanitize-recover=all -fsanitize=fuzzer-no-link
VARIANT_coverage = -O0 --coverage -w
BRANCHES = -Wa,-mbranches-within-32B-boundaries
VARIANT_FLAGS := $(VARIANT_$(VARIANT))

# libFuzzer comes with clang.  Kernels read no input, and cost minutes to compile instrumented.
ifeq ($(VARIANT),fuzz)
CC = clang
build/fuzz/obj/lib/kernels/%: VARIANT_FLAGS = -O1 -w
BRANCHES = -mbranches-within-32B-boundaries
endif

CPPFLAGS = -D_GNU_SOURCE -Iinclude
CFLAGS   = -std=c11 -g -pthread $(POSITION) $(VARIANT_FLAGS) $(WARNINGS)
# Objects of the library stand in libattn.so too.  No call between them goes through a symbol that
# another object may replace, so their code is that of -fPIE.
POSITION = -fPIE
$(OBJ)/lib/%.o: POSITION = -fPIC -fno-semantic-interposition
LDFLAGS  = -pie -pthread -Wl,--as-needed -Wl,-z,relro,-z,now $(filter -fsanitize% --coverage,$(VARIANT_FLAGS))

# pkg-config is asked when a recipe runs, not when this file is read: by then `deps` has installed
# it.  Headers of packages are system headers, to which our warnings do not apply.  libunistring
# has no module.
pkg_cflags = $(patsubst -I%,-isystem%,$(shell $(PKG_CONFIG) --cflags $(1)))
pkg_libs   = $(if $(1),$(shell $(PKG_CONFIG) --libs $(1))) -lunistring -lm

LIB_PKGS    = jansson nettle zlib
SERVER_PKGS = libmicrohttpd jansson libseccomp zlib nettle gnutls
TEST_PKGS   = check libcurl jansson zlib gnutls

# The objects of the sources that a pattern names.  A pattern that names none is an error: flags
# would be lost without a word when a file moves.  An image is built without tests' sources.
objects_of = $(patsubst %.c,$(OBJ)/%.o,$(or $(wildcard $(1)),$(if $(filter $(TESTS_ABSENT),$(1)),,\
                 $(error Makefile: no source is named $(1)))))
TESTS_ABSENT := $(if $(wildcard tests/unit),,tests/%)

# What a directory may include; `make layers` checks the rest.
LOCAL =
$(OBJ)/lib/%.o:    LOCAL = -Ilib $(call pkg_cflags,$(LIB_PKGS))
$(OBJ)/server/%.o: LOCAL = -Iserver -Ilib $(call pkg_cflags,$(SERVER_PKGS))
$(OBJ)/tests/%.o:  LOCAL = -Ilib -Iserver -Itests/common -Wno-format-truncation \
                           $(call pkg_cflags,$(TEST_PKGS))
$(OBJ)/tests/catalogue/%.o: LOCAL += -Itests/http
$(OBJ)/tests/framing/%.o: LOCAL += -Itests/http -Itests/catalogue
$(OBJ)/tests/v2/%.o: LOCAL += -Itests/http
$(OBJ)/tests/invariance/%.o: LOCAL = -Itests/unit -Itests/common
$(OBJ)/tests/kernels/%.o $(OBJ)/tests/bench/%.o $(OBJ)/tests/tools/%.o: LOCAL = -Ilib
$(OBJ)/tests/power_store/%.o: LOCAL = -Iserver -Itests/common -Itests/power -Wno-format-truncation $(call pkg_cflags,$(TEST_PKGS))
$(OBJ)/tests/load/%.o: LOCAL =
$(OBJ)/tests/store_model/%.o $(OBJ)/tests/cluster/%.o: LOCAL = -Itests/common
$(OBJ)/tests/kill/%.o $(OBJ)/tests/retry/%.o $(OBJ)/tests/soak/%.o $(OBJ)/tests/overload/%.o $(OBJ)/tests/fault/%.o $(OBJ)/tests/power/%.o $(OBJ)/tests/metrics/%.o: LOCAL = -Ilib -Itests/common -Itests/http -Itests/kill -Wno-format-truncation $(call pkg_cflags,$(TEST_PKGS))
$(call objects_of,tests/bench/json.c): LOCAL = -Iserver $(call pkg_cflags,jansson)
$(call objects_of,tests/bench/store.c): LOCAL = -Iserver
$(call objects_of,tests/bench/http_bare.c): LOCAL = -Ilib $(call pkg_cflags,libmicrohttpd)

# Kernels: only these files may use instructions beyond the baseline.  A branch that crosses or ends
# at 32 bytes keeps a loop out of several Intel CPUs' cache of decoded instructions; the assembler
# moves them.  The compiler must not fuse or reorder what the portable kernels and the tests' oracle
# spell out.
EXTRA =
# Tests take longer to compile than to run, but for those that measure.  -O1 sets off false warnings.
$(OBJ)/tests/%.o: EXTRA = -O1 -Wno-maybe-uninitialized
$(OBJ)/tests/bench/%.o $(OBJ)/tests/kernels/%.o $(OBJ)/tests/load/%.o: EXTRA =
# Loads that gcc moves ahead of a tile's assembler do not fit its registers.
NEON = -fno-schedule-insns
AVX512 = -mavx512f -mavx512bw -mavx512dq -mavx512vl $(BRANCHES)
$(call objects_of,lib/kernels/avx2*.c):        EXTRA = -mavx2 -mfma -mf16c
$(call objects_of,lib/kernels/avx512*.c):      EXTRA = $(AVX512)
$(call objects_of,lib/kernels/avx512_vnni*.c): EXTRA = $(AVX512) -mavx512vnni
$(call objects_of,lib/kernels/avx512_bf16*.c): EXTRA = $(AVX512) -mavx512bf16
$(call objects_of,lib/kernels/avx512_amx*.c):  EXTRA = $(AVX512) -mavx512vnni -mavx512bf16 -mamx-tile -mamx-bf16 -mamx-int8
# Where each emulated instruction's variables stand, for a debugger, takes gcc twice as long as the rest.
$(call objects_of,tests/kernels/emulated*.c): EXTRA = $(AVX512) -O1 -fno-var-tracking
$(call objects_of,lib/kernels/neon*.c):        EXTRA = $(NEON)
$(call objects_of,lib/kernels/neon_dotprod*.c): EXTRA = $(NEON) -march=armv8.2-a+dotprod
$(call objects_of,lib/kernels/neon_bf16*.c):   EXTRA = $(NEON) -march=armv8.2-a+bf16
$(call objects_of,lib/kernels/portable*.c):    EXTRA = -O3 -ffp-contract=off
$(call objects_of,lib/basics/tile.c):                  EXTRA = -O3
$(call objects_of,lib/basics/widen.c):                 EXTRA = -O3
$(call objects_of,lib/files/quantized.c):              EXTRA = -O3
$(call objects_of,lib/files/ggml.c):                   EXTRA = -O3
$(call objects_of,server/wire/tensor_json.c):          EXTRA = -O3
$(call objects_of,server/wire/tensor_binary.c):        EXTRA = -O3
$(call objects_of,tests/bench/check.c):                EXTRA = -O3 -ffp-contract=off
$(call objects_of,tests/unit/oracle*.c):               EXTRA = -O1 -ffp-contract=off

# ---- Sources ---------------------------------------------------------------------------------

objects = $(patsubst %.c,$(OBJ)/%.o,$(filter-out $(FOREIGN),$(wildcard $(1))))

LIB_OBJS    = $(call objects,lib/*/*.c)
SERVER_OBJS = $(filter-out $(OBJ)/server/main.o $(OBJ)/server/openapi/% $(OBJ)/server/family_text/%,\
                $(call objects,server/*.c server/*/*.c))
COMMON_OBJS = $(call objects,tests/common/*.c)
UNIT_OBJS   = $(call objects,tests/unit/*.c tests/bench/samples.c) $(COMMON_OBJS)
HTTP_OBJS   = $(call objects,tests/http/*.c) $(COMMON_OBJS)
# Of the HTTP suite the catalogue takes what is no suite.
CATALOGUE_OBJS = $(call objects,tests/catalogue/*.c) \
                 $(filter-out %/main.o,$(call objects,$(filter-out tests/http/test_%,$(wildcard tests/http/*.c))))
FUZZ_TARGETS = $(filter-out replay,$(basename $(notdir $(wildcard tests/fuzz/*.c))))
KILL_OBJS   = $(call objects,tests/kill/*.c)
RETRY_OBJS  = $(call objects,tests/retry/*.c tests/kill/mirror.c)
SOAK_OBJS   = $(call objects,tests/soak/*.c)
V2_OBJS = $(call objects,tests/v2/*.c) $(filter-out %/main.o,$(HTTP_OBJS))
FRAMING_OBJS = $(call objects,tests/framing/*.c tests/catalogue/proxy.c)
OVERLOAD_OBJS = $(call objects,tests/overload/*.c)
OBSERVE_OBJS = $(call objects,tests/metrics/*.c)
FAULT_OBJS  = $(filter-out %/shim.o,$(call objects,tests/fault/*.c))
POWER_OBJS  = $(filter-out %/recorder.o,$(call objects,tests/power/*.c)) \
              $(call objects_of,tests/kill/mirror.c) \
              $(filter-out %/main.o %/suite_run.o %/marks.o,$(HTTP_OBJS))
CORRUPT_OBJS = $(call objects,tests/corrupt/*.c)
POWER_STORE_OBJS = $(call objects,tests/power_store/*.c) $(call objects_of,tests/power/disk.c tests/common/scratch.c tests/common/half.c)
MODEL_OBJS  = $(call objects,tests/store_model/*.c) $(call objects_of,tests/common/explore.c)
CLUSTER_MODEL_OBJS = $(call objects,tests/cluster/*.c) $(call objects_of,tests/common/explore.c)
INVARIANCE_OBJS = $(call objects,tests/invariance/*.c tests/unit/property_draw.c tests/unit/rng.c)
KERNEL_OBJS = $(call objects,tests/kernels/*.c)
BENCH_HTTP  = $(call objects,tests/bench/http_*.c)
BENCH_OBJS  = $(filter-out %/json.o %/store.o $(BENCH_HTTP),$(call objects,tests/bench/*.c))
BENCH       = $(OUT)/bench $(OUT)/bench_json
BENCH_FLAGS =
BENCH_TABLE_FLAGS =
BENCH_HTTP_FLAGS =
BENCH_WEIGHTS_FLAGS =

.PHONY: all run check check-all check-catalogue check-load check-journal check-promises \
        check-mutations fuzz \
        fuzz-coverage alone nice suites unit-suites http-suites recorded-catalogue recorded-http \
        check-kernels asan ubsan tsan \
        bench bench-coding bench-dtypes bench-evicted bench-http bench-image bench-kernels bench-load bench-mixed bench-restart \
        bench-shard bench-store bench-stored bench-table bench-weights \
        style layers presets models-md models-check docs docs-check format deps install uninstall deb sbom version clean help
.DELETE_ON_ERROR:
.SECONDARY:

all: $(OUT)/attnd $(OUT)/libattn.a $(OUT)/kernelcheck $(BENCH) ## build daemon, library and tools (default)

# ---- Running and checking ----------------------------------------------------------------------

# What a caller's -j has said already is not said again.
ON_ALL_CPUS = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
ON_ONE_MORE = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell expr $$(nproc) + 1))

# The checks beside the suites, and all programs that `make check` builds.
CHECKS = check-clients check-ui check-power check-fault check-corrupt check-kill check-sandbox \
         check-retry check-soak check-invariance check-overload check-framing check-v2 \
         check-openapi check-metrics check-image check-install check-kubernetes check-cluster \
         check-arm64 check-bench check-published check-store-model check-cluster-model \
         check-power-store
# Those of `alone`, which judge times or look at what catalogue and HTTP suite have recorded, and
# those that only compute.
CHECKS_ALONE = check-openapi check-cluster check-overload
CHECKS_NICE = check-arm64 check-corrupt check-invariance check-store-model check-cluster-model
.PHONY: $(CHECKS) bench-ui screenshots
CHECK_PROGRAMS = $(addprefix $(OUT)/,unit http_suite catalogue corrupt fault attnd_fault kill power \
                 recorder.so power_store store_model cluster_model retry soak invariance overload framing v2 observe)

run: | build/deps/run ## install what is missing, build, show attnd at work, keep it serving
	@$(MAKE) --no-print-directory $(ON_ALL_CPUS) $(OUT)/attnd
	@tests/tools/run.sh $(OUT)/attnd

# What waits runs beside what computes, one thing more at a time than there are CPUs.  What judges
# times comes after that, one check after the other, and leaves what it does not take of the CPUs to
# those that only compute.
check: | build/deps/check ## everything that a change must pass (minutes)
	@$(MAKE) --no-print-directory $(ON_ALL_CPUS) all $(CHECK_PROGRAMS)
	$(Q)rm -f $(OUT)/exchanges
	@$(MAKE) --no-print-directory QUICK=1 $(ON_ONE_MORE) -O recorded-catalogue unit-suites \
	    check-promises check-mutations presets $(filter-out $(CHECKS_ALONE) $(CHECKS_NICE),$(CHECKS))
	@$(MAKE) --no-print-directory QUICK=1 $(ON_ONE_MORE) -O alone nice
	@echo "check: all passed"

# The cluster mostly waits: what reads the recorded exchanges computes meanwhile.
alone:
	@$(MAKE) --no-print-directory recorded-http
	@$(MAKE) --no-print-directory check-cluster check-openapi
	@$(MAKE) --no-print-directory check-overload
nice:
	@nice -n 19 $(MAKE) --no-print-directory fuzz $(CHECKS_NICE) check-kernels layers style \
	    check-ui-size models-check docs-check

check-all: check ## check, then every sanitizer, a long kernelcheck and the load test
	@$(MAKE) --no-print-directory asan
	@$(MAKE) --no-print-directory ubsan
	@$(MAKE) --no-print-directory tsan
	$(SUITE_ENV) ATTN_LONG_TESTS=1 CK_RUN_SUITE=number $(OUT)/unit
	$(SUITE_ENV) ATTND=$(OUT)/attnd CK_RUN_SUITE=golden $(OUT)/http_suite
	$(OUT)/kernelcheck --seconds 300
	@$(MAKE) --no-print-directory $(CHECKS)
	@LATENCY_MS=200 $(MAKE) --no-print-directory check-ui
	@$(MAKE) --no-print-directory check-load check-journal check-promises check-mutations
	@echo "check-all: all passed"

# One after another under -j too.  CK_RUN_SUITE=name runs one.
suites: $(OUT)/unit $(OUT)/http_suite $(OUT)/attnd_no_ui $(OUT)/catalogue $(OUT)/kernelcheck $(OUT)/attnd
	@$(MAKE) --no-print-directory unit-suites
	@$(MAKE) --no-print-directory http-suites
	@$(MAKE) --no-print-directory check-kernels

unit-suites: $(OUT)/unit
	$(Q)$(SUITE_ENV) $(OUT)/unit

http-suites:
	$(Q)rm -f $(OUT)/exchanges
	@$(MAKE) --no-print-directory recorded-catalogue
	@$(MAKE) --no-print-directory recorded-http

# Both add to the exchanges that check-openapi looks at.
recorded-catalogue: $(OUT)/catalogue $(OUT)/attnd
	$(Q)$(SUITE_ENV) $(RECORD) ATTND=$(OUT)/attnd $(OUT)/catalogue
recorded-http: $(OUT)/http_suite $(OUT)/attnd_no_ui $(OUT)/attnd
	$(Q)$(SUITE_ENV) $(RECORD) ATTND=$(OUT)/attnd $(OUT)/http_suite

check-kernels: $(OUT)/kernelcheck
	$(Q)$(SUITE_ENV) $(OUT)/kernelcheck --seconds $(KERNELCHECK_SECONDS)

asan: ## the suites and QUICK=1 checks under AddressSanitizer and LeakSanitizer
ubsan: ## the same under UndefinedBehaviorSanitizer
tsan: ## the same under ThreadSanitizer
asan ubsan tsan: | build/deps/check
	@$(MAKE) --no-print-directory VARIANT=$@ KERNELCHECK_SECONDS=10 suites
	@$(MAKE) --no-print-directory VARIANT=$@ QUICK=1 $(CHECKS_OF_$@)
	@echo "$@: all passed"

# What docs/TESTING.md says of them.  Each can be run alone: make VARIANT=tsan QUICK=1 check-kill.
CHECKS_OF_tsan  = $(filter-out check-fault,$(CHECKS_OF_ubsan))
CHECKS_OF_ubsan = $(filter-out check-arm64 check-clients check-cluster check-image check-install check-kubernetes check-ui,$(CHECKS))
CHECKS_OF_asan  = $(CHECKS_OF_ubsan)

# detect_stack_use_after_return stays off: gcc 12 then misaligns AVX-512 locals (its bug 110027), and
# every softmax faults.
SUITE_ENV = ASAN_OPTIONS=detect_stack_use_after_return=0 \
            UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=second_deadlock_stack=1

# Exchanges with attnd, which check-openapi validates.
RECORD = EXCHANGES=$(CURDIR)/$(OUT)/exchanges

# Whole in half a minute, so that there is no shorter form of it.
check-catalogue: $(OUT)/catalogue $(OUT)/attnd ## every bad request and file of tests/catalogue/, directly, over TLS and through HAProxy
	$(Q)$(SUITE_ENV) ATTND=$(OUT)/attnd $(OUT)/catalogue

# Every parser with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer.  FUZZ_SECONDS=n or
# FUZZ_RUNS=n for each, FUZZ_TARGETS="json state" for some; QUICK=1 takes 20 s for all.
fuzz: | build/deps/fuzz ## every parser for FUZZ_SECONDS (60) or FUZZ_RUNS under libFuzzer
	@$(MAKE) --no-print-directory VARIANT=fuzz $(FUZZ_TARGETS:%=build/fuzz/fuzz_%)
	$(Q)FUZZ_SECONDS=$(if $(QUICK),2,$(FUZZ_SECONDS)) FUZZ_RUNS=$(FUZZ_RUNS) \
	    tests/fuzz/run.sh build/fuzz $(FUZZ_TARGETS)

# With gcov, which comes with gcc: what seeds and the corpora of `make fuzz` reach.
fuzz-coverage: | build/deps/check ## after fuzz: lines of parsers that seeds and gathered inputs reach
	@$(MAKE) --no-print-directory VARIANT=coverage $(FUZZ_TARGETS:%=build/coverage/replay_%)
	$(Q)tests/fuzz/coverage.sh build/coverage build/fuzz $(FUZZ_TARGETS)

check-load: $(OUT)/attnd | build/deps/load ## wrk on /decode with 32, 256 and 1,000 connections
	$(Q)ATTND=$(OUT)/attnd tests/load/decode.sh

# The whole of it runs under AddressSanitizer; QUICK=1 takes a tenth, and the daemon's own objects.
check-corrupt: $(if $(QUICK),$(OUT)/corrupt) ## every bit and length of state files damaged; 200,000 changed ones
ifeq ($(QUICK),)
	@$(MAKE) --no-print-directory VARIANT=asan build/asan/corrupt
	$(Q)$(SUITE_ENV) build/asan/corrupt
else
	$(Q)$(SUITE_ENV) $(OUT)/corrupt --quick
endif

# A sandbox that takes too much shows in whatever serves: all of it again, with the option set.
check-sandbox: $(OUT)/http_suite $(OUT)/attnd_no_ui $(OUT)/catalogue $(OUT)/kill $(OUT)/attnd ## HTTP suite, catalogue and kills with `sandbox` on; QUICK=1: sessions on disk alone
	$(Q)$(SUITE_ENV) SANDBOX=1 ATTND=$(OUT)/attnd $(if $(QUICK),CK_RUN_SUITE=durability) $(OUT)/http_suite
ifeq ($(QUICK),)
	$(Q)$(SUITE_ENV) SANDBOX=1 ATTND=$(OUT)/attnd $(OUT)/catalogue
	$(Q)$(SUITE_ENV) SANDBOX=1 ATTND=$(OUT)/attnd $(OUT)/kill --quick
endif

check-kill: $(OUT)/kill $(OUT)/attnd ## 300 SIGKILLs under load, 20 within imports, lose nothing that was answered; QUICK=1: 25 and 3
	$(Q)$(SUITE_ENV) ATTND=$(OUT)/attnd $(OUT)/kill $(if $(QUICK),--quick)

# What is recorded is the plain daemon, since a sanitizer has to be preloaded first; the daemon that
# is started on each state is of the variant.
check-power: $(OUT)/power $(OUT)/attnd ## 2,000 states of the disk after a power failure for each durability; QUICK=1: 60
	@$(MAKE) --no-print-directory VARIANT= build/attnd build/recorder.so
	$(Q)$(SUITE_ENV) ATTND=$(OUT)/attnd RECORDED=build/attnd RECORDER=build/recorder.so \
	    $(OUT)/power $(if $(QUICK),--quick) $(POWER_FLAGS)

check-power-store: $(OUT)/power_store $(OUT)/recorder.so ## 2,000 states of the disk after a power failure for slots and manifests alone, with flushes that fail; QUICK=1: 120
	$(Q)$(OUT)/power_store $(if $(QUICK),--quick)

check-store-model: $(OUT)/store_model ## all that a small model of the store can do, power failures at each step, and planted mistakes; QUICK=1: less of it
	$(Q)$(OUT)/store_model $(if $(QUICK),--quick)

check-cluster-model: $(OUT)/cluster_model ## all that a small model of a partition shared by daemons can do, stopped at each step, and each rule left out; QUICK=1: less of it
	$(Q)$(OUT)/cluster_model $(if $(QUICK),--quick)

check-retry: $(OUT)/retry $(OUT)/attnd ## 100,000 decodes, of which requests are lost, come twice or late; QUICK=1: 10,000
	$(Q)$(SUITE_ENV) ATTND=$(OUT)/attnd $(OUT)/retry $(if $(QUICK),--quick)

check-soak: $(OUT)/soak $(OUT)/attnd ## ten minutes of mixed load leave memory and descriptors where they were; QUICK=1: 10 s
	$(Q)$(SUITE_ENV) ATTND=$(OUT)/attnd $(OUT)/soak $(if $(QUICK),--quick) $(SOAK_FLAGS)

check-invariance: $(OUT)/invariance ## 10,000 decodes alone and in batches of 2 to 64, bit by bit; QUICK=1: 2,500
	$(Q)$(SUITE_ENV) $(OUT)/invariance $(if $(QUICK),--quick)

check-overload: $(OUT)/overload $(OUT)/attnd ## 2 and 10 times the load it can do, and thousands of slow clients; QUICK=1: fewer
	$(Q)$(SUITE_ENV) ATTND=$(OUT)/attnd $(OUT)/overload $(if $(QUICK),--quick)

check-framing: $(OUT)/framing $(OUT)/attnd ## 60,000 connections with odd and good requests, direct and through HAProxy and nginx; QUICK=1: 9,000
	$(Q)$(SUITE_ENV) ATTND=$(OUT)/attnd $(OUT)/framing $(if $(QUICK),--quick)

# Debian's Python, which is the one that has Debian's numpy.  The whole of it needs npm's registry,
# for the compiler that judges attn-client.d.mts.
TYPESCRIPT = build/typescript/package/lib/tsc.js
TSC = $(if $(QUICK),,$(TYPESCRIPT))
check-clients: $(OUT)/attnd | build/deps/clients $(TSC) ## clients/ and examples/ against a daemon that is killed and loses replies; QUICK=1: fewer kills
	$(Q)$(SUITE_ENV) ATTND=$(OUT)/attnd QUICK=$(QUICK) TSC=$(abspath $(TSC)) /usr/bin/python3 tests/clients/run.py

$(TYPESCRIPT): tests/clients/fetch_typescript.sh tests/tools/fetch_npm.sh | build/deps/lint
	@$< build/typescript && touch $@

check-cluster: $(OUT)/attnd | build/deps/check ## config/haproxy/haproxy.cfg before four shards that are restarted, moved, killed, cut off and full, under load, and 500 moves and kills; QUICK=1: 10
	$(Q)ATTND=$(OUT)/attnd QUICK=$(QUICK) /usr/bin/python3 tests/cluster/run.py $(CLUSTER_FLAGS)

check-v2: $(OUT)/v2 $(OUT)/attnd ## requests of the Open Inference Protocol, byte for byte as its clients send them, beside /attend; QUICK=1: fewer
	$(Q)$(SUITE_ENV) ATTND=$(OUT)/attnd $(OUT)/v2 $(if $(QUICK),--quick)

check-metrics: $(OUT)/observe $(OUT)/attnd build/prometheus/prometheus ## every query of the dashboard and every alert under Debian's Prometheus; QUICK=1: without the half minute of ranges
	$(Q)$(SUITE_ENV) ATTND=$(OUT)/attnd $(OUT)/observe $(if $(QUICK),--quick) build/prometheus

build/prometheus/prometheus: tests/metrics/fetch.sh
	@$< $(@D) && touch -h $@

# axe-core, of npm's registry, judges the page in the whole of it, and in QUICK=1 where npm is there.
AXE = $(if $(QUICK),$(if $(shell command -v npm),build/axe/axe.min.js),build/axe/axe.min.js)

check-ui: $(OUT)/attnd | build/deps/$(if $(QUICK),ui,firefox) $(AXE) ## the page in Debian's Chromium and Firefox: every control, values, keyboard, errors, accessibility; QUICK=1: one width, Chromium
	$(Q)$(SUITE_ENV) ATTND=$(OUT)/attnd QUICK=$(QUICK) AXE=$(AXE) /usr/bin/python3 tests/ui/run.py

bench-ui: $(OUT)/attnd | build/deps/ui ## the page in Chromium: first paint, hover, frames, transfers, memory, from 12 heads x 1,024 tokens to 32 x 8,192
	$(Q)ATTND=$(OUT)/attnd /usr/bin/python3 tests/ui/bench.py $(BENCH_UI_FLAGS)

screenshots: $(OUT)/attnd | build/deps/screenshots ## docs/images/viewer-*.png, of the page over tests/golden/patterns in both themes
	$(Q)ATTND=$(OUT)/attnd /usr/bin/python3 tests/ui/screenshots.py docs/images

build/axe/axe.min.js: tests/ui/fetch_axe.sh tests/tools/fetch_npm.sh | build/deps/lint
	@$< $(@D) && touch $@

# The whole of it needs npm's registry, for @redocly/cli.
check-openapi: $(OUT)/http_suite $(OUT)/attnd_no_ui $(OUT)/catalogue $(OUT)/attnd | build/deps/$(if $(QUICK),check,lint) ## every exchange of HTTP suite and catalogue is as /openapi.json says; QUICK=1: those that `suites` made
	$(Q)$(SUITE_ENV) OUT=$(OUT) tests/openapi/run.sh $(if $(QUICK),--quick)

# The whole of it runs in an instrumented daemon; QUICK=1 takes a few of the calls, and one that is not.
check-fault: $(OUT)/fault $(if $(QUICK),$(OUT)/attnd_fault) ## every call that can fail, failed in turn, and pairs; file systems that fail; QUICK=1: fewer
ifeq ($(QUICK),)
	@$(MAKE) --no-print-directory VARIANT=asan build/asan/attnd_fault
	$(Q)$(SUITE_ENV) ATTND=build/asan/attnd_fault $(OUT)/fault
else
	$(Q)$(SUITE_ENV) ATTND=$(OUT)/attnd_fault $(OUT)/fault --quick
endif

check-published: $(OUT)/attnd ## attnd inspect of each configuration of tests/published is as table.txt says; RENEW=1 writes the table
	$(Q)tests/published/check.sh $(OUT)/attnd

# Each with a daemon or unit suite of its own, built in a copy of the tree; QUICK=1 builds nothing.
check-promises: $(if $(QUICK),,$(OUT)/attnd $(OUT)/attnd_no_ui $(OUT)/unit $(OUT)/http_suite $(OUT)/catalogue) ## each promise's line broken in turn: its test notices; QUICK=1: the lines are there
	$(Q)tests/promises/run.sh $(if $(QUICK),--match)

# In a copy of the tree that stays in build/mutations/tree; QUICK=1 builds nothing.
check-mutations: | $(if $(QUICK),,build/deps/ui build/deps/clients) ## each mistake of tests/mutations/ alone: its suite notices; QUICK=1: each still has its place and suite
	$(Q)/usr/bin/python3 tests/mutations/run.py $(if $(QUICK),--match)

# QUICK=1 needs no container engine.
check-image: $(OUT)/attnd | $(if $(QUICK),build/deps/check,build/deps/image) ## the image and docker-compose.yml under Docker where it runs, else podman; ENGINE=podman chooses; QUICK=1: their variables, mounts and limits against attnd --check
	$(Q)$(SUITE_ENV) tests/image/services.py $(OUT)/attnd
ifeq ($(QUICK),)
	$(Q)tests/image/engine.sh
endif

# Under qemu-user, which says nothing about speed.  QUICK=1 takes golden cases at one level and short
# suites, and passes with a word where packages cannot be had.
ARM64_PROGRAMS = $(addprefix build/arm64/,attnd unit $(if $(QUICK),,kernelcheck http_suite))
check-arm64: $(OUT)/http_suite ## cross-compiled for arm64: instructions of inner loops, the suites under qemu-user, the sandbox under a kernel of arm64; QUICK=1: golden cases at one level and short suites
	$(Q)if $(MAKE) --no-print-directory build/deps/arm64-$(if $(QUICK),tools,kernel) $(ARM64_ROOT); then \
	    $(MAKE) --no-print-directory ARCH=arm64 $(ARM64_PROGRAMS) && \
	    tests/arm64/suites.sh $(if $(QUICK),--quick,&& tests/arm64/boot.sh); \
	else \
	    echo "check-arm64: NOT RUN: Debian's packages for arm64 are not to be had, see above"; \
	    $(if $(QUICK),true,false); \
	fi

$(ARM64_ROOT): tests/arm64/root.sh | build/deps/arm64-tools
	$(Q)$< $@ && touch $@

# The whole of it needs npm's registry, for the schemas.
check-kubernetes: $(OUT)/attnd $(if $(QUICK),,build/kubernetes/models) | build/deps/$(if $(QUICK),check,kubernetes) ## config/kubernetes against attnd --check, the published schemas and kubectl's dry run; QUICK=1: against attnd --check alone
	$(Q)$(SUITE_ENV) /usr/bin/python3 tests/kubernetes/manifests.py $(OUT)/attnd $(if $(QUICK),,build/kubernetes/models)

build/kubernetes/models: tests/kubernetes/fetch.sh | build/deps/kubernetes
	@$< $(@D) && touch $@

check-journal: $(OUT)/attnd | build/deps/load ## what a journal costs /decode: at most 5 %
	$(Q)ATTND=$(OUT)/attnd tests/load/journal.sh

bench: $(BENCH) ## every shape beside this machine's ceilings; BENCH_FLAGS="--help" lists its options
	$(Q)$(OUT)/bench $(BENCH_FLAGS)
	$(Q)$(OUT)/bench_json

bench-table: $(OUT)/bench ## the table of docs/benchmarks/ for this CPU, medians of three sweeps beside OpenBLAS and peers; BENCH_TABLE_FLAGS="--sweeps N"
	$(Q)/usr/bin/python3 tests/bench/table.py --record $(OUT)/bench-table.jsonl $(BENCH_TABLE_FLAGS) $(OUT)/bench
check-bench: ## what bench-table makes of results
	$(Q)cd tests/bench && /usr/bin/python3 -m unittest -q test_table

bench-http: $(OUT)/attnd $(OUT)/bench_http | build/deps/load ## the way over HTTP under wrk, beside bare replies and the library; QUICK=1 is short
	$(Q)OUT=$(OUT) tests/bench/http.sh $(BENCH_HTTP_FLAGS)
bench-evicted: $(OUT)/attnd ## sessions of ten times cache_bytes, decoded at random by 32 callers; BENCH_EVICTED_FLAGS="SESSIONS TOKENS SECONDS", QUICK=1 is short
	$(Q)/usr/bin/python3 tests/bench/evicted.py $(OUT)/attnd $(BENCH_EVICTED_FLAGS)

bench-restart: $(OUT)/attnd ## how soon 10,000 sessions of 1 GiB are served again after SIGTERM and SIGKILL, and what a store costs; BENCH_RESTART_FLAGS="SESSIONS GIB LAYERS WIDTH", QUICK=1 is short
	$(Q)/usr/bin/python3 tests/bench/restart.py $(OUT)/attnd $(BENCH_RESTART_FLAGS)

bench-load: $(OUT)/attnd ## from exec to ready with 1.2 GB of weights, cold and warm, beside cat; BENCH_LOAD_FLAGS="--help" lists options, QUICK=1 is short
	$(Q)/usr/bin/python3 tests/bench/load.py $(BENCH_LOAD_FLAGS)
bench-stored: $(OUT)/attnd ## from exec to ready with the same weights in bf16 and in quantised forms; QUICK=1 is short
	$(Q)/usr/bin/python3 tests/bench/stored.py $(BENCH_STORED_FLAGS)
bench-store: $(OUT)/bench_store ## slot files and manifests beside plain transfers, by turns; BENCH_STORE_FLAGS="MIB TURNS", QUICK=1 is short
	$(Q)mkdir -p $(OUT)/bench-store.d
	$(Q)$(OUT)/bench_store $(OUT)/bench-store.d $(or $(BENCH_STORE_FLAGS),$(if $(QUICK),64 3,1024 9))
bench-dtypes: $(OUT)/attnd | build/deps/clients ## what each dtype of weights does to outputs, and quantised forms before it, with normal rows and with outlier channels
	$(Q)ATTND=$(OUT)/attnd /usr/bin/python3 tests/dtypes/errors.py
	$(Q)ATTND=$(OUT)/attnd /usr/bin/python3 tests/dtypes/stored.py
bench-coding: $(OUT)/attnd | build/deps/load ## what Accept-Encoding costs a client that sends it unasked; zlib beside libdeflate
	$(Q)tests/bench/coding.py $(OUT)/attnd
bench-shard: $(OUT)/attnd ## what one shard holds and does, for docs/SCALE.md: rows a second, memory, journal
	$(Q)/usr/bin/python3 tests/bench/shard.py $(OUT)/attnd
bench-image: $(OUT)/attnd | build/deps/load build/deps/image ## what a container's network and its log take of the rate of /decode, by turns; ENGINE=docker or podman, QUICK=1 is short
	$(Q)tests/image/bench.sh
bench-mixed: $(OUT)/attnd $(OUT)/mixed ## decodes beside a long /attend: what each costs the other
	$(Q)ATTND=$(OUT)/attnd MIXED=$(OUT)/mixed tests/load/mixed.sh

bench-weights: $(OUT)/attnd ## start, memory and speed of daemons that share packed weights, beside private ones
	$(Q)/usr/bin/python3 tests/bench/weights.py --program $(OUT)/attnd $(BENCH_WEIGHTS_FLAGS)

# Measurements must not inherit another OpenBLAS kernel from the shell.
bench-kernels: $(OUT)/kernelcheck ## GFLOP/s and GB/s of every kernel at every level
	$(Q)env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(OUT)/kernelcheck --bench

# Prettier and TypeScript, of npm's registry, judge the page's scripts where npm is there.
PAGE_TOOLS = $(if $(shell command -v npm),build/prettier/package/bin/prettier.cjs $(TYPESCRIPT))
style: | build/deps/check $(PAGE_TOOLS) ## formatting, banned functions, lengths of files, functions and lines; of the page's scripts where npm is there
	@tests/tools/style.sh
	@$(if $(PAGE_TOOLS),tests/tools/page_style.sh build/prettier build/typescript,echo "style: without the page's scripts: no npm")

build/prettier/package/bin/prettier.cjs: tests/tools/fetch_prettier.sh tests/tools/fetch_npm.sh | build/deps/check
	@$< build/prettier && touch $@

presets: $(OUT)/attnd ## what config/presets/README.md says they cost is what attnd says
	@tests/tools/presets.sh $(OUT)/attnd

DOCS = tests/tools/docs.sh $(OUT)/attnd $(OUT)/libattn.a $(OUT)/table_text $(HOST)/openapi.json
docs docs-check: $(OUT)/attnd $(OUT)/libattn.a $(OUT)/table_text | build/deps/check
docs: ## print tables of options, bounds, errors, routes, fields, metrics into the documents
	@$(DOCS) --write
docs-check: ## what README.md and docs/ say is what attnd does
	@tests/tools/targets.sh
	@$(DOCS)

# What stands there up to this line is written by hand.
MODELS_PAGE = { sed '/^<!-- make models-md -->$$/q' docs/MODELS.md; $(HOST)/family_text --page; }

models-md: $(HOST)/family_text ## write docs/MODELS.md from the table of families
	$(Q)$(MODELS_PAGE) > $(HOST)/MODELS.md && cp $(HOST)/MODELS.md docs/MODELS.md

models-check: $(HOST)/family_text ## docs/MODELS.md is what the table of families says
	$(Q)$(MODELS_PAGE) | diff -u docs/MODELS.md - || \
	    { echo "models-check: docs/MODELS.md is out of date: make models-md"; exit 1; }
	@echo "models-check: docs/MODELS.md agrees with the table: ok"

layers: ## who may include what: the order of the rooms
	@tests/tools/layers.sh
	@tests/tools/layers_test.sh

format: | build/deps/check $(PAGE_TOOLS) ## apply .clang-format to all sources, Prettier to the page's scripts where npm is there
	$(Q)find include lib server tests -name '*.[ch]' -exec clang-format -i {} +
	$(Q)$(if $(PAGE_TOOLS),tests/tools/page_style.sh --write build/prettier)

# ---- Packages, installing, cleaning ------------------------------------------------------------

# A stamp for each group of packages; each group waits for the one before it, so that apt runs once
# at a time.  Nothing is compiled before the build group is there.
build/deps/run: build/deps/build
build/deps/check: build/deps/run
build/deps/load: build/deps/run
build/deps/clients: build/deps/check
build/deps/fuzz: build/deps/check
build/deps/arm64-tools: build/deps/check
build/deps/arm64-kernel: build/deps/arm64-tools
build/deps/lint: build/deps/check
build/deps/image: build/deps/check
build/deps/kubernetes: build/deps/lint
build/deps/ui: build/deps/check
build/deps/screenshots: build/deps/ui
build/deps/deb: build/deps/build
build/deps/package: build/deps/check
build/deps/%: tests/tools/deps.sh
	@tests/tools/deps.sh $*
	@mkdir -p build/deps && touch $@

deps: build/deps/fuzz build/deps/load build/deps/clients build/deps/lint build/deps/image build/deps/kubernetes build/deps/screenshots build/deps/package build/deps/arm64-kernel build/prometheus/prometheus ## install what any target needs (Debian: apt)

include config/install.mk

clean: ## remove build/
	rm -rf build

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(filter-out %.d,$(MAKEFILE_LIST)) | expand -t 24

# ---- Compiling and linking ---------------------------------------------------------------------

$(OBJ)/%.o: %.c Makefile | build/deps/build
	@mkdir -p $(@D)
	@echo "  CC    $@"
	$(Q)$(CC) $(CPPFLAGS) $(LOCAL) $(CFLAGS) $(EXTRA) -MMD -MP -c -o $@ $<

# Tests include <check.h> and <curl/curl.h>; kernelcheck and the benchmarks do not.
$(call objects,tests/unit/*.c tests/http/*.c tests/common/*.c tests/catalogue/*.c tests/kill/*.c tests/retry/*.c tests/soak/*.c tests/overload/*.c tests/framing/*.c tests/fault/*.c tests/power/*.c tests/power_store/*.c tests/metrics/*.c): | build/deps/check

# /openapi.json: a program prints it from the tables that the daemon serves by, of which it links
# those of OPENAPI_TABLES, without what their files need besides.  It runs on the machine that builds, so
# neither ARCH nor VARIANT nor CC is for it.
HOST_CC = gcc
HOST_CFLAGS = -std=c11 -O1 -ffunction-sections -fdata-sections $(WARNINGS) $(WERROR)
OPENAPI_TABLES = lib/kernels/stats.c lib/basics/widen.c $(addprefix server/,base/errors.c config/bounds.c \
                 api/sessions.c api/session_change.c api/session_batch.c wire/call_fields.c \
                 wire/tensor_binary.c wire/output_tensor.c)
OPENAPI_OBJS = $(patsubst %.c,$(HOST)/%.o,$(filter-out %/routes.c,$(wildcard server/openapi/*.c)) $(OPENAPI_TABLES))
OPENAPI_FILES = $(HOST)/openapi.json.gz $(HOST)/openapi_no_ui.json.gz

define host_cc
@mkdir -p $(@D)
@echo "  CC    $@"
$(Q)$(HOST_CC) $(CPPFLAGS) -Ilib -Iserver $(HOST_CFLAGS) $(1) -MMD -MP -c -o $@ $<
endef

# What a program prints, and that compressed.
print_gz = $(Q)$< > $(@:.gz=) && gzip -9nc $(@:.gz=) > $@

$(HOST)/%.o: %.c Makefile | build/deps/build
	$(call host_cc)
$(HOST)/%_no_ui.o: %.c Makefile | build/deps/build
	$(call host_cc,-DSRV_NO_UI)

$(HOST)/openapi_text: $(HOST)/server/openapi/routes.o
$(HOST)/openapi_no_ui_text: $(HOST)/server/openapi/routes_no_ui.o
$(HOST)/openapi_text $(HOST)/openapi_no_ui_text: $(OPENAPI_OBJS)
	@echo "  LINK  $@"
	$(Q)$(HOST_CC) -Wl,--gc-sections -o $@ $^ -ljansson

$(HOST)/%.json.gz: $(HOST)/%_text
	$(print_gz)

$(OBJ)/server/api/openapi.o $(OBJ)/server/api/openapi_no_ui.o: $(OPENAPI_FILES)

# attnd inspect --family and docs/MODELS.md: likewise, from the files of lib/families/ that have rows.
FAMILY_ROWS := $(shell grep -l '"families/rows.h"' lib/families/*.c)
$(HOST)/family_text: $(patsubst %.c,$(HOST)/%.o,$(wildcard server/family_text/*.c) $(FAMILY_ROWS))
	@echo "  LINK  $@"
	$(Q)$(HOST_CC) -Wl,--gc-sections -o $@ $^

$(HOST)/families.gz: $(HOST)/family_text
	$(print_gz)

$(OBJ)/server/command_family.o: $(HOST)/families.gz

# The attention viewer: server/ui/ui.c embeds its files, compressed.  UI=0 links a table of routes without it,
# and then nothing asks for ui.o.
UI = 1
UI_MAX_BYTES = 200000
UI_MODEL_MAX_BYTES = 1000000
UI_MODEL  = $(wildcard server/ui/demo*.json server/ui/*.safetensors)
UI_FILES  = $(sort $(foreach suffix,html css svg js mjs,$(wildcard server/ui/*.$(suffix)))) $(UI_MODEL)
UI_CODED  = $(patsubst %,$(OBJ)/server/ui/%.gz,$(notdir $(UI_FILES)))
UI_HEADER = $(OBJ)/server/ui/files.h
UI_OBJS_0 = $(OBJ)/server/api/routes_no_ui.o $(OBJ)/server/api/openapi_no_ui.o
UI_LINKED = $(OBJ)/server/ui/linked
$(if $(filter 0 1,$(UI)),,$(error UI is 0 or 1, not $(UI)))

$(OBJ)/server/ui/%.gz: server/ui/%
	@mkdir -p $(@D)
	$(Q)gzip -9nc $< > $@

$(UI_HEADER): ui-files
	@mkdir -p $(@D)
	@number=0; { printf '#define SRV_UI_FILES(X)'; for name in $(notdir $(UI_FILES)); do \
	    number=$$((number + 1)); printf ' \\\n    X(%s, "%s", "%s")' $$number $$name $(@D)/$$name.gz; done; echo; } > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

.PHONY: ui-files check-ui-size
ui-files:
check-ui-size: $(UI_CODED) ## the attention viewer takes at most 200,000 bytes of the binary, its model a million
	@wc -c $^ | awk -v most=$(UI_MAX_BYTES) -v model_most=$(UI_MODEL_MAX_BYTES) ' \
	    { print } /\/demo.*(json|safetensors)\.gz$$/ { model += $$1 } \
	    END { page = $$1 - model; wrong = page > most || model > model_most; printf \
	    "check-ui-size: %d files, %d bytes in the binary, at most %d; of its model %d, at most %d%s\n", \
	    NR - 1, page, most, model, model_most, wrong ? "" : ": ok"; exit wrong }'

$(OBJ)/server/ui/ui.o: EXTRA = -include $(UI_HEADER)
$(OBJ)/server/ui/ui.o: $(UI_HEADER) $(UI_CODED)

$(UI_OBJS_0): $(OBJ)/%_no_ui.o: %.c Makefile | build/deps/build
	@mkdir -p $(@D)
	@echo "  CC    $@"
	$(Q)$(CC) $(CPPFLAGS) $(LOCAL) $(CFLAGS) -DSRV_NO_UI -MMD -MP -c -o $@ $<

# Which of the two was linked last.
$(UI_LINKED): ui-files
	@mkdir -p $(@D)
	@[ "$$(cat $@ 2>/dev/null)" = $(UI) ] || echo $(UI) > $@

# The daemon without its main, so that unit suites link what they test.
$(OUT)/libattn.a: $(LIB_OBJS)
$(OBJ)/server.a: $(SERVER_OBJS)
%.a:
	@echo "  AR    $@"
	$(Q)rm -f $@ && $(AR) qcs $@ $^

link = @echo "  LINK  $@"; $(CC) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(call pkg_libs,$(1))

$(OUT)/attnd: $(OBJ)/server/main.o $(UI_OBJS_$(UI)) $(OBJ)/server.a $(OUT)/libattn.a $(UI_LINKED)
	$(call link,$(SERVER_PKGS) $(LIB_PKGS))

# As `make UI=0` links it, for the HTTP suite.
$(OUT)/attnd_no_ui: $(OBJ)/server/main.o $(UI_OBJS_0) $(OBJ)/server.a $(OUT)/libattn.a
	$(call link,$(SERVER_PKGS) $(LIB_PKGS))

$(OUT)/unit: $(UNIT_OBJS) $(OBJ)/server.a $(OUT)/libattn.a
	$(call link,$(TEST_PKGS) $(SERVER_PKGS) $(LIB_PKGS))

# tests/http/suite_run.c and tests/common/marks.c stand before libcheck's own.
$(addprefix $(OUT)/,http_suite catalogue kill power power_store retry soak overload framing v2 fault observe): LDFLAGS += -Wl,--wrap=_ck_assert_failed
$(addprefix $(OUT)/,unit http_suite catalogue kill power power_store retry soak overload framing v2 fault observe): LDFLAGS += -Wl,--wrap=_mark_point

$(OUT)/http_suite: $(HTTP_OBJS) $(OUT)/libattn.a | $(OUT)/slow_sync.so $(OUT)/held_disk.so
	$(call link,$(TEST_PKGS) $(LIB_PKGS))

$(OUT)/slow_sync.so $(OUT)/held_disk.so: $(OUT)/%.so: tests/preload/%.c
	@echo "  LINK  $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -std=c11 -O2 -fPIC $(WARNINGS) -Wno-missing-prototypes -shared -o $@ $<

$(OUT)/catalogue: $(CATALOGUE_OBJS) $(COMMON_OBJS) $(OUT)/libattn.a
	$(call link,$(TEST_PKGS) $(LIB_PKGS))

$(OUT)/fuzz_%: $(OBJ)/tests/fuzz/%.o $(OBJ)/server.a $(OUT)/libattn.a
	@echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(call pkg_libs,$(SERVER_PKGS) $(LIB_PKGS))

$(OUT)/replay_%: $(OBJ)/tests/fuzz/%.o $(OBJ)/tests/fuzz/replay.o $(OBJ)/server.a $(OUT)/libattn.a
	$(call link,$(SERVER_PKGS) $(LIB_PKGS))

$(OUT)/kill: $(KILL_OBJS) $(filter-out %/main.o,$(HTTP_OBJS)) $(OUT)/libattn.a
	$(call link,$(TEST_PKGS) $(LIB_PKGS))

$(OUT)/power: $(POWER_OBJS) $(OUT)/libattn.a
	$(call link,$(TEST_PKGS) $(LIB_PKGS))

$(OUT)/recorder.so: tests/power/recorder.c tests/power/log.h Makefile | build/deps/build
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -shared -o $@ $<

$(OUT)/power_store: $(POWER_STORE_OBJS) $(OBJ)/server.a $(OUT)/libattn.a
	$(call link,$(TEST_PKGS) $(SERVER_PKGS) $(LIB_PKGS))

$(OUT)/store_model: $(MODEL_OBJS)
	$(call link)

$(OUT)/cluster_model: $(CLUSTER_MODEL_OBJS)
	$(call link)

$(OUT)/retry: $(RETRY_OBJS) $(filter-out %/main.o,$(HTTP_OBJS)) $(OUT)/libattn.a
	$(call link,$(TEST_PKGS) $(LIB_PKGS))

$(OUT)/soak: $(SOAK_OBJS) $(filter-out %/main.o,$(HTTP_OBJS)) $(OUT)/libattn.a
	$(call link,$(TEST_PKGS) $(LIB_PKGS))

$(OUT)/invariance: $(INVARIANCE_OBJS) $(OUT)/libattn.a
	$(call link,$(LIB_PKGS))

$(OUT)/overload: $(OVERLOAD_OBJS) $(filter-out %/main.o,$(HTTP_OBJS)) $(OUT)/libattn.a
	$(call link,$(TEST_PKGS) $(LIB_PKGS))

$(OUT)/observe: $(OBSERVE_OBJS) $(filter-out %/main.o,$(HTTP_OBJS)) $(OUT)/libattn.a
	$(call link,$(TEST_PKGS) $(LIB_PKGS))

$(OUT)/framing: $(FRAMING_OBJS) $(filter-out %/main.o,$(HTTP_OBJS)) $(OUT)/libattn.a
	$(call link,$(TEST_PKGS) $(LIB_PKGS))

$(OUT)/v2: $(V2_OBJS) $(OUT)/libattn.a
	$(call link,$(TEST_PKGS) $(LIB_PKGS))

$(OUT)/fault: $(FAULT_OBJS) $(filter-out %/main.o,$(HTTP_OBJS)) $(OUT)/libattn.a
	$(call link,$(TEST_PKGS) $(LIB_PKGS))

# Calls of ours go through the shim by --wrap, those of libmicrohttpd because a copy of it names them
# otherwise.
WRAPPED = malloc calloc realloc aligned_alloc posix_memalign strdup free open openat opendir fdopendir \
          fopen read pread write pwrite fsync fdatasync renameat pthread_create mmap ftruncate eventfd \
          posix_fallocate fallocate socket dup mkdir flock close
WRAPPED_HTTP = malloc calloc realloc strdup free mmap accept4 epoll_create1

$(OBJ)/tests/fault/libmicrohttpd.a: Makefile | build/deps/check
	@mkdir -p $(@D)
	$(Q)objcopy $(foreach name,$(WRAPPED_HTTP),--redefine-sym $(name)=fault_http_$(name)) \
	    $$(pkg-config --variable=libdir libmicrohttpd)/libmicrohttpd.a $@

$(OUT)/attnd_fault: LDFLAGS += $(WRAPPED:%=-Wl,--wrap=%)
$(OUT)/attnd_fault: $(OBJ)/server/main.o $(OBJ)/tests/fault/shim.o $(OBJ)/server.a \
                    $(OUT)/libattn.a $(OBJ)/tests/fault/libmicrohttpd.a
	$(call link,$(filter-out libmicrohttpd,$(SERVER_PKGS)) $(LIB_PKGS))

$(OUT)/corrupt: $(CORRUPT_OBJS) $(OBJ)/server.a $(OUT)/libattn.a
	$(call link,$(SERVER_PKGS) $(LIB_PKGS))

$(OUT)/kernelcheck: $(KERNEL_OBJS) $(OUT)/libattn.a
	$(call link,$(LIB_PKGS))

$(OUT)/bench_store: $(OBJ)/tests/bench/store.o $(OBJ)/tests/bench/samples.o $(OBJ)/server.a $(OUT)/libattn.a
	$(call link,$(SERVER_PKGS) $(LIB_PKGS))

$(OUT)/bench_json: $(OBJ)/tests/bench/json.o $(call objects_of,server/base/*.c server/wire/json.c server/wire/tensor_json.c) \
                   $(OUT)/libattn.a
	$(call link,$(LIB_PKGS))

$(OUT)/bench_http: $(BENCH_HTTP) $(OUT)/libattn.a
	$(call link,libmicrohttpd $(LIB_PKGS))
$(OUT)/mixed: $(OBJ)/tests/load/mixed.o
	$(call link)

$(OUT)/bench: $(BENCH_OBJS) $(OUT)/libattn.a
	$(call link,$(LIB_PKGS))

-include $(wildcard $(OBJ)/*/*.d $(OBJ)/*/*/*.d $(HOST)/*/*.d $(HOST)/*/*/*.d)
