# How your files are built into programs that test them on this computer. V=1 shows the commands.
#   make         builds build/check
#   make run     runs the tests, one after the other, until one fails (TEST=name: one)
#   make grade   tells your points, step by step (GRADE_TIMEOUT=60 on a slow computer)
B        := build
CC       ?= gcc
PYTHON   ?= python3
Q        := $(if $(V),,@)
CFLAGS   := -std=gnu11 -O1 -g -fsanitize=address,undefined -fno-sanitize=alignment \
	-fno-sanitize-recover=undefined -Itakt/include -Itakt/hv -Itakt -Itakt/tests/unit \
	-Itakt/guestlib/include -D_GNU_SOURCE -DTAKT_CHECKED -fno-strict-aliasing -MMD -MP
WARNINGS := -Wall -Wextra -Wno-unused-parameter -Wno-unused-function
MINE     := $(patsubst %.c,$(B)/%.o,$(filter %.c,$(FILES)))
OBJECTS  := $(MINE) $(patsubst %.c,$(B)/%.o,$(shell find takt -name '*.c'))
PROGRAMS := $(patsubst tests/%.c,$(B)/%,$(wildcard tests/*.c))

all: $(PROGRAMS)

$(MINE): CFLAGS += $(WARNINGS)
$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -c $< -o $@
$(PROGRAMS): $(B)/%: $(B)/tests/%.o $(OBJECTS)
	$(Q)$(CC) $(CFLAGS) -o $@ $^

run: all
	$(B)/check $(TEST)
grade:
	@$(PYTHON) tests/steps.py
clean:
	rm -rf $(B) grade.json

.PHONY: all run grade clean
.SECONDARY:
-include $(shell find $(B) -name '*.d' 2>/dev/null)
