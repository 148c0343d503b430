# build/sim-faults: the simulation of the whole machine with faults that a seed chooses, with checks
# after each event, under AddressSanitizer and UndefinedBehaviorSanitizer (docs/simulation.md).

FAULTS_C   := $(WHOLE_HV_C) $(WHOLE_C) $(wildcard tests/whole/inject/*.c) tests/sim/check.c
FAULTS_OBJ := $(FAULTS_C:%.c=$(B)/faults/%.o)
FAULTS_FLAGS := $(HOST_CFLAGS) -Itests/sim -DTAKT_CHECKED -fno-omit-frame-pointer
FAULTS_SAN   := -fsanitize=address,undefined -fno-sanitize-recover=undefined
FAULTS_WRAP  := $(WHOLE_H_WRAP) heap_alloc heap_free \
	$(addprefix frame_,alloc alloc_below alloc_near alloc_zeroed alloc_exact free free_exact)
# These switch stacks, never return on one that is not of a thread, or use memory that is free, so
# they are compiled without sanitizers.
FAULTS_PLAIN := $(addprefix $(B)/faults/,tests/whole/boot.o tests/whole/cpu.o tests/whole/engine.o \
	tests/whole/faults.o tests/whole/memory.o tests/whole/inject/memory.o hv/mm/frame.o \
	hv/mm/heap.o)

$(FAULTS_PLAIN): FAULTS_SAN :=
$(B)/faults/tests/%.o: WHOLE_COUNT :=
$(B)/faults/flags: FORCE
	@tools/stamp.sh $@ '$(CC) $(WHOLE_H_INC) $(FAULTS_FLAGS) $(FAULTS_SAN) $(WHOLE_COUNT)'
$(B)/faults/%.o: %.c $(B)/faults/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(WHOLE_H_INC) $(FAULTS_FLAGS) $(FAULTS_SAN) $(MORE) $(WHOLE_COUNT) -c $< -o $@
$(B)/faults/objects: FORCE
	@tools/stamp.sh $@ '$(FAULTS_OBJ)'
$(B)/sim-faults: $(FAULTS_OBJ) $(B)/faults/objects
	$(call say,CC)
	$(Q)$(CC) $(FAULTS_SAN) $(FAULTS_WRAP:%=-Wl,--wrap=%) -o $@ $(FAULTS_OBJ)
