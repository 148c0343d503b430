# The playground (docs/playground.md): build/sim as WebAssembly, in a page that needs no server.

# The distribution's clang compiles for WebAssembly, and finds the C library (wasi-libc) by itself.
# -Wno-format: an "l" in a format of hv/lib/printf.h always means 64 bits, but the compiler compares
# it with the type long, which has 32 bits there. The host build compares formats with arguments.
WASM_CC     ?= clang
WASM_CFLAGS := --target=wasm32-wasi -std=gnu11 -O2 $(WARN) -Wno-missing-field-initializers \
	-Wno-format -include playground/wasm.h -Iinclude -Ihv -I. $(SIM_INC) -D_GNU_SOURCE \
	-Dsched_yield=hv_sched_yield -fno-strict-aliasing -MMD -MP
WASM_C      := tests/sim/main.c $(SIM_C) $(wildcard labs/*.c) \
	$(filter-out $(HOST_SKIP),$(wildcard hv/config*.c hv/sched/*.c hv/lib/*.c common/*.c))
WASM_OBJ    := $(WASM_C:%.c=$(B)/wasm/%.o)

$(B)/wasm/flags: FORCE
	@tools/stamp.sh $@ '$(WASM_CC) $(WASM_CFLAGS) $(WASM_OBJ)'
$(B)/wasm/%.o: %.c $(B)/wasm/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(WASM_CC) $(WASM_CFLAGS) -c $< -o $@
$(B)/sim.wasm: $(WASM_OBJ) $(B)/wasm/flags
	$(call say,CC)
	$(Q)$(WASM_CC) --target=wasm32-wasi -Wl,--strip-all -o $@ $(WASM_OBJ)

PLAYGROUND := $(B)/playground/index.html
$(PLAYGROUND): $(B)/sim.wasm $(B)/sim tools/playground.py $(wildcard playground/*) \
		$(wildcard labs/*.cfg boot/*.cfg)
	$(call say,PAGE)
	$(Q)$(PYTHON) tools/playground.py --sim $(B)/sim --wasm $(B)/sim.wasm -o $@

playground: ## makes build/playground/index.html: the scheduler in a browser, without a server
	@tools/deps.sh build playground
	@$(MAKE) $(J) $(PLAYGROUND)

.PHONY: playground
