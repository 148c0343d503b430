#ifndef HV_X86_INSN_H
#define HV_X86_INSN_H

#include "common/insn.h"

#endif
