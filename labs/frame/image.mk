# How your files are built into Takt's image and into guests, which Bochs boots. Takt's own Makefile
# builds them, with your files in their places (takt/ has links to them). V=1 shows the commands.
#   make         builds the image of the hypervisor and the guests
#   make run     boots a VM file (SCENARIO=file.cfg); Ctrl-A x ends the machine
#   make grade   tells your points, step by step (GRADE_TIMEOUT=60 on a slow computer)
B      := build
PYTHON ?= python3
MADE   := ../$(B)/takt
IMAGES := $(MADE)/takt.elf $(MADE)/cfgdump $(GUESTS:%=$(MADE)/guests/%.elf)

all:
	@mkdir -p $(B)
	@$(MAKE) --no-print-directory -j2 -C takt B=$(MADE) $(IMAGES)

# A VM file names its script, which lies beside it.
$(B)/%.iso: all
	@mkdir -p $(@D)
	@takt/tools/mkiso.sh $@ $*.cfg --hv $(B)/takt/takt.elf --guests $(B)/takt/guests

run: $(B)/$(basename $(SCENARIO)).iso
	@$(PYTHON) takt/tools/machine.py run --platform bochs --cpus $(CPUS) --memory 128 \
	    --dir $(B)/run $<
grade:
	@$(PYTHON) tests/steps.py
clean:
	rm -rf $(B) grade.json

.PHONY: all run grade clean
