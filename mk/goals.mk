# What a person asks for. Each goal first installs what it needs and misses (tools/deps.sh says
# what, and why), then builds, then runs a program of tools/.

EMULATOR := $(if $(filter bochs,$(PLATFORM)),bochs,qemu)
MACHINE  := --cpus $(CPUS) --memory $(MEMORY)

# All that goes into an image, and before that lwIP if it can be had. It comes through the network,
# so it is got here and by `make lwip` alone. Where it cannot be had, the guests that need it are
# left out.
with-lwip:
	@tools/lwip.sh $(LWIP) || true
	@$(MAKE) $(J) all

run: ## boots and shows a live table; a key opens the shell (PLATFORM=bochs|kvm VMS= CPUS= NVME=)
	@tools/deps.sh build $(EMULATOR)
	@$(MAKE) with-lwip
	@$(MAKE) iso ISO=$(RUN_ISO) MENU= MKISO_ARGS="$(MACHINE) $(MKISO_ARGS)"
	@$(PYTHON) tools/machine.py run --platform $(PLATFORM) $(MACHINE) $(if $(NVME),--nvme $(NVME)) \
	    $(RUN_ISO)

demo: ## checks for ten virtual seconds that each vCPU gets its share (FAULT=ignore_weight)
	@tools/deps.sh build $(EMULATOR)
	@$(MAKE) with-lwip
	@$(PYTHON) tools/demo.py --platform $(PLATFORM) $(MACHINE) --vms $(VMS) \
	    $(if $(FAULT),--fault $(FAULT))

# ---- tests -------------------------------------------------------------------------------------

PYTEST := $(PYTHON) -m pytest -o cache_dir=$(abspath $(B))/pytest -q
# What fails (and only if tests failed, which is status 1) is run once more, in boots of its own:
# the host may have had other things to do.
pytest-twice = $(PYTEST) $(1) || \
    { test $$? = 1 && echo 'once more:' && $(PYTEST) --last-failed $(1); }
# Tests that judge by the host's clock (`alone`) run one after another. The others run side by side,
# among them all that run in Bochs, in virtual time. There is one worker more than CPUs, because
# many tests spend a part of their time waiting.
pytest-all = @failed=0; \
    $(call pytest-twice,tests -m 'alone and not bochs' --durations=20 $(1)) || failed=1; \
    $(call pytest-twice,tests -m 'bochs or not alone' -n $$(($$(nproc) + 1)) --dist loadfile \
        --durations=20 $(1)) || failed=1; \
    exit $$failed

test-needs:
	@tools/deps.sh build qemu bochs test net clients store
	@$(MAKE) lwip
	@$(MAKE) $(J) all unit-build $(B)/machine-check $(B)/sim $(B)/takt-checked.elf \
	    sim-whole-build $(B)/sim-faults
test-guest: ## runs only the guest tests (PLATFORM=qemu|bochs, GUEST=name)
	@$(PYTEST) tests/guest $(if $(filter-out auto,$(PLATFORM)),--platform $(PLATFORM)) \
	    $(if $(GUEST),-k '$(GUEST)')
pytest:
	@$(PYTEST) $(TESTS)

test: ## runs unit, guest and system tests, on QEMU and Bochs; under ten minutes on two cores
	@$(MAKE) test-needs
	@$(MAKE) unit
	$(call pytest-all,)

# Here a warning of the compiler is an error, also in what the tests build. It takes two hours, so a
# part that fails does not keep the others from being seen.
CHECKS := lint fuzz tsan unit size labs-check sim-faults fidelity-quick test-long \
	shake experiments-quick fresh
check: export WERROR := -Werror
check: ## runs also the long tests: soak, fuzz, boot by UEFI, every lint, fresh systems
	@tools/deps.sh build qemu bochs test net clients store check lab linux experiments \
	    playground browser book slurm grade
	@$(MAKE) test-needs
	@failed=; for part in $(CHECKS); do $(MAKE) $$part || failed="$$failed $$part"; done; \
	    [ -z "$$failed" ] || { echo "make check: these parts failed:$$failed"; exit 1; }

test-long:
	$(call pytest-all,--long)

# Virtual time repeats on one machine, but not on another: another compiler or GRUB moves all that
# happens by some microseconds. A test must not hold at one phase alone.
SHAKES := 7 120
shake: ## runs the system tests in Bochs at other phases: 15 minutes (SHAKES="7 120")
	@$(MAKE) test-needs
	@failed=0; for n in $(SHAKES); do echo "with $$n lines more in each VM file:"; \
	    TAKT_SHAKE=$$n $(PYTEST) tests/system --platform bochs -n $$(($$(nproc) + 1)) \
	        --dist loadfile || failed=1; done; exit $$failed

fresh: ## runs demo, run, test and lint on fresh systems: an hour, as root (RELEASES=debian13)
	@tools/fresh.sh $(RELEASES)

fuzz: $(FUZZ) ## runs every fuzz target for FUZZ_TIME seconds
	@$(PYTHON) tests/fuzz/seeds.py $(B)/fuzz/seeds
	@for t in $(FUZZ); do n=$${t##*/}; d=; echo "$$n: for $(FUZZ_TIME) s"; \
	    mkdir -p $(B)/fuzz/corpus/$$n; \
	    if [ -f tests/fuzz/$$n.dict ]; then d=-dict=tests/fuzz/$$n.dict; fi; \
	    seeds=$$(find tests/fuzz/seeds $(B)/fuzz/seeds -name $$n); \
	    $$t $$d -max_total_time=$(FUZZ_TIME) -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
	        -artifact_prefix=$(B)/fuzz/ $(B)/fuzz/corpus/$$n $$seeds > $(B)/fuzz/$$n.log 2>&1 || \
	        { tail -40 $(B)/fuzz/$$n.log; exit 1; }; \
	    echo "$$n: $$(sed -n 's/.*executed_units: *//p' $(B)/fuzz/$$n.log) inputs, no finding"; done

lint: ## checks warnings, format, headers, floors, cppcheck, and how easy the sources are to read
	@tools/lint.sh

mutants: ## checks that each fault turns its test red: hours (or tools/mutants.py NAME)
	@$(PYTHON) tools/mutants.py

# ---- experiments -------------------------------------------------------------------------------

bench: ## compares costs in instructions, and sizes, with the budgets (N=10000 iterations)
	@tools/deps.sh build qemu bochs net cost
	@$(MAKE) lwip
	@$(MAKE) $(J) all
	@$(PYTHON) tools/bench.py $(if $(N),-n $(N))

apicv-models: ## prints what CPU models of Bochs offer for interrupts without exits (MODELS=)
	@tools/deps.sh build bochs
	@$(PYTHON) tools/apicvmodels.py $(MODELS)

apicv-exits: ## counts the exits of a guest's interrupts on Bochs, with apicv = on and off
	@tools/deps.sh build bochs
	@$(MAKE) $(B)/takt.elf $(B)/cfgdump $(B)/guests/exits.elf
	@$(PYTHON) tools/apicvexits.py

trace: ## draws which vCPU ran where: build/results/trace.png, .json (VMS= PLATFORM= SECONDS=1)
	@tools/deps.sh build $(EMULATOR) picture
	@$(MAKE) with-lwip
	@$(PYTHON) tools/taketrace.py --platform $(PLATFORM) $(MACHINE) --vms $(VMS) \
	    $(if $(SECONDS),--seconds $(SECONDS))

# With LABS the image that knows your policy is built in a directory of its own, and the usual one
# stays as it is.
COMPARE_ON := \
	$(if $(filter sim,$(PLATFORM)),,$(if $(filter qemu kvm,$(PLATFORM)),$(PLATFORM),bochs))
compare: ## compares the policies, simulated and on Bochs (PLATFORM= SEEDS= POLICY= LABS=)
	@tools/deps.sh build $(subst kvm,qemu,$(COMPARE_ON)) cost compare
	@$(MAKE) $(J) LABS= all $(B)/sim
	@$(if $(LABS),$(MAKE) $(J) B=$(B)/labs $(B)/labs/takt.elf $(B)/labs/cfgdump)
	@$(PYTHON) tools/compare.py $(addprefix --platform ,sim $(COMPARE_ON)) \
	    $(addprefix --policy ,$(POLICY)) \
	    $(if $(SEEDS),--seeds $(SEEDS)) $(if $(LABS),--hv $(B)/labs/takt.elf)

# With MODEL=1 the guests are models, and of the hypervisor only the scheduler is there. Otherwise
# the VM file may say how many pCPUs there are; CPUS= overrides it.
SIM_CPUS = $(if $(filter file,$(origin CPUS)),,-p $(CPUS) )
# GDB=1 stops at the virtual time AT, in the VM (or the hypervisor) that IN names; GDB_ARGS=-batch
# ends there.
SIM_GDB = gdb -q $(GDB_ARGS) -x tests/whole/gdb.py --args
SIM_STOP = --stop $(or $(AT),0ms) $(if $(IN),--stop-in $(IN) )
sim: ## runs a VM file in virtual time (SCENARIO= CPUS= TRACE=file; MODEL=1, or GDB=1 AT=1.5s IN=vm)
	@tools/deps.sh build $(if $(MODEL),,net $(if $(GDB),debug))
ifdef MODEL
	@$(MAKE) $(J) $(B)/sim
	$(B)/sim -p $(CPUS) $(SCENARIO)
else
	@$(MAKE) with-lwip
	@$(MAKE) $(J) sim-whole-build
	$(if $(GDB),$(SIM_GDB) )$(B)/sim-whole \
	    $(if $(GDB),$(SIM_STOP))$(SIM_CPUS)$(if $(TRACE),--trace $(TRACE) )$(SCENARIO)
endif

sim-faults: ## runs the whole machine with faults that seeds choose, checking (SEEDS=n FIRST=1)
	@tools/deps.sh build net
	@$(MAKE) lwip
	@$(MAKE) $(J) sim-whole-build $(B)/sim-faults
	@$(PYTHON) tools/simfaults.py $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FIRST),--first $(FIRST))

fidelity: ## compares the simulation of the whole machine with Bochs, within bounds (SEEDS= QUICK=1)
	@tools/deps.sh build net bochs
	@$(MAKE) lwip
	@$(MAKE) $(J) all sim-whole-build
	@$(PYTHON) tools/fidelity.py $(if $(SEEDS),--seeds $(SEEDS)) $(if $(QUICK),--quick)

# Three of its eleven scenarios, because each takes minutes on Bochs.
fidelity-quick:
	@$(MAKE) fidelity QUICK=1

PAPERS = $(PYTHON) tools/papers.py
experiments: ## repeats all results of the papers that can be (QUICK=1: three seeds, and fewer)
	@tools/deps.sh build net experiments
	@$(MAKE) $(J) $(B)/sim sim-whole-build
	@$(PAPERS) run $(if $(QUICK),--quick)
	@$(PAPERS) report

experiments-quick:
	@$(MAKE) experiments QUICK=1

experiment: ## repeats one result: E=vturbo/table1 (POLICY=labs/stride.c LAB=lab.ini)
	$(if $(E),,$(error E= is missing: tools/papers.py list names all experiments))
	@tools/deps.sh build net experiments
	@$(PAPERS) check $(E)
	@$(MAKE) $(J) $(if $(LAB),all,$(B)/sim sim-whole-build)
	@$(PAPERS) run $(E) $(if $(QUICK),--quick) $(if $(POLICY),--policy $(POLICY)) \
	    $(if $(LAB),--lab $(LAB))

report: ## makes build/results/report/index.html of all experiments that are finished
	@tools/deps.sh experiments
	@$(PAPERS) report

book: ## makes a book of docs/: build/book/html/index.html, with a search, and takt.pdf
	@tools/deps.sh book
	@$(PYTHON) tools/book.py

net-demo: ## measures a server among VMs that compute, by ping and iperf (or PLATFORM=bochs)
	@tools/deps.sh build net $(EMULATOR) $(if $(filter qemu,$(EMULATOR)),clients)
	@$(MAKE) lwip
	@$(MAKE) $(J) all
	@$(PYTHON) tools/netdemo.py --platform $(PLATFORM) $(if $(SEEDS),--runs $(SEEDS))

net-experiments: ## measures UDP and TCP goodput of a VM among others, on Bochs (SEEDS=n)
	@tools/deps.sh build net bochs
	@$(MAKE) lwip
	@$(MAKE) $(J) all
	@$(PYTHON) tools/netexp.py $(if $(SEEDS),--seeds $(SEEDS))

collab-demo: ## lets guests and driver domain tune disk I/O together (PLATFORM=bochs|whole SEEDS=3)
	@tools/deps.sh build $(if $(filter whole,$(PLATFORM)),,$(EMULATOR))
	@$(MAKE) lwip
	@$(MAKE) $(J) $(if $(filter whole,$(PLATFORM)),sim-whole-build,all)
	@$(PYTHON) tools/collabdemo.py --platform $(PLATFORM) $(if $(SEEDS),--seeds $(SEEDS))

collab-arrivals: ## lets VMs that share a disk arrive at random, in virtual time (RATES="4 20")
	@tools/deps.sh build
	@$(MAKE) lwip
	@$(MAKE) $(J) sim-whole-build
	@$(PYTHON) tools/arrivals.py $(if $(RATES),--rates $(RATES)) $(if $(SEEDS),--seeds $(SEEDS))

store-bench: $(B)/store-bench ## compares the store's operations a second with xenstored's
	@tools/store-bench.sh

store-demo: ## checks that guests, the shell and XenStore's own clients see one tree
	@tools/deps.sh build qemu store
	@$(MAKE) $(J) all
	@$(PYTHON) tools/storedemo.py

sriov-demo: ## checks virtual functions of two cards in VMs, confined by VT-d
	@tools/deps.sh build qemu net
	@$(MAKE) lwip
	@$(MAKE) $(J) all
	@$(PYTHON) tools/sriovdemo.py

linux-demo: ## boots two Linux VMs beside unikernels and measures them (DEBIAN=13)
	@tools/deps.sh build linux $(EMULATOR) $(if $(filter qemu,$(EMULATOR)),clients)
	@$(MAKE) $(J) all
	@$(PYTHON) tools/linuxdemo.py --platform $(PLATFORM) $(if $(DEBIAN),--release debian$(DEBIAN))

run-gdb: ## boots QEMU with gdb attached, which has the image's symbols
	@tools/deps.sh build qemu debug
	@$(MAKE) with-lwip
	@$(MAKE) iso ISO=$(RUN_ISO) MENU=
	@$(PYTHON) tools/machine.py watch --platform qemu --gdb --timeout 86400 $(MACHINE) \
	    --dir $(B)/run/gdb $(RUN_ISO) & m=$$!; \
	    trap 'kill $$m 2>/dev/null' EXIT; sleep 1; \
	    gdb -q -ex 'target remote :1234' -ex 'hbreak hv_main' -ex continue $(B)/takt.elf

machines: ## prints what Takt says of real machines (MACHINES=directory or file)
	@tools/deps.sh build
	@$(MAKE) $(J) $(B)/machine-check
	@$(PYTHON) tools/machines.py --json $(B)/results/machines.json $(MACHINES)

kut: ## runs KVM's unit tests as guests (KUT=a clone of kvm-unit-tests PLATFORM=qemu|bochs)
	@tools/deps.sh build $(EMULATOR)
	@$(MAKE) with-lwip
	@$(MAKE) $(J) all
	@$(PYTHON) tools/kut.py --platform $(EMULATOR)

.PHONY: fidelity fidelity-quick sim sim-faults
.PHONY: with-lwip run demo test-needs test-guest pytest test check test-long shake fresh fuzz lint \
	mutants bench trace compare experiments experiments-quick experiment report book \
	net-demo net-experiments collab-demo collab-arrivals store-bench store-demo \
	sriov-demo linux-demo run-gdb machines kut
