// Reports a failed assertion in a kernel. The C library would end the process instead.
#include "../intrinsics.h"
