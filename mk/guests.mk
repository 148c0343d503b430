# The library of guests (guestlib/), the guests, and the guest tests.

GUEST_CFLAGS := -std=gnu11 -O2 -g $(WARN) -Iinclude -Iguestlib/include -I. -ffreestanding \
	-fno-pic -fno-pie \
	-mno-red-zone -mgeneral-regs-only -U_FORTIFY_SOURCE -fno-stack-protector -fcf-protection=none \
	-fno-asynchronous-unwind-tables -fno-strict-aliasing -MMD -MP
# A function with large variables touches each page of them, so that none steps over the guard page
# of a stack.
GUEST_CFLAGS += -fstack-clash-protection
# A guest that wants the C library or floating point is told so in a sentence (guestlib/no-libc/).
NO_LIBC  := -Iguestlib/no-libc -include guestlib/no-libc/no-float.h \
	-Werror=unsuffixed-float-constants
GUEST_LD := ld -nostdlib -z max-page-size=4096 -z noexecstack -T guestlib/guest.ld

# The drivers that guests link; the UART's is the hypervisor's own.
DRIVERS_C    := $(filter-out drivers/uart.c,$(wildcard drivers/*.c drivers/collab/*.c))
GUESTLIB_OBJ := $(patsubst %.c,$(B)/guestlib/%.o,$(wildcard guestlib/*.c common/*.c) $(DRIVERS_C)) \
	$(patsubst %.asm,$(B)/guestlib/%.asm.o,$(wildcard guestlib/*.asm))
GUESTS      := $(patsubst guests/%.c,$(B)/guests/%.elf,$(wildcard guests/*.c)) \
	$(B)/guests/stamped-iodom.elf
GUEST_TESTS := $(patsubst tests/guest/%.c,$(B)/guests/test-%.elf,$(wildcard tests/guest/*.c)) \
	$(patsubst tests/guest32/%.asm,$(B)/guests/test-%.elf,$(wildcard tests/guest32/*.asm))

# Guests that include <netstack/...> are linked with the network stack.
NET_GUESTS := $(patsubst %.c,%,$(patsubst tests/guest/%,test-%,$(patsubst guests/%,%,\
	$(shell grep -sl '^.include <netstack/' guests/*.c tests/guest/*.c))))
NET_ELF    := $(NET_GUESTS:%=$(B)/guests/%.elf)

$(B)/guestlib/flags: FORCE
	@tools/stamp.sh $@ '$(CC) $(GUEST_CFLAGS)'
$(B)/guests/flags: FORCE
	@tools/stamp.sh $@ '$(CC) $(NO_LIBC) $(GUEST_CFLAGS)'
$(B)/guests/net-flags: FORCE
	@tools/stamp.sh $@ '$(NET_INC)'

$(B)/guestlib/%.o: %.c $(B)/guestlib/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(GUEST_CFLAGS) -c $< -o $@
$(B)/guestlib/%.asm.o: %.asm
	@mkdir -p $(@D)
	$(call say,NASM)
	$(Q)$(NASM) -f elf64 -o $@ $<

# An archive, so that a guest has in it what it uses.
$(B)/guestlib/objects: FORCE
	@tools/stamp.sh $@ '$(GUESTLIB_OBJ)'
$(B)/libguest.a: $(GUESTLIB_OBJ) $(B)/guestlib/objects
	@rm -f $@
	$(call say,AR)
	$(Q)ar rcs $@ $(GUESTLIB_OBJ)

$(B)/guests/%.o: guests/%.c $(B)/guests/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(NO_LIBC) $(GUEST_CFLAGS) $(MORE) -c $< -o $@
$(B)/guests/test-%.o: tests/guest/%.c $(B)/guests/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(NO_LIBC) $(GUEST_CFLAGS) $(MORE) -c $< -o $@
$(B)/guests/%.elf: $(B)/guests/%.o $(B)/libguest.a guestlib/guest.ld
	$(call say,LD)
	$(Q)$(GUEST_LD) -o $@ $< $(filter %/libguestnet.a,$^) $(B)/libguest.a

NET_GUEST_O := $(NET_GUESTS:%=$(B)/guests/%.o) $(B)/guests/stamped/front.o
$(NET_GUEST_O): MORE := $(NET_INC)
$(NET_GUEST_O): netstack/lwipopts.h $(B)/guests/net-flags | $(LWIP)/VERSION
$(NET_ELF): $(B)/libguestnet.a

# For make bench: the driver domain and a guest with the stack, with clocks between their layers
# (guests/stamped/stamps.h).
STAMPS_back  := memcpy hypercall vring_back_take event_close
STAMPS_front := memcpy virtio_kick trap net_rx tcp_input net_poll net_guest_run
STAMPED_BACK  := $(addprefix $(B)/guests/,iodom.o stamped/back.o stamped/stamps.o)
STAMPED_FRONT := $(addprefix $(B)/guests/,iobench.o stamped/front.o stamped/stamps.o)
$(B)/guests/stamped-iodom.elf: $(STAMPED_BACK) $(B)/libguest.a guestlib/guest.ld
	$(call say,LD)
	$(Q)$(GUEST_LD) $(STAMPS_back:%=--wrap=%) -o $@ $(STAMPED_BACK) $(B)/libguest.a
$(B)/guests/iobench.elf: $(STAMPED_FRONT) $(B)/libguest.a guestlib/guest.ld
	$(call say,LD)
	$(Q)$(GUEST_LD) $(STAMPS_front:%=--wrap=%) -o $@ $(STAMPED_FRONT) $(B)/libguestnet.a \
	    $(B)/libguest.a

# 32-bit multiboot1 kernels, without the library.
$(B)/guests/test-%.elf: tests/guest32/%.asm tests/guest32/kernel.inc
	@mkdir -p $(@D)
	$(call say,NASM)
	$(Q)$(NASM) -f elf32 -Itests/guest32/ -o $(@:.elf=.o) $<
	$(Q)ld -m elf_i386 -nostdlib -z noexecstack -Ttext-segment=0x100000 -e start32 -o $@ \
	    $(@:.elf=.o)

# Guests with the network stack are left out as long as lwIP's source is not there, so that all else
# can be built.
guests: $(filter-out $(NET_ELF),$(GUESTS) $(GUEST_TESTS))
guests: $(if $(wildcard $(LWIP)/VERSION),net-guests,no-net-guests)
net-guests: $(NET_ELF)
no-net-guests:
	@echo 'the guests with a network stack are left out: make lwip gets the source that they need'

.PHONY: guests net-guests no-net-guests
