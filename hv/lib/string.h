#ifndef HV_LIB_STRING_H
#define HV_LIB_STRING_H

#include "common/string.h"

#endif
