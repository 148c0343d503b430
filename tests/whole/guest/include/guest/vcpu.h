/* Guests in the simulation of the whole machine have no GS. This header takes the place of the one
 * of the same name. */
#ifndef WHOLE_GUEST_VCPU_H
#define WHOLE_GUEST_VCPU_H

#define this_vcpu hardware_this_vcpu
#include_next <guest/vcpu.h>
#undef this_vcpu

static inline struct vcpu *this_vcpu(void) { return whole_port->area; }

#endif
