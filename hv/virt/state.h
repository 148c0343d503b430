/* State that neither VMCB nor VMCS holds and that exits leave alone: FPU (XSAVE), debug addresses and a few
 * MSRs stay the guest's while the hypervisor runs, which uses none of them, and are switched by load and
 * save. */
#ifndef HV_VIRT_STATE_H
#define HV_VIRT_STATE_H

#include <takt/types.h>

struct guest_state {
    void *xsave; /* a frame; FXSAVE format on CPUs without XSAVE */
    u64 xcr0;
    u64 dr[4];
    u64 tsc_aux; /* written through state_set_*, never by the guest itself */
};

int state_cpu_enable(void); /* CR0, CR4 and XCR0 of this pCPU; -ENODEV with a log line */
int state_init(struct guest_state *s);
void state_fini(struct guest_state *s);
void state_reset(struct guest_state *s); /* after INIT: FPU state is kept (SDM 3A table 10-1), the rest not */
void state_load(const struct guest_state *s);
void state_save(struct guest_state *s);
/* `loaded`: it is in this pCPU's registers now. */
void state_set_xcr0(struct guest_state *s, u64 v, bool loaded);
void state_set_tsc_aux(struct guest_state *s, u64 v, bool loaded);

#endif
