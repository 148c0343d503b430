/* The part of C's <string.h> that guests have. */
#ifndef GUEST_STRING_H
#define GUEST_STRING_H

#include "common/string.h"

#endif
