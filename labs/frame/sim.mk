# How the simulation is built from your files and from those of Takt. V=1 shows the commands.
#   make         builds build/sim
#   make run     runs a VM file in it (SCENARIO=file.cfg CPUS=1)
#   make grade   tells your points, step by step (GRADE_TIMEOUT=60 on a slow computer)
B        := build
CC       ?= gcc
PYTHON   ?= python3
Q        := $(if $(V),,@)
CFLAGS   := -std=gnu11 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined \
	-Itakt/include -Itakt/hv -Itakt -Itakt/tests/sim -Itakt/guestlib/include -D_GNU_SOURCE \
	-Dsched_yield=hv_sched_yield -DTAKT_CHECKED -fno-strict-aliasing -MMD -MP
WARNINGS := -Wall -Wextra -Wno-unused-parameter -Wno-unused-function
MINE     := $(patsubst %.c,$(B)/%.o,$(filter %.c,$(FILES)))
OBJECTS  := $(MINE) $(SOURCES:%.c=$(B)/%.o)

all: $(B)/sim

$(MINE): CFLAGS += $(WARNINGS)
$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -c $< -o $@
$(B)/sim: $(OBJECTS)
	$(Q)$(CC) $(CFLAGS) -o $@ $^

run: all
	$(B)/sim -C -p $(CPUS) $(SCENARIO)
grade:
	@$(PYTHON) tests/steps.py
clean:
	rm -rf $(B) grade.json

.PHONY: all run grade clean
-include $(shell find $(B) -name '*.d' 2>/dev/null)
