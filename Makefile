# Takt: make help lists what there is to make.

B      := build
CC     ?= gcc
NASM   ?= nasm
PYTHON ?= $(firstword $(wildcard /usr/bin/python3) python3)

PLATFORM ?= auto
VMS      ?= boot/demo.cfg
RELEASES ?= debian12 debian13
CPUS     ?= 2
MEMORY   ?= 256
SCENARIO ?= $(VMS)

# Values that some program would refuse in words of its own, later, are refused here with the variable's name.
# $(call without_digits,TEXT): what is left of it.
without_digits = $(subst 9,,$(subst 8,,$(subst 7,,$(subst 6,,$(subst 5,,$(call without_0_to_4,$1))))))
without_0_to_4 = $(subst 4,,$(subst 3,,$(subst 2,,$(subst 1,,$(subst 0,,$1)))))
# $(call is_number,TEXT): not empty if it is one whole number that is not 0.
is_number = $(if $(or $(word 2,$1),$(call without_digits,$1)),,$(strip $(subst 0,,$1)))
expect = $(if $2,,$(error $1=$($1): expected $3))

$(call expect,CPUS,$(and $(call is_number,$(CPUS)),$(filter $(CPUS),$(shell seq 64))),a whole number from 1 to 64)
$(call expect,MEMORY,$(call is_number,$(MEMORY)),a whole number of MiB (such as 256))
ifneq ($(origin SECONDS),undefined)
$(call expect,SECONDS,$(call is_number,$(subst .,,$(SECONDS))),a number of seconds (such as 1 or 0.5))
endif
$(call expect,VMS,$(filter 1,$(words $(VMS))),the name of one VM file with no blank in it)
$(call expect,SCENARIO,$(filter 1,$(words $(SCENARIO))),the name of one VM file with no blank in it)

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:

# Each step of a build is told in a short line; V=1 shows its command instead, make -s nothing.
Q   := $(if $(V),,@)
MUTE := $(V)$(findstring s,$(filter-out --%,$(firstword $(MAKEFLAGS))))
say = $(if $(MUTE),,@printf '  %-4s %s\n' $(1) $(patsubst $(B)/%,%,$@))

WARN := -Wall -Wextra -Werror -Wno-unused-parameter -Wmissing-prototypes -Wvla
INC  := -Iinclude -Ihv -I.

# ---- the hypervisor image -------------------------------------------------------------------------------------------

HV_CFLAGS := -std=gnu11 -O2 -g $(WARN) $(INC) -ffreestanding -fno-pic -fno-pie -mcmodel=kernel \
	-mgeneral-regs-only -mno-red-zone -U_FORTIFY_SOURCE -fno-stack-protector -fcf-protection=none \
	-fno-asynchronous-unwind-tables -fno-omit-frame-pointer -fno-strict-aliasing -fno-common -MMD -MP

# $(call stamp,FILE,TEXT): FILE holds TEXT, and is written only when TEXT changes. What depends on FILE is
# then built anew. TEXT is what decides what is built: compiler flags, or the objects of a program. The times
# of sources and objects alone cannot show that a flag changed or that an object is no longer wanted.
define stamp
$(1): FORCE
	@mkdir -p $$(@D)
	@echo '$(strip $(2))' | cmp -s - $$@ || echo '$(strip $(2))' > $$@
endef
.PHONY: FORCE# else .SECONDARY lets make do without it, and no stamp is ever looked at

# LABS names a policy of labs/ that the image is to have (docs/writing-a-policy.md). The image then has all of
# labs/, because labs/policies.c lists them all, and so recordings number policies as the simulation does.
LABS   :=
LABS_C := $(if $(LABS),$(LABS) $(wildcard labs/*.c))
HV_C   := $(sort $(wildcard hv/*.c hv/*/*.c hv/*/*/*.c common/*.c drivers/uart.c) $(LABS_C))
HV_ASM := $(sort $(wildcard boot/*.asm hv/*/*.asm))
HV_OBJ := $(patsubst %.c,$(B)/image/%.o,$(HV_C)) $(patsubst %.asm,$(B)/image/%.o,$(HV_ASM)) $(B)/image/version.o

$(eval $(call stamp,$(B)/image/flags,$(CC) $(HV_CFLAGS)))
$(eval $(call stamp,$(B)/image/objects,$(HV_OBJ)))

$(B)/image/%.o: %.c $(B)/image/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(HV_CFLAGS) -c $< -o $@

# The commit that the image is built from. The file is written only when that changes, so that a build of
# which nothing has changed does not link the image again.
$(B)/version.c: FORCE
	@mkdir -p $(@D)
	@tools/version.sh > $@.new && { cmp -s $@.new $@ && rm $@.new || mv $@.new $@; }
$(B)/image/version.o: $(B)/version.c $(B)/image/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(HV_CFLAGS) -c $< -o $@

# NASM tells debuggers wrong lines of a file that goes to and fro between sections.
NASM_DEBUG := -g -F dwarf
$(B)/image/boot/boot.o: NASM_DEBUG :=

# The numbers of boot/layout.h for NASM.
$(B)/layout.inc: boot/layout.h
	@mkdir -p $(@D)
	$(Q)sed -n 's/^#define *\([A-Z0-9_]*\) *\([0-9][0-9a-fx]*\).*/%define \1 \2/p' $< > $@

$(B)/image/%.o: %.asm $(B)/layout.inc $(wildcard boot/*.inc)
	@mkdir -p $(@D)
	$(call say,NASM)
	$(Q)$(NASM) -f elf64 $(NASM_DEBUG) -I$(B)/ -Iboot/ -MD $(@:.o=.d) -o $@ $<

# Linked twice: the second time with the table of symbols that backtraces need. It lies behind text and data, so that
# no function moves.
HV_LD := ld -nostdlib -z max-page-size=4096 -z noexecstack -T boot/takt.ld
# 128-bit division and the like. Its red zone does no harm: interrupts are off, NMI and #MC have stacks of their own.
LIBGCC := $(shell $(CC) -print-libgcc-file-name)

$(B)/takt.elf: $(HV_OBJ) $(B)/image/objects boot/takt.ld tools/mksyms.sh
	$(call say,LD)
	$(Q)$(HV_LD) -o $(B)/takt.pass1 $(HV_OBJ) $(LIBGCC)
	$(Q)tools/mksyms.sh $(B)/takt.pass1 > $(B)/symbols.asm
	$(Q)$(NASM) -f elf64 -o $(B)/symbols.o $(B)/symbols.asm
	$(Q)$(HV_LD) -o $@ $(HV_OBJ) $(B)/symbols.o $(LIBGCC)

# The same image, which also checks each entry into a guest: tests/unit/entry_check.h.
CHECKED_OBJ := $(patsubst %,$(B)/image/tests/unit/%.o,entry_vmx entry_svm image_entries)
$(B)/takt-checked.elf: $(B)/takt.elf $(CHECKED_OBJ)
	$(call say,LD)
	$(Q)$(HV_LD) --wrap=vmx_enter --wrap=svm_enter -o $@ $(HV_OBJ) $(CHECKED_OBJ) $(B)/symbols.o $(LIBGCC)

# ---- the boot image: VMS is the configuration, MKISO_ARGS is passed on (--cmdline, --module; see tools/mkiso.sh) ---

ISO ?= $(B)/takt.iso
MENU ?= --menu
# `make run` does not replace what `make iso` made, which has a menu, and perhaps other VMs.
RUN_ISO ?= $(B)/run.iso

iso: $(B)/takt.elf $(B)/cfgdump guests ## the boot image alone: BIOS and UEFI, CD and USB stick
	$(call say,ISO)
	$(Q)tools/mkiso.sh $(ISO) $(VMS) --hv $(B)/takt.elf $(MENU) $(MKISO_ARGS)

PXE ?= $(B)/pxe

pxe: $(B)/takt.elf $(B)/cfgdump guests ## a tree to boot from over the network (VMS=file.cfg HTTP=server PXE=dir)
	@tools/deps.sh build
	$(call say,PXE)
	$(Q)tools/mkiso.sh $(PXE) $(VMS) --hv $(B)/takt.elf --net $(if $(HTTP),--http $(HTTP)) $(MKISO_ARGS)
	@echo "$(PXE) is ready to be served by TFTP$(if $(HTTP), and HTTP): docs/lab.md has the lines for dnsmasq"

flash: ## writes the boot image to a USB stick: asks, checks, reads back (DEV=/dev/sdX VMS=file.cfg)
	@$(if $(DEV),,echo 'which device? make flash DEV=/dev/sdX; lsblk lists them' >&2; exit 1)
	@tools/deps.sh build
	@$(PYTHON) tools/flash.py $(DEV)
	@$(SUBMAKE) iso
	@$(PYTHON) tools/flash.py $(ISO) $(DEV)

# ---- guests ---------------------------------------------------------------------------------------------------------

GUEST_CFLAGS := -std=gnu11 -O2 -g $(WARN) -Iinclude -Iguestlib/include -I. -ffreestanding -fno-pic -fno-pie -mno-red-zone \
	-mgeneral-regs-only -U_FORTIFY_SOURCE -fno-stack-protector -fcf-protection=none -fno-asynchronous-unwind-tables \
	-fno-strict-aliasing -MMD -MP
# A function with large variables touches each page of them, so that none steps over the guard page of a stack.
GUEST_CFLAGS += -fstack-clash-protection

GUEST_LD := ld -nostdlib -z max-page-size=4096 -z noexecstack -T guestlib/guest.ld

# The drivers that guests link; the UART's is the hypervisor's own.
DRIVERS_C    := $(filter-out drivers/uart.c,$(wildcard drivers/*.c))
GUESTLIB_OBJ := $(patsubst %.c,$(B)/guestlib/%.o,$(wildcard guestlib/*.c)) \
	$(patsubst %.asm,$(B)/guestlib/%.asm.o,$(wildcard guestlib/*.asm)) \
	$(patsubst %.c,$(B)/guestlib/%.o,$(DRIVERS_C) $(wildcard common/*.c))
GUESTS      := $(patsubst guests/%.c,$(B)/guests/%.elf,$(wildcard guests/*.c)) $(B)/guests/stamped-iodom.elf
GUEST_TESTS := $(patsubst tests/guest/%.c,$(B)/guests/test-%.elf,$(wildcard tests/guest/*.c)) \
	$(patsubst tests/guest32/%.asm,$(B)/guests/test-%.elf,$(wildcard tests/guest32/*.asm))

# Guests that include <netstack/...>: linked with the network stack, which the part below builds.
NET_GUESTS  := $(patsubst %.c,%,$(patsubst tests/guest/%,test-%,$(patsubst guests/%,%,\
	$(shell grep -l '^.include <netstack/' guests/*.c tests/guest/*.c))))
NET_ELF     := $(NET_GUESTS:%=$(B)/guests/%.elf)
LWIP        := $(B)/lwip

$(eval $(call stamp,$(B)/guestlib/flags,$(CC) $(GUEST_CFLAGS)))
# A guest that wants the C library or floating point is told so in a sentence (guestlib/no-libc/).
NO_LIBC := -Iguestlib/no-libc -include guestlib/no-libc/no-float.h -Wunsuffixed-float-constants
$(eval $(call stamp,$(B)/guests/flags,$(CC) $(NO_LIBC) $(GUEST_CFLAGS)))
$(eval $(call stamp,$(B)/guestlib/objects,$(GUESTLIB_OBJ)))

$(B)/guestlib/%.o: %.c $(B)/guestlib/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(GUEST_CFLAGS) -c $< -o $@
$(B)/guestlib/%.asm.o: %.asm
	@mkdir -p $(@D)
	$(call say,NASM)
	$(Q)$(NASM) -f elf64 -o $@ $<
# An archive, so that a guest has in it what it uses.
$(B)/libguest.a: $(GUESTLIB_OBJ) $(B)/guestlib/objects Makefile
	@rm -f $@
	$(call say,AR)
	$(Q)ar rcs $@ $(GUESTLIB_OBJ)
$(B)/guests/%.o: guests/%.c $(B)/guests/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(NO_LIBC) $(GUEST_CFLAGS) -c $< -o $@
$(B)/guests/test-%.o: tests/guest/%.c $(B)/guests/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(NO_LIBC) $(GUEST_CFLAGS) -c $< -o $@
$(B)/guests/%.elf: $(B)/guests/%.o $(B)/libguest.a guestlib/guest.ld
	$(call say,LD)
	$(Q)$(GUEST_LD) -o $@ $< $(filter %/libguestnet.a,$^) $(B)/libguest.a

# For make bench: the driver domain and a guest with the stack, with clocks between their layers (guests/stamped/stamps.h).
STAMPS_back  := memcpy hypercall vring_back_take event_close
STAMPS_front := memcpy virtio_kick trap net_rx tcp_input net_poll net_guest_run
$(B)/guests/stamped-iodom.elf: $(addprefix $(B)/guests/,iodom.o stamped/back.o stamped/stamps.o) $(B)/libguest.a guestlib/guest.ld
	$(call say,LD)
	$(Q)$(GUEST_LD) $(STAMPS_back:%=--wrap=%) -o $@ $(filter %.o,$^) $(B)/libguest.a
$(B)/guests/iobench.elf: $(addprefix $(B)/guests/,iobench.o stamped/front.o stamped/stamps.o) $(B)/libguest.a guestlib/guest.ld
	$(call say,LD)
	$(Q)$(GUEST_LD) $(STAMPS_front:%=--wrap=%) -o $@ $(filter %.o,$^) $(B)/libguestnet.a $(B)/libguest.a

# 32-bit multiboot1 kernels, without the library.
$(B)/guests/test-%.elf: tests/guest32/%.asm tests/guest32/kernel.inc
	@mkdir -p $(@D)
	$(call say,NASM)
	$(Q)$(NASM) -f elf32 -Itests/guest32/ -o $(@:.elf=.o) $<
	$(Q)ld -m elf_i386 -nostdlib -z noexecstack -Ttext-segment=0x100000 -e start32 -o $@ $(@:.elf=.o)

# Those with the network stack are left out where lwIP cannot be had, so that all else can be built there.
guests: $(filter-out $(NET_ELF),$(GUESTS) $(GUEST_TESTS))
	+@if tools/lwip.sh $(LWIP); then $(SUBMAKE) net-guests; else echo 'guests with a network stack are left out'; fi
net-guests: $(NET_ELF)

# ---- the host build: hypervisor sources that need no machine, for unit tests, the simulation and fuzzers ------------

# libc has a sched_yield of its own, which sanitizers call.
HOST_CFLAGS := -std=gnu11 -O2 -g $(WARN) $(INC) -D_GNU_SOURCE -Dsched_yield=hv_sched_yield -fno-strict-aliasing -MMD -MP
HOST_SKIP   := hv/main.c drivers/uart.c common/string.c hv/sched/machine.c \
	hv/pci/space.c $(filter-out hv/x86/errata.c hv/x86/place.c,$(wildcard hv/x86/*.c)) \
	$(filter-out $(addprefix hv/platform/,acpi.c apic.c bootinfo.c crashlog.c dmar.c mptable.c terminal.c tscrate.c),\
	$(wildcard hv/platform/*.c))
HOST_OBJ    := $(patsubst %.c,$(B)/host/%.o,$(filter-out $(HOST_SKIP) labs/%,$(HV_C)) $(DRIVERS_C) guestlib/pagecache.c)
LABS_OBJ    := $(patsubst %.c,$(B)/host/%.o,$(wildcard labs/*.c))

$(B)/host/guestlib/%.o $(addprefix $(B)/host/tests/unit/,test_page%.o test_seed.o test_duty.o): HOST_CFLAGS += -Iguestlib/include
$(eval $(call stamp,$(B)/host/flags,$(CC) $(HOST_CFLAGS)))
$(eval $(call stamp,$(B)/host/objects,$(HOST_OBJ)))
$(B)/host/%.o: %.c $(B)/host/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(HOST_CFLAGS) -c $< -o $@

$(B)/libhv.a: $(HOST_OBJ) $(B)/host/objects
	@rm -f $@
	$(call say,AR)
	$(Q)ar rcs $@ $(HOST_OBJ)

# Unit tests: each tests/unit/test_*.c is one CMocka program; tests/unit/fake_*.c stand in for the machine.
UNIT       := $(patsubst tests/unit/%.c,$(B)/unit/%,$(wildcard tests/unit/test_*.c))
FAKES_C    := $(wildcard tests/unit/fake_*.c tests/unit/entry_*.c)
UNIT_FAKES := $(patsubst %.c,$(B)/host/%.o,$(FAKES_C))

$(B)/libfakes.a: $(UNIT_FAKES)
	@rm -f $@
	$(call say,AR)
	$(Q)ar rcs $@ $^

$(B)/unit/%: $(B)/host/tests/unit/%.o $(B)/libhv.a $(B)/libfakes.a
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) -o $@ $< -Wl,--start-group $(B)/libhv.a $(B)/libfakes.a -Wl,--end-group -lcmocka

# What counts instructions counts those of the image.
COUNTED := $(patsubst %.c,$(B)/image/%.o,$(wildcard hv/store/*.c common/format.c common/string.c) \
	$(addprefix hv/,lib/parse.c lib/printf.c mm/heap.c))
$(B)/unit/test_store_bounds: $(B)/unit/%: $(B)/host/tests/unit/%.o $(COUNTED) $(B)/libhv.a $(B)/libfakes.a
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) -no-pie -o $@ $< $(COUNTED) -Wl,--start-group $(B)/libhv.a $(B)/libfakes.a -Wl,--end-group -lcmocka

unit-build: $(UNIT)
unit: $(UNIT) ## unit and property tests, on the host
	@printf '%s\n' $(UNIT) | xargs -P2 -n1 sh -c './$$0 > $$0.log 2>&1 || { cat $$0.log; exit 255; }; \
	    echo "$$0: $$(grep "PASSED" $$0.log)"'

# The configuration parser, the policies and the loader of the image, for scripts: checks a file, and prints it as JSON. It is a
# part of `make run`, so it links only the few objects that it needs.
CFGDUMP_C   := tools/cfgdump.c hv/config.c hv/config_check.c hv/shell/script.c hv/vm/load.c $(wildcard common/*.c hv/lib/*.c) \
	$(wildcard hv/sched/*.c) $(filter labs/%,$(HV_C))
CFGDUMP_OBJ := $(patsubst %.c,$(B)/host/%.o,$(filter-out $(HOST_SKIP),$(CFGDUMP_C)))
# The names of the shell's commands, cut out of its tables, to check scripts with. The tables themselves would need all
# of the hypervisor.
$(B)/commands.inc: $(wildcard hv/shell/*.c)
	@mkdir -p $(@D)
	$(Q)sed -n '/^const struct shell_command .*_commands\[\] = {/,/^};/s/^    { "\([^"]*\)".*/"\1",/p' $^ > $@
$(B)/host/tools/cfgdump.o $(B)/host/tests/unit/test_shell_person.o: $(B)/commands.inc
$(B)/host/tools/cfgdump.o $(B)/host/tests/unit/test_shell_person.o: HOST_CFLAGS += -I$(B)
$(eval $(call stamp,$(B)/host/cfgdump-objects,$(CFGDUMP_OBJ)))
$(B)/cfgdump: $(CFGDUMP_OBJ) $(B)/host/cfgdump-objects
	$(call say,CC)
	$(Q)$(CC) -o $@ $(CFGDUMP_OBJ)

# Takt's probes over the description of a real machine.
$(B)/machine-check: $(B)/host/tools/machine-check.o $(B)/libhv.a $(B)/libfakes.a
	$(call say,CC)
	$(Q)$(CC) -o $@ $< -Wl,--start-group $(B)/libhv.a $(B)/libfakes.a -Wl,--end-group

# The store's operations a second.
$(B)/store-bench: $(B)/host/tools/store-bench.o $(B)/libhv.a $(B)/libfakes.a
	$(call say,CC)
	$(Q)$(CC) -o $@ $< -Wl,--start-group $(B)/libhv.a $(B)/libfakes.a -Wl,--end-group

# ---- the simulation of the scheduler: tests/sim with hv/sched ---------------------------------------------------------

SIM_OBJ  := $(patsubst %.c,$(B)/host/%.o,$(filter-out $(addprefix tests/sim/,main.c cost.c scale.c),$(wildcard tests/sim/*.c)))

$(B)/host/tests/sim/%.o $(B)/host/tests/unit/test_sched%.o: HOST_CFLAGS += -Itests/sim -Iguestlib/include
$(B)/libsim.a: $(SIM_OBJ)
	@rm -f $@
	$(call say,AR)
	$(Q)ar rcs $@ $^
$(B)/sim: $(B)/host/tests/sim/main.o $(LABS_OBJ) $(B)/libsim.a $(B)/libhv.a
	$(call say,CC)
	$(Q)$(CC) -o $@ $^
$(B)/sched-cost: $(B)/host/tests/sim/cost.o $(B)/libhv.a
	$(call say,CC)
	$(Q)$(CC) -o $@ $^
$(B)/unit/test_sched%: $(B)/host/tests/unit/test_sched%.o $(LABS_OBJ) $(B)/libsim.a $(B)/libhv.a
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) -o $@ $^ -lcmocka

sim: $(B)/sim ## the VMs of a file in the simulation, in virtual time (SCENARIO=file.cfg CPUS=2)
	$(B)/sim -p $(CPUS) $(SCENARIO)

# How fast it is: a release build without assertions of its own, all in one, and one for machines of up to 512 pCPUs.
RELEASE     := $(filter-out -O2 -g -MMD -MP,$(HOST_CFLAGS)) -O3 -flto -march=native -DNDEBUG -Itests/sim -Iguestlib/include
RELEASE_SRC := $(addprefix tests/sim/,scale.c sim.c measure.c) $(filter-out hv/sched/machine.c,$(wildcard hv/sched/*.c)) \
	$(addprefix hv/lib/,timerq.c parse.c printf.c) common/format.c common/hist.c
RELEASE_DEP := $(RELEASE_SRC) $(wildcard common/*.h hv/sched/*.h hv/lib/*.h tests/sim/*.h tests/sim/wide/lib/*.h)

$(B)/release/scale: $(RELEASE_DEP)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(RELEASE) -o $@ $(RELEASE_SRC)
$(B)/release/scale-wide: $(RELEASE_DEP)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(patsubst -Ihv,-Itests/sim/wide -Ihv,$(RELEASE)) -o $@ $(RELEASE_SRC)

sim-scale: $(B)/release/scale $(B)/release/scale-wide ## how fast the simulation is: 4 cores with 16 VMs, 512 with 4,096 vCPUs
	$(B)/release/scale
	$(B)/release/scale-wide

# ---- fuzz targets: tests/fuzz/fuzz_*.c with libFuzzer and sanitizers ------------------------------------------------

FUZZ        := $(patsubst tests/fuzz/%.c,$(B)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_CC     ?= clang
FUZZ_CFLAGS := $(filter-out -Werror,$(HOST_CFLAGS)) -O1 -Wno-missing-field-initializers \
	-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
FUZZ_OBJ    := $(patsubst %.c,$(B)/fuzz/obj/%.o,$(filter-out $(HOST_SKIP),$(HV_C)) $(DRIVERS_C) $(FAKES_C))
FUZZ_TIME   ?= 20

$(eval $(call stamp,$(B)/fuzz/flags,$(FUZZ_CC) $(FUZZ_CFLAGS)))
$(eval $(call stamp,$(B)/fuzz/objects,$(FUZZ_OBJ)))
$(B)/fuzz/obj/%.o: %.c $(B)/fuzz/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(FUZZ_CC) $(FUZZ_CFLAGS) -c $< -o $@
$(B)/fuzz/libhv.a: $(FUZZ_OBJ) $(B)/fuzz/objects
	@rm -f $@
	$(call say,AR)
	$(Q)ar rcs $@ $(FUZZ_OBJ)
$(B)/fuzz/%: $(B)/fuzz/obj/tests/fuzz/%.o $(B)/fuzz/libhv.a
	$(call say,CC)
	$(Q)$(FUZZ_CC) -fsanitize=fuzzer,address,undefined -o $@ $< -Wl,--start-group $(B)/fuzz/libhv.a -Wl,--end-group

# ---- the network stack: lwIP as it comes (tools/lwip.sh), netstack/ with it ------------------------------------------

# netstack/heap.c takes the place of core/mem.c.
LWIP_C   := $(addprefix core/,def.c inet_chksum.c init.c ip.c memp.c netif.c pbuf.c stats.c \
	tcp.c tcp_in.c tcp_out.c timeouts.c udp.c $(addprefix ipv4/,etharp.c icmp.c ip4.c ip4_addr.c)) netif/ethernet.c
NET_OWN  := netstack/guest.c netstack/iperf.c netstack/sendfile.c netstack/start.c netstack/virtio.c \
	netstack/igbvf.c# of guests alone
NET_C    := $(filter-out $(NET_OWN),$(wildcard netstack/*.c))
NET_INC  := -Inetstack -isystem $(LWIP)/src/include
NET_TEST := $(addprefix $(B)/host/,netstack/%.o tests/unit/test_net%.o tests/unit/net_wire.o)
NET_FUZZ := $(addprefix $(B)/fuzz/obj/,$(patsubst %.c,%.o,$(NET_C)) tests/unit/net_wire.o tests/fuzz/fuzz_net.o)

$(LWIP)/VERSION: tools/lwip.sh tools/lwip.sha256
	@tools/lwip.sh $(LWIP)
lwip: $(LWIP)/VERSION

# lwIP's headers are a system's to the compiler, so that it does not tell that they include lwipopts.h.
$(NET_TEST): HOST_CFLAGS += $(NET_INC)
$(patsubst %.c,$(B)/host/%.o,$(NET_C) $(wildcard tests/unit/test_net*.c) tests/unit/net_wire.c): netstack/lwipopts.h | $(LWIP)/VERSION
LWIP_OBJ := $(patsubst %.c,lwip/%.o,$(LWIP_C))
$(addprefix $(B)/host/,$(LWIP_OBJ)): $(B)/host/lwip/%.o: $(B)/host/flags $(LWIP)/VERSION netstack/lwipopts.h
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(filter-out $(WARN),$(HOST_CFLAGS)) $(NET_INC) -c $(LWIP)/src/$*.c -o $@
$(B)/libnet.a: $(patsubst %.c,$(B)/host/%.o,$(NET_C)) $(addprefix $(B)/host/,$(LWIP_OBJ))
	@rm -f $@
	$(call say,AR)
	$(Q)ar rcs $@ $^
$(B)/unit/test_net%: $(B)/host/tests/unit/test_net%.o $(B)/host/tests/unit/net_wire.o $(B)/libnet.a
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) -o $@ $^ -lcmocka

# The two contexts as threads of the machine, under ThreadSanitizer.
$(B)/tsan/test_net_threads: $(NET_C) tests/unit/net_wire.c tests/unit/test_net_threads.c $(wildcard netstack/*.h) | $(LWIP)/VERSION
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(filter-out $(WARN) -MMD -MP,$(HOST_CFLAGS)) $(NET_INC) -fsanitize=thread -o $@ $(filter %.c,$^) \
	    $(addprefix $(LWIP)/src/,$(LWIP_C)) -lcmocka
# And the page cache's contexts.
$(B)/tsan/test_pagecache_threads: guestlib/pagecache.c tests/unit/test_pagecache_threads.c guestlib/include/guest/pagecache.h
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(filter-out -MMD -MP,$(HOST_CFLAGS)) -Iguestlib/include -fsanitize=thread -o $@ $(filter %.c,$^) -lcmocka
# And pCPUs that raise events for each other, with all of hv/ that they need.
TSAN_SRC := $(filter-out $(HOST_SKIP) labs/%,$(HV_C)) $(DRIVERS_C) $(wildcard tests/unit/fake_*.c)
TSAN_OBJ := $(TSAN_SRC:%.c=$(B)/tsan/obj/%.o)
$(B)/tsan/obj/%.o: %.c $(B)/host/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(HOST_CFLAGS) -fsanitize=thread -Wno-tsan -c $< -o $@
$(B)/tsan/libhv.a: $(TSAN_OBJ)
	@rm -f $@
	$(call say,AR)
	$(Q)ar rcs $@ $^
$(addprefix $(B)/tsan/,test_evtchn test_event_race): $(B)/tsan/%: $(B)/tsan/obj/tests/unit/%.o \
		$(B)/tsan/libhv.a
	$(call say,CC)
	$(Q)$(CC) -fsanitize=thread -o $@ $< -Wl,--start-group $(B)/tsan/libhv.a -Wl,--end-group -lcmocka

TSAN := $(addprefix $(B)/tsan/,test_net_threads test_pagecache_threads test_evtchn test_event_race)
tsan: $(TSAN) ## threads of network stack, page cache and event channels under ThreadSanitizer
	@set -e; for t in $(TSAN); do TSAN_OPTIONS=halt_on_error=1 $$t; done

# For guests.
GUEST_NET  := $(patsubst %,$(B)/guestnet/%,$(patsubst %.c,%.o,$(NET_C) $(NET_OWN)) $(LWIP_OBJ))
GUEST_LWIP := $(NET_INC) -Dmem_init=lwip_mem_init # the library has one of that name

$(filter $(B)/guestnet/netstack/%,$(GUEST_NET)): $(B)/guestnet/%.o: %.c $(B)/guestlib/flags netstack/lwipopts.h | $(LWIP)/VERSION
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(GUEST_CFLAGS) $(GUEST_LWIP) -c $< -o $@
$(filter $(B)/guestnet/lwip/%,$(GUEST_NET)): $(B)/guestnet/lwip/%.o: $(B)/guestlib/flags $(LWIP)/VERSION netstack/lwipopts.h
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(filter-out $(WARN),$(GUEST_CFLAGS)) $(GUEST_LWIP) -c $(LWIP)/src/$*.c -o $@
NET_GUEST_O := $(NET_GUESTS:%=$(B)/guests/%.o) $(B)/guests/stamped/front.o
$(NET_GUEST_O): GUEST_CFLAGS += $(NET_INC)
$(NET_GUEST_O): netstack/lwipopts.h | $(LWIP)/VERSION
$(B)/libguestnet.a: $(GUEST_NET)
	@rm -f $@
	$(call say,AR)
	$(Q)ar rcs $@ $^
$(NET_ELF): $(B)/libguestnet.a

# lwIP reads headers where they lie, which x86 does not mind.
$(NET_FUZZ): FUZZ_CFLAGS += $(NET_INC)
$(NET_FUZZ): netstack/lwipopts.h | $(LWIP)/VERSION
$(addprefix $(B)/fuzz/obj/,$(LWIP_OBJ)): $(B)/fuzz/obj/lwip/%.o: $(B)/fuzz/flags $(LWIP)/VERSION netstack/lwipopts.h
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(FUZZ_CC) $(filter-out $(WARN),$(FUZZ_CFLAGS)) -fno-sanitize=alignment $(NET_INC) -c $(LWIP)/src/$*.c -o $@
$(B)/fuzz/fuzz_net: $(NET_FUZZ) $(addprefix $(B)/fuzz/obj/,$(LWIP_OBJ))
	$(call say,CC)
	$(Q)$(FUZZ_CC) -fsanitize=fuzzer,address,undefined -o $@ $^

# ---- targets --------------------------------------------------------------------------------------------------------

SUBMAKE  := $(MAKE) --no-print-directory
EMULATOR := $(if $(filter bochs,$(PLATFORM)),bochs,qemu)
MACHINE  := --cpus $(CPUS) --memory $(MEMORY)
PYTEST   := $(PYTHON) -m pytest -o cache_dir=$(abspath $(B))/pytest -q
# Who judges times by the host's clock runs alone; the others, among them all that runs in Bochs, run side by side. What
# failed (and only if tests failed) is run once more, in boots of its own: the host may have had other things to do.
# There is one worker more than CPUs, because many tests spend a part of their time waiting.
pytest-twice = $(PYTEST) $(1) || { test $$? = 1 && echo 'once more:' && $(PYTEST) --last-failed $(1); }
pytest-all = @failed=0; \
    $(call pytest-twice,tests -m 'alone and not bochs' --durations=20 $(1)) || failed=1; \
    $(call pytest-twice,tests -m 'bochs or not alone' -n $$(($$(nproc) + 1)) --dist loadfile --durations=20 $(1)) || failed=1; \
    exit $$failed

all: $(B)/takt.elf $(B)/cfgdump guests ## everything that goes into an image

run: ## build and boot; a live table, any key leaves for the shell (PLATFORM=auto|kvm|qemu|bochs VMS=file.cfg CPUS=2)
	@tools/deps.sh build $(EMULATOR)
	@$(SUBMAKE) iso ISO=$(RUN_ISO) MENU= MKISO_ARGS="$(MACHINE) $(MKISO_ARGS)"
	@$(PYTHON) tools/machine.py run --platform $(PLATFORM) $(MACHINE) $(RUN_ISO)

demo: ## ten virtual seconds of the same without a person: exit 0 if every vCPU got its share (FAULT=ignore_weight)
	@tools/deps.sh build $(EMULATOR)
	@$(SUBMAKE) -j2 all
	@$(PYTHON) tools/demo.py --platform $(PLATFORM) $(MACHINE) --vms $(VMS) $(if $(FAULT),--fault $(FAULT))

test-needs:
	@tools/deps.sh build qemu bochs test net clients store
	@$(SUBMAKE) -j2 all unit-build $(B)/machine-check $(B)/sim $(B)/takt-checked.elf
test-guest: ## guest tests alone (PLATFORM=qemu|bochs, GUEST=name)
	@$(PYTEST) tests/guest $(if $(filter-out auto,$(PLATFORM)),--platform $(PLATFORM)) $(if $(GUEST),-k '$(GUEST)')
pytest:
	@$(PYTEST) $(TESTS)

test: ## unit tests, guest tests on QEMU and Bochs, system tests; under ten minutes on two cores
	@$(SUBMAKE) test-needs
	@$(SUBMAKE) unit
	$(call pytest-all,)

# It takes two hours, so a part that fails does not keep the others from being seen.
CHECKS := lint fuzz tsan unit size test-long fresh
check: ## also the long ones: soak, fuzz for a bounded time, boot by UEFI, every lint, fresh systems
	@tools/deps.sh build qemu bochs test net clients store check lab
	@$(SUBMAKE) test-needs
	@failed=; for part in $(CHECKS); do $(SUBMAKE) $$part || failed="$$failed $$part"; done; \
	    [ -z "$$failed" ] || { echo "make check: these parts failed:$$failed"; exit 1; }

test-long:
	$(call pytest-all,--long)

fresh: ## demo, run, test and lint on fresh systems of each release: an hour, needs root (RELEASES=debian13)
	@tools/fresh.sh $(RELEASES)

fuzz: $(FUZZ) ## every fuzz target for FUZZ_TIME seconds
	@$(PYTHON) tests/fuzz/seeds.py $(B)/fuzz/seeds
	@for t in $(FUZZ); do n=$${t##*/}; d=; echo "$$n: for $(FUZZ_TIME) s"; \
	    mkdir -p $(B)/fuzz/corpus/$$n; \
	    if [ -f tests/fuzz/$$n.dict ]; then d=-dict=tests/fuzz/$$n.dict; fi; \
	    seeds=$$(find tests/fuzz/seeds $(B)/fuzz/seeds -name $$n); \
	    $$t $$d -max_total_time=$(FUZZ_TIME) -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix=$(B)/fuzz/ \
	        $(B)/fuzz/corpus/$$n $$seeds > $(B)/fuzz/$$n.log 2>&1 || { tail -40 $(B)/fuzz/$$n.log; exit 1; }; \
	    echo "$$n: $$(sed -n 's/.*executed_units: *//p' $(B)/fuzz/$$n.log) inputs, no finding"; done

bench: ## what each operation costs in instructions, sizes, decisions, against the budgets (N=10000 iterations)
	@tools/deps.sh build qemu net cost
	@$(SUBMAKE) -j2 all && $(SUBMAKE) net-guests
	@$(PYTHON) tools/bench.py $(if $(N),-n $(N))

trace: ## records the scheduler for a second and draws who ran where: build/results/trace.png, .json (VMS= PLATFORM= SECONDS=1)
	@tools/deps.sh build $(EMULATOR) picture
	@$(SUBMAKE) -j2 all
	@$(PYTHON) tools/taketrace.py --platform $(PLATFORM) $(MACHINE) --vms $(VMS) $(if $(SECONDS),--seconds $(SECONDS))

# With LABS the image that knows your policy is built in a directory of its own, and the usual one stays as it is.
COMPARE_ON := $(if $(filter sim,$(PLATFORM)),,$(if $(filter qemu kvm,$(PLATFORM)),$(PLATFORM),bochs))
compare: ## the papers' policies side by side, in the simulation and on Bochs (PLATFORM=sim|bochs|qemu|kvm SEEDS= POLICY= LABS=)
	@tools/deps.sh build $(subst kvm,qemu,$(COMPARE_ON)) cost compare
	@$(SUBMAKE) -j2 LABS= all $(B)/sim $(B)/cfgdump
	@$(if $(LABS),$(SUBMAKE) -j2 B=$(B)/labs $(B)/labs/takt.elf $(B)/labs/cfgdump)
	@$(PYTHON) tools/compare.py $(addprefix --platform ,sim $(COMPARE_ON)) $(addprefix --policy ,$(POLICY)) \
	    $(if $(SEEDS),--seeds $(SEEDS)) $(if $(LABS),--hv $(B)/labs/takt.elf)

net-demo: ## a server's TCP, UDP and echo among VMs that compute, by the host's ping and iperf (PLATFORM=bochs: in virtual time)
	@tools/deps.sh build net $(EMULATOR) $(if $(filter qemu,$(EMULATOR)),clients)
	@$(SUBMAKE) -j2 all && $(SUBMAKE) net-guests
	@$(PYTHON) tools/netdemo.py --platform $(PLATFORM) $(if $(SEEDS),--runs $(SEEDS))

net-experiments: ## UDP and TCP goodput of a VM among others, from Credit to early ACKs, on Bochs, five seeds (SEEDS=n)
	@tools/deps.sh build net bochs
	@$(SUBMAKE) -j2 all && $(SUBMAKE) net-guests
	@$(PYTHON) tools/netexp.py $(if $(SEEDS),--seeds $(SEEDS))

store-bench: $(B)/store-bench ## the store's operations a second, beside Debian's xenstored where that runs
	@tools/store-bench.sh

store-demo: ## the store: guests, the shell, XenStore's own clients and pyxs see one tree; must all hold
	@tools/deps.sh build qemu store
	@$(SUBMAKE) -j2 all
	@$(PYTHON) tools/storedemo.py

sriov-demo: ## VMs with virtual functions of two network cards, confined by VT-d, and what SC and ACA make of them; must all hold
	@tools/deps.sh build qemu
	@$(SUBMAKE) -j2 all && $(SUBMAKE) net-guests
	@$(PYTHON) tools/sriovdemo.py

run-gdb: ## QEMU waits for gdb, which is started with the image's symbols
	@tools/deps.sh build qemu debug
	@$(SUBMAKE) iso ISO=$(RUN_ISO) MENU=
	@$(PYTHON) tools/machine.py watch --platform qemu --gdb --timeout 86400 $(MACHINE) --dir $(B)/run/gdb $(RUN_ISO) & m=$$!; \
	    trap 'kill $$m 2>/dev/null' EXIT; sleep 1; \
	    gdb -q -ex 'target remote :1234' -ex 'hbreak hv_main' -ex continue $(B)/takt.elf

machines: ## what Takt says of real machines, by their CPUID, MSRs, tables and PCI (MACHINES=directory or file)
	@tools/deps.sh build
	@$(SUBMAKE) -j2 $(B)/machine-check
	@$(PYTHON) tools/machines.py --json $(B)/results/machines.json $(MACHINES)

lint: ## clang-format, cppcheck, headers alone, line width, floors, faults out of date
	@tools/lint.sh

size: $(B)/takt.elf ## lines and bytes of the image by room (SINCE=commit: compared with that, by file)
	@$(PYTHON) tools/size.py $(if $(SINCE),--since $(SINCE)) $(B)/image $(B)/takt.elf $(HV_C) $(HV_ASM) $(wildcard boot/*.inc)

mutants: ## each fault of tests/mutants.txt must turn its test red: hours (tools/mutants.py NAME: one)
	@$(PYTHON) tools/mutants.py

clean: ## remove build/
	rm -rf $(B)

help: ## this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | awk -F'\t' '{ printf "%-18s %s\n", $$1, $$2 }'

.PHONY: all fresh trace sim sim-scale iso pxe flash run demo test test-needs test-guest pytest check test-long fuzz \
	bench compare net-demo net-experiments store-bench store-demo sriov-demo run-gdb machines \
	guests unit unit-build net-guests lwip tsan lint size mutants clean help

# What each object includes; not the files of such names in fresh systems and in copies of the tree.
NOT_OURS := -path $(B)/fresh -o -path $(B)/mutants
-include $(shell find $(B) \( $(NOT_OURS) \) -prune -o -name '*.d' -type f -print 2>/dev/null)
