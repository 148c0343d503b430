/* Hypercalls. include/takt/abi.h says what each takes and returns. Each room registers its own. */
#ifndef HV_VCPU_HYPERCALL_H
#define HV_VCPU_HYPERCALL_H

#include "vcpu/vcpu.h"

#define HC_BUFFER_MAX 4096u /* bytes of the buffer that a call with `buffer` may name */

/* What a hypercall returns when it is not finished: the instruction is executed again when the vCPU
 * runs again. No result of a call has this value. */
#define HC_AGAIN ((i64)1 << 62)

struct hypercall {
    u32 nr; /* TAKT_HC_* */
    /* `a` holds the four arguments. Returns a result from 0 on, a negative errno, or HC_AGAIN. Runs
     * on v's pCPU, with v loaded and no lock held. */
    i64 (*fn)(struct vcpu *v, const u64 *a);
    /* The next two say what is checked before fn is called. */
    u8 words;    /* the first `words` arguments must fit into 32 bits; otherwise -EINVAL */
    bool buffer; /* the first two arguments are address and length of a buffer: -EINVAL if it is
                  * longer than HC_BUFFER_MAX, -EFAULT if it is not wholly in RAM */
};

/* Registers `n` hypercalls, whose entries it copies. At boot, before the first VM. */
void hypercalls_add(const struct hypercall *calls, u32 n);

#endif
