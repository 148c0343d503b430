# The network stack: lwIP's source as it comes (tools/lwip.sh), and netstack/ around it.

LWIP     ?= $(B)/lwip
# netstack/heap.c takes the place of core/mem.c.
LWIP_C   := $(addprefix core/,def.c inet_chksum.c init.c ip.c memp.c netif.c pbuf.c stats.c \
	tcp.c tcp_in.c tcp_out.c timeouts.c udp.c \
	$(addprefix ipv4/,etharp.c icmp.c ip4.c ip4_addr.c)) netif/ethernet.c
LWIP_OBJ := $(patsubst %.c,lwip/%.o,$(LWIP_C))
# What of netstack/ only guests have.
NET_OWN  := netstack/guest.c netstack/iperf.c netstack/sendfile.c netstack/start.c \
	netstack/virtio.c netstack/igbvf.c
NET_C    := $(filter-out $(NET_OWN),$(wildcard netstack/*.c))
# lwIP's headers are a system's to the compiler, so that it does not tell that they include
# lwipopts.h.
NET_INC  := -Inetstack -isystem $(LWIP)/src/include

$(LWIP)/VERSION: tools/lwip.sh tools/lwip.sha256
	@tools/lwip.sh $(LWIP)
lwip: $(LWIP)/VERSION ## gets lwIP's source through apt, for guests with a network stack

# For guests. guestlib/mem.c has a mem_init of its own.
GUEST_NET    := $(patsubst %,$(B)/guestnet/%,$(patsubst %.c,%.o,$(NET_C) $(NET_OWN)) $(LWIP_OBJ))
GUEST_LWIP    = $(GUEST_CFLAGS) $(NET_INC) -Dmem_init=lwip_mem_init

$(B)/guestnet/flags: FORCE
	@tools/stamp.sh $@ '$(CC) $(GUEST_LWIP)'
$(B)/guestnet/netstack/%.o: netstack/%.c $(B)/guestnet/flags netstack/lwipopts.h | $(LWIP)/VERSION
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(GUEST_LWIP) -c $< -o $@
$(addprefix $(B)/guestnet/,$(LWIP_OBJ)): $(B)/guestnet/lwip/%.o: $(B)/guestnet/flags \
	$(LWIP)/VERSION netstack/lwipopts.h
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(filter-out $(WARN),$(GUEST_LWIP)) -c $(LWIP)/src/$*.c -o $@

$(B)/guestnet/objects: FORCE
	@tools/stamp.sh $@ '$(GUEST_NET)'
$(B)/libguestnet.a: $(GUEST_NET) $(B)/guestnet/objects
	@rm -f $@
	$(call say,AR)
	$(Q)ar rcs $@ $(GUEST_NET)

.PHONY: lwip
