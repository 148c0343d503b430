# Takt: make help lists what there is to make.

B      := build
CC     ?= gcc
NASM   ?= nasm
PYTHON ?= python3

PLATFORM ?= auto
VMS      ?= boot/demo.cfg

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:

WARN := -Wall -Wextra -Werror -Wno-unused-parameter -Wmissing-prototypes -Wvla
INC  := -Iinclude -Ihv -I.

# ---- the hypervisor image -------------------------------------------------------------------------------------------

HV_CFLAGS := -std=gnu11 -O2 -g $(WARN) $(INC) -ffreestanding -fno-pic -fno-pie -mcmodel=kernel \
	-mgeneral-regs-only -mno-red-zone -fno-stack-protector -fcf-protection=none \
	-fno-asynchronous-unwind-tables -fno-omit-frame-pointer -fno-strict-aliasing -fno-common -MMD -MP

HV_C   := $(sort $(wildcard hv/*.c hv/*/*.c hv/*/*/*.c drivers/uart.c))
HV_ASM := $(sort $(wildcard boot/*.asm hv/*/*.asm))
HV_OFFSETS := $(filter hv/asm_offsets.c,$(HV_C))
HV_OBJ := $(patsubst %.c,$(B)/image/%.o,$(filter-out $(HV_OFFSETS),$(HV_C))) $(patsubst %.asm,$(B)/image/%.o,$(HV_ASM))

$(B)/image/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(HV_CFLAGS) -c $< -o $@

# Structure offsets for NASM: hv/asm_offsets.c compiled to assembly, its marked lines turned into %define.
$(B)/asm_offsets.inc: hv/asm_offsets.c
	@mkdir -p $(@D)
	$(CC) $(HV_CFLAGS) -S $< -o $(B)/asm_offsets.s
	sed -n 's/^#*->\([A-Z0-9_]*\) \$$*\(-*[0-9]*\).*/%define \1 \2/p' $(B)/asm_offsets.s > $@

$(B)/image/%.o: %.asm $(B)/asm_offsets.inc
	@mkdir -p $(@D)
	$(NASM) -f elf64 -g -F dwarf -I$(B)/ -Iboot/ -MD $(@:.o=.d) -o $@ $<

# Linked twice: the second time with the table of symbols that backtraces need. It lies behind text and data, so that
# no function moves.
HV_LD := ld -nostdlib -z max-page-size=4096 -z noexecstack -T boot/takt.ld
# 128-bit division and the like. Its red zone does no harm: interrupts are off, NMI and #MC have stacks of their own.
LIBGCC := $(shell $(CC) -print-libgcc-file-name)

$(B)/takt.elf: $(HV_OBJ) boot/takt.ld tools/mksyms.sh
	$(HV_LD) -o $(B)/takt.pass1 $(HV_OBJ) $(LIBGCC)
	tools/mksyms.sh $(B)/takt.pass1 > $(B)/symbols.asm
	$(NASM) -f elf64 -o $(B)/symbols.o $(B)/symbols.asm
	$(HV_LD) -o $@ $(HV_OBJ) $(B)/symbols.o $(LIBGCC)

# ---- the boot image: VMS is the configuration, MKISO_ARGS is passed on (--cmdline, --module; see tools/mkiso.sh) --------

ISO ?= $(B)/takt.iso

iso: $(B)/takt.elf guests
	tools/mkiso.sh $(ISO) $(VMS) $(MKISO_ARGS)

# ---- guests ---------------------------------------------------------------------------------------------------------

GUEST_CFLAGS := -std=gnu11 -O2 -g $(WARN) -Iinclude -Iguestlib/include -ffreestanding -fno-pic -fno-pie -mno-red-zone \
	-mgeneral-regs-only -fno-stack-protector -fcf-protection=none -fno-asynchronous-unwind-tables -fno-strict-aliasing -MMD -MP

GUESTLIB_OBJ := $(patsubst %.c,$(B)/guestlib/%.o,$(wildcard guestlib/*.c)) \
	$(patsubst %.asm,$(B)/guestlib/%.asm.o,$(wildcard guestlib/*.asm))
GUESTS      := $(patsubst guests/%.c,$(B)/guests/%.elf,$(wildcard guests/*.c))
GUEST_TESTS := $(patsubst tests/guest/%.c,$(B)/guests/test-%.elf,$(wildcard tests/guest/*.c))

$(B)/guestlib/guestlib/%.o $(B)/guestlib/%.o: guestlib/%.c
	@mkdir -p $(@D)
	$(CC) $(GUEST_CFLAGS) -c $< -o $@
$(B)/guestlib/guestlib/%.asm.o $(B)/guestlib/%.asm.o: guestlib/%.asm
	@mkdir -p $(@D)
	$(NASM) -f elf64 -o $@ $<
$(B)/guests/%.o: guests/%.c
	@mkdir -p $(@D)
	$(CC) $(GUEST_CFLAGS) -c $< -o $@
$(B)/guests/test-%.o: tests/guest/%.c
	@mkdir -p $(@D)
	$(CC) $(GUEST_CFLAGS) -c $< -o $@
$(B)/guests/%.elf: $(B)/guests/%.o $(GUESTLIB_OBJ) guestlib/guest.ld
	ld -nostdlib -z max-page-size=4096 -z noexecstack -T guestlib/guest.ld -o $@ $< $(GUESTLIB_OBJ)

guests: $(GUESTS) $(GUEST_TESTS)

# ---- the host build: hypervisor sources that need no machine, for unit tests, the simulation and fuzzers ------------

HOST_CFLAGS := -std=gnu11 -O2 -g $(WARN) $(INC) -D_GNU_SOURCE -fno-strict-aliasing -MMD -MP
HOST_SKIP   := hv/main.c hv/asm_offsets.c hv/lib/string.c hv/sched/machine.c hv/virt/vmx.c hv/virt/svm.c \
	$(wildcard hv/x86/*.c) $(filter-out hv/platform/acpi.c hv/platform/bootinfo.c,$(wildcard hv/platform/*.c))
HOST_OBJ    := $(patsubst %.c,$(B)/host/%.o,$(filter-out $(HOST_SKIP),$(HV_C)))

$(B)/host/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(HOST_CFLAGS) -c $< -o $@

$(B)/libhv.a: $(HOST_OBJ)
	@rm -f $@
	ar rcs $@ $^

# Unit tests: each tests/unit/test_*.c is one CMocka program; tests/unit/fake_*.c stand in for the machine.
UNIT       := $(patsubst tests/unit/%.c,$(B)/unit/%,$(wildcard tests/unit/test_*.c))
UNIT_FAKES := $(patsubst %.c,$(B)/host/%.o,$(wildcard tests/unit/fake_*.c))

$(B)/libfakes.a: $(UNIT_FAKES)
	@rm -f $@
	ar rcs $@ $^

$(B)/unit/%: $(B)/host/tests/unit/%.o $(B)/libhv.a $(B)/libfakes.a
	@mkdir -p $(@D)
	$(CC) -o $@ $< -Wl,--start-group $(B)/libhv.a $(B)/libfakes.a -Wl,--end-group -lcmocka

unit: $(UNIT)
	@set -e; for t in $(UNIT); do ./$$t; done

# The configuration parser for scripts: a file as JSON.
$(B)/cfgdump: $(B)/host/tools/cfgdump.o $(B)/libhv.a $(B)/libfakes.a
	$(CC) -o $@ $< -Wl,--start-group $(B)/libhv.a $(B)/libfakes.a -Wl,--end-group

# ---- targets --------------------------------------------------------------------------------------------------------

all: $(B)/takt.elf guests

clean:
	rm -rf $(B)

help:
	@echo "make run | demo | test | check | iso | run-gdb | bench | sim | lint | size | mutants | clean"

test: unit

.PHONY: all iso guests unit test clean help

-include $(shell find $(B) -name '*.d' 2>/dev/null)
