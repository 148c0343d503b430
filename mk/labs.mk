# The course (docs/labs.md).

labs: ## lists the labs of the course (docs/labs.md)
	@$(PYTHON) tools/labs.py list

lab: ## writes a student's tree of a lab: N=5 OUT=../lab5
	$(call expect,N,[1-9][0-9]*,the number of a lab (make labs lists them))
	$(if $(OUT),,$(error OUT= is missing: expected a directory, such as OUT=../lab$(N)))
	@tools/deps.sh build
	@$(PYTHON) tools/labs.py tree $(N) '$(OUT)'

# What students write is built as they build it. A starter has functions that nothing calls yet, so
# a warning must not be an error there, not even in `make check`.
labs-check: export WERROR :=
labs-check: ## checks the labs and their graders: solutions, starters, wrong solutions (N=5)
	@tools/deps.sh build bochs
	@$(PYTHON) tools/labs.py check $(N)

race: ## ranks policies on eight mixes of VMs: POLICIES="labs/stride.c labs/lottery.c"
	$(if $(POLICIES),,$(error POLICIES= is missing: expected files, such as \
	    POLICIES="labs/stride.c mine.c"))
	@tools/deps.sh build
	@$(MAKE) $(J) $(B)/sim
	@$(PYTHON) tools/race.py $(POLICIES)

.PHONY: labs lab labs-check race
