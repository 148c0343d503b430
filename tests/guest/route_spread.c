/* vcpus: 2 */
/* time: 800 */
/* keys: route = spread */
/* args: route=spread */
#include "route.c"
