# What runs on this machine: sources of the hypervisor that need no machine, and with them unit
# tests, the simulation, checkers of files, and fuzzers.

# libc has a sched_yield of its own, which sanitizers call.
HOST_CFLAGS := -std=gnu11 -O2 -g $(WARN) -Iinclude -Ihv -I. -D_GNU_SOURCE \
	-Dsched_yield=hv_sched_yield \
	-fno-strict-aliasing -MMD -MP
# The machine itself, which tests/unit/fake_*.c and tests/sim play.
HOST_PLATFORM := $(addprefix hv/platform/,acpi.c apic.c bootinfo.c crashlog.c dmar.c mptable.c \
	rtc.c terminal.c tscrate.c)
HOST_SKIP   := hv/main.c drivers/uart.c common/string.c hv/sched/machine.c \
	hv/pci/space.c $(filter-out hv/x86/errata.c hv/x86/place.c,$(wildcard hv/x86/*.c)) \
	$(filter-out $(HOST_PLATFORM),\
	$(wildcard hv/platform/*.c))
HOST_C      := $(filter-out $(HOST_SKIP) labs/%,$(HV_C)) $(DRIVERS_C) guestlib/pagecache.c \
	guestlib/pagecache_io.c guestlib/pagecache_tune.c guestlib/extents.c
HOST_OBJ    := $(HOST_C:%.c=$(B)/host/%.o)
LABS_OBJ    := $(patsubst %.c,$(B)/host/%.o,$(wildcard labs/*.c))

# MORE are flags of single objects, and all of them are in $(B)/host/flags as well.
GUEST_INC := -Iguestlib/include
SIM_INC   := -Itests/sim $(GUEST_INC)
$(B)/host/guestlib/%.o: MORE := $(GUEST_INC)
$(addprefix $(B)/host/tests/unit/,test_page%.o test_seed.o test_duty.o test_workload.o): \
	MORE := $(GUEST_INC)
$(B)/host/tests/sim/%.o $(B)/host/tests/unit/test_sched%.o: MORE := $(SIM_INC)
$(B)/host/netstack/%.o $(B)/host/tests/unit/test_net%.o $(B)/host/tests/unit/net_wire.o: \
	MORE := $(NET_INC)
$(B)/host/tools/cfgdump.o $(B)/host/tests/unit/test_shell_person.o: MORE := -I$(B)

# These check at the entry of functions that the lock is held which they need (hv/lib/spinlock.h).
CHECKED := $(addprefix $(B)/host/hv/,event/%.o mm/%.o sched/%.o)
$(CHECKED): MORE := -DTAKT_CHECKED

$(B)/host/flags: FORCE
	@tools/stamp.sh $@ '$(CC) $(HOST_CFLAGS) -DTAKT_CHECKED $(SIM_INC) $(NET_INC) -I$(B)'
$(B)/host/%.o: %.c $(B)/host/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(HOST_CFLAGS) $(MORE) -c $< -o $@

$(B)/host/objects: FORCE
	@tools/stamp.sh $@ '$(HOST_OBJ)'
$(B)/libhv.a: $(HOST_OBJ) $(B)/host/objects
	@rm -f $@
	$(call say,AR)
	$(Q)ar rcs $@ $(HOST_OBJ)

# ---- unit tests: each tests/unit/test_*.c is one CMocka program; tests/unit/fake_*.c stand in fo

UNIT      := $(patsubst tests/unit/%.c,$(B)/unit/%,$(wildcard tests/unit/test_*.c))
FAKES_C   := $(wildcard tests/unit/fake_*.c tests/unit/entry_*.c)
FAKES_OBJ := $(patsubst %.c,$(B)/host/%.o,$(FAKES_C))
# The two archives need each other.
HV_AND_FAKES := -Wl,--start-group $(B)/libhv.a $(B)/libfakes.a -Wl,--end-group

$(B)/host/fakes-objects: FORCE
	@tools/stamp.sh $@ '$(FAKES_OBJ)'
$(B)/libfakes.a: $(FAKES_OBJ) $(B)/host/fakes-objects
	@rm -f $@
	$(call say,AR)
	$(Q)ar rcs $@ $(FAKES_OBJ)

$(B)/unit/%: $(B)/host/tests/unit/%.o $(B)/libhv.a $(B)/libfakes.a
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) -o $@ $< $(HV_AND_FAKES) -lcmocka

# What counts instructions counts those of the image.
COUNTED_C := $(wildcard hv/store/*.c) $(addprefix common/,format.c string.c) \
	hv/lib/parse.c hv/lib/printf.c hv/mm/heap.c
COUNTED   := $(COUNTED_C:%.c=$(B)/image/%.o)
$(B)/unit/test_store_bounds: $(B)/host/tests/unit/test_store_bounds.o $(COUNTED) $(B)/libhv.a \
	$(B)/libfakes.a
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) -no-pie -o $@ $< $(COUNTED) $(HV_AND_FAKES) -lcmocka

unit-build: $(UNIT)
unit: $(UNIT) ## runs unit and property tests, on the host
	@printf '%s\n' $(UNIT) | \
	    xargs -P2 -n1 sh -c './$$0 > $$0.log 2>&1 || { cat $$0.log; exit 255; }; \
	    echo "$$0: $$(grep "PASSED" $$0.log)"'

# ---- the network stack, in unit tests ----------------------------------------------------------

NET_OBJ      := $(patsubst %.c,$(B)/host/%.o,$(NET_C)) $(addprefix $(B)/host/,$(LWIP_OBJ))
NET_TEST_C   := $(wildcard tests/unit/test_net*.c) tests/unit/net_wire.c

$(patsubst %.c,$(B)/host/%.o,$(NET_C) $(NET_TEST_C)): netstack/lwipopts.h | $(LWIP)/VERSION
$(addprefix $(B)/host/,$(LWIP_OBJ)): $(B)/host/lwip/%.o: $(B)/host/flags $(LWIP)/VERSION \
	netstack/lwipopts.h
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(filter-out $(WARN),$(HOST_CFLAGS)) $(NET_INC) -c $(LWIP)/src/$*.c -o $@
$(B)/host/net-objects: FORCE
	@tools/stamp.sh $@ '$(NET_OBJ)'
$(B)/libnet.a: $(NET_OBJ) $(B)/host/net-objects
	@rm -f $@
	$(call say,AR)
	$(Q)ar rcs $@ $(NET_OBJ)
$(B)/unit/test_net%: $(B)/host/tests/unit/test_net%.o $(B)/host/tests/unit/net_wire.o $(B)/libnet.a
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) -o $@ $^ -lcmocka

# ---- checkers ----------------------------------------------------------------------------------

# The configuration parser, the policies and the loader of the image, for scripts: checks a file,
# and prints it as JSON. It is a part of `make run`, so it links only the few objects that it needs.
CFGDUMP_C   := tools/cfgdump.c $(wildcard hv/config*.c common/*.c hv/lib/*.c hv/sched/*.c) \
	hv/shell/script.c hv/image/load.c hv/image/cmdline.c \
	$(filter labs/%,$(HV_C))
CFGDUMP_OBJ := $(patsubst %.c,$(B)/host/%.o,$(filter-out $(HOST_SKIP),$(CFGDUMP_C)))

# The names of the shell's commands, cut out of its tables, to check scripts with. The tables
# themselves would need all of the hypervisor.
$(B)/commands.inc: $(wildcard hv/shell/*.c)
	@mkdir -p $(@D)
	$(Q)sed -n -e '/^const struct shell_command .*_commands\[\] = {/,/^};/ {' \
	    -e 's/^    { "\([^"]*\)".*/"\1",/p' -e '}' $^ > $@
$(B)/host/tools/cfgdump.o $(B)/host/tests/unit/test_shell_person.o: $(B)/commands.inc
$(B)/host/cfgdump-objects: FORCE
	@tools/stamp.sh $@ '$(CFGDUMP_OBJ)'
$(B)/cfgdump: $(CFGDUMP_OBJ) $(B)/host/cfgdump-objects
	$(call say,CC)
	$(Q)$(CC) -o $@ $(CFGDUMP_OBJ)

# Takt's probes over the description of a real machine.
$(B)/machine-check: $(B)/host/tools/machine-check.o $(B)/libhv.a $(B)/libfakes.a
	$(call say,CC)
	$(Q)$(CC) -o $@ $< $(HV_AND_FAKES)

# The store's operations a second.
$(B)/store-bench: $(B)/host/tools/store-bench.o $(B)/libhv.a $(B)/libfakes.a
	$(call say,CC)
	$(Q)$(CC) -o $@ $< $(HV_AND_FAKES)

# ---- the simulation of the scheduler: tests/sim with hv/sched ----------------------------------

SIM_C   := $(filter-out $(addprefix tests/sim/,main.c cost.c scale.c),$(wildcard tests/sim/*.c))
SIM_OBJ := $(SIM_C:%.c=$(B)/host/%.o)

$(B)/host/sim-objects: FORCE
	@tools/stamp.sh $@ '$(SIM_OBJ)'
$(B)/libsim.a: $(SIM_OBJ) $(B)/host/sim-objects
	@rm -f $@
	$(call say,AR)
	$(Q)ar rcs $@ $(SIM_OBJ)
$(B)/sim: $(B)/host/tests/sim/main.o $(LABS_OBJ) $(B)/libsim.a $(B)/libhv.a
	$(call say,CC)
	$(Q)$(CC) -o $@ $^
# What a decision costs is counted without the checks that only the host build has.
COST_FLAGS := $(filter-out -MMD -MP,$(HOST_CFLAGS)) $(SIM_INC)
COST_SRC   := tests/sim/cost.c \
	$(filter-out hv/sched/machine.c hv/sched/setup.c,$(wildcard hv/sched/*.c)) \
	$(wildcard hv/lib/*.c) common/format.c common/hist.c
$(B)/cost-flags: FORCE
	@tools/stamp.sh $@ '$(CC) $(COST_FLAGS) $(COST_SRC)'
COST_H     := $(wildcard common/*.h hv/sched/*.h hv/lib/*.h hv/trace/*.h tests/sim/*.h)
$(B)/sched-cost: $(COST_SRC) $(B)/cost-flags $(COST_H)
	$(call say,CC)
	$(Q)$(CC) $(COST_FLAGS) -o $@ $(COST_SRC)
$(B)/unit/test_sched%: $(B)/host/tests/unit/test_sched%.o $(LABS_OBJ) $(B)/libsim.a $(B)/libhv.a
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) -o $@ $^ -lcmocka

# How fast it is: a release build without assertions of its own, all in one, and one for machines of
# up to 512 pCPUs.
RELEASE     := $(filter-out -O2 -g -MMD -MP,$(HOST_CFLAGS)) -O3 -flto -march=native -DNDEBUG \
	$(SIM_INC)
RELEASE_SRC := $(addprefix tests/sim/,scale.c sim.c measure.c) \
	$(filter-out hv/sched/machine.c,$(wildcard hv/sched/*.c)) \
	$(addprefix hv/lib/,timerq.c parse.c printf.c) common/format.c common/hist.c
RELEASE_DEP := $(RELEASE_SRC) \
	$(wildcard common/*.h hv/sched/*.h hv/lib/*.h tests/sim/*.h)

$(B)/release/flags: FORCE
	@tools/stamp.sh $@ '$(CC) $(RELEASE) $(RELEASE_SRC)'
$(B)/release/scale: $(RELEASE_DEP) $(B)/release/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(RELEASE) -o $@ $(RELEASE_SRC)
$(B)/release/scale-wide: $(RELEASE_DEP) $(B)/release/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(RELEASE) -DTAKT_MAX_CPUS=512 -o $@ $(RELEASE_SRC)

sim-scale: $(B)/release/scale $(B)/release/scale-wide ## measures how fast the simulation is
	$(B)/release/scale
	$(B)/release/scale-wide
	@$(MAKE) $(J) sim-whole-build
	@$(PYTHON) tools/wholescale.py

sim-costs: ## measures what an instruction and an exit cost in the simulation of the whole machine
	@tools/deps.sh build net bochs
	@$(MAKE) lwip
	@$(MAKE) $(J) all sim-whole-build
	@$(PYTHON) tools/simcosts.py

# ---- the simulation of the whole machine: tests/whole with hv/ and guests ----------------------

# Guests and hypervisor count their instructions (docs/simulation.md). They are compiled as for a
# hosted environment, so that common/insn.h takes functions for CPUID and the like.
WHOLE_COUNT  := -fsanitize-coverage=trace-pc
COUNT        := tests/whole/count.awk
# Compiles the file $(1) to $@ with the flags $(2), and puts the counting into the code, in place of
# the compiler's calls; $(3) is `guest` or `hv`.
define compile-counted
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(2) $(MORE) $(WHOLE_COUNT) -MT $@ -MF $(@:.o=.d) -S $(1) -o $(@:.o=.s)
	$(Q)awk -v of=$(3) -f $(COUNT) $(@:.o=.s) > $(@:.o=.counted.s)
	$(Q)$(CC) -c $(@:.o=.counted.s) -o $@
endef
WHOLE_WRAP   := memcpy memset
WHOLE_H_WRAP := $(WHOLE_WRAP) trace_write
WHOLE_GUEST  := $(filter-out -ffreestanding -fno-pic -fno-pie -MMD -MP,$(GUEST_CFLAGS)) \
	-fno-builtin -fpie -fvisibility=hidden -ffixed-r15 -MMD -MP
WHOLE_G_INC  := -Itests/whole/guest/include -Itests/whole/include
WHOLE_G_FLAGS := $(WHOLE_G_INC) $(WHOLE_GUEST)
WHOLE_G_C    := $(wildcard guestlib/*.c common/*.c) $(DRIVERS_C) tests/whole/guest/start.c
WHOLE_G_OBJ  := $(WHOLE_G_C:%.c=$(B)/whole/guest/%.o)
WHOLE_NET    := $(addprefix $(B)/whole/guest/,$(patsubst %.c,%.o,$(NET_C) $(NET_OWN)) $(LWIP_OBJ))
WHOLE_NET_O  := $(NET_GUESTS:%=$(B)/whole/guest/guests/%.o)
# Without bench.c and iobench.c, which measure instructions of the image.
WHOLE_G      := $(filter-out bench iobench,$(patsubst guests/%.c,%,$(wildcard guests/*.c)))
WHOLE_GUESTS := $(WHOLE_G:%=$(B)/whole/%.elf)

$(B)/whole/guest-flags: FORCE
	@tools/stamp.sh $@ '$(CC) $(WHOLE_G_FLAGS) $(WHOLE_COUNT) $(NET_INC)'
$(B)/whole/guest/tests/whole/guest/start.o: WHOLE_COUNT :=
$(WHOLE_NET): MORE := $(NET_INC) -Dmem_init=lwip_mem_init
$(WHOLE_NET_O): MORE := $(NET_INC)
$(WHOLE_NET) $(WHOLE_NET_O): netstack/lwipopts.h | $(LWIP)/VERSION
$(B)/whole/guest/lwip/%.o: $(B)/whole/guest-flags $(COUNT) $(LWIP)/VERSION
	$(call compile-counted,$(LWIP)/src/$*.c,$(filter-out $(WARN),$(WHOLE_G_FLAGS)),guest)
$(B)/whole/guest/%.o: %.c $(B)/whole/guest-flags $(COUNT)
	$(call compile-counted,$<,$(WHOLE_G_FLAGS),guest)
$(B)/whole/guest-objects: FORCE
	@tools/stamp.sh $@ '$(WHOLE_G_OBJ) $(WHOLE_NET)'
$(B)/whole/libguest.a: $(WHOLE_G_OBJ) $(B)/whole/guest-objects
	@rm -f $@
	$(call say,AR)
	$(Q)ar rcs $@ $(WHOLE_G_OBJ)
$(B)/whole/libguestnet.a: $(WHOLE_NET) $(B)/whole/guest-objects
	@rm -f $@
	$(call say,AR)
	$(Q)ar rcs $@ $(WHOLE_NET)
$(filter $(NET_GUESTS:%=$(B)/whole/%.elf),$(WHOLE_GUESTS)): $(B)/whole/libguestnet.a
$(B)/whole/%.elf: $(B)/whole/guest/guests/%.o $(B)/whole/libguest.a tests/whole/guest/guest.ld
	$(call say,LD)
	$(Q)ld -pie --no-dynamic-linker -nostdlib -z max-page-size=4096 -z noexecstack -z norelro \
	    -z notext $(WHOLE_WRAP:%=--wrap=%) -T tests/whole/guest/guest.ld -o $@ $< \
	    $(filter %/libguestnet.a,$^) $(B)/whole/libguest.a

# The hypervisor above hv/virt and hv/platform. tests/whole has all that is left out.
WHOLE_SKIP   := hv/main.c hv/preflight.c hv/probe.c drivers/uart.c common/string.c \
	$(wildcard hv/selftest/*.c) hv/pci/space.c \
	$(addprefix hv/virt/,virt.c vmx.c vmx_apic.c vmx_run.c svm.c svm_run.c) \
	$(filter-out hv/x86/errata.c hv/x86/place.c,$(wildcard hv/x86/*.c)) \
	$(filter-out \
	$(addprefix hv/platform/,acpi.c bootinfo.c crashlog.c dmar.c mptable.c timer.c),\
	$(wildcard hv/platform/*.c))
WHOLE_HV_C   := $(filter-out $(WHOLE_SKIP) labs/%,$(HV_C)) $(wildcard labs/*.c)
WHOLE_C      := $(wildcard tests/whole/*.c)
WHOLE_OBJ    := $(patsubst %.c,$(B)/whole/hv/%.o,$(WHOLE_HV_C) $(WHOLE_C))
WHOLE_H_INC  := -Itests/whole/hv -Itests/whole/include

$(B)/whole/hv/tests/whole/%.o: WHOLE_COUNT :=
$(B)/whole/hv-flags: FORCE
	@tools/stamp.sh $@ '$(CC) $(WHOLE_H_INC) $(HOST_CFLAGS) $(WHOLE_COUNT)'
$(B)/whole/hv/%.o: %.c $(B)/whole/hv-flags $(COUNT)
	$(call compile-counted,$<,$(WHOLE_H_INC) $(HOST_CFLAGS),hv)
$(B)/whole/hv-objects: FORCE
	@tools/stamp.sh $@ '$(WHOLE_OBJ)'
$(B)/sim-whole: $(WHOLE_OBJ) $(B)/whole/hv-objects
	$(call say,CC)
	$(Q)$(CC) $(WHOLE_H_WRAP:%=-Wl,--wrap=%) -o $@ $(WHOLE_OBJ)

sim-whole-build: $(B)/sim-whole $(WHOLE_GUESTS)

# ---- fuzz targets: tests/fuzz/fuzz_*.c with libFuzzer and sanitizers ---------------------------

FUZZ        := $(patsubst tests/fuzz/%.c,$(B)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_CC     ?= clang
FUZZ_CFLAGS := $(filter-out -Werror,$(HOST_CFLAGS)) -O1 -Wno-missing-field-initializers \
	-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined \
	-fno-omit-frame-pointer
FUZZ_OBJ    := \
	$(patsubst %.c,$(B)/fuzz/obj/%.o,$(filter-out $(HOST_SKIP),$(HV_C)) $(DRIVERS_C) $(FAKES_C))
FUZZ_NET    := \
	$(addprefix $(B)/fuzz/obj/,$(NET_C:.c=.o) tests/unit/net_wire.o tests/fuzz/fuzz_net.o)
FUZZ_LWIP   := $(addprefix $(B)/fuzz/obj/,$(LWIP_OBJ))
FUZZ_TIME   ?= 20

$(FUZZ_NET): MORE := $(NET_INC)
$(FUZZ_NET): netstack/lwipopts.h | $(LWIP)/VERSION

$(B)/fuzz/flags: FORCE
	@tools/stamp.sh $@ '$(FUZZ_CC) $(FUZZ_CFLAGS) $(NET_INC)'
$(B)/fuzz/obj/%.o: %.c $(B)/fuzz/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(FUZZ_CC) $(FUZZ_CFLAGS) $(MORE) -c $< -o $@
# lwIP reads headers where they lie, which x86 does not mind.
$(FUZZ_LWIP): $(B)/fuzz/obj/lwip/%.o: $(B)/fuzz/flags $(LWIP)/VERSION netstack/lwipopts.h
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(FUZZ_CC) $(filter-out $(WARN),$(FUZZ_CFLAGS)) -fno-sanitize=alignment $(NET_INC) -c \
	    $(LWIP)/src/$*.c -o $@

$(B)/fuzz/objects: FORCE
	@tools/stamp.sh $@ '$(FUZZ_OBJ)'
$(B)/fuzz/libhv.a: $(FUZZ_OBJ) $(B)/fuzz/objects
	@rm -f $@
	$(call say,AR)
	$(Q)ar rcs $@ $(FUZZ_OBJ)
$(B)/fuzz/%: $(B)/fuzz/obj/tests/fuzz/%.o $(B)/fuzz/libhv.a
	$(call say,CC)
	$(Q)$(FUZZ_CC) -fsanitize=fuzzer,address,undefined -o $@ $< \
	    -Wl,--start-group $(B)/fuzz/libhv.a -Wl,--end-group
$(B)/fuzz/fuzz_net: $(FUZZ_NET) $(FUZZ_LWIP)
	$(call say,CC)
	$(Q)$(FUZZ_CC) -fsanitize=fuzzer,address,undefined -o $@ $^

# ---- threads under ThreadSanitizer -------------------------------------------------------------

# The two contexts of the network stack, and those of the page cache, as threads of this machine.
$(B)/tsan/test_net_threads: $(NET_C) tests/unit/net_wire.c tests/unit/test_net_threads.c \
	$(wildcard netstack/*.h) \
		$(B)/host/flags | $(LWIP)/VERSION
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(filter-out $(WARN) -MMD -MP,$(HOST_CFLAGS)) $(NET_INC) -fsanitize=thread -o $@ \
	    $(filter %.c,$^) \
	    $(addprefix $(LWIP)/src/,$(LWIP_C)) -lcmocka
$(B)/tsan/test_pagecache_threads: guestlib/pagecache.c guestlib/pagecache_io.c \
		guestlib/pagecache_tune.c guestlib/pagecache_private.h \
		tests/unit/test_pagecache_threads.c guestlib/include/guest/pagecache.h $(B)/host/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(filter-out -MMD -MP,$(HOST_CFLAGS)) $(GUEST_INC) -fsanitize=thread -o $@ \
	    $(filter %.c,$^) -lcmocka

# pCPUs that raise events for each other, with all of hv/ that they need.
TSAN_C   := $(filter-out $(HOST_SKIP) labs/%,$(HV_C)) $(DRIVERS_C) $(wildcard tests/unit/fake_*.c)
TSAN_OBJ := $(TSAN_C:%.c=$(B)/tsan/obj/%.o)
$(B)/tsan/obj/%.o: %.c $(B)/host/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(HOST_CFLAGS) -fsanitize=thread -Wno-tsan $(MORE) -c $< -o $@
$(B)/tsan/objects: FORCE
	@tools/stamp.sh $@ '$(TSAN_OBJ)'
$(B)/tsan/libhv.a: $(TSAN_OBJ) $(B)/tsan/objects
	@rm -f $@
	$(call say,AR)
	$(Q)ar rcs $@ $(TSAN_OBJ)
$(B)/tsan/test_ev%: $(B)/tsan/obj/tests/unit/test_ev%.o $(B)/tsan/libhv.a
	$(call say,CC)
	$(Q)$(CC) -fsanitize=thread -o $@ $< -Wl,--start-group $(B)/tsan/libhv.a -Wl,--end-group \
	    -lcmocka

TSAN := $(addprefix $(B)/tsan/,test_net_threads test_pagecache_threads test_evtchn test_event_race)
tsan: $(TSAN) ## runs threads of network stack, page cache and event channels under ThreadSanitizer
	@set -e; for t in $(TSAN); do TSAN_OPTIONS=halt_on_error=1 $$t; done

.PHONY: unit-build unit sim-whole-build sim-scale sim-costs tsan
