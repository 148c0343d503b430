# The image of the hypervisor, and the media that it boots from.

HV_CFLAGS := -std=gnu11 -O2 -g $(WARN) -Iinclude -Ihv -I. -ffreestanding -fno-pic -fno-pie \
	-mcmodel=kernel \
	-mgeneral-regs-only -mno-red-zone -U_FORTIFY_SOURCE -fno-stack-protector -fcf-protection=none \
	-fno-asynchronous-unwind-tables -fno-omit-frame-pointer -fno-strict-aliasing -fno-common -MMD \
	-MP

# LABS names a policy of labs/ that the image is to have (docs/writing-a-policy.md). The image then
# has all of labs/, because labs/policies.c lists them all, and so recordings number policies as the
# simulation does.
LABS   :=
LABS_C := $(if $(LABS),$(LABS) $(wildcard labs/*.c))
HV_C   := $(sort $(wildcard hv/*.c hv/*/*.c hv/*/*/*.c common/*.c drivers/uart.c) $(LABS_C))
HV_ASM := $(sort $(wildcard boot/*.asm hv/*/*.asm))
HV_OBJ := $(patsubst %.c,$(B)/image/%.o,$(HV_C)) $(patsubst %.asm,$(B)/image/%.o,$(HV_ASM)) \
	$(B)/image/version.o

# What runs at boot, or when an operator asks for it, is compiled for size: it costs no guest a
# cycle, and it is a third of the text, which has a limit (`make size`).
COLD_C := $(wildcard hv/config*.c hv/preflight.c hv/probe.c hv/lib/parse.c hv/sched/*params.c \
	$(addprefix hv/platform/,acpi*.c bootinfo.c crashlog.c dmar.c mptable.c power.c) \
	$(addprefix hv/passthrough/,assign.c give.c pcbus.c quiesce.c reset.c vtd*.c) \
	$(foreach room,image pci selftest shell,hv/$(room)/*.c))
$(patsubst %.c,$(B)/image/%.o,$(COLD_C)): MORE += -Os

$(B)/image/flags: FORCE
	@tools/stamp.sh $@ '$(CC) $(HV_CFLAGS) $(COLD_C)'
$(B)/image/%.o: %.c $(B)/image/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(HV_CFLAGS) $(MORE) -c $< -o $@

# The commit that the image is built from. The file is written only when that changes, so that a
# build of which nothing has changed does not link the image again.
$(B)/version.c: FORCE
	@mkdir -p $(@D)
	@tools/version.sh > $@.new && { cmp -s $@.new $@ && rm $@.new || mv $@.new $@; }
$(B)/image/version.o: $(B)/version.c $(B)/image/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(HV_CFLAGS) -c $< -o $@

# The numbers of boot/layout.h for NASM.
$(B)/layout.inc: boot/layout.h
	@mkdir -p $(@D)
	$(Q)sed -n 's/^#define *\([A-Z0-9_]*\) *\([0-9][0-9a-fx]*\).*/%define \1 \2/p' $< > $@

# The table of a PC's devices, for the operating system of a VM.
$(B)/dsdt.hex: hv/image/dsdt.asl
	@mkdir -p $(@D)
	$(Q)$(CC) -E -P -x c $< -o $(B)/dsdt.asl
	$(Q)iasl -vs -tc -p $(B)/dsdt $(B)/dsdt.asl > $(B)/dsdt.log || { cat $(B)/dsdt.log; exit 1; }
FIRMWARE_O := $(addsuffix /hv/image/firmware.o,\
	$(addprefix $(B)/,image host fuzz/obj tsan/obj whole/hv faults))
$(FIRMWARE_O): $(B)/dsdt.hex
$(FIRMWARE_O): MORE += -I$(B)

NASM_FLAGS := -f elf64 -I$(B)/ -Iboot/
# NASM gives debuggers wrong lines for a file that goes to and fro between sections, so boot.asm
# gets none.
NASM_DEBUG := -g -F dwarf
$(B)/image/boot/boot.o: NASM_DEBUG :=

$(B)/image/nasm-flags: FORCE
	@tools/stamp.sh $@ '$(NASM) $(NASM_FLAGS)'
$(B)/image/%.o: %.asm $(B)/layout.inc $(B)/image/nasm-flags $(wildcard boot/*.inc)
	@mkdir -p $(@D)
	$(call say,NASM)
	$(Q)$(NASM) $(NASM_FLAGS) $(NASM_DEBUG) -MD $(@:.o=.d) -o $@ $<

HV_LD := ld -nostdlib -z max-page-size=4096 -z noexecstack -T boot/takt.ld
# 128-bit division and the like. Its red zone does no harm: interrupts are off, NMI and #MC have
# their own stacks.
LIBGCC := $(shell $(CC) -print-libgcc-file-name)

# Linked twice: the second time with the table of symbols that backtraces need. The table lies
# behind text and data, so that no function moves.
$(B)/image/objects: FORCE
	@tools/stamp.sh $@ '$(HV_LD) $(HV_OBJ) $(LIBGCC)'
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
	$(Q)$(HV_LD) --wrap=vmx_enter --wrap=svm_enter -o $@ $(HV_OBJ) $(CHECKED_OBJ) $(B)/symbols.o \
	    $(LIBGCC)

# ---- what it boots from: VMS is the configuration, MKISO_ARGS is passed on (--cmdline, --module;

ISO  ?= $(B)/takt.iso
MENU ?= --menu
# `make run` does not replace what `make iso` made, which has a menu, and perhaps other VMs.
RUN_ISO ?= $(B)/run.iso
PXE  ?= $(B)/pxe

iso: $(B)/takt.elf $(B)/cfgdump guests ## builds the boot image, for BIOS and UEFI, CD and USB stick
	$(call say,ISO)
	$(Q)tools/mkiso.sh $(ISO) $(VMS) --hv $(B)/takt.elf $(MENU) $(MKISO_ARGS)
	@echo "$(ISO) has the VMs of $(VMS)"

pxe: $(B)/takt.elf $(B)/cfgdump guests ## writes files for booting by network (VMS= HTTP= PXE=dir)
	@tools/deps.sh build
	$(call say,PXE)
	$(Q)tools/mkiso.sh $(PXE) $(VMS) --hv $(B)/takt.elf --net $(if $(HTTP),--http $(HTTP)) \
	    $(MKISO_ARGS)
	@echo "$(PXE) is ready to be served by TFTP$(if $(HTTP), and HTTP): docs/lab.md has the"\
	    "lines for dnsmasq"

flash: ## writes the boot image to a USB stick, after it has asked (DEV=/dev/sdX VMS=file.cfg)
	@$(if $(DEV),,echo 'which device? make flash DEV=/dev/sdX; lsblk lists them' >&2; exit 1)
	@tools/deps.sh build
	@$(PYTHON) tools/flash.py $(DEV)
	@$(MAKE) iso
	@$(PYTHON) tools/flash.py $(ISO) $(DEV)

size: $(B)/takt.elf ## prints lines and bytes of the image by room, or what changed (SINCE=commit)
	@$(PYTHON) tools/size.py $(if $(SINCE),--since $(SINCE)) $(B)/image $(B)/takt.elf $(HV_C) \
	    $(HV_ASM) \
	    $(wildcard boot/*.inc)

.PHONY: iso pxe flash size
