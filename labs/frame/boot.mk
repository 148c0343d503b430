# How your files are built into Takt's image and into guests, which Bochs boots. Takt's own Makefile
# builds them, with your files in their places (takt/ has links to them). V=1 shows the commands.
#   make image   builds the image of the hypervisor and the guests
#   make boot    boots a VM file (SCENARIO=file.cfg); Ctrl-A x ends the machine
B      := build
PYTHON ?= python3
MADE   := ../$(B)/takt
IMAGES := $(MADE)/takt.elf $(MADE)/cfgdump $(GUESTS:%=$(MADE)/guests/%.elf)

image:
	@mkdir -p $(B)
	@$(MAKE) --no-print-directory -j2 -C takt B=$(MADE) LABS=$(LABS) $(IMAGES)

# A VM file names its script, which lies beside it.
$(B)/%.iso: image
	@mkdir -p $(@D)
	@takt/tools/mkiso.sh $@ $*.cfg --hv $(B)/takt/takt.elf --guests $(B)/takt/guests

boot: $(B)/$(basename $(SCENARIO)).iso
	@$(PYTHON) takt/tools/machine.py run --platform bochs --cpus $(CPUS) --memory 128 \
	    --dir $(B)/run $<

.PHONY: image boot
