# Takt: `make help` lists what there is to make. The rules are in mk/:
#   image.mk    the hypervisor's image, and the media that it boots from
#   guests.mk   the library of guests, guests, guest tests
#   lwip.mk     the network stack: lwIP's source, and netstack/ for guests
#   host.mk     what runs on this machine: unit tests, simulation, checkers, fuzzers
#   playground.mk  the scheduler in a browser
#   labs.mk     the course
#   goals.mk    what a person asks for: run, demo, test, bench ...

# Everything that is built is below this directory.
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

# Some program would refuse a wrong value later, in words that do not name the variable, so it is
# refused here. $(call expect,VARIABLE,REGULAR EXPRESSION,WORDS): an error unless the expression
# describes all of the value.
is_like = $(shell printf '%s' '$(subst ','\'',$1)' | grep -xE '$2')
expect  = $(if $(call is_like,$($1),$2),,$(error $1=$($1): expected $3))

$(call expect,CPUS,[1-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-6],a whole number from 1 to 256)
$(call expect,MEMORY,[1-9][0-9]*,a whole number of MiB (such as 256))
ifneq ($(origin SECONDS),undefined)
$(call expect,SECONDS,[0-9]*[1-9][0-9]*([.][0-9]*)?|[0-9]*[.][0-9]*[1-9][0-9]*,a number of \
	seconds (such as 1 or 0.5))
endif
$(call expect,VMS,[^ ]+,the name of one VM file with no blank in it)
$(call expect,SCENARIO,[^ ]+,the name of one VM file with no blank in it)

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
.SUFFIXES:# make's own rules would look for sources of each file that is included below
.PHONY: FORCE# else .SECONDARY lets make do without it, and no stamp (tools/stamp.sh) is ever \
	looked at

# Each step of a build is told in a short line; V=1 shows its command instead, make -s nothing.
Q    := $(if $(V),,@)
MUTE := $(V)$(findstring s,$(filter-out --%,$(firstword $(MAKEFLAGS))))
say   = $(if $(MUTE),,@printf '  %-4s %s\n' $(1) $(patsubst $(B)/%,%,$@))

# Warnings end a build only in `make check` and `make lint`: a newer compiler may know more of them
# than the authors' one, and that must not keep anybody from building. WERROR=-Werror does it for
# one build.
WERROR ?=
# Flags of single objects: target-specific, in mk/*.mk.
MORE   :=
WARN   := -Wall -Wextra -Wno-unused-parameter -Wmissing-prototypes -Wvla $(WERROR)

# A make that a rule starts has its part in the jobs of the one above it. $(J) lets it do two things
# at once if the one above was not told how many.
MAKEFLAGS += --no-print-directory
J = $(if $(filter -j%,$(MAKEFLAGS)),,-j2)

include mk/image.mk mk/lwip.mk mk/guests.mk mk/host.mk mk/faults.mk mk/playground.mk mk/labs.mk \
	mk/goals.mk

all: $(B)/takt.elf $(B)/cfgdump guests ## builds everything that goes into an image

clean: ## removes build/
	rm -rf $(B)

help: ## prints this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  make \1\t\2/p' mk/goals.mk mk/image.mk mk/lwip.mk \
	    mk/host.mk mk/playground.mk mk/labs.mk Makefile | \
	    awk -F'\t' '{ printf "%-18s %s\n", $$1, $$2 }'

.PHONY: all clean help

# What each object includes. Other trees below build/ have files of these names, too.
NOT_OURS := $(addprefix -o -path $(B)/,fresh mutants labs warnings)
-include $(shell find $(B) \( -false $(NOT_OURS) \) -prune -o -name '*.d' -type f -print \
	2>/dev/null)
